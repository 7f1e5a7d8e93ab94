// SPDX-License-Identifier: Apache-2.0
// Profiles kept as yardsticks: list, check against one, remove.
import { h } from '../flame/dom.js';
import { duration, percent, points, value } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { B, PROFILING, get, getAll, post, remove } from '../parts/api.js';
import { list } from '../parts/list.js';
import { action, ago, heading, link, notice, plural, servicePath } from '../parts/page.js';

const THRESHOLDS = [['functionDeltaPct', 'Warn at points of change', 5], ['newHotspotMinPct', 'Warn at points of a new hotspot', 2],
	['criticalDeltaPct', 'Critical change', 20], ['criticalHotspotPct', 'Critical new hotspot', 10]];

function report(r, baselineId) {
	const style = r.severity === 'CRITICAL' ? 'bad' : r.severity === 'WARNING' ? 'warn' : r.insufficientData ? '' : 'good';
	const word = r.regressionDetected ? r.severity.toLowerCase() : r.insufficientData ? 'not enough data' : 'no regression';
	const rows = [...r.changedFunctions, ...r.newHotspots.filter(n => !r.changedFunctions.some(c => c.funcName === n.funcName && c.package === n.package))];
	return h('div', { class: 'note ' + style, role: 'status' }, h('p', {}, h('span', { class: 'verdict ' + style }, word), visible(r.summary || '')),
		rows.length ? list('Changed functions', [['Change', 'n'], ['Function', ''], ['Before', 'n'], ['After', 'n']], rows.map(f => [points(f.deltaPct ?? f.comparisonPct - f.basePct),
			visible(shortName(f.funcName)), percent(f.basePct, 100), percent(f.comparisonPct, 100)]), 'narrow') : '',
		h('p', { class: 'facts' }, link(`/compare?base=${encodeURIComponent(baselineId)}&cmp=${encodeURIComponent(r.compareId)}`, 'Open the comparison'), ` · report ${r.reportId}`));
}

/** The form under a baseline: which profile, with which limits. */
async function checkForm(baseline, holder, trouble) {
	const sessions = await get(PROFILING + '/history', { service: baseline.service, profileType: baseline.profileType, status: 'completed', from: '-7d', limit: 50, top: 0 });
	const others = sessions.items.filter(s => s.id !== baseline.sessionId);
	if (!others.length) return holder.replaceChildren(h('div', { class: 'note' }, `There is no other finished ${baseline.profileType} profile of ${visible(baseline.service)} in the last 7 days. `, link(servicePath(baseline.service, '?type=' + baseline.profileType), 'Take one')));
	const pick = h('select', {}, others.map(s => h('option', { value: s.id }, `${new Date(s.createdAt).toLocaleString()} · ${duration(s.durationSeconds)} · ${value(s.totalValue, s.unit)}`)));
	const limits = THRESHOLDS.map(([name, text, standard]) => [name, h('input', { type: 'number', min: '0', max: '100', step: 'any', value: String(standard), title: text }), text]);
	const out = h('div', {}), form = h('form', { class: 'fields', 'aria-label': 'Check' }, h('label', {}, 'Profile to check', pick), limits.map(([, input, text]) => h('label', {}, text, input)), h('button', { class: 'primary' }, 'Check'));
	form.addEventListener('submit', async e => {
		e.preventDefault();
		trouble.show(null);
		try {
			const r = await post(B + '/regression/check', { baselineId: baseline.baselineId, compareId: pick.value, thresholds: Object.fromEntries(limits.map(([name, input]) => [name, Number(input.value)])) });
			out.replaceChildren(report(r, baseline.baselineId));
		} catch (error) { trouble.show(error); }
	});
	holder.replaceChildren(form, out);
}

export async function show(content) {
	const query = new URLSearchParams(location.search), head = heading('Baselines', 'Asking the daemon…'), trouble = notice(), body = h('div', {});
	content.append(head.element, trouble.element, body);
	async function draw() {
		let all;
		try { all = await getAll(B + '/baselines', { service: query.get('service'), profileType: query.get('type'), tag: query.get('tag') }, 1000); } catch (e) { head.say(''); return trouble.show(e); }
		head.say(all.total ? `${plural(all.total, 'baseline')}; a baseline is a profile kept to check later ones against.` : 'No baseline yet. Open a finished profile and choose Keep as baseline.');
		const checks = new Map(all.items.map(b => [b.baselineId, h('div', {})]));
		body.replaceChildren(...all.items.map(b => h('section', { id: b.baselineId, class: 'card' },
			h('div', { class: 'row' }, h('b', {}, visible(b.baselineLabel)), b.isLatest ? h('span', { class: 'badge on' }, 'latest') : '', (b.tags || []).map(t => h('span', { class: 'badge' }, visible(t))),
				action('Check a profile against it', () => checkForm(b, checks.get(b.baselineId), trouble), trouble),
				b.topFunctions?.[0] ? link(`/trend?type=${b.profileType}&service=${encodeURIComponent(b.service)}&function=${encodeURIComponent(b.topFunctions[0].funcName)}`, 'Trend of its top function', { class: 'button' }) : '',
				action('Delete', async () => { if (confirm('Delete this baseline? It cannot be brought back.')) { await remove(`${B}/baselines/${b.baselineId}`); await draw(); } }, trouble, { class: 'danger' })),
			h('p', { class: 'facts' }, link(servicePath(b.service), visible(b.service)), ` · ${b.profileType} · ${value(b.totalValue, b.unit)} in ${duration(b.durationSeconds)} · `, ago(b.createdAt), b.description ? ` · ${visible(b.description)}` : '',
				' · ', link('/p/' + b.sessionId, 'its profile')),
			(b.topFunctions || []).filter(f => f.selfPct > 0).slice(0, 3).map(f => h('p', { class: 'facts' }, `${percent(f.selfPct, 100)} ${visible(shortName(f.funcName))}`)), checks.get(b.baselineId))));
	}
	await draw();
	if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}
