// SPDX-License-Identifier: Apache-2.0
/* Comparisons of profiles with fixed values: levels (memory, goroutines), what a comparison may
 * cost, and one large function beside small ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/compare/compare.h"
#include "tests/support/profile_recipe.h"
#include "tests/support/profile_text.h"

static void compare_two(struct compare *ret, const struct profile *base,
			const struct profile *comparison)
{
	struct compare_side sides[2] = { { .profile = base, .runqueue_share = -1 },
					 { .profile = comparison, .runqueue_share = -1 } };

	assert_int_equal(compare_init(ret, &sides[0], &sides[1], NULL), 0);
}

/* ---- levels ---------------------------------------------------------------------------------- */

static uint32_t text_id(struct profile_builder *b, const char *text)
{
	return profile_builder_string(b, text, strlen(text));
}

/* @stack: root;…;leaf */
static uint32_t node_of(struct profile_builder *b, const char *stack)
{
	cleanup_free char *text = strdup(stack);
	char *save = NULL;
	uint32_t node = 0;

	for (char *word = strtok_r(text, ";", &save); word; word = strtok_r(NULL, ";", &save)) {
		const struct profile_function function = { .name = text_id(b, word),
							   .package = text_id(b, "app") };
		const struct profile_frame frame = {
			.function = profile_builder_function(b, &function)
		};

		node = profile_builder_node(b, node, profile_builder_frame(b, &frame));
	}
	return node;
}

/* A profile without events: stacks with fixed values. */
static struct profile *level(enum profile_type type, const char *const *stacks,
			     const int64_t (*values)[2], size_t count)
{
	struct profile_meta meta = { .type = type,
				     .start_ns = 1000000ull * NS_PER_S,
				     .duration_ns = NS_PER_S };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 1000);
	struct profile *p = NULL;
	size_t i;

	for (i = 0; i < count; i++) {
		uint32_t attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL);

		profile_builder_sample(b, node_of(b, stacks[i]), attrs, values[i]);
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

static void test_memory(void **state)
{
	static const char *const stacks[] = { "main;cache", "main;buffers", "main;small" };
	static const int64_t before[][2] = { { 1000000, 64000000 }, { 400, 400000000 }, { 100, 6400 } };
	static const int64_t after[][2] = { { 4000000, 256000000 }, { 400, 400000000 }, { 900, 57600 } };
	cleanup(profile) struct profile *a = level(PROFILE_MEMORY, stacks, before, 3);
	cleanup(profile) struct profile *b = level(PROFILE_MEMORY, stacks, after, 3);
	cleanup_compare struct compare c = { 0 }, same = { 0 };

	compare_two(&c, a, b);
	assert_int_equal(c.verdict, COMPARE_REGRESSED);
	assert_int_equal(c.regression_count, 1);
	assert_string_equal(c.regressions[0].name, "cache");
	assert_true(fabs(c.regressions[0].base_value - 64000000) < 1);
	assert_int_equal(c.improvement_count, 0); /* buffers' share fell, its level did not */
	compare_two(&same, a, a);
	assert_int_equal(same.verdict, COMPARE_UNCHANGED);
}

static void test_goroutines(void **state)
{
	static const char *const stacks[] = { "main;worker", "main;conn" };
	static const int64_t before[][2] = { { 100, 0 }, { 100, 0 } };
	static const int64_t some[][2] = { { 118, 0 }, { 100, 0 } };
	static const int64_t many[][2] = { { 180, 0 }, { 100, 0 } };
	cleanup(profile) struct profile *a = level(PROFILE_GOROUTINE, stacks, before, 2);
	cleanup(profile) struct profile *b = level(PROFILE_GOROUTINE, stacks, some, 2);
	cleanup(profile) struct profile *d = level(PROFILE_GOROUTINE, stacks, many, 2);
	cleanup_compare struct compare few = { 0 }, leak = { 0 };

	compare_two(&few, a, b);
	assert_int_equal(few.verdict, COMPARE_UNCHANGED);
	assert_int_equal(few.regression_count, 0);
	compare_two(&leak, a, d);
	assert_int_equal(leak.verdict, COMPARE_REGRESSED);
	assert_string_equal(leak.regressions[0].name, "worker");
	assert_true(fabs(leak.overall_delta_pct - 40) < 1e-9);
	assert_true(fabs(leak.regressions[0].comparison_value - 180) < 1e-6);
}

static void test_empty_base(void **state)
{
	static const char *const stacks[] = { "main" };
	static const int64_t none[][2] = { { 0, 0 } }, some[][2] = { { 500, 0 } };
	cleanup(profile) struct profile *a = level(PROFILE_GOROUTINE, stacks, none, 1);
	cleanup(profile) struct profile *b = level(PROFILE_GOROUTINE, stacks, some, 1);
	cleanup_compare struct compare c = { 0 }, both = { 0 };

	compare_two(&c, a, b);
	assert_false(c.overall_known);
	assert_true(c.overall_significant);
	compare_two(&both, a, a);
	assert_true(both.overall_known && both.overall_delta_pct == 0);
}

/* ---- cost ------------------------------------------------------------------------------------ */

static uint64_t cpu_ns(void)
{
	struct timespec now;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* A program in which @count functions go and as many come, none of which has the neighbours of
 * another; all are of one size. */
static struct profile *renamed_program(unsigned count, bool after)
{
	cleanup_free char **lines = calloc(2 * count + 1, sizeof(*lines));
	struct profile *p;
	size_t used = 0;

	assert_non_null(lines);
	for (unsigned i = 0; i < count; i++) {
		assert_true(asprintf(&lines[used++], "main;%s%u 100", after ? "new" : "old", i) > 0);
		if (after)
			assert_true(asprintf(&lines[used++], "main;new%u;help%u 1", i, i) > 0);
	}
	p = profile_from_text(PROFILE_GOROUTINE, (const char *const *)lines, used);
	for (size_t i = 0; i < used; i++)
		free(lines[i]);
	return p;
}

static double compare_seconds(unsigned count, bool *ret_partly)
{
	cleanup(profile) struct profile *before = renamed_program(count, false),
				       *after = renamed_program(count, true);
	const struct compare_side sides[] = { { .profile = before, .runqueue_share = -1 },
					      { .profile = after, .runqueue_share = -1 } };
	const struct compare_options options = { .threshold_points = 1e-6 };
	cleanup_compare struct compare c = { 0 };
	uint64_t start_ns = cpu_ns();

	assert_int_equal(compare_init(&c, &sides[0], &sides[1], &options), 0);
	assert_true(c.regression_count + c.improvement_count > count);
	*ret_partly = c.moved_partly;
	return (double)(cpu_ns() - start_ns) / 1e9;
}

/* A hostile program, which anybody may have compared, costs no more than the square of its
 * functions, and from some size on no more at all. */
static void test_thousands_of_renamed_functions(void **state)
{
	bool partly;
	double few = compare_seconds(300, &partly), many;

	assert_false(partly);
	many = compare_seconds(1200, &partly);
	assert_false(partly);
	print_message("300 functions: %.3f s of CPU, 1200: %.3f s\n", few, many);
	assert_true(many < 32 * few); /* the cube would be 64 */
	(void)compare_seconds(6000, &partly);
	assert_true(partly);
}

/* A service of one large function, asked by clients that wait for each answer: as another function
 * takes three times as long, all cost falls a little. The small functions say whose story it is. */
static void test_small_functions_tell_what_changed(void **state)
{
	struct part before[14] = { { "m;price", 71, NULL, NULL }, { "m;tax", 19, NULL, NULL } };
	struct part after[ARRAY_SIZE(before)];
	char names[ARRAY_SIZE(before)][32];

	for (size_t i = 2; i < ARRAY_SIZE(before); i++) {
		(void)snprintf(names[i], sizeof(names[i]), "m;small%zu", i);
		before[i] = (struct part){ names[i], 0.8, NULL, NULL };
	}
	memcpy(after, before, sizeof(after));
	after[1].weight *= 3;
	for (unsigned hz = 137; hz >= 97; hz -= 8) {
		struct recipe base = RECIPE(before, 1), comparison = RECIPE(after, 2);
		cleanup(profile) struct profile *a = recipe_make(&base), *b = NULL;
		cleanup_compare struct compare c = { 0 };

		comparison.hz = hz;
		b = recipe_make(&comparison);
		compare_two(&c, a, b);
		assert_int_equal(c.verdict, COMPARE_REGRESSED);
		assert_int_equal(c.cause, COMPARE_CAUSE_FUNCTIONS);
		assert_int_equal(c.regression_count, 1);
		assert_string_equal(c.regressions[0].name, "tax");
		assert_int_equal(c.improvement_count, 0);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_goroutines),
		cmocka_unit_test(test_empty_base),
		cmocka_unit_test(test_thousands_of_renamed_functions),
		cmocka_unit_test(test_small_functions_tell_what_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
