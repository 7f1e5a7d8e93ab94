/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters: outcomes, and what the programs themselves cost. Run-time statistics of the kernel
 * (kernel.bpf_stats_enabled) are a switch of the whole host and are never touched; instead every
 * PROF_COST_INTERVALth run takes the time at its start and end. */
#ifndef PROFD_BPF_STATS_BPF_H
#define PROFD_BPF_STATS_BPF_H

#include "bpf/maps.bpf.h"
#include "bpf/outcome.h"

static __always_inline struct prof_counters *counters_here(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline void outcome_count(uint32_t id)
{
	struct prof_counters *here = counters_here();

	if (here && id < PROF_OUTCOMES_MAX)
		here->outcomes[id]++;
}

struct cost_timer {
	struct prof_cost *cost;
	uint64_t start_ns; /* 0: this run is not timed */
};

static __always_inline struct cost_timer cost_begin(enum prof_program program)
{
	struct prof_counters *here = counters_here();
	struct cost_timer timer = { .cost = NULL };

	_Static_assert((PROF_PROGRAM_MAX & (PROF_PROGRAM_MAX - 1)) == 0, "for index_within()");
	if (here)
		timer.cost = &here->costs[index_within(program, PROF_PROGRAM_MAX)];
	if (timer.cost && timer.cost->runs++ % PROF_COST_INTERVAL == 0)
		timer.start_ns = bpf_ktime_get_ns();
	return timer;
}

static __always_inline void cost_end(const struct cost_timer *timer)
{
	if (timer->start_ns && timer->cost) {
		timer->cost->timed_ns += bpf_ktime_get_ns() - timer->start_ns;
		timer->cost->timed_runs++;
	}
}

#endif
