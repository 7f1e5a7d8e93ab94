// SPDX-License-Identifier: Apache-2.0
// The part of the address behind '#': how the data is looked at. It is never sent. And addresses of sources. No DOM here.

const FILTERS = ['focus', 'drop', 'hide', 'collapse'];
const one = (words, text) => words.includes(text) ? text : words[0];

/** Parses a fragment; anything unknown or malformed reads as the default. */
export function readFragment(text) {
	const get = Object.create(null);
	for (const part of text.replace(/^#/, '').split('&')) {
		const at = part.indexOf('=');
		try { if (at > 0) get[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1)); } catch { /* left out */ }
	}
	return {
		zoom: /^[\w-]*$/.test(get.z || '') ? get.z || '' : '',
		query: (get.q || '').slice(0, 500),
		filters: (get.f || '').split('~').filter(Boolean).slice(0, 20).map(f => {
			const at = f.indexOf(':');
			return { kind: at < 0 ? f : f.slice(0, at), name: at < 0 ? null : f.slice(at + 1) || null };
		}).filter(f => FILTERS.includes(f.kind) && (f.name || f.kind === 'collapse')),
		panes: one(['both', 'graph', 'table', 'tree'], get.p),
		sort: one(['', 'self', 'total', 'name', 'delta'], get.t),
		flipped: get.o === 'flame',
		inverted: get.v === 'callers',
		byShare: get.c === 'self',
		side: get.callers ? 'callers' : 'callees',
		sandwich: get.callers || get.callees || null,
	};
}

const SOURCE = 'source';

/** The reader's own template for source links: an address with {file} and {line} in it; '' = none. */
export function sourceTemplate() {
	try { return localStorage.getItem(SOURCE) || ''; } catch { return ''; }
}

export function setSourceTemplate(text) { localStorage.setItem(SOURCE, text); }

/** Where a file and line are, by the template; '' without one, or if it would lead anywhere but to an https address. */
export function sourceLink(file, line, template = sourceTemplate()) {
	const path = file.replace(/^\/+/, '').split('/').map(encodeURIComponent).join('/');
	try {
		const to = new URL(template.replace('{file}', () => path).replace('{line}', String(line || 1)));
		return to.protocol === 'https:' ? to.href : '';
	} catch { return ''; }
}

/** Only what differs from the default; '' when nothing does. A filter's name may hold anything but '~'. */
export function writeFragment(s) {
	const parts = [];
	const add = (key, v) => { if (v) parts.push(key + '=' + encodeURIComponent(v)); };
	add('z', s.zoom);
	add('q', s.query);
	add('f', (s.filters || []).map(f => f.kind + (f.name ? ':' + f.name.replaceAll('~', '') : '')).join('~'));
	add('p', s.panes === 'both' ? '' : s.panes);
	add('t', s.sort);
	add('o', s.flipped ? 'flame' : '');
	add('v', s.inverted ? 'callers' : '');
	add('c', s.byShare ? 'self' : '');
	add(s.side, s.sandwich);
	return parts.length ? '#' + parts.join('&') : '';
}
