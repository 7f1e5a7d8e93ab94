// SPDX-License-Identifier: Apache-2.0
// By what a graph is divided: the attribute becomes the frames below the root.
import { h } from '../flame/dom.js';

export const UNGROUPED = 'none';
const GROUPS = [['', 'Not grouped'], ['process', 'By process'], ['thread', 'By thread name'], ['tid', 'By thread'], ['state', 'By state'], ['wait', 'By wait']];

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
