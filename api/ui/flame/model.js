// SPDX-License-Identifier: Apache-2.0
// The profile as typed arrays. Input: format=flame (api/render/flame.c says what its columns mean). No DOM here.
/**
 * Nodes are in preorder: the descendants of node i are i+1 … last[i]-1. Values are in units of doc.scale.
 * w is the width on the graph, x the left edge, so that a node covers [x, x+w). The width is the total; of a
 * comparison it is the mean of both shares in percent, and delta the change of the share in percentage points.
 */
export function decodeFlame(doc) {
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
	m.w = m.total;
	if (doc.node.base) compareSides(m);
	const used = new Float64Array(count);
	const sizes = new Uint32Array(m.depth + 1);
	for (let i = 0; i < count; i++) {
		if (i) {
			m.x[i] = used[m.parent[i]];
			used[m.parent[i]] += m.w[i];
		}
		used[i] = m.x[i];
		sizes[m.level[i]]++;
	}
	m.rows = Array.from(sizes, size => new Uint32Array(size));
	sizes.fill(0);
	for (let i = 0; i < count; i++) m.rows[m.level[i]][sizes[m.level[i]]++] = i;
	return m;
}

/** Points that a share may differ by chance: three deviations of so many samples. 0 where samples are not what is counted. */
function chance(doc, share) {
	const before = doc.base?.quality?.samples, after = doc.quality?.samples, p = share / 100;
	return doc.type === 'cpu' && before > 0 && after > 0 ? 300 * Math.sqrt(Math.max(0, p * (1 - p)) * (1 / before + 1 / after)) : 0;
}

function compareSides(m) {
	const base = m.baseSelf = Float64Array.from(m.doc.node.base), total = m.baseTotal = new Float64Array(m.count);
	for (let i = m.count - 1; i >= 0; i--) {
		total[i] += base[i];
		if (i) total[m.parent[i]] += total[i];
	}
	const after = 100 / (m.total[0] || 1), before = 100 / (total[0] || 1);
	m.delta = Float64Array.from(total, (v, i) => m.total[i] * after - v * before);
	m.w = Float64Array.from(total, (v, i) => (m.total[i] * after + v * before) / 2);
	m.tint = Float64Array.from(m.delta, (v, i) => Math.abs(v) < chance(m.doc, m.w[i]) ? 0 : v);
	const sizes = Array.from(m.delta, Math.abs).filter((v, i) => m.w[i] > 0.1).sort((a, b) => a - b);
	m.deltaLimit = Math.max(0.1, sizes[Math.floor(sizes.length * 0.98)] || 0);
}

export const functionName = (m, f) => m.doc.strings[m.doc.fn.name[f]];
export const functionModule = (m, f) => m.doc.strings[m.doc.fn.module[f]];
export const functionFile = (m, f) => m.doc.strings[m.doc.fn.file[f]];
export const nodeName = (m, i) => functionName(m, m.fn[i]);

/** Index in row, at or behind `from`, of the first node whose right edge lies beyond x; what is near is found first. */
export function firstBeyond(m, row, x, from = 0) {
	const ends = at => m.x[row[at]] + m.w[row[at]] <= x;
	let low = from, step = 1;
	for (; low + step <= row.length && ends(low + step - 1); step *= 2) low += step;
	let high = Math.min(row.length, low + step - 1);
	while (low < high) {
		const mid = (low + high) >> 1;
		if (ends(mid)) low = mid + 1; else high = mid;
	}
	return low;
}

/** The node at a level that covers x, or -1. */
export function nodeAt(m, level, x) {
	const row = m.rows[level];
	if (!row) return -1;
	const at = firstBeyond(m, row, x);
	return at < row.length && m.x[row[at]] <= x ? row[at] : -1;
}

/** Self and total by function; a function that calls itself counts once per stack. */
export function functionTotals(m) {
	const self = new Float64Array(m.functions), total = new Float64Array(m.functions);
	const base = m.baseSelf ? new Float64Array(m.functions) : null;
	const open = new Uint32Array(m.functions), path = [];
	for (let i = 0; i < m.count; i++) {
		while (path.length > m.level[i]) open[m.fn[path.pop()]]--;
		const f = m.fn[i];
		self[f] += m.self[i];
		if (base) base[f] += m.baseSelf[i];
		if (open[f]++ === 0) total[f] += m.total[i];
		path.push(i);
	}
	return { self, total, base };
}

/** A test for names: text is literal and case does not matter, /…/ is a regular expression. */
export function nameTest(query) {
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
export function search(m, query) {
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
	nodes.sort((a, b) => m.w[b] - m.w[a] || a - b);
	return { hit, functions, value, nodes };
}

/** Children of a node, largest first as stored. */
export function children(m, i) {
	const out = [];
	for (let c = i + 1; c < m.last[i]; c = m.last[c]) out.push(c);
	return out;
}

export function stackOf(m, i) {
	const out = [];
	for (; i >= 0; i = m.parent[i]) out.unshift(i);
	return out;
}

/** FNV-1a of the UTF-8 bytes, the same as in api/render/colour.c and flame_tree.c. */
export function fnv(text) {
	let hash = 2166136261;
	for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 16777619);
	return hash >>> 0;
}

/** A frame's part of an address: 24 bits of its name as 4 characters of base64url. */
export function frameHash(name) {
	const hash = (fnv(name) >>> 24 ^ fnv(name)) & 0xffffff, letters =
		'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
	return [18, 12, 6, 0].map(shift => letters[hash >> shift & 63]).join('');
}

export const pathText = (m, i) => stackOf(m, i).slice(1).map(n => frameHash(nodeName(m, n))).join('');

/** The node that a path leads to in this profile, as far as it goes. */
export function nodeOfPath(m, text) {
	let at = 0;
	for (let k = 0; k + 4 <= text.length; k += 4) {
		const next = children(m, at).find(c => frameHash(nodeName(m, c)) === text.slice(k, k + 4));
		if (next === undefined) return { node: at, complete: false };
		at = next;
	}
	return { node: at, complete: true };
}
