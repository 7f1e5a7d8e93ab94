// SPDX-License-Identifier: Apache-2.0
// One session: its state while it runs, then what it found.
import { h, say } from '../flame/dom.js';
import { Explorer } from '../flame/explorer.js';
import { duration, percent, value } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { qualityLine } from '../flame/quality.js';
import { noun } from '../flame/words.js';
import { B, PROFILING, get, poll, post, remove, sameTenant } from '../parts/api.js';
import { exportMenu } from '../parts/exports.js';
import { framesSelect, groupSelect, UNGROUPED, valueSelect, wholeLink } from '../parts/group.js';
import { heatBox } from '../parts/heat.js';
import { linesOf } from '../parts/lines.js';
import { list } from '../parts/list.js';
import { heapFacts, intervalTable, leakTable } from '../parts/memory.js';
import { action, ago, bar, errorWords, heading, link, notice, plural, redraw, servicePath } from '../parts/page.js';
import { requestOf, startProfile } from '../parts/start.js';

const GRAPH_SAMPLES = 200; // a graph of fewer misleads while the session still runs
const HOST = ['*', 'host'];
const QUERY = ['groupBy', 'where', 'from', 'to', 'value', 'maxNodes', 'frames', 'tenant'];

/** The parameters of the page's address that choose data, for the API. */
function dataQuery(extra) {
	const given = new URLSearchParams(location.search), query = new URLSearchParams(extra);
	for (const name of QUERY) for (const v of given.getAll(name)) if (v !== UNGROUPED) query.append(name, v);
	return '?' + query;
}

/** How the graph is grouped: as the address says, else a whole host by process, whose stacks all begin alike. */
function groupOf(s) {
	const asked = new URLSearchParams(location.search).get('groupBy');
	return asked === UNGROUPED ? '' : asked ?? (s.target === '*' || HOST.includes(s.service) ? 'process' : '');
}

function facts(s) {
	const rate = s.unit === 'count' || s.profileType === 'memory' ? '' : ` · requested rate ${s.sampleRate}\u00a0Hz`;
	return h('p', { class: 'facts' }, link(servicePath(s.service, '?type=' + s.profileType), visible(s.service)), ` · ${s.profileType} · ${duration((s.durationNanos ?? s.durationSeconds * 1e9) / 1e9)}${rate} · `,
		ago(s.startedAt || s.createdAt), s.host ? ` · on ${visible(s.host)}` : '', s.continuous ? ' · continuous' : '', s.stoppedEarly ? ' · stopped early' : '',
		Object.entries(s.labels || {}).map(([k, v]) => h('span', { class: 'badge' }, `${visible(k)}=${visible(v)}`)), ` · ${s.id}`);
}

const STATES = [['blocked', 'blocked'], ['runqueue', 'on the run queue'], ['preempted', 'preempted']];

/** Where time off the CPU went: its three states, and what most of the blocked time waited for. */
function stateSplit(s) {
	const states = s.breakdown?.state || {}, off = s.unit === 'nanoseconds' && STATES.reduce((sum, [state]) => sum + (states[state] || 0), 0);
	if (!['offcpu', 'wall'].includes(s.profileType) || !off) return '';
	const waits = Object.entries(s.breakdown.wait || {}).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([wait, v]) => `${visible(wait)} ${percent(v, s.totalValue)}`).join(', ');
	const parts = STATES.filter(([state]) => states[state]).map(([state, text]) => `${percent(states[state], s.totalValue)} ${text}` + (state === 'blocked' && waits ? ` (${waits})` : ''));
	return h('p', { class: 'facts' }, (s.totalValue > off ? [`${percent(s.totalValue - off, s.totalValue)} on a CPU`, ...parts] : parts).join(' · '));
}

/** Share of each process, and a link to look at one of them alone. */
function processSplit(s) {
	const rows = (s.processes || []).filter(p => p.value).sort((a, b) => b.value - a.value);
	if (rows.length < 2) return null;
	const to = p => { const u = new URL(location.href); u.searchParams.set('where', 'pid:' + p.pid); return u.pathname + u.search; };
	return h('details', { class: 'no-print' }, h('summary', {}, `${plural(rows.length, 'process', 'processes')}; the largest has ${percent(rows[0].value, s.totalValue)}`),
		h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', {}, h('tr', {}, ['Process', 'Program', 'Share', 'Value'].map((t, i) => h('th', { scope: 'col', class: i > 1 ? 'n' : null }, t)))),
			h('tbody', {}, rows.slice(0, 100).map(p => h('tr', {}, h('td', { class: 'n c' }, link(to(p), String(p.pid))), h('td', {}, visible(p.exe || '')),
				h('td', { class: 'n' }, bar('meter', 100 * p.value / s.totalValue, ''), percent(p.value, s.totalValue)), h('td', { class: 'n' }, value(p.value, s.unit))))))));
}

function partialTop(s) {
	const rows = (s.topFunctions || []).slice(0, 5);
	if (!rows.length) return null;
	return h('div', { class: 'scroll' }, h('table', { class: 'list', 'aria-label': 'Top functions so far' },
		h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Top functions so far (partial)'), h('th', { scope: 'col', class: 'n' }, 'Self'), h('th', { scope: 'col', class: 'n' }, 'Total'))),
		h('tbody', {}, rows.map(f => h('tr', {}, h('td', { title: visible(f.funcName) }, visible(shortName(f.funcName))), h('td', { class: 'n' }, percent(f.selfPct, 100)), h('td', { class: 'n' }, percent(f.cumulativePct, 100)))))));
}

/** The program's own functions, where they say more than the innermost frames: on the CPU these are the hottest. Not of a part. */
function ownFunctions(s) {
	const part = ['where', 'from', 'to', 'groupBy'].some(name => new URLSearchParams(location.search).has(name));
	return part || s.profileType === 'cpu' ? [] : s.ownFunctions || [];
}

/** The ways in which a function is called, if there are several. */
const waysOf = f => f.callers?.length > 1 ? f.callers : [];

/** The caller that tells the largest way from the others. */
function differs([first, ...others]) {
	const at = first.path.findIndex((name, i) => others.some(way => way.path[i] !== name));
	return `${visible(shortName(first.path[Math.max(at, 0)]))} (${percent(first.pct, 100)})`;
}

function ownTable(s) {
	const rows = ownFunctions(s).filter(f => f.pct >= 0.1).slice(0, 20), waits = rows.some(f => f.wait);
	if (!rows.length) return '';
	const ways = waysOf(rows[0]), mostly = f => f.wait || (f.state === 'runqueue' ? 'run queue' : f.state || '');
	const row = (name, title, file, f, kind) => [h('span', { title: visible(title) }, name), visible(file), percent(f.pct, 100), value(f.value, s.unit), ...waits ? [visible(kind)] : []];
	const way = w => row('\u2003by ' + w.path.map(name => visible(shortName(name))).join(' < '), w.path.join(' < '), '', w, '');
	return h('details', { class: 'no-print' }, h('summary', {}, `By the program's own functions: most in ${visible(shortName(rows[0].funcName))}, ${percent(rows[0].pct, 100)}`, ways.length ? `; of it most called by ${differs(ways)}` : ''),
		list('Own functions', [['Function', ''], ['File', 'wide'], ['Share', 'n'], ['Value', 'n'], ...waits ? [['Mostly', '']] : []],
			rows.flatMap(f => [row(visible(shortName(f.funcName)), f.funcName, f.file ? `${f.file.slice(f.file.lastIndexOf('/') + 1)}:${f.line}` : f.package, f, mostly(f)), ...waysOf(f).map(way)])));
}

/** Where each thread's time went, of a wall session. */
function ledgerTable(threads) {
	const waits = t => Object.entries(t.blockedNs).sort((a, b) => b[1] - a[1]).slice(0, 4).map(([k, v]) => `${k} ${percent(v, t.elapsedNs)}`).join(', ');
	const rows = [...threads].sort((a, b) => b.userNs + b.kernelNs - a.userNs - a.kernelNs).slice(0, 200);
	return list('Threads', [['Thread', ''], ['Pid', 'n wide'], ['User', 'n'], ['Kernel', 'n'], ['Run queue', 'n'], ['Preempted', 'n wide'], ['of it stolen', 'n wide'], ['Blocked', 'n'], ['in', 'wide']],
		rows.map(t => [`${visible(t.thread)} (${t.tid})`, String(t.pid), ...[t.userNs, t.kernelNs, t.runqueueNs, t.preemptedNs, t.stolenNs, Object.values(t.blockedNs).reduce((a, b) => a + b, 0)].map(v => percent(v, t.elapsedNs)), waits(t)]));
}

/** The next step after an empty profile, by type. */
const EMPTY = {
	cpu: 'Profile it while it works, for longer, or look at another type: a program that only waits shows in offcpu.',
	memory: 'What was allocated before, and memory that the program maps itself, is not seen. Profile it while it works, for longer.',
	mutex: 'No thread waited for a futex, as locks of C, C++ and Rust do. Other locks show in block and offcpu.',
};

class ProfilePage {
	constructor(content, id) {
		Object.assign(this, { content, id, drawnTotal: -1 });
		this.trouble = notice();
		this.head = heading('Profile', 'Asking the daemon…');
		this.facts = h('div', {});
		this.state = h('div', {});
		this.buttons = h('div', { class: 'row no-print' });
		this.split = h('div', {});
		this.graph = h('div', { class: 'graph', hidden: true });
		content.append(this.head.element, this.facts, this.trouble.element, this.state, this.buttons, this.split, this.graph);
	}

	async refresh() {
		const s = this.session = await this.read();
		this.head.head.textContent = `${visible(s.service)} · ${s.profileType}`;
		document.title = `${visible(s.service)} ${s.profileType} · profd`;
		redraw(this.facts, facts(s), stateSplit(s), heapFacts(s), qualityLine(s.quality));
		if (s.status === 'running') await this.showRunning(s);
		else await this.showEnd(s);
		return s.status === 'running';
	}

	/** The profile by the value that is looked at; one of input and output that nothing waited for has only bytes. */
	async read() {
		const ask = value => get(`${PROFILING}/${encodeURIComponent(this.id)}`, { value }), asked = new URLSearchParams(location.search).get('value');
		const s = await ask(asked || this.value);
		if (asked || this.value || s.profileType !== 'io' || s.totalValue || !s.sampleCount || s.status !== 'completed') return s;
		this.value = 'bytes';
		return ask(this.value);
	}

	async showRunning(s) {
		const done = s.startedAt ? (s.durationNanos ?? s.durationSeconds * 1e9) / 1e9 : 0, all = s.requestedDurationSeconds || 1;
		this.head.say(s.startedAt ? `Running: ${duration(Math.max(0, Math.ceil(all - done)))} left, ${plural(s.sampleCount, 'sample')} so far.` : `Waiting for the first process of ${visible(s.service)}.`);
		const outer = h('div', { class: 'progress', role: 'progressbar', 'aria-valuemin': '0', 'aria-valuemax': '100', 'aria-valuenow': String(Math.round(100 * Math.min(1, done / all))), 'aria-label': 'Time of the profile' });
		outer.append(bar('', 100 * done / all, '').firstChild);
		this.state.replaceChildren(outer, this.graph.hidden ? partialTop(s) || '' : '');
		if (!this.stop && s.continuous) { // the call that stops a session would delete what is there
			this.stop = h('p', { class: 'facts' }, 'The running span of continuous profiling: it ends by itself and is followed by the next. To end the recording and keep what there is, switch it off ',
				link(servicePath(s.service), 'on the page of the service'), ', or of all services if it is on for all.');
			this.buttons.replaceChildren(this.stop);
		} else if (!this.stop) {
			this.stop = action('Stop and keep', async () => {
				const address = `${PROFILING}/${encodeURIComponent(this.id)}`; // it may have ended since it was last looked at, and then the call would delete it
				if ((await get(address, { top: 0 })).status === 'running') await remove(address);
				this.polling.now();
			}, this.trouble);
			this.buttons.replaceChildren(this.stop);
		}
		if (s.sampleCount >= GRAPH_SAMPLES && s.totalValue > this.drawnTotal * 1.25) await this.draw(s, true);
	}

	async showEnd(s) {
		this.buttons.replaceChildren(this.again(s), ...(s.status === 'completed' ? [this.compareButton(s), ...this.baselineButton(s)] : []), this.removeButton());
		const main = !this.value && !new URLSearchParams(location.search).has('value'); // the sums by process and over time are of the type's main value
		if (s.status === 'failed') {
			this.head.say('This profile failed.');
			this.state.replaceChildren(h('div', { class: 'note bad' }, h('p', {}, visible(s.failureReason || 'No reason was recorded.'))));
			this.graph.hidden = true;
			return;
		}
		const query = new URLSearchParams(location.search), only = query.getAll('where');
		if (query.get('from')) only.push(`${query.get('from')} to ${query.get('to') || 'the end'}`);
		for (const name of ['where', 'from', 'to']) query.delete(name);
		const all = location.pathname + (String(query) && `?${query}`);
		this.state.replaceChildren(only.length ? h('div', { class: 'note' }, `Only ${only.map(visible).join(' and ')}. `, link(all, 'Show all')) : '');
		if (!s.totalValue) return this.showNothing(s);
		if (s.profileType === 'goroutine') this.buttons.prepend(link('/g/' + s.id, 'States and waits', { class: 'button' }));
		if (!this.extras) {
			this.extras = true;
			if (main) this.split.append(ownTable(s), processSplit(s) || '', leakTable(s), intervalTable(s), heatBox(s, location.href));
			if (s.profileType === 'wall') this.showLedger();
		}
		await this.draw(s, false);
		say(this.head.sentence.textContent);
	}

	/** An empty profile: the sentence says what it means, the note what to look at next, and what the daemon noted. */
	showNothing(s) {
		const notes = s.quality?.notes || [], probes = s.quality?.mode; // probes on the allocator, which know nothing of what was before them
		this.head.say(probes ? `Nothing was seen: no block that ${visible(s.service)} asked an allocator for${s.profileType === 'memory' ? ' is still in use' : ''}.`
			: `Nothing was recorded: ${visible(s.service)} used no ${noun(s.profileType)} in this time, or its samples were lost.`);
		this.state.append(h('div', { class: 'note' }, h('p', {}, EMPTY[probes ? 'memory' : s.profileType] || EMPTY.cpu), notes.length ? h('ul', {}, notes.map(n => h('li', {}, visible(n)))) : ''));
	}

	showLedger() {
		const holder = h('div', {}), box = h('details', { class: 'no-print' }, h('summary', {}, 'Threads: where the time went'), holder);
		box.addEventListener('toggle', async () => {
			if (!box.open || holder.firstChild) return;
			try { holder.replaceChildren(ledgerTable((await get(`${PROFILING}/${encodeURIComponent(this.id)}/ledger`)).threads)); } catch (e) { holder.replaceChildren(h('p', { class: 'facts' }, errorWords(e))); }
		});
		this.split.append(box);
	}

	/** Keeps this profile as a baseline, with a label that people give. */
	baselineButton(s) {
		const label = h('input', { required: true, maxlength: '128', placeholder: 'such as v1.4', 'aria-label': 'Label of the baseline' }), box = h('dialog', { 'aria-label': 'Keep as baseline' });
		const form = h('form', { class: 'fields', method: 'dialog' }, h('label', {}, 'Label of the baseline', label), h('button', { class: 'primary', value: 'keep' }, 'Keep'), h('button', { value: '', formnovalidate: true }, 'Cancel'));
		box.append(form);
		box.addEventListener('close', async () => {
			if (box.returnValue !== 'keep' || !label.value.trim()) return;
			try {
				const made = await post(B + '/baselines', { label: label.value.trim(), sessionId: s.id, profileType: s.profileType });
				location.assign(sameTenant('/baselines#' + made.baselineId));
			} catch (e) { this.trouble.show(e); }
		});
		return [h('button', { type: 'button', onclick: () => { box.returnValue = ''; box.showModal(); } }, 'Keep as baseline'), box];
	}

	/** Against the newest earlier profile of the same service and type. */
	compareButton(s) {
		return action('Compare with the previous profile', async () => {
			const all = await get(PROFILING + '/history', { service: s.service, profileType: s.profileType, status: 'completed', from: '-7d', to: s.createdAt, limit: 2, top: 0 });
			const before = all.items.find(o => o.id !== s.id);
			if (!before) return this.trouble.show(`There is no earlier ${s.profileType} profile of ${visible(s.service)} in the last 7 days.`);
			location.assign(sameTenant(`/compare?base=${before.id}&cmp=${s.id}`));
		}, this.trouble);
	}

	again(s) {
		return action(s.status === 'failed' ? 'Try again' : 'Profile again', () => startProfile(requestOf(s)), this.trouble);
	}

	removeButton() {
		return action('Delete', async () => {
			if (!confirm('Delete this profile? It cannot be brought back.')) return;
			await remove(`${PROFILING}/${this.id}`);
			location.assign(sameTenant(servicePath(this.session.service)));
		}, this.trouble, { class: 'danger' });
	}

	async draw(s, partial) {
		const address = `${PROFILING}/${encodeURIComponent(this.id)}/flamegraph`;
		const group = groupOf(s), asked = new URLSearchParams(location.search), own = { ...group && !asked.has('groupBy') && { groupBy: group }, ...this.value && { value: this.value } };
		const grouped = extra => dataQuery({ ...extra, ...own });
		const doc = await get(address + grouped({ format: 'flame' }));
		this.drawnTotal = s.totalValue;
		this.graph.hidden = false;
		this.explorer ??= new Explorer(this.graph, { tools: [groupSelect(group, Object.keys(s.breakdown || {})), valueSelect(s.profileType, asked.get('value') || this.value), framesSelect(doc, asked.get('frames')), exportMenu(() => address + grouped()), wholeLink(doc)], lines: linesOf(() => address + grouped()),
			own: () => ownFunctions(this.session)[0],
			sentence: text => { if (this.session.status !== 'running') this.head.say(text); },
			share: async () => {
				if (!this.session.flameGraphUrl) throw new Error('only a finished profile can be shared');
				const to = new URL(this.session.flameGraphUrl, location.href);
				for (const [name, v] of new URLSearchParams(grouped())) if (name !== 'tenant') to.searchParams.append(name, v);
				return to.href;
			} });
		this.explorer.setData(doc);
		if (!partial) this.graph.dataset.final = 'true';
	}
}

export async function show(content, id) {
	const page = new ProfilePage(content, id);
	page.polling = poll(() => page.refresh(), 1, e => {
		page.trouble.show(e);
		if (e?.status === 404) page.head.say('There is no such profile, or it was deleted.');
	});
}
