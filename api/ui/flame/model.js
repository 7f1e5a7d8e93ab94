// SPDX-License-Identifier: Apache-2.0
// The profile as typed arrays. Input: format=flame (api/render/flame.c says what its columns mean). No DOM here.
'use strict';

/**
 * Nodes are in preorder: the descendants of node i are i+1 … last[i]-1. Values are in units of doc.scale.
 * x is the left edge, so that a node covers [x, x+total).
 */
function decodeFlame(doc) {
	const count = doc.node.fn.length;
	const m = {
		doc, count,
		fn: Uint32Array.from(doc.node.fn),
		level: new Uint32Array(count),
		parent: new Int32Array(count).fill(-1),
		last: new Uint32Array(count),
		self: Float64Array.from(doc.node.self),
		total: new Float64Array(count),
		x: new Float64Array(count),
		flags: doc.node.flags ? Uint8Array.from(doc.node.flags) : null,
		functions: doc.fn.name.length,
		depth: 0,
	};
	const path = [];
	for (let i = 0; i < count; i++) {
		const level = i ? m.level[i - 1] + 1 - doc.node.up[i] : 0;
		m.level[i] = level;
		m.depth = Math.max(m.depth, level);
		for (; path.length > level;) m.last[path.pop()] = i;
		if (level > 0) m.parent[i] = path[level - 1];
		path[level] = i;
	}
	while (path.length) m.last[path.pop()] = count;
	for (let i = count - 1; i >= 0; i--) {
		m.total[i] += m.self[i];
		if (i) m.total[m.parent[i]] += m.total[i];
	}
	const used = new Float64Array(count);
	const sizes = new Uint32Array(m.depth + 1);
	for (let i = 0; i < count; i++) {
		if (i) {
			m.x[i] = used[m.parent[i]];
			used[m.parent[i]] += m.total[i];
		}
		used[i] = m.x[i];
		sizes[m.level[i]]++;
	}
	m.rows = Array.from(sizes, size => new Uint32Array(size));
	sizes.fill(0);
	for (let i = 0; i < count; i++) m.rows[m.level[i]][sizes[m.level[i]]++] = i;
	return m;
}

const functionName = (m, f) => m.doc.strings[m.doc.fn.name[f]];
const functionModule = (m, f) => m.doc.strings[m.doc.fn.module[f]];
const functionFile = (m, f) => m.doc.strings[m.doc.fn.file[f]];
const nodeName = (m, i) => functionName(m, m.fn[i]);

/** Index in row of the first node whose right edge lies beyond x. */
function firstBeyond(m, row, x) {
	let low = 0, high = row.length;
	while (low < high) {
		const mid = (low + high) >> 1;
		if (m.x[row[mid]] + m.total[row[mid]] > x) high = mid; else low = mid + 1;
	}
	return low;
}

/** The node at a level that covers x, or -1. */
function nodeAt(m, level, x) {
	const row = m.rows[level];
	if (!row) return -1;
	const at = firstBeyond(m, row, x);
	return at < row.length && m.x[row[at]] <= x ? row[at] : -1;
}

/** Self and total by function; a function that calls itself counts once per stack. */
function functionTotals(m) {
	const self = new Float64Array(m.functions), total = new Float64Array(m.functions);
	const open = new Uint32Array(m.functions), path = [];
	for (let i = 0; i < m.count; i++) {
		while (path.length > m.level[i]) open[m.fn[path.pop()]]--;
		const f = m.fn[i];
		self[f] += m.self[i];
		if (open[f]++ === 0) total[f] += m.total[i];
		path.push(i);
	}
	return { self, total };
}

/** A test for names: text is literal and case does not matter, /…/ is a regular expression. */
function nameTest(query) {
	const regex = /^\/(.+)\/?$/.exec(query);
	if (regex && query.startsWith('/')) {
		const body = regex[1].endsWith('/') ? regex[1].slice(0, -1) : regex[1];
		const test = new RegExp(body, 'i');
		return name => test.test(name.slice(0, 500));
	}
	const text = query.toLowerCase();
	return name => name.toLowerCase().includes(text);
}

/**
 * Which functions match, the value under matching frames without counting nested ones twice, and the matching
 * nodes, largest first. Throws on a bad expression or one that takes longer than a quarter of a second.
 */
function search(m, query) {
	const test = nameTest(query), hit = new Uint8Array(m.functions), end = Date.now() + 250;
	let functions = 0, value = 0;
	for (let f = 0; f < m.functions; f++) {
		if ((f & 63) === 0 && Date.now() > end) throw new Error('takes too long');
		if (test(functionName(m, f))) { hit[f] = 1; functions++; }
	}
	const nodes = [];
	for (let i = 0, free = 0; i < m.count; i++) {
		if (!hit[m.fn[i]]) continue;
		nodes.push(i);
		if (i >= free) { value += m.total[i]; free = m.last[i]; }
	}
	nodes.sort((a, b) => m.total[b] - m.total[a] || a - b);
	return { hit, functions, value, nodes };
}

/** Children of a node, largest first as stored. */
function children(m, i) {
	const out = [];
	for (let c = i + 1; c < m.last[i]; c = m.last[c]) out.push(c);
	return out;
}

function stackOf(m, i) {
	const out = [];
	for (; i >= 0; i = m.parent[i]) out.unshift(i);
	return out;
}

/** FNV-1a of the UTF-8 bytes, the same as in api/render/colour.c and flame_tree.c. */
function fnv(text) {
	let hash = 2166136261;
	for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 16777619);
	return hash >>> 0;
}

/** A frame's part of an address: 24 bits of its name as 4 characters of base64url. */
function frameHash(name) {
	const hash = (fnv(name) >>> 24 ^ fnv(name)) & 0xffffff, letters =
		'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
	return [18, 12, 6, 0].map(shift => letters[hash >> shift & 63]).join('');
}

const pathText = (m, i) => stackOf(m, i).slice(1).map(n => frameHash(nodeName(m, n))).join('');

/** The node that a path leads to in this profile, as far as it goes. */
function nodeOfPath(m, text) {
	let at = 0;
	for (let k = 0; k + 4 <= text.length; k += 4) {
		const next = children(m, at).find(c => frameHash(nodeName(m, c)) === text.slice(k, k + 4));
		if (next === undefined) return { node: at, complete: false };
		at = next;
	}
	return { node: at, complete: true };
}

/**
 * The same profile with some frames changed. Each filter is {kind, name}: `hide` merges the function's frames into
 * their callers, `drop` removes every stack that holds it, `focus` keeps only those, `collapse` merges a
 * function's direct calls of itself. Returns the new document; the kept share is its total.
 */
function transform(m, filters) {
	const functions = name => {
		const out = new Uint8Array(m.functions);
		for (let f = 0; f < m.functions; f++) if (functionName(m, f) === name) out[f] = 1;
		return out;
	};
	const sets = filters.map(f => ({ kind: f.kind, set: f.name ? functions(f.name) : null }));
	const root = { fn: m.fn[0], self: 0, kids: new Map(), flags: 0 };
	const place = new Array(m.count), focus = sets.filter(s => s.kind === 'focus');
	place[0] = root;
	for (let i = 0; i < m.count; i++) {
		const f = m.fn[i], up = m.parent[i];
		const above = up < 0 ? { node: root, inside: 0 } : place[up];
		if (up >= 0 && above === null) { place[i] = null; continue; }
		if (i && sets.some(s => s.kind === 'drop' && s.set[f])) { place[i] = null; continue; }
		let inside = above.inside | 0;
		focus.forEach((s, k) => { if (s.set[f]) inside |= 1 << k; });
		let node = above.node;
		const merged = i && sets.some(s => s.kind === 'hide' && s.set[f] || s.kind === 'collapse' && node.fn === f);
		if (i && !merged) {
			let kid = node.kids.get(f);
			if (!kid) node.kids.set(f, kid = { fn: f, self: 0, kids: new Map(), flags: m.flags ? m.flags[i] : 0 });
			node = kid;
		}
		place[i] = { node, inside };
		if (m.self[i] && inside === (1 << focus.length) - 1) node.self += m.self[i];
	}
	const sum = node => {
		const stack = [[node, [...node.kids.values()], 0]];
		node.total = node.self;
		while (stack.length) {
			const top = stack[stack.length - 1];
			if (top[2] < top[1].length) {
				const kid = top[1][top[2]++];
				kid.total = kid.self;
				stack.push([kid, [...kid.kids.values()], 0]);
			} else {
				stack.pop();
				if (stack.length) stack[stack.length - 1][0].total += top[0].total;
			}
		}
	};
	sum(root);
	const out = { fn: [], up: [], self: [], flags: [] };
	let before = -1;
	const todo = [[root, 0]];
	while (todo.length) {
		const [node, level] = todo.pop();
		out.fn.push(node.fn);
		out.up.push(before < 0 ? 0 : before + 1 - level);
		out.self.push(node.self);
		out.flags.push(node.flags);
		before = level;
		[...node.kids.values()].filter(k => k.total !== 0).sort((a, b) => a.total - b.total)
			.forEach(k => todo.push([k, level + 1]));
	}
	return { ...m.doc, node: out, total: root.total };
}

/** Callers above and callees below a function, as two documents whose roots are the function. */
function sandwich(m, f) {
	const make = fn => ({ fn, self: 0, kids: new Map() });
	const down = make(f), up = make(f);
	const covered = new Int32Array(m.count).fill(-1);
	for (let i = 0; i < m.count; i++) {
		if (m.fn[i] !== f) continue;
		if (m.parent[i] >= 0 && covered[i] >= 0) continue;
		for (let d = i; d < m.last[i]; d++) covered[d] = i;
		const place = new Map([[i, down]]);
		down.self += m.self[i];
		for (let d = i + 1; d < m.last[i]; d++) {
			const parent = place.get(m.parent[d]);
			let kid = parent.kids.get(m.fn[d]);
			if (!kid) parent.kids.set(m.fn[d], kid = make(m.fn[d]));
			kid.self += m.self[d];
			place.set(d, kid);
		}
		let node = up;
		for (let p = m.parent[i]; p > 0; p = m.parent[p]) {
			let kid = node.kids.get(m.fn[p]);
			if (!kid) node.kids.set(m.fn[p], kid = make(m.fn[p]));
			node = kid;
		}
		node.self += m.total[i];
	}
	return { callees: documentOf(m, down), callers: documentOf(m, up) };
}

function documentOf(m, root) {
	const order = [], todo = [root];
	while (todo.length) {
		const node = todo.pop();
		order.push(node);
		todo.push(...node.kids.values());
	}
	for (const node of order) node.total = node.self;
	const parents = new Map();
	for (const node of order) for (const kid of node.kids.values()) parents.set(kid, node);
	for (let i = order.length - 1; i > 0; i--) parents.get(order[i]).total += order[i].total;
	const out = { fn: [], up: [], self: [] };
	let before = -1;
	const walk = [[root, 0]];
	while (walk.length) {
		const [node, level] = walk.pop();
		out.fn.push(node.fn);
		out.up.push(before < 0 ? 0 : before + 1 - level);
		out.self.push(node.self);
		before = level;
		[...node.kids.values()].sort((a, b) => a.total - b.total).forEach(k => walk.push([k, level + 1]));
	}
	return { ...m.doc, node: out, total: root.total };
}

if (typeof module !== 'undefined')
	module.exports = { decodeFlame, functionTotals, search, nodeAt, children, stackOf, fnv, frameHash, pathText,
		nodeOfPath, transform, sandwich, nodeName, functionName };
