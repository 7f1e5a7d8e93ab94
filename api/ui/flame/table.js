// SPDX-License-Identifier: Apache-2.0
// The table of functions: a real <table>, rows appended as they are scrolled to.
'use strict';

/** Element with attributes and children; text is only ever text. */
function h(tag, attributes, ...children) {
	const element = document.createElement(tag);
	for (const [name, v] of Object.entries(attributes || {})) {
		if (name.startsWith('on')) element.addEventListener(name.slice(2), v);
		else if (v !== null && v !== undefined && v !== false) element.setAttribute(name, v === true ? '' : v);
	}
	element.append(...children.filter(c => c !== null && c !== undefined));
	return element;
}

class FunctionTable {
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
		this.render(null);
	}

	render(hit) {
		const m = this.model, { self, total } = this.totals;
		const order = Array.from({ length: m.functions }, (_, f) => f)
			.filter(f => (f !== m.fn[0] || m.count === 1) && (total[f] !== 0 || self[f] !== 0 || this.totals.base?.[f]) && (!hit || hit[f]));
		const delta = this.totals.base ? this.deltas() : null;
		const by = { delta: (a, b) => Math.abs(delta[b]) - Math.abs(delta[a]), self: (a, b) => self[b] - self[a] || total[b] - total[a],
			total: (a, b) => total[b] - total[a] || self[b] - self[a],
			name: (a, b) => functionName(m, a).localeCompare(functionName(m, b)) };
		order.sort(by[this.sort]);
		this.order = order;
		this.delta = delta;
		const head = (key, text, number) => h('th', { scope: 'col', class: number ? 'num' : null,
			'aria-sort': this.sort === key ? (key === 'name' ? 'ascending' : 'descending') : null },
			h('button', { type: 'button', onclick: () => { this.sort = key; this.render(hit); this.events.sorted(key); } },
				text + (number && number.name ? ` (${number.name})` : '') + (this.sort === key ? (key === 'name' ? ' ▲' : ' ▼') : '')));
		this.body = h('tbody', {});
		this.shown = 0;
		this.holder.replaceChildren(h('table', { 'aria-label': 'Functions', 'aria-rowcount': order.length + 1 },
			h('thead', {}, h('tr', {}, head('name', 'Function'), ...(delta
				? [h('th', { scope: 'col', class: 'num' }, h('button', { type: 'button', disabled: true }, 'Self before')), head('self', 'Self after', {}), head('delta', 'Change', {})]
				: [head('self', 'Self', this.units[0]), head('total', 'Total', this.units[1])]))),
			this.body));
		if (!order.length) this.body.append(h('tr', {}, h('td', { colspan: 4 }, 'No function matches.')));
		this.holder.scrollTop = 0;
		this.more();
	}

	/** Change of each function's share of self, in percentage points. */
	deltas() {
		const { self, base } = this.totals, after = 100 / (this.model.total[0] || 1), before = 100 / (this.model.baseTotal[0] || 1);
		return Float64Array.from(self, (v, f) => v * after - base[f] * before);
	}

	more() {
		const near = () => this.holder.scrollTop + this.holder.clientHeight + 400 > this.holder.scrollHeight;
		for (let rounds = 0; rounds < 40 && this.shown < this.order.length && (rounds === 0 || near()); rounds++) {
			const end = Math.min(this.order.length, this.shown + 60);
			this.body.append(...this.order.slice(this.shown, end).map(f => this.row(f)));
			this.shown = end;
		}
	}

	row(f) {
		const m = this.model, { self, total } = this.totals, scale = m.doc.scale, all = m.doc.total;
		const cell = (v, unit) => {
			const td = h('td', { class: 'bar', title: value(v * scale, m.doc.unit) },
				h('small', {}, number(v * scale, unit)), percent(v, all));
			td.style.setProperty('--w', (all ? 100 * v / all : 0).toFixed(2) + '%');
			return td;
		};
		const change = v => {
			const td = h('td', {}, (v > 0.005 ? '▲ +' : v < -0.005 ? '▼ \u2212' : '') + Math.abs(v).toFixed(2) + '\u00a0pp');
			return td;
		};
		const name = functionName(m, f);
		const row = h('tr', { 'data-f': f, 'aria-selected': f === this.selected ? 'true' : null,
			onclick: () => this.events.picked(f), ondblclick: () => this.events.searched(f),
			oncontextmenu: e => { e.preventDefault(); this.events.menu(f, e.clientX, e.clientY); } },
			h('td', { title: visible(name) }, visible(shortName(name, m.doc.fn.kind[f]))),
			...(this.delta ? [h('td', {}, percent(this.totals.base[f], m.baseTotal[0])), h('td', {}, percent(self[f], m.total[0])), change(this.delta[f])]
				: [cell(self[f], this.units[0]), cell(total[f], this.units[1])]));
		return row;
	}

	select(f, reveal) {
		this.selected = f;
		for (const row of this.body.children)
			if (row.dataset.f === String(f)) {
				row.setAttribute('aria-selected', 'true');
				if (reveal) row.scrollIntoView({ block: 'nearest' });
			} else {
				row.removeAttribute('aria-selected');
			}
	}
}
