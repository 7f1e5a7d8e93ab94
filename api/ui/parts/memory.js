// SPDX-License-Identifier: Apache-2.0
// The notes of memory profiles beside their graph: how far off an estimate may be, what the total
// leaves out, which places only grow.
import { h } from '../flame/dom.js';
import { percent, value } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { list } from './list.js';
import { ago } from './page.js';

/** The heap as a whole, where it is known, and the part of it that is not in the total. */
export function heapFacts(s) {
	if (s.unattributedValue === undefined) return '';
	return h('p', { class: 'facts' }, `The heap holds ${value(s.quality.heapBytes, 'bytes')}, of it ${value(s.unattributedValue, 'bytes')} not in the total: allocated before the observation began `, ago(s.quality.observedSince), ', or missed.');
}

export function leakTable(s) {
	if (!s.suspectedLeaks?.length) return '';
	return h('section', {}, h('h2', {}, 'Suspected leaks'), list('Suspected leaks', [['In use', 'n'], ['A second', 'n'], ['Since', 'c wide'], ['Stack, innermost first', '']], s.suspectedLeaks.map(l => [
		value(l.value, 'bytes'), h('span', { class: 'more' }, '+' + value(l.valuePerSecond, 'bytes')), ago(l.since),
		h('details', {}, h('summary', {}, l.stack.slice(0, 3).map(name => visible(shortName(name))).join(' ‹ ')), h('pre', { class: 'stack' }, l.stack.map(visible).join('\n')))])));
}

/** The 95 % intervals of what was estimated; '' where all is counted. */
export function intervalTable(s) {
	const rows = (s.topFunctions || []).filter(f => f.confidenceInterval);
	if (!rows.length) return '';
	return h('details', {}, h('summary', {}, 'Estimated: how far off each total may be'), list('Estimates', [['Function', ''], ['Total', 'n'], ['Share', 'n wide'], ['With 95\u00a0% certainty between', 'n']],
		rows.map(f => [h('span', { title: visible(f.funcName) }, visible(shortName(f.funcName))), value(f.cumulativeValue, s.unit), percent(f.cumulativePct, 100), f.confidenceInterval.map(v => value(v, s.unit)).join(' and ')])));
}
