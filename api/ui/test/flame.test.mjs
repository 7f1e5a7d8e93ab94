// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { children, decodeFlame, frameHash, functionName, functionTotals, nodeAt, nodeName, nodeOfPath, pathText, search, stackOf } from '../flame/model.js';
import { invert, sandwich, transform } from '../flame/transform.js';

/** A document from [[frames root first, self]], in the order given (preorder of first sight). */
function documentOf(stacks, base) {
	const strings = ['', 'all'], fn = ['all'], node = { fn: [0], up: [0], self: [0] }, was = base && [0];
	const root = { kids: new Map(), self: 0 };
	const add = (list, member) => { for (const [frames, v] of list) {
		let at = root;
		for (const f of frames) { if (!at.kids.has(f)) at.kids.set(f, { kids: new Map(), self: 0, was: 0 }); at = at.kids.get(f); }
		at[member] = (at[member] || 0) + v;
	} };
	add(stacks, 'self');
	add(base || [], 'was');
	let before = 0;
	const walk = (at, level) => { for (const [name, kid] of at.kids) {
		if (!fn.includes(name)) { fn.push(name); strings.push(name); }
		node.fn.push(fn.indexOf(name));
		node.up.push(before + 1 - level);
		node.self.push(kid.self);
		was?.push(kid.was);
		before = level;
		walk(kid, level + 1);
	} };
	walk(root, 1);
	if (was) node.base = was;
	const zeros = fn.map(() => 0), sum = list => list.reduce((a, [, v]) => a + v, 0);
	return { type: 'cpu', unit: 'nanoseconds', scale: 10, total: sum(stacks), samples: sum(stacks), durationSeconds: 1, strings, node, pruned: { nodes: 0 }, quality: {},
		fn: { name: fn.map((_, i) => i + 1), module: zeros, file: zeros, line: zeros, kind: fn.map((_, i) => i ? 1 : 0) }, ...(base ? { base: { scale: 10, total: sum(base), durationSeconds: 1 } } : {}) };
}

const STACKS = [[['main'], 1], [['main', 'serve'], 2], [['main', 'serve', 'json'], 40], [['main', 'serve', 'json', 'copy'], 10], [['main', 'serve', 'db'], 20],
	[['main', 'gc'], 17], [['main', 'gc', 'copy'], 5], [['start', 'rec', 'rec', 'rec'], 4], [['start', 'rec'], 1]];
const model = () => decodeFlame(documentOf(STACKS));
const find = (m, name) => Array.from({ length: m.count }, (_, i) => i).find(i => nodeName(m, i) === name);
const sums = m => Object.fromEntries(Array.from({ length: m.functions }, (_, f) => [functionName(m, f), m]).map(([n], f) => [n, [functionTotals(m).self[f], functionTotals(m).total[f]]]));

test('totals are sums, recursion counts once', () => {
	const m = model();
	assert.equal(m.total[0], 100);
	assert.deepEqual(sums(m).copy, [15, 15]);
	assert.deepEqual(sums(m).rec, [5, 5]);
	assert.deepEqual(sums(m).serve, [2, 72]);
	assert.equal(m.depth, 4);
});

test('every node is found at its place', () => {
	const m = model();
	for (let i = 0; i < m.count; i++) if (m.total[i]) assert.equal(nodeAt(m, m.level[i], m.x[i] + m.total[i] / 2), i);
	assert.equal(nodeAt(m, 99, 0), -1);
	assert.equal(nodeAt(m, 4, 99.5), -1);
});

test('a path of hashes leads back, or to the nearest caller', () => {
	const m = model(), copy = find(m, 'copy');
	assert.deepEqual(nodeOfPath(m, pathText(m, copy)), { node: copy, complete: true });
	assert.deepEqual(nodeOfPath(m, frameHash('main') + frameHash('no such frame')), { node: find(m, 'main'), complete: false });
	assert.deepEqual(nodeOfPath(m, ''), { node: 0, complete: true });
	assert.deepEqual(stackOf(m, copy).map(i => nodeName(m, i)), ['all', 'main', 'serve', 'json', 'copy']);
});

test('search counts nested hits once and orders by size', () => {
	const m = model(), both = search(m, '/^(json|copy)$/');
	assert.equal(both.value, 55);
	assert.equal(nodeName(m, both.nodes[0]), 'json');
	assert.equal(search(m, 'COPY').functions, 1);
	assert.equal(search(m, 'none').value, 0);
	assert.throws(() => search(m, '/(/'));
});

test('filters keep what they say', () => {
	const kept = (...filters) => decodeFlame(transform(model(), filters)).total[0];
	assert.equal(kept({ kind: 'hide', name: 'json' }), 100);
	assert.equal(kept({ kind: 'drop', name: 'json' }), 50);
	assert.equal(kept({ kind: 'focus', name: 'copy' }), 15);
	assert.equal(kept({ kind: 'focus', name: 'copy' }, { kind: 'drop', name: 'gc' }), 10);
	const collapsed = decodeFlame(transform(model(), [{ kind: 'collapse', name: null }]));
	assert.equal(collapsed.total[0], 100);
	assert.equal(Array.from(collapsed.fn).filter(f => functionName(collapsed, f) === 'rec').length, 1);
});

test('callers and callees of a function sum to it', () => {
	const m = model(), f = m.fn[find(m, 'copy')], both = sandwich(m, f);
	const up = decodeFlame(both.callers);
	assert.deepEqual(children(up, 0).map(i => [nodeName(up, i), up.total[i]]), [['json', 10], ['gc', 5]]);
	assert.equal(decodeFlame(sandwich(m, m.fn[find(m, 'rec')]).callees).total[0], 5);
});

test('inverted, every function has what it spent itself, and its callers below it', () => {
	const m = model(), totals = functionTotals(m), turned = decodeFlame(invert(m));
	assert.equal(turned.total[0], 100);
	for (const i of children(turned, 0)) assert.equal(turned.total[i], totals.self[turned.fn[i]], nodeName(turned, i));
	const copy = children(turned, 0).find(i => nodeName(turned, i) === 'copy');
	assert.deepEqual(children(turned, copy).map(i => [nodeName(turned, i), turned.total[i]]), [['json', 10], ['gc', 5]]);
});

test('a comparison shows what vanished', () => {
	const m = decodeFlame(documentOf([[['main', 'a'], 75], [['main', 'new'], 25]], [[['main', 'a'], 50], [['main', 'gone'], 50]]));
	const delta = Object.fromEntries(Array.from({ length: m.count }, (_, i) => [nodeName(m, i), m.delta[i]]));
	assert.deepEqual([delta.a, delta.gone, delta.new], [25, -50, 25]);
	assert.equal(m.w[find(m, 'gone')], 25);
});

test('what samples may differ by chance has no colour', () => {
	const doc = documentOf([[['main', 'a'], 53], [['main', 'b'], 47]], [[['main', 'a'], 50], [['main', 'b'], 50]]);
	const tints = samples => Array.from(decodeFlame({ ...doc, type: 'cpu', base: { quality: { samples } }, quality: { samples } }).tint);
	assert.ok(tints(1000).every(v => v === 0));
	assert.ok(tints(100000).some(v => Math.abs(v - 3) < 1e-9));
	assert.ok(Array.from(decodeFlame({ ...doc, type: 'offcpu' }).tint).some(v => v));
});

test('an empty profile is one node', () => {
	const m = decodeFlame(documentOf([]));
	assert.equal(m.count, 1);
	assert.equal(m.total[0], 0);
	assert.equal(search(m, 'x').nodes.length, 0);
});
