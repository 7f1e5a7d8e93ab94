// SPDX-License-Identifier: Apache-2.0
// The last hour as one small line; minutes without data are gaps.
import { svg } from '../flame/dom.js';

const WIDTH = 120, HEIGHT = 22;

/** Path of the values, null = gap; a lone point is drawn as a short dash. */
export function sparkPath(values, most) {
	const step = WIDTH / Math.max(1, values.length - 1);
	let path = '';
	values.forEach((v, i) => {
		if (v === null) return;
		const y = (1 + (HEIGHT - 2) * (1 - v / most)).toFixed(1), joined = i > 0 && values[i - 1] !== null;
		path += `${joined ? 'L' : 'M'}${(i * step).toFixed(1)},${y}`;
		if (!joined && (values[i + 1] ?? null) === null) path += 'h2';
	});
	return path;
}

/** line: {values: CPUs or null} of the API, or null. */
export function sparkline(line) {
	const known = (line?.values || []).filter(v => v !== null);
	if (!known.length) return '';
	const most = Math.max(...known, 0.01);
	return svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'spark', role: 'img', 'aria-label': `CPUs in the last hour, highest ${Math.max(...known).toFixed(2)}` },
		svg('path', { d: sparkPath(line.values, most) }));
}
