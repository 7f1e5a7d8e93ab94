// SPDX-License-Identifier: Apache-2.0
import { h } from './dom.js';
import { visible } from './names.js';
import { qualityWords } from './words.js';

/** The quality line: always there where a number is; a click shows the reasons, which are open where they matter most. */
export function qualityLine(quality) {
	const words = qualityWords(quality), text = h('span', { class: words.level }, words.text);
	if (!words.reasons.length) return h('p', { class: 'quality' }, text);
	return h('details', { class: 'quality', open: words.level === 'bad' }, h('summary', {}, text), h('ul', {}, words.reasons.map(r => h('li', {}, visible(r)))));
}
