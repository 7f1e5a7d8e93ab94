// SPDX-License-Identifier: Apache-2.0
// One function over all baselines.
import { h, svg } from '../flame/dom.js';
import { percent } from '../flame/format.js';
import { visible } from '../flame/names.js';
import { B, get } from '../parts/api.js';
import { list } from '../parts/list.js';
import { ago, heading, link, notice, plural } from '../parts/page.js';

const METRICS = [['self_pct', 'its own share'], ['cumulative_pct', 'share with callees']];
const TYPES = ['cpu', 'offcpu', 'wall', 'block', 'mutex', 'memory', 'alloc', 'goroutine', 'io'];

/** A line with its points; every value is also in the table below. */
function chart(items) {
	const width = 900, height = 240, left = 50, bottom = 24, top = 10, most = Math.max(...items.map(i => i.value), 0.1) * 1.1;
	const x = i => items.length < 2 ? width / 2 : left + 10 + i * (width - left - 20) / (items.length - 1), y = v => top + (height - bottom - top) * (1 - v / most);
	const grid = [0, 0.25, 0.5, 0.75, 1].map(f => [svg('line', { x1: left, x2: width, y1: y(most * f), y2: y(most * f) }), svg('text', { x: left - 6, y: y(most * f) + 4, 'text-anchor': 'end' }, percent(most * f, 100))]);
	return svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'chart', role: 'img', 'aria-label': 'Share by baseline, oldest first' }, grid.flat(),
		svg('path', { d: items.map((p, i) => `${i ? 'L' : 'M'}${x(i).toFixed(1)},${y(p.value).toFixed(1)}`).join('') }),
		items.map((p, i) => svg('circle', { cx: x(i), cy: y(p.value), r: 4 }, svg('title', {}, `${visible(p.baselineLabel)}: ${percent(p.value, 100)}`))),
		items.length <= 12 ? items.map((p, i) => svg('text', { x: x(i), y: height - 6, 'text-anchor': 'middle' }, visible(p.baselineLabel).slice(0, 12))) : []);
}

export async function show(content) {
	const query = new URLSearchParams(location.search), name = query.get('function') || '', type = query.get('type') || 'cpu', metric = query.get('metric') || 'self_pct';
	const head = heading('Trend', name ? 'Asking the daemon…' : 'Choose a function: its share in every baseline, oldest first.'), trouble = notice(), body = h('div', {});
	const option = (v, now, t = v) => h('option', { value: v, selected: v === now }, t);
	content.append(head.element, trouble.element, h('form', { class: 'fields', action: '/trend', 'aria-label': 'Function' },
		h('label', {}, 'Function', h('input', { name: 'function', value: name, required: true, size: '40', spellcheck: 'false' })), h('label', {}, 'Service', h('input', { name: 'service', value: query.get('service') || '', placeholder: 'all' })),
		h('label', {}, 'Type', h('select', { name: 'type' }, TYPES.map(t => option(t, type)))), h('label', {}, 'Share', h('select', { name: 'metric' }, METRICS.map(([v, t]) => option(v, metric, t)))), h('button', { class: 'primary' }, 'Show')), body);
	if (!name) return;
	try {
		const t = await get(B + '/trend', { profileType: type, funcName: name, metric, service: query.get('service'), limit: 100 });
		if (!t.items.length) return head.say('No baseline of this type yet, so there is no trend.');
		const first = t.items[0].value, last = t.items.at(-1).value;
		head.say(`${visible(name)}: ${percent(last, 100)} in the newest of ${plural(t.items.length, 'baseline')}` + (t.items.length > 1 ? `, ${percent(first, 100)} in the oldest.` : '.'));
		body.replaceChildren(chart(t.items), list('Values', [['Baseline', ''], ['Taken', 'c'], ['Share', 'n']], t.items.map(p => [link('/baselines#' + p.baselineId, visible(p.baselineLabel)), ago(p.createdAt), percent(p.value, 100)])));
	} catch (e) { head.say(''); trouble.show(e); }
}
