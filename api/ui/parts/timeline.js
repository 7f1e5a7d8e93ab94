// SPDX-License-Identifier: Apache-2.0
// A type's cost over time as bars; dragging over them, or the form below, chooses a window.
import { h, svg } from '../flame/dom.js';
import { number, unitFor } from '../flame/format.js';

const HEIGHT = 130, LEFT = 72, BOTTOM = 18;

/** CPU time per second reads as CPUs; anything else keeps its unit. */
export function rateWords(v, unit, type) {
	if (type === 'cpu') return `${(v / 1e9).toFixed(v < 1e8 ? 3 : 2)} CPUs`;
	const scale = unitFor(unit, v);
	return `${number(v, scale)}${scale.name ? '\u00a0' + scale.name : ''}/s`;
}

const local = ms => { const d = new Date(ms - new Date(ms).getTimezoneOffset() * 60000); return d.toISOString().slice(0, 16); };

function axis(width, from, to, most, words) {
	const out = [], ticks = width < 600 ? 3 : 6;
	for (const part of [0, 0.5, 1]) {
		const y = 6 + (HEIGHT - BOTTOM - 6) * (1 - part);
		out.push(svg('line', { x1: LEFT, x2: width, y1: y, y2: y }), svg('text', { x: LEFT - 6, y: y + 4, 'text-anchor': 'end' }, words(most * part)));
	}
	for (let i = 0; i <= ticks; i++) {
		const at = new Date(from + (to - from) * i / ticks), text = to - from > 2 * 86400e3 ? at.toLocaleDateString([], { month: 'short', day: 'numeric' }) : at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
		out.push(svg('text', { x: LEFT + (width - LEFT) * i / ticks, y: HEIGHT - 4, 'text-anchor': i === 0 ? 'start' : i === ticks ? 'end' : 'middle' }, text));
	}
	return out;
}

/** points: [{from, to, valuePerSecond, sampleCount}] inside range [fromMs, toMs]; chosen(fromMs, toMs); window: [fromMs, toMs] | null is marked. */
export function timeline(points, range, unit, type, window, chosen) {
	const width = Math.max(300, Math.min(1460, innerWidth - 40)); // drawn one to one, so that its text has the page's size
	const from = Math.min(range[0], Date.parse(points[0].from)), to = Math.max(range[1], Date.parse(points.at(-1).to)), most = Math.max(...points.map(p => p.valuePerSecond || 0)) || 1;
	const x = ms => LEFT + (width - LEFT) * (ms - from) / (to - from), tip = h('p', { class: 'facts' }, 'Drag over a time to see its flame graph.');
	const bars = points.filter(p => p.valuePerSecond).map(p => {
		const height = (HEIGHT - BOTTOM - 6) * p.valuePerSecond / most, a = x(Date.parse(p.from)), b = x(Date.parse(p.to));
		return svg('rect', { x: a.toFixed(1), width: Math.max(1, b - a - 0.5).toFixed(1), y: (HEIGHT - BOTTOM - height).toFixed(1), height: height.toFixed(1) });
	});
	const mark = svg('rect', { class: 'window', y: 0, height: HEIGHT - BOTTOM, x: 0, width: 0 });
	const place = (a, b) => { mark.setAttribute('x', Math.min(x(a), x(b))); mark.setAttribute('width', Math.abs(x(b) - x(a))); };
	if (window) place(Math.max(from, window[0]), Math.min(to, window[1]));
	const chart = svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, class: 'timeline', role: 'img', 'aria-label': `${type} over time, highest ${rateWords(most, unit, type)}` },
		axis(width, from, to, most, v => rateWords(v, unit, type)), bars, mark);
	const at = e => { const box = chart.getBoundingClientRect(), px = (e.clientX - box.left) / box.width * width; return Math.min(to, Math.max(from, from + (px - LEFT) / (width - LEFT) * (to - from))); };
	let start = null;
	chart.addEventListener('pointerdown', e => { start = at(e); chart.setPointerCapture(e.pointerId); });
	chart.addEventListener('pointermove', e => {
		const now = at(e), p = points.find(q => now >= Date.parse(q.from) && now < Date.parse(q.to));
		tip.textContent = p ? `${new Date(p.from).toLocaleString()}: ${rateWords(p.valuePerSecond || 0, unit, type)}, ${(p.sampleCount || 0).toLocaleString('en')} samples` : '';
		if (start !== null) place(start, now);
	});
	chart.addEventListener('pointerup', e => {
		const [a, b] = [start, at(e)].sort((p, q) => p - q);
		start = null;
		// A click takes the point under it, a drag whole points.
		const inside = points.filter(p => Date.parse(p.to) > a && Date.parse(p.from) <= b);
		if (inside.length) chosen(Date.parse(inside[0].from), Date.parse(inside.at(-1).to));
	});
	const field = ms => h('input', { type: 'datetime-local', value: local(ms), required: true });
	const a = field(window ? window[0] : from), b = field(window ? window[1] : to), form = h('form', { class: 'fields', 'aria-label': 'Time' }, h('label', {}, 'From', a), h('label', {}, 'To', b), h('button', {}, 'Show this time'));
	form.addEventListener('submit', e => { e.preventDefault(); if (Date.parse(b.value) > Date.parse(a.value)) chosen(Date.parse(a.value), Date.parse(b.value)); });
	return h('div', {}, chart, tip, h('details', {}, h('summary', {}, 'Choose by the clock'), form));
}
