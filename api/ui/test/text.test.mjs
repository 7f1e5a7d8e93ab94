// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { duration, number, percent, points, unitFor, value } from '../flame/format.js';
import { readFragment, sourceLink, writeFragment } from '../flame/fragment.js';
import { shortName, visible } from '../flame/names.js';
import { qualityWords, sentence } from '../flame/words.js';
import { ApiError } from '../parts/api.js';
import { historyMap } from '../parts/heat.js';
import { parseMetrics } from '../parts/metrics.js';
import { nextPath } from '../parts/next.js';
import { errorWords } from '../parts/page.js';
import { sparkPath } from '../parts/spark.js';

const GO = 3;

test('short names keep what tells frames apart', () => {
	for (const [name, short, kind] of [
		['encoding/json.(*decodeState).object', 'json.(*decodeState).object', GO],
		['github.com/a/b/v2/pkg.Func[...]', 'pkg.Func[…]', GO],
		['main.main', 'main.main', GO],
		['std::vector<int, std::allocator<int> >::push_back(int const&)', 'vector<…>::push_back'],
		['(anonymous namespace)::Worker::run()', 'Worker::run'],
		['core::ops::function::FnOnce::call_once::h0123456789abcdef', 'FnOnce::call_once'],
		['tokio::runtime::task::{{closure}}', 'task::closure'],
		['checkExpression /opt/ts/lib/tsc.js:84906', 'checkExpression'],
		['java.util.HashMap.putVal', 'HashMap.putVal'],
		['[unknown] libc.so.6+0x1234', '[unknown] libc.so.6+0x1234'],
		['__x64_sys_poll', '__x64_sys_poll'],
		['operator<<(std::ostream&, int)', 'operator<<'],
	]) assert.equal(shortName(name, kind), short, name);
});

test('a short name is never empty and never throws', () => {
	for (const name of ['', '<', '>', '::', '<<<<', '((((', 'a::', '::b', '<a as b>::c', ' ', '[', '/', 'a/', '\u202e'])
		assert.ok(name === '' || shortName(name).length > 0, JSON.stringify(name));
});

test('what would be obeyed is shown', () => {
	assert.equal(visible('a\u202eb'), 'a\\u{202e}b');
	assert.equal(visible('a\u0000\n\u200b'), 'a\\u{0}\\u{a}\\u{200b}');
	assert.equal(visible('a\u2028\u061cb'), 'a\\u{2028}\\u{61c}b');
	assert.equal(visible('<b>'), '<b>');
	assert.equal(visible('x'.repeat(3000)).length, 2001);
});

test('points of the history fall into the columns and rows of their times', () => {
	const begin = Date.parse('2026-01-01T00:00:00Z'), at = minutes => ({ from: new Date(begin + minutes * 60e3).toISOString(), valuePerSecond: minutes });
	const map = historyMap([at(1), at(14), at(15), at(44)], begin, begin + 45 * 60e3, 60e3, 15);
	assert.deepEqual([map.cols, map.rows, map.max, map.cells.length], [3, 15, 44, 45]);
	for (const minute of [1, 14, 15, 44]) assert.equal(map.cells[Math.floor(minute / 15) * 15 + minute % 15], minute);
	assert.equal(map.cells[2], 0);
});

test('numbers', () => {
	assert.equal(percent(1, 3), '33.3\u00a0%');
	assert.equal(percent(1, 1e6), '<\u00a00.01\u00a0%');
	assert.equal(percent(0, 0), '0\u00a0%');
	assert.equal(percent(0, 7), '0\u00a0%');
	assert.equal(number(0, unitFor('nanoseconds', 5e9)), '0');
	assert.equal(percent(7, 7), '100\u00a0%');
	assert.equal(value(1536, 'bytes'), '1.50\u00a0KiB');
	assert.equal(value(2.5e9, 'nanoseconds'), '2.50\u00a0s');
	assert.equal(value(999.6e6, 'nanoseconds'), '1.00\u00a0s');
	assert.equal(value(1234567, 'count'), '1\u202f234\u202f567');
	assert.equal(number(-5e9, unitFor('nanoseconds', 5e9)), '\u22125.00');
	assert.equal(points(7.123), '▲\u00a0+7.12\u00a0pp');
	assert.equal(points(-1), '▼\u00a0\u22121.00\u00a0pp');
	assert.equal(points(0), '= 0\u00a0pp');
	for (const [seconds, text] of [[0, '0 s'], [0.0001, '1 ms'], [0.02, '20 ms'], [1.04, '1 s'], [9.96, '10 s'], [59.4, '59 s'], [59.7, '1 min'], [60, '1 min'], [119.8, '2 min'], [2463, '41 min 3 s'],
		[3599.6, '1 h'], [3600, '1 h'], [7260, '2 h 1 min'], [86400, '1 d'], [187200, '2 d 4 h']]) assert.equal(duration(seconds).replaceAll('\u00a0', ' '), text, String(seconds));
});

test('a fragment is read back as it was written', () => {
	const state = { zoom: 'AbC-d_e0', query: 'a&b=c#ä', filters: [{ kind: 'hide', name: 'x::y<1>' }, { kind: 'collapse', name: null }], panes: 'tree', sort: 'total', flipped: true, inverted: true, byShare: true,
		side: 'callers', sandwich: 'std::f(a, b)' };
	assert.deepEqual(readFragment(writeFragment(state)), state);
	assert.equal(writeFragment(readFragment('')), '');
});

test('a hostile fragment reads as the default', () => {
	const plain = readFragment('');
	for (const text of ['#%', '#z=<script>', '#q', '#=&=&&', '#f=evil:x~:~~', '#p=<x>&t=__proto__&o=1', '#__proto__=1']) assert.deepEqual(readFragment(text), plain, text);
	assert.equal(readFragment('#q=' + 'x'.repeat(9999)).query.length, 500);
	assert.equal(readFragment('#f=' + 'hide:x~'.repeat(99)).filters.length, 20);
});

test('quality says what is not known', () => {
	assert.match(qualityWords({}).text, /samples not known · loss not known · truncated stacks not known/);
	assert.equal(qualityWords({ samples: 100, lost: 0, truncatedPct: 0, unknownFramePct: 0.2 }).level, '');
	assert.equal(qualityWords({ samples: 100, lost: 2 }).level, 'warn');
	assert.equal(qualityWords({ samples: 100, lost: 0, unknownFramePct: 6 }).level, 'bad');
	assert.deepEqual(qualityWords({ unwindErrors: { no_rows: 3, guessed: 1 }, unwindErrorMeanings: { no_rows: 'no rows yet', guessed: 'a guess' },
		notes: ['n'] }).reasons, ['3 stacks: no rows yet', '1 stack: a guess', 'n']);
	assert.match(qualityWords({ unknownFramePct: 6 }).reasons[0], /^unknown: .*debug package/);
});

test('each failure has its words', () => {
	const words = (status, message, after) => errorWords(new ApiError(status, message && { message }, after));
	assert.match(words(0), /does not answer.*asked again/);
	assert.match(words(401, 'no token'), /not signed in/);
	assert.equal(words(403, 'this takes admin'), 'This takes admin. Your key may not do this.');
	assert.equal(words(404, 'no such profile'), 'No such profile.');
	assert.equal(words(422, 'memory needs Linux 6.13'), 'Memory needs Linux 6.13.');
	assert.equal(words(429, '32 sessions run', 5), '32 sessions run. Try again in 5 s.');
	assert.equal(words(500, ''), 'The daemon answered 500.');
	assert.equal(words(503, 'the store is away', 0), 'The store is away.');
});

test('what a profile says depends on the value that is looked at', () => {
	const doc = { type: 'io', value: 'delay', unit: 'nanoseconds', rate: true, scale: 1e6, total: 1500, durationSeconds: 60, fn: { kind: [0] } }, empty = { fn: [0], functions: 1, total: [1500] };
	const said = more => { const d = { ...doc, ...more }; return sentence({ ...empty, doc: d }, empty, { self: [0] }).replaceAll('\u00a0', ' '); };
	assert.equal(said({}), '1.50 s of I/O time in 1 min. The view holds 100 % of it.');
	const whole = { ...empty, doc: { ...doc, type: 'offcpu', total: 1500 } };
	assert.equal(sentence(whole, whole, { self: [0] }, { funcName: 'nap', pct: 60, wait: 'sleep' }).replaceAll('\u00a0', ' '), '1.50 s of time off CPU in 1 min. Most in nap (60.0 %, sleep).');
	assert.match(said({ total: 0, samples: 3 }), /^No read or write waited/);
	assert.match(said({ total: 0, samples: 0 }), /^Nothing was recorded/);
	assert.equal(said({ value: 'bytes', unit: 'bytes', scale: 1024 }), '1.46 MiB of I/O in 1 min. The view holds 100 % of it.');
	assert.equal(said({ value: 'operations', unit: 'count', scale: 1 }), '1\u202f500 I/O operations in 1 min. The view holds 100 % of it.');
	assert.equal(said({ type: 'memory', value: 'inuse_space', unit: 'bytes', scale: 1024, rate: false }), '1.46 MiB of live memory. The view holds 100 % of it.');
});

test('metrics', () => {
	const m = parseMetrics('# HELP a b\na 1\nb{x="1",y="a\\"b\\\\"} 2.5\nnot a line\nb{x="2"} 3e2\n');
	assert.equal(m.a[0].value, 1);
	assert.deepEqual({ ...m.b[0].labels }, { x: '1', y: 'a"b\\' });
	assert.equal(m.b[1].value, 300);
});

test('the sign-in leads on to this site only', () => {
	for (const bad of ['//evil.example', '/\\evil.example', 'https://evil.example', 'javascript:alert(1)', '/a\tb', '']) assert.equal(nextPath('?next=' + encodeURIComponent(bad)), '/', bad);
	assert.equal(nextPath('?next=' + encodeURIComponent('/p/x?where=pid:1')), '/p/x?where=pid:1');
	assert.equal(nextPath(''), '/');
});

test('source links lead to https addresses of the template alone', () => {
	const to = 'https://host/repo/blob/main/{file}#L{line}';
	assert.equal(sourceLink('/src/a b.c', 12, to), 'https://host/repo/blob/main/src/a%20b.c#L12');
	assert.equal(sourceLink('x$&?y#z.c', 0, to), 'https://host/repo/blob/main/x%24%26%3Fy%23z.c#L1');
	for (const bad of ['', 'http://host/{file}', 'javascript:alert({line})', 'no address']) assert.equal(sourceLink('/a.c', 1, bad), '');
});

test('a sparkline has gaps where nothing was taken', () => {
	assert.equal(sparkPath([0, 1, null, 1], 1), 'M0.0,21.0L40.0,1.0M120.0,1.0h2');
	assert.equal(sparkPath([null, null], 1), '');
});
