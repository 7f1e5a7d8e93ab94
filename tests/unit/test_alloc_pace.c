// SPDX-License-Identifier: Apache-2.0
/* When allocators are probed and for how long, within a budget; what a window stands for. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/cleanup.h"
#include "agent/collect/alloc/alloc_pace.h"

#define WALK_NS 4000 /* of a sample */

static const struct alloc_costs costs = { .hit = 500, .returned = 300 };

/* A period of a single busy thread that makes @per_s calls a second when left alone. */
static struct alloc_period busy(const struct alloc_pace *pace, double per_s)
{
	double window = (double)pace->next_window_ns, period = (double)pace->next_period_ns;
	/* work and probes share the window */
	double calls = window / (1e9 / per_s + 500 + 400);

	if (pace->next_window_ns == pace->next_period_ns)
		period = window;
	return (struct alloc_period){ .period_ns = (uint64_t)period,
				      .window_ns = (uint64_t)window,
				      .period_cpu_ns = (uint64_t)period,
				      .window_cpu_ns = (uint64_t)window,
				      .hits = (uint64_t)calls,
				      .allocations = (uint64_t)calls,
				      .squares = (uint64_t)(calls * calls),
				      .sampled = (uint64_t)(calls / 10),
				      .walk_ns = (uint64_t)(calls / 10) * WALK_NS };
}

static void test_pace_keeps_the_budget(void **state)
{
	static const double rates[] = { 1.2e4, 2e4, 2e5, 2e6, 1e7 };

	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		struct alloc_pace pace;
		double cost = 0, cpu = 0, seen_calls = 0, calls = 0;

		alloc_pace_init(&pace, &costs, 0.01);
		for (int k = 0; k < 100; k++) {
			struct alloc_period seen = busy(&pace, rates[i]);

			if (k >= 10) {
				cost += alloc_pace_cost_ns(&pace, &seen);
				cpu += (double)seen.period_cpu_ns;
				seen_calls += (double)seen.hits * alloc_pace_weight(&pace, &seen);
				calls += rates[i] * (double)seen.period_ns / 1e9;
			}
			alloc_pace_judge(&pace, &seen);
		}
		if (cost / cpu > 0.0125)
			fail_msg("%.0f calls a second cost %.2f %%", rates[i], 100 * cost / cpu);
		/* The estimate adds again the time that the probes took from the program. */
		if (fabs(seen_calls / calls - 1) > 0.05)
			fail_msg("%.0f calls a second: %.3f of them", rates[i], seen_calls / calls);
	}
}

static void test_pace_of_a_waiting_program(void **state)
{
	struct alloc_pace pace;

	alloc_pace_init(&pace, &costs, 0.01);
	for (int k = 0; k < 50; k++) {
		/* 20,000 calls a second whatever happens; 2 % of a CPU without probes */
		double calls = 2e4 * (double)pace.next_window_ns / 1e9;
		struct alloc_period seen = { .period_ns = pace.next_period_ns,
					     .window_ns = pace.next_window_ns,
					     .period_cpu_ns = pace.next_period_ns / 50,
					     .window_cpu_ns = pace.next_window_ns / 50 +
							      (uint64_t)(calls * 900),
					     .hits = (uint64_t)calls,
					     .allocations = (uint64_t)calls,
					     .squares = (uint64_t)(calls * calls),
					     .sampled = (uint64_t)(calls / 10),
					     .walk_ns = (uint64_t)(calls / 10) * WALK_NS };

		alloc_pace_judge(&pace, &seen);
		assert_true(alloc_pace_dilation(&pace, false) > 0.99);
		assert_true(pace.next_period_ns >= pace.next_window_ns);
	}
	assert_false(pace.full);
}

/* A program that sleeps for most of the time and allocates seldom: its probes stay, whatever share
 * of its little CPU time they take. */
static void test_pace_stays_in_a_sleeper(void **state)
{
	struct alloc_pace pace;

	alloc_pace_init(&pace, &costs, 0.01);
	for (int k = 0; k < 10; k++) {
		const double calls = 1000 * (double)pace.next_window_ns / 1e9;
		const struct alloc_period seen = { .period_ns = pace.next_period_ns,
						   .window_ns = pace.next_window_ns,
						   .period_cpu_ns = pace.next_period_ns / 50,
						   .window_cpu_ns = pace.next_window_ns / 50,
						   .hits = (uint64_t)calls,
						   .allocations = (uint64_t)calls,
						   .squares = (uint64_t)(calls * calls),
						   .sampled = (uint64_t)calls,
						   .walk_ns = (uint64_t)calls * WALK_NS };

		alloc_pace_judge(&pace, &seen);
	}
	assert_true(pace.full);
}

static void test_pace_stays_where_it_is_cheap(void **state)
{
	struct alloc_pace pace;
	struct alloc_period seen;

	alloc_pace_init(&pace, &costs, 0.01);
	for (int k = 0; k < 20; k++) {
		seen = busy(&pace, 1000);
		alloc_pace_judge(&pace, &seen);
	}
	assert_true(pace.full);
	assert_float_equal(alloc_pace_weight(&pace, &seen), 1, 1e-9);
	/* and leaves when the program makes three times as many as fit the budget */
	assert_in_range(alloc_pace_hits_granted(&pace), 3 * 10e6 / costs.hit,
			(3 * 10e6 + 2e6) / costs.hit);
}

/* Open probes stay for a dear second among cheap ones, and go when that goes on. */
static void test_pace_forgives_a_dear_second(void **state)
{
	struct alloc_pace pace;
	struct alloc_period seen;
	int dear = 0;

	alloc_pace_init(&pace, &costs, 0.01);
	for (int k = 0; k < 20; k++) {
		seen = busy(&pace, k == 12 || k == 16 ? 3e4 : 1000);
		alloc_pace_judge(&pace, &seen);
		if (k >= 10)
			assert_true(pace.full);
	}
	for (; pace.full && dear < 20; dear++) {
		seen = busy(&pace, 3e4);
		alloc_pace_judge(&pace, &seen);
	}
	assert_in_range(dear, 3, 5);
	/* what it was too much is paid back */
	assert_true(pace.next_window_ns < pace.next_period_ns / 10);
}

/* Probes cost until the kernel has taken them away; what it did in the window is another matter. */
static void test_pace_pays_for_hits_outside(void **state)
{
	struct alloc_pace without, with;

	alloc_pace_init(&without, &costs, 0.01);
	alloc_pace_init(&with, &costs, 0.01);
	for (int k = 0; k < 20; k++) {
		struct alloc_period seen = busy(&without, 1000000), more = busy(&with, 1000000);

		more.hits_outside = 3 * more.hits;
		alloc_pace_judge(&without, &seen);
		alloc_pace_judge(&with, &more);
	}
	assert_true(with.cost_ns / with.period_cpu_ns < 0.0115);
	assert_true(with.next_period_ns > 2 * without.next_period_ns);
	assert_float_equal(alloc_pace_dilation(&with, false), alloc_pace_dilation(&without, false), 0.02);
}

/* An idle program gets few hits: it may begin to allocate at any moment, and has used no CPU time
 * of which the probes may take a share. */
static void test_pace_grants_little_to_the_idle(void **state)
{
	struct alloc_pace pace;
	struct alloc_period seen = { .period_ns = ALLOC_PERIOD_MIN_NS,
				     .window_ns = ALLOC_WINDOW_SCOUT_NS };

	alloc_pace_init(&pace, &costs, 0.01);
	assert_int_equal(alloc_pace_hits_granted(&pace), 0);
	alloc_pace_judge(&pace, &seen);
	assert_true(pace.next_window_ns > ALLOC_PERIOD_MIN_NS / 2);
	assert_in_range(alloc_pace_hits_granted(&pace), 1, 5e6 / costs.hit);
	/* a short window ends by itself */
	seen = busy(&pace, 1000000);
	alloc_pace_judge(&pace, &seen);
	assert_int_equal(alloc_pace_hits_granted(&pace), 0);
}

/* Callers that allocate little are sampled beside the gap: that says nothing about it. */
static void test_gap_without_the_closer(void **state)
{
	struct alloc_period seen = { .period_ns = NS_PER_S,
				     .window_ns = 6 * NS_PER_MS,
				     .period_cpu_ns = NS_PER_S,
				     .hits = 300,
				     .allocations = 300,
				     .sampled = 100,
				     .closer = 64,
				     .light = true };
	struct alloc_pace pace;

	alloc_pace_init(&pace, &costs, 0.01);
	for (unsigned k = 0; k < 20; k++)
		alloc_pace_judge(&pace, &seen);
	assert_int_equal(pace.gap_bytes, ALLOC_GAP_FIRST);
	seen.closer = 0;
	alloc_pace_judge(&pace, &seen);
	assert_true(pace.gap_bytes > ALLOC_GAP_FIRST);
}

/* Probes were measured at a busier moment than they are used at: the program has done something all
 * the same. */
static void test_costs_that_cannot_be(void **state)
{
	const struct alloc_costs dear = { .hit = 1000, .returned = 600 };
	/* 4 ms for probes, 1.5 ms for what the program does: it sleeps the rest of the time */
	const struct alloc_period seen = { .period_ns = 400 * NS_PER_MS, .period_cpu_ns = 100 * NS_PER_MS,
					   .window_ns = 6 * NS_PER_MS, .window_cpu_ns = 5500000, .hits = 8000,
					   .allocations = 8000, .squares = 64000000, .light = true };
	struct alloc_pace pace;

	alloc_pace_init(&pace, &dear, 0.01);
	for (unsigned k = 0; k < 20; k++)
		alloc_pace_judge(&pace, &seen);
	assert_true(alloc_pace_cost_ns(&pace, &seen) < (double)seen.window_cpu_ns);
	assert_true(alloc_pace_dilation(&pace, true) > 0.4);
}

#define BURST 40000u /* calls at once, every second */

/* The first burst is cut, those that follow are seen whole: what they stand for would be wrong
 * else. */
static void test_pace_learns_bursts(void **state)
{
	struct alloc_period seen = { .period_ns = NS_PER_S,
				     .period_cpu_ns = 300 * NS_PER_MS,
				     .light = true };
	struct alloc_pace pace;
	unsigned cut = 0;

	alloc_pace_init(&pace, &costs, 0.01);
	for (unsigned k = 0; k < 60; k++) {
		const uint64_t granted = alloc_pace_hits_granted(&pace);

		seen.window_ns = pace.next_window_ns;
		seen.hits = k % 4 < 3 ? 0 : BURST;
		if (granted && granted < seen.hits) {
			seen.hits = granted;
			cut = k;
		}
		alloc_pace_judge(&pace, &seen);
	}
	assert_in_range(cut, 1, 24);
}

/* A period whose window made so many allocations, at @call_ns of CPU time each with its probes. */
static struct alloc_period period_of(const struct alloc_pace *pace, double made, double call_ns,
				     double cpu_ns)
{
	const bool light = pace->next_light;

	return (struct alloc_period){ .period_ns = pace->next_period_ns,
				      .window_ns = pace->next_window_ns,
				      .period_cpu_ns = (uint64_t)cpu_ns,
				      .window_cpu_ns = (uint64_t)(made * call_ns),
				      .hits = (uint64_t)(light ? made : 2 * made),
				      .returns = (uint64_t)(light ? made / 10 : made),
				      .allocations = (uint64_t)made,
				      .squares = (uint64_t)(made * made),
				      .sampled = (uint64_t)(made / 10),
				      .walk_ns = (uint64_t)(made / 10) * WALK_NS,
				      .light = light };
}

/* A period of a thread that sleeps 1 ms whenever it has made what is due, @per_s calls a second of
 * 100 ns. Its window begins when it has slept for @slept_ns. */
static struct alloc_period bursty(const struct alloc_pace *pace, double per_s, double slept_ns)
{
	const bool light = pace->next_light;
	const double window = (double)pace->next_window_ns, period = (double)pace->next_period_ns;
	const double call = 100 + (light ? 500 + 400 : 2 * 500 + 300 + 400);
	const double due = per_s * slept_ns / 1e9;
	double at = 1e6 - slept_ns, made = -due, cpu;

	while (at < window) {
		double burst = (per_s * at / 1e9 - made) * call;

		burst = burst < window - at ? burst : window - at;
		made += burst / call;
		at += burst + 1e6;
	}
	made += due;
	cpu = period / 1e9 * per_s * 100 + made * (call - 100);
	return period_of(pace, made, call, cpu);
}

/* A program that works in bursts does part of its work after a window. Light windows show how much
 * the others miss. */
static void test_pace_of_bursts(void **state)
{
	static const double rates[] = { 1e4, 1e5, 2e5, 4e5, 6e5 };

	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		double seen_calls[2] = { 0 }, calls[2] = { 0 };
		struct alloc_pace pace;

		alloc_pace_init(&pace, &costs, 0.01);
		for (int k = 0; k < 60; k++) {
			struct alloc_period seen = bursty(&pace, rates[i], k % 6 / 2 * 3e5 + 1e5);

			if (k >= 10) {
				seen_calls[seen.light] += (double)seen.allocations * alloc_pace_weight(&pace, &seen);
				calls[seen.light] += rates[i] * (double)seen.period_ns / 1e9;
			}
			alloc_pace_judge(&pace, &seen);
		}
		for (int light = 0; light < 2; light++)
			if (fabs(seen_calls[light] / calls[light] - 1) > 0.15)
				fail_msg("%.0f calls a second, %s windows: %.2f of them", rates[i],
					 light ? "light" : "whole", seen_calls[light] / calls[light]);
	}
}

/* A period of a thread that does 1,000 calls of 100 ns for a client, who needs 100 us for the next
 * question. */
static struct alloc_period serving(const struct alloc_pace *pace)
{
	const bool light = pace->next_light;
	const double window = (double)pace->next_window_ns, period = (double)pace->next_period_ns;
	const double call = 100 + (light ? 500 + 400 : 2 * 500 + 300 + 400);
	const double made = window / (1000 * call + 1e5) * 1000;

	return period_of(pace, made, call, (period - window) / 2 + made * call);
}

static void test_pace_of_a_server(void **state)
{
	double seen_calls[2] = { 0 }, calls[2] = { 0 };
	struct alloc_pace pace;

	alloc_pace_init(&pace, &costs, 0.01);
	for (int k = 0; k < 60; k++) {
		struct alloc_period seen = serving(&pace);

		if (k >= 10) {
			seen_calls[seen.light] += (double)seen.allocations * alloc_pace_weight(&pace, &seen);
			calls[seen.light] += 5e6 * (double)seen.period_ns / 1e9;
		}
		alloc_pace_judge(&pace, &seen);
	}
	for (int light = 0; light < 2; light++)
		if (fabs(log(seen_calls[light] / calls[light])) > log(2))
			fail_msg("%s windows: %.2f of the calls", light ? "light" : "whole",
				 seen_calls[light] / calls[light]);
}

static void test_pace_of_nothing(void **state)
{
	struct alloc_pace pace;

	alloc_pace_init(&pace, &costs, 0.01);
	alloc_pace_judge(&pace, &(struct alloc_period){ .period_ns = 0 });
	alloc_pace_judge(&pace, &(struct alloc_period){ .period_ns = NS_PER_S, .window_ns = NS_PER_MS });
	assert_float_equal(alloc_pace_dilation(&pace, false), 1, 1e-9);
	assert_true(pace.next_window_ns && pace.next_period_ns >= pace.next_window_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pace_keeps_the_budget),
		cmocka_unit_test(test_pace_of_a_waiting_program),
		cmocka_unit_test(test_pace_stays_where_it_is_cheap),
		cmocka_unit_test(test_pace_forgives_a_dear_second),
		cmocka_unit_test(test_pace_pays_for_hits_outside),
		cmocka_unit_test(test_pace_grants_little_to_the_idle),
		cmocka_unit_test(test_pace_stays_in_a_sleeper),
		cmocka_unit_test(test_gap_without_the_closer),
		cmocka_unit_test(test_costs_that_cannot_be),
		cmocka_unit_test(test_pace_learns_bursts),
		cmocka_unit_test(test_pace_of_bursts),
		cmocka_unit_test(test_pace_of_a_server),
		cmocka_unit_test(test_pace_of_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
