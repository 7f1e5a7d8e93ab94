// SPDX-License-Identifier: Apache-2.0
// The table of functions: a real <table>, rows appended as they are scrolled to.
import { h } from './dom.js';
import { number, percent, points, unitFor, value } from './format.js';
import { functionName } from './model.js';
import { shortName, visible } from './names.js';

export class FunctionTable {
	/** @param holder element that scrolls; events {picked(f), searched(f), menu(f, x, y), sorted(key)} */
	constructor(holder, events) {
		this.holder = holder;
		this.events = events;
		this.sort = 'self';
		this.selected = -1;
		holder.addEventListener('scroll', () => this.more());
	}

	show(model, totals) {
		this.model = model;
		this.totals = totals;
		const largest = values => values.reduce((a, b, f) => f === model.fn[0] && model.count > 1 ? a : Math.max(a, b), 0);
		this.units = [totals.self, totals.total].map(values => unitFor(model.doc.unit, largest(values) * model.doc.scale));
	}

	/** Change of a function's own share of its side, in percentage points. */
	delta(f) {
		const m = this.model;
		return 100 * (this.totals.self[f] / (m.total[0] || 1) - this.totals.base[f] / (m.baseTotal[0] || 1));
	}

	ordered(hit) {
		const m = this.model, { self, total } = this.totals;
		const by = { self: (a, b) => self[b] - self[a] || total[b] - total[a],
			total: (a, b) => total[b] - total[a] || self[b] - self[a],
			delta: (a, b) => Math.abs(this.delta(b)) - Math.abs(this.delta(a)),
			name: (a, b) => functionName(m, a).localeCompare(functionName(m, b)) };
		const seen = f => total[f] !== 0 || self[f] !== 0 || this.totals.base?.[f];
		return Array.from({ length: m.functions }, (_, f) => f)
			.filter(f => (f !== m.fn[0] || m.count === 1) && seen(f) && (!hit || hit[f]))
			.sort(by[this.sort === 'delta' && !m.delta ? 'self' : this.sort]);
	}

	render(hit) {
		const columns = this.model.delta ? [['name', 'Function'], [null, 'Self before'], ['self', 'Self after'], ['delta', 'Change']]
			: [['name', 'Function'], ['self', 'Self', this.units[0]], ['total', 'Total', this.units[1]]];
		this.order = this.ordered(hit);
		this.body = h('tbody', {});
		this.shown = 0;
		const scrolled = this.holder.scrollTop;
		this.holder.replaceChildren(h('table', { class: this.model.delta ? 'functions three' : 'functions', 'aria-label': 'Functions', 'aria-rowcount': this.order.length + 1 },
			h('thead', {}, h('tr', {}, columns.map(c => this.head(hit, ...c)))), this.body));
		if (!this.order.length) this.body.append(h('tr', {}, h('td', { colspan: columns.length }, 'No function matches.')));
		this.more();
		this.holder.scrollTop = scrolled;
	}

	head(hit, key, text, unit) {
		if (!key) return h('th', { scope: 'col', class: 'num' }, h('button', { type: 'button', disabled: true }, text));
		const on = this.sort === key, ascending = key === 'name';
		return h('th', { scope: 'col', class: key === 'name' ? null : 'num', 'aria-sort': on ? (ascending ? 'ascending' : 'descending') : null },
			h('button', { type: 'button', onclick: () => { this.sort = key; this.render(hit); this.holder.scrollTop = 0; this.events.sorted(key); } },
				text, unit?.name ? h('span', { class: 'unit' }, ` (${unit.name})`) : '', on ? (ascending ? ' ▲' : ' ▼') : ''));
	}

	more() {
		const near = () => this.holder.scrollTop + this.holder.clientHeight + 400 > this.holder.scrollHeight;
		for (let rounds = 0; rounds < 40 && this.shown < this.order.length && (rounds === 0 || near()); rounds++) {
			const end = Math.min(this.order.length, this.shown + 60);
			this.body.append(...this.order.slice(this.shown, end).map(f => this.row(f)));
			this.shown = end;
		}
	}

	cell(v, unit) {
		const { doc } = this.model;
		const td = h('td', { class: 'num bar', title: value(v * doc.scale, doc.unit) },
			h('small', {}, number(v * doc.scale, unit)), percent(v, doc.total));
		td.style.setProperty('--w', (doc.total ? 100 * v / doc.total : 0).toFixed(2) + '%');
		return td;
	}

	row(f) {
		const m = this.model, { self, total } = this.totals, name = functionName(m, f);
		const row = h('tr', { 'data-f': f, 'aria-selected': f === this.selected ? 'true' : null,
			onclick: () => this.events.picked(f), ondblclick: () => this.events.searched(f),
			oncontextmenu: e => { e.preventDefault(); this.events.menu(f, e.clientX, e.clientY); } },
			h('td', { title: visible(name) }, visible(shortName(name, m.doc.fn.kind[f]))));
		if (m.delta) {
			const d = this.delta(f);
			row.append(h('td', { class: 'num' }, percent(this.totals.base[f], m.baseTotal[0])), h('td', { class: 'num' }, percent(self[f], m.total[0])),
				h('td', { class: 'num ' + (d > 0.005 ? 'more' : d < -0.005 ? 'less' : '') }, points(d)));
		} else {
			row.append(this.cell(self[f], this.units[0]), this.cell(total[f], this.units[1]));
		}
		return row;
	}

	select(f, reveal) {
		this.selected = f;
		for (const row of this.body.children) {
			if (row.dataset.f === String(f)) {
				row.setAttribute('aria-selected', 'true');
				if (reveal) this.reveal(row);
			} else {
				row.removeAttribute('aria-selected');
			}
		}
	}

	/** Scrolls the table alone, never the page around it. */
	reveal(row) {
		const top = row.offsetTop, head = 32, { scrollTop, clientHeight } = this.holder;
		if (top < scrollTop + head) this.holder.scrollTop = top - head;
		else if (top + row.offsetHeight > scrollTop + clientHeight) this.holder.scrollTop = top + row.offsetHeight - clientHeight;
	}
}
