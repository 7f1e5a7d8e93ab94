// SPDX-License-Identifier: Apache-2.0
// How much of the data a graph has, which of its values it shows, and by what it is divided: the attribute becomes the
// frames below the root.
import { h, onChoice } from '../flame/dom.js';

export const UNGROUPED = 'none';
const GROUPS = [['', 'Not grouped'], ['process', 'By process name'], ['pid', 'By process'], ['thread', 'By thread name'], ['tid', 'By thread'], ['state', 'By state'], ['wait', 'By wait']];
const MORE_GROUPS = { kind: 'By kind', lock: 'By lock', holder: 'By holder', createdBy: 'By creator', tier: 'By tier of code', runtime: "By the runtime's threads" }; // of those profiles that say it

/** Types with more than one value worth a graph, the main one first. */
const VALUES = { io: [['delay', 'Time'], ['bytes', 'Bytes'], ['operations', 'Operations']], block: [['delay', 'Time'], ['contentions', 'Contentions']], mutex: [['delay', 'Time'], ['contentions', 'Contentions']],
	memory: [['inuse_space', 'Bytes'], ['inuse_objects', 'Objects']], alloc: [['alloc_space', 'Bytes'], ['alloc_objects', 'Objects']] };

const NODES_MAX = '2000000'; // of the API

/** Leads to the same graph with what the daemon summed up as small; '' when nothing was. */
export function wholeLink(doc) {
	const to = new URL(location.href);
	if (!doc.pruned.nodes || to.searchParams.has('maxNodes')) return '';
	to.searchParams.set('maxNodes', NODES_MAX);
	return h('a', { class: 'button', href: to.href }, `Load ${doc.pruned.nodes.toLocaleString('en')} small frames too`);
}

/** A choice that goes into the address, where '' is written as `none`. */
function select(label, parameter, choices, now, none) {
	const pick = h('select', { 'aria-label': label }, choices.map(([v, t]) => h('option', { value: v, selected: v === now }, t)));
	onChoice(pick, value => {
		const to = new URL(location.href);
		to.searchParams.set(parameter, value || none);
		location.assign(to);
	});
	return pick;
}

/** @param now what the graph is grouped by, '' = nothing; known: names of attributes that the profile has */
export function groupSelect(now, known = []) {
	return select('Group by', 'groupBy', GROUPS.concat(Object.entries(MORE_GROUPS).filter(([name]) => known.includes(name) || name === now)), now, UNGROUPED);
}

const FRAMES = [['names', 'Python functions'], ['raw', 'Interpreter too']];

/** Whether the interpreter's own functions are shown; '' where the graph has no Python function. */
export function framesSelect(doc, now) { return doc.strings?.includes('[python]') ? select('Frames', 'frames', FRAMES, now || 'names') : ''; }

/** Which of the type's values the graph shows; '' where there is no choice. */
export function valueSelect(type, now) { return VALUES[type] ? select('Value', 'value', VALUES[type], now || VALUES[type][0][0]) : ''; }
