// SPDX-License-Identifier: Apache-2.0
// Downloads of a profile in every format that the daemon writes.
import { h, onChoice } from '../flame/dom.js';
import { sameTenant } from './api.js';

const FORMATS = [['html', 'Page in one file'], ['pprof', 'pprof'], ['folded', 'Folded stacks'], ['svg', 'SVG'], ['json', 'JSON tree'], ['speedscope', 'speedscope'],
	['firefox', 'Firefox Profiler'], ['otlp', 'OpenTelemetry'], ['perfscript', 'perf script'], ['callgrind', 'Callgrind'], ['csv', 'Table (CSV)']];

/** @param address function that gives the URL of the flame graph with its query, without format; only: formats offered */
export function exportMenu(address, only) {
	const pick = h('select', { 'aria-label': 'Download as' }, h('option', { value: '' }, 'Download…'), FORMATS.filter(([v]) => !only || only.includes(v)).map(([v, t]) => h('option', { value: v }, t)));
	onChoice(pick, format => {
		if (!format) return;
		const to = new URL(sameTenant(address()), location.href); // a download carries no header
		to.searchParams.set('format', format);
		to.searchParams.set('download', 'true');
		pick.value = '';
		const anchor = h('a', { href: to.href, download: '' });
		document.body.append(anchor);
		anchor.click();
		anchor.remove();
	});
	return pick;
}
