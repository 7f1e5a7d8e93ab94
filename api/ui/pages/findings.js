// SPDX-License-Identifier: Apache-2.0
// What the watches of continuous profiles found: the verdict in words first, then the two times that differ.
import { h } from '../flame/dom.js';
import { percent, points } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { PROFILING, get, poll } from '../parts/api.js';
import { list } from '../parts/list.js';
import { ago, heading, link, notice, plural, servicePath } from '../parts/page.js';

/** A side as the comparison names it, "service/type/from/to" or the id of a profile, as parameters of /compare. */
function side(name, text) {
	const parts = text.split('/'), to = parts.pop(), from = parts.pop(), type = parts.pop(), service = parts.join('/');
	if (!service || !(Date.parse(from) < Date.parse(to))) return null;
	return { service, profileType: type, [name + 'From']: from, [name + 'To']: to };
}

function compareLink(c) {
	const base = side('base', c.baseProfile), comparison = side('comparison', c.comparisonProfile);
	if (base && comparison && base.service === comparison.service) return '/compare?' + new URLSearchParams({ ...base, ...comparison });
	return base || comparison ? null : `/compare?base=${encodeURIComponent(c.baseProfile)}&cmp=${encodeURIComponent(c.comparisonProfile)}`;
}

function card(f) {
	const c = f.comparison, open = f.state === 'open', rows = [...c.regressions, ...c.improvements].slice(0, 10), address = compareLink(c);
	return h('section', { class: 'card' }, h('h2', {}, link(servicePath(f.service, '?type=' + f.profileType), visible(f.service)), ` · ${f.profileType} `,
		h('span', { class: 'badge ' + (open ? 'bad' : '') }, open ? 'open' : 'closed')),
		h('p', {}, h('span', { class: 'verdict ' + ({ regressed: 'bad', improved: 'good' }[c.verdict] || '') }, c.verdict), visible(c.summary || '')),
		h('p', { class: 'facts' }, 'Found ', ago(f.at), ` against ${visible(f.against)}`, f.closedAt ? [', gone ', ago(f.closedAt)] : '', c.cause ? ` · cause: ${visible(c.cause)}` : ''),
		rows.length ? list('Changed functions', [['Change', 'n'], ['Function', ''], ['Before', 'n wide'], ['After', 'n wide']], rows.map(r => [
			h('span', { class: r.deltaPct > 0 ? 'more' : 'less' }, points(r.deltaPct)), visible(shortName(r.funcName)), percent(r.basePct, 100), percent(r.comparisonPct, 100)]), 'narrow') : '',
		address ? h('p', {}, link(address, 'Open the comparison')) : '');
}

export async function show(content) {
	const head = heading('Findings', 'Asking the daemon…'), trouble = notice(), body = h('div', {});
	content.append(head.element, trouble.element, body);
	let drawn = '';
	poll(async () => {
		const all = await get(PROFILING + '/findings', { from: '-30d', limit: 50 }), state = JSON.stringify(all);
		const open = all.items.filter(f => f.state === 'open').length;
		head.say(all.total ? `${plural(all.total, 'finding')} in 30 days, ${open ? `${open} still open` : 'none open now'}.` : 'Nothing was found in the last 30 days.');
		if (state === drawn) return;
		drawn = state;
		body.replaceChildren(...all.items.map(card), all.items.length ? '' : h('div', { class: 'note' },
			'A service that is profiled continuously can be watched: each hour is compared with a baseline, with the version before, or with the same hour of other days. ',
			'The settings of continuous profiling on its page name what it is compared with.'));
	}, 30, e => trouble.show(e));
}
