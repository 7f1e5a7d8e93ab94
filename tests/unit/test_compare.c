// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
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

static void compare_sides(struct compare *ret, const struct compare_side *base,
			  const struct compare_side *comparison)
{
	assert_int_equal(compare_init(ret, base, comparison, NULL), 0);
}

static void compare_two(struct compare *ret, const struct profile *base,
			const struct profile *comparison)
{
	struct compare_side sides[2] = { { .profile = base, .runqueue_share = -1 },
					 { .profile = comparison, .runqueue_share = -1 } };

	compare_sides(ret, &sides[0], &sides[1]);
}

static void compare_recipes(struct compare *ret, struct recipe base, struct recipe comparison)
{
	cleanup(profile) struct profile *a = recipe_make(&base);
	cleanup(profile) struct profile *b = recipe_make(&comparison);

	compare_two(ret, a, b);
}

static const struct part steady[] = {
	{ "main;parse", 20, NULL, NULL },    { "main;encode", 15, NULL, NULL },
	{ "main;run;hash", 12, NULL, NULL }, { "main;run;copy", 10, NULL, NULL },
	{ "main;run", 8, NULL, NULL },	     { "main;write;sys_write@kernel", 8, NULL, NULL },
	{ "main;gc;mark", 7, NULL, NULL },   { "main;gc;sweep", 5, NULL, NULL },
	{ "main;gc", 4, NULL, NULL },	     { "main;idle", 3, NULL, NULL },
	{ "main;a", 2, NULL, NULL },	     { "main;b", 2, NULL, NULL },
	{ "main;c", 2, NULL, NULL },	     { "main;d", 2, NULL, NULL },
};

/* @steady with @stack's weight replaced. */
static void with(struct part *out, const char *stack, double weight)
{
	size_t i;

	memcpy(out, steady, sizeof(steady));
	for (i = 0; i < ARRAY_SIZE(steady); i++)
		if (!strcmp(out[i].stack, stack))
			out[i].weight = weight;
}

/* ---- cpu ------------------------------------------------------------------------------------- */

static void test_profile_against_itself(void **state)
{
	struct recipe r = RECIPE(steady, 1);
	cleanup(profile) struct profile *p = recipe_make(&r);
	cleanup_compare struct compare c = { 0 };

	compare_two(&c, p, p);
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.cause, COMPARE_CAUSE_NONE);
	assert_int_equal(c.regression_count + c.improvement_count + c.diluted_count +
				 c.moved_count + c.unexplained_count,
			 0);
	assert_true(c.overall_known && c.overall_delta_pct == 0 && !c.overall_significant);
	assert_true(c.overall_p == 1);
	assert_false(c.insufficient_data || c.different_lives || c.unsteady);
	assert_int_equal(c.unchanged, 16);
	assert_true(c.min_detectable_points > 1 && c.min_detectable_points < 4);
	assert_non_null(strstr(c.summary, "No change found."));
}

static void test_steady_program_never_regresses(void **state)
{
	int i, wrong = 0;

	for (i = 0; i < 60; i++) {
		cleanup_compare struct compare c = { 0 };
		struct recipe base = RECIPE(steady, 1000 + 2 * i), comparison = RECIPE(steady, 1001 + 2 * i);

		comparison.pid = i % 2 ? 10 : 77; /* another life every other time */
		compare_recipes(&c, base, comparison);
		assert_int_equal(c.different_lives, i % 2 == 0);
		wrong += c.verdict != COMPARE_UNCHANGED || c.regression_count || c.improvement_count;
	}
	assert_true(wrong <= 1);
}

static void test_planted_regression(void **state)
{
	struct part slow[ARRAY_SIZE(steady)];
	cleanup_compare struct compare c = { 0 }, back = { 0 }, idle = { 0 };
	struct recipe half;
	const struct compare_function *f;

	with(slow, "main;parse", 40);
	compare_recipes(&c, RECIPE(steady, 1), RECIPE(slow, 2));
	assert_int_equal(c.verdict, COMPARE_REGRESSED);
	assert_int_equal(c.cause, COMPARE_CAUSE_FUNCTIONS);
	assert_int_equal(c.regression_count, 1);
	assert_int_equal(c.improvement_count, 0);
	f = &c.regressions[0];
	assert_string_equal(f->name, "parse");
	assert_string_equal(f->package, "app");
	assert_int_equal(f->change, COMPARE_CHANGED);
	assert_true(fabs(f->base_pct - 20) < 2.5 && fabs(f->comparison_pct - 33.3) < 2.5);
	assert_true(f->interval[0] < f->delta_pct && f->delta_pct < f->interval[1]);
	assert_true(f->interval[0] > 5 && f->interval[1] < 22);
	assert_true(f->cost_growth > 0.8 && f->cost_growth < 1.3);
	assert_true(f->p_value < 1e-6 && f->q_value < 1e-5);
	assert_true(fabs(f->base_value / 1e9 - 0.2) < 0.03); /* of one CPU: ns per second */
	assert_int_equal(c.unchanged, 15);
	assert_non_null(strstr(c.summary, "parse went from "));

	compare_recipes(&back, RECIPE(slow, 2), RECIPE(steady, 1));
	assert_int_equal(back.verdict, COMPARE_IMPROVED);
	assert_string_equal(back.improvements[0].name, "parse");
	assert_true(fabs(back.improvements[0].delta_pct + f->delta_pct) < 1e-9);
	/* Half as much of slower code is not better code. */
	half = RECIPE(slow, 3);
	half.hz = 50;
	compare_recipes(&idle, RECIPE(steady, 1), half);
	assert_true(idle.overall_significant && idle.overall_delta_pct < -40);
	assert_int_equal(idle.verdict, COMPARE_REGRESSED);
	assert_non_null(strstr(idle.summary, "parse went from"));
}

/* A function with more than half of the time changes, and others are renamed on the way: its own
 * share is no measure of what stayed. The cost per second tells which of two stories is true.
 * Source: nginx with zlib's level 1 (deflate_fast()) and level 9 (deflate_slow()). */
static void test_the_largest_function_changes(void **state)
{
	static const struct part fast[] = {
		{ "main;deflate_fast;longest_match", 37, NULL, NULL },
		{ "main;deflate_fast", 21, NULL, NULL },   { "main;fill;copy", 19, NULL, NULL },
		{ "main;deflate_fast;tree", 9, NULL, NULL }, { "main;crc", 4, NULL, NULL },
		{ "main;read", 3, NULL, NULL },		   { "main;write", 3, NULL, NULL },
		{ "main;parse", 2, NULL, NULL },	   { "main;log", 2, NULL, NULL },
	};
	static const struct part slow[] = {
		{ "main;deflate_slow;longest_match", 220, NULL, NULL },
		{ "main;deflate_slow", 60, NULL, NULL },   { "main;fill;copy", 19, NULL, NULL },
		{ "main;deflate_slow;tree", 9, NULL, NULL }, { "main;crc", 4, NULL, NULL },
		{ "main;read", 3, NULL, NULL },		   { "main;write", 3, NULL, NULL },
		{ "main;parse", 2, NULL, NULL },	   { "main;log", 2, NULL, NULL },
	};
	struct recipe base = RECIPE(fast, 1), comparison = RECIPE(slow, 2);
	cleanup_compare struct compare c = { 0 }, back = { 0 }, saturated = { 0 };

	base.hz = 100;
	comparison.hz = 322;
	compare_recipes(&c, base, comparison);
	assert_int_equal(c.verdict, COMPARE_REGRESSED);
	assert_string_equal(c.regressions[0].name, "longest_match");
	assert_int_equal(c.improvement_count, 1);
	assert_string_equal(c.improvements[0].name, "deflate_fast");
	assert_int_equal(c.improvements[0].change, COMPARE_GONE);
	compare_recipes(&back, comparison, base);
	assert_int_equal(back.verdict, COMPARE_IMPROVED);
	assert_string_equal(back.improvements[0].name, "longest_match");
	assert_int_equal(back.regression_count, 1);
	assert_string_equal(back.regressions[0].name, "deflate_fast");
	/* On a busy CPU the cost per second tells nothing: no story is taken. */
	comparison.hz = 100;
	compare_recipes(&saturated, base, comparison);
	assert_int_not_equal(saturated.verdict, COMPARE_IMPROVED);
}

/* A steady function with most of the time is the measure of a library below it that doubles. */
static void test_the_largest_function_stays(void **state)
{
	static const struct part before[] = {
		{ "main;hot", 80, NULL, NULL }, { "main;lib;a", 5, NULL, NULL },
		{ "main;lib;b", 5, NULL, NULL }, { "main;lib;c", 5, NULL, NULL },
		{ "main;lib;d", 5, NULL, NULL },
	};
	static const struct part after[] = {
		{ "main;hot", 80, NULL, NULL },	  { "main;lib;a", 10, NULL, NULL },
		{ "main;lib;b", 10, NULL, NULL }, { "main;lib;c", 10, NULL, NULL },
		{ "main;lib;d", 10, NULL, NULL },
	};
	struct recipe base = RECIPE(before, 1), comparison = RECIPE(after, 2);
	cleanup_compare struct compare c = { 0 };

	base.hz = 200;
	comparison.hz = 240;
	compare_recipes(&c, base, comparison);
	assert_int_equal(c.verdict, COMPARE_REGRESSED);
	assert_int_equal(c.regression_count, 4);
	assert_int_equal(c.improvement_count, 0);
}

static void test_cumulative_is_shown_not_reported(void **state)
{
	struct part slow[ARRAY_SIZE(steady)];
	cleanup_compare struct compare c = { 0 };

	with(slow, "main;run;hash", 30);
	compare_recipes(&c, RECIPE(steady, 1), RECIPE(slow, 2));
	assert_int_equal(c.regression_count, 1);
	assert_string_equal(c.regressions[0].name, "hash");
	/* run's growth is hash's. */
	assert_int_equal(c.unexplained_count, 0);
	assert_true(fabs(c.regressions[0].comparison_cumulative_pct -
			 c.regressions[0].comparison_pct) < 1e-9);
}

static void test_unexplained_caller(void **state)
{
	struct part base[24], slow[24];
	char text[24][32];
	cleanup_compare struct compare c = { 0 };
	size_t i, found = 0;

	/* Twelve leaves below one caller each grow by less than the threshold; one beside them
	 * grows, and dilutes them. */
	for (i = 0; i < 24; i++) {
		(void)snprintf(text[i], sizeof(text[i]), i < 12 ? "main;spread;l%zu" : "main;o%zu",
			       i);
		base[i] = (struct part){ text[i], i < 12 ? 0.5 : i == 12 ? 20 : 8, NULL, NULL };
		slow[i] = base[i];
		slow[i].weight = i < 12 ? 0.7 : i == 12 ? 30 : 8;
	}
	compare_recipes(&c, (struct recipe){ PROFILE_CPU, base, 24, 60, 999, 10, 0, 1, 0 },
			(struct recipe){ PROFILE_CPU, slow, 24, 60, 999, 10, 0, 2, 0 });
	assert_int_equal(c.regression_count, 1);
	for (i = 0; i < c.unexplained_count; i++) {
		const struct compare_function *f = &c.unexplained[i];

		found += !strcmp(f->name, "spread") && f->change == COMPARE_CHANGED &&
			 f->cost_delta_pct > f->delta_pct + 0.2;
		assert_true(fabs(f->delta_pct - (f->comparison_pct - f->base_pct)) < 1e-9);
		assert_true(fabs((f->interval[0] + f->interval[1]) / 2 - f->delta_pct) < 1e-9);
	}
	assert_int_equal(found, 1);
}

static void test_new_and_gone(void **state)
{
	struct part more[ARRAY_SIZE(steady) + 1];
	cleanup_compare struct compare c = { 0 }, back = { 0 };

	memcpy(more, steady, sizeof(steady));
	more[ARRAY_SIZE(steady)] = (struct part){ "main;fresh;work", 25, NULL, NULL };
	compare_recipes(&c, RECIPE(steady, 1), RECIPE(more, 2));
	assert_int_equal(c.regression_count, 1);
	assert_int_equal(c.regressions[0].change, COMPARE_NEW);
	assert_true(isinf(c.regressions[0].cost_growth));
	compare_recipes(&back, RECIPE(more, 2), RECIPE(steady, 1));
	assert_int_equal(back.improvements[0].change, COMPARE_GONE);
}

static void test_inlined_is_not_a_change(void **state)
{
	static const struct part before[] = {
		{ "main;caller;leaf", 20, NULL, NULL }, { "main;caller", 5, NULL, NULL },
		{ "main;x", 30, NULL, NULL },		{ "main;y", 25, NULL, NULL },
		{ "main;z", 20, NULL, NULL },
	};
	static const struct part after[] = {
		{ "main;caller", 25, NULL, NULL },
		{ "main;x", 30, NULL, NULL },
		{ "main;y", 25, NULL, NULL },
		{ "main;z", 20, NULL, NULL },
	};
	cleanup_compare struct compare c = { 0 }, back = { 0 };

	compare_recipes(&c, RECIPE(before, 1), RECIPE(after, 2));
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.regression_count + c.improvement_count, 0);
	assert_int_equal(c.moved_count, 1);
	assert_string_equal(c.moved[0].from, "leaf");
	assert_string_equal(c.moved[0].to, "caller");
	assert_true(fabs(c.moved[0].points - 20) < 3);
	compare_recipes(&back, RECIPE(after, 2), RECIPE(before, 1));
	assert_int_equal(back.verdict, COMPARE_UNCHANGED);
	assert_string_equal(back.moved[0].from, "caller");
}

static void test_renamed_is_not_a_change(void **state)
{
	static const struct part before[] = {
		{ "main;caller;old_name;helper", 6, NULL, NULL },
		{ "main;caller;old_name", 20, NULL, NULL },
		{ "main;x", 40, NULL, NULL }, { "main;y", 30, NULL, NULL },
	};
	static const struct part after[] = {
		{ "main;caller;new_name;helper", 6, NULL, NULL },
		{ "main;caller;new_name", 20, NULL, NULL },
		{ "main;x", 40, NULL, NULL }, { "main;y", 30, NULL, NULL },
	};
	cleanup_compare struct compare c = { 0 };

	compare_recipes(&c, RECIPE(before, 1), RECIPE(after, 2));
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.moved_count, 1);
	assert_string_equal(c.moved[0].from, "old_name");
	assert_string_equal(c.moved[0].to, "new_name");
}

static void test_compiler_suffixes_are_one_function(void **state)
{
	static const struct part before[] = { { "main;f.isra.0", 30, NULL, NULL },
					      { "main;g::h0123456789abcdef", 30, NULL, NULL },
					      { "main;x", 40, NULL, NULL } };
	static const struct part after[] = { { "main;f.constprop.1", 20, NULL, NULL },
					     { "main;f.cold", 10, NULL, NULL },
					     { "main;g::hfedcba9876543210", 30, NULL, NULL },
					     { "main;x", 40, NULL, NULL } };
	cleanup_compare struct compare c = { 0 };

	compare_recipes(&c, RECIPE(before, 1), RECIPE(after, 2));
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.unchanged, 4); /* main, f, g, x */
}

static void test_environment_does_not_decide(void **state)
{
	struct part noisy[ARRAY_SIZE(steady) + 1];
	cleanup_compare struct compare c = { 0 };

	memcpy(noisy, steady, sizeof(steady));
	noisy[ARRAY_SIZE(steady)] =
		(struct part){ "main;irqentry_exit_to_user_mode@kernel", 25, NULL, NULL };
	compare_recipes(&c, RECIPE(steady, 1), RECIPE(noisy, 2));
	assert_int_equal(c.regression_count, 1);
	assert_true(c.regressions[0].environment);
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
}

static void test_load_units_and_contention(void **state)
{
	struct recipe once = RECIPE(steady, 1), twice = RECIPE(steady, 2);
	cleanup(profile) struct profile *base = recipe_make(&once), *more = NULL;
	cleanup_compare struct compare load = { 0 }, units = { 0 }, contended = { 0 };
	struct compare_side a = { .profile = base, .runqueue_share = -1 };
	struct compare_side b = { .runqueue_share = -1 };

	twice.hz = 198;
	b.profile = more = recipe_make(&twice);
	compare_sides(&load, &a, &b);
	assert_true(load.overall_significant);
	assert_true(fabs(load.overall_delta_pct - 100) < 1);
	assert_int_equal(load.verdict, COMPARE_UNCHANGED);
	assert_int_equal(load.cause, COMPARE_CAUSE_LOAD);
	assert_non_null(strstr(load.summary, "request count"));

	a.units = 1000;
	b.units = 2000;
	compare_sides(&units, &a, &b);
	assert_true(fabs(units.overall_delta_pct) < 1);
	assert_int_equal(units.verdict, COMPARE_UNCHANGED);
	assert_int_equal(units.cause, COMPARE_CAUSE_NONE);
	assert_non_null(strstr(units.summary, "No change found. "));
	assert_non_null(strstr(units.summary, "1.00× the CPU per unit of work (2.00× per second)."));

	a.units = b.units = 0;
	a.runqueue_share = 0.30;
	b.runqueue_share = 0.02;
	compare_sides(&contended, &a, &b);
	assert_int_equal(contended.verdict, COMPARE_UNCHANGED);
	assert_int_equal(contended.cause, COMPARE_CAUSE_CONTENDED);
	assert_false(contended.overall_significant);
}

#define HZ_OF_A_QUIET_ONE 8

/* Few samples cannot say that the composition is the same: a release that costs twice as much for
 * one slower function looks like more load then. */
static void test_load_in_few_samples(void **state)
{
	struct recipe once = RECIPE(steady, 1), twice = RECIPE(steady, 2);
	cleanup(profile) struct profile *base = NULL, *more = NULL;
	cleanup_compare struct compare c = { 0 };
	struct compare_side a = { .runqueue_share = -1 }, b = { .runqueue_share = -1 };

	once.hz = HZ_OF_A_QUIET_ONE;
	twice.hz = 3 * HZ_OF_A_QUIET_ONE;
	a.profile = base = recipe_make(&once);
	b.profile = more = recipe_make(&twice);
	compare_sides(&c, &a, &b);
	assert_true(c.overall_significant && c.min_detectable_points > 5);
	assert_true(c.insufficient_data);
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.cause, COMPARE_CAUSE_LOAD);
	assert_non_null(strstr(c.summary, "too few samples to tell more work from slower code"));
	assert_null(strstr(c.summary, "same composition"));
}

/* Load cannot move the cost per unit: without a changed function it is the code or the host. */
static void test_cost_per_unit(void **state)
{
	struct recipe once = RECIPE(steady, 1), more = RECIPE(steady, 2);
	cleanup(profile) struct profile *base = recipe_make(&once), *other = NULL;
	cleanup_compare struct compare c = { 0 }, back = { 0 }, functions = { 0 };
	struct part slow[ARRAY_SIZE(steady)];
	struct compare_side a = { .profile = base, .units = 20, .runqueue_share = -1 };
	struct compare_side b = { .units = 10, .runqueue_share = -1 };

	more.hz = 109; /* 1.10 times as much per second */
	b.profile = other = recipe_make(&more);
	compare_sides(&c, &a, &b);
	assert_true(c.overall_significant);
	assert_true(fabs(c.overall_delta_pct - 120.2) < 1);
	assert_int_equal(c.verdict, COMPARE_REGRESSED);
	assert_int_equal(c.cause, COMPARE_CAUSE_NONE);
	assert_non_null(strstr(
		c.summary,
		"2.20× the CPU per unit of work (1.10× per second), same composition: slower"));
	assert_null(strstr(c.summary, "request count"));
	compare_sides(&back, &b, &a);
	assert_int_equal(back.verdict, COMPARE_IMPROVED);
	assert_int_equal(back.cause, COMPARE_CAUSE_NONE);
	assert_non_null(strstr(
		back.summary,
		"0.45× the CPU per unit of work (0.91× per second), same composition: faster"));
	assert_null(strstr(back.summary, "request count"));

	/* Changed functions are named first; the figure follows. */
	cleanup(profile) struct profile *slower = NULL;

	with(slow, "main;parse", 200);
	more = (struct recipe)RECIPE(slow, 3);
	b.profile = slower = recipe_make(&more);
	compare_sides(&functions, &a, &b);
	assert_int_equal(functions.verdict, COMPARE_REGRESSED);
	assert_int_equal(functions.cause, COMPARE_CAUSE_FUNCTIONS);
	assert_non_null(strstr(functions.summary, "parse went from"));
	assert_non_null(strstr(functions.summary, "2.00× the CPU per unit of work (1.00× per second)."));
}

/* Bytes allocated grow with the work, too; the live heap is a level whatever was done. */
static void test_units_of_other_types(void **state)
{
	static const struct part parts[] = { { "main;a", 50, NULL, NULL }, { "main;b", 50, NULL, NULL } };
	struct recipe alloc = RECIPE(parts, 1);
	cleanup(profile) struct profile *p = NULL, *q = NULL;
	cleanup_compare struct compare c = { 0 }, heap = { 0 };
	struct compare_side a = { .units = 20, .runqueue_share = -1 },
			    b = { .units = 10, .runqueue_share = -1 };

	alloc.type = PROFILE_ALLOC;
	alloc.value = 524288;
	a.profile = b.profile = p = recipe_make(&alloc);
	compare_sides(&c, &a, &b);
	assert_true(fabs(c.overall_delta_pct - 100) < 0.01);
	assert_non_null(strstr(c.summary, "2.00× the allocations per unit of work (1.00× per second)"));
	alloc.type = PROFILE_MEMORY;
	a.profile = b.profile = q = recipe_make(&alloc);
	compare_sides(&heap, &a, &b);
	assert_true(fabs(heap.overall_delta_pct) < 0.01);
	assert_int_equal(heap.verdict, COMPARE_UNCHANGED);
	assert_null(strstr(heap.summary, "per unit"));
}

static void test_mix_of_processes(void **state)
{
	/* f is 30 % of web and 10 % of db; only their parts of the host change. */
	static const struct part half[] = { { "w;f", 15, "web", NULL },
					    { "w;x", 35, "web", NULL },
					    { "d;f", 5, "db", NULL },
					    { "d;y", 45, "db", NULL } };
	static const struct part mostly_web[] = { { "w;f", 24, "web", NULL },
						  { "w;x", 56, "web", NULL },
						  { "d;f", 2, "db", NULL },
						  { "d;y", 18, "db", NULL } };
	static const struct part other[] = { { "w;f", 24, "web", NULL },
					     { "w;x", 36, "web", NULL },
					     { "j;y", 40, "job", NULL } };
	cleanup_compare struct compare mix = { 0 }, composition = { 0 };

	compare_recipes(&mix, RECIPE(half, 1), RECIPE(mostly_web, 2));
	assert_int_equal(mix.verdict, COMPARE_UNCHANGED);
	assert_int_equal(mix.regression_count + mix.improvement_count, 0);
	compare_recipes(&composition, RECIPE(half, 1), RECIPE(other, 2));
	assert_int_equal(composition.cause, COMPARE_CAUSE_COMPOSITION);
	assert_int_equal(composition.verdict, COMPARE_UNCHANGED);
}

/* Thirds of a program that change by different factors. Shares cannot tell which of them stayed. */
static void test_no_steady_majority(void **state)
{
	static const struct part before[] = { { "m;a1", 11, NULL, NULL }, { "m;a2", 11, NULL, NULL },
					      { "m;a3", 11, NULL, NULL }, { "m;b1", 11, NULL, NULL },
					      { "m;b2", 11, NULL, NULL }, { "m;b3", 11, NULL, NULL },
					      { "m;c1", 11, NULL, NULL }, { "m;c2", 11, NULL, NULL },
					      { "m;c3", 12, NULL, NULL } };
	static const struct part after[] = { { "m;a1", 9, NULL, NULL },	 { "m;a2", 9, NULL, NULL },
					     { "m;a3", 9, NULL, NULL },	 { "m;b1", 22, NULL, NULL },
					     { "m;b2", 22, NULL, NULL }, { "m;b3", 20, NULL, NULL },
					     { "m;c1", 3, NULL, NULL },	 { "m;c2", 3, NULL, NULL },
					     { "m;c3", 3, NULL, NULL } };
	cleanup_compare struct compare c = { 0 };

	compare_recipes(&c, RECIPE(before, 1), RECIPE(after, 2));
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.cause, COMPARE_CAUSE_COMPOSITION);
	assert_non_null(strstr(c.summary, "less than half"));
}

/* Two thirds of the time go another way now: what stays does not tell whether that is slower. */
static void test_most_moves(void **state)
{
	static const struct part before[] = { { "m;fast", 96, NULL, NULL }, { "m;a", 1, NULL, NULL },
					      { "m;b", 1, NULL, NULL },	    { "m;c", 1, NULL, NULL },
					      { "m;d", 1, NULL, NULL } };
	static const struct part after[] = { { "m;fast", 30, NULL, NULL }, { "m;slow", 66, NULL, NULL },
					     { "m;a", 1, NULL, NULL },	   { "m;b", 1, NULL, NULL },
					     { "m;c", 1, NULL, NULL },	   { "m;d", 1, NULL, NULL } };
	cleanup_compare struct compare c = { 0 };

	compare_recipes(&c, RECIPE(before, 1), RECIPE(after, 2));
	assert_int_equal(c.regression_count, 1);
	assert_string_equal(c.regressions[0].name, "slow");
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.cause, COMPARE_CAUSE_COMPOSITION);
	assert_non_null(strstr(c.summary, "less than half"));
}

static void test_not_enough_data(void **state)
{
	struct part slow[ARRAY_SIZE(steady)];
	struct recipe base = RECIPE(steady, 1), comparison;
	cleanup_compare struct compare c = { 0 }, turned = { 0 }, lost = { 0 };
	cleanup(profile) struct profile *a = NULL, *b = NULL;

	with(slow, "main;parse", 200);
	comparison = RECIPE(slow, 2);
	comparison.seconds = 10;
	comparison.hz = 19;
	compare_recipes(&c, base, comparison);
	assert_true(c.insufficient_data);
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.regression_count, 0);
	assert_non_null(strstr(c.summary, "Too few samples (190; 200 are the least) in the comparison. "
					  "Record it for 60 s at this rate."));
	compare_recipes(&turned, comparison, base);
	assert_non_null(strstr(turned.summary, "are the least) in the base. Record it for 60 s"));

	comparison = RECIPE(slow, 2);
	a = recipe_make(&base);
	b = recipe_make(&comparison);
	b->quality.lost = 1000;
	compare_two(&lost, a, b);
	assert_true(lost.insufficient_data);
}

static void test_names_in_doubt(void **state)
{
	static const struct part before[] = { { "main;x", 60, NULL, NULL },
					      { "main;nameless", 40, NULL, NULL } };
	static const struct part after[] = { { "main;x", 60, NULL, NULL },
					     { "main;named", 40, NULL, NULL } };
	struct recipe ra = RECIPE(before, 1), rb = RECIPE(after, 2);
	cleanup(profile) struct profile *a = recipe_make(&ra), *b = recipe_make(&rb);
	cleanup_compare struct compare c = { 0 }, known = { 0 };

	b->quality.unknown_frame_pct = 2;
	compare_two(&known, a, b);
	assert_false(known.names_in_doubt);
	assert_true(known.regression_count + known.improvement_count + known.moved_count > 0);

	a->quality.unknown_frame_pct = 20;
	compare_two(&c, a, b);
	assert_true(c.names_in_doubt && c.insufficient_data);
	assert_int_equal(c.verdict, COMPARE_UNCHANGED);
	assert_int_equal(c.regression_count + c.improvement_count, 0);
	assert_int_equal(c.doubtful_count, 2);
	assert_non_null(strstr(c.summary, "Not enough is known for a verdict"));
	assert_non_null(strstr(c.summary, "20.0 % of the frames of one side are unknown and 2.0 %"));
	assert_non_null(strstr(c.summary, "named"));
}

/* A program that goes other ways through one file without symbols has no names in doubt. Source:
 * PostgreSQL before and after an index was lost. */
static void test_nameless_on_both_sides(void **state)
{
	static const struct part before[] = { { "main;lookup;descend@nameless", 10, NULL, NULL },
					      { "main;parse;lex@nameless", 10, NULL, NULL },
					      { "main;parse", 20, NULL, NULL },
					      { "main;send", 60, NULL, NULL } };
	static const struct part after[] = { { "main;walk@nameless;scan@nameless", 100, NULL, NULL },
					     { "main;parse;lex@nameless", 10, NULL, NULL },
					     { "main;parse", 20, NULL, NULL },
					     { "main;send", 60, NULL, NULL } };
	struct recipe base = RECIPE(before, 1), comparison = RECIPE(after, 2);
	cleanup_compare struct compare c = { 0 };

	comparison.hz = 190;
	compare_recipes(&c, base, comparison);
	assert_true(c.comparison_quality.unknown_frame_pct > c.base_quality.unknown_frame_pct + 20);
	assert_false(c.names_in_doubt || c.insufficient_data);
	assert_int_equal(c.verdict, COMPARE_REGRESSED);
	assert_string_equal(c.regressions[0].name, "scan");
}

/* Names in doubt leave open only what they could turn: a change that outweighs them stands, less
 * does not. */
static void test_doubt_is_weighed(void **state)
{
	static const struct part before[] = { { "main;x", 60, NULL, NULL },
					      { "main;y", 10, NULL, NULL },
					      { "main;z", 28, NULL, NULL },
					      { "main;nameless", 2, NULL, NULL } };
	static const struct part clear[] = { { "main;x", 60, NULL, NULL },
					     { "main;y", 40, NULL, NULL },
					     { "main;z", 28, NULL, NULL },
					     { "main;named", 2, NULL, NULL } };
	static const struct part open[] = { { "main;x", 60, NULL, NULL },
					    { "main;named", 5, NULL, NULL },
					    { "main;y", 10, NULL, NULL },
					    { "main;z", 28, NULL, NULL } };
	struct recipe base = RECIPE(before, 1), other = RECIPE(clear, 2);
	cleanup(profile) struct profile *a = recipe_make(&base), *b = recipe_make(&other), *d = NULL;
	cleanup_compare struct compare stands = { 0 }, undecided = { 0 }, back = { 0 };

	a->quality.unknown_frame_pct = 12;
	compare_two(&stands, a, b);
	assert_int_equal(stands.verdict, COMPARE_REGRESSED);
	assert_false(stands.insufficient_data);
	assert_string_equal(stands.regressions[0].name, "y");
	assert_non_null(strstr(stands.summary, "are not judged"));

	other = RECIPE(open, 3);
	d = recipe_make(&other);
	compare_two(&undecided, a, d);
	assert_true(undecided.insufficient_data);
	compare_two(&back, d, a);
	assert_true(back.insufficient_data);
	assert_int_equal(undecided.doubtful_count, back.doubtful_count);
}

static void test_options(void **state)
{
	struct recipe r = RECIPE(steady, 1), off = RECIPE(steady, 1);
	cleanup(profile) struct profile *p = NULL, *q = NULL;
	struct compare_side side = { .runqueue_share = -1 }, other = { .runqueue_share = -1 };
	struct compare c = { .unchanged = 99 };

	off.type = PROFILE_OFFCPU;
	side.profile = p = recipe_make(&r);
	other.profile = q = recipe_make(&off);
	assert_int_equal(compare_init(&c, &side, &other, NULL), -EINVAL);
	assert_int_equal(
		compare_init(&c, &side, &side, &(struct compare_options){ .confidence = 1 }),
		-EINVAL);
	assert_int_equal(compare_init(&c, &side, &side,
				      &(struct compare_options){ .threshold_points = 101 }),
			 -EINVAL);
	assert_int_equal(c.unchanged, 99);
}

/* ---- other types ----------------------------------------------------------------------------- */

static void test_durations(void **state)
{
	static const struct part before[] = {
		{ "main;lock;futex@kernel;schedule@kernel", 30, NULL, "futex" },
		{ "main;read;schedule@kernel", 30, NULL, "disk" },
		{ "main;loop;epoll_wait;schedule@kernel", 40, NULL, "epoll" },
	};
	static const struct part after[] = {
		{ "main;lock;futex@kernel;schedule@kernel", 90, NULL, "futex" },
		{ "main;read;schedule@kernel", 30, NULL, "disk" },
		{ "main;loop;epoll_wait;schedule@kernel", 40, NULL, "epoll" },
	};
	static const struct part waiting[] = {
		{ "main;lock;futex@kernel;schedule@kernel", 30, NULL, "futex" },
		{ "main;read;schedule@kernel", 30, NULL, "disk" },
		{ "main;loop;epoll_wait;schedule@kernel", 140, NULL, "epoll" },
	};
	struct recipe a = RECIPE(before, 1), b = RECIPE(after, 2), c = RECIPE(waiting, 3);
	cleanup_compare struct compare same = { 0 }, lock = { 0 }, idle = { 0 };

	a.type = b.type = c.type = PROFILE_OFFCPU;
	a.value = b.value = c.value = 5e6;
	a.hz = 100;
	b.hz = 160;
	c.hz = 200;
	compare_recipes(&same, a, a);
	assert_int_equal(same.verdict, COMPARE_UNCHANGED);
	assert_int_equal(same.regression_count + same.improvement_count, 0);
	compare_recipes(&lock, a, b);
	/* In the kernel every wait ends in schedule: the innermost user function is judged. */
	assert_int_equal(lock.verdict, COMPARE_REGRESSED);
	assert_string_equal(lock.regressions[0].name, "lock");
	compare_recipes(&idle, a, c);
	for (uint32_t i = 0; i < idle.regression_count; i++)
		assert_string_not_equal(idle.regressions[i].name, "epoll_wait");
}

/* All of them wait in libc: who called it is judged. What libc does on a CPU stays its own. */
static void test_whose_wait_it_is(void **state)
{
#define LOCKS(name) "main;" name ";pthread_mutex_lock;futex@kernel;schedule@kernel"
	static const struct part waits_of[2][2] = {
		{ { LOCKS("drain"), 80, NULL, "futex" }, { LOCKS("fill"), 20, NULL, "futex" } },
		{ { LOCKS("drain"), 20, NULL, "futex" }, { LOCKS("fill"), 80, NULL, "futex" } },
	};
	static const struct part spins_of[2][2] = {
		{ { "main;work", 80, NULL, NULL }, { "main;drain;pthread_spin_lock", 20, NULL, NULL } },
		{ { "main;work", 80, NULL, NULL }, { "main;drain;pthread_spin_lock", 80, NULL, NULL } },
	};
	struct recipe a = RECIPE(waits_of[0], 1), b = RECIPE(waits_of[1], 2);
	struct recipe c = RECIPE(spins_of[0], 3), d = RECIPE(spins_of[1], 4);
	cleanup_compare struct compare waits = { 0 }, spins = { 0 };

	a.type = b.type = PROFILE_MUTEX;
	a.value = b.value = 5e6;
	compare_recipes(&waits, a, b);
	assert_int_equal(waits.regression_count, 1);
	assert_string_equal(waits.regressions[0].name, "fill");
	assert_int_equal(waits.improvement_count, 1);
	assert_string_equal(waits.improvements[0].name, "drain");
	c.type = d.type = PROFILE_WALL;
	compare_recipes(&spins, c, d);
	assert_int_equal(spins.regression_count, 1);
	assert_string_equal(spins.regressions[0].name, "pthread_spin_lock");
}

/* Python's integers are made by functions of C that all functions of the program share: twice the
 * work of one of these is its own. An extension in C is a function of the program. */
static void test_what_the_interpreter_does(void **state)
{
#define IN(name) "run@interpreter;" name "@python"
#define OF(name, weight)                                                                           \
	{ IN(name), weight, NULL, NULL },                                                          \
	{ IN(name) ";PyLong_Add@interpreter", weight, NULL, NULL },                                \
	{ IN(name) ";PyLong_Mod@interpreter;alloc@interpreter", weight, NULL, NULL }
#define REST                                                                                       \
	{ IN("rest") ";dot", 30, NULL, NULL },                                                     \
	{ "run@interpreter;collect@interpreter", 10, NULL, NULL }
#define LOCK(name) IN(name) ";lock_acquire@interpreter;sem_wait;futex@kernel;schedule@kernel"
	static const struct part before[] = { OF("price", 14), OF("tax", 6), REST };
	static const struct part after[] = { OF("price", 14), OF("tax", 12), REST };
	static const struct part waits_of[2][2] = {
		{ { LOCK("ask"), 80, NULL, "futex" }, { LOCK("nap"), 20, NULL, "futex" } },
		{ { LOCK("ask"), 20, NULL, "futex" }, { LOCK("nap"), 80, NULL, "futex" } },
	};
	cleanup_compare struct compare c = { 0 }, waits = { 0 };
	struct recipe a = RECIPE(waits_of[0], 1), b = RECIPE(waits_of[1], 2);

	compare_recipes(&c, RECIPE(before, 1), RECIPE(after, 2));
	assert_int_equal(c.regression_count, 1);
	assert_string_equal(c.regressions[0].name, "tax");
	assert_true(fabs(c.regressions[0].base_pct - 18) < 4);
	assert_true(fabs(c.regressions[0].comparison_pct - 100 * 36 / 118.0) < 4);
	assert_int_equal(c.improvement_count, 0);
	a.type = b.type = PROFILE_MUTEX;
	a.value = b.value = 5e6;
	compare_recipes(&waits, a, b);
	assert_int_equal(waits.regression_count, 1);
	assert_string_equal(waits.regressions[0].name, "nap");
}

/* ---- matrices -------------------------------------------------------------------------------- */

static void test_lent_matrix(void **state)
{
	struct part slow[ARRAY_SIZE(steady)];
	struct recipe ra = RECIPE(steady, 1), rb;
	cleanup(profile) struct profile *a = recipe_make(&ra), *b = NULL;
	cleanup(window_matrix) struct window_matrix *made = NULL, *coarse = NULL;
	cleanup_compare struct compare direct = { 0 }, lent = { 0 };
	struct compare_side base = { .profile = a, .runqueue_share = -1 }, comparison = { 0 };

	with(slow, "main;parse", 40);
	rb = RECIPE(slow, 2);
	comparison = (struct compare_side){ .profile = b = recipe_make(&rb), .runqueue_share = -1 };
	assert_int_equal(window_matrix_create(a, NULL, &made, NULL), 0);
	assert_int_equal(made->window_count, 60);
	assert_int_equal(window_matrix_coarsen(made, 2, &coarse), 0);
	assert_int_equal(coarse->window_count, 30);
	compare_sides(&direct, &base, &comparison);
	base.windows = coarse;
	compare_sides(&lent, &base, &comparison);
	assert_int_equal(lent.verdict, COMPARE_REGRESSED);
	assert_string_equal(lent.regressions[0].name, "parse");
	assert_true(fabs(lent.regressions[0].delta_pct - direct.regressions[0].delta_pct) < 1e-9);
}

static void test_matrix_of_known_windows(void **state)
{
	static const struct part one[] = { { "main;f;f", 1, NULL, NULL } };
	struct recipe r = RECIPE(one, 1);
	cleanup(profile) struct profile *p = NULL;
	cleanup(window_matrix) struct window_matrix *m = NULL;
	uint32_t i, f;

	r.seconds = 10;
	r.hz = 10;
	p = recipe_make(&r);
	assert_int_equal(window_matrix_create(p, NULL, &m, NULL), 0);
	assert_int_equal(m->window_count, 10);
	assert_int_equal(m->function_count, 2);
	assert_true(fabs(m->scale * PERIOD_NS - 1) < 1e-9);
	for (f = 0; f < 2; f++) {
		bool is_f = !strcmp(window_text(m, m->functions[f].name), "f");

		assert_int_equal(m->self.first[f + 1] - m->self.first[f], is_f ? 10 : 0);
		assert_int_equal(m->cumulative.first[f + 1] - m->cumulative.first[f], 10);
		for (i = m->cumulative.first[f]; i < m->cumulative.first[f + 1]; i++)
			assert_int_equal(m->cumulative.value[i],
					 10 * PERIOD_NS); /* recursion once */
	}
	assert_int_equal(m->life_count, 1);
	assert_true(m->effective_lives == 1);
}

static void test_minute_stamps_make_minute_windows(void **state)
{
	static const struct part one[] = { { "main", 1, NULL, NULL } };
	struct recipe r = RECIPE(one, 1);
	cleanup(profile) struct profile *p = NULL;
	cleanup(window_matrix) struct window_matrix *m = NULL;
	uint32_t i;

	r.seconds = 600;
	r.hz = 2;
	p = recipe_make(&r);
	for (i = 0; i < p->event_count; i++)
		p->events[i].time_ns = START_NS + (uint64_t)(i / 120) * 60 * NS_PER_S;
	assert_int_equal(window_matrix_create(p, NULL, &m, NULL), 0);
	assert_int_equal(m->window_ns, 60 * NS_PER_S);
	assert_int_equal(m->window_count, 10);
}

static void test_large_comparison_is_quick(void **state)
{
	struct timespec from, to;
	cleanup_compare struct compare c = { 0 };
	struct recipe a = RECIPE(steady, 1), b = RECIPE(steady, 2);
	cleanup(profile) struct profile *p = NULL, *q = NULL;
	double ms;

	a.hz = b.hz = 1000;
	p = recipe_make(&a);
	q = recipe_make(&b);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	compare_two(&c, p, q);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
	assert_true(ms < 500); /* some 5 ms; room for sanitizers */
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_profile_against_itself),
		cmocka_unit_test(test_steady_program_never_regresses),
		cmocka_unit_test(test_planted_regression),
		cmocka_unit_test(test_the_largest_function_changes),
		cmocka_unit_test(test_the_largest_function_stays),
		cmocka_unit_test(test_cumulative_is_shown_not_reported),
		cmocka_unit_test(test_unexplained_caller), cmocka_unit_test(test_new_and_gone),
		cmocka_unit_test(test_inlined_is_not_a_change),
		cmocka_unit_test(test_renamed_is_not_a_change),
		cmocka_unit_test(test_compiler_suffixes_are_one_function),
		cmocka_unit_test(test_environment_does_not_decide),
		cmocka_unit_test(test_load_units_and_contention),
		cmocka_unit_test(test_load_in_few_samples),
		cmocka_unit_test(test_cost_per_unit), cmocka_unit_test(test_units_of_other_types),
		cmocka_unit_test(test_mix_of_processes),
		cmocka_unit_test(test_no_steady_majority),
		cmocka_unit_test(test_most_moves), cmocka_unit_test(test_not_enough_data),
		cmocka_unit_test(test_names_in_doubt),
		cmocka_unit_test(test_nameless_on_both_sides), cmocka_unit_test(test_doubt_is_weighed),
		cmocka_unit_test(test_options), cmocka_unit_test(test_durations),
		cmocka_unit_test(test_whose_wait_it_is),
		cmocka_unit_test(test_what_the_interpreter_does),
		cmocka_unit_test(test_lent_matrix), cmocka_unit_test(test_matrix_of_known_windows),
		cmocka_unit_test(test_minute_stamps_make_minute_windows),
		cmocka_unit_test(test_large_comparison_is_quick),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
