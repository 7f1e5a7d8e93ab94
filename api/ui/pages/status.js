// SPDX-License-Identifier: Apache-2.0
// The agent itself: what it costs, what it lost, what it holds.
import { h } from '../flame/dom.js';
import { duration, value } from '../flame/format.js';
import { visible } from '../flame/names.js';
import { get, poll, readiness, text } from '../parts/api.js';
import { list } from '../parts/list.js';
import { heading, notice, plural, redraw } from '../parts/page.js';
import { agentCost, parseMetrics, sum } from '../parts/metrics.js';

const card = (title, big, small) => h('div', { class: 'card' }, h('span', {}, title), h('b', {}, big), h('span', {}, small || ''));

/** The lines of `profd --features`: name, state, then why not, what to do and what happens instead. */
function features(lines) {
	if (!lines.length) return h('p', { class: 'facts' }, 'This daemon does not profile its host.');
	return list('Features', [['Feature', ''], ['Found', ''], ['If not: why, and what happens instead', '']], lines.map(line => {
		const [, name, state, rest] = /^(\S+) +(\S+) *(.*)$/.exec(line);
		return [name, h('span', { class: state === 'yes' ? 'good' : 'warn' }, state), rest];
	}));
}

export async function show(content) {
	const head = heading('Agent', 'Asking the daemon…'), trouble = notice(), body = h('div', {});
	content.append(head.element, trouble.element, body);
	let before = null;
	poll(async () => {
		const [m, ready, version] = [parseMetrics(await text('/metrics')), await readiness(), await get('/version')];
		const one = name => sum(m, name), { cpu, up, lost } = agentCost(m), now = { cpu, up };
		const recent = before && up > before.up ? (cpu - before.cpu) / (up - before.up) : null;
		before = now;
		head.say(`profd costs ${(cpu / Math.max(up, 1)).toFixed(4)} CPUs since it started ${duration(Math.round(up))} ago` + (lost ? `; ${plural(lost, 'sample was', 'samples were')} lost.` : '; nothing was lost.'));
		const outcomes = (m.profd_stack_outcomes_total || []).filter(o => o.value).sort((a, b) => b.value - a.value), all = outcomes.reduce((a, o) => a + o.value, 0);
		redraw(body,
			ready.reason ? h('div', { class: 'note warn' }, visible(ready.reason)) : '',
			one('profd_hung_file_readers') ? h('div', { class: 'note warn' }, `${plural(one('profd_hung_file_readers'), 'child of profd hangs', 'children of profd hang')} at file systems that do not answer: what runs from those has no names.`) : '',
			h('div', { class: 'cards' }, [['store', 'Store'], ['collector', 'Collector'], ['symbolizer', 'Symbolizer']].map(([key, title]) => card(title, h('span', { class: ready[key] ? 'good' : 'bad' }, ready[key] ? 'works' : 'does not work'))),
				card('CPUs used by profd now', recent === null ? '…' : recent.toFixed(3), `collector, BPF programs and server; ${(cpu / Math.max(up, 1)).toFixed(4)} on average`), card('Samples', value(one('profd_samples_total'), 'count'), 'since the start'),
				card('Lost', value(lost, 'count'), 'rings full or records lost'), card('Running sessions', String(one('profd_sessions_running')), one('profd_sample_rate_hertz') ? `${one('profd_sample_rate_hertz')} Hz now` : 'not sampling now'),
				card('Watched', value(one('profd_processes'), 'count'), `processes in ${plural(one('profd_services'), 'service')}, ${plural(one('profd_modules'), 'mapped file')}`), card('BPF maps', value(one('profd_bpf_map_bytes'), 'bytes')), card('Store on disk', value(one('profd_store_bytes'), 'bytes')),
				card('Feed ring', value(one('profd_feed_used_bytes'), 'bytes'), `of ${value(one('profd_feed_capacity_bytes'), 'bytes')}`), card('Version', version.version, 'since ' + new Date(Date.now() - up * 1000).toLocaleString())),
			h('h2', {}, 'What became of the stacks'), outcomes.length ? list('Outcomes', [['Outcome', ''], ['Count', 'n'], ['Share', 'n']], outcomes.map(o => [o.labels.outcome.replaceAll('_', ' '), o.value.toLocaleString('en'), (100 * o.value / all).toFixed(2) + '\u00a0%']), 'narrow') : h('p', { class: 'facts' }, 'No sample was taken yet.'),
			h('h2', {}, 'What this kernel allows'), features(version.features),
			h('h2', {}, 'Limits'), list('Limits', [['Limit', ''], ['Value', 'n']], (m.profd_limit || []).map(l => [l.labels.name.replaceAll('_', ' '), l.labels.name.endsWith('bytes') ? value(l.value, 'bytes') : l.value.toLocaleString('en')]), 'narrow'),
			h('p', { class: 'foot' }, h('a', { href: '/metrics' }, 'All metrics'), ' · ', h('a', { href: '/openapi.json' }, 'API'), ' · ', h('a', { href: '/version' }, 'Version and formats')));
	}, 5, e => trouble.show(e));
}
