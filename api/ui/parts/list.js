// SPDX-License-Identifier: Apache-2.0
// Plain tables.
import { h } from '../flame/dom.js';

/** The title of a column; one in (brackets) is for screen readers alone. */
export const columnTitle = text => text.startsWith('(') ? h('span', { class: 'unseen' }, text.slice(1, -1)) : text;

/** columns: [text, class]; rows: arrays of cell contents; narrow: where a whole window would part names from numbers. */
export function list(label, columns, rows, narrow) {
	return h('div', { class: 'scroll' }, h('table', { class: narrow ? 'list narrow' : 'list', 'aria-label': label },
		h('thead', {}, h('tr', {}, columns.map(([text, style]) => h('th', { scope: 'col', class: style }, columnTitle(text))))),
		h('tbody', {}, rows.map(cells => h('tr', {}, cells.map((cell, i) => h('td', { class: columns[i][1] }, cell)))))));
}
