// SPDX-License-Identifier: Apache-2.0
// Trades a key for a cookie, then goes on to where the reader wanted to be, fragment included.
import { h } from '../flame/dom.js';
import { post } from '../parts/api.js';
import { nextPath } from '../parts/next.js';
import { heading, notice } from '../parts/page.js';

export function show(content) {
	const head = heading('Sign in', 'These pages need a key. It is traded for a cookie and not kept.'), trouble = notice();
	const key = h('input', { type: 'password', name: 'key', autocomplete: 'current-password', required: true, spellcheck: 'false', size: '50' });
	const form = h('form', { class: 'fields' }, h('label', {}, 'Key or token', key), h('button', { class: 'primary', type: 'submit' }, 'Sign in'));
	form.addEventListener('submit', async e => {
		e.preventDefault();
		trouble.show(null);
		try {
			await post('/sign-in', { token: key.value.trim() });
			location.replace(nextPath(location.search) + location.hash);
		} catch (error) {
			trouble.show(error.status === 401 ? 'This key is not known, or it has expired.' : error);
			key.select();
		}
	});
	content.append(head.element, trouble.element, form, h('p', { class: 'facts' }, 'An administrator makes one on the host with ', h('code', {}, 'profctl key create --name NAME --role read --tenant default'), '.'));
	key.focus();
}
