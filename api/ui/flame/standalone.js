// SPDX-License-Identifier: Apache-2.0
// The page of format=html: one profile inside the file itself. No request is made; it opens from a disk.
import { h, onChoice, restoreTheme, turnTheme } from './dom.js';
import { Explorer } from './explorer.js';
import { visible } from './names.js';
import { qualityLine } from './quality.js';

async function readData() {
	const text = document.getElementById('data').textContent.trim();
	const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
	const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
	return JSON.parse(await new Response(stream).text());
}

/** The same data in other formats, when the page came from a server. */
function downloads(doc) {
	if (!location.protocol.startsWith('http')) return null;
	const single = doc.base ? [] : [['pprof', 'pprof'], ['folded', 'Folded stacks'], ['firefox', 'Firefox Profiler'], ['speedscope', 'speedscope'], ['csv', 'Table (CSV)']];
	const pick = h('select', { 'aria-label': 'Download as' }, h('option', { value: '' }, 'Download…'),
		single.concat([['svg', 'SVG'], ['json', 'JSON tree'], ['html', 'This page']]).map(([v, t]) => h('option', { value: v }, t)));
	onChoice(pick, format => {
		if (!format) return;
		const to = new URL(location.href);
		to.hash = '';
		to.searchParams.set('format', format);
		to.searchParams.set('download', 'true');
		pick.value = '';
		location.assign(to);
	});
	return pick;
}

let explorer = null;

async function main() {
	restoreTheme();
	const doc = await readData(), words = document.getElementById('sentence');
	explorer = new Explorer(document.getElementById('main'), {
		sentence: text => { words.textContent = text; },
		tools: [h('button', { type: 'button', title: 'Dark or light', onclick: turnTheme }, 'Theme'), downloads(doc)],
	});
	document.getElementById('quality').replaceChildren(qualityLine(doc.quality), h('p', {}, `${visible(doc.service)}${doc.host ? ' on ' + visible(doc.host) : ''}${doc.from ? ' · ' + new Date(doc.from).toLocaleString() : ''}` +
		(doc.pruned.nodes ? ` · ${doc.pruned.nodes.toLocaleString('en')} small frames merged` : '')));
	explorer.setData(doc);
	document.documentElement.dataset.ready = 'true';
}

main().catch(e => { document.getElementById('sentence').textContent = 'The profile could not be shown: ' + e.message; });
