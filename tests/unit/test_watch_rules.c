// SPDX-License-Identifier: Apache-2.0
/* The rules of the watch by simulation with fixed seeds: change points in slow noise, an hour
 * against the same hour of other days. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/profile/compare/change_point.h"
#include "agent/profile/compare/hour_outliers.h"

static uint64_t random_state;

static double uniform(void)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return (double)(hash_mix64(random_state) >> 11) * 0x1p-53;
}

static double normal(void)
{
	double u = uniform();

	return sqrt(-2 * log(u > 0 ? u : 0x1p-53)) * cos(2 * M_PI * uniform());
}

/* ---- change points --------------------------------------------------------------------------- */

#define POINTS 288

/* AR(1) noise of deviation 1, 2 % outliers, and a step of @step in the middle. */
static void series(double *y, double slow, double step)
{
	double z = normal();

	for (size_t i = 0; i < POINTS; i++) {
		z = slow * z + sqrt(1 - slow * slow) * normal();
		y[i] = 100 + z + (i >= POINTS / 2 ? step : 0) + (uniform() < 0.02 ? 8 : 0);
	}
}

static void test_noise_is_no_change(void **state)
{
	static const double slows[] = { 0, 0.6 };

	for (size_t k = 0; k < ARRAY_SIZE(slows); k++) {
		unsigned found = 0;

		random_state = 7 + k;
		for (int run = 0; run < 300; run++) {
			struct change_point at[CHANGE_POINTS_MAX];
			double y[POINTS];
			size_t count;

			series(y, slows[k], 0);
			assert_int_equal(change_points_find(y, POINTS, at, CHANGE_POINTS_MAX, &count),
					 0);
			found += count > 0;
		}
		assert_in_range(found, 0, 12); /* 1 to 1.5 % are expected of 300 */
	}
}

static void test_step_is_found_where_it_is(void **state)
{
	static const double slows[] = { 0, 0.6 };

	for (size_t k = 0; k < ARRAY_SIZE(slows); k++) {
		unsigned found = 0, near = 0;

		random_state = 70 + k;
		for (int run = 0; run < 200; run++) {
			struct change_point at[CHANGE_POINTS_MAX];
			double y[POINTS];
			size_t count;

			series(y, slows[k], 2);
			assert_int_equal(change_points_find(y, POINTS, at, CHANGE_POINTS_MAX, &count),
					 0);
			found += count > 0;
			for (size_t i = 0; i < count; i++)
				if (fabs((double)at[i].at - POINTS / 2) <= 8) {
					near++;
					assert_true(at[i].after > at[i].before);
					break;
				}
		}
		assert_true(found >= 190);
		assert_true(near >= 170);
	}
}

static void test_two_steps(void **state)
{
	struct change_point at[CHANGE_POINTS_MAX];
	double y[2016];
	size_t count;

	random_state = 1;
	for (size_t i = 0; i < ARRAY_SIZE(y); i++)
		y[i] = normal() + (i >= 700 ? 3 : 0) + (i >= 1400 ? 3 : 0);
	assert_int_equal(change_points_find(y, ARRAY_SIZE(y), at, CHANGE_POINTS_MAX, &count), 0);
	assert_int_equal(count, 2);
	assert_in_range(at[0].at, 695, 705);
	assert_in_range(at[1].at, 1395, 1405);
	assert_true(fabs(at[0].after - 3) < 0.3 && fabs(at[1].after - 6) < 0.3);
	/* Too short to say, constant, and room for less than there is. */
	assert_int_equal(change_points_find(y, 99, at, CHANGE_POINTS_MAX, &count), 0);
	assert_int_equal(count, 0);
	assert_int_equal(change_points_find(y, ARRAY_SIZE(y), at, 1, &count), 0);
	assert_int_equal(count, 1);
	for (size_t i = 0; i < POINTS; i++)
		y[i] = 5;
	assert_int_equal(change_points_find(y, POINTS, at, CHANGE_POINTS_MAX, &count), 0);
	assert_int_equal(count, 0);
}

/* ---- hours ----------------------------------------------------------------------------------- */

#define FUNCTIONS 12
#define MINUTES	  60u
#define SAMPLES	  200 /* a minute */

static const char text[] = "\0app\0f00\0f01\0f02\0f03\0f04\0f05\0f06\0f07\0f08\0f09\0f10\0f11";

/* An hour of minutes with these shares; the caller destroys it. */
static struct window_matrix *hour_of(const double *share)
{
	struct window_matrix *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	*m = (struct window_matrix){ .type = PROFILE_CPU, .window_ns = 60 * NS_PER_S,
				     .duration_ns = 3600 * NS_PER_S, .scale = 1,
				     .window_count = MINUTES, .function_count = FUNCTIONS,
				     .effective_lives = 1, .text_len = sizeof(text) };
	m->text = malloc(sizeof(text));
	m->functions = calloc(FUNCTIONS, sizeof(*m->functions));
	m->totals = calloc(MINUTES, sizeof(*m->totals));
	m->self.first = calloc(FUNCTIONS + 1, sizeof(*m->self.first));
	m->self.window = calloc((size_t)FUNCTIONS * MINUTES, sizeof(*m->self.window));
	m->self.value = calloc((size_t)FUNCTIONS * MINUTES, sizeof(*m->self.value));
	memcpy(m->text, text, sizeof(text));
	for (uint32_t f = 0; f < FUNCTIONS; f++)
		m->functions[f] = (struct window_function){ .name = 5 + 4 * f, .package = 1 };
	for (uint32_t i = 0; i < MINUTES; i++) {
		int64_t count[FUNCTIONS] = { 0 };

		for (int sample = 0; sample < SAMPLES; sample++) {
			double at = uniform();
			uint32_t f = 0;

			while (f + 1 < FUNCTIONS && at >= share[f])
				at -= share[f++];
			count[f]++;
		}
		for (uint32_t f = 0; f < FUNCTIONS; f++) {
			m->self.window[f * MINUTES + i] = i;
			m->self.value[f * MINUTES + i] = count[f];
			m->totals[i] += count[f];
		}
	}
	for (uint32_t f = 0; f <= FUNCTIONS; f++)
		m->self.first[f] = f * MINUTES;
	m->self.count = FUNCTIONS * MINUTES;
	return m;
}

/* Shares that differ from day to day by 3 %, with @change of function 3. */
static struct window_matrix *day(double change)
{
	double share[FUNCTIONS], sum = 0;

	for (uint32_t f = 0; f < FUNCTIONS; f++) {
		share[f] = (f < 4 ? 0.15 : 0.05) * exp(0.03 * normal());
		if (f == 3)
			share[f] *= 1 + change;
		sum += share[f];
	}
	for (uint32_t f = 0; f < FUNCTIONS; f++)
		share[f] /= sum;
	return hour_of(share);
}

struct week {
	struct window_matrix *hour, *past[7];
};

static struct week make_week(double change)
{
	struct week week;

	for (size_t i = 0; i < ARRAY_SIZE(week.past); i++)
		week.past[i] = day(0);
	week.hour = day(change);
	return week;
}

static void free_week(struct week *week)
{
	for (size_t i = 0; i < ARRAY_SIZE(week->past); i++)
		window_matrix_destroy(week->past[i]);
	window_matrix_destroy(week->hour);
}

static const struct hour_options standard = { .threshold = 0.005, .q = 0.01 };

static int judge(const struct week *week, uint32_t days, const struct hour_options *options,
		 struct hour_function **list, size_t *count)
{
	return hour_outliers(week->hour, (const struct window_matrix *const *)week->past, days, options,
			 list, count);
}

static void test_same_hour_of_a_week(void **state)
{
	unsigned wrong = 0, found = 0, others = 0;

	random_state = 11;
	for (int run = 0; run < 40; run++) {
		struct week steady = make_week(0), slower = make_week(0.6);
		cleanup_free struct hour_function *quiet = NULL, *loud = NULL;
		size_t count, changed = 0;

		assert_int_equal(judge(&steady, 7, &standard, &quiet, &count), 0);
		assert_int_equal(count, FUNCTIONS);
		for (size_t i = 0; i < count; i++)
			changed += quiet[i].changed;
		wrong += changed > 0;
		assert_int_equal(judge(&slower, 7, &standard, &loud, &count), 0);
		for (size_t i = 0; i < count; i++) {
			if (!loud[i].changed)
				continue;
			if (strcmp(loud[i].name, "f03") != 0) {
				others++;
				continue;
			}
			found++;
			assert_string_equal(loud[i].package, "app");
			assert_true(loud[i].z > 3 && loud[i].p < 0.01);
			assert_true(loud[i].interval[0] > 0);
			assert_true(loud[i].comparison > loud[i].base);
		}
		free_week(&steady);
		free_week(&slower);
	}
	/* Each check may err; the watch asks for two in succession. */
	assert_true(wrong <= 6);
	assert_true(found >= 36);
	assert_true(others <= 6);
}

/* The clearer a change, the surer it is; what everything else lost to it is no change. */
static void test_large_change(void **state)
{
	random_state = 13;
	for (int run = 0; run < 10; run++) {
		struct week week = make_week(3);
		cleanup_free struct hour_function *list = NULL;
		size_t count, others = 0;

		assert_int_equal(judge(&week, 7, &standard, &list, &count), 0);
		assert_string_equal(list[0].name, "f03");
		assert_true(list[0].changed && list[0].z > 15);
		for (size_t i = 1; i < count; i++)
			others += list[i].changed;
		assert_true(others <= 1);
		free_week(&week);
	}
}

static bool all_but_last(void *ctx, uint32_t index, const char *name, const char *package)
{
	return index < *(const uint32_t *)ctx || strcmp(name, "f03") != 0;
}

/* Hours inside an open alarm are not learned from; too little of anything is said as such. */
static void test_what_counts(void **state)
{
	uint32_t learned = 4;
	struct hour_options options = { .threshold = 0.005, .q = 0.01, .counts = all_but_last,
					.ctx = &learned };
	cleanup_free struct hour_function *list = NULL, *none = NULL;
	struct week week;
	size_t count;

	random_state = 12;
	week = make_week(0.6);
	for (size_t i = learned; i < ARRAY_SIZE(week.past); i++) {
		window_matrix_destroy(week.past[i]);
		week.past[i] = day(0.6); /* the alarm was open for three days */
	}
	assert_int_equal(judge(&week, 7, &options, &list, &count), 0);
	assert_string_equal(list[0].name, "f03");
	assert_true(list[0].changed);
	assert_true(fabs(list[0].base - 0.15) < 0.02);

	learned = 3;
	assert_int_equal(judge(&week, 7, &options, &none, &count), 0);
	for (size_t i = 0; i < count; i++)
		assert_string_not_equal(none[i].name, "f03");
	assert_int_equal(judge(&week, 3, &standard, &list, &count), -ENODATA);
	memset(week.hour->totals, 0, MINUTES * sizeof(*week.hour->totals));
	assert_int_equal(judge(&week, 7, &standard, &list, &count), -ENODATA);
	free_week(&week);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_noise_is_no_change),
		cmocka_unit_test(test_step_is_found_where_it_is),
		cmocka_unit_test(test_two_steps),
		cmocka_unit_test(test_same_hour_of_a_week),
		cmocka_unit_test(test_large_change),
		cmocka_unit_test(test_what_counts),
	};

	return cmocka_run_group_tests_name("watch_rules", tests, NULL, NULL);
}
