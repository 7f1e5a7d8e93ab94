// SPDX-License-Identifier: Apache-2.0
// One service: what can be profiled, what was, and starting more.
import { h, isQuiet } from '../flame/dom.js';
import { Explorer } from '../flame/explorer.js';
import { capital, duration, percent, value } from '../flame/format.js';
import { shortName, visible } from '../flame/names.js';
import { qualityLine } from '../flame/quality.js';
import { noun, TYPES } from '../flame/words.js';
import { A, PROFILING, get, poll, sameTenant } from '../parts/api.js';
import { continuousSwitch } from '../parts/continuous.js';
import { exportMenu } from '../parts/exports.js';
import { framesSelect, groupSelect, UNGROUPED, valueSelect, wholeLink } from '../parts/group.js';
import { heatBox, historyHeat } from '../parts/heat.js';
import { linesOf } from '../parts/lines.js';
import { columnTitle } from '../parts/list.js';
import { ago, heading, link, notice, plural, redraw, servicePath } from '../parts/page.js';
import { startForm } from '../parts/start.js';
import { rateWords, timeline } from '../parts/timeline.js';

const SPANS = [['-1h', '1 h'], ['-6h', '6 h'], ['-24h', '24 h'], ['-7d', '7 d']];
const HOURS = { '-1h': 1, '-6h': 6, '-24h': 24, '-7d': 168 };
const STEP_MINUTES = { '-1h': 1, '-6h': 5, '-24h': 15, '-7d': 120 };
const HEAT_LEAST = 600e3; // minutes of a shorter time are no picture
const HOST = ['*', 'host'];
const address = () => new URLSearchParams(location.search);

/** The page's address with some parameters changed. */
function turned(changes) {
	const query = address();
	for (const [name, v] of Object.entries(changes)) if (v) query.set(name, v); else query.delete(name);
	const text = query.toString();
	return location.pathname + (text ? '?' + text : '');
}

/** The text with the parts between `backticks` as code. */
const withCode = text => text.split('`').map((part, i) => i % 2 ? h('code', {}, visible(part)) : visible(part));

/** A profile in one function: on the CPU the hottest function, else the program's own that waits or allocates most. */
function first(s) {
	const own = s.profileType === 'cpu' ? null : s.ownFunctions?.[0], top = s.topFunctions?.[0];
	return own ? { name: own.funcName, pct: own.pct, where: own.wait ? ` (${own.wait})` : '' } : top ? { name: top.funcName, pct: top.selfPct, where: ' itself' } : null;
}

function lead(name, service, type, sessions) {
	const newest = sessions.items.find(s => s.status !== 'failed' && s.topFunctions?.length);
	const now = HOST.includes(name) ? 'is the whole machine' : service ? `uses ${service.cpus.toFixed(2)} CPUs in ${plural(service.processes.length, 'process', 'processes')}` : 'does not run now';
	if (!newest) return `${name === '*' ? 'host' : visible(name)} ${now}. ${sessions.items.some(s => s.status === 'completed') ? `Nothing was recorded in its ${type} profiles of this time` : `No ${type} profile of it in this time yet`}.`;
	const top = first(newest);
	return `${name === '*' ? 'host' : visible(name)} ${now}; ${percent(top.pct, 100)} of its ${noun(type)} ${type === 'goroutine' ? 'were' : 'was'} in ${visible(shortName(top.name))}${visible(top.where)} when last profiled.`;
}

function sessionRow(s, chosen, changed) {
	const box = h('input', { type: 'checkbox', 'aria-label': `Choose ${s.id} for a comparison`, disabled: s.status !== 'completed' });
	box.checked = chosen.includes(s.id);
	box.addEventListener('change', () => changed(s.id, box.checked));
	const top = first(s);
	return h('tr', {}, h('td', { class: 'c' }, box), h('td', { class: 'c' }, link('/p/' + s.id, ago(s.startedAt || s.createdAt))),
		h('td', {}, h('span', { class: 'badge ' + (s.status === 'failed' ? 'bad' : s.status === 'running' ? 'on' : '') }, s.status + (s.continuous ? ', continuous' : ''))),
		h('td', { class: 'n wide' }, duration((s.durationNanos ?? s.durationSeconds * 1e9) / 1e9)), h('td', { class: 'n' }, s.status === 'failed' ? '' : value(s.totalValue, s.unit)),
		h('td', { class: 'n wide' }, s.sampleCount.toLocaleString('en')),
		h('td', {}, s.status === 'failed' ? visible(s.failureReason || '') : top ? `${visible(shortName(top.name))} ${percent(top.pct, 100)}` : '–'));
}

class ServicePage {
	constructor(content, name) {
		Object.assign(this, { name, type: address().get('type') || 'cpu', from: SPANS.some(([span]) => span === address().get('from')) ? address().get('from') : '-24h', chosen: [] });
		this.trouble = notice();
		this.head = heading(name, 'Asking the daemon…');
		this.facts = h('p', { class: 'facts' });
		this.tabs = h('nav', { class: 'tabs', 'aria-label': 'Profile types' });
		this.reason = h('div', {});
		this.form = h('div', {});
		this.continuous = h('div', {});
		this.timeline = h('div', {});
		this.heat = h('div', {});
		this.graph = h('div', { class: 'graph', hidden: true });
		this.history = h('div', {});
		this.processes = h('div', {});
		this.form.hidden = this.continuous.hidden = Boolean(this.window); // who looks at a time looks at its graph
		content.append(this.head.element, this.facts, this.trouble.element, this.tabs, this.reason, this.form, this.continuous, this.timeline, this.heat, this.graph, this.history, this.processes);
	}

	async refresh() {
		const [services, sessions] = await Promise.all([get(A + '/services'),
			get(PROFILING + '/history', { service: this.name, profileType: this.type, from: this.from, limit: 100, top: 1, aggregate: STEP_MINUTES[this.from] + 'm' })]);
		const service = services.items.find(s => s.name === this.name);
		this.head.say(lead(this.name, service, this.type, sessions));
		this.drawFacts(service);
		this.drawTypes(service);
		this.drawTimeline(sessions);
		this.drawHistory(sessions);
		this.drawProcesses(service);
		await this.drawWindow(sessions);
	}

	drawFacts(service) {
		if (!service) return;
		this.facts.textContent = [`named by ${service.source}${service.inferred ? ' (inferred)' : ''}`, service.runtime, service.systemdUnit, service.containerId].filter(Boolean).map(visible).join(' · ');
	}

	drawTypes(service) {
		const types = service?.profileTypes || TYPES.map(type => ({ type, available: true }));
		const state = JSON.stringify(types);
		if (state === this.typesDrawn) return;
		this.typesDrawn = state;
		this.tabs.replaceChildren(...types.map(t => h('a', { href: turned({ type: t.type === 'cpu' ? null : t.type, value: null, groupBy: null }), 'aria-current': t.type === this.type ? 'page' : null,
			'aria-disabled': t.available ? null : 'true', title: t.available ? capital(noun(t.type)) : visible(t.reason || '') }, t.type)));
		const mine = types.find(t => t.type === this.type);
		this.reason.replaceChildren(mine && !mine.available ? h('div', { class: 'note warn' }, h('p', {}, `${this.type} cannot be taken of this service now: ${visible(mine.reason || 'no reason was given')}`))
			: mine?.hint ? h('div', { class: 'note' }, h('p', {}, withCode(capital(mine.hint)))) : '');
		this.form.replaceChildren(startForm(this.name, types, this.type, this.trouble));
		if (!this.continuous.firstChild) continuousSwitch(this.name, types, this.trouble).then(box => this.continuous.replaceChildren(box), e => this.trouble.show(e));
	}

	/** The window that the address names: [from, to] in ms, or null. */
	get window() {
		const from = Date.parse(address().get('start')), to = Date.parse(address().get('end'));
		return from < to ? [from, to] : null;
	}

	/** The window kept as base of a comparison, as the address says it, or null. */
	get base() {
		const [from, to] = ['base', 'baseEnd'].map(name => address().get(name));
		return Date.parse(from) < Date.parse(to) ? [from, to] : null;
	}

	/** The whole time asked for; left alone while nothing new came or somebody is at it, so that a drag is not cut off. */
	drawTimeline(sessions) {
		const points = sessions.points || [], state = JSON.stringify(points);
		if (state === this.pointsDrawn || this.timeline.matches(':hover') || this.timeline.querySelector('details[open]')) return;
		this.pointsDrawn = state;
		if (!points.some(p => p.valuePerSecond)) return this.timeline.replaceChildren();
		const shown = [Date.now() - HOURS[this.from] * 3600e3, Date.now()], unit = sessions.items[0]?.unit || 'nanoseconds';
		const chosen = (from, to) => location.assign(turned({ start: new Date(from).toISOString(), end: new Date(to).toISOString() }) + location.hash);
		this.timeline.replaceChildren(timeline(points, STEP_MINUTES[this.from] * 60e3, shown, unit, this.type, this.window, chosen));
		if (!this.heat.firstChild) this.heat.append(historyHeat({ service: this.name, profileType: this.type }, this.window?.[1] - this.window?.[0] >= HEAT_LEAST ? this.window : shown, v => rateWords(v, unit, this.type), chosen));
		if (this.base) this.timeline.prepend(h('div', { class: 'note' }, `Kept as base: ${this.base.map(t => new Date(t).toLocaleString()).join(' to ')}. Choose the time to compare with it. `, link(turned({ base: null, baseEnd: null }), 'Forget it')));
	}

	/** Everything of the chosen window merged; read once. */
	async drawWindow(sessions) {
		if (!this.window || this.explorer) return;
		const [start, end] = this.window.map(ms => new Date(ms).toISOString()), asked = { service: this.name, profileType: this.type, start, end };
		const group = address().get('groupBy'), which = address().get('value'), whole = address().get('maxNodes'), frames = address().get('frames');
		const view = { ...group && group !== UNGROUPED && { groupBy: group }, ...which && { value: which }, ...whole && { maxNodes: whole }, ...frames && { frames } };
		if (!this.windowHead) {
			this.words = h('p', { class: 'lead' });
			this.windowHead = h('div', {}, this.windowButtons(start, end), this.words);
			this.heat.after(this.windowHead);
		}
		const path = PROFILING + '/window/flamegraph';
		let doc;
		try { doc = await get(path, { ...asked, ...view, format: 'flame' }); } catch (e) { if (e.status !== 404) throw e; return this.drawNothing(sessions, e); }
		const inside = sessions.items.find(s => s.status === 'completed' && s.startedAt && Date.parse(s.startedAt) < this.window[1] && Date.parse(s.completedAt) > this.window[0]);
		this.graph.hidden = false;
		this.windowHead.append(qualityLine(doc.quality), inside ? heatBox(inside, '/p/' + inside.id) : '');
		const source = () => path + '?' + new URLSearchParams({ ...asked, ...view });
		this.explorer = new Explorer(this.graph, { sentence: text => { this.words.textContent = text; }, tools: [groupSelect(group === UNGROUPED ? '' : group), valueSelect(this.type, which), framesSelect(doc, frames), exportMenu(source), wholeLink(doc)], lines: linesOf(source),
			share: async () => {
				const merged = await get(PROFILING + '/history', { service: this.name, profileType: this.type, from: start, to: end, merge: true, limit: 1, top: 0 });
				const to = new URL(merged.flameGraphUrl, location.href);
				for (const [name, v] of Object.entries(view)) to.searchParams.append(name, v);
				return to.href;
			}, keys: [['[ ]', 'the time before, after, of the same length'], ['x', 'keep this time as base of a comparison']] });
		this.explorer.setData(doc);
	}

	windowButtons(start, end) {
		return h('div', { class: 'row' }, h('b', {}, `${new Date(start).toLocaleString()} to ${new Date(end).toLocaleString()}`),
			link(this.beside(-1), 'Earlier', { class: 'button', title: 'The time before, of the same length ([)' }), link(this.beside(1), 'Later', { class: 'button', title: 'The time after, of the same length (])' }),
			link(turned({ start: null, end: null }), 'Close', { class: 'button' }),
			this.base ? link('/compare?' + new URLSearchParams({ service: this.name, profileType: this.type, baseFrom: this.base[0], baseTo: this.base[1], comparisonFrom: start, comparisonTo: end }), 'Compare with the time kept', { class: 'button primary' }) : '',
			link(turned({ start: null, end: null, base: start, baseEnd: end }), 'Keep as base of a comparison', { class: 'button', title: 'x' }));
	}

	/** A time without data leads on to the nearest times that have some. */
	drawNothing(sessions, e) {
		const [from, to] = this.window, known = (sessions.points || []).filter(p => p.valuePerSecond);
		const there = (p, text) => p ? link(turned({ start: p.from, end: p.to }), `${text}, ${new Date(p.from).toLocaleString()}`, { class: 'button' }) : '';
		redraw(this.words, visible(capital(e.message)) + ' ', there(known.filter(p => Date.parse(p.to) <= from).at(-1), 'The nearest before'), ' ', there(known.find(p => Date.parse(p.from) >= to), 'The nearest after'));
	}

	/** The address of the window before (-1) or after (1), of the same length, looked at in the same way. */
	beside(step) {
		const [from, to] = this.window, shift = step * (to - from);
		return turned({ start: new Date(from + shift).toISOString(), end: new Date(to + shift).toISOString() });
	}

	/** [ and ] walk in time, x keeps the time as base. */
	key(e) {
		if (!this.window || isQuiet(e) || e.ctrlKey || e.metaKey || e.altKey || ['INPUT', 'SELECT', 'TEXTAREA'].includes(e.target.tagName)) return;
		const [start, end] = this.window.map(ms => new Date(ms).toISOString());
		const to = { '[': () => this.beside(-1) + location.hash, ']': () => this.beside(1) + location.hash, x: () => turned({ start: null, end: null, base: start, baseEnd: end }) }[e.key];
		if (to) location.assign(to());
	}

	drawHistory(sessions) {
		const spans = h('span', { class: 'group', role: 'group', 'aria-label': 'Time' }, SPANS.map(([from, text]) =>
			h('a', { class: 'button', href: turned({ from: from === '-24h' ? null : from }), 'aria-current': from === this.from ? 'true' : null }, text)));
		const compare = h('button', { type: 'button', disabled: this.chosen.length !== 2, onclick: () => this.compare(sessions) }, 'Compare the two chosen');
		const changed = (id, on) => {
			this.chosen = on ? [...this.chosen, id].slice(-2) : this.chosen.filter(c => c !== id);
			this.drawHistory(sessions);
		};
		redraw(this.history, h('h2', {}, `${this.type} profiles`), h('div', { class: 'row' }, spans, compare),
			sessions.items.length ? h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', {}, h('tr', {}, ['(Choose)', 'Taken', 'State', 'Duration', 'Total', 'Samples', 'Hottest function']
				.map((t, i) => h('th', { scope: 'col', class: i === 3 || i === 5 ? 'n wide' : i === 4 ? 'n' : i < 2 ? 'c' : null }, columnTitle(t))))), h('tbody', {}, sessions.items.map(s => sessionRow(s, this.chosen, changed)))))
				: h('div', { class: 'note' }, `No ${this.type} profile of ${visible(this.name)} in this time. Start one above, or choose a longer time.`),
			sessions.total > sessions.items.length ? h('p', { class: 'facts' }, `The newest ${sessions.items.length} of ${sessions.total}.`) : '');
	}

	/** The older one is the base. */
	compare(sessions) {
		const [base, cmp] = sessions.items.filter(s => this.chosen.includes(s.id)).sort((a, b) => a.createdAt.localeCompare(b.createdAt));
		location.assign(sameTenant(`/compare?base=${base.id}&cmp=${cmp.id}`));
	}

	drawProcesses(service) {
		if (!service) return this.processes.replaceChildren();
		redraw(this.processes, h('details', {}, h('summary', {}, plural(service.processes.length, 'process', 'processes')),
			h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', {}, h('tr', {}, ['Pid', 'Program', 'Runtime', 'Started'].map(t => h('th', { scope: 'col' }, t)))),
				h('tbody', {}, service.processes.slice(0, 500).map(p => h('tr', {}, h('td', {}, String(p.pid)), h('td', {}, visible(p.exe || '')), h('td', {}, p.runtime || ''), h('td', {}, ago(p.startedAt)))))))));
	}
}

export async function show(content, name) {
	const page = new ServicePage(content, name);
	document.addEventListener('keydown', e => page.key(e));
	poll(() => page.refresh(), 10, e => page.trouble.show(e));
}
