// SPDX-License-Identifier: Apache-2.0
// Two profiles: the verdict first, then which functions changed, then the differential graph.
import { h } from '../flame/dom.js';
import { Explorer } from '../flame/explorer.js';
import { percent, points } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { PROFILING, get } from '../parts/api.js';
import { exportMenu } from '../parts/exports.js';
import { heading, link, notice, plural, qualityLine } from '../parts/page.js';
import { list } from '../parts/list.js';

const WORDS = { new: 'new', gone: 'gone' };

function sideForm(base, cmp) {
	const fields = [['base', 'Before: profile or baseline', base], ['cmp', 'After: profile or baseline', cmp]].map(([name, text, v]) =>
		h('label', {}, text, h('input', { name, value: v, required: true, size: '34', spellcheck: 'false', autocomplete: 'off' })));
	return h('form', { class: 'fields', action: '/compare', 'aria-label': 'Sides' }, fields, h('button', { type: 'submit', class: base && cmp ? null : 'primary' }, 'Compare'),
		base && cmp ? link(`/compare?base=${encodeURIComponent(cmp)}&cmp=${encodeURIComponent(base)}`, 'Swap', { class: 'button' }) : null);
}

const interval = f => f.confidenceInterval ? `[${f.confidenceInterval.map(v => (v < 0 ? '\u2212' : '') + Math.abs(v).toFixed(2)).join(', ')}]` : '';

function changes(c) {
	const rows = [...(c.regressions || []), ...(c.improvements || [])].sort((a, b) => Math.abs(b.deltaPct) - Math.abs(a.deltaPct));
	if (!rows.length) return h('p', { class: 'facts' }, `No function changed by more than ${c.threshold} points beyond the noise; ${plural(c.unchanged, 'function')} are unchanged.`);
	return [h('h2', {}, `${plural(rows.length, 'changed function')}, ${c.unchanged.toLocaleString('en')} unchanged`),
		list('Changed functions', [['Change', 'n'], ['Interval', 'n wide'], ['Function', ''], ['Before', 'n'], ['After', 'n'], ['Package', 'wide']],
			rows.map(f => [h('span', { class: f.deltaPct > 0 ? 'more' : 'less' }, points(f.deltaPct)), interval(f),
				h('span', { title: visible(f.funcName) }, visible(shortName(f.funcName)), WORDS[f.change] ? h('span', { class: 'badge' }, f.change) : ''),
				percent(f.basePct, 100), percent(f.comparisonPct, 100), visible(f.package || '')]))];
}

function verdict(c) {
	const style = { regressed: 'bad', improved: 'good' }[c.verdict] || '';
	const cost = c.overallDelta === null ? 'cost was nothing before' : `cost ${c.overallDelta >= 0 ? '+' : '\u2212'}${Math.abs(c.overallDelta).toFixed(1)}\u00a0% per second${c.significant ? '' : ', within the noise'}`;
	const more = [cost, c.cause ? `cause: ${c.cause}` : '', c.minDetectable ? `smallest change that would be seen: ${c.minDetectable.toFixed(1)} points` : '', `confidence ${100 * c.confidence}\u00a0%`];
	return h('div', { class: 'note ' + style }, h('p', {}, h('span', { class: 'verdict ' + style }, c.insufficientData ? 'Not enough data' : c.verdict), visible(c.summary || '')),
		h('p', { class: 'facts' }, more.filter(Boolean).join(' · ')));
}

export async function show(content) {
	const query = new URLSearchParams(location.search), base = query.get('base') || '', cmp = query.get('cmp') || '';
	const head = heading('Compare', base && cmp ? 'Comparing…' : 'Choose two finished profiles or baselines of one type; a service page lists them.'), trouble = notice();
	const result = h('div', {}), graph = h('div', { class: 'graph', hidden: true });
	content.append(head.element, trouble.element, result, sideForm(base, cmp), graph);
	if (!base || !cmp) return;
	const sides = { baseProfileId: base, comparisonProfileId: cmp };
	for (const name of ['threshold', 'confidence']) if (query.get(name)) sides[name] = query.get(name);
	let c;
	try { c = await get(PROFILING + '/compare', sides); } catch (e) { head.say('These two cannot be compared.'); return trouble.show(e); }
	head.say(`${c.profileType}: ${c.insufficientData ? 'not enough data' : c.verdict}.`);
	document.title = `${c.verdict} · ${c.profileType} · profd`;
	result.replaceChildren(verdict(c), h('div', { class: 'side facts' }, 'Before ', sideLink(base), qualityLine(c.quality?.base)), h('div', { class: 'side facts' }, 'After ', sideLink(cmp), qualityLine(c.quality?.comparison)), ...[changes(c)].flat());
	const address = `${PROFILING}/compare/flamegraph`, asked = `?baseProfileId=${encodeURIComponent(base)}&comparisonProfileId=${encodeURIComponent(cmp)}`;
	graph.hidden = false;
	const explorer = new Explorer(graph, { tools: [exportMenu(() => address + asked, ['html', 'svg', 'json'])] });
	explorer.setData(await get(address, { ...sides, threshold: null, confidence: null, format: 'flame' }));
}

const sideLink = id => link(id.startsWith('bl-') ? '/baselines#' + id : '/p/' + encodeURIComponent(id), id);
