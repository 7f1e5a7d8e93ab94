// SPDX-License-Identifier: Apache-2.0
// The frame around every page: navigation, theme, and the page that the path asks for. The path and the query say
// which data, the fragment how it is looked at.
import { h, isDark, isQuiet, letterSwitch, restoreTheme, turnTheme } from './flame/dom.js';
import { sameTenant } from './parts/api.js';
import { errorWords, link } from './parts/page.js';

const PAGES = [
	[/^\/$/, () => import('./pages/home.js')],
	[/^\/s\/([^/]+)$/, () => import('./pages/service.js')],
	[/^\/p\/([^/]+)$/, () => import('./pages/profile.js')],
	[/^\/g\/([^/]+)$/, () => import('./pages/goroutines.js')],
	[/^\/compare$/, () => import('./pages/compare.js')],
	[/^\/baselines$/, () => import('./pages/baselines.js')],
	[/^\/findings$/, () => import('./pages/findings.js')],
	[/^\/trend$/, () => import('./pages/trend.js')],
	[/^\/status$/, () => import('./pages/status.js')],
	[/^\/settings$/, () => import('./pages/settings.js')],
	[/^\/sign-in$/, () => import('./pages/sign_in.js')],
];
const NAVIGATION = [['/', 'Services', 'h'], ['/compare', 'Compare', 'c'], ['/baselines', 'Baselines', 'b'], ['/findings', 'Findings', 'f'], ['/trend', 'Trend', 't'], ['/status', 'Agent', 's'], ['/settings', 'Settings', 'k']];

function header() {
	const theme = h('button', { type: 'button', title: 'Dark or light', onclick: turnTheme }, isDark() ? 'Light' : 'Dark');
	addEventListener('themechange', () => { theme.textContent = isDark() ? 'Light' : 'Dark'; });
	return h('header', { class: 'top' }, h('a', { class: 'skip', href: '#main' }, 'Skip to the content'), link('/', 'profd', { class: 'brand' }),
		h('nav', { 'aria-label': 'Pages' }, NAVIGATION.map(([href, text]) => link(href, text, { 'aria-current': location.pathname === href ? 'page' : null }))),
		h('span', { class: 'right' }, theme));
}

/** Moves the focus to the search box of this page, else opens the services. */
function goSearch() {
	const box = document.querySelector('main input[type=search]');
	if (box) box.focus(); else location.assign(sameTenant('/#q='));
}

function openKeys() {
	const rows = [['/', 'search'], ...NAVIGATION.map(([, text, key]) => ['g ' + key, text])];
	const box = h('dialog', { class: 'help', 'aria-label': 'Keys', onclose: () => box.remove() }, h('dl', {}, rows.flatMap(([key, text]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, text)])),
		letterSwitch(), h('form', { method: 'dialog' }, h('button', { autofocus: true }, 'Close')));
	document.body.append(box);
	box.showModal();
}

/** g, then a letter, goes to a page; / searches; ? lists the keys, where a flame graph has not its own list. */
function goKeys() {
	let armed = 0;
	document.addEventListener('keydown', e => {
		if (e.ctrlKey || e.metaKey || e.altKey || ['INPUT', 'SELECT', 'TEXTAREA'].includes(e.target.tagName) || document.querySelector('dialog[open]') || isQuiet(e)) return;
		if (e.key === '/') { e.preventDefault(); return goSearch(); }
		if (e.key === '?' && !document.querySelector('.explorer')) return openKeys();
		const to = Date.now() - armed < 1500 && NAVIGATION.find(n => n[2] === e.key);
		armed = e.key === 'g' ? Date.now() : 0;
		if (!to) return;
		e.preventDefault();
		location.assign(sameTenant(to[0]));
	});
}

async function main() {
	restoreTheme();
	const content = h('main', { class: 'page', id: 'main', tabindex: '-1' });
	document.getElementById('app').append(header(), content);
	goKeys();
	try {
		for (const [pattern, load] of PAGES) {
			const found = pattern.exec(location.pathname);
			if (!found) continue;
			await (await load()).show(content, ...found.slice(1).map(decodeURIComponent));
			document.documentElement.dataset.ready = 'true';
			return;
		}
		content.append(h('h1', {}, 'There is no such page'));
	} catch (e) {
		content.append(h('div', { class: 'note bad', role: 'alert' }, h('p', {}, errorWords(e))));
	}
}

main();
