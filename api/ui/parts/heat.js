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

/** @param chosen(fromMs, toMs) since the start of the session */
function heatMap(map, unit, chosen) {
	const canvas = h('canvas', { class: 'heat', role: 'img', 'aria-label': `Heat map of ${map.cols} columns of ${duration(map.colMs / 1000)}` }), tip = h('span', { class: 'facts' }, 'Drag over a time to see only that.');
	const at = e => Math.min(map.cols - 1, Math.max(0, Math.floor(e.offsetX / canvas.clientWidth * map.cols)));
	let from = -1;
	const mark = h('span', { class: 'mark', hidden: true }), span = (a, b) => {
		mark.hidden = false;
		mark.style.left = 100 * Math.min(a, b) / map.cols + '%';
		mark.style.width = 100 * (Math.abs(b - a) + 1) / map.cols + '%';
	};
	canvas.addEventListener('pointerdown', e => { from = at(e); canvas.setPointerCapture(e.pointerId); span(from, from); });
	canvas.addEventListener('pointermove', e => {
		const c = at(e), sum = map.cells.slice(c * map.rows, (c + 1) * map.rows).reduce((a, b) => a + b, 0);
		tip.textContent = `${duration(c * map.colMs / 1000)} after the start: ${value(sum, unit)}`;
		if (from >= 0) span(from, c);
	});
	canvas.addEventListener('pointerup', e => {
		const to = at(e), start = from;
		from = -1;
		if (start >= 0) chosen(Math.min(start, to) * map.colMs, (Math.max(start, to) + 1) * map.colMs);
	});
	const seconds = v => h('input', { type: 'number', min: '0', step: 'any', value: String(v), required: true });
	const a = seconds(0), b = seconds(map.cols * map.colMs / 1000), form = h('form', { class: 'fields' }, h('label', {}, 'From second', a), h('label', {}, 'to second', b), h('button', {}, 'Show only this time'));
	form.addEventListener('submit', e => { e.preventDefault(); if (Number(b.value) > Number(a.value)) chosen(a.value * 1000, b.value * 1000); });
	new ResizeObserver(() => paint(canvas, map)).observe(canvas);
	addEventListener('themechange', () => paint(canvas, map));
	return h('div', {}, h('div', { class: 'heat-box' }, canvas, mark), tip, form);
}

/** The heat map of a session, folded away and read when it is opened; a time chosen on it goes to `page` of that session. */
export function heatBox(s, page) {
	if (s.unit === 'count' || ['memory', 'alloc'].includes(s.profileType)) return '';
	const holder = h('div', {}), box = h('details', { class: 'no-print' }, h('summary', {}, 'Over time (heat map)'), holder);
	box.addEventListener('toggle', async () => {
		if (!box.open || holder.firstChild) return;
		const ms = (s.durationNanos ?? s.durationSeconds * 1e9) / 1e6, colMs = Math.max(500, Math.ceil(ms / 600 / 500) * 500);
		try {
			const map = await get(`${PROFILING}/${encodeURIComponent(s.id)}/heatmap`, { colMs, rowMs: colMs / 25 });
			holder.replaceChildren(heatMap(map, s.unit, (from, to) => {
				const at = new URL(page, location.href), start = Date.parse(map.from);
				at.searchParams.set('from', new Date(start + from).toISOString());
				at.searchParams.set('to', new Date(start + to).toISOString());
				location.assign(at);
			}));
		} catch (e) { holder.replaceChildren(h('p', { class: 'facts' }, errorWords(e))); }
	});
	return box;
}
