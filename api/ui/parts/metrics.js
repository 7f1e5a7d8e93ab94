// SPDX-License-Identifier: Apache-2.0
// Reads the Prometheus text format. No DOM here.

/** {name: [{labels, value}]} */
export function parseMetrics(text) {
	const out = Object.create(null);
	for (const line of text.split('\n')) {
		const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
		if (!found) continue;
		const labels = Object.create(null);
		for (const [, name, v] of (found[2] || '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
			labels[name] = v.replace(/\\(.)/g, (_, c) => c === 'n' ? '\n' : c);
		(out[found[1]] ||= []).push({ labels, value: Number(found[3]) });
	}
	return out;
}
