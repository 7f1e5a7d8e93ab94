// SPDX-License-Identifier: Apache-2.0
// Sub-second heat map: a column is a second (or more), a cell a slice of it. Choosing columns narrows the profile to them.
import { h, isDark } from '../flame/dom.js';
import { duration, value } from '../flame/format.js';
import { PROFILING, get } from './api.js';
import { errorWords } from './page.js';

const HEIGHT = 120;

function paint(canvas, map) {
	const ratio = devicePixelRatio || 1, width = canvas.clientWidth, context = canvas.getContext('2d');
	canvas.width = width * ratio;
	canvas.height = HEIGHT * ratio;
	const w = canvas.width / map.cols, cell = canvas.height / map.rows, dark = isDark();
	context.clearRect(0, 0, canvas.width, canvas.height);
	for (let c = 0; c < map.cols; c++) for (let r = 0; r < map.rows; r++) {
		const t = map.max ? Math.sqrt(map.cells[c * map.rows + r] / map.max) : 0;
		if (!t) continue;
		context.fillStyle = dark ? `rgb(${50 + 180 * t},${50 + 67 * t},${55 - 35 * t})` : `rgb(${255 - 55 * t},${235 - 150 * t},${215 - 205 * t})`;
		context.fillRect(Math.floor(c * w), canvas.height - (r + 1) * cell, Math.ceil(w), Math.ceil(cell));
	}
}

/**
 * One click opens a cell, a drag whole columns.
 * @param words(ms, value) what a cell is, ms = since the start of the map; chosen(fromMs, toMs) likewise
 */
function heatMap(map, words, chosen) {
	const canvas = h('canvas', { class: 'heat', role: 'img', 'aria-label': `Heat map of ${map.cols} columns of ${duration(map.colMs / 1000)}, a cell is ${duration(map.rowMs / 1000)}` });
	const tip = h('span', { class: 'facts' }, 'Click a cell, or drag over a time, to see only that.'), mark = h('span', { class: 'mark', hidden: true });
	const within = (v, length, count) => Math.min(count - 1, Math.max(0, Math.floor(v / length * count)));
	const at = e => { const c = within(e.offsetX, canvas.clientWidth, map.cols), r = map.rows - 1 - within(e.offsetY, canvas.clientHeight, map.rows); return { c, i: c * map.rows + r }; };
	/** A cell, or all columns between two of them, in ms. */
	const span = (a, b) => a.i === b.i ? [a.i * map.rowMs, (a.i + 1) * map.rowMs] : [Math.min(a.c, b.c) * map.colMs, (Math.max(a.c, b.c) + 1) * map.colMs];
	const show = (a, b) => {
		const [from, to] = span(a, b), row = from / map.rowMs % map.rows, one = a.i === b.i;
		Object.assign(mark.style, { left: 100 * Math.floor(from / map.colMs) / map.cols + '%', width: 100 * (one ? 1 : (to - from) / map.colMs) / map.cols + '%',
			bottom: one ? 100 * row / map.rows + '%' : '0', top: one ? 100 * (1 - (row + 1) / map.rows) + '%' : '0' });
		mark.hidden = false;
	};
	let start = null;
	canvas.addEventListener('pointerdown', e => { start = at(e); canvas.setPointerCapture(e.pointerId); show(start, start); });
	canvas.addEventListener('pointermove', e => {
		const now = at(e);
		tip.textContent = words(now.i * map.rowMs, map.cells[now.i]);
		if (start) show(start, now);
	});
	canvas.addEventListener('pointerup', e => { if (start) chosen(...span(start, at(e))); start = null; });
	canvas.addEventListener('pointercancel', () => { start = null; });
	const most = map.cells.indexOf(map.max), hottest = h('button', { type: 'button', disabled: !map.max, title: words(most * map.rowMs, map.max), onclick: () => chosen(most * map.rowMs, (most + 1) * map.rowMs) }, 'Open the hottest cell');
	new ResizeObserver(() => paint(canvas, map)).observe(canvas);
	addEventListener('themechange', () => paint(canvas, map));
	return h('div', {}, h('div', { class: 'heat-box' }, canvas, mark), h('div', { class: 'row' }, hottest, tip));
}

/** Seconds since the start, for those who do not point. */
function secondsForm(map, chosen) {
	const seconds = v => h('input', { type: 'number', min: '0', step: 'any', value: String(v), required: true });
	const a = seconds(0), b = seconds(map.cols * map.colMs / 1000), form = h('form', { class: 'fields' }, h('label', {}, 'From second', a), h('label', {}, 'to second', b), h('button', {}, 'Show only this time'));
	form.addEventListener('submit', e => { e.preventDefault(); if (Number(b.value) > Number(a.value)) chosen(a.value * 1000, b.value * 1000); });
	return form;
}

/** Folded away; `read` gives its content when it is opened first. */
function folded(title, read) {
	const holder = h('div', {}), box = h('details', { class: 'no-print' }, h('summary', {}, title), holder);
	box.addEventListener('toggle', async () => {
		if (!box.open || holder.firstChild) return;
		try { holder.replaceChildren(...await read()); } catch (e) { holder.replaceChildren(h('p', { class: 'facts' }, errorWords(e))); }
	});
	return box;
}

/** The sub-second heat map of a session; a time chosen on it goes to `page` of that session. */
export function heatBox(s, page) {
	if (s.unit === 'count' || ['memory', 'alloc'].includes(s.profileType)) return '';
	return folded('Over time (heat map)', async () => {
		const ms = (s.durationNanos ?? s.durationSeconds * 1e9) / 1e6, colMs = Math.max(500, Math.ceil(ms / 600 / 500) * 500);
		const ask = shape => get(`${PROFILING}/${encodeURIComponent(s.id)}/heatmap`, shape);
		// Once the single samples have expired, only minute buckets are left to draw.
		const map = await ask({ colMs, rowMs: colMs / 25 }).catch(e => { if (e.code !== 'DetailExpired') throw e; return ask({ colMs: MINUTE, rowMs: MINUTE }); });
		const begin = Date.parse(map.from);
		const chosen = (from, to) => {
			const at = new URL(page, location.href);
			at.searchParams.set('from', new Date(begin + from).toISOString());
			at.searchParams.set('to', new Date(begin + to).toISOString());
			location.assign(at);
		};
		return [heatMap(map, (at, v) => `${duration(at / 1000)} after the start: ${value(v, s.unit)}`, chosen), secondsForm(map, chosen)];
	});
}

const MINUTE = 60e3;
// Up to so long a time: minutes of a cell, cells of a column.
const SHAPES = [[3 * 3600e3, 1, 5], [12 * 3600e3, 1, 15], [30 * 3600e3, 1, 60], [Infinity, 10, 24]];

/** A map of points of the history, by the shape that fits the time; the columns begin at whole hours or parts of them. */
export function historyMap(points, begin, end, rowMs, rows) {
	const colMs = rowMs * rows, cols = Math.ceil((end - begin) / colMs), cells = new Array(cols * rows).fill(0);
	for (const p of points) cells[Math.floor((Date.parse(p.from) - begin) / rowMs)] = p.valuePerSecond || 0;
	return { colMs, rowMs, cols, rows, cells, max: cells.reduce((a, b) => Math.max(a, b), 0) };
}

/** The heat map of a time of the history. @param words(value per second) */
export function historyHeat(asked, [from, to], words, chosen) {
	return folded('Heat map of this time', async () => {
		const [, minutes, rows] = SHAPES.find(([most]) => to - from <= most), rowMs = minutes * MINUTE, begin = Math.floor(from / (rowMs * rows)) * rowMs * rows;
		const { points } = await get(PROFILING + '/history', { ...asked, from: new Date(begin).toISOString(), to: new Date(to).toISOString(), limit: 1, top: 0, aggregate: minutes + 'm' });
		return [heatMap(historyMap(points, begin, to, rowMs, rows), (at, v) => `${new Date(begin + at).toLocaleString()}: ${words(v)}`, (a, b) => chosen(begin + a, begin + b))];
	});
}
