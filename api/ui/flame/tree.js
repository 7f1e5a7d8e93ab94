// SPDX-License-Identifier: Apache-2.0
// The whole profile as a tree that is opened line by line: a treegrid whose rows exist only while they are in sight.
import { h, textScale } from './dom.js';
import { number, percent, points, unitFor } from './format.js';
import { children, nodeName, stackOf } from './model.js';
import { shortName, visible } from './names.js';

const LINE = 26 * textScale();
const INDENT = 14;

export class CallTree {
	/** @param holder element that scrolls; events {picked(node), zoomed(node), menu(node, x, y)} */
	constructor(holder, events) {
		this.holder = holder;
		this.events = events;
		this.selected = 0;
		holder.addEventListener('scroll', () => this.draw());
		holder.addEventListener('keydown', e => this.key(e));
	}

	/** Shows a model, opened down to where it first divides. */
	show(model) {
		this.model = model;
		this.open = new Set();
		const m = model, largest = unit => unitFor(m.doc.unit, unit * m.doc.scale);
		this.unit = largest(m.total[0]);
		for (let i = 0, below; m.w[i] > 0 && (below = children(m, i)).length; i = below[0]) {
			this.open.add(i);
			if (below.length > 1 && m.w[below[1]] > 0.05 * m.w[i]) break;
		}
		this.list();
	}

	/** The lines that are open, in order. */
	list() {
		const m = this.model;
		this.lines = [];
		for (let i = 0; i < m.count; i = this.open.has(i) ? i + 1 : m.last[i]) this.lines.push(i);
		this.body = h('div', { class: 'lines', role: 'rowgroup' });
		this.body.style.height = this.lines.length * LINE + 'px';
		const heads = m.delta ? ['Function', 'Before', 'After', 'Change'] : ['Function', `Self (${this.unit.name || 'count'})`, `Total (${this.unit.name || 'count'})`, 'Share'];
		this.grid = h('div', { class: 'call-tree', role: 'treegrid', 'aria-label': 'Call tree', 'aria-rowcount': this.lines.length + 1, tabindex: '0' },
			h('div', { class: 'line head', role: 'row' }, heads.map((text, i) => h('span', { role: 'columnheader', class: i ? 'num' : null }, text))), this.body);
		const focused = this.holder.contains(document.activeElement), { scrollTop } = this.holder;
		this.holder.replaceChildren(this.grid);
		this.holder.scrollTop = scrollTop;
		if (focused) this.grid.focus();
		this.draw();
	}

	draw() {
		if (!this.model || !this.holder.clientHeight) return;
		const from = Math.max(0, Math.floor(this.holder.scrollTop / LINE) - 10), to = from + Math.ceil(this.holder.clientHeight / LINE) + 20;
		const shown = this.lines.slice(from, to).map((node, k) => this.line(node, from + k));
		this.body.replaceChildren(...shown);
		if (shown.some(row => row.id === 't' + this.selected)) this.grid.setAttribute('aria-activedescendant', 't' + this.selected);
		else this.grid.removeAttribute('aria-activedescendant');
	}

	cells(i) {
		const m = this.model, { scale } = m.doc;
		if (m.delta) return [percent(m.baseTotal[i], m.baseTotal[0]), percent(m.total[i], m.total[0]), points(m.delta[i])];
		return [number(m.self[i] * scale, this.unit), number(m.total[i] * scale, this.unit), percent(m.total[i], m.doc.total)];
	}

	line(i, at) {
		const m = this.model, isOpen = this.open.has(i), leaf = m.last[i] === i + 1, name = nodeName(m, i);
		const toggle = h('span', { class: 'toggle', 'aria-hidden': 'true', onclick: e => { e.stopPropagation(); this.toggle(i); } }, leaf ? '' : isOpen ? '▾' : '▸');
		const first = h('span', { role: 'gridcell', class: 'what', title: visible(name) }, toggle, visible(shortName(name, m.doc.fn.kind[m.fn[i]])));
		first.style.paddingLeft = Math.min(m.level[i], 40) * INDENT + 'px';
		const row = h('div', { class: 'line', role: 'row', id: 't' + i, 'aria-level': m.level[i] + 1, 'aria-rowindex': at + 2, 'aria-expanded': leaf ? null : String(isOpen),
			'aria-selected': String(i === this.selected), onclick: () => this.events.picked(i), ondblclick: () => this.events.zoomed(i),
			oncontextmenu: e => { e.preventDefault(); this.events.menu(i, e.clientX, e.clientY); } },
			first, this.cells(i).map(text => h('span', { role: 'gridcell', class: 'num' }, text)));
		row.style.top = at * LINE + 'px';
		return row;
	}

	toggle(i) {
		if (this.open.has(i)) this.open.delete(i); else this.open.add(i);
		this.list();
	}

	/** Selects a node, opens the way to it and brings it into sight. */
	select(node) {
		if (!this.model || node < 0) return;
		this.selected = node;
		const way = stackOf(this.model, node).slice(0, -1), closed = way.filter(i => !this.open.has(i));
		closed.forEach(i => this.open.add(i));
		if (closed.length) this.list();
		const top = this.lines.indexOf(node) * LINE, { scrollTop, clientHeight } = this.holder;
		if (top < scrollTop) this.holder.scrollTop = top;
		else if (top + 2 * LINE > scrollTop + clientHeight) this.holder.scrollTop = top + 2 * LINE - clientHeight;
		this.draw();
	}

	/** Arrows as in every treegrid: right opens or goes in, left closes or goes out. */
	key(e) {
		if (e.ctrlKey || e.metaKey || e.altKey) return;
		const m = this.model, i = this.selected, at = this.lines.indexOf(i), page = Math.floor(this.holder.clientHeight / LINE) - 1;
		const to = step => this.lines[Math.max(0, Math.min(this.lines.length - 1, at + step))];
		const act = { ArrowDown: () => to(1), ArrowUp: () => to(-1), PageDown: () => to(page), PageUp: () => to(-page), Home: () => this.lines[0], End: () => this.lines.at(-1),
			ArrowRight: () => this.open.has(i) || m.last[i] === i + 1 ? to(this.open.has(i) ? 1 : 0) : (this.toggle(i), i),
			ArrowLeft: () => this.open.has(i) ? (this.toggle(i), i) : Math.max(0, m.parent[i]) }[e.key];
		if (!act) return;
		e.preventDefault();
		e.stopPropagation();
		this.events.picked(act());
	}
}
