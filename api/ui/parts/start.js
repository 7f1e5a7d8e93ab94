// SPDX-License-Identifier: Apache-2.0
// Starting a profile, from one button or from the form.
import { h } from '../flame/dom.js';
import { LEVELS } from '../flame/format.js';
import { PROFILING, post, sameTenant } from './api.js';
import { action } from './page.js';

/** Starts a session and goes to its page. One that runs already is opened instead. */
export async function startProfile(request) {
	try {
		const session = await post(PROFILING + '/start', request);
		location.assign(sameTenant('/p/' + session.id));
	} catch (e) {
		if (e.code !== 'AlreadyRunning' || !e.details.profileId) throw e;
		location.assign(sameTenant('/p/' + e.details.profileId));
	}
}

/** The request that repeats a session. Its target names a service with a prefix, and a process with its start. */
export function requestOf(s) {
	const target = s.target || s.service, pid = /^(pid:\d+)@\d+(\+children)?$/.exec(target);
	const request = { service: pid ? pid[1] : target.replace(/^service:/, ''), profileType: s.profileType, durationSeconds: s.requestedDurationSeconds || 30 };
	if (s.unit !== 'count' && s.profileType !== 'memory' && s.sampleRate) request.sampleRate = s.sampleRate;
	for (const option of s.options || []) request[option] = true;
	if (pid?.[2]) request.children = true;
	return request;
}

export const startButton = (service, trouble, text = 'Profile 30\u00a0s') =>
	action(text, () => startProfile({ service, profileType: 'cpu', durationSeconds: 30 }), trouble, { 'aria-label': `${text}: ${service}` });

const OPTIONS = { wakers: 'with wakers', kernelLocks: 'with locks of the kernel', paths: 'by file and peer', tasks: 'with asyncio tasks', children: 'with child processes' };

/** Type, duration, rate, the options of the chosen type, and start. types: [{type, available, reason, options}] */
export function startForm(service, types, chosen, trouble) {
	const type = h('select', { name: 'type' }, types.map(t => h('option', { value: t.type, selected: t.type === chosen, disabled: !t.available }, t.type + (t.available ? '' : ' (not available)'))));
	const seconds = h('input', { type: 'number', name: 'seconds', min: '1', max: '3600', value: '30', required: true });
	const rate = h('input', { type: 'number', name: 'rate', min: '1', max: '1000', value: '99', required: true });
	const checks = Object.entries(OPTIONS).map(([name, text]) => {
		const box = h('input', { type: 'checkbox', name });
		return { name, box, label: h('label', { class: 'check' }, box, text) };
	});
	const has = name => (types.find(t => t.type === type.value)?.options || []).includes(name) && (name !== 'children' || service.startsWith('pid:'));
	const showOptions = () => { for (const c of checks) c.label.hidden = !has(c.name); };
	type.addEventListener('change', showOptions);
	showOptions();
	const form = h('form', { class: 'fields', 'aria-label': 'Start a profile' }, h('label', {}, 'Type', type), h('label', {}, 'Seconds', seconds), h('label', {}, 'Samples per second', rate),
		checks.map(c => c.label),
		h('button', { class: 'primary', type: 'submit' }, 'Start'));
	form.addEventListener('submit', async e => {
		e.preventDefault();
		trouble.show(null);
		const request = { service, profileType: type.value, durationSeconds: Number(seconds.value) };
		if (!LEVELS.includes(type.value)) request.sampleRate = Number(rate.value);
		for (const c of checks) if (c.box.checked && has(c.name)) request[c.name] = true;
		try { await startProfile(request); } catch (error) { trouble.show(error); }
	});
	return form;
}
