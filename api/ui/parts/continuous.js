// SPDX-License-Identifier: Apache-2.0
// Continuous profiling of one service: on, off, how.
import { h } from '../flame/dom.js';
import { value } from '../flame/format.js';
import { PROFILING, get, post } from './api.js';
import { ago } from './page.js';

const DEFAULT = { profileTypes: ['cpu'], sampleRate: 19, retentionDays: 7, enabled: false };

/** @param types [{type, available}] */
export async function continuousSwitch(service, types, trouble) {
	const path = `${PROFILING}/continuous`, box = h('details', {}), body = h('div', {}), title = h('summary', {});
	let now = DEFAULT;
	try { now = await get(`${path}/${encodeURIComponent(service)}`); } catch (e) { if (e.status !== 404) throw e; }
	function draw() {
		title.textContent = now.enabled ? `Continuous profiling is on: ${now.profileTypes.join(', ')} at ${now.sampleRate} Hz, kept ${now.retentionDays} days` : 'Continuous profiling is off';
		const on = h('input', { type: 'checkbox', checked: now.enabled }), number = (v, min, max) => h('input', { type: 'number', value: String(v), min: String(min), max: String(max), required: true });
		const rate = number(now.sampleRate, 1, 1000), days = number(now.retentionDays, 1, 3650);
		const chosen = types.map(t => [t.type, h('input', { type: 'checkbox', checked: now.profileTypes.includes(t.type) })]);
		const form = h('form', { class: 'fields', 'aria-label': 'Continuous profiling' }, h('label', { class: 'check' }, on, 'On'), chosen.map(([type, input]) => h('label', { class: 'check' }, input, type)),
			h('label', {}, 'Samples per second', rate), h('label', {}, 'Keep days', days), h('button', { class: 'primary' }, 'Save'));
		form.addEventListener('submit', async e => {
			e.preventDefault();
			trouble.show(null);
			try {
				now = await post(path, { service, enabled: on.checked, profileTypes: chosen.filter(c => c[1].checked).map(c => c[0]), sampleRate: Number(rate.value), retentionDays: Number(days.value) });
				draw();
			} catch (error) { trouble.show(error); }
		});
		const s = now.status;
		body.replaceChildren(form, s ? h('p', { class: 'facts' }, s.activeSince ? ['Since ', ago(s.activeSince), ' · '] : '', `${s.sessions} spans, ${value(s.bytes, 'bytes')}`, s.overheadPct === null || s.overheadPct === undefined ? '' : ` · costs ${s.overheadPct.toFixed(2)}\u00a0% of the host`) : '');
	}
	draw();
	box.append(title, body);
	return box;
}
