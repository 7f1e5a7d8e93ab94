// SPDX-License-Identifier: Apache-2.0
// The one way elements are made: text is only ever text, so that no name can become markup.

/** Element with attributes, listeners (on…) and children; null and false are left out. */
export function h(tag, attributes, ...kids) {
	const element = document.createElement(tag);
	for (const [name, v] of Object.entries(attributes || {})) {
		if (name.startsWith('on')) element.addEventListener(name.slice(2), v);
		else if (v !== null && v !== undefined && v !== false) element.setAttribute(name, v === true ? '' : v);
	}
	element.append(...kids.flat().filter(c => c !== null && c !== undefined && c !== false));
	return element;
}

/** The same for SVG elements. */
export function svg(tag, attributes, ...kids) {
	const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
	for (const [name, v] of Object.entries(attributes || {})) if (v !== null && v !== undefined) element.setAttribute(name, v);
	element.append(...kids.flat());
	return element;
}

let live = null, saidAt = 0, saying = 0;

/** One polite message at a time for screen readers, at most one a second. */
export function say(text) {
	if (!live) document.body.append(live = h('div', { class: 'unseen', role: 'status', 'aria-live': 'polite' }));
	clearTimeout(saying);
	saying = setTimeout(() => { saidAt = Date.now(); live.textContent = text; }, Math.max(0, saidAt + 1000 - Date.now()));
}

let toast = null, fading = 0;

/** Says it, and shows it for a moment: what came of an action that shows nowhere else. */
export function tell(text) {
	if (!toast) document.body.append(toast = h('div', { class: 'toast', 'aria-hidden': 'true' }));
	toast.textContent = text;
	toast.hidden = false;
	clearTimeout(fading);
	fading = setTimeout(() => { toast.hidden = true; }, 4000 + 40 * text.length);
	say(text);
}

/** Copies text; without permission through a hidden text area. */
export async function copy(text, what) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		const area = h('textarea', {}, text);
		document.body.append(area);
		area.select();
		const done = document.execCommand('copy');
		area.remove();
		if (!done) return tell(`This browser lets nothing be copied: ${text}`);
	}
	tell(`${what} copied`);
}

/**
 * Calls act(value) when a choice of a select is made. By pointer, and in its open list, that is its change. While it is
 * closed every arrow and letter is a change already: there Enter makes the choice, and who leaves has made none.
 */
export function onChoice(pick, act) {
	const before = pick.value;
	let walking = false, due = false;
	const make = () => { due = false; act(pick.value); };
	const leave = () => { if (due) pick.value = before; walking = due = false; };
	pick.addEventListener('change', () => {
		if (!walking) return make();
		if (!due) tell('Enter chooses it, Escape does not');
		due = pick.value !== before;
	});
	pick.addEventListener('keydown', e => {
		if (e.key === 'Enter' && due) { e.preventDefault(); make(); } // and does not open the list
		if (e.key === 'Escape') leave();
		walking = !e.altKey && !['Enter', ' ', 'F4', 'Escape', 'Tab'].includes(e.key);
	});
	pick.addEventListener('keyup', e => {
		walking = false;
		if (e.key === 'Enter' && due) make(); // of an open list that had it already
	});
	pick.addEventListener('pointerdown', () => { walking = false; });
	pick.addEventListener('blur', leave);
	addEventListener('pagehide', () => { pick.value = before; }); // who comes back sees what the page still shows
}

/** How much larger than usual the reader wants text: the size of letters that the browser is set to. */
export const textScale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

/** Shows a floating element near a point, inside the window. */
export function place(element, x, y) {
	element.hidden = false;
	const box = element.getBoundingClientRect();
	element.style.left = Math.max(4, Math.min(x, innerWidth - box.width - 8)) + 'px';
	element.style.top = Math.max(4, y + box.height + 8 > innerHeight ? y - box.height - 18 : y) + 'px';
}

let still = false;

/** Whether keys of one character act. Who speaks to the computer, or hits keys by chance, switches them off. */
export function lettersAct() {
	try { still = localStorage.getItem('letters') === 'off'; } catch { /* a page from a file may not store */ }
	return !still;
}

/** Whether a key press is a command of one character, and such are switched off. Space presses and selects, as everywhere. */
export const isQuiet = e => e.key.length === 1 && e.key !== ' ' && !lettersAct();

/** The switch of them, for the lists of keys and the settings. */
export function letterSwitch() {
	const box = h('input', { type: 'checkbox', checked: lettersAct() });
	box.addEventListener('change', () => {
		still = !box.checked;
		try { localStorage.setItem('letters', still ? 'off' : 'on'); } catch { /* as above */ }
	});
	return h('label', { class: 'check' }, box, 'Keys of one letter, digit or sign act');
}

/** Dark or light now: the reader's choice, else the system's; paper is light. */
export function isDark() {
	if (matchMedia('print').matches) return false;
	const set = document.documentElement.dataset.theme;
	return set ? set === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

/** Turns the theme over and remembers it where the browser allows. */
export function turnTheme() {
	const to = isDark() ? 'light' : 'dark';
	document.documentElement.dataset.theme = to;
	try { localStorage.setItem('theme', to); } catch { /* as above */ }
	dispatchEvent(new Event('themechange'));
}

export function restoreTheme() {
	try {
		const kept = localStorage.getItem('theme');
		if (kept === 'dark' || kept === 'light') document.documentElement.dataset.theme = kept;
	} catch { /* as above */ }
}
