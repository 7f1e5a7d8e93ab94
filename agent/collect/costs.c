// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/costs.h"

#include <sys/resource.h>

static uint64_t own_cpu_ns(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage) < 0)
		return 0;
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

/* Increments of all outcomes since they were last written. False: there was no room. */
static bool feed_outcomes(struct collector *c, const struct bpf_costs *costs, uint64_t now_ns)
{
	uint64_t increments[PROF_OUTCOMES_MAX];

	for (size_t i = 0; i < PROF_OUTCOMES_MAX; i++)
		increments[i] = costs->outcomes[i] + c->own_outcomes[i] - c->last_outcomes[i];
	if (feed_write_outcomes(&c->feed, now_ns, increments) < 0)
		return false; /* they are in the next ones */
	for (size_t i = 0; i < PROF_OUTCOMES_MAX; i++)
		c->last_outcomes[i] += increments[i];
	if (increments[OUTCOME_task_event_lost])
		c->rescan_due = true;
	return true;
}

uint64_t costs_feed(struct collector *c, uint64_t now_ns)
{
	struct bpf_costs costs = { 0 };
	uint64_t cpu_ns = own_cpu_ns();

	/* A clock record says that everything before it was sent. */
	if (c->bpf && bpf_agent_costs(c->bpf, &costs) == 0 && !feed_outcomes(c, &costs, now_ns))
		return cpu_ns + costs.run_ns;
	if (feed_write_clock(&c->feed, cpu_ns, &costs) < 0)
		c->own_outcomes[OUTCOME_feed_full]++;
	return cpu_ns + costs.run_ns;
}
