// SPDX-License-Identifier: Apache-2.0
// One profile on screen: graph, table, path, search, and their shared selection. The view's state is the fragment of
// the address, so that reload, back and a copied link show the same. New data keeps the reader's place.
import { copy, h, place, say, tell } from './dom.js';
import { percent, points, value } from './format.js';
import { readFragment, sourceLink, writeFragment } from './fragment.js';
import { openHelp, pressed } from './keys.js';
import { children, decodeFlame, functionFile, functionModule, functionName, functionTotals, nodeName, nodeOfPath, pathText, search, stackOf } from './model.js';
import { shortName, visible } from './names.js';
import { attachPointer } from './pointer.js';
import { FunctionTable } from './table.js';
import { invert, sandwich, transform } from './transform.js';
import { CallTree } from './tree.js';
import { FlameView, ROW } from './view.js';
import { noun, sentence } from './words.js';

export class Explorer {
	/** @param options {tools: elements for the bar, sentence(text): where the first sentence goes, own(): what it names (sentence() in words.js), share(): a promise of an address
	 * that opens this data without a key, lines(name): shows the lines of a function, keys: more [key, what it does] of the page} */
	constructor(holder, options = {}) {
		Object.assign(this, { filters: [], undone: [], history: [], query: '', hitAt: -1, mode: 'both', side: 'callees', sandwich: null, inverted: false, options });
		this.build(holder);
		this.view = new FlameView(this.canvas);
		this.table = new FunctionTable(this.tableScroll, {
			picked: f => this.selectFunction(f),
			searched: f => this.setSearch(functionName(this.model, f)),
			menu: (f, x, y) => this.openMenu(this.largestOf(f), x, y),
			sorted: () => this.writeAddress(false),
		});
		this.lines = new CallTree(this.treeScroll, { picked: node => { this.select(node, false); this.writeAddress(false); },
			zoomed: node => this.zoom(node, true), menu: (node, x, y) => this.openMenu(node, x, y) });
		attachPointer(this);
		this.listen();
	}

	build(holder) {
		const button = (text, title, run) => h('button', { type: 'button', title, onclick: run }, text);
		this.views = h('span', { class: 'group', role: 'group', 'aria-label': 'Panes' }, [['both', 'Both'], ['graph', 'Graph'], ['table', 'Table'], ['tree', 'Tree']]
			.map(([mode, text]) => h('button', { type: 'button', 'data-mode': mode, onclick: () => { this.setMode(mode); this.writeAddress(false); } }, text)));
		this.input = h('input', { type: 'search', class: 'query', 'aria-label': 'Search functions', placeholder: 'Search: text or /regex/', autocomplete: 'off', spellcheck: 'false' });
		this.hits = h('span', { class: 'hits', 'aria-live': 'polite' });
		this.bar = h('div', { class: 'bar', role: 'toolbar', 'aria-label': 'View' }, this.views,
			h('span', { class: 'search' }, this.input, this.hits),
			h('span', { class: 'group' }, button('Reset', 'Whole graph (0)', () => this.reset()), button('Flip', 'Root at the top or at the bottom (o)', () => this.flip()),
				this.turned = button('Invert', 'Callers below the functions that spent it (v)', () => this.invert()),
				button('Colour', 'By module or by self value', () => this.recolour()), this.options.share ? button('Share', 'Copy a link to this view that works for an hour without a key (L)', () => this.share()) : null,
				button('Keys', 'All keys (?)', () => openHelp(this)), this.options.tools));
		this.path = h('nav', { class: 'path', 'aria-label': 'Path to the zoomed frame' });
		this.tableScroll = h('div', { class: 'table-scroll', tabindex: '0' });
		this.tablePane = h('section', { class: 'table-pane', 'aria-label': 'Functions' }, this.tableScroll);
		this.divider = h('div', { class: 'divider', role: 'separator', 'aria-orientation': 'vertical', 'aria-label': 'Width of the table', tabindex: '0',
			'aria-valuenow': '38', 'aria-valuemin': '10', 'aria-valuemax': '80' });
		this.treeScroll = h('div', { class: 'tree-pane' });
		this.canvas = h('canvas', { 'aria-hidden': 'true' });
		this.tree = h('div', { class: 'tree', role: 'tree', tabindex: '0', 'aria-label': 'Flame graph, one item per frame' });
		this.graphPane = h('section', { class: 'graph-pane', 'aria-label': 'Flame graph' }, this.canvas, this.tree);
		this.details = h('div', { class: 'details', hidden: true });
		this.menu = h('div', { class: 'menu', role: 'menu', hidden: true });
		this.help = h('dialog', { class: 'help', 'aria-label': 'Keys' });
		this.root = h('div', { class: 'explorer' }, this.bar, this.path, h('div', { class: 'panes' }, this.tablePane, this.divider, this.graphPane, this.treeScroll), this.details, this.menu, this.help);
		holder.append(this.root);
	}

	listen() {
		let typing = 0;
		this.input.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => this.setSearch(this.input.value), 60); });
		this.onKey = e => pressed(this, e);
		this.onPop = () => this.readAddress();
		document.addEventListener('keydown', this.onKey);
		addEventListener('popstate', this.onPop);
		addEventListener('hashchange', this.onPop);
		new ResizeObserver(() => this.view.resize()).observe(this.graphPane);
		matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.view.paint());
		addEventListener('themechange', () => this.view.paint());
		for (const event of ['beforeprint', 'afterprint']) addEventListener(event, () => { this.view.resize(); this.view.draw(); });
	}

	/* ---- data ------------------------------------------------------------------------------- */

	/** Shows a document; the first one obeys the address, later ones keep zoom, selection, search and scroll. */
	setData(doc) {
		const first = !this.base, selected = first ? '' : pathText(this.model, Math.max(0, this.view.selected)), scroll = this.view.scroll;
		const zoomed = first ? '' : pathText(this.model, this.view.zoomed);
		this.base = decodeFlame(doc);
		this.root.dataset.ready = 'true';
		if (first) return this.readAddress();
		this.rebuild();
		this.view.zoom(nodeOfPath(this.model, zoomed).node);
		this.view.selected = nodeOfPath(this.model, selected).node;
		this.view.scroll = scroll;
		this.view.clampScroll();
		this.view.paint();
		this.drawTree(this.view.selected);
		this.drawPath();
	}

	rebuild() {
		const { base } = this;
		this.model = this.filters.length && !base.delta ? decodeFlame(transform(base, this.filters)) : base;
		let f = -1;
		for (let i = 0; this.sandwich && i < base.functions && f < 0; i++) if (functionName(base, i) === this.sandwich) f = i;
		if (f >= 0 && !base.delta) this.model = decodeFlame(sandwich(this.model, f)[this.side]);
		this.totals = functionTotals(this.model);
		if (this.inverted && !base.delta) this.model = decodeFlame(invert(this.model));
		this.lines.show(this.model);
		this.view.selected = this.view.hovered = -1;
		this.view.zoomed = 0;
		this.view.show(this.model);
		this.table.show(this.model, this.totals);
		this.applySearch();
		this.turned.setAttribute('aria-pressed', String(this.inverted));
		this.turned.disabled = Boolean(base.delta);
		const about = this.sandwich ? `${this.side === 'callers' ? 'Callers' : 'Callees'} of ${visible(shortName(this.sandwich))}: ` : '';
		this.options.sentence?.(about + sentence(base, this.model, this.totals, this.options.own?.()));
	}

	/** Runs a change of filters or sides and finds the reader's place again. */
	change(action) {
		this.settle();
		const path = pathText(this.model, this.view.zoomed);
		action();
		this.rebuild();
		const found = nodeOfPath(this.model, path);
		this.view.zoom(found.node);
		this.select(found.node, false);
		this.drawPath();
		this.writeAddress(true);
	}

	/* ---- selection, zoom, path --------------------------------------------------------------- */

	largestOf(f) {
		const m = this.model;
		let best = -1;
		for (let i = 0; i < m.count; i++) if (m.fn[i] === f && (best < 0 || m.w[i] > m.w[best])) best = i;
		return best;
	}

	describe(i) {
		const m = this.model, kids = children(m, i).length;
		if (m.delta) return `${visible(nodeName(m, i))}, from ${percent(m.baseTotal[i], m.baseTotal[0])} to ${percent(m.total[i], m.total[0])}, ` +
			`${m.delta[i] >= 0 ? 'plus' : 'minus'} ${Math.abs(m.delta[i]).toFixed(2)} percentage points`;
		return `${visible(nodeName(m, i))}, ${percent(m.total[i], m.doc.total)} of ${noun(m.doc.type, m.doc.value)}, ` +
			`self ${percent(m.self[i], m.doc.total)}, ${kids} callee${kids === 1 ? '' : 's'}`;
	}

	select(node, announce) {
		this.view.selected = node;
		this.follow();
		if (node >= 0 && announce) {
			this.view.scrollTo(this.model.level[node]);
			this.showDetails(node, null);
		}
		this.view.paint();
	}

	/** Table, tree and reader go to the selected frame. */
	follow() {
		const { selected } = this.view;
		if (selected < 0) return;
		this.table.select(this.model.fn[selected], true);
		this.drawTree(selected);
		if (this.mode === 'tree') this.lines.select(selected);
	}

	selectFunction(f) {
		const node = this.largestOf(f);
		if (node < 0) return;
		this.select(node, true);
	}

	zoom(node, push, isBack) {
		if (node < 0) return;
		this.settle();
		this.closeFloats();
		if (push && !isBack) this.history.push(pathText(this.model, this.view.zoomed)); // by names: filters and new data renumber the frames
		this.view.selected = node;
		this.view.zoom(node);
		this.view.draw(); // in the event itself: it is on screen with the next frame
		this.drawPath();
		this.later(() => {
			this.writeAddress(push);
			this.follow();
		});
		say(`Zoomed to ${this.describe(node)}`);
	}

	/** For what a zoom does not wait for: it runs when the next frame is on screen, or when something else is done before. */
	later(run) {
		this.waiting = run;
		requestAnimationFrame(() => setTimeout(() => { if (this.waiting === run) this.settle(); }));
	}

	settle() {
		const run = this.waiting;
		this.waiting = null;
		run?.();
	}

	back() {
		if (!this.menu.hidden || !this.details.hidden) return this.closeFloats();
		if (this.query) return this.setSearch('');
		if (this.history.length) return this.zoom(nodeOfPath(this.model, this.history.pop()).node, true, true);
		if (this.view.zoomed) return this.zoom(0, true, true);
		if (this.sandwich) this.change(() => { this.sandwich = null; });
	}

	reset() {
		this.history = [];
		if (this.query) this.setSearch('');
		if (this.sandwich) return this.change(() => { this.sandwich = null; });
		this.zoom(0, true);
	}

	/** The path to the zoomed frame, and the filters, as buttons. */
	drawPath() {
		const m = this.model, parts = stackOf(m, this.view.zoomed), out = [];
		for (const i of parts.length > 8 ? [parts[0], -1, ...parts.slice(-6)] : parts) {
			if (out.length) out.push(h('span', {}, '›'));
			out.push(i < 0 ? h('span', {}, ` ${parts.length - 7} more `)
				: h('button', { type: 'button', onclick: () => this.zoom(i, true), title: visible(nodeName(m, i)) }, this.view.label(m.fn[i])));
		}
		if (this.sandwich) out.push(h('button', { type: 'button', class: 'chip', title: 'Back to the whole profile', onclick: () => this.change(() => { this.sandwich = null; }) },
			`✕ ${this.side} of ${visible(shortName(this.sandwich))}`));
		this.filters.forEach((f, k) => out.push(h('button', { type: 'button', class: 'chip', title: 'Remove this filter',
			onclick: () => this.change(() => this.filters.splice(k, 1)) }, `✕ ${f.kind} ${f.name ? visible(shortName(f.name)) : 'recursion'}`)));
		this.path.replaceChildren(...out);
	}

	/** The tree for screen readers: the path, the siblings and the children of the selected frame, at most 200. */
	drawTree(node) {
		if (node < 0) return;
		const m = this.model, parent = m.parent[node], siblings = parent < 0 ? [node] : children(m, parent);
		const spot = siblings.indexOf(node), from = Math.max(0, spot - 40), below = children(m, node);
		const item = (i, position, size) => h('div', { role: 'treeitem', id: 'n' + i, 'aria-level': m.level[i] + 1, 'aria-posinset': position + 1,
			'aria-setsize': size, 'aria-selected': i === node ? 'true' : 'false', 'aria-expanded': m.last[i] > i + 1 ? 'true' : null, 'aria-label': this.describe(i) });
		this.tree.replaceChildren(...stackOf(m, node).slice(-40, -1).map(i => item(i, 0, 1)),
			...siblings.slice(from, spot + 40).map((i, k) => item(i, from + k, siblings.length)),
			...below.slice(0, 80).map((i, k) => item(i, k, below.length)));
		this.tree.setAttribute('aria-activedescendant', 'n' + node);
	}

	/* ---- floats -------------------------------------------------------------------------------- */

	closeFloats() { this.menu.hidden = this.details.hidden = true; this.pinned = false; }

	facts(node) {
		const m = this.model, d = m.doc, f = m.fn[node], parent = m.parent[node];
		const share = d.total ? m.total[node] / d.total : 0;
		const error = d.samples > 0 && d.unit === 'nanoseconds' ? 196 * Math.sqrt(share * (1 - share) / d.samples) : 0;
		const rows = [['Total', `${value(m.total[node] * d.scale, d.unit)} · ${percent(m.total[node], d.total)}` + (error ? ` ± ${error.toFixed(1)}` : '')],
			['Self', `${value(m.self[node] * d.scale, d.unit)} · ${percent(m.self[node], d.total)}`]];
		if (m.delta) {
			rows.splice(0, 2, ['Before', `${value(m.baseTotal[node] * d.base.scale, d.unit)} · ${percent(m.baseTotal[node], m.baseTotal[0])}`],
				['After', `${value(m.total[node] * d.scale, d.unit)} · ${percent(m.total[node], m.total[0])}`], ['Change of share', points(m.delta[node])]);
			return rows.concat(this.place(f));
		}
		if (parent >= 0) rows.push(['Of its caller', percent(m.total[node], m.total[parent])]);
		if (this.view.zoomed) rows.push(['Of the view', percent(m.total[node], m.total[this.view.zoomed])]);
		if (d.samples) rows.push(['Samples', '≈ ' + Math.round(d.samples * share).toLocaleString('en')]);
		if (m.flags?.[node] & 1) rows.push(['Inlined', 'into its caller']);
		if (m.flags?.[node] & 2) rows.push(['Guessed', 'no unwind information for this step']);
		return rows.concat(this.place(f));
	}

	place(f) {
		const m = this.model, file = functionFile(m, f), line = m.doc.fn.line[f], rows = [];
		if (functionModule(m, f)) rows.push(['Module', visible(functionModule(m, f))]);
		if (file) {
			const text = visible(file) + (line ? ':' + line : ''), to = sourceLink(file, line);
			rows.push(['Source', to ? h('a', { href: to, rel: 'noreferrer' }, text) : text]);
		}
		return rows;
	}

	showDetails(node, pointer) {
		this.details.replaceChildren(h('b', {}, visible(nodeName(this.model, node))),
			h('dl', {}, this.facts(node).flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v)])));
		const box = this.view.box(node), frame = this.graphPane.getBoundingClientRect();
		if (pointer) place(this.details, pointer.x + 14, pointer.y + 16);
		else if (this.mode !== 'table') place(this.details, frame.left + box.left + 8, frame.top + box.top + ROW + 6);
	}

	/** The details stay where they are, to be read, selected and copied, until Escape. */
	pin(node) {
		this.closeFloats();
		this.showDetails(node, null);
		this.pinned = true;
	}

	/** Copies a link that opens this view for somebody without a key. */
	async share() {
		try { await copy(await this.options.share() + location.hash, 'Link that works for an hour'); } catch (e) { tell('No link: ' + e.message); }
	}

	stackText(i) { return stackOf(this.model, i).slice(1).map(n => nodeName(this.model, n)).join('\n'); }

	/** Everything that can be done with a frame: [text, key, run]. */
	actions(node) {
		const name = nodeName(this.model, node);
		const add = kind => () => this.change(() => { this.filters.push({ kind, name: kind === 'collapse' ? null : name }); this.undone = []; });
		const turn = side => () => this.change(() => { this.side = side; this.sandwich = name; });
		const out = [['Zoom in', 'Enter', () => this.zoom(node, true)], ['Copy name', 'Ctrl+C', () => copy(name, 'Name')],
			['Copy stack', 'y', () => copy(this.stackText(node), 'Stack')], ['Copy link to this view', 'l', () => copy(location.href, 'Link')],
			['All about it, to stay', 'Space', () => this.pin(node)], ['Search this name', null, () => this.setSearch(name)]];
		if (this.options.lines && node) out.push(['Lines of this function', 'i', () => { this.closeFloats(); this.options.lines(name); }]);
		return this.base.delta ? out : out.concat([['Callees of this function', 'b', turn('callees')], ['Callers of this function', 'B', turn('callers')],
			['Focus: only stacks with it', 'f', add('focus')], ['Drop stacks with it', 'd', add('drop')],
			['Hide: merge into its callers', 'm', add('hide')], ['Collapse recursion', 'c', add('collapse')]]);
	}

	openMenu(node, x, y) {
		if (node < 0) return;
		this.closeFloats();
		this.select(node, false);
		this.menu.replaceChildren(...this.actions(node).map(([text, key, run]) => h('button', { role: 'menuitem', type: 'button',
			onclick: () => { this.closeFloats(); run(); } }, text, h('kbd', {}, key || ''))));
		place(this.menu, x, y);
		this.menu.firstChild.focus();
	}

	/* ---- search -------------------------------------------------------------------------------- */

	applySearch() {
		this.view.hits = this.found = null;
		this.hitAt = -1;
		this.hits.textContent = '';
		if (this.query) {
			try {
				this.found = search(this.model, this.query);
				this.view.hits = this.found.hit;
				this.hits.textContent = `${percent(this.found.value, this.model.doc.total)} in ${this.found.functions} ` +
					`function${this.found.functions === 1 ? '' : 's'}, ${this.found.nodes.length.toLocaleString('en')} frame${this.found.nodes.length === 1 ? '' : 's'}`;
			} catch (e) {
				this.hits.textContent = 'Not a usable expression: ' + e.message;
			}
		}
		this.table.render(this.view.hits);
		this.view.paint();
	}

	setSearch(query) {
		this.query = query;
		if (this.input.value !== query) this.input.value = query;
		this.applySearch();
		this.writeAddress(false);
	}

	/** n and N walk the hits by size and zoom until the frame can be seen. */
	nextHit(step) {
		const hits = this.found?.nodes, m = this.model, { view } = this;
		if (!hits?.length) return;
		this.hitAt = (this.hitAt + step + hits.length) % hits.length;
		const node = hits[this.hitAt], inside = i => node >= i && node < m.last[i];
		let target = inside(view.zoomed) ? view.zoomed : 0;
		while (m.w[node] / m.w[target] * view.width < 8 && target !== node) target = children(m, target).find(inside);
		if (target !== view.zoomed) this.zoom(target, true);
		this.select(node, true);
		say(`Hit ${this.hitAt + 1} of ${hits.length}: ${this.describe(node)}`);
	}

	/* ---- address ------------------------------------------------------------------------------- */

	writeAddress(push) {
		this.settle();
		const { view, table } = this;
		const hash = writeFragment({ zoom: view.zoomed ? pathText(this.model, view.zoomed) : '', query: this.query, filters: this.filters, panes: this.mode,
			sort: table.sort === this.sortDefault ? '' : table.sort, flipped: view.flipped, inverted: this.inverted, byShare: view.byShare, side: this.side, sandwich: this.sandwich });
		if (hash !== location.hash) history[push ? 'pushState' : 'replaceState'](null, '', hash || location.pathname + location.search);
	}

	get sortDefault() { return this.base.delta ? 'delta' : 'self'; }

	readAddress() {
		if (!this.base) return;
		this.waiting = null;
		const s = readFragment(location.hash), { view, table } = this;
		Object.assign(this, { filters: s.filters, side: s.side, sandwich: s.sandwich, inverted: s.inverted });
		table.sort = s.sort === 'delta' && !this.base.delta ? this.sortDefault : s.sort || this.sortDefault;
		Object.assign(view, { flipped: s.flipped, byShare: s.byShare });
		this.setMode(s.panes);
		// An expression from a link is only shown: a hostile one would stop the page. Enter applies it.
		this.query = s.query.startsWith('/') && s.query !== this.query ? '' : s.query;
		this.input.value = s.query;
		this.rebuild();
		const found = nodeOfPath(this.model, s.zoom);
		if (!found.complete) this.hits.textContent = 'The linked frame is not in this profile; its nearest caller is shown.';
		view.resize();
		view.zoom(found.node);
		this.select(found.node, false);
		this.drawPath();
	}

	setMode(mode) {
		this.mode = this.root.dataset.view = mode;
		for (const b of this.views.children) b.setAttribute('aria-pressed', String(b.dataset.mode === mode));
		if (!this.model) return;
		this.view.resize();
		if (mode === 'tree') this.lines.select(Math.max(0, this.view.selected));
	}

	flip() { this.view.flipped = !this.view.flipped; this.view.paint(); this.writeAddress(false); }
	/** Functions that spent it at the root and their callers below them, or back. */
	invert() {
		if (this.base.delta) return;
		this.change(() => { this.inverted = !this.inverted; });
	}

	recolour() { this.view.byShare = !this.view.byShare; this.view.paint(); this.writeAddress(false); }
}
