// SPDX-License-Identifier: Apache-2.0
// Two profiles: the verdict first, then which functions changed, then the differential graph.
import { h } from '../flame/dom.js';
import { Explorer } from '../flame/explorer.js';
import { percent, points } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { qualityLine } from '../flame/quality.js';
import { PROFILING, get } from '../parts/api.js';
import { exportMenu } from '../parts/exports.js';
import { heading, link, notice, plural } from '../parts/page.js';
import { list } from '../parts/list.js';

const WORDS = { new: 'new', gone: 'gone' };

function sideForm(base, cmp) {
	const fields = [['base', 'Before: profile or baseline', base], ['cmp', 'After: profile or baseline', cmp]].map(([name, text, v]) =>
		h('label', {}, text, h('input', { name, value: v, required: true, size: '34', spellcheck: 'false', autocomplete: 'off' })));
	return h('form', { class: 'fields', action: '/compare', 'aria-label': 'Sides' }, fields, h('button', { type: 'submit', class: base && cmp ? null : 'primary' }, 'Compare'),
		base && cmp ? link(`/compare?base=${encodeURIComponent(cmp)}&cmp=${encodeURIComponent(base)}`, 'Swap', { class: 'button' }) : null);
}

const WINDOW = ['service', 'profileType', 'baseFrom', 'baseTo', 'comparisonFrom', 'comparisonTo'];

/** The two times of a service that the address names, or null. */
function chosenWindows(query) {
	return query.get('baseFrom') ? Object.fromEntries(WINDOW.map(name => [name, query.get(name) || ''])) : null;
}

function windowLink(w, side) {
	const [from, to] = [w[side + 'From'], w[side + 'To']];
	return link('/s/' + encodeURIComponent(w.service) + '?' + new URLSearchParams({ type: w.profileType, start: from, end: to }), `${visible(w.service)}, ${new Date(from).toLocaleString()} to ${new Date(to).toLocaleString()}`);
}

function swapWindows(w) {
	return h('div', { class: 'row' }, link('/compare?' + new URLSearchParams({ ...w, baseFrom: w.comparisonFrom, baseTo: w.comparisonTo, comparisonFrom: w.baseFrom, comparisonTo: w.baseTo }), 'Swap', { class: 'button' }));
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
	const query = new URLSearchParams(location.search), windows = chosenWindows(query), base = query.get('base') || '', cmp = query.get('cmp') || '';
	const head = heading('Compare', windows || base && cmp ? 'Comparing…' : 'Choose two finished profiles or baselines of one type, or two times of a service: its page lists them.'), trouble = notice();
	const result = h('div', {}), graph = h('div', { class: 'graph', hidden: true });
	content.append(head.element, trouble.element, result, windows ? swapWindows(windows) : sideForm(base, cmp), graph);
	if (!windows && (!base || !cmp)) return;
	const asked = windows || { baseProfileId: base, comparisonProfileId: cmp }, sides = { ...asked };
	for (const name of ['threshold', 'confidence']) if (query.get(name)) sides[name] = query.get(name);
	const [before, after] = windows ? [windowLink(windows, 'base'), windowLink(windows, 'comparison')] : [sideLink(base), sideLink(cmp)];
	let c;
	try { c = await get(PROFILING + '/compare', sides); } catch (e) { head.say('These two cannot be compared.'); return trouble.show(e); }
	head.say(`${c.profileType}: ${c.insufficientData ? 'not enough data' : c.verdict}.`);
	document.title = `${c.insufficientData ? 'not enough data' : c.verdict} · ${c.profileType} · profd`;
	result.replaceChildren(verdict(c), h('div', { class: 'side facts' }, 'Before ', before, qualityLine(c.quality?.base)), h('div', { class: 'side facts' }, 'After ', after, qualityLine(c.quality?.comparison)), ...[changes(c)].flat());
	const address = `${PROFILING}/compare/flamegraph`;
	graph.hidden = false;
	const legend = h('p', { class: 'facts' });
	graph.before(legend);
	const explorer = new Explorer(graph, { sentence: text => { legend.textContent = text; }, share: async () => new URL(c.flameGraphUrl, location.href).href, tools: [exportMenu(() => address + '?' + new URLSearchParams(asked), ['html', 'svg', 'json'])] });
	explorer.setData(await get(address, { ...asked, format: 'flame' }));
}

const sideLink = id => link(id.startsWith('bl-') ? '/baselines#' + id : '/p/' + encodeURIComponent(id), id);
