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

/* What lies at its bound exceeds it by chance in half of all simulations: 2 standard errors of theirs are allowed, 4 of a
 * quick choice, which may not fail once in a while. */
static double slack(double bound, int runs)
{
	return (runs_wanted() ? 2 : 4) * sqrt(bound * (1 - bound) / runs);
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
		bool quick;
	} rows[] = {
		{ &s0, 0, 0.01, { 0.01, 0.01, 0.01, 0.01 }, true },
		{ &s0, 0, 0.05, { 0.05, 0.05, 0.05, 0.05 }, false },
		{ &s1, 0, 0.01, { 0.01, 0.01, 0.01, 0.01 }, true },
		{ &s1, 0, 0.05, { 0.05, 0.05, 0.05, 0.05 }, true },
		{ &s1_restart5, 0.05, 0.01, { 0.01, 0.01, 0.01, 0.01 }, true },
		{ &s1_restart5, 0.05, 0.05, { 0.05, 0.05, 0.05, 0.05 }, false },
		{ &s1_restart10, 0.10, 0.01, { 0.01, 0.01, 0.01, 0.01 }, true },
		{ &s1_restart10, 0.10, 0.05, { 0.05, 0.05, 0.05, 0.05 }, false },
		{ &s2, 0, 0.01, { 0.09, 0.05, 0.02, 0.03 }, true },
	};
	int wanted = runs_wanted(), missed = 0;
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(sizes) && (wanted || rows[i].quick); k++) {
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

static const struct column { /* of the table of power */
	int size;
	double change;
} columns[] = {
	{ 0, 0.5 }, { 0, 1 },			     /* 10 x 99 */
	{ 1, 0.2 }, { 1, 0.5 }, { 1, 1 },	     /* 30 x 99 */
	{ 2, 0.2 }, { 2, 0.5 }, { 2, 1 }, { 2, -0.3 }, /* 60 x 99 */
	{ 3, 0.1 }, { 3, 0.2 }, { 3, 0.5 }, { 3, 1 }, { 3, -0.3 }, /* 60 x 1140 */
};

static void test_planted_change_is_found(void **state)
{
	static const struct {
		const struct world *world;
		double tau;
		int function;
		double power[ARRAY_SIZE(columns)];
		unsigned quick; /* bits of columns */
	} rows[] = {
		{ &s1, 0, 0, { .17, .71, .06, .80, 1, .22, .97, 1, .83, .06, .29, .99, 1, .99 }, 0x15a },
		{ &s1, 0, 3, { .01, .13, .01, .20, .95, .03, .60, 1, .22, .02, .23, .99, 1, .97 }, 0xd0 },
		{ &s1, 0, 17, { 0, 0, 0, 0, .09, .01, .01, .40, .01, 0, 0, .47, 1, 0 }, 0x80 },
		{ &s1_restart5, .05, 0, { .07, .51, 0, .25, .95, .01, .43, .98, .19, 0, .01, .41, 1, .33 }, 0xc0 },
		{ &s1_restart5, .05, 3, { .01, .12, 0, .10, .81, .01, .29, .97, .08, 0, .01, .59, 1, .36 }, 0x80 },
		{ &s1_restart5, .05, 17, { 0, 0, 0, 0, .06, 0, .01, .32, 0, 0, 0, .40, .99, .01 }, 0 },
	};
	int wanted = runs_wanted(), runs = wanted ? wanted : 100, missed = 0;
	/* The table's own; four standard errors of a quick choice are more. */
	double band = wanted ? 0.10 : 0.20;
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(columns); k++) {
			const struct size *size = &sizes[columns[k].size];
			struct power got;

			if (!wanted && !(rows[i].quick >> k & 1))
				continue;
			got = detect(rows[i].world, rows[i].tau, *size, rows[i].function, columns[k].change, runs);
			if (wanted)
				print_message("%-10s %u x %u, function %d %+.0f %%: %.3f (%.2f), others %.3f\n",
					      rows[i].world->name, size->windows, size->samples, rows[i].function,
					      100 * columns[k].change, got.found, rows[i].power[k], got.other);
			if (got.found < rows[i].power[k] - band || got.other > 0.01 + slack(0.01, runs)) {
				print_error("%s %u x %u, function %d: %.3f, others %.3f\n", rows[i].world->name,
					    size->windows, size->samples, rows[i].function, got.found, got.other);
				missed++;
			}
		}
	}
	assert_int_equal(missed, 0);
}

struct coverage {
	double covered; /* of the 99 % interval: mean over functions 0, 3 and 17 */
	double width;	/* half of the interval of function 0, in points */
};

/* Function 0 takes a fifth more, which the others lose in proportion. */
static struct coverage cover(const struct world *w, double tau, struct size size, int runs)
{
	static const uint32_t functions[] = { 0, 3, 17 };
	struct matrix base, comparison;
	struct coverage ret = { 0 };
	struct outcome o;

	random_state = 11 + size.windows * 10000 + size.samples;
	for (int r = 0; r < runs; r++) {
		generate(&base, w, size, -1, 0);
		generate(&comparison, w, size, 0, 0.2);
		run(&base, &comparison, tau, 0.01, &o);
		for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
			const struct share_row *row = row_of(&o, functions[i]);
			double share = share_of(functions[i]), after = share * (i ? 1 : 1.2) / (1 + 0.2 * 0.2);
			double half = stats_t_quantile(0.01, row->df) * sqrt(row->variance);

			ret.covered += (fabs(row->delta - (after - share)) <= half) / (double)(runs * 3);
			ret.width += i ? 0 : 100 * half / runs;
		}
	}
	return ret;
}

static void test_interval_covers(void **state)
{
	static const struct {
		const struct world *world;
		double tau, least[4], width[4]; /* width 0: nothing is said of it */
		unsigned quick;			/* bits of sizes */
	} rows[] = {
		{ &s0, 0, { .99, .99, .99, .99 }, { 0 }, 0 },
		{ &s1, 0, { .99, .99, .99, .99 }, { 6.9, 3.8, 3.0, 2.3 }, 2 },
		{ &s1_restart5, .05, { .996, .996, .996, .996 }, { 0 }, 0 },
		{ &s1_restart5, 0, { .99, .98, .97, .90 }, { 0 }, 0 },
		{ &s2, 0, { .94, .96, .98, .98 }, { 0 }, 0 },
	};
	int wanted = runs_wanted(), runs = wanted ? wanted : 200, missed = 0;
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(sizes); k++) {
			struct coverage got;

			if (!wanted && !(rows[i].quick >> k & 1))
				continue;
			got = cover(rows[i].world, rows[i].tau, sizes[k], runs);
			if (wanted)
				print_message("%-10s tau %.2f %u x %u: covers %.4f (bound %.3f), half %.2f\n",
					      rows[i].world->name, rows[i].tau, sizes[k].windows, sizes[k].samples,
					      got.covered, rows[i].least[k], got.width);
			if (got.covered < rows[i].least[k] - slack(rows[i].least[k], 3 * runs) ||
			    (rows[i].width[k] > 0 && fabs(got.width - rows[i].width[k]) > 0.4)) {
				print_error("%s %u x %u: covers %.4f, half %.2f\n", rows[i].world->name,
					    sizes[k].windows, sizes[k].samples, got.covered, got.width);
				missed++;
			}
		}
	}
	assert_int_equal(missed, 0);
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
