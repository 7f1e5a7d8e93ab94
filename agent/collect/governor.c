// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/governor.h"

/* Grows by a quarter per period, only while twice that would still fit: no swinging around the
 * budget. */
#define GROWTH	     1.25
#define CALM_SHARE   0.5
#define NEAR_SHARE   0.9 /* of the budget: it is not to be passed */
#define SHARE_MIN    0.01

void governor_init(struct governor *governor, double budget_pct)
{
	*governor = (struct governor){ .budget_pct = budget_pct, .share = 1.0 };
}

void governor_set_budget(struct governor *governor, double budget_pct)
{
	if (budget_pct > governor->budget_pct)
		governor->share = 1.0;
	governor->budget_pct = budget_pct;
}

bool governor_judge(struct governor *governor, uint64_t now_ns, uint64_t cost_ns,
		    uint32_t cpu_count)
{
	double before = governor->share, elapsed;

	if (governor->last_ns && now_ns - governor->last_ns < GOVERNOR_PERIOD_NS)
		return false;
	elapsed = (double)(now_ns - governor->last_ns) * (cpu_count ? cpu_count : 1);
	if (governor->last_ns && cost_ns >= governor->last_cost_ns && governor->budget_pct > 0) {
		governor->last_pct =
			100.0 * (double)(cost_ns - governor->last_cost_ns) / elapsed;
		if (governor->last_pct > governor->budget_pct * NEAR_SHARE)
			governor->share /= 2;
		else if (governor->last_pct < governor->budget_pct * CALM_SHARE)
			governor->share *= GROWTH;
	}
	if (governor->share > 1.0)
		governor->share = 1.0;
	if (governor->share < SHARE_MIN)
		governor->share = SHARE_MIN;
	governor->last_ns = now_ns;
	governor->last_cost_ns = cost_ns;
	return governor->share != before;
}

uint64_t governor_threshold_ns(const struct governor *governor, uint64_t wanted_ns, uint64_t max_ns)
{
	double threshold_ns = (double)wanted_ns / governor->share;

	return threshold_ns < (double)max_ns ? (uint64_t)threshold_ns : max_ns;
}

uint64_t governor_calls_ns(const struct governor *governor, uint64_t window_ns)
{
	double budget_pct = governor->budget_pct > 0 ? governor->budget_pct : 100;

	return (uint64_t)((double)window_ns * governor->share * budget_pct / 200);
}

uint32_t governor_rate(const struct governor *governor, uint32_t wanted_hz)
{
	uint32_t rate = (uint32_t)((double)wanted_hz * governor->share + 0.5);
	uint32_t least = wanted_hz < GOVERNOR_RATE_MIN ? wanted_hz : GOVERNOR_RATE_MIN;

	return rate < least ? least : rate;
}
