// SPDX-License-Identifier: Apache-2.0
// Numbers and names for people. No DOM here.
'use strict';

const TIMES = [[1, 'ns'], [1e3, 'µs'], [1e6, 'ms'], [1e9, 's'], [6e10, 'min'], [3.6e12, 'h']];
const SIZES = [[1, 'B'], [1024, 'KiB'], [1024 ** 2, 'MiB'], [1024 ** 3, 'GiB'], [1024 ** 4, 'TiB']];

/** One unit for a whole column, chosen by its largest value. */
function unitFor(kind, largest) {
	const steps = kind === 'nanoseconds' ? TIMES : kind === 'bytes' ? SIZES : [[1, '']];
	let best = steps[0];
	for (const step of steps) if (Math.abs(largest) >= step[0]) best = step;
	return { size: best[0], name: best[1] };
}

function number(value, unit) {
	const amount = value / unit.size;
	const digits = unit.size === 1 ? 0 : Math.abs(amount) >= 100 ? 0 : Math.abs(amount) >= 10 ? 1 : 2;
	return amount.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })
		.replace(/,/g, '\u202f').replace('-', '\u2212');
}

function value(amount, kind) {
	const unit = unitFor(kind, amount);
	return number(amount, unit) + (unit.name ? '\u00a0' + unit.name : '');
}

function percent(part, whole) {
	if (!whole) return '0\u00a0%';
	const share = 100 * part / whole;
	if (share !== 0 && Math.abs(share) < 0.01) return '<\u00a00.01\u00a0%';
	return (Math.abs(share) >= 99.95 ? share.toFixed(0) : share.toFixed(Math.abs(share) >= 10 ? 1 : 2)) + '\u00a0%';
}

/** Control, bidirectional and zero-width characters are shown, never obeyed; length is bounded. */
function visible(name) {
	const shown = name.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
		c => '\\u{' + c.codePointAt(0).toString(16) + '}');
	return shown.length > 2000 ? shown.slice(0, 2000) + '…' : shown;
}

/** What stands between matching brackets, dropped: template arguments, parameters. */
function dropBrackets(name, open, close, mark) {
	let depth = 0, out = '';
	for (let i = 0; i < name.length; i++) {
		const c = name[i];
		if (c === open && !(open === '<' && /operator<?$/.test(out))) {
			if (depth++ === 0) out += mark;
		} else if (c === close && depth > 0 && name[i - 1] !== '-') {
			depth--;
		} else if (depth === 0) {
			out += c;
		}
	}
	return depth ? name : out;
}

/**
 * The part of a name that tells frames apart. Go drops the import path, C++ and Rust drop arguments and outer
 * namespaces, Java keeps Class.method; names with a file (Python, Node) keep the function.
 */
function shortName(name, kind) {
	if (name.startsWith('[')) return name;
	if (/ \S*[/\\]\S*:\d+$/.test(name)) return name.slice(0, name.lastIndexOf(' '));
	if (kind === 3 || /^[\w.~-]+(\/[\w.~-]+)+\.[\w(*]/.test(name)) {
		const slash = name.replace(/\[.*$/, '').lastIndexOf('/');
		return name.slice(slash + 1).replace(/\[\.\.\.\]/g, '[…]');
	}
	if (/^(?:_R|_ZN)/.test(name)) return name;
	if (name.includes('::')) {
		let short = name.replace(/::h[0-9a-f]{16}$/, '').replace(/\{\{closure\}\}/g, 'closure')
			.replace(/\(anonymous namespace\)/g, '{anon}');
		const rustImpl = /^<(.+?) as .+?>::(.+)$/.exec(short);
		if (rustImpl) short = rustImpl[1] + '::' + rustImpl[2];
		short = dropBrackets(short, '<', '>', '<…>');
		short = dropBrackets(short, '(', ')', '').replace(/ const$/, '').replace(/^.* (?=\S+::\S+$)/, '');
		const parts = short.split('::').filter(p => p && p !== '<…>');
		return parts.slice(-2).join('::') || name;
	}
	const java = /^((?:[a-z_][\w$]*[./])+)([A-Z][\w$]*(?:[.:]+[\w$<>]+)+)/.exec(name);
	if (java) return java[2];
	return name.includes('(') ? dropBrackets(name, '(', ')', '').trim() || name : name;
}

/** Seconds as people write them. */
function duration(seconds) {
	if (seconds < 60) return (seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)) + '\u00a0s';
	const minutes = Math.floor(seconds / 60);
	if (minutes < 60) return minutes + '\u00a0min\u00a0' + Math.round(seconds % 60) + '\u00a0s';
	return Math.floor(minutes / 60) + '\u00a0h\u00a0' + minutes % 60 + '\u00a0min';
}

if (typeof module !== 'undefined')
	module.exports = { unitFor, number, value, percent, visible, shortName, duration };
