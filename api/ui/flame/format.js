// SPDX-License-Identifier: Apache-2.0
// Numbers for people. No DOM here.
const TIMES = [[1, 'ns'], [1e3, 'µs'], [1e6, 'ms'], [1e9, 's'], [6e10, 'min'], [3.6e12, 'h']];
const SIZES = [[1, 'B'], [1024, 'KiB'], [1024 ** 2, 'MiB'], [1024 ** 3, 'GiB'], [1024 ** 4, 'TiB']];

/** One unit for a whole column, chosen by its largest value. */
export function unitFor(kind, largest) {
	const steps = kind === 'nanoseconds' ? TIMES : kind === 'bytes' ? SIZES : [[1, '']];
	let best = steps[0];
	for (const step of steps) if (Math.abs(largest) >= step[0]) best = step;
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

/** Seconds as people write them. */
export function duration(seconds) {
	if (seconds < 60) return (seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)) + '\u00a0s';
	const minutes = Math.floor(seconds / 60);
	if (minutes < 60) return minutes + '\u00a0min\u00a0' + Math.round(seconds % 60) + '\u00a0s';
	return Math.floor(minutes / 60) + '\u00a0h\u00a0' + minutes % 60 + '\u00a0min';
}
