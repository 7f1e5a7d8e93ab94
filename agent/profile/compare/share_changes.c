// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/compare/share_changes.h"

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
#define SCALE_MAX	    (1 / SCALE_PART_LEAST)
#define SCALE_PART_LEAST    0.05
#define WEIGHT_MAX	    0.25 /* of one function: a majority is more than one */
#define WEIGHT_NONE	    1e-9
#define STEADY_PART_LEAST   0.5
#define OTHER_PART_LEAST    0.8 /* of what is not the one function: it has a scale of its own */
#define OTHER_ROWS_LEAST    3u
#define OTHER_SCALE_LEAST   0.22 /* log 1.25: scales that differ by less are one */
#define LOAD_STEADY	    0.14 /* log 1.15: the load was the same */
#define NO_ROW		    SIZE_MAX
#define MOVED_P		    0.05 /* a row that disagrees so much with the scale does not agree well */
#define TURNS_MAX	    30u
#define BAND_MASS	    0.05

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

/* The part of one candidate in prior and drift, and what it needs afterwards. */
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
	struct drift_sums sums = { 0 }, of_bands = { 0 };
	double df;
	size_t candidates = 0, i;
	int rc = blocks_init(&b, data);

	if (rc < 0 || !measured || !phi)
		return -ENOMEM;
	memcpy(noise.blocks, b.count, sizeof(noise.blocks));
	memcpy(noise.samples, b.total, sizeof(noise.samples));
	df = (double)b.count[0] + (double)b.count[1] - 2;
	if (b.total[0] > 0 && b.total[1] > 0) {
		for (i = 0; i < row_count; i++) {
			/* Bands average over functions and would make single ones look steadier. */
			measure(&b, data, rows[i].function, &measured[i], rows[i].band ? &of_bands : &sums);
			if (!rows[i].band)
				phi[candidates++] = measured[i].phi;
		}
		noise.drift = drift_of(&b, data, &sums);
		if (!data->totals_only && df > 0) {
			struct prior prior = shrink(phi, candidates, df);

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
	bool *moved; /* rows that do not belong to the steady part; the last is @rest */
	size_t without; /* a row that never belongs to it; NO_ROW = none */
	struct share_row rest; /* what no row covers */
	double mass; /* of the steady part, of its sides the mean; 0 = the scale is no estimate */
};

static double cost_delta(const struct share_row *row, double k)
{
	return row->comparison - k * row->base;
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

/* ---- the steady part ------------------------------------------------------------------------- */

/* The part that no row covers is one more row. Its noise is at most that of all the others. */
static struct share_row rest_of(const struct share_row *rows, size_t count)
{
	struct share_row rest = { .base = 1, .comparison = 1, .df = INFINITY, .band = true };

	for (size_t i = 0; i < count; i++) {
		rest.base -= rows[i].base;
		rest.comparison -= rows[i].comparison;
		rest.variance += rows[i].variance;
		rest.df = fmin(rest.df, rows[i].df);
	}
	rest.base = fmax(rest.base, 0);
	rest.comparison = fmax(rest.comparison, 0);
	return rest;
}

/* The harmonic mean of both shares: a function that one side lacks, or nearly, says nothing of the
 * scale. */
static double weight_of(const struct share_row *row)
{
	const double both = row->base + row->comparison;
	const double share = both > 0 ? 2 * row->base * row->comparison / both : 0;

	return row->band ? share : fmin(share, WEIGHT_MAX);
}

static const struct share_row *row_at(const struct explanation *e, size_t i)
{
	return i < e->count ? &e->rows[i] : &e->rest;
}

/* The standard error of cost_delta(). The scale is that of the steady part of mass S, without the
 * row itself, whose share is p: multinomially, the variance of p - k b is p (1 + p/S) / n, where
 * that of p is p (1 - p) / n. */
static double row_error(const struct explanation *e, size_t i)
{
	const struct share_row *row = row_at(e, i);
	const double variance = row->variance * (1 + e->scale * e->scale) / 2;
	const double p = fmin((row->base + row->comparison) / 2, 1 - SCALE_PART_LEAST);
	double steady;

	if (e->mass <= 0)
		return sqrt(variance);
	steady = fmax(e->mass - (e->moved[i] ? 0 : p), SCALE_PART_LEAST);
	return sqrt(variance * (1 + p / steady) / (1 - p));
}

static double row_p(const struct explanation *e, size_t i)
{
	return p_of(cost_delta(row_at(e, i), e->scale), row_error(e, i), row_at(e, i)->df);
}

struct ratio {
	double log, weight;
};

static int by_log(const void *left, const void *right)
{
	const struct ratio *a = left, *b = right;

	return (a->log > b->log) - (a->log < b->log);
}

/* The logarithm of the ratio of shares that half of the weight lies below and half above. */
static int median_ratio(const struct explanation *e, double *ret)
{
	cleanup_free struct ratio *ratios = calloc(e->count + 1, sizeof(*ratios));
	double half = 0, below = 0;
	size_t count = 0, i;

	if (!ratios)
		return -ENOMEM;
	for (i = 0; i <= e->count; i++) {
		const struct share_row *row = row_at(e, i);

		if (i == e->without || weight_of(row) <= WEIGHT_NONE)
			continue;
		ratios[count++] = (struct ratio){ log(row->comparison) - log(row->base), weight_of(row) };
		half += weight_of(row) / 2;
	}
	qsort(ratios, count, sizeof(*ratios), by_log);
	for (i = 0; i + 1 < count && below + ratios[i].weight < half * (1 - 1e-9); i++)
		below += ratios[i].weight;
	*ret = count ? ratios[i].log : 0;
	/* Half and half: between them. */
	if (i + 1 < count && fabs(below + ratios[i].weight - half) <= half * 1e-9)
		*ret = (*ret + ratios[i + 1].log) / 2;
	return 0;
}

/* Which rows disagree with the scale: @surely, with an error in one of a hundred profiles at most,
 * as changes are called. Returns whether that is another answer than before. */
static bool find_moved(struct explanation *e, bool surely)
{
	bool differs = false;

	for (size_t i = 0; i <= e->count; i++)
		e->p[i] = row_p(e, i);
	stats_bh(e->p, e->count + 1, e->q, e->scratch);
	for (size_t i = 0; i <= e->count; i++) {
		const bool moved = i == e->without ||
				   (surely ? e->q[i] <= e->limits->q : e->p[i] < MOVED_P);

		differs |= moved != e->moved[i];
		e->moved[i] = moved;
	}
	return differs;
}

/* The scale of the rows that have not moved, and their part of the weight of all but e->without. */
static double scale_of_steady(struct explanation *e, double *ret_part)
{
	double base = 0, comparison = 0, steady = 0, all = 0;

	for (size_t i = 0; i <= e->count; i++) {
		const struct share_row *row = row_at(e, i);

		all += i == e->without ? 0 : weight_of(row);
		if (e->moved[i])
			continue;
		steady += weight_of(row);
		base += row->base;
		comparison += row->comparison;
	}
	*ret_part = all > 0 ? steady / all : 0;
	if (base <= SCALE_PART_LEAST || comparison <= SCALE_PART_LEAST)
		return 0;
	e->mass = (base + comparison) / 2;
	return fmin(fmax(comparison / base, 1 / SCALE_MAX), SCALE_MAX);
}

/* Takes the scale of all rows that agree with it, until they are the same. */
static void settle(struct explanation *e, bool surely, double *ret_part)
{
	for (unsigned turn = 0; turn < TURNS_MAX && (find_moved(e, surely) || !turn); turn++) {
		const double scale = scale_of_steady(e, ret_part);

		if (scale <= 0)
			break;
		e->scale = scale;
	}
}

/* Begins at the median, which no minority moves. First only what agrees well with it counts, so
 * that others cannot drag it away; then all but what surely disagrees, so that chance does not.
 * *ret_part: the weight of the steady part. */
static int begin_scale(struct explanation *e, double *ret_part)
{
	double median = 0;
	int rc = median_ratio(e, &median);

	if (rc < 0)
		return rc;
	e->scale = fmin(fmax(exp(median), 1 / SCALE_MAX), SCALE_MAX);
	e->mass = 1;
	settle(e, false, ret_part);
	settle(e, true, ret_part);
	return 0;
}

static double mean_share(const struct share_row *row)
{
	return (row->base + row->comparison) / 2;
}

/* The function that the steady part depends on: it is most of it, or, where nothing is @settled,
 * the largest of the profile. NO_ROW = there is none. */
static size_t find_large(const struct explanation *e, bool settled)
{
	double most = settled ? e->mass / 2 : WEIGHT_MAX;
	size_t large = NO_ROW;

	for (size_t i = 0; i < e->count; i++) {
		if (e->rows[i].band || (settled && e->moved[i]) || mean_share(&e->rows[i]) <= most)
			continue;
		most = mean_share(&e->rows[i]);
		large = i;
	}
	return large;
}

static bool is_load_steady(const struct explanation *e, double scale)
{
	return fabs(log(scale * e->limits->cost_ratio)) <= LOAD_STEADY;
}

/* The part of the weight that agrees with the scale, of all rows but e->without and the heaviest
 * that agrees: a single function is not all others. */
static double part_beside_heaviest(const struct explanation *e)
{
	double all = 0, steady = 0, heaviest = 0;

	for (size_t i = 0; i <= e->count; i++) {
		const double weight = i == e->without ? 0 : weight_of(row_at(e, i));

		all += weight;
		steady += e->moved[i] ? 0 : weight;
		heaviest = e->moved[i] ? heaviest : fmax(heaviest, weight);
	}
	return all > heaviest ? (steady - heaviest) / (all - heaviest) : 0;
}

/* Where one function is large, and nearly all others have one other scale, shares allow for two
 * stories: the one function changed, or all others changed alike. If only in the first the steady
 * part costs per second what it did, it is true. Only in the second: what is @settled stays so, but
 * a load that changed is more likely than many functions that changed alike, so nothing becomes
 * settled by it. In both or none: nothing is. */
static int weigh_stories(struct explanation *e, bool *settled)
{
	cleanup_free bool *moved = calloc(e->count + 1, sizeof(*moved));
	const size_t large = find_large(e, *settled);
	struct explanation others = *e;
	double part = 0, scale;
	size_t rows = 0;
	int rc;

	if (!moved)
		return -ENOMEM;
	if (large == NO_ROW || e->limits->cost_ratio <= 0 || weight_of(&e->rows[large]) <= WEIGHT_NONE)
		return 0;
	others.without = large;
	others.moved = moved;
	moved[large] = true;
	rc = begin_scale(&others, &part);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < e->count; i++)
		rows += !moved[i] && weight_of(row_at(e, i)) > WEIGHT_NONE;
	scale = e->rows[large].comparison / e->rows[large].base;
	if (fmin(part, part_beside_heaviest(&others)) < OTHER_PART_LEAST || rows < OTHER_ROWS_LEAST ||
	    fabs(log(others.scale / scale)) < OTHER_SCALE_LEAST)
		return 0;
	if (is_load_steady(e, scale) == is_load_steady(e, others.scale)) {
		*settled = false;
	} else if (is_load_steady(e, others.scale)) {
		*settled = true;
		memcpy(e->moved, moved, (e->count + 1) * sizeof(*moved));
		e->scale = others.scale;
		e->mass = others.mass;
	}
	return 0;
}

static int find_scale(struct explanation *e, bool *ret_settled)
{
	double part = 0;
	int rc;

	e->rest = rest_of(e->rows, e->count);
	rc = begin_scale(e, &part);
	if (rc < 0)
		return rc;
	*ret_settled = fmin(part, e->mass) >= STEADY_PART_LEAST;
	return weigh_stories(e, ret_settled);
}

/* One regression "improves" everything else: each row is judged by what the scale of the steady
 * part leaves of its change. */
static void judge_rows(struct explanation *e)
{
	unsigned members = 0;
	size_t candidates = 0, i;

	for (i = 0; i < e->count; i++) {
		struct share_row *row = &e->rows[i];

		row->cost_delta = cost_delta(row, e->scale);
		if (!row->band)
			e->p[candidates++] = row_p(e, i);
	}
	stats_bh(e->p, candidates, e->q, e->scratch);
	for (i = 0, candidates = 0; i < e->count; i++) {
		struct share_row *row = &e->rows[i];

		if (row->band)
			continue;
		row->changed = e->q[candidates++] <= e->limits->q &&
			       passes(row, e->scale, e->limits->threshold) && members < SHARE_CHANGED_MAX;
		members += row->changed;
	}
}

/* No majority is steady: accepts one function at a time, the strongest first, and judges the rest
 * by the scale of what is left. */
static void explain_in_turn(struct explanation *e)
{
	e->scale = 1;
	memset(e->moved, 0, (e->count + 1) * sizeof(*e->moved));
	for (unsigned members = 0; members < SHARE_CHANGED_MAX; members++) {
		double strongest = 0, part, scale;
		size_t best = e->count;

		e->mass = 0;
		judge_rows(e);
		for (size_t i = 0; i < e->count; i++) {
			const struct share_row *row = &e->rows[i];
			const double error = row_error(e, i);
			const double strength = error > 0 ? fabs(row->cost_delta) / error : INFINITY;

			if (!row->changed || e->moved[i] || strength <= strongest)
				continue;
			best = i;
			strongest = strength;
		}
		if (best == e->count)
			break;
		e->moved[best] = true;
		scale = scale_of_steady(e, &part);
		e->scale = scale > 0 ? scale : 1;
	}
	e->mass = 0;
	judge_rows(e);
	for (size_t i = 0; i < e->count; i++)
		e->rows[i].changed &= e->moved[i];
}

static int explain_all(struct explanation *e, bool *ret_settled)
{
	int rc = find_scale(e, ret_settled);

	if (rc < 0)
		return rc;
	if (*ret_settled)
		judge_rows(e);
	else
		explain_in_turn(e);
	return 0;
}

int share_rows_test(struct share_row *rows, size_t row_count, const struct share_limits *limits,
		    bool explain, struct share_fit *ret)
{
	cleanup_free double *p = calloc(row_count + 1, sizeof(*p));
	cleanup_free double *q = calloc(row_count + 1, sizeof(*q));
	cleanup_free struct stats_rank *scratch = calloc(row_count + 1, sizeof(*scratch));
	cleanup_free bool *moved = calloc(row_count + 1, sizeof(*moved));
	struct explanation e = { .rows = rows,
				 .count = row_count,
				 .limits = limits,
				 .scale = 1,
				 .without = NO_ROW,
				 .p = p,
				 .q = q,
				 .scratch = scratch,
				 .moved = moved };
	struct share_fit fit = { 1, true };
	size_t candidates = 0, i;
	int rc = 0;

	if (!p || !q || !scratch || !moved)
		return -ENOMEM;
	for (i = 0; i < row_count; i++) {
		struct share_row *row = &rows[i];
		double restart = row->tau * row->pooled;

		row->variance += restart * restart * (1 / limits->lives[0] + 1 / limits->lives[1]);
		row->df = row->df > 0 ? row->df : 1;
		row->p = p_of(row->delta, sqrt(row->variance), row->df);
		if (!row->band)
			p[candidates++] = row->p;
	}
	stats_bh(p, candidates, q, scratch);
	for (i = 0, candidates = 0; i < row_count; i++) {
		rows[i].cost_delta = rows[i].delta;
		if (rows[i].band)
			continue;
		rows[i].q = q[candidates++];
		rows[i].significant = rows[i].q <= limits->q && rows[i].delta != 0 &&
				      fabs(rows[i].delta) >= limits->threshold;
		if (!explain)
			rows[i].changed = rows[i].significant && !rows[i].barred;
	}
	if (explain)
		rc = explain_all(&e, &fit.settled);
	fit.scale = e.scale;
	if (rc == 0)
		*ret = fit;
	return rc;
}

/* ---- bands ----------------------------------------------------------------------------------- */

struct small {
	double share;
	uint32_t at;
};

static int larger_first(const void *left, const void *right)
{
	const struct small *a = left, *b = right;

	if (a->share != b->share)
		return a->share < b->share ? 1 : -1;
	return a->at < b->at ? -1 : a->at > b->at;
}

int share_bands(const double *share, uint32_t count, double limit, uint32_t *ret_band)
{
	cleanup_free struct small *small = calloc((size_t)count + 1, sizeof(*small));
	uint32_t used = 0, band = 0, i;
	double mass = 0, left = 0;

	if (!small)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		ret_band[i] = SHARE_BAND_NONE;
		if (share[i] >= limit || share[i] <= 0)
			continue;
		small[used++] = (struct small){ share[i], i };
		left += share[i];
	}
	qsort(small, used, sizeof(*small), larger_first);
	for (i = 0; i < used; i++) {
		ret_band[small[i].at] = band;
		mass += small[i].share;
		left -= small[i].share;
		/* The functions after this band are another band, or belong to this one. */
		if (mass >= BAND_MASS && left >= BAND_MASS && band + 1 < SHARE_BANDS_MAX) {
			band++;
			mass = 0;
		}
	}
	return used ? (int)band + 1 : 0;
}
