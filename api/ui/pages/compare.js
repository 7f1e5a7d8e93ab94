// SPDX-License-Identifier: Apache-2.0
// Two profiles: the verdict first, then which functions changed, then the differential graph.
import { h } from '../flame/dom.js';
import { Explorer } from '../flame/explorer.js';
import { LEVELS, percent, points } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { qualityLine } from '../flame/quality.js';
import { PROFILING, get } from '../parts/api.js';
import { exportMenu } from '../parts/exports.js';
import { framesSelect } from '../parts/group.js';
import { heading, link, notice, plural, tenantField } from '../parts/page.js';
import { list } from '../parts/list.js';

const WORDS = { new: 'new', gone: 'gone' };

function sideForm(query) {
	const fields = [['base', 'Before: profile or baseline'], ['cmp', 'After: profile or baseline']].map(([name, text]) =>
		h('label', {}, text, h('input', { name, value: query.get(name) || '', required: true, size: '34', spellcheck: 'false', autocomplete: 'off' })));
	return h('form', { class: 'fields', action: '/compare', 'aria-label': 'Sides' }, fields, tenantField(), h('button', { type: 'submit', class: query.get('base') && query.get('cmp') ? null : 'primary' }, 'Compare'));
}

const ID = { base: 'base', comparison: 'cmp' };

/** A side as the address names it, in the API's parameters: a profile or baseline, or a time of a service; null = not chosen. */
function sideOf(query, side) {
	const id = query.get(ID[side]), names = ['service', 'profileType', side + 'From', side + 'To', side + 'Where'];
	if (id) return { [side + 'ProfileId']: id };
	return query.get(side + 'From') ? Object.fromEntries(names.filter(name => query.get(name)).map(name => [name, query.get(name)])) : null;
}

function sideLink(asked, side) {
	const id = asked[side + 'ProfileId'], [from, to, where] = [asked[side + 'From'], asked[side + 'To'], asked[side + 'Where']];
	if (id) return link(id.startsWith('bl-') ? '/baselines#' + id : '/p/' + encodeURIComponent(id), id);
	return link('/s/' + encodeURIComponent(asked.service) + '?' + new URLSearchParams({ type: asked.profileType, start: from, end: to }),
		`${visible(asked.service)}${where ? ` (${visible(where)})` : ''}, ${new Date(from).toLocaleString()} to ${new Date(to).toLocaleString()}`);
}

/** The same address with its sides changed over. */
function swapped(query) {
	const other = name => name === 'base' ? 'cmp' : name === 'cmp' ? 'base' : name.startsWith('base') ? name.replace('base', 'comparison') : name.replace('comparison', 'base');
	return '/compare?' + new URLSearchParams([...query].map(([name, value]) => [other(name), value]));
}

const interval = f => f.confidenceInterval ? `[${f.confidenceInterval.map(v => (v < 0 ? '\u2212' : '') + Math.abs(v).toFixed(2)).join(', ')}]` : '';

function changes(c) {
	const rows = [...(c.regressions || []), ...(c.improvements || [])].sort((a, b) => Math.abs(b.deltaPct) - Math.abs(a.deltaPct));
	if (!rows.length) return h('p', { class: 'facts' }, `No function changed by more than ${c.threshold} points beyond the noise; ${plural(c.unchanged, 'function is', 'functions are')} unchanged.`);
	return [h('h2', {}, `${plural(rows.length, 'changed function')}, ${c.unchanged.toLocaleString('en')} unchanged`),
		list('Changed functions', [['Change', 'n'], ['Interval', 'n wide'], ['Function', ''], ['Before', 'n'], ['After', 'n'], ['Package', 'wide']],
			rows.map(f => [h('span', { class: f.deltaPct > 0 ? 'more' : 'less' }, points(f.deltaPct)), interval(f),
				h('span', { title: visible(f.funcName) }, visible(shortName(f.funcName)), WORDS[f.change] ? h('span', { class: 'badge' }, f.change) : ''),
				percent(f.basePct, 100), percent(f.comparisonPct, 100), visible(f.package || '')]))];
}

function verdict(c) {
	const style = { regressed: 'bad', improved: 'good' }[c.verdict] || '';
	const cost = c.overallDelta === null ? 'cost was nothing before' : `cost ${c.overallDelta >= 0 ? '+' : '\u2212'}${Math.abs(c.overallDelta).toFixed(1)}\u00a0%${LEVELS.includes(c.profileType) ? '' : ' per second'}${c.significant ? '' : ', within the noise'}`;
	const more = [cost, c.cause ? `cause: ${c.cause}` : '', c.minDetectable ? `smallest change that would be seen: ${c.minDetectable.toFixed(1)} points` : '', `confidence ${100 * c.confidence}\u00a0%`];
	return h('div', { class: 'note ' + style }, h('p', {}, h('span', { class: 'verdict ' + style }, c.insufficientData ? 'Not enough data' : c.verdict), visible(c.summary || '')),
		h('p', { class: 'facts' }, more.filter(Boolean).join(' · ')));
}

export async function show(content) {
	const query = new URLSearchParams(location.search), base = sideOf(query, 'base'), comparison = sideOf(query, 'comparison'), chosen = base && comparison;
	const head = heading('Compare', chosen ? 'Comparing…' : 'Choose two finished profiles or baselines of one type, or two times of a service: its page lists them.'), trouble = notice();
	const result = h('div', {}), graph = h('div', { class: 'graph', hidden: true });
	content.append(head.element, trouble.element, result, query.get('baseFrom') || query.get('comparisonFrom') ? '' : sideForm(query),
		chosen ? h('div', { class: 'row' }, link(swapped(query), 'Swap', { class: 'button' })) : '', graph);
	if (!chosen) return;
	const asked = { ...base, ...comparison }, sides = { ...asked };
	for (const name of ['threshold', 'confidence']) if (query.get(name)) sides[name] = query.get(name);
	if (query.get('frames')) asked.frames = sides.frames = query.get('frames');
	const [before, after] = [sideLink(asked, 'base'), sideLink(asked, 'comparison')];
	let c;
	try { c = await get(PROFILING + '/compare', sides); } catch (e) { head.say('These two cannot be compared.'); return trouble.show(e); }
	head.say(`${c.profileType}: ${c.insufficientData ? 'not enough data' : c.verdict}.`);
	document.title = `${c.insufficientData ? 'not enough data' : c.verdict} · ${c.profileType} · profd`;
	result.replaceChildren(verdict(c), h('div', { class: 'side facts' }, 'Before ', before, qualityLine(c.quality?.base)), h('div', { class: 'side facts' }, 'After ', after, qualityLine(c.quality?.comparison)), ...[changes(c)].flat());
	const address = `${PROFILING}/compare/flamegraph`;
	graph.hidden = false;
	const legend = h('p', { class: 'facts' });
	graph.before(legend);
	const doc = await get(address, { ...asked, format: 'flame' });
	const explorer = new Explorer(graph, { sentence: text => { legend.textContent = text; }, share: async () => new URL(c.flameGraphUrl, location.href).href, tools: [framesSelect(doc, query.get('frames')), exportMenu(() => address + '?' + new URLSearchParams(asked), ['html', 'svg', 'json'])] });
	explorer.setData(doc);
}
