// SPDX-License-Identifier: Apache-2.0
// One function over all baselines.
import { h } from '../flame/dom.js';
import { percent } from '../flame/format.js';
import { visible } from '../flame/names.js';
import { B, get } from '../parts/api.js';
import { list } from '../parts/list.js';
import { ago, heading, link, notice, plural, tenantField } from '../parts/page.js';
import { chartBox } from '../parts/timeline.js';
import { TYPES } from '../flame/words.js';

const METRICS = [['self_pct', 'its own share'], ['cumulative_pct', 'share with callees']];

export async function show(content) {
	const query = new URLSearchParams(location.search), name = query.get('function') || '', type = query.get('type') || 'cpu', metric = query.get('metric') || 'self_pct';
	const head = heading('Trend', name ? 'Asking the daemon…' : 'Choose a function: its share in every baseline, oldest first.'), trouble = notice(), body = h('div', {});
	const option = (v, now, t = v) => h('option', { value: v, selected: v === now }, t);
	content.append(head.element, trouble.element, h('form', { class: 'fields', action: '/trend', 'aria-label': 'Function' }, tenantField(),
		h('label', {}, 'Function', h('input', { name: 'function', value: name, required: true, size: '40', spellcheck: 'false' })), h('label', {}, 'Service', h('input', { name: 'service', value: query.get('service') || '', placeholder: 'all' })),
		h('label', {}, 'Type', h('select', { name: 'type' }, TYPES.map(t => option(t, type)))), h('label', {}, 'Share', h('select', { name: 'metric' }, METRICS.map(([v, t]) => option(v, metric, t)))), h('button', { class: 'primary' }, 'Show')), body);
	if (!name) return;
	try {
		const t = await get(B + '/trend', { profileType: type, funcName: name, metric, service: query.get('service'), order: 'newest', limit: 100 });
		if (!t.items.length) return head.say('No baseline of this type yet, so there is no trend.');
		t.items.reverse();
		const first = t.items[0].value, last = t.items.at(-1).value;
		head.say(`${visible(name)}: ${percent(last, 100)} in the newest of ${plural(t.items.length, 'baseline')}` + (t.items.length > 1 ? `, ${percent(first, 100)} in the oldest.` : '.'));
		const tip = h('p', { class: 'facts' }), chart = chartBox('Share by baseline, oldest first', { x: t.items.map(p => Date.parse(p.createdAt)), y: t.items.map(p => p.value), words: v => percent(v, 100),
			pointed: i => { tip.textContent = t.items[i] ? `${visible(t.items[i].baselineLabel)}: ${percent(t.items[i].value, 100)}` : ''; } }, () => chart.remove());
		body.replaceChildren(chart, tip, list('Values', [['Baseline', ''], ['Taken', 'c'], ['Share', 'n']], t.items.map(p => [link('/baselines#' + p.baselineId, visible(p.baselineLabel)), ago(p.createdAt), percent(p.value, 100)])));
	} catch (e) { head.say(''); trouble.show(e); }
}
