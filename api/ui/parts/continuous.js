// SPDX-License-Identifier: Apache-2.0
// Continuous profiling of one service: on, off, how.
import { h } from '../flame/dom.js';
import { value } from '../flame/format.js';
import { visible } from '../flame/names.js';
import { PROFILING, get, post } from './api.js';
import { ago, plural } from './page.js';

const DEFAULT = { profileTypes: ['cpu'], sampleRate: 19, retentionDays: 7, enabled: false };

/** @param types [{type, available}] */
export async function continuousSwitch(service, types, trouble) {
	const path = `${PROFILING}/continuous`, turn = h('button', { type: 'button' }), box = h('details', {}), body = h('div', {}), title = h('summary', {});
	const known = name => get(`${path}/${encodeURIComponent(name)}`).catch(e => { if (e.status !== 404) throw e; return null; });
	let now = await known(service);
	const all = now ? null : await known('*'); // what counts for a service without its own
	now ??= DEFAULT;
	async function save(settings) {
		trouble.show(null);
		try {
			now = await post(path, { service, ...settings });
			draw();
		} catch (e) { trouble.show(e); }
	}
	function draw() {
		turn.textContent = `Switch continuous profiling ${now.enabled ? 'off' : 'on'}`;
		const how = c => `${c.profileTypes.join(', ')} at ${c.sampleRate} Hz, kept ${plural(c.retentionDays, 'day')}`;
		title.textContent = now.enabled ? `Continuous profiling is on: ${how(now)}` : all?.enabled ? `Continuous profiling is on for all services: ${how(all)}` : 'Continuous profiling is off';
		const on = h('input', { type: 'checkbox', checked: now.enabled }), number = (v, min, max) => h('input', { type: 'number', value: String(v), min: String(min), max: String(max), required: true });
		const rate = number(now.sampleRate, 1, 1000), days = number(now.retentionDays, 1, 3650);
		const against = h('input', { value: now.watch?.against || '', placeholder: 'nothing', list: 'watch-against', spellcheck: 'false', autocomplete: 'off' });
		const chosen = types.map(t => [t.type, h('input', { type: 'checkbox', checked: now.profileTypes.includes(t.type) })]);
		const form = h('form', { class: 'fields', 'aria-label': 'Continuous profiling' }, h('label', { class: 'check' }, on, 'On'), chosen.map(([type, input]) => h('label', { class: 'check' }, input, type)),
			h('label', {}, 'Samples per second', rate), h('label', {}, 'Keep days', days), h('label', {}, 'Compare each hour with (a baseline\u2019s id, previous-version, history)', against),
			h('datalist', { id: 'watch-against' }, ['history', 'previous-version'].map(value => h('option', { value }))), h('button', { class: 'primary' }, 'Save'));
		form.addEventListener('submit', e => {
			e.preventDefault();
			save({ enabled: on.checked, profileTypes: chosen.filter(c => c[1].checked).map(c => c[0]), sampleRate: Number(rate.value), retentionDays: Number(days.value),
				...(against.value.trim() ? { watch: { ...now.watch, against: against.value.trim() } } : {}) });
		});
		const s = now.status;
		body.replaceChildren(form, s ? h('p', { class: 'facts' }, s.activeSince ? ['Since ', ago(s.activeSince), ' · '] : '', `${plural(s.sessions, 'span')}, ${value(s.bytes, 'bytes')}`, s.overheadPct === null || s.overheadPct === undefined ? '' : ` · profiler overhead ${s.overheadPct.toFixed(2)}\u00a0% of the host`, s.refusal ? ` · not taken: ${visible(s.refusal)}` : '') : '');
	}
	turn.addEventListener('click', () => {
		const { profileTypes, sampleRate, retentionDays, enabled, watch } = now;
		save({ profileTypes, sampleRate, retentionDays, enabled: !enabled, ...(watch ? { watch } : {}) });
	});
	draw();
	box.append(title, body);
	return h('div', { class: 'row' }, turn, box);
}
