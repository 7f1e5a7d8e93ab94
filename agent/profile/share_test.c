// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/share_test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/stats.h"

#define DRIFT_LEAST_SHORT                                                                          \
	1.5 /* R0 below 20 windows: the 5-10 s to 1 s ratios measured on real programs */
#define DRIFT_LEAST	    1.25 /* R0 from 20 windows on */
#define DRIFT_SHORT_WINDOWS 20u
#define PRIOR_DF_MAX	    60.0
#define PRIOR_DF_FEW	    4.0 /* with fewer than 4 candidates */
#define SCALE_MAX	    3.0
#define SCALE_PART_LEAST    0.05

/* ---- blocks ---------------------------------------------------------------------------------- */

struct blocks {
	uint32_t count[2];	/* blocks with samples */
	uint32_t *of_window[2]; /* block of each window, UINT32_MAX = its block has no samples */
	double *n[2];		/* samples of each block */
	double total[2];	/* N */
	double *window_values;	/* scratch of the longer side */
	double *x[2];		/* scratch: one function's value in each block */
};

static void blocks_deinit(struct blocks *b)
{
	int s;

	for (s = 0; s < 2; s++) {
		free(b->of_window[s]);
		free(b->n[s]);
		free(b->x[s]);
	}
	free(b->window_values);
}

uint32_t share_block_windows(uint32_t a, uint32_t b)
{
	uint32_t least = a < b ? a : b;

	return least / SHARE_BLOCKS_WANTED ? least / SHARE_BLOCKS_WANTED : 1;
}

double share_drift_least(uint32_t a, uint32_t b)
{
	return (a < b ? a : b) < DRIFT_SHORT_WINDOWS ? DRIFT_LEAST_SHORT : DRIFT_LEAST;
}

static int blocks_side(struct blocks *b, const struct share_data *data, int s, uint32_t length)
{
	uint32_t windows = data->window_count[s], count = windows / length, used = 0, i;
	cleanup_free uint32_t *number = NULL;

	count = count ? count : 1;
	b->of_window[s] = calloc((size_t)windows + 1, sizeof(*b->of_window[s]));
	b->n[s] = calloc((size_t)count + 1, sizeof(*b->n[s]));
	b->x[s] = calloc((size_t)count + 1, sizeof(*b->x[s]));
	number = calloc((size_t)count + 1, sizeof(*number));
	if (!b->of_window[s] || !b->n[s] || !b->x[s] || !number)
		return -ENOMEM;
	/* The left-over windows join the last block. */
	for (i = 0; i < windows; i++) {
		b->of_window[s][i] = i / length < count ? i / length : count - 1;
		b->n[s][b->of_window[s][i]] += data->window_total[s][i];
		b->total[s] += data->window_total[s][i];
	}
	for (i = 0; i < count; i++) {
		number[i] = b->n[s][i] > 0 ? used : UINT32_MAX;
		if (b->n[s][i] > 0)
			b->n[s][used++] = b->n[s][i];
	}
	for (i = 0; i < windows; i++)
		b->of_window[s][i] = number[b->of_window[s][i]];
	b->count[s] = used;
	return 0;
}

static int blocks_init(struct blocks *b, const struct share_data *data)
{
	uint32_t length = share_block_windows(data->window_count[0], data->window_count[1]);
	uint32_t longest = data->window_count[0] > data->window_count[1] ? data->window_count[0]
									 : data->window_count[1];
	int rc = blocks_side(b, data, 0, length);

	if (rc == 0)
		rc = blocks_side(b, data, 1, length);
	b->window_values = calloc((size_t)longest + 1, sizeof(*b->window_values));
	return rc < 0 || !b->window_values ? -ENOMEM : 0;
}

/* Fills b->x[s] and returns the function's sum on side @s. */
static double load(struct blocks *b, const struct share_data *data, int s, uint32_t function)
{
	uint32_t i;
	double sum = 0;

	memset(b->window_values, 0, data->window_count[s] * sizeof(double));
	memset(b->x[s], 0, b->count[s] * sizeof(double));
	data->values(data->ctx, s, function, b->window_values);
	for (i = 0; i < data->window_count[s]; i++) {
		if (b->of_window[s][i] == UINT32_MAX)
			continue;
		b->x[s][b->of_window[s][i]] += b->window_values[i];
		sum += b->window_values[i];
	}
	return sum;
}

/* ---- dispersion ------------------------------------------------------------------------------ */

/* Sum of squared residuals x - share·n over groups of @g neighbouring blocks; the rest joins the
 * last. */
static double residuals(const double *x, const double *n, uint32_t count, uint32_t g, double share,
			uint32_t *ret_groups)
{
	uint32_t groups = count / g ? count / g : 1, i;
	double sum = 0, r = 0;

	for (i = 0; i < count; i++) {
		r += x[i] - share * n[i];
		if (i + 1 == count || ((i + 1) % g == 0 && (i + 1) / g < groups)) {
			sum += r * r;
			r = 0;
		}
	}
	*ret_groups = groups;
	return sum;
}

/* phi of the function loaded in b->x, on blocks grouped by @g; *ret_df its degrees of freedom. */
static double dispersion(const struct blocks *b, const double share[2], double pooled, uint32_t g,
			 double *ret_df)
{
	double sum = 0, df = -2;
	uint32_t groups;
	int s;

	for (s = 0; s < 2; s++) {
		double r2 = residuals(b->x[s], b->n[s], b->count[s], g, share[s], &groups);

		sum += (double)groups / b->total[s] * r2;
		df += groups;
	}
	*ret_df = df;
	return df > 0 ? sum / (df * pooled * (1 - pooled)) : 0;
}

struct prior {
	double nu0, phi0;
};

/* Empirical Bayes as limma and edgeR do it for genes: the prior from the spread of ln phi. */
static struct prior shrink(const double *phi, size_t count, double df)
{
	double mean = 0, variance = 0, sum = 0, v;
	size_t i, used = 0;

	for (i = 0; i < count; i++) {
		if (phi[i] <= 0)
			continue;
		mean += log(phi[i]) - stats_digamma(df / 2) + log(df / 2);
		sum += phi[i];
		used++;
	}
	if (used < 4)
		return (struct prior){ PRIOR_DF_FEW, used ? sum / (double)used : 1 };
	mean /= (double)used;
	for (i = 0; i < count; i++) {
		double e;

		if (phi[i] <= 0)
			continue;
		e = log(phi[i]) - stats_digamma(df / 2) + log(df / 2) - mean;
		variance += e * e;
	}
	v = variance / (double)(used - 1) - stats_trigamma(df / 2);
	if (v <= 1e-6)
		return (struct prior){ PRIOR_DF_MAX, exp(mean) };
	v = stats_trigamma_inverse(v);
	return (struct prior){ fmin(2 * v, PRIOR_DF_MAX), exp(mean + stats_digamma(v) - log(v)) };
}

/* What one candidate contributes to prior and drift, and needs afterwards. */
struct measured {
	double share[2], pooled, phi;
};

struct drift_sums {
	double one, grouped[4]; /* by g = 2, 3 */
};

static bool can_group(const struct blocks *b, uint32_t g)
{
	return b->count[0] / g >= 3 && b->count[1] / g >= 3;
}

static void measure(struct blocks *b, const struct share_data *data, uint32_t function,
		    struct measured *ret, struct drift_sums *drift)
{
	double total[2], weight, df;
	uint32_t g;
	int s;

	for (s = 0; s < 2; s++) {
		total[s] = load(b, data, s, function);
		ret->share[s] = b->total[s] > 0 ? total[s] / b->total[s] : 0;
	}
	ret->pooled = (total[0] + total[1]) / (b->total[0] + b->total[1]);
	weight = ret->pooled * (1 - ret->pooled);
	if (data->totals_only || weight <= 0)
		return;
	ret->phi = dispersion(b, ret->share, ret->pooled, 1, &df);
	drift->one += weight * ret->phi;
	for (g = 2; g <= 3; g++)
		if (can_group(b, g))
			drift->grouped[g] +=
				weight * dispersion(b, ret->share, ret->pooled, g, &df);
}

static double drift_of(const struct blocks *b, const struct share_data *data,
		       const struct drift_sums *sums)
{
	double drift = share_drift_least(data->window_count[0], data->window_count[1]);
	uint32_t g;

	for (g = 2; g <= 3; g++)
		if (can_group(b, g) && sums->one > 0)
			drift = fmax(drift, sums->grouped[g] / sums->one);
	return drift;
}

/* Adds one data set's part of variance to a row; degrees of freedom by Satterthwaite's formula. */
static void add_variance(struct share_row *row, double variance, double df)
{
	double before = row->variance * row->variance, part = variance * variance, sum;

	if (variance <= 0)
		return;
	sum = row->variance + variance;
	row->df = sum * sum / ((row->df > 0 ? before / row->df : 0) + part / df);
	row->variance = sum;
}

static void add_rows(const struct share_data *data, const struct blocks *b,
		     const struct measured *measured, const struct share_noise *noise,
		     double weight, double df, struct share_row *rows, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		const struct measured *m = &measured[i];
		double star, v0;

		rows[i].base += weight * m->share[0];
		rows[i].comparison += weight * m->share[1];
		rows[i].pooled += weight * m->pooled;
		rows[i].delta = rows[i].comparison - rows[i].base;
		v0 = m->pooled * (1 - m->pooled) * (1 / b->total[0] + 1 / b->total[1]);
		if (data->totals_only) {
			star = SHARE_TOTALS_PHI;
			df = SHARE_TOTALS_DF;
		} else {
			/* Never below the own phi: the few bursty functions must not be averaged
			 * away. Never below 1: sampling noise is always there. */
			star = (noise->nu0 * noise->phi0 + df * m->phi) / (noise->nu0 + df);
			star = fmax(fmax(star, m->phi), 1);
		}
		rows[i].phi = m->phi;
		rows[i].phi_star = star;
		add_variance(&rows[i], weight * weight * v0 * star * noise->drift,
			     data->totals_only ? SHARE_TOTALS_DF : noise->nu0 + df);
	}
}

int share_noise_add(const struct share_data *data, double weight, struct share_row *rows,
		    size_t row_count, struct share_noise *ret)
{
	__attribute__((__cleanup__(blocks_deinit))) struct blocks b = { 0 };
	cleanup_free struct measured *measured = calloc(row_count + 1, sizeof(*measured));
	cleanup_free double *phi = calloc(row_count + 1, sizeof(*phi));
	struct share_noise noise = { .nu0 = PRIOR_DF_FEW, .phi0 = 1 };
	struct drift_sums sums = { 0 };
	double df;
	size_t i;
	int rc = blocks_init(&b, data);

	if (rc < 0 || !measured || !phi)
		return -ENOMEM;
	memcpy(noise.blocks, b.count, sizeof(noise.blocks));
	memcpy(noise.samples, b.total, sizeof(noise.samples));
	df = (double)b.count[0] + (double)b.count[1] - 2;
	if (b.total[0] > 0 && b.total[1] > 0) {
		for (i = 0; i < row_count; i++) {
			measure(&b, data, rows[i].function, &measured[i], &sums);
			phi[i] = measured[i].phi;
		}
		noise.drift = drift_of(&b, data, &sums);
		if (!data->totals_only && df > 0) {
			struct prior prior = shrink(phi, row_count, df);

			noise.nu0 = prior.nu0;
			noise.phi0 = prior.phi0;
		}
		add_rows(data, &b, measured, &noise, weight, fmax(df, 1), rows, row_count);
	}
	*ret = noise;
	return 0;
}

double share_series_drift(const double *y, uint32_t count, double least)
{
	double mean = 0, one = 0, drift = least;
	uint32_t i, g, groups;

	for (i = 0; i < count; i++)
		mean += y[i] / count;
	for (i = 0; i < count; i++)
		one += (y[i] - mean) * (y[i] - mean);
	if (count < 2 || one <= 0)
		return drift;
	for (g = 2; g <= 3; g++) {
		double sum = 0;

		groups = count / g;
		if (groups < 3)
			break;
		/* Sum of squares of group sums / g estimates the same variance if blocks are
		 * independent. */
		for (i = 0; i < groups; i++) {
			double r = 0;
			uint32_t k;

			for (k = 0; k < g; k++)
				r += y[i * g + k] - mean;
			sum += r * r / g;
		}
		drift = fmax(drift, (sum / (groups - 1)) / (one / (count - 1)));
	}
	return drift;
}

/* ---- tests ----------------------------------------------------------------------------------- */

struct explanation {
	struct share_row *rows;
	size_t count;
	const struct share_limits *limits;
	double scale; /* k */
	double *p, *q;
	struct stats_rank *scratch;
};

static double cost_delta(const struct share_row *row, double k)
{
	return row->comparison - k * row->base;
}

static double cost_error(const struct share_row *row, double k)
{
	return sqrt(row->variance * (1 + k * k) / 2);
}

static double p_of(double difference, double error, double df)
{
	if (error <= 0)
		return difference == 0 ? 1 : 0;
	return stats_t_p(difference / error, df);
}

static bool passes(const struct share_row *row, double k, double threshold)
{
	double d = cost_delta(row, k);

	return !row->barred && fabs(d) >= threshold && fabs(row->delta) >= threshold &&
	       (d > 0) == (row->delta > 0) && row->delta != 0;
}

static double scale_of(const struct share_row *rows, size_t count)
{
	double base = 1, comparison = 1;
	size_t i;

	for (i = 0; i < count; i++) {
		if (!rows[i].changed)
			continue;
		base -= rows[i].base;
		comparison -= rows[i].comparison;
	}
	if (base <= SCALE_PART_LEAST || comparison <= SCALE_PART_LEAST)
		return 1;
	return fmin(fmax(comparison / base, 1 / SCALE_MAX), SCALE_MAX);
}

/* Adds the strongest eligible row to S; false when there is none. */
static bool explain_one(struct explanation *e)
{
	struct share_row *best = NULL;
	double strongest = 0;
	size_t i;

	for (i = 0; i < e->count; i++) {
		struct share_row *row = &e->rows[i];

		e->p[i] = row->changed ? 0
				       : p_of(cost_delta(row, e->scale), cost_error(row, e->scale),
					      row->df);
	}
	stats_bh(e->p, e->count, e->q, e->scratch);
	for (i = 0; i < e->count; i++) {
		struct share_row *row = &e->rows[i];
		double error = cost_error(row, e->scale), strength;

		if (row->changed || e->q[i] > e->limits->q ||
		    !passes(row, e->scale, e->limits->threshold))
			continue;
		strength = error > 0 ? fabs(cost_delta(row, e->scale)) / error : INFINITY;
		if (!best || strength > strongest) {
			best = row;
			strongest = strength;
		}
	}
	if (!best)
		return false;
	best->changed = true;
	e->scale = scale_of(e->rows, e->count);
	return true;
}

/* One regression "improves" everything else: accept one function at a time, strongest first, and
 * judge the rest by what the scale of the unchanged part leaves of its change. */
static void explain_all(struct explanation *e)
{
	uint32_t members = 0;
	size_t i;

	e->scale = 1;
	while (members < SHARE_CHANGED_MAX && explain_one(e))
		members++;
	for (i = 0; i < e->count; i++) {
		struct share_row *row = &e->rows[i];

		row->cost_delta = cost_delta(row, e->scale);
		if (row->changed &&
		    (!passes(row, e->scale, e->limits->threshold) ||
		     p_of(row->cost_delta, cost_error(row, e->scale), row->df) > e->limits->q))
			row->changed = false;
	}
}

int share_rows_test(struct share_row *rows, size_t row_count, const struct share_limits *limits,
		    bool explain, double *ret_scale)
{
	cleanup_free double *p = calloc(row_count + 1, sizeof(*p));
	cleanup_free double *q = calloc(row_count + 1, sizeof(*q));
	cleanup_free struct stats_rank *scratch = calloc(row_count + 1, sizeof(*scratch));
	struct explanation e = { rows, row_count, limits, 1, p, q, scratch };
	size_t i;

	if (!p || !q || !scratch)
		return -ENOMEM;
	for (i = 0; i < row_count; i++) {
		struct share_row *row = &rows[i];
		double restart = row->tau * row->pooled;

		row->variance += restart * restart * (1 / limits->lives[0] + 1 / limits->lives[1]);
		row->df = row->df > 0 ? row->df : 1;
		row->p = p[i] = p_of(row->delta, sqrt(row->variance), row->df);
	}
	stats_bh(p, row_count, q, scratch);
	for (i = 0; i < row_count; i++) {
		rows[i].q = q[i];
		rows[i].cost_delta = rows[i].delta;
		rows[i].significant = q[i] <= limits->q && rows[i].delta != 0 &&
				      fabs(rows[i].delta) >= limits->threshold;
		if (!explain)
			rows[i].changed = rows[i].significant && !rows[i].barred;
	}
	if (explain)
		explain_all(&e);
	*ret_scale = e.scale;
	return 0;
}
