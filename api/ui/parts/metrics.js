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

const LOST = ['ring_full', 'stack_ring_full', 'feed_full', 'perf_lost', 'task_event_lost', 'stack_missing'];

/** Sum over all label sets, or over those whose `label` is one of `values`. */
export function sum(metrics, name, label, values) {
	return (metrics[name] || []).filter(m => !label || values.includes(m.labels[label])).reduce((a, m) => a + m.value, 0);
}

/** The CPU seconds that the agent used since its start, its uptime, and the samples that it lost. */
export function agentCost(metrics) {
	const one = name => sum(metrics, name);
	return { cpu: one('profd_collector_cpu_seconds_total') + one('profd_server_cpu_seconds_total') + one('profd_bpf_run_seconds_total'), up: one('profd_uptime_seconds'),
		lost: sum(metrics, 'profd_stack_outcomes_total', 'outcome', LOST) };
}
