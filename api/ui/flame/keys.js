// SPDX-License-Identifier: Apache-2.0
// Keys of the graph and the table. Letters act only while nothing is being typed.
import { copy, h, isQuiet, letterSwitch } from './dom.js';
import { children, nodeName } from './model.js';
import { ROW } from './view.js';

const KEYS = [['← →', 'previous, next frame beside'], ['↑ ↓', 'caller, largest callee'], ['Enter', 'zoom in'], ['Esc, Backspace', 'one step back'],
	['0', 'whole graph'], ['/', 'search'], ['n N', 'next, previous hit'], ['+ −', 'wider, narrower'], ['w a s', 'move'], ['f d m', 'focus on, drop, hide the function'],
	['c', 'collapse recursion'], ['b B', 'callees, callers of the function'], ['z Z', 'undo, redo a filter'], ['y, Ctrl+C', 'copy stack, name'], ['l', 'copy link to this view'], ['Space', 'all about the frame, to stay'],
	['o', 'flame or icicle'], ['1 2 3 4', 'both, graph, table, tree'], ['v', 'invert: callers below what spent it'], ['Menu, right click', 'everything that can be done with a frame']];

export function openHelp(x) {
	x.help.replaceChildren(h('p', {}, 'Width is the total of a frame; frames below are its callees. Self is what a function costs itself, total with its callees. ' +
		(x.base?.delta ? 'Orange frames have a larger share than before, blue ones a smaller; grey ones differ by no more than chance.'
			: 'Colours tell modules apart and mean nothing else; the kernel and unnamed frames are grey, inlined frames italic, hits yellow.')),
		h('dl', {}, KEYS.concat(x.options.lines ? [['i', 'lines of the function']] : [], x.options.share ? [['L', 'copy a link for an hour, without a key']] : [], x.options.keys || []).flatMap(([k, t]) => [h('dt', {}, h('kbd', {}, k)), h('dd', {}, t)])),
		letterSwitch(), h('form', { method: 'dialog' }, h('button', { autofocus: true }, 'Close')));
	x.help.showModal();
}

function move(x, to) {
	if (to === undefined || to < 0) return;
	x.select(to, true);
	x.writeAddress(false);
}

function keyTable(x, at) {
	const m = x.model, { view } = x, parent = m.parent[at];
	const beside = step => { if (parent < 0) return at; const s = children(m, parent); return s[s.indexOf(at) + step]; };
	const down = () => m.last[at] > at + 1 ? at + 1 : -1, span = view.to - view.from, mid = m.x[at] + m.w[at] / 2;
	const run = name => x.actions(at).find(a => a[1] === name)?.[2](), panes = mode => { x.setMode(mode); x.writeAddress(false); };
	return { ArrowLeft: () => move(x, beside(-1)), ArrowRight: () => move(x, beside(1)),
		ArrowUp: () => move(x, view.flipped ? down() : parent), ArrowDown: () => move(x, view.flipped ? parent : down()),
		Home: () => parent >= 0 && move(x, children(m, parent)[0]), End: () => parent >= 0 && move(x, children(m, parent).at(-1)),
		Enter: () => x.zoom(at, true), ' ': () => x.pin(at), Backspace: () => x.back(), 0: () => x.reset(), '/': () => x.input.focus(),
		n: () => x.nextHit(1), N: () => x.nextHit(-1), o: () => x.flip(), '?': () => openHelp(x),
		1: () => panes('both'), 2: () => panes('graph'), 3: () => panes('table'), 4: () => panes('tree'), v: () => x.invert(),
		'+': () => view.window(mid - span / 4, mid + span / 4), '-': () => view.window(mid - span, mid + span),
		a: () => view.window(view.from - span / 8, view.to - span / 8), w: () => view.scrollBy(-3), s: () => view.scrollBy(3),
		d: () => run('d'), f: () => run('f'), m: () => run('m'), c: () => run('c'), b: () => run('b'), B: () => run('B'), i: () => run('i'), y: () => run('y'), l: () => run('l'), L: () => x.options.share && x.share(),
		z: () => x.filters.length && x.change(() => x.undone.push(x.filters.pop())),
		Z: () => x.undone.length && x.change(() => x.filters.push(x.undone.pop())),
		ContextMenu: () => { const b = view.box(at), r = x.graphPane.getBoundingClientRect(); x.openMenu(at, r.left + b.left + 10, r.top + b.top + ROW); } };
}

/** In the menu arrows move the focus; elsewhere Enter and Space press the button that has it. */
function onButton(x, e) {
	const inMenu = x.menu.contains(e.target);
	if (e.target.tagName !== 'BUTTON' && e.target.tagName !== 'A' && e.target.tagName !== 'SUMMARY') return false;
	if (!inMenu && e.key !== 'Enter' && e.key !== ' ') return false;
	if (inMenu && e.key === 'ArrowDown') (e.target.nextElementSibling || x.menu.firstChild).focus();
	if (inMenu && e.key === 'ArrowUp') (e.target.previousElementSibling || x.menu.lastChild).focus();
	return true;
}

function withControl(x, e, at) {
	if (e.key === 'c' && getSelection().isCollapsed) copy(nodeName(x.model, at), 'Name');
	else if (e.key === 'f' && document.activeElement !== x.input) { e.preventDefault(); x.input.focus(); }
}

/** Every key press of the page ends here while an explorer is shown. */
export function pressed(x, e) {
	document.documentElement.dataset.keys = '';
	if (!x.model || e.defaultPrevented || document.querySelector('dialog[open]')) return; // what the page itself took is no key of the graph
	x.settle();
	const typing = ['INPUT', 'SELECT', 'TEXTAREA'].includes(e.target.tagName);
	if (e.key === 'Escape' && (!typing || e.target === x.input)) {
		e.preventDefault();
		x.input.blur();
		return x.back();
	}
	if (e.key === 'Enter' && e.target === x.input) {
		x.setSearch(x.input.value);
		return x.nextHit(1);
	}
	if (typing || e.altKey) return;
	const at = x.view.selected >= 0 ? x.view.selected : x.view.zoomed;
	if (e.ctrlKey || e.metaKey) return withControl(x, e, at);
	const act = keyTable(x, at)[e.key];
	if (!act || isQuiet(e) || onButton(x, e)) return;
	e.preventDefault();
	act();
}
