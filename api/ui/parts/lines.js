// SPDX-License-Identifier: Apache-2.0
// The value of a function by its lines.
import { h } from '../flame/dom.js';
import { percent, value } from '../flame/format.js';
import { sourceLink } from '../flame/fragment.js';
import { shortName, visible } from '../flame/names.js';
import { get } from './api.js';
import { list } from './list.js';
import { bar, errorWords, link, plural } from './page.js';

const UNKNOWN = 'not known: install its debug package, or build it with -g';

function lineRow(l, total, unit) {
	const place = l.file && l.line ? `${visible(l.file)}:${l.line}` : l.file ? `${visible(l.file)}, line ${UNKNOWN}` : `The line is ${UNKNOWN}`;
	const to = l.line ? sourceLink(l.file, l.line) : '';
	return [to ? link(to, place, { rel: 'noreferrer' }) : place, value(l.selfValue, unit), [bar('meter', l.selfPct, ''), percent(l.selfValue, total)].flat(),
		value(l.cumulativeValue, unit), percent(l.cumulativeValue, total)];
}

/** @param address function that gives the URL of the flame graph with its query, without format
 * @return function that shows the lines of the functions of a name, in a dialog */
export function linesOf(address) {
	const box = h('dialog', { class: 'source-lines', 'aria-label': 'Lines of a function' });
	document.body.append(box);
	return async name => {
		const to = new URL(address(), location.href), body = h('div', {}, 'Asking the daemon…');
		to.searchParams.set('format', 'lines');
		to.searchParams.set('function', name);
		box.replaceChildren(h('h2', {}, visible(shortName(name))), body, h('form', { method: 'dialog' }, h('button', {}, 'Close')));
		box.showModal();
		try {
			const found = await get(to.pathname + to.search);
			body.replaceChildren(h('p', { class: 'facts' }, `${plural(found.lines.length, 'line')}, in all stacks of what is shown, whatever the filters. Self: spent in the line itself; total: also in what it calls.`),
				list('Lines', [['Line', ''], ['Self', 'n wide'], ['Share', 'n'], ['Total', 'n wide'], ['Share', 'n']], found.lines.map(l => lineRow(l, found.totalValue, found.unit))));
		} catch (e) { body.replaceChildren(h('p', {}, errorWords(e))); }
	};
}
