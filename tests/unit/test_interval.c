// SPDX-License-Identifier: Apache-2.0
/* Intervals of values that chance chose: as often right as they say, and gone where nothing was left to chance. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/profile/interval.h"

#define RUNS  2000
#define PLACES 3

enum { OPERATIONS, DELAY, BYTES };

static uint64_t seed = 12345;

static double chance(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(seed >> 11) / (double)(1ull << 53);
}

static uint32_t place(struct profile_builder *b, uint32_t parent, const char *name)
{
	struct profile_function function = { .name = profile_builder_string(b, name, strlen(name)) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_NATIVE };

	frame.function = profile_builder_function(b, &function);
	return profile_builder_node(b, parent, profile_builder_frame(b, &frame));
}

/* Calls of @bytes each: recorded with the probability bytes / threshold, then as the threshold. */
static void sample(struct profile_builder *b, uint32_t node, unsigned calls, double bytes, double threshold)
{
	const struct profile_attrs attrs = { 0 };
	uint32_t id = profile_builder_attrs(b, &attrs, NULL);

	for (unsigned i = 0; i < calls; i++) {
		double p = fmin(bytes / threshold, 1), value = bytes / p;

		if (chance() < p)
			profile_builder_estimate(b, node, id, (const int64_t[]){ 1, 0, (int64_t)value },
						 value * value * (1 - p));
	}
}

static struct profile *run(void)
{
	const struct profile_meta meta = { .type = PROFILE_IO, .service = "io" };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	const struct profile_quality quality = { 0 };
	struct profile *p;
	uint32_t root;

	assert_non_null(b);
	root = place(b, 0, "main");
	sample(b, place(b, root, "often"), 2000, 1000, 16384);
	sample(b, place(b, root, "seldom"), 40, 5000, 16384);
	sample(b, place(b, root, "large"), 50, 65536, 16384);
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

static void test_as_often_right_as_they_say(void **state)
{
	static const struct {
		const char *name;
		double bytes;
	} places[PLACES] = { { "main", 2e6 + 2e5 + 50 * 65536 }, { "often", 2e6 }, { "seldom", 2e5 } };
	unsigned right[PLACES] = { 0 };

	for (unsigned i = 0; i < RUNS; i++) {
		cleanup(profile) struct profile *p = run();
		cleanup_free struct profile_interval *intervals = NULL;

		assert_int_equal(profile_intervals(p, BYTES, &intervals), 0);
		for (uint32_t f = 0; f < p->function_count; f++) {
			const char *name = profile_string(p, p->functions[f].name);

			for (unsigned k = 0; k < PLACES; k++)
				right[k] += !strcmp(name, places[k].name) && intervals[f].lo <= places[k].bytes &&
					    places[k].bytes <= intervals[f].hi;
			if (strcmp(name, "large") == 0) {
				assert_true(intervals[f].lo == 50 * 65536);
				assert_true(intervals[f].hi == 50 * 65536);
			}
		}
	}
	for (unsigned k = 0; k < PLACES; k++) {
		/* "seldom" is seen a dozen times a run, where a normal law is a rough one */
		assert_in_range(right[k], RUNS * 92 / 100, RUNS * 98 / 100);
	}
}

static void test_what_is_exact_has_none(void **state)
{
	cleanup(profile) struct profile *p = run();
	struct profile_interval *intervals = NULL;

	assert_int_equal(profile_intervals(p, DELAY, &intervals), -ENODATA);
	assert_null(intervals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_often_right_as_they_say),
		cmocka_unit_test(test_what_is_exact_has_none),
	};

	return cmocka_run_group_tests_name("interval", tests, NULL, NULL);
}
