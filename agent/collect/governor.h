/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps profd's overhead within its budget. The sampling rate is halved while the cost of the last
 * period is near the budget, and grows back slowly when the cost is well below. Pure. */
#ifndef PROFD_COLLECT_GOVERNOR_H
#define PROFD_COLLECT_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define GOVERNOR_PERIOD_NS 10000000000ull
#define GOVERNOR_RATE_MIN  5u /* Hz, never below */

struct governor {
	double budget_pct;    /* of all CPUs; 0 = no bound */
	double share;	      /* of the rate asked for, 0…1 */
	uint64_t last_ns;     /* monotonic time and cost at the last judgement; 0 = none yet */
	uint64_t last_cost_ns;
	double last_pct;      /* cost of the last period */
};

void governor_init(struct governor *governor, double budget_pct);
/* A larger budget lifts the restraint that a smaller one put on the rate. */
void governor_set_budget(struct governor *governor, double budget_pct);
/* @cost_ns CPU time of the collector and the BPF programs since their start. True if the share
 * changed; judges at most once per period. */
bool governor_judge(struct governor *governor, uint64_t now_ns, uint64_t cost_ns,
		    uint32_t cpu_count);
/* The length from which all waits are recorded when @wanted_ns is asked for, at most @max_ns. */
uint64_t governor_threshold_ns(const struct governor *governor, uint64_t wanted_ns,
			       uint64_t max_ns);
/* CPU time that recording of read and write calls may take in @window_ns: half of the budget. The
 * other half is for processing them. */
uint64_t governor_calls_ns(const struct governor *governor, uint64_t window_ns);
/* The rate to sample at when @wanted_hz is asked for (0 stays 0). */
uint32_t governor_rate(const struct governor *governor, uint32_t wanted_hz);

#endif
