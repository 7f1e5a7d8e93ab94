// SPDX-License-Identifier: Apache-2.0
// Keys of the API, and this browser's own settings.
import { copy, h, letterSwitch, tell, turnTheme } from '../flame/dom.js';
import { setSourceTemplate, sourceTemplate } from '../flame/fragment.js';
import { visible } from '../flame/names.js';
import { get, post, remove } from '../parts/api.js';
import { list } from '../parts/list.js';
import { action, ago, heading, notice } from '../parts/page.js';

function newKey(made) {
	return h('div', { class: 'note good', role: 'status' }, h('p', {}, `The key of ${visible(made.name)}. It is shown once:`), h('p', { class: 'key' }, made.key),
		h('p', {}, h('button', { type: 'button', onclick: () => copy(made.key, 'Key') }, 'Copy')));
}

function keyForm(done, trouble) {
	const name = h('input', { required: true, pattern: '[A-Za-z0-9._-]{1,64}', title: '1 to 64 of A-Z a-z 0-9 . _ -' }), tenant = h('input', { pattern: '[A-Za-z0-9._-]{0,64}', placeholder: 'all' });
	const role = h('select', {}, ['read', 'profile', 'admin'].map(r => h('option', {}, r)));
	const form = h('form', { class: 'fields', 'aria-label': 'New key' }, h('label', {}, 'Name', name), h('label', {}, 'Role', role), h('label', {}, 'Tenant', tenant), h('button', { class: 'primary' }, 'Create key'));
	form.addEventListener('submit', async e => {
		e.preventDefault();
		trouble.show(null);
		try {
			await done(await post('/api/v1/keys', { name: name.value, role: role.value, ...(tenant.value ? { tenant: tenant.value } : {}) }));
			form.reset();
		} catch (error) { trouble.show(error); }
	});
	return form;
}

function sourceForm() {
	const template = h('input', { type: 'url', pattern: 'https://.*', size: '48', value: sourceTemplate(), placeholder: 'https://host/repo/blob/main/{file}#L{line}', spellcheck: 'false' });
	const form = h('form', { class: 'fields', 'aria-label': 'Source links' }, h('label', {}, 'Address of a source line ({file} and {line} are filled in; empty: no links)', template), h('button', {}, 'Keep'));
	form.addEventListener('submit', e => { e.preventDefault(); setSourceTemplate(template.value); tell('Kept in this browser'); });
	return form;
}

export async function show(content) {
	const head = heading('Settings', ''), trouble = notice(), keys = h('div', {}), made = h('div', {});
	content.append(head.element, trouble.element, h('h2', {}, 'This browser'), h('div', { class: 'row' }, h('button', { type: 'button', onclick: turnTheme }, 'Dark or light'),
		action('Sign out', async () => { await post('/sign-out'); location.assign('/sign-in'); }, trouble)), letterSwitch(), sourceForm(), h('h2', {}, 'Keys'), made, keys);
	async function draw() {
		let all;
		try { all = await get('/api/v1/keys'); } catch (e) {
			head.say('Keys are for administrators.');
			return keys.replaceChildren(h('div', { class: 'note' }, h('p', {}, e.status === 403 ? 'This needs the role admin. Without any key the API is open on this host only, as role profile; the first key closes it.' : e.message),
				h('p', {}, 'As root on the host: ', h('code', {}, 'profctl key create --name NAME --role admin'))));
		}
		head.say(all.total === 1 ? 'One key opens the API.' : `${all.total} keys open the API.`);
		keys.replaceChildren(keyForm(async key => { made.replaceChildren(newKey(key)); await draw(); }, trouble), list('Keys', [['Name', ''], ['Role', ''], ['Tenant', ''], ['Made', 'c'], ['(Change)', '']], all.items.map(k => [visible(k.name), k.role, k.tenant || 'all', ago(k.createdAt),
			action('Delete', async () => { if (confirm(`Delete the key ${k.name}? Whoever uses it is locked out at once.`)) { await remove('/api/v1/keys/' + k.id); await draw(); } }, trouble, { class: 'danger' })])),
			h('h2', {}, 'Links'), h('p', { class: 'facts' }, 'Signed links open one flame graph for an hour without a key.'), h('div', { class: 'row' }, action('End all links and sign-ins now', async () => {
				if (confirm('All signed links and all sign-ins end now, yours too. Go on?')) { await post('/api/v1/links/rotate'); location.assign('/sign-in?next=/settings'); }
			}, trouble, { class: 'danger' })));
	}
	await draw();
}
