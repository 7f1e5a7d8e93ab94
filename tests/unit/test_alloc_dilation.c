// SPDX-License-Identifier: Apache-2.0
/* The share of its own work that a program does in a probe window. Each case makes one way of
 * knowing the share the deciding one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/alloc/alloc_pace.h"

#define PERIODS	  40
#define PERIOD_NS NS_PER_S
#define WINDOW_NS (10 * NS_PER_MS)

/* CPUs that a program uses in a period and in a window, and CPUs that its probes use in a window. A
 * window has @allocations, spread evenly over @threads. */
struct program {
	double uses, uses_in_window, cost;
	uint64_t allocations, threads;
};

static struct alloc_period period_of(const struct program *program, bool light)
{
	return (struct alloc_period){ .period_ns = PERIOD_NS,
				      .window_ns = WINDOW_NS,
				      .period_cpu_ns = (uint64_t)(program->uses * PERIOD_NS),
				      .window_cpu_ns = (uint64_t)(program->uses_in_window * WINDOW_NS),
				      .hits = program->allocations,
				      .allocations = program->allocations,
				      .squares = program->allocations * program->allocations / program->threads,
				      .walk_ns = (uint64_t)(program->cost * WINDOW_NS),
				      .light = light };
}

/* After so many windows, every other a light one in which it does as @light. */
static double dilation(const struct program *heavy, const struct program *light)
{
	const struct alloc_costs costs = { .hit = 0 };
	struct alloc_pace pace;

	alloc_pace_init(&pace, &costs, 0.01);
	for (int i = 0; i < PERIODS; i++) {
		const bool is_light = light && i % 2;
		const struct alloc_period seen = period_of(is_light ? light : heavy, is_light);

		alloc_pace_judge(&pace, &seen);
	}
	return alloc_pace_dilation(&pace, false);
}

/* Four threads that are busy half of the time can do in a window what they do otherwise beside
 * probes that take two CPUs, and did three quarters of it, which is not known exactly. */
static void test_threads_have_time_each(void **state)
{
	const struct program many = {
		.uses = 2, .uses_in_window = 3.5, .cost = 2, .allocations = 1000, .threads = 4
	};
	const struct program one = {
		.uses = 2, .uses_in_window = 3.5, .cost = 2, .allocations = 1000, .threads = 1
	};

	assert_true(dilation(&many, NULL) > 0.8);
	assert_true(dilation(&one, NULL) < 0.78);
}

/* One thread allocates, another computes. */
static void test_what_was_used_was_there(void **state)
{
	const struct program program = {
		.uses = 2, .uses_in_window = 2, .cost = 0.1, .allocations = 1000, .threads = 1
	};

	assert_float_equal(dilation(&program, NULL), 0.95, 0.02);
}

/* It could do all of its work beside the probes, and did a fifth: it waits for one who waits for
 * it. */
static void test_what_it_did_is_known(void **state)
{
	const struct program program = {
		.uses = 0.5, .uses_in_window = 0.2, .cost = 0.1, .allocations = 1000, .threads = 1
	};

	assert_float_equal(dilation(&program, NULL), 0.2, 0.05);
}

/* That windows of all probes saw a hundredth of the allocations is chance where the program hardly
 * does anything. */
static void test_who_sleeps_is_not_behind(void **state)
{
	const struct program heavy = {
		.uses = 0.05, .uses_in_window = 0.05, .cost = 0.001, .allocations = 10, .threads = 1
	};
	const struct program light = { .uses = 0.05,
				       .uses_in_window = 0.05,
				       .cost = 0.001,
				       .allocations = 1000,
				       .threads = 1 };

	assert_true(dilation(&heavy, &light) > 0.9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_have_time_each),
		cmocka_unit_test(test_what_was_used_was_there),
		cmocka_unit_test(test_what_it_did_is_known),
		cmocka_unit_test(test_who_sleeps_is_not_behind),
	};

	return cmocka_run_group_tests_name("alloc_dilation", tests, NULL, NULL);
}
