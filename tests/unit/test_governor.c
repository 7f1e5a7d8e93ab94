// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/collect/governor.h"

#define SECOND 1000000000ull

/* One period of @pct of two CPUs. */
static bool period(struct governor *governor, uint64_t *now_ns, uint64_t *cost_ns, double pct)
{
	*now_ns += 10 * SECOND;
	*cost_ns += (uint64_t)(pct / 100 * 2 * 10 * (double)SECOND);
	return governor_judge(governor, *now_ns, *cost_ns, 2);
}

static void the_rate_backs_off_and_recovers(void **state)
{
	static const struct {
		double pct;
		uint32_t rate_hz; /* after the period, of 99 */
		bool changed;
	} steps[] = {
		{ 0.5, 99, false }, { 0.85, 99, false }, { 1.5, 50, true },  { 1.1, 25, true },
		{ 0.8, 25, false }, { 0.4, 31, true },	{ 0.4, 39, true },  { 0.6, 39, false },
		{ 0.1, 48, true },  { 0.1, 60, true },	{ 0.1, 76, true },  { 0.1, 94, true },
		{ 0.1, 99, true },  { 0.1, 99, false }, { 0.95, 50, true }, /* before it is passed */
	};
	uint64_t now_ns = 100 * SECOND, cost_ns = 7 * SECOND;
	struct governor governor;

	governor_init(&governor, 1.0);
	/* CPU time spent before the first judgement (loading, indexing) does not count. */
	assert_false(governor_judge(&governor, now_ns, cost_ns, 2));
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		bool changed = period(&governor, &now_ns, &cost_ns, steps[i].pct);

		if (changed != steps[i].changed ||
		    governor_rate(&governor, 99) != steps[i].rate_hz)
			fail_msg("step %zu: rate %u", i, governor_rate(&governor, 99));
	}
}

/* Half of the budget, and less of it when the whole has backed off. */
static void calls_have_half_of_the_budget(void **state)
{
	struct governor governor;

	governor_init(&governor, 10.0);
	assert_int_equal(governor_calls_ns(&governor, 1000000), 50000);
	assert_false(governor_judge(&governor, SECOND, 0, 1));
	assert_true(governor_judge(&governor, 11 * SECOND, 4 * SECOND, 1));
	assert_int_equal(governor_calls_ns(&governor, 1000000), 25000);
	governor_init(&governor, 0); /* none */
	assert_int_equal(governor_calls_ns(&governor, 1000000), 500000);
}

static void it_judges_once_per_period(void **state)
{
	struct governor governor;

	governor_init(&governor, 1.0);
	assert_false(governor_judge(&governor, SECOND, 0, 1));
	assert_false(governor_judge(&governor, 5 * SECOND, 4 * SECOND, 1));
	assert_int_equal(governor_rate(&governor, 100), 100);
	assert_true(governor_judge(&governor, 11 * SECOND, 4 * SECOND, 1));
	assert_int_equal(governor_rate(&governor, 100), 50);
}

static void there_is_always_some_rate(void **state)
{
	uint64_t now_ns = 0, cost_ns = 0;
	struct governor governor, unbounded;

	governor_init(&governor, 1.0);
	governor_init(&unbounded, 0);
	for (int i = 0; i < 30; i++) { /* down to a hundredth */
		uint64_t cost = cost_ns;

		(void)governor_judge(&unbounded, now_ns + 10 * SECOND, cost, 2);
		(void)period(&governor, &now_ns, &cost_ns, 90);
	}
	assert_int_equal(governor_rate(&governor, 99), GOVERNOR_RATE_MIN);
	assert_int_equal(governor_rate(&governor, 3), 3);
	assert_int_equal(governor_rate(&governor, 0), 0);
	assert_int_equal(governor_rate(&unbounded, 99), 99);
	assert_int_equal(governor_threshold_ns(&unbounded, 5000000, SECOND), 5000000);
	assert_in_range(governor_threshold_ns(&governor, 5000000, SECOND), 499999999, 500000001);
	assert_int_equal(governor_threshold_ns(&governor, 50000000, SECOND), SECOND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rate_backs_off_and_recovers),
		cmocka_unit_test(calls_have_half_of_the_budget),
		cmocka_unit_test(it_judges_once_per_period),
		cmocka_unit_test(there_is_always_some_rate),
	};

	return cmocka_run_group_tests_name("governor", tests, NULL, NULL);
}
