// SPDX-License-Identifier: Apache-2.0
// Profiles made of profiles: frames hidden, stacks dropped, callers and callees of one function. No DOM here.
import { functionName } from './model.js';

/** A tree that is built by function: parents before children, one slot per (parent, function). */
class Fold {
	constructor(m, fn) {
		this.m = m;
		this.fn = [fn];
		this.parent = [-1];
		this.self = [0];
		this.flags = [0];
		this.slots = new Map();
	}

	child(parent, fn, flags) {
		const key = parent * this.m.functions + fn;
		let at = this.slots.get(key);
		if (at === undefined) {
			at = this.fn.length;
			this.slots.set(key, at);
			this.fn.push(fn);
			this.parent.push(parent);
			this.self.push(0);
			this.flags.push(flags);
		}
		return at;
	}

	/** As a document: preorder, siblings by total, largest first. */
	document() {
		const count = this.fn.length, total = Float64Array.from(this.self);
		for (let i = count - 1; i > 0; i--) total[this.parent[i]] += total[i];
		const order = Uint32Array.from({ length: count - 1 }, (_, i) => i + 1).sort((a, b) => total[a] - total[b] || b - a);
		const first = new Int32Array(count).fill(-1), next = new Int32Array(count).fill(-1);
		for (const i of order) {
			if (total[i] === 0) continue;
			next[i] = first[this.parent[i]];
			first[this.parent[i]] = i;
		}
		const out = { fn: [], up: [], self: [], flags: [] };
		for (let at = 0, level = 0, before = -1; ;) {
			out.fn.push(this.fn[at]);
			out.up.push(before < 0 ? 0 : before + 1 - level);
			out.self.push(this.self[at]);
			out.flags.push(this.flags[at]);
			before = level;
			if (first[at] >= 0) { at = first[at]; level++; continue; }
			while (at > 0 && next[at] < 0) { at = this.parent[at]; level--; }
			if (at === 0) break;
			at = next[at];
		}
		return { ...this.m.doc, node: out, total: total[0] };
	}
}

/**
 * The same profile with some frames changed. Each filter is {kind, name}: `hide` merges the function's frames into
 * their callers, `drop` removes every stack that holds it, `focus` keeps only those, `collapse` merges a
 * function's direct calls of itself. Returns the new document; the kept share is its total.
 */
export function transform(m, filters) {
	const set = name => Uint8Array.from({ length: m.functions }, (_, f) => functionName(m, f) === name ? 1 : 0);
	const of = kind => filters.filter(f => f.kind === kind).map(f => set(f.name));
	const drop = of('drop'), hide = of('hide'), focus = of('focus'), collapse = filters.some(f => f.kind === 'collapse');
	const fold = new Fold(m, m.fn[0]), place = new Int32Array(m.count), inside = new Uint32Array(m.count);
	const all = (1 << focus.length) - 1;
	for (let i = 0; i < m.count; i++) {
		const f = m.fn[i], up = m.parent[i];
		if (up >= 0 && (place[up] < 0 || drop.some(s => s[f]))) { place[i] = -1; continue; }
		inside[i] = focus.reduce((bits, s, k) => bits | s[f] << k, up >= 0 ? inside[up] : 0);
		if (up >= 0) {
			const merged = hide.some(s => s[f]) || collapse && fold.fn[place[up]] === f;
			place[i] = merged ? place[up] : fold.child(place[up], f, m.flags ? m.flags[i] : 0);
		}
		if (inside[i] === all) fold.self[place[i]] += m.self[i];
	}
	return fold.document();
}

/** Callees below a function and its callers above it, as two documents whose root is the function. */
export function sandwich(m, f) {
	const down = new Fold(m, f), up = new Fold(m, f), place = new Int32Array(m.count);
	for (let i = 0, free = 0; i < m.count; i++) {
		/* Inside its own recursion it was counted already. */
		if (m.fn[i] !== f || i < free) continue;
		free = m.last[i];
		place[i] = 0;
		down.self[0] += m.self[i];
		for (let d = i + 1; d < free; d++) {
			place[d] = down.child(place[m.parent[d]], m.fn[d], 0);
			down.self[place[d]] += m.self[d];
		}
		let at = 0;
		for (let p = m.parent[i]; p > 0; p = m.parent[p]) at = up.child(at, m.fn[p], 0);
		up.self[at] += m.total[i];
	}
	return { callees: down.document(), callers: up.document() };
}

/** Turned over: the functions that spent it themselves at the root, their callers below them. */
export function invert(m) {
	const fold = new Fold(m, m.fn[0]);
	for (let i = m.count === 1 ? 0 : 1; i < m.count; i++) {
		if (!m.self[i]) continue;
		let at = 0;
		for (let p = i; p > 0; p = m.parent[p]) at = fold.child(at, m.fn[p], m.flags ? m.flags[p] : 0);
		fold.self[at] += m.self[i];
	}
	fold.self[0] += m.count > 1 ? m.self[0] : 0;
	return fold.document();
}
