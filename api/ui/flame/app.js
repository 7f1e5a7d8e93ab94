// SPDX-License-Identifier: Apache-2.0
// The page: data in, keys and pointer to view changes, the view's state in the fragment of the address.
'use strict';

const $ = id => document.getElementById(id);
const app = { filters: [], undone: [], history: [], query: '', hitAt: -1, mode: 'both', sandwich: -1 };
const view = new FlameView($('canvas'));
const table = new FunctionTable($('table-scroll'), {
	picked: f => { selectFunction(f, true); },
	searched: f => setSearch(functionName(app.model, f)),
	menu: (f, x, y) => openMenu(largestOf(f), x, y),
	sorted: () => writeAddress(false),
});

let saidAt = 0, saying = null;
/** One polite message at a time, at most one a second. */
function say(text) {
	clearTimeout(saying);
	saying = setTimeout(() => { saidAt = Date.now(); $('live').textContent = text; }, Math.max(0, saidAt + 1000 - Date.now()));
}

/* ---- data ------------------------------------------------------------------------------------- */

async function readData() {
	const text = $('data').textContent.trim();
	const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
	const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
	return JSON.parse(await new Response(stream).text());
}

function rebuild() {
	const base = app.base;
	app.model = app.filters.length ? decodeFlame(transform(base, app.filters)) : base;
	if (app.sandwich >= 0) app.model = decodeFlame(sandwich(app.model, app.sandwich)[app.side || 'callees']);
	app.totals = functionTotals(app.model);
	view.show(app.model);
	table.show(app.model, app.totals);
	applySearch();
}

function change(action) {
	const path = pathText(app.model, view.zoomed);
	action();
	view.zoomed = 0;
	view.selected = view.hovered = -1;
	rebuild();
	const found = nodeOfPath(app.model, path);
	view.zoom(found.node, false);
	select(found.node, false);
	writeSentence();
	drawPath();
	writeAddress(true);
}

/* ---- words ------------------------------------------------------------------------------------ */

const noun = { cpu: 'CPU time', offcpu: 'time off CPU', wall: 'time', block: 'blocked time', mutex: 'lock waiting',
	memory: 'live memory', alloc: 'allocated memory', goroutine: 'goroutines', io: 'I/O time' };

function writeSentence() {
	const d = app.base.doc, m = app.model, t = app.totals;
	if (d.base) {
		const t0 = app.base.baseTotal[0] * d.base.scale, seconds = [d.base.durationSeconds || 1, d.durationSeconds || 1];
		const per = d.rate ? [t0 / seconds[0], d.total * d.scale / seconds[1]] : [t0, d.total * d.scale];
		const growth = per[0] ? 100 * (per[1] - per[0]) / per[0] : 0;
		$('sentence').textContent = `${noun[d.type] || d.type}${d.rate ? ' per second' : ''}: ${value(per[0], d.unit)} before, ${value(per[1], d.unit)} after ` +
			`(${growth >= 0 ? '+' : '\u2212'}${Math.abs(growth).toFixed(1)}\u00a0%). Blue frames lost share, orange ones gained; width is the mean of both.`;
		return;
	}
	if (!d.total) {
		$('sentence').textContent = 'Nothing was recorded: the service did not use any in this time, or its samples were lost.';
		return;
	}
	let best = -1;
	for (let f = 0; f < m.functions; f++)
		if (f !== m.fn[0] && d.fn.kind[f] !== 0 && (best < 0 || t.self[f] > t.self[best])) best = f;
	const kept = app.filters.length ? ` Filters keep ${percent(m.total[0], app.base.total[0])} of it.` : '';
	const whole = `${value(d.total * d.scale, d.unit)} of ${noun[d.type] || d.type} in ${duration(d.durationSeconds)}`;
	const rate = d.rate && d.unit === 'nanoseconds' && d.durationSeconds && d.type === 'cpu'
		? ` (${(d.total * d.scale / 1e9 / d.durationSeconds).toFixed(2)} CPUs)` : '';
	const top = best < 0 ? '.' : `: most by itself in ${visible(shortName(functionName(m, best), d.fn.kind[best]))}, ` +
		`${percent(t.self[best], m.total[0])}.`;
	$('sentence').textContent = (app.sandwich >= 0
		? `${app.side === 'callers' ? 'Callers' : 'Callees'} of ${visible(functionName(app.base, app.sandwich))}: ` : '') + whole + rate + top + kept;
}

function writeQuality() {
	const d = app.base.doc, q = d.quality, out = $('quality');
	const known = (v, digits) => v === undefined ? 'not known' : v.toFixed(digits) + '\u00a0%';
	const bad = (q.truncatedPct || 0) + (q.unknownFramePct || 0) + (q.samples ? 100 * (q.lost || 0) / (q.samples + (q.lost || 0)) : 0);
	const reasons = Object.entries(q.unwindErrors || {}).map(([k, v]) => `${k.replace(/_/g, ' ')}: ${v}`).concat(q.notes || []);
	out.replaceChildren(h('span', { class: bad >= 5 ? 'bad' : bad >= 1 ? 'warn' : null, title: reasons.join('\n') },
		`${(q.samples ?? 0).toLocaleString('en')} samples · ${q.lost === undefined ? 'loss not known' : q.lost + ' lost'} · ` +
		`cut ${known(q.truncatedPct, 1)} · unknown ${known(q.unknownFramePct, 1)}` +
		(q.effectiveRate !== undefined ? ` · ${Math.round(q.effectiveRate)}\u00a0Hz` : '') +
		(d.pruned.nodes ? ` · ${d.pruned.nodes.toLocaleString('en')} small frames merged` : '')),
		` · ${d.service}${d.host ? ' on ' + d.host : ''} · ${d.from ? new Date(d.from).toLocaleString() : ''}`);
}

/* ---- selection, zoom, path --------------------------------------------------------------------- */

function largestOf(f) {
	const m = app.model;
	let best = -1;
	for (let i = 0; i < m.count; i++) if (m.fn[i] === f && (best < 0 || m.w[i] > m.w[best])) best = i;
	return best;
}

function describe(i) {
	const m = app.model, d = m.doc;
	const kids = children(m, i).length;
	if (m.delta)
		return `${visible(nodeName(m, i))}, from ${percent(m.baseTotal[i], m.baseTotal[0])} to ${percent(m.total[i], m.total[0])}, ` +
			`${m.delta[i] >= 0 ? 'plus' : 'minus'} ${Math.abs(m.delta[i]).toFixed(2)} percentage points`;
	return `${visible(nodeName(m, i))}, ${percent(m.total[i], m.doc.total)} of ${noun[d.type] || d.type}, ` +
		`self ${percent(m.self[i], m.doc.total)}, ${kids} callee${kids === 1 ? '' : 's'}`;
}

function select(node, announce) {
	view.selected = node;
	const m = app.model;
	if (node >= 0) {
		table.select(m.fn[node], true);
		drawTree(node);
		if (announce) {
			view.scrollTo(m.level[node]);
			showDetails(node, false);
		}
	}
	view.paint();
}

function selectFunction(f, bring) {
	const node = largestOf(f);
	if (node < 0) return;
	select(node, false);
	if (bring) view.scrollTo(app.model.level[node]);
	showDetails(node, false);
}

function zoom(node, push, isBack) {
	if (node < 0) return;
	if (push && !isBack) app.history.push(view.zoomed);
	view.zoom(node, true);
	select(node, false);
	drawPath();
	writeAddress(push);
	say(`Zoomed to ${describe(node)}`);
}

function back() {
	if (!$('menu').hidden || !$('details').hidden) return closeFloats();
	if (app.query) return setSearch('');
	if (app.history.length) return zoom(app.history.pop(), true, true);
	if (view.zoomed) return zoom(0, true, true);
	if (app.sandwich >= 0) change(() => { app.sandwich = -1; });
}

/** The path to the zoomed frame, and the filters, as buttons. */
function drawPath() {
	const m = app.model, parts = stackOf(m, view.zoomed), out = [];
	const shown = parts.length > 8 ? [parts[0], -1, ...parts.slice(-6)] : parts;
	for (const i of shown) {
		if (out.length) out.push(h('span', {}, '›'));
		out.push(i < 0 ? h('span', {}, ` ${parts.length - 7} more `)
			: h('button', { type: 'button', onclick: () => zoom(i, true), title: visible(nodeName(m, i)) }, view.label(m.fn[i])));
	}
	app.filters.forEach((f, k) => out.push(h('button', { type: 'button', title: 'Remove this filter',
		onclick: () => change(() => app.filters.splice(k, 1)) }, `✕ ${f.kind} ${f.name ? visible(shortName(f.name)) : 'recursion'}`)));
	$('path').replaceChildren(...out);
}

/** What a screen reader walks: the path, the siblings and the children of the selected frame. */
function drawTree(node) {
	const m = app.model, tree = $('tree'), parent = m.parent[node];
	const siblings = parent < 0 ? [node] : children(m, parent);
	const place = siblings.indexOf(node), near = siblings.slice(Math.max(0, place - 40), place + 40);
	const item = (i, position, size) => h('div', { role: 'treeitem', id: 'n' + i, 'aria-level': m.level[i] + 1,
		'aria-posinset': position + 1, 'aria-setsize': size, 'aria-selected': i === node ? 'true' : 'false',
		'aria-expanded': m.last[i] > i + 1 ? 'true' : null, 'aria-label': describe(i) });
	const above = stackOf(m, node).slice(-40, -1).map(i => item(i, 0, 1));
	const below = children(m, node), kids = below.slice(0, 80).map((i, k) => item(i, k, below.length));
	tree.replaceChildren(...above, ...near.map(i => item(i, siblings.indexOf(i), siblings.length)), ...kids);
	tree.setAttribute('aria-activedescendant', 'n' + node);
}

/* ---- floats ------------------------------------------------------------------------------------ */

function place(element, x, y) {
	element.hidden = false;
	const box = element.getBoundingClientRect();
	element.style.left = Math.max(4, Math.min(x, innerWidth - box.width - 8)) + 'px';
	element.style.top = Math.max(4, y + box.height + 8 > innerHeight ? y - box.height - 18 : y) + 'px';
}

function closeFloats() {
	$('menu').hidden = true;
	$('details').hidden = true;
	app.docked = false;
}

function showDetails(node, pointer) {
	const m = app.model, d = m.doc, f = m.fn[node], parent = m.parent[node], samples = d.samples * m.total[node] / (m.doc.total || 1);
	const share = d.total ? m.total[node] / d.total : 0;
	const error = d.samples > 0 && d.unit === 'nanoseconds' ? 196 * Math.sqrt(share * (1 - share) / d.samples) : 0;
	const file = functionFile(m, f), line = d.fn.line[f];
	const rows = [['Total', `${value(m.total[node] * d.scale, d.unit)} · ${percent(m.total[node], d.total)}` + (error ? ` ± ${error.toFixed(1)}` : '')],
		['Self', `${value(m.self[node] * d.scale, d.unit)} · ${percent(m.self[node], d.total)}`]];
	if (m.delta) {
		rows.length = 0;
		rows.push(['Before', `${value(m.baseTotal[node] * d.base.scale, d.unit)} · ${percent(m.baseTotal[node], m.baseTotal[0])}`],
			['After', `${value(m.total[node] * d.scale, d.unit)} · ${percent(m.total[node], m.total[0])}`],
			['Change', `${m.delta[node] > 0 ? '▲ +' : '▼ \u2212'}${Math.abs(m.delta[node]).toFixed(2)}\u00a0percentage points`]);
	}
	if (parent >= 0 && !m.delta) rows.push(['Of its caller', percent(m.total[node], m.total[parent])]);
	if (view.zoomed && !m.delta) rows.push(['Of the view', percent(m.total[node], m.total[view.zoomed])]);
	if (d.samples && !m.delta) rows.push(['Samples', Math.round(samples).toLocaleString('en')]);
	if (functionModule(m, f)) rows.push(['Module', visible(functionModule(m, f))]);
	if (file) rows.push(['Source', visible(file) + (line ? ':' + line : '')]);
	if (m.flags && m.flags[node]) rows.push(['Inlined', 'into its caller']);
	$('details').replaceChildren(h('b', {}, visible(nodeName(m, node))),
		h('dl', {}, ...rows.flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v)])));
	const box = view.box(node), frame = $('graph-pane').getBoundingClientRect();
	if (pointer) place($('details'), pointer.x + 14, pointer.y + 16);
	else if (app.mode !== 'table') place($('details'), frame.left + box.left + 8, frame.top + box.top + ROW + 6);
}

async function copy(text, what) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		const area = h('textarea', {}, text);
		document.body.append(area);
		area.select();
		document.execCommand('copy');
		area.remove();
	}
	say(`${what} copied`);
}

const stackText = i => stackOf(app.model, i).slice(1).map(n => nodeName(app.model, n)).join('\n');

function actions(node) {
	const m = app.model, name = nodeName(m, node), f = m.fn[node];
	const add = kind => () => change(() => { app.filters.push({ kind, name }); app.undone = []; });
	const all = [['Zoom in', 'Enter', () => zoom(node, true)], ['Copy name', 'Ctrl+C', () => copy(name, 'Name')],
		['Copy stack', 'y', () => copy(stackText(node), 'Stack')], ['Copy link to this view', 'l', () => copy(location.href, 'Link')],
		['Search this name', null, () => setSearch(name)],
		['Callees of this function', 'b', () => change(() => { app.side = 'callees'; app.sandwich = f; })],
		['Callers of this function', 'B', () => change(() => { app.side = 'callers'; app.sandwich = f; })],
		['Focus: only stacks with it', 'f', add('focus')], ['Drop stacks with it', 'd', add('drop')],
		['Hide: merge into its callers', 'm', add('hide')],
		['Collapse recursion', 'c', () => change(() => { app.filters.push({ kind: 'collapse' }); })]];
	/* What rebuilds the tree is for one profile only. */
	return m.delta ? all.slice(0, 5) : all;
}

function openMenu(node, x, y) {
	if (node < 0) return;
	closeFloats();
	select(node, false);
	$('menu').replaceChildren(...actions(node).map(([text, key, run]) => h('button', { role: 'menuitem', type: 'button',
		onclick: () => { closeFloats(); run(); } }, text, h('kbd', {}, key || ''))));
	place($('menu'), x, y);
	$('menu').firstChild.focus();
}

/* ---- search ------------------------------------------------------------------------------------ */

function applySearch() {
	view.hits = null;
	app.found = null;
	app.hitAt = -1;
	$('hits').textContent = '';
	if (app.query) {
		try {
			app.found = search(app.model, app.query);
			view.hits = app.found.hit;
			$('hits').textContent = `${percent(app.found.value, app.model.doc.total)} in ${app.found.functions} ` +
				`function${app.found.functions === 1 ? '' : 's'}, ${app.found.nodes.length.toLocaleString('en')} frames`;
		} catch (e) {
			$('hits').textContent = 'Not a usable expression: ' + e.message;
		}
	}
	table.render(view.hits);
	view.paint();
}

function setSearch(query) {
	app.query = query;
	$('search').value = query;
	applySearch();
	writeAddress(false);
}

/** n and N walk the hits by size and zoom until the frame can be seen. */
function nextHit(step) {
	const hits = app.found?.nodes;
	if (!hits?.length) return;
	app.hitAt = (app.hitAt + step + hits.length) % hits.length;
	const node = hits[app.hitAt];
	let target = view.zoomed;
	const m = app.model, inside = i => node >= i && node < m.last[i];
	if (!inside(target)) target = 0;
	while (m.w[node] / m.w[target] * view.width < 8 && target !== node)
		target = children(m, target).find(inside);
	if (target !== view.zoomed) zoom(target, true);
	select(node, true);
	say(`Hit ${app.hitAt + 1} of ${hits.length}: ${describe(node)}`);
}

/* ---- address ----------------------------------------------------------------------------------- */

function writeAddress(push) {
	const parts = [];
	const add = (key, v) => { if (v) parts.push(key + '=' + encodeURIComponent(v)); };
	add('z', view.zoomed ? pathText(app.model, view.zoomed) : '');
	add('q', app.query);
	add('f', app.filters.map(f => f.kind + ':' + (f.name || '')).join('~'));
	add('p', app.mode === 'both' ? '' : app.mode);
	add('t', table.sort === (app.sortDefault || 'self') ? '' : table.sort);
	add('o', view.flipped ? 'flame' : '');
	add('c', view.byShare ? 'self' : '');
	if (app.sandwich >= 0) add(app.side, functionName(app.base, app.sandwich));
	const hash = parts.length ? '#' + parts.join('&') : location.pathname + location.search;
	if (hash === location.hash) return;
	history[push ? 'pushState' : 'replaceState'](null, '', hash);
}

function readAddress() {
	const get = {};
	for (const part of location.hash.slice(1).split('&')) {
		const at = part.indexOf('=');
		try { if (at > 0) get[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1)); } catch { /* left out */ }
	}
	app.filters = (get.f || '').split('~').filter(Boolean).map(f => ({ kind: f.slice(0, f.indexOf(':')), name: f.slice(f.indexOf(':') + 1) || null }))
		.filter(f => ['focus', 'drop', 'hide', 'collapse'].includes(f.kind));
	app.side = get.callers ? 'callers' : 'callees';
	const name = get.callers || get.callees;
	app.sandwich = -1;
	for (let f = 0; name && f < app.base.functions; f++) if (functionName(app.base, f) === name) app.sandwich = f;
	table.sort = ['self', 'total', 'name', 'delta'].includes(get.t) && (get.t !== 'delta' || app.base.delta) ? get.t : app.sortDefault || 'self';
	view.flipped = get.o === 'flame';
	view.byShare = get.c === 'self';
	setMode(['graph', 'table', 'both'].includes(get.p) ? get.p : 'both');
	/* An expression from a link is only shown: a hostile one would stop the page. Enter applies it. */
	app.query = (get.q || '').startsWith('/') ? '' : get.q || '';
	$('search').value = get.q || '';
	view.zoomed = 0;
	rebuild();
	const found = nodeOfPath(app.model, get.z || '');
	if (!found.complete) say('The linked frame is not in this profile; its nearest caller is shown.');
	view.resize();
	view.zoom(found.node, false);
	select(found.node, false);
	writeSentence();
	drawPath();
}

/* ---- controls ---------------------------------------------------------------------------------- */

function setMode(mode) {
	app.mode = mode;
	document.body.dataset.view = mode;
	for (const b of $('views').children) b.setAttribute('aria-pressed', String(b.dataset.mode === mode));
	if (app.model) view.resize();
}

function setTheme() {
	document.documentElement.dataset.theme = view.dark ? 'light' : 'dark';
	view.paint();
}

function flip() { view.flipped = !view.flipped; view.paint(); writeAddress(false); }
function recolour() { view.byShare = !view.byShare; view.paint(); writeAddress(false); }

function buildBar() {
	$('views').replaceChildren(...[['both', 'Both'], ['graph', 'Graph'], ['table', 'Table']].map(([mode, text]) =>
		h('button', { type: 'button', 'data-mode': mode, 'aria-pressed': 'false', onclick: () => { setMode(mode); writeAddress(false); } }, text)));
	const tool = (text, title, run) => h('button', { type: 'button', title, onclick: run }, text);
	$('tools').replaceChildren(tool('Reset', 'Whole graph (0)', reset), tool('Flip', 'Root at the top or at the bottom (o)', flip),
		tool('Colour', 'By module or by self value', recolour), tool('Theme', 'Dark or light', setTheme), tool('Keys', 'All keys (?)', help));
	if (location.protocol.startsWith('http')) {
		const pick = h('select', { 'aria-label': 'Download as' }, h('option', { value: '' }, 'Download…'),
			...(app.base?.delta ? [] : [['pprof', 'pprof'], ['folded', 'Folded stacks'], ['firefox', 'Firefox Profiler'], ['speedscope', 'speedscope'],
				['csv', 'Table (CSV)']]).concat([['svg', 'SVG'], ['json', 'JSON tree'], ['html', 'This page']]).map(([v, t]) => h('option', { value: v }, t)));
		pick.addEventListener('change', () => {
			if (!pick.value) return;
			const to = new URL(location.href);
			to.hash = '';
			to.searchParams.set('format', pick.value);
			to.searchParams.set('download', 'true');
			pick.value = '';
			location.assign(to);
		});
		$('tools').append(pick);
	}
}

function reset() {
	app.history = [];
	if (app.query) setSearch('');
	if (app.sandwich >= 0) return change(() => { app.sandwich = -1; });
	zoom(0, true);
}

const KEYS = [['← →', 'previous, next frame beside'], ['↑ ↓', 'caller, largest callee'], ['Enter', 'zoom in'], ['Esc, Backspace', 'one step back'],
	['0', 'whole graph'], ['/', 'search'], ['n N', 'next, previous hit'], ['+ −', 'wider, narrower'], ['w a s d', 'move'], ['f d m', 'focus on, drop, hide the function'],
	['c', 'collapse recursion'], ['b B', 'callees, callers of the function'], ['z Z', 'undo, redo a filter'], ['y, Ctrl+C', 'copy stack, name'], ['l', 'copy link to this view'],
	['o', 'flame or icicle'], ['1 2 3', 'both, graph, table'], ['Menu, right click', 'everything that can be done with a frame']];

function help() {
	$('help').replaceChildren(h('p', {}, 'Width is the total of a frame; frames below are its callees. Self is what a function costs itself, total with its callees. ' +
		'Colours tell modules apart and mean nothing else; the kernel and unnamed frames are grey, inlined frames italic, hits yellow.'),
		h('dl', {}, ...KEYS.flatMap(([k, t]) => [h('dt', {}, h('kbd', {}, k)), h('dd', {}, t)])),
		h('form', { method: 'dialog' }, h('button', {}, 'Close')));
	$('help').showModal();
}

function move(to) { if (to !== undefined && to >= 0) { select(to, true); writeAddress(false); } }

function key(e) {
	document.documentElement.dataset.keys = '';
	const typing = e.target === $('search') || e.target.tagName === 'SELECT';
	if (e.key === 'Escape') { e.preventDefault(); if (typing) $('search').blur(); return back(); }
	if (e.key === 'Enter' && e.target === $('search')) { setSearch($('search').value); return nextHit(1); }
	if (typing || $('help').open || !app.model) return;
	const m = app.model, at = view.selected >= 0 ? view.selected : view.zoomed, parent = m.parent[at];
	const beside = step => { if (parent < 0) return at; const s = children(m, parent); return s[s.indexOf(at) + step]; };
	const down = () => m.last[at] > at + 1 ? at + 1 : -1, span = view.to - view.from, mid = m.x[at] + m.w[at] / 2;
	const run = name => actions(at).find(a => a[1] === name)?.[2]();
	const plain = { ArrowLeft: () => move(beside(-1)), ArrowRight: () => move(beside(1)),
		ArrowUp: () => move(view.flipped ? down() : parent), ArrowDown: () => move(view.flipped ? parent : down()),
		Home: () => parent >= 0 && move(children(m, parent)[0]), End: () => parent >= 0 && move(children(m, parent).at(-1)),
		Enter: () => zoom(at, true), ' ': () => showDetails(at, false), Backspace: back, 0: reset, '/': () => $('search').focus(),
		n: () => nextHit(1), N: () => nextHit(-1), o: flip, '?': help, 1: () => setMode('both'), 2: () => setMode('graph'), 3: () => setMode('table'),
		'+': () => view.window(mid - span / 4, mid + span / 4), '-': () => view.window(mid - span, mid + span),
		a: () => view.window(view.from - span / 8, view.to - span / 8), d: () => run('d'), w: () => view.scrollBy(-3), s: () => view.scrollBy(3),
		f: () => run('f'), m: () => run('m'), c: () => run('c'), b: () => run('b'), B: () => run('B'), y: () => run('y'), l: () => run('l'),
		z: () => app.filters.length && change(() => app.undone.push(app.filters.pop())),
		Z: () => app.undone.length && change(() => app.filters.push(app.undone.pop())),
		ContextMenu: () => { const b = view.box(at), r = $('graph-pane').getBoundingClientRect(); openMenu(at, r.left + b.left + 10, r.top + b.top + ROW); } };
	if ((e.ctrlKey || e.metaKey) && e.key === 'c' && getSelection().isCollapsed) return copy(nodeName(m, at), 'Name');
	if ((e.ctrlKey || e.metaKey) && e.key === 'f' && document.activeElement !== $('search')) { e.preventDefault(); return $('search').focus(); }
	if (e.ctrlKey || e.metaKey || e.altKey || !plain[e.key]) return;
	if (e.target.tagName === 'BUTTON' && (e.key === 'Enter' || e.key === ' ' || $('menu').contains(e.target))) {
		if (e.key === 'ArrowDown') (e.target.nextElementSibling || $('menu').firstChild).focus();
		if (e.key === 'ArrowUp') (e.target.previousElementSibling || $('menu').lastChild).focus();
		return;
	}
	e.preventDefault();
	plain[e.key]();
}

function pointer() {
	const canvas = $('canvas');
	let drag = null;
	const at = e => view.at(e.offsetX, e.offsetY);
	canvas.addEventListener('pointerdown', e => { drag = { x: e.clientX, y: e.clientY, from: view.from, to: view.to, scroll: view.scroll, moved: false }; });
	canvas.addEventListener('pointermove', e => {
		if (drag && e.buttons & 1) {
			const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
			drag.moved ||= Math.abs(dx) + Math.abs(dy) > 5;
			if (drag.moved) {
				const shift = dx / view.width * (drag.to - drag.from);
				view.scroll = drag.scroll - dy / ROW * (view.flipped ? -1 : 1);
				view.clampScroll();
				view.window(drag.from - shift, drag.to - shift);
			}
			return;
		}
		const node = at(e);
		if (node !== view.hovered) { view.hovered = node; view.paint(); }
		if (app.docked) return;
		if (node >= 0 && $('menu').hidden) showDetails(node, e); else $('details').hidden = true;
	});
	canvas.addEventListener('pointerleave', () => { view.hovered = -1; $('details').hidden = true; view.paint(); });
	canvas.addEventListener('click', e => {
		const was = drag;
		drag = null;
		if (was?.moved) return;
		$('menu').hidden = true;
		const node = at(e);
		$('tree').focus({ preventScroll: true });
		if (node >= 0) zoom(node, node !== view.zoomed);
	});
	canvas.addEventListener('contextmenu', e => { e.preventDefault(); openMenu(at(e), e.clientX, e.clientY); });
	canvas.addEventListener('wheel', e => {
		e.preventDefault();
		const span = view.to - view.from, point = view.from + e.offsetX / view.width * span;
		if (e.ctrlKey) {
			const factor = Math.exp(e.deltaY * 0.004);
			view.window(point - (point - view.from) * factor, point + (view.to - point) * factor);
		} else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
			const shift = (e.deltaX || e.deltaY) / view.width * span;
			view.window(view.from + shift, view.to + shift);
		} else {
			view.scrollBy((view.flipped ? -1 : 1) * Math.sign(e.deltaY) * Math.max(1, Math.round(Math.abs(e.deltaY) / 40)));
		}
	}, { passive: false });
	const divider = $('divider'), width = x => {
		$('table-pane').style.flexBasis = Math.min(80, Math.max(10, 100 * x / innerWidth)) + '%';
		view.resize();
	};
	divider.addEventListener('pointermove', e => { if (e.buttons & 1) { divider.setPointerCapture(e.pointerId); width(e.clientX); } });
	divider.addEventListener('keydown', e => {
		const step = { ArrowLeft: -40, ArrowRight: 40 }[e.key];
		if (step) { e.stopPropagation(); width(divider.getBoundingClientRect().left + step); }
	});
	document.addEventListener('pointerdown', () => { delete document.documentElement.dataset.keys; });
	document.addEventListener('pointerdown', e => { if (!$('menu').contains(e.target)) $('menu').hidden = true; });
}

async function main() {
	app.base = decodeFlame(await readData());
	if (app.base.delta) table.sort = app.sortDefault = 'delta';
	buildBar();
	writeQuality();
	pointer();
	readAddress();
	let typing = 0;
	$('search').addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => setSearch($('search').value), 60); });
	document.addEventListener('keydown', key);
	addEventListener('popstate', readAddress);
	new ResizeObserver(() => view.resize()).observe($('graph-pane'));
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => view.paint());
	document.documentElement.dataset.ready = 'true';
}

main().catch(e => { $('sentence').textContent = 'The profile could not be shown: ' + e.message; });
