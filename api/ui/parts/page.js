// SPDX-License-Identifier: Apache-2.0
// Pieces that several pages share.
import { h, say } from '../flame/dom.js';
import { capital } from '../flame/format.js';
import { visible } from '../flame/names.js';
import { ApiError, sameTenant, tenant } from './api.js';

export const link = (href, text, attributes) => h('a', { href: sameTenant(href), ...attributes }, text);
export const servicePath = (name, query = '') => '/s/' + encodeURIComponent(name) + query;

/** Title, first sentence and what follows; the sentence is also the window's title. */
export function heading(title, lead) {
	const sentence = h('p', { class: 'lead', role: 'status' }, lead || '');
	const head = h('h1', {}, visible(title));
	document.title = `${visible(title)} · profd`;
	return { element: h('header', {}, head, sentence), head, sentence,
		say(text) { if (sentence.textContent !== text) sentence.textContent = text; } };
}

/** A sentence for the reader about a failed request. */
export function errorWords(e) {
	if (!(e instanceof ApiError)) return 'This page failed: ' + e.message;
	const text = visible(capital(e.message)) + '.';
	if (e.status === 0) return 'The daemon does not answer. What is shown stays; it is asked again.';
	if (e.status === 401) return 'You are not signed in, or your session ended.';
	if (e.status === 403) return text + ' Your key may not do this.';
	if (e.status === 429 || e.status === 503) return text + (e.retryAfter ? ` Try again in ${e.retryAfter} s.` : '');
	return text;
}

/** A box for trouble; hidden while there is none. */
export function notice() {
	const box = h('div', { class: 'note bad', role: 'alert', hidden: true });
	return { element: box,
		show(e) {
			box.hidden = !e;
			if (!e) return;
			box.className = 'note ' + (e.status === 409 || e.status === 0 ? 'warn' : 'bad');
			box.replaceChildren(h('p', {}, typeof e === 'string' ? e : errorWords(e)));
			if (e.details?.profileId) box.append(h('p', {}, link('/p/' + e.details.profileId, 'Open the one that runs')));
			if (e.status === 401) box.append(h('p', {}, link('/sign-in?next=' + encodeURIComponent(location.pathname + location.search) + location.hash, 'Sign in')));
			say(box.textContent);
		} };
}

/** For a form that leads to a page: the same tenant there. */
export const tenantField = () => tenant() ? h('input', { type: 'hidden', name: 'tenant', value: tenant() }) : '';

/** New content in the place of old: what the reader has opened stays open, and the focus where it was. */
export function redraw(holder, ...kids) {
	const folds = () => [...holder.querySelectorAll('details')], open = folds().map(d => d.open), had = document.activeElement;
	const key = e => e.tagName === 'SUMMARY' ? folds().indexOf(e.parentElement) : e.getAttribute('aria-label') || e.getAttribute('href') || e.textContent;
	const focus = holder.contains(had) ? key(had) : null;
	holder.replaceChildren(...kids);
	folds().forEach((d, i) => { d.open ||= Boolean(open[i]); });
	if (focus !== null) [...holder.querySelectorAll('a, button, input, select, summary')].find(e => key(e) === focus)?.focus({ preventScroll: true });
}

/** A bar of 0 … 100; without a label where the number stands beside it. */
export function bar(className, percentage, label) {
	const inner = h('i', {}), outer = h('span', label ? { class: className, role: 'img', 'aria-label': label } : { class: className, 'aria-hidden': 'true' });
	outer.append(inner);
	inner.style.setProperty('--w', Math.max(0, Math.min(100, percentage)).toFixed(1) + '%');
	return outer;
}

/** A time for people: how long ago, with the moment itself on hover. */
export function ago(time) {
	if (!time) return h('span', {}, '–');
	const at = new Date(time), seconds = Math.max(0, (Date.now() - at) / 1000);
	const words = seconds < 60 ? 'just now' : seconds < 3600 ? Math.floor(seconds / 60) + '\u00a0min ago'
		: seconds < 86400 ? Math.floor(seconds / 3600) + '\u00a0h ago' : at.toLocaleDateString();
	return h('time', { datetime: time, title: `${at.toLocaleString()} (${time})` }, words);
}

export const plural = (n, word, words = word + 's') => `${n.toLocaleString('en')} ${n === 1 ? word : words}`;

/** A button whose work shows in itself: disabled while it runs, its errors in `trouble`. */
export function action(text, run, trouble, attributes) {
	const button = h('button', { type: 'button', ...attributes }, text);
	button.addEventListener('click', async () => {
		button.disabled = true;
		trouble?.show(null);
		try { await run(); } catch (e) { if (trouble) trouble.show(e); else throw e; }
		button.disabled = false;
	});
	return button;
}
