// SPDX-License-Identifier: Apache-2.0
// How much of the data a graph has, and by what it is divided: the attribute becomes the frames below the root.
import { h } from '../flame/dom.js';

export const UNGROUPED = 'none';
const GROUPS = [['', 'Not grouped'], ['process', 'By process'], ['thread', 'By thread name'], ['tid', 'By thread'], ['state', 'By state'], ['wait', 'By wait']];

const NODES_MAX = '2000000'; // of the API

/** Leads to the same graph with what the daemon summed up as small; '' when nothing was. */
export function wholeLink(doc) {
	const to = new URL(location.href);
	if (!doc.pruned.nodes || to.searchParams.has('maxNodes')) return '';
	to.searchParams.set('maxNodes', NODES_MAX);
	return h('a', { class: 'button', href: to.href }, `Load ${doc.pruned.nodes.toLocaleString('en')} small frames too`);
}

/** @param now what the graph is grouped by, '' = nothing. The choice goes into the address. */
export function groupSelect(now) {
	const pick = h('select', { 'aria-label': 'Group by' }, GROUPS.map(([v, t]) => h('option', { value: v, selected: v === now }, t)));
	pick.addEventListener('change', () => {
		const to = new URL(location.href);
		to.searchParams.set('groupBy', pick.value || UNGROUPED);
		location.assign(to);
	});
	return pick;
}
