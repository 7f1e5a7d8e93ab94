// SPDX-License-Identifier: Apache-2.0
// The part of the address behind '#': how the data is looked at. It is never sent. No DOM here.

const FILTERS = ['focus', 'drop', 'hide', 'collapse'];
const one = (words, text) => words.includes(text) ? text : words[0];

/** What a fragment says; anything unknown or malformed reads as the default. */
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
