// SPDX-License-Identifier: Apache-2.0
// Numbers for people. No DOM here.
const TIMES = [[1, 'ns'], [1e3, 'µs'], [1e6, 'ms'], [1e9, 's'], [6e10, 'min'], [3.6e12, 'h']];
const SIZES = [[1, 'B'], [1024, 'KiB'], [1024 ** 2, 'MiB'], [1024 ** 3, 'GiB'], [1024 ** 4, 'TiB']];

/** Types that say what there is, not what happens in a time. */
export const LEVELS = ['memory', 'goroutine'];

export const capital = text => text.charAt(0).toUpperCase() + text.slice(1);

/** One unit for a whole column, chosen by its largest value. */
export function unitFor(kind, largest) {
	const steps = kind === 'nanoseconds' ? TIMES : kind === 'bytes' ? SIZES : [[1, '']];
	let best = steps[0];
	for (const step of steps) if (Math.abs(largest) >= 0.9995 * step[0]) best = step; // 999.6 ms would be written as 1,000
	return { size: best[0], name: best[1] };
}

export function number(value, unit) {
	const amount = value / unit.size;
	const digits = unit.size === 1 || amount === 0 ? 0 : Math.abs(amount) >= 100 ? 0 : Math.abs(amount) >= 10 ? 1 : 2;
	return amount.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })
		.replace(/,/g, '\u202f').replace('-', '\u2212');
}

export function value(amount, kind) {
	const unit = unitFor(kind, amount);
	return number(amount, unit) + (unit.name ? '\u00a0' + unit.name : '');
}

export function percent(part, whole) {
	if (!whole || !part) return '0\u00a0%';
	const share = 100 * part / whole;
	if (Math.abs(share) < 0.01) return '<\u00a00.01\u00a0%';
	return (Math.abs(share) >= 99.95 ? share.toFixed(0) : share.toFixed(Math.abs(share) >= 10 ? 1 : 2)) + '\u00a0%';
}

/** A change in percentage points, with its direction as a glyph as well. */
export function points(delta) {
	if (Math.abs(delta) < 0.005) return '= 0\u00a0pp';
	const text = Math.abs(delta).toFixed(Math.abs(delta) >= 10 ? 1 : 2) + '\u00a0pp';
	return delta > 0 ? '▲\u00a0+' + text : '▼\u00a0\u2212' + text;
}

const SPANS = [[86400, 'd', 3600, 'h'], [3600, 'h', 60, 'min'], [60, 'min', 1, 's']];

/** Seconds as people write them: the largest unit and, unless it is none, the one below. */
export function duration(seconds) {
	if (seconds > 0 && seconds < 0.95) return Math.max(1, Math.round(seconds * 1000)) + '\u00a0ms';
	if (seconds < 59.5) return (seconds < 9.95 ? Math.round(seconds * 10) / 10 : Math.round(seconds)) + '\u00a0s';
	const [size, name, part, partName] = SPANS.find(([step]) => Math.round(seconds) >= step), parts = Math.round(seconds / part), rest = parts % (size / part);
	return Math.floor(parts * part / size) + '\u00a0' + name + (rest ? `\u00a0${rest}\u00a0${partName}` : '');
}
