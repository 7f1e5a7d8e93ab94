// SPDX-License-Identifier: Apache-2.0
/* Reference values: closed forms where there are some, else tables (t quantiles) and the papers
 * named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/profile/stats.h"

static void assert_close(double got, double expected, double relative)
{
	if (fabs(got - expected) > relative * fabs(expected) + 1e-300)
		print_error("%.15g, expected %.15g\n", got, expected);
	assert_true(fabs(got - expected) <= relative * fabs(expected) + 1e-300);
}

static void test_gamma_functions(void **state)
{
	/* psi(1) = -gamma, psi(1/2) = -gamma - 2 ln 2; psi' and psi'' from zeta(2), zeta(3). */
	assert_close(stats_digamma(1), -0.57721566490153286, 1e-12);
	assert_close(stats_digamma(0.5), -1.9635100260214235, 1e-12);
	assert_close(stats_digamma(10.5), 2.3030010342976864, 1e-12);
	assert_close(stats_trigamma(1), 1.6449340668482264, 1e-12);
	assert_close(stats_trigamma(0.5), 4.9348022005446793, 1e-12);
	assert_close(stats_tetragamma(1), -2.4041138063191886, 1e-12);
	assert_close(stats_tetragamma(0.5), -16.828796644234320, 1e-12);
}

static void test_trigamma_inverse(void **state)
{
	static const double values[] = { 1e-6, 1e-3, 0.1, 1, 10, 1000 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(values); i++)
		assert_close(stats_trigamma(stats_trigamma_inverse(values[i])), values[i], 1e-8);
}

static void test_student(void **state)
{
	/* df 1 is Cauchy, df 2 has a closed form: exact to the digits. */
	assert_close(stats_t_p(1, 1), 0.5, 1e-12);
	assert_close(stats_t_p(1e8, 1), 2 / (M_PI * 1e8), 1e-9);
	assert_close(stats_t_p(3, 2), 1 - 3 / sqrt(11), 1e-12);
	assert_close(stats_t_p(2.228138852, 10), 0.05, 1e-8);
	assert_close(stats_t_quantile(0.01, 24), 2.796939505, 1e-8);
	assert_close(stats_t_quantile(0.05, 1), 12.706204736, 1e-8);
	assert_close(stats_t_p(stats_t_quantile(1e-12, 7.5), 7.5), 1e-12, 1e-8);
	assert_true(stats_t_p(0, 5) == 1);
	assert_true(stats_t_p(INFINITY, 5) == 0);
	assert_true(stats_t_p(NAN, 5) == 1);
	assert_true(stats_t_p(1e4, 60) > 0);
	assert_close(stats_normal_p(1.959963984540054), 0.05, 1e-12);
}

static void test_false_discovery(void **state)
{
	/* Benjamini and Hochberg (1995), table of 15 p-values; q by hand: min over k >= i of p_k 15
	 * / k. */
	static const double p[] = { 0.0459, 0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298,
				    0.0344, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000 };
	double q[ARRAY_SIZE(p)];
	struct stats_rank scratch[ARRAY_SIZE(p)];
	size_t i, found = 0;

	stats_bh(p, ARRAY_SIZE(p), q, scratch);
	assert_close(q[1], 0.0015, 1e-12);
	assert_close(q[2], 0.003, 1e-12);
	assert_close(q[4], 0.035625, 1e-12);
	assert_close(q[14], 1, 1e-12);
	for (i = 0; i < ARRAY_SIZE(p); i++)
		found += q[i] <= 0.05;
	assert_int_equal(found, 4); /* the paper's answer */
	stats_bh(p, 0, q, scratch);
}

static void test_order_statistics(void **state)
{
	double values[] = { 5, 1, 4, 2, 3 }, pair[] = { 1, 2 };

	assert_true(stats_quantile(values, 5, 0.5) == 3);
	assert_true(stats_quantile(values, 5, 0.95) == 4.8);
	assert_true(stats_quantile(values, 5, 1) == 5);
	assert_true(stats_quantile(pair, 2, 0.5) == 1.5);
	assert_true(stats_quantile(pair, 0, 0.5) == 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gamma_functions),	 cmocka_unit_test(test_trigamma_inverse),
		cmocka_unit_test(test_student),		 cmocka_unit_test(test_false_discovery),
		cmocka_unit_test(test_order_statistics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
