// SPDX-License-Identifier: Apache-2.0
// All services of the host: what each costs now, and one button to look into it.
import { h } from '../flame/dom.js';
import { capital } from '../flame/format.js';
import { visible } from '../flame/names.js';
import { A, PROFILING, get, poll, readiness, text } from '../parts/api.js';
import { columnTitle } from '../parts/list.js';
import { agentCost, parseMetrics } from '../parts/metrics.js';
import { ago, bar, heading, link, notice, plural, servicePath } from '../parts/page.js';
import { sparkline } from '../parts/spark.js';
import { startButton } from '../parts/start.js';

const SORTS = { cpus: (a, b) => b.cpus - a.cpus || a.name.localeCompare(b.name), name: (a, b) => a.name.localeCompare(b.name),
	processes: (a, b) => b.processes.length - a.processes.length || a.name.localeCompare(b.name) };

function summary(items, cpus, filter) {
	if (!items.length) return 'No service is known yet.';
	const busy = Math.min(items.reduce((sum, s) => sum + (s.cpus || 0), 0), cpus || Infinity), top = [...items].sort(SORTS.cpus)[0];
	return `${plural(items.length, 'service')}, ${busy.toFixed(2)}${cpus ? ` of ${cpus}` : ''} CPUs busy` +
		(top.cpus > 0 ? `, most in ${visible(top.name)} (${top.cpus.toFixed(2)})` : '') + (filter ? '; the list is filtered' : '') + '.';
}

/** How many can be taken; the reasons of the rest show on hover and on the service's page. */
function typeBadge(service) {
	const types = service.profileTypes, off = types.filter(t => !t.available);
	return h('span', { class: off.length ? 'badge off' : 'badge', title: (off.length ? off.map(t => `${t.type}: ${visible(t.reason || 'not available')}`) : types.map(t => t.type)).join('\n') },
		off.length ? `${types.length - off.length} of ${types.length}` : `all ${types.length}`);
}

export async function show(content) {
	const head = heading('Services', 'Asking the daemon…'), trouble = notice();
	const filter = h('input', { type: 'search', class: 'grow', placeholder: 'Filter by name, unit, runtime, pid', 'aria-label': 'Filter services', autocomplete: 'off', spellcheck: 'false' });
	const body = h('tbody', {}), rows = new Map(), newest = new Map(), older = new Map(), lines = new Map();
	let items = [], sort = 'cpus', hostCpus = 0;
	filter.value = new URLSearchParams(location.hash.slice(1)).get('q') || '';

	const headers = [['name', 'Service'], [null, 'From', 'wide'], [null, 'Runtime', 'wide'], ['processes', 'Processes', 'n wide'], ['cpus', 'CPUs now', 'n'], [null, 'Last hour', 'wide'],
		[null, 'Types', 'wide'], [null, 'Last profile', 'wide'], [null, '(Start)']].map(([key, text, style]) => h('th', { scope: 'col', class: style },
		key ? h('button', { type: 'button', 'data-sort': key, onclick: () => { sort = key; draw(); } }, text) : columnTitle(text)));
	const table = h('table', { class: 'list', 'aria-label': 'Services' }, h('thead', {}, h('tr', {}, headers)), body);
	const empty = h('div', { class: 'note', hidden: true }), amiss = h('div', { class: 'note warn', role: 'status', hidden: true }), cost = h('p', { class: 'foot' });
	content.append(head.element, trouble.element, amiss, h('div', { class: 'row' }, filter, startButton('*', trouble, 'Profile the whole host 30\u00a0s')),
		h('div', { class: 'scroll' }, table), empty, cost);

	const matches = s => {
		const q = filter.value.trim().toLowerCase();
		return !q || [s.name, s.systemdUnit, s.runtime, s.containerId, s.source].some(t => t && t.toLowerCase().includes(q)) ||
			s.processes.some(p => String(p.pid) === q || (p.exe || '').toLowerCase().includes(q));
	};

	/** A row is made once and then only its changing cells, so that focus and selection stay. */
	function row(s) {
		let r = rows.get(s.name);
		if (!r) {
			r = { cpus: h('td', { class: 'n' }), processes: h('td', { class: 'n wide' }), line: h('td', { class: 'wide' }), last: h('td', { class: 'c wide' }), types: h('td', { class: 'wide' }) };
			r.element = h('tr', {}, h('td', {}, link(servicePath(s.name), visible(s.name), { class: 'name' })),
				h('td', { class: 'wide' }, h('span', { class: 'badge' }, s.source + (s.inferred ? ', inferred' : ''))), h('td', { class: 'wide' }, s.runtime || ''),
				r.processes, r.cpus, r.line, r.types, r.last, h('td', { class: 'c' }, startButton(s.name, trouble)));
			rows.set(s.name, r);
		}
		r.processes.textContent = s.processes.length;
		r.processes.title = s.processes.slice(0, 20).map(p => `${p.pid} ${p.exe || ''}`).join('\n');
		r.cpus.replaceChildren(bar('meter', 100 * Math.sqrt(s.cpus / (hostCpus || 1)), ''), h('span', { class: 'figure' }, s.cpus < 0.005 && s.cpus > 0 ? '<\u00a00.01' : s.cpus.toFixed(2)));
		const last = newest.get(s.name) || older.get(s.name);
		r.last.replaceChildren(last ? link('/p/' + last.id, last.status === 'running' ? h('span', { class: 'badge on' }, '● running') : ago(last.createdAt)) : '–', last ? ` ${last.profileType}` : '');
		const line = lines.get(s.name);
		if (r.shown !== line) { r.shown = line; r.line.replaceChildren(sparkline(line)); }
		const state = s.profileTypes.map(t => t.type + t.available).join();
		if (r.state !== state) { r.state = state; r.types.replaceChildren(typeBadge(s)); }
		return r.element;
	}

	function draw() {
		for (const th of headers) {
			const key = th.firstChild?.dataset?.sort;
			if (key) th.setAttribute('aria-sort', key === sort ? (key === 'name' ? 'ascending' : 'descending') : 'none');
		}
		const shown = items.filter(matches).sort(SORTS[sort]).map(row);
		if (shown.length !== body.children.length || shown.some((r, i) => body.children[i] !== r)) body.replaceChildren(...shown);
		head.say(summary(items, hostCpus, filter.value.trim()));
		empty.hidden = shown.length > 0;
		empty.textContent = items.length ? 'No service matches the filter.'
			: 'Nothing needs to be installed in a program: it appears here as soon as the agent has seen it. If this stays empty, the agent cannot see the host: the page Agent says why.';
	}
	filter.addEventListener('input', () => {
		history.replaceState(null, '', filter.value ? '#q=' + encodeURIComponent(filter.value) : location.pathname + location.search);
		draw();
	});
	if (location.hash.startsWith('#q')) filter.focus();
	poll(async () => {
		const [services, sessions, ready] = await Promise.all([get(A + '/services'), get(PROFILING + '/history', { limit: 100, top: 0 }), readiness()]);
		({ items, hostCpus } = services);
		amiss.hidden = !ready.reason;
		amiss.textContent = ready.reason ? visible(capital(ready.reason)) + '.' : '';
		newest.clear();
		for (const s of sessions.items) if (!newest.has(s.service)) newest.set(s.service, s);
		const hadFocus = document.activeElement;
		draw();
		if (hadFocus?.isConnected && document.activeElement !== hadFocus) hadFocus.focus();
	}, 10, e => trouble.show(e));
	poll(async () => {
		for (const s of (await get(A + '/services', { sparkline: 'cpu', points: 60, lastProfile: true })).items) {
			lines.set(s.name, s.sparkline);
			older.set(s.name, s.lastProfile); // what many services, or more than a day, lie behind
		}
		draw();
		const { cpu, up, lost } = agentCost(parseMetrics(await text('/metrics')));
		cost.replaceChildren(link('/status', 'profd itself'), ` used ${(cpu / Math.max(up, 1)).toFixed(4)} CPUs since it started; ${lost ? plural(lost, 'sample was', 'samples were') : 'nothing was'} lost.`);
	}, 60);
}
