// SPDX-License-Identifier: Apache-2.0
/* The test of shares against its own acceptance table (agent/profile/README.md, "Figures"): false
 * calls when nothing changed, power when something did, by simulation with a fixed seed.
 * PROFD_TEST_RUNS=1000 runs every cell with as many runs instead of a quick choice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/hash.h"
#include "agent/profile/share_test.h"
#include "agent/profile/stats.h"

#define FUNCTIONS   82
#define WINDOWS_MAX 60

static int runs_wanted(void)
{
	const char *text = getenv("PROFD_TEST_RUNS");

	return text ? atoi(text) : 0;
}

/* ---- the generator of the acceptance table --------------------------------------------------- */

struct world {
	const char *name;
	double sigma, rho, restart;
	bool bursty; /* sigma of every third function is 0.5 */
};

static const struct world s0 = { "S0", 0, 0, 0, false };
static const struct world s1 = { "S1", 0.15, 0.5, 0, false };
static const struct world s1_restart5 = { "S1 T 5 %", 0.15, 0.5, 0.05, false };
static const struct world s1_restart10 = { "S1 T 10 %", 0.15, 0.5, 0.10, false };
static const struct world s2 = { "S2", 0.15, 0.7, 0, true };

struct size {
	uint32_t windows, samples; /* samples in each window */
};
static const struct size sizes[] = { { 10, 99 }, { 30, 99 }, { 60, 99 }, { 60, 1140 } };

struct matrix {
	uint32_t windows, functions;
	double total[WINDOWS_MAX];
	double x[WINDOWS_MAX][FUNCTIONS];
};

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

static double share_of(unsigned j)
{
	return j < 1 ? 0.20 : j < 3 ? 0.10 : j < 7 ? 0.05 : j < 17 ? 0.02 : j < 32 ? 0.01 : 0.001;
}

static void draw_window(double *x, const double *weight, uint32_t samples)
{
	double cumulative[FUNCTIONS], sum = 0;
	uint32_t i, low, high;
	unsigned j;

	for (j = 0; j < FUNCTIONS; j++)
		cumulative[j] = sum += weight[j];
	for (i = 0; i < samples; i++) {
		double at = uniform() * sum;

		for (low = 0, high = FUNCTIONS - 1; low < high;) {
			uint32_t middle = (low + high) / 2;

			if (cumulative[middle] <= at)
				low = middle + 1;
			else
				high = middle;
		}
		x[low]++;
	}
}

static void generate(struct matrix *m, const struct world *w, struct size size, int planted,
		     double change)
{
	double z[FUNCTIONS], life[FUNCTIONS], weight[FUNCTIONS];
	uint32_t i;
	unsigned j;

	memset(m, 0, sizeof(*m));
	m->windows = size.windows;
	m->functions = FUNCTIONS;
	for (j = 0; j < FUNCTIONS; j++) {
		z[j] = normal();
		life[j] = w->restart > 0 ? exp(w->restart * normal()) : 1;
	}
	for (i = 0; i < size.windows; i++) {
		for (j = 0; j < FUNCTIONS; j++) {
			double sigma = w->bursty && j % 3 == 0 ? 0.5 : w->sigma;

			if (i)
				z[j] = w->rho * z[j] + sqrt(1 - w->rho * w->rho) * normal();
			weight[j] = share_of(j) * ((int)j == planted ? 1 + change : 1) *
				    exp(sigma * z[j] - sigma * sigma / 2) * life[j];
		}
		draw_window(m->x[i], weight, size.samples);
		m->total[i] = size.samples;
	}
}

/* ---- running the test ------------------------------------------------------------------------ */

static void values(void *ctx, int side, uint32_t function, double *ret)
{
	const struct matrix *const *m = ctx;
	uint32_t i;

	for (i = 0; i < m[side]->windows; i++)
		ret[i] = m[side]->x[i][function];
}

struct outcome {
	struct share_row rows[FUNCTIONS];
	size_t count;
	struct share_noise noise;
	double scale;
};

static void run(const struct matrix *base, const struct matrix *comparison, double tau, double q,
		struct outcome *ret)
{
	const struct matrix *m[2] = { base, comparison };
	struct share_data data = { .window_count = { base->windows, comparison->windows },
				   .window_total = { base->total, comparison->total },
				   .ctx = m,
				   .values = values };
	struct share_limits limits = { 0.005, q, { 1, 1 } };
	uint32_t i, j;

	memset(ret, 0, sizeof(*ret));
	for (j = 0; j < base->functions; j++) {
		double share = 0;
		int s;

		for (s = 0; s < 2; s++) {
			double sum = 0, all = 0;

			for (i = 0; i < m[s]->windows; i++) {
				sum += m[s]->x[i][j];
				all += m[s]->total[i];
			}
			share += sum / all / 2;
		}
		if (share >= 0.0025)
			ret->rows[ret->count++] = (struct share_row){ .function = j, .tau = tau };
	}
	assert_int_equal(share_noise_add(&data, 1, ret->rows, ret->count, &ret->noise), 0);
	assert_int_equal(share_rows_test(ret->rows, ret->count, &limits, true, &ret->scale), 0);
}

static const struct share_row *row_of(const struct outcome *o, uint32_t function)
{
	size_t i;

	for (i = 0; i < o->count; i++)
		if (o->rows[i].function == function)
			return &o->rows[i];
	return NULL;
}

/* ---- exact example --------------------------------------------------------------------------- */

static void example(struct matrix *m, int side, int planted)
{
	static const double a[] = { 40, 20, 15, 10, 8, 5, 2 };
	int i, j;

	memset(m, 0, sizeof(*m));
	m->windows = 24;
	m->functions = 7;
	for (i = 0; i < 24; i++) {
		for (j = 0; j < 7; j++) {
			m->x[i][j] = a[j] + (7 * i + 3 * j + 5 * side + i * i) % (j + 3);
			if (side == 1 && j == planted)
				m->x[i][j] += 18;
			m->total[i] += m->x[i][j];
		}
	}
}

static void near(double got, double expected, double tolerance)
{
	if (fabs(got - expected) > tolerance)
		print_error("%.12g, expected %.12g\n", got, expected);
	assert_true(fabs(got - expected) <= tolerance);
}

static void test_exact_example(void **state)
{
	static const struct {
		uint32_t j;
		double base, comparison, phi, star, error, p, q;
	} expected[] = {
		{ 0, 0.338536, 0.306373, 0.116562, 1, 0.013346, 0.0238128, 0.0573422 },
		{ 1, 0.183143, 0.286765, 0.091966, 1, 0.012172, 8.8296e-9, 6.1807e-8 },
		{ 6, 0.054457, 0.049020, 1.081467, 1.081467, 0.006572, 0.416016, 0.416016 },
	};
	struct matrix base, comparison;
	struct outcome o;
	size_t i;

	example(&base, 0, -1);
	example(&comparison, 1, 1);
	run(&base, &comparison, 0, 0.01, &o);
	near(o.noise.samples[0], 2883, 0);
	near(o.noise.samples[1], 3264, 0);
	near(o.noise.nu0, 2.46880, 5e-6);
	near(o.noise.phi0, 0.152149, 5e-7);
	near(o.noise.drift, 1.25, 0);
	near(o.rows[1].df, 24.4688, 5e-5);
	for (i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct share_row *row = row_of(&o, expected[i].j);

		near(row->base, expected[i].base, 5e-7);
		near(row->comparison, expected[i].comparison, 5e-7);
		near(row->phi, expected[i].phi, 5e-7);
		near(row->phi_star, expected[i].star, 5e-7);
		near(sqrt(row->variance), expected[i].error, 5e-7);
		near(row->p / expected[i].p, 1, 1e-5);
		near(row->q / expected[i].q, 1, 1e-5);
		assert_int_equal(row->changed, expected[i].j == 1);
	}
	near(o.scale, 0.873145, 5e-7);
	near(o.rows[1].delta - stats_t_quantile(0.01, o.rows[1].df) * sqrt(o.rows[1].variance),
	     0.06963, 5e-6);
	near(o.rows[1].delta + stats_t_quantile(0.01, o.rows[1].df) * sqrt(o.rows[1].variance),
	     0.13761, 5e-6);

	example(&comparison, 1, -1);
	run(&base, &comparison, 0, 0.01, &o);
	near(o.noise.samples[1], 2832, 0);
	near(o.noise.nu0, 2.66761, 5e-6);
	near(o.noise.phi0, 0.163790, 5e-7);
	near(o.rows[0].p, 0.310379, 5e-7);
	for (i = 0; i < o.count; i++) {
		assert_false(o.rows[i].changed);
		assert_true(o.rows[i].p >= o.rows[0].p);
	}
}

static void test_swapped_sides_mirror(void **state)
{
	struct matrix base, comparison;
	struct outcome there, back, same;
	size_t i;

	random_state = 5;
	generate(&base, &s1, sizes[1], -1, 0);
	generate(&comparison, &s1, sizes[1], 0, 1);
	run(&base, &comparison, 0.05, 0.01, &there);
	run(&comparison, &base, 0.05, 0.01, &back);
	assert_int_equal(there.count, back.count);
	for (i = 0; i < there.count; i++) {
		near(there.rows[i].delta, -back.rows[i].delta, 1e-15);
		near(there.rows[i].p, back.rows[i].p, 1e-12);
		assert_int_equal(there.rows[i].changed, back.rows[i].changed);
	}
	assert_true(there.rows[0].changed);
	run(&base, &base, 0, 0.01, &same);
	for (i = 0; i < same.count; i++) {
		near(same.rows[i].p, 1, 0);
		assert_false(same.rows[i].changed);
	}
}

/* ---- acceptance table ------------------------------------------------------------------------ */

/* With r runs, a true rate at the bound exceeds it by chance: allow 4 standard errors of the bound.
 */
static double slack(double bound, int runs)
{
	return 4 * sqrt(bound * (1 - bound) / runs);
}

static double false_calls(const struct world *w, double tau, struct size size, double q, int runs)
{
	struct matrix base, comparison;
	struct outcome o;
	int called = 0, r;
	size_t i;

	random_state = hash_bytes(w->name, strlen(w->name), size.windows * 10000 + size.samples);
	for (r = 0; r < runs; r++) {
		bool any = false;

		generate(&base, w, size, -1, 0);
		generate(&comparison, w, size, -1, 0);
		run(&base, &comparison, tau, q, &o);
		for (i = 0; i < o.count; i++)
			any |= o.rows[i].significant || o.rows[i].changed;
		called += any;
	}
	return (double)called / runs;
}

static void test_nothing_changed(void **state)
{
	static const struct {
		const struct world *world;
		double tau, q, bound[4];
	} rows[] = {
		{ &s0, 0, 0.01, { 0.01, 0.01, 0.01, 0.01 } },
		{ &s1, 0, 0.01, { 0.01, 0.01, 0.01, 0.01 } },
		{ &s1, 0, 0.05, { 0.05, 0.05, 0.05, 0.05 } },
		{ &s1_restart5, 0.05, 0.01, { 0.01, 0.01, 0.01, 0.01 } },
		{ &s1_restart10, 0.10, 0.01, { 0.01, 0.01, 0.01, 0.01 } },
		{ &s2, 0, 0.01, { 0.09, 0.05, 0.02, 0.03 } },
	};
	int wanted = runs_wanted(), missed = 0;
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(sizes); k++) {
			int runs = wanted ? wanted : k == 3 ? 60 : 200;
			double rate =
				false_calls(rows[i].world, rows[i].tau, sizes[k], rows[i].q, runs);

			if (wanted)
				print_message("%-10s q %.2f %u x %u: %.4f (bound %.2f)\n",
					      rows[i].world->name, rows[i].q, sizes[k].windows,
					      sizes[k].samples, rate, rows[i].bound[k]);
			if (rate > rows[i].bound[k] + slack(rows[i].bound[k], runs)) {
				print_error("%s %u x %u: %.4f\n", rows[i].world->name,
					    sizes[k].windows, sizes[k].samples, rate);
				missed++;
			}
		}
	}
	assert_int_equal(missed, 0);
}

struct power {
	double found, other;
};

static struct power detect(const struct world *w, double tau, struct size size, int function,
			   double change, int runs)
{
	struct matrix base, comparison;
	struct outcome o;
	struct power power = { 0 };
	int r;
	size_t i;

	random_state = hash_bytes(w->name, strlen(w->name),
				  size.windows * 10000 + size.samples + (uint64_t)function);
	for (r = 0; r < runs; r++) {
		bool found = false, other = false;

		generate(&base, w, size, -1, 0);
		generate(&comparison, w, size, function, change);
		run(&base, &comparison, tau, 0.01, &o);
		for (i = 0; i < o.count; i++) {
			if ((int)o.rows[i].function == function)
				found |= o.rows[i].changed;
			else
				other |= o.rows[i].changed;
		}
		power.found += (double)found / runs;
		power.other += (double)other / runs;
	}
	return power;
}

static void test_planted_change_is_found(void **state)
{
	static const struct {
		const struct world *world;
		double tau;
		int size, function;
		double change, power;
		bool quick;
	} rows[] = {
		{ &s1, 0, 0, 0, 0.5, 0.17, false },
		{ &s1, 0, 0, 0, 1.0, 0.71, true },
		{ &s1, 0, 1, 0, 0.2, 0.06, false },
		{ &s1, 0, 1, 0, 0.5, 0.80, true },
		{ &s1, 0, 1, 0, 1.0, 1.00, true },
		{ &s1, 0, 2, 0, 0.5, 0.97, true },
		{ &s1, 0, 2, 0, -0.3, 0.83, true },
		{ &s1, 0, 3, 0, 0.2, 0.29, false },
		{ &s1, 0, 3, 0, 0.5, 0.99, false },
		{ &s1, 0, 3, 0, -0.3, 0.99, false },
		{ &s1, 0, 0, 3, 1.0, 0.13, false },
		{ &s1, 0, 1, 3, 1.0, 0.95, true },
		{ &s1, 0, 2, 3, 0.5, 0.60, true },
		{ &s1, 0, 2, 3, 1.0, 1.00, true },
		{ &s1, 0, 2, 3, -0.3, 0.22, false },
		{ &s1, 0, 2, 17, 1.0, 0.40, true },
		{ &s1, 0, 3, 17, 0.5, 0.47, false },
		{ &s1, 0, 3, 17, 1.0, 1.00, false },
		{ &s1_restart5, 0.05, 1, 0, 0.5, 0.25, false },
		{ &s1_restart5, 0.05, 2, 0, 0.5, 0.43, true },
		{ &s1_restart5, 0.05, 2, 0, 1.0, 0.98, true },
		{ &s1_restart5, 0.05, 2, 3, 1.0, 0.97, true },
		{ &s1_restart5, 0.05, 3, 0, 1.0, 1.00, false },
		{ &s1_restart5, 0.05, 3, 3, 0.5, 0.59, false },
	};
	int wanted = runs_wanted(), missed = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		int runs = wanted ? wanted : 100;
		/* Four standard errors of this simulation; the table's own are in the 0.10. */
		double band = wanted ? 0.10 + slack(rows[i].power, runs) : 0.20;
		struct power got;

		if (!wanted && !rows[i].quick)
			continue;
		got = detect(rows[i].world, rows[i].tau, sizes[rows[i].size], rows[i].function,
			     rows[i].change, runs);
		if (wanted)
			print_message(
				"%-10s %u x %u, function %d %+.0f %%: %.3f (%.2f), others %.3f\n",
				rows[i].world->name, sizes[rows[i].size].windows,
				sizes[rows[i].size].samples, rows[i].function, 100 * rows[i].change,
				got.found, rows[i].power, got.other);
		if (got.found < rows[i].power - band || got.other > 0.01 + slack(0.01, runs)) {
			print_error("%s %u x %u, function %d: %.3f, others %.3f\n",
				    rows[i].world->name, sizes[rows[i].size].windows,
				    sizes[rows[i].size].samples, rows[i].function, got.found,
				    got.other);
			missed++;
		}
	}
	assert_int_equal(missed, 0);
}

static void test_interval_covers(void **state)
{
	const double before = 0.20, after = 0.20 * 1.2 / (1 + 0.20 * 0.2);
	int runs = runs_wanted() ? runs_wanted() : 200, covered = 0, r;
	struct matrix base, comparison;
	double width = 0;
	struct outcome o;

	random_state = 11;
	for (r = 0; r < runs; r++) {
		const struct share_row *row;
		double half;

		generate(&base, &s1, sizes[1], -1, 0);
		generate(&comparison, &s1, sizes[1], 0, 0.2);
		run(&base, &comparison, 0, 0.01, &o);
		row = row_of(&o, 0);
		half = stats_t_quantile(0.01, row->df) * sqrt(row->variance);
		covered += fabs(row->delta - (after - before)) <= half;
		width += half / runs;
	}
	assert_true((double)covered / runs >= 0.99 - slack(0.01, runs));
	near(100 * width, 3.8, 0.4);
}

static void test_totals_only_is_wide(void **state)
{
	double total[1] = { 5000 };
	struct matrix a = { .windows = 1, .functions = 2 }, b;
	const struct matrix *m[2] = { &a, &b };
	struct share_row rows[1] = { { .function = 0 } };
	struct share_data data = { .window_count = { 1, 1 },
				   .window_total = { total, total },
				   .ctx = m,
				   .values = values,
				   .totals_only = true };
	struct share_limits limits = { 0.005, 0.01, { 1, 1 } };
	struct share_noise noise;
	double scale;

	a.x[0][0] = 1000;
	b = a;
	b.x[0][0] = 1500;
	assert_int_equal(share_noise_add(&data, 1, rows, 1, &noise), 0);
	near(rows[0].phi_star, 3, 0);
	assert_int_equal(share_rows_test(rows, 1, &limits, true, &scale), 0);
	near(rows[0].df, 10, 1e-9);
	assert_true(rows[0].changed);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact_example),
		cmocka_unit_test(test_swapped_sides_mirror),
		cmocka_unit_test(test_nothing_changed),
		cmocka_unit_test(test_planted_change_is_found),
		cmocka_unit_test(test_interval_covers),
		cmocka_unit_test(test_totals_only_is_wide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
