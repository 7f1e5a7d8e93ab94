// SPDX-License-Identifier: Apache-2.0
// A type's cost over time. Dragging over the chart, the form or the table below it choose a window.
import { h } from '../flame/dom.js';
import { LEVELS, number, unitFor } from '../flame/format.js';
import { list } from './list.js';
import { plural } from './page.js';

/** CPU time per second reads as CPUs; anything else keeps its unit, and a level is no rate. */
export function rateWords(v, unit, type) {
	if (type === 'cpu') return `${(v / 1e9).toFixed(!v ? 0 : v < 1e8 ? 3 : 2)} CPUs`;
	const scale = unitFor(unit, v);
	return `${number(v, scale)}${scale.name ? '\u00a0' + scale.name : ''}${LEVELS.includes(type) ? '' : '/s'}`;
}

const local = ms => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 16);

/** Draws the chart into a new element as soon as its library is there; without it `without` is called. */
export function chartBox(label, chart, without) {
	const holder = h('div', { class: 'chart', role: 'img', 'aria-label': label });
	import('./plot.js').then(m => requestAnimationFrame(() => m.plot(holder, chart)), without);
	return holder;
}

/** Every step of the range as [fromMs, point or null], so that gaps stay as wide as they are. */
function steps(points, step, range) {
	const known = new Map(points.map(p => [Date.parse(p.from), p])), first = Date.parse(points[0].from), out = [];
	for (let at = first - Math.floor((first - range[0]) / step) * step; at < range[1]; at += step) out.push([at, known.get(at) || null]);
	return out;
}

/** points: [{from, to, valuePerSecond, sampleCount}] of stepMs inside range [fromMs, toMs]; chosen(fromMs, toMs); window: [fromMs, toMs] | null is marked. */
export function timeline(points, stepMs, range, unit, type, window, chosen) {
	const words = p => `${rateWords(p.valuePerSecond || 0, unit, type)}, ${plural(p.sampleCount || 0, 'sample')}`;
	const choose = inside => { if (inside.length) chosen(Date.parse(inside[0].from), Date.parse(inside.at(-1).to)); };
	const all = steps(points, stepMs, range), most = Math.max(...points.map(p => p.valuePerSecond || 0)), tip = h('p', { class: 'facts' }, 'Drag over a time to see its flame graph.');
	const field = ms => h('input', { type: 'datetime-local', value: local(ms), required: true }), [a, b] = (window || range).map(field);
	const form = h('form', { class: 'fields', 'aria-label': 'Time' }, h('label', {}, 'From', a), h('label', {}, 'To', b), h('button', {}, 'Show this time'));
	form.addEventListener('submit', e => { e.preventDefault(); if (Date.parse(b.value) > Date.parse(a.value)) chosen(Date.parse(a.value), Date.parse(b.value)); });
	const table = h('details', {}, h('summary', {}, 'Pick a time range'), form, list('Cost over time', [['Time', 'c'], ['Cost', '']],
		points.filter(p => p.valuePerSecond).reverse().map(p => [h('button', { type: 'button', onclick: () => choose([p]) }, new Date(p.from).toLocaleString()), words(p)])));
	const chart = chartBox(`${type} over time, highest ${rateWords(most, unit, type)}`, { x: all.map(([at]) => at + stepMs / 2), y: all.map(([, p]) => p?.valuePerSecond ?? null), range, bars: true, marked: window,
		words: v => rateWords(v, unit, type), pointed: i => { const p = all[i]?.[1]; tip.textContent = p ? `${new Date(p.from).toLocaleString()}: ${words(p)}` : ''; },
		picked: i => choose([all[i][1]].filter(Boolean)), dragged: (from, to) => choose(points.filter(p => Date.parse(p.to) > from && Date.parse(p.from) <= to)) },
	() => { table.open = true; chart.remove(); tip.remove(); });
	return h('div', {}, chart, tip, table);
}
