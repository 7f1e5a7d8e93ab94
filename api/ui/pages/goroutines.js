// SPDX-License-Identifier: Apache-2.0
// Goroutines (or threads) of one session: states, waits, the same stacks together, and what grew.
import { copy, h } from '../flame/dom.js';
import { duration, percent } from '../flame/format.js';
import { visible } from '../flame/names.js';
import { qualityLine } from '../flame/quality.js';
import { B, get, post } from '../parts/api.js';
import { list } from '../parts/list.js';
import { bar, heading, link, notice, plural } from '../parts/page.js';

function counts(title, words, total) {
	const rows = Object.entries(words).sort((a, b) => b[1] - a[1]);
	return rows.length ? [h('h2', {}, title), list(title, [['(Name)', ''], ['Count', 'n'], ['Share', 'n']], rows.map(([word, n]) => [visible(word || 'none'), n.toLocaleString('en'), [bar('meter', 100 * n / total, ''), percent(n, total)]]), 'narrow')] : [];
}

function stacks(title, items) {
	if (!items?.length) return [];
	return [h('h2', {}, title), list(title, [['Count', 'n'], ['State', 'c'], ['Longest', 'n wide'], ['Stack, innermost first', '']], items.map(s => [
		[s.count.toLocaleString('en'), s.baseCount !== undefined ? h('span', { class: s.count > s.baseCount ? 'more' : 'less' }, ` (was ${s.baseCount})`) : '',
			s.sessions ? h('span', { class: 'more' }, ` (before: ${s.sessions.slice(0, -1).map(b => b.count.toLocaleString('en')).join(', ')})`) : ''],
		[s.state, s.kind ? h('div', { class: 'bad' }, s.kind.replace(/[A-Z]/g, c => ' ' + c.toLowerCase())) : '', s.waitReason ? h('div', { class: 'facts' }, visible(s.waitReason)) : ''], s.maxWaitSeconds ? duration(s.maxWaitSeconds) : '',
		h('details', {}, h('summary', {}, visible(s.frames.slice(0, 2).join(' ‹ ') || '(no frames)')), h('pre', { class: 'stack' }, visible(s.frames.join('\n')).replaceAll('\\u{a}', '\n')),
			s.createdBy ? h('p', { class: 'facts' }, 'created by ', visible(s.createdBy)) : '', h('button', { type: 'button', onclick: () => copy(s.frames.join('\n'), 'Stack') }, 'Copy'))]))];
}

async function analyse(id, head, body) {
	const query = new URLSearchParams(location.search);
	const system = query.get('system') === 'true';
	const a = await get(`${B}/sessions/${encodeURIComponent(id)}/analysis`, { limit: 100, system: system || null });
	const longest = Math.max(0, ...a.topStacks.map(s => s.maxWaitSeconds || 0)), most = Object.entries(a.waitReasons || {}).sort((x, y) => y[1] - x[1])[0];
	head.head.textContent = `${visible(a.service)} · goroutines and threads`;
	head.say(`${plural(a.goroutineCount, 'goroutine or thread', 'goroutines or threads')} in ${plural(a.stackCount, 'stack')}` + (most?.[0] ? `, ${most[1].toLocaleString('en')} wait in ${visible(most[0])}` : '') + (longest ? `, the longest for ${duration(longest)}` : '') + '.');
	const growth = a.previousGoroutineCount === null ? 'There is nothing earlier to compare with.' : [a.goroutineCount === a.previousGoroutineCount ? 'As many as in ' : `${a.goroutineGrowthRate >= 1 ? '+' : '\u2212'}${Math.abs(100 * (a.goroutineGrowthRate - 1)).toFixed(1)}\u00a0% since `,
		link((a.comparedWith.startsWith('bl-') ? '/baselines#' : '/g/') + a.comparedWith, a.comparedWith), ` (${a.previousGoroutineCount.toLocaleString('en')}).`];
	const other = new URL(location.href);
	if (system) other.searchParams.delete('system'); else other.searchParams.set('system', 'true');
	body.replaceChildren(h('p', { class: 'facts' }, growth), qualityLine(a.quality), h('div', { class: 'row' }, link('/p/' + encodeURIComponent(id), 'Flame graph', { class: 'button' }),
		link(other.pathname + other.search, system ? 'Without the runtime\u2019s own' : 'With the runtime\u2019s own', { class: 'button' })),
		...counts('States', a.states || {}, a.goroutineCount), ...counts('Waiting for', a.waitReasons || {}, a.goroutineCount),
		...stacks('Suspected leaks', a.suspectedLeaks), ...stacks('May be stuck for good', a.deadlockCandidates), ...stacks('Waiting for somebody else', a.blockedGoroutines), ...stacks('All, by stack', a.topStacks));
	if (!a.comparedWith) return;
	const d = await post(B + '/diff', { baseId: a.comparedWith, compareId: id, type: 'goroutine' });
	body.append(...stacks('New since then', d.newStacks), ...stacks('Grown since then', d.grownStacks), ...stacks('Gone since then', d.removedStacks));
}

const WHY_NOT = { 404: 'There is no such profile, or it was deleted.', 409: 'It still runs; what it finds is shown when it is over.', 422: 'This session has no goroutine analysis.' };

export async function show(content, id) {
	const head = heading('Goroutines', 'Asking the daemon…'), trouble = notice(), body = h('div', {});
	content.append(head.element, trouble.element, body);
	async function read() {
		try {
			await analyse(id, head, body);
		} catch (e) {
			if (!body.firstChild) head.say(WHY_NOT[e.status] || '');
			if (e.status === 409) setTimeout(read, 1000 * (e.retryAfter || 1)); else trouble.show(e);
		}
	}
	await read();
}
