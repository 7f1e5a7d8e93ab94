// SPDX-License-Identifier: Apache-2.0
// Plain tables.
import { h } from '../flame/dom.js';

/** columns: [text, class]; rows: arrays of cell contents. */
export function list(label, columns, rows) {
	return h('div', { class: 'scroll' }, h('table', { class: 'list', 'aria-label': label },
		h('thead', {}, h('tr', {}, columns.map(([text, style]) => h('th', { scope: 'col', class: style }, text)))),
		h('tbody', {}, rows.map(cells => h('tr', {}, cells.map((cell, i) => h('td', { class: columns[i][1] }, cell)))))));
}
