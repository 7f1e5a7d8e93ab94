// SPDX-License-Identifier: Apache-2.0
// Sentences about a profile: the first sentence and the quality line. No DOM here.
import { capital, duration, percent, value } from './format.js';
import { functionName } from './model.js';
import { shortName, visible } from './names.js';

/** Every profile type, in the page's order, with what it counts. */
const NOUNS = { cpu: 'CPU time', offcpu: 'time off CPU', wall: 'time', block: 'blocked time', mutex: 'lock waiting',
	memory: 'live memory', alloc: 'allocated memory', goroutine: 'goroutines', io: 'I/O time', faults: 'page faults' };

export const TYPES = Object.keys(NOUNS);

/** Nouns of the further values of types with more than one. */
const VALUE_NOUNS = { samples: 'samples', events: 'waits', contentions: 'contentions', inuse_objects: 'live objects', alloc_objects: 'allocated objects', operations: 'I/O operations', bytes: 'I/O' };

export const noun = (type, which) => VALUE_NOUNS[which] || NOUNS[type] || type;

/** "12.3 s of CPU time in 30 s (0.41 CPUs). Hottest function: f (31 % self)." With @own, the program's own function that has most:
 * "12.3 s of time off CPU in 30 s. Most in f (31 %, epoll)." */
export function sentence(base, model, totals, own) {
	const d = base.doc;
	if (d.base) return comparison(base);
	if (!d.total && d.type === 'io' && d.value === 'delay' && d.samples) return 'No read or write waited in this time. The moved bytes are shown with value=bytes.';
	if (!d.total) return 'Nothing was recorded: the service did not use any in this time, or its samples were lost.';
	let best = -1;
	for (let f = 0; f < model.functions; f++)
		if (f !== model.fn[0] && d.fn.kind[f] !== 0 && (best < 0 || totals.self[f] > totals.self[best])) best = f;
	const whole = `${value(d.total * d.scale, d.unit)} ${d.unit === 'count' ? '' : 'of '}${noun(d.type, d.value)}${d.rate ? ` in ${duration(d.durationSeconds)}` : ''}`;
	const cpus = d.type === 'cpu' && d.unit === 'nanoseconds' && d.durationSeconds ? ` (${(d.total * d.scale / 1e9 / d.durationSeconds).toFixed(2)} CPUs)` : '';
	const top = own && model === base ? `. Most in ${visible(shortName(own.funcName))} (${percent(own.pct, 100)}${own.wait ? `, ${visible(own.wait)}` : ''}).`
		: best < 0 || !totals.self[best] ? '.'
		: `. Hottest function: ${visible(shortName(functionName(model, best), d.fn.kind[best]))} (${percent(totals.self[best], model.total[0])} self).`;
	const kept = model !== base ? ` The view holds ${percent(model.total[0], base.total[0])} of it.` : '';
	return whole + cpus + top + kept;
}

function comparison(m) {
	const d = m.doc, per = d.rate ? ' per second' : '', seconds = d.rate ? [d.base.durationSeconds || 1, d.durationSeconds || 1] : [1, 1];
	const before = m.baseTotal[0] * d.base.scale / seconds[0], after = d.total * d.scale / seconds[1];
	const change = before ? ` (${after >= before ? '+' : '\u2212'}${Math.abs(100 * (after - before) / before).toFixed(1)}\u00a0%)` : '';
	return `${capital(noun(d.type, d.value))}${per}: ${value(before, d.unit)} before, ${value(after, d.unit)} after${change}. Orange frames gained share, blue ones lost; width is the mean of both.`;
}

/** The meaning of a share of 1 % and more in a quality object, and the remedy. */
const SHARES = [['unknownFramePct', 'unknown: these files carry no names; their debug package, or [collect] debuginfod_urls, names them in this profile too'],
	['truncatedPct', 'truncated: the walk did not reach the end of these stacks; they begin with [truncated]'],
	['guessedFramePct', 'guessed: no unwind information for a step; the frame below it may be another']];

/** {text, level: '' | 'warn' | 'bad', reasons[]} of a quality object; what is absent is not known, never 0. */
export function qualityWords(q) {
	if (!q) return { text: 'quality not known', level: 'warn', reasons: [] };
	const known = v => v === undefined || v === null ? 'not known' : v.toFixed(1) + '\u00a0%';
	const lostPct = q.samples ? 100 * (q.lost || 0) / (q.samples + (q.lost || 0)) : 0;
	const bad = (q.truncatedPct || 0) + (q.unknownFramePct || 0) + lostPct;
	const parts = [q.samples === undefined ? 'samples not known' : `${q.samples.toLocaleString('en')} sample${q.samples === 1 ? '' : 's'}`,
		q.lost === undefined ? 'loss not known' : `${q.lost.toLocaleString('en')} lost`,
		`truncated stacks ${known(q.truncatedPct)}`, `unknown frames ${known(q.unknownFramePct)}`];
	if (q.guessedFramePct) parts.push(`guessed ${known(q.guessedFramePct)}`);
	if (q.effectiveRate !== undefined) parts.push(`${Math.round(q.effectiveRate)}\u00a0Hz`);
	if (q.overheadPct !== undefined) parts.push(`profiler overhead ${q.overheadPct < 0.01 ? '<\u00a00.01' : q.overheadPct.toFixed(2)}\u00a0% of the host`);
	const meanings = q.unwindErrorMeanings || {};
	const reasons = SHARES.filter(([name]) => q[name] >= 1).map(([, why]) => why)
		.concat(Object.entries(q.unwindErrors || {}).map(([k, v]) => `${v.toLocaleString('en')} ${v === 1 ? 'stack' : 'stacks'}: ${meanings[k] || k.replace(/_/g, ' ')}`),
		q.notes || [], (q.processesSkipped || []).map(p => `process ${p.pid} skipped: ${p.reason}`));
	return { text: parts.join(' · '), level: bad >= 5 ? 'bad' : bad >= 1 ? 'warn' : '', reasons };
}
