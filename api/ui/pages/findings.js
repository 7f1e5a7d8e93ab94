// SPDX-License-Identifier: Apache-2.0
// The page of findings, which the watches of continuous profiles make: the verdict in words first,
// then the two times that differ.
import { h } from '../flame/dom.js';
import { percent, points } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { PROFILING, getAll, poll } from '../parts/api.js';
import { list } from '../parts/list.js';
import { ago, heading, link, notice, plural, servicePath } from '../parts/page.js';

const DAY_MS = 86400000;

/** A time as a comparison names it, "service/type/from/to", or null. */
function timeOf(text) {
	const parts = text.split('/'), to = parts.pop(), from = parts.pop(), type = parts.pop(), service = parts.join('/');
	return service && Date.parse(from) < Date.parse(to) ? { service, type, from, to } : null;
}

function dayBefore(time) {
	const back = t => new Date(Date.parse(t) - DAY_MS).toISOString();
	return { ...time, from: back(time.from), to: back(time.to) };
}

/** The two times, or the baseline and the time, that a finding is about. One against many days is shown beside the last of these. */
function compareLink(f) {
	const { baseProfile, comparisonProfile } = f.comparison, after = timeOf(comparisonProfile);
	const before = timeOf(baseProfile) || (f.against === 'history' && after && dayBefore(after)), where = 'host:' + f.host;
	if (!after) return '';
	const sides = { service: after.service, profileType: after.type, comparisonFrom: after.from, comparisonTo: after.to, comparisonWhere: where };
	const base = before ? { baseFrom: before.from, baseTo: before.to, baseWhere: where } : { base: baseProfile };
	return h('p', {}, link('/compare?' + new URLSearchParams({ ...sides, ...base }), timeOf(baseProfile) || !before ? 'Open the comparison' : 'Compare with the day before'));
}

function card(f) {
	const c = f.comparison, open = f.state === 'open', rows = [...c.regressions, ...c.improvements].slice(0, 10);
	return h('section', { class: 'card' }, h('h2', {}, link(servicePath(f.service, '?type=' + f.profileType), visible(f.service)), ` · ${f.profileType} `,
		h('span', { class: 'badge ' + (open ? 'bad' : '') }, open ? 'open' : 'closed')),
		h('p', {}, h('span', { class: 'verdict ' + ({ regressed: 'bad', improved: 'good' }[c.verdict] || '') }, c.verdict), visible(c.summary || '')),
		h('p', { class: 'facts' }, 'Found ', ago(f.at), ` on ${visible(f.host)} against ${visible(f.against)}`, f.closedAt ? [', gone ', ago(f.closedAt)] : '', c.cause ? ` · cause: ${visible(c.cause)}` : ''),
		rows.length ? list('Changed functions', [['Change', 'n'], ['Function', ''], ['Before', 'n wide'], ['After', 'n wide']], rows.map(r => [
			h('span', { class: r.deltaPct > 0 ? 'more' : 'less' }, points(r.deltaPct)), visible(shortName(r.funcName)), percent(r.basePct, 100), percent(r.comparisonPct, 100)]), 'narrow') : '',
		compareLink(f));
}

export async function show(content) {
	const head = heading('Findings', 'Asking the daemon…'), trouble = notice(), body = h('div', {});
	content.append(head.element, trouble.element, body);
	let drawn = '';
	poll(async () => {
		const all = await getAll(PROFILING + '/findings', { from: '-30d' }, 300), state = JSON.stringify(all);
		const open = all.items.filter(f => f.state === 'open').length;
		head.say(all.total ? `${plural(all.total, 'finding')} in 30 days, ${open ? `${open} still open` : 'none open now'}.` : 'Nothing was found in the last 30 days.');
		if (state === drawn) return;
		drawn = state;
		body.replaceChildren(...all.items.map(card), all.items.length ? '' : h('div', { class: 'note' },
			'A service that is profiled continuously can be watched: each hour is compared with a baseline, with the version before, or with the same hour of other days. ',
			'The settings of continuous profiling on its page name what it is compared with.'));
	}, 30, e => trouble.show(e));
}
