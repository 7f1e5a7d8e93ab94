// SPDX-License-Identifier: Apache-2.0
/* Types whose values are not samples: durations of waits (Welch's test on winsorised values per
 * window), levels and flows of sampled bytes (variance from the sampling itself), exact counts.
 * Shares of the total are shown and must pass the threshold too; there is no dilution, since each
 * function's own amount is tested and not its share. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/compare/compare_internal.h"
#include "agent/profile/stats.h"

#define WINDOWS_LEAST	 10u
#define WINSOR_AT	 0.95
#define LEVEL_SAMPLES	 25.0 /* a stack with fewer samples is not testable */
#define COUNT_LEAST	 10.0 /* goroutines */
#define COUNT_PART	 0.20
#define COUNT_DEVIATIONS 3.0
#define MANY_DF		 1e6 /* as good as normal */

/* Shares of the two sides, common to all three. */
static void set_shares(const struct comparison *c, struct share_row *row)
{
	double both = c->total[0] + c->total[1];

	row->base = c->total[0] > 0 ? c->sum[0][row->function] / c->total[0] : 0;
	row->comparison = c->total[1] > 0 ? c->sum[1][row->function] / c->total[1] : 0;
	row->pooled = both > 0 ? (c->sum[0][row->function] + c->sum[1][row->function]) / both : 0;
	row->delta = row->comparison - row->base;
	row->cost_delta = row->delta;
}

/* False discovery over @p; a row is changed if its amount changed significantly and its share by
 * enough, both in the same direction. */
static int decide(struct comparison *c, const double *p, const double *direction)
{
	cleanup_free double *q = calloc(c->row_count + 1, sizeof(*q));
	cleanup_free struct stats_rank *scratch = calloc(c->row_count + 1, sizeof(*scratch));
	size_t i;

	if (!q || !scratch)
		return -ENOMEM;
	stats_bh(p, c->row_count, q, scratch);
	for (i = 0; i < c->row_count; i++) {
		struct share_row *row = &c->rows[i];

		row->p = p[i];
		row->q = q[i];
		row->significant = q[i] <= c->q && fabs(row->delta) >= c->threshold &&
				   row->delta * direction[i] > 0;
		row->changed = row->significant && !row->barred;
	}
	c->scale = 1;
	return 0;
}

/* A function that would not be called changed under any name is not doubtful either. */
static void bar(struct share_row *row, bool barred)
{
	row->barred |= barred;
	row->doubtful &= !barred;
}

/* ---- durations ------------------------------------------------------------------------------- */

struct series {
	double *y[2];	/* value per second, by window; winsorised */
	double *sorted; /* scratch of both sides' windows */
	uint32_t count[2];
};

static void series_deinit(struct series *s)
{
	free(s->y[0]);
	free(s->y[1]);
	free(s->sorted);
}

static int series_init(struct series *s, const struct comparison *c)
{
	int k;

	for (k = 0; k < 2; k++) {
		s->count[k] = c->m[k]->window_count;
		s->y[k] = calloc((size_t)s->count[k] + 1, sizeof(double));
	}
	s->sorted = calloc((size_t)s->count[0] + s->count[1] + 1, sizeof(double));
	return s->y[0] && s->y[1] && s->sorted ? 0 : -ENOMEM;
}

static void series_load(struct series *s, const struct comparison *c, uint32_t function)
{
	const struct join *join = &c->join;
	uint32_t f, i;
	double limit;
	int k;

	for (k = 0; k < 2; k++) {
		const struct window_cells *cells = &c->m[k]->self;

		memset(s->y[k], 0, s->count[k] * sizeof(double));
		for (f = join->functions[function].first[k]; f != JOIN_NONE; f = join->next[k][f])
			for (i = cells->first[f]; i < cells->first[f + 1]; i++)
				s->y[k][cells->window[i]] += (double)cells->value[i];
		for (i = 0; i < s->count[k]; i++)
			s->y[k][i] /= window_seconds(c->m[k], i);
		memcpy(s->sorted + (k ? s->count[0] : 0), s->y[k], s->count[k] * sizeof(double));
	}
	limit = stats_quantile(s->sorted, (size_t)s->count[0] + s->count[1], WINSOR_AT);
	for (k = 0; k < 2; k++)
		for (i = 0; i < s->count[k]; i++)
			s->y[k][i] = fmin(s->y[k][i], limit);
}

struct moments {
	double mean, variance; /* of the mean */
};

static struct moments moments_of(const double *y, uint32_t count)
{
	struct moments m = { 0 };
	uint32_t i;

	for (i = 0; i < count; i++)
		m.mean += y[i] / count;
	for (i = 0; i < count && count > 1; i++)
		m.variance += (y[i] - m.mean) * (y[i] - m.mean) / (count - 1) / count;
	return m;
}

static double welch_df(const struct moments m[2], const uint32_t count[2])
{
	double sum = m[0].variance + m[1].variance, parts = 0;
	int k;

	for (k = 0; k < 2; k++)
		if (count[k] > 1)
			parts += m[k].variance * m[k].variance / (count[k] - 1);
	return parts > 0 ? sum * sum / parts : 1;
}

/* R over all candidates: the largest that any grouping shows, weighted by their variance. */
static double durations_drift(struct comparison *c, struct series *s)
{
	double floor = share_drift_least(s->count[0], s->count[1]), sum = 0, weight = 0;
	size_t i;
	int k;

	for (i = 0; i < c->row_count; i++) {
		series_load(s, c, c->rows[i].function);
		for (k = 0; k < 2; k++) {
			double w = moments_of(s->y[k], s->count[k]).variance;

			sum += w * share_series_drift(s->y[k], s->count[k], 0);
			weight += w;
		}
	}
	return weight > 0 ? fmax(floor, sum / weight) : floor;
}

static double durations_row(struct comparison *c, struct series *s, struct share_row *row,
			    double *ret_direction)
{
	double per_second = (c->total[0] / c->seconds[0] + c->total[1] / c->seconds[1]) / 2;
	double variance, restart, difference;
	struct moments m[2];
	int k;

	series_load(s, c, row->function);
	for (k = 0; k < 2; k++)
		m[k] = moments_of(s->y[k], s->count[k]);
	restart = row->tau * (m[0].mean + m[1].mean) / 2;
	difference = m[1].mean - m[0].mean;
	variance =
		(m[0].variance + m[1].variance) * c->noise.drift +
		restart * restart * (1 / c->m[0]->effective_lives + 1 / c->m[1]->effective_lives);
	row->df = fmax(welch_df(m, s->count), 1);
	row->variance = per_second > 0 ? variance / (per_second * per_second) : 0;
	*ret_direction = difference;
	if (variance <= 0)
		return difference == 0 ? 1 : 0;
	return stats_t_p(difference / sqrt(variance), row->df);
}

int compare_by_durations(struct comparison *c)
{
	__attribute__((__cleanup__(series_deinit))) struct series s = { 0 };
	cleanup_free double *p = NULL, *direction = NULL;
	size_t i;
	int rc = compare_candidates(c, false, &c->rows, &c->row_count), k;

	p = calloc(c->row_count + 1, sizeof(*p));
	direction = calloc(c->row_count + 1, sizeof(*direction));
	if (rc < 0 || !p || !direction || series_init(&s, c) < 0)
		return -ENOMEM;
	for (k = 0; k < 2; k++) {
		/* A block is one window here; fewer than ten cannot carry the test. */
		c->noise.blocks[k] = c->m[k]->totals_only || c->m[k]->window_count < WINDOWS_LEAST
					     ? 0
					     : c->m[k]->window_count;
		c->noise.samples[k] = c->total[k];
	}
	c->noise.drift = durations_drift(c, &s);
	for (i = 0; i < c->row_count; i++) {
		struct share_row *row = &c->rows[i];

		row->tau = compare_tau(c, row->function);
		bar(row, c->join.functions[row->function].flags & WINDOW_FUNCTION_IDLE);
		set_shares(c, row);
		p[i] = durations_row(c, &s, row, &direction[i]);
	}
	return decide(c, p, direction);
}

/* ---- sampled bytes --------------------------------------------------------------------------- */

/* Objects and bytes by joined function: one side's innermost frames. */
struct levels {
	double *variance; /* of the bytes, from sampling */
	double *samples;  /* expected number of samples behind them */
};

static void levels_deinit(struct levels *l)
{
	free(l->variance);
	free(l->samples);
}

/* An object of size s is sampled with pi = 1 - exp(-s/B) and weighs 1/pi, so that a stack of n
 * sampled objects has the variance n s^2 (1 - pi) / pi^2. */
static int levels_init(struct levels *l, const struct comparison *c, int side)
{
	const struct profile *p = c->side[side]->profile;
	uint32_t i;

	l->variance = calloc((size_t)c->join.count + 1, sizeof(double));
	l->samples = calloc((size_t)c->join.count + 1, sizeof(double));
	if (!l->variance || !l->samples)
		return -ENOMEM;
	for (i = 0; i < p->sample_count && c->map[side]; i++) {
		const struct profile_sample *s = &p->samples[i];
		double objects = (double)s->values[0], bytes = (double)s->values[1], size, pi;
		uint32_t f;

		if (!s->node || objects <= 0 || bytes <= 0)
			continue;
		f = c->join.of[side][c->map[side][p->frames[p->nodes[s->node].frame].function]];
		size = bytes / objects;
		pi = -expm1(-size / c->sample_bytes);
		l->samples[f] += objects * pi;
		l->variance[f] += objects * size * size * (1 - pi) / pi;
	}
	return 0;
}

/* Bytes held, or bytes allocated per second. */
static double level_scale(const struct comparison *c, int side)
{
	return profile_type_info(c->m[side]->type)->rate ? 1 / c->seconds[side] : 1;
}

static double level_row(const struct comparison *c, const struct levels l[2], struct share_row *row,
			double *ret_direction)
{
	double scale[2] = { level_scale(c, 0), level_scale(c, 1) }, value[2], variance = 0, whole;
	uint32_t f = row->function;
	int k;

	for (k = 0; k < 2; k++) {
		value[k] = c->sum[k][f] * scale[k];
		variance += l[k].variance[f] * scale[k] * scale[k];
	}
	whole = COMPARE_LEVEL_TAU * (value[0] + value[1]) / 2;
	variance += 2 * whole * whole;
	whole = (c->total[0] * scale[0] + c->total[1] * scale[1]) / 2;
	row->df = MANY_DF;
	row->variance = whole > 0 ? variance / (whole * whole) : 0;
	bar(row, fmax(l[0].samples[f], l[1].samples[f]) < LEVEL_SAMPLES);
	*ret_direction = value[1] - value[0];
	if (variance <= 0)
		return *ret_direction == 0 ? 1 : 0;
	return stats_normal_p(*ret_direction / sqrt(variance));
}

int compare_by_levels(struct comparison *c)
{
	__attribute__((__cleanup__(levels_deinit))) struct levels base = { 0 };
	__attribute__((__cleanup__(levels_deinit))) struct levels comparison = { 0 };
	cleanup_free double *p = NULL, *direction = NULL;
	size_t i;
	int rc = compare_candidates(c, false, &c->rows, &c->row_count);

	p = calloc(c->row_count + 1, sizeof(*p));
	direction = calloc(c->row_count + 1, sizeof(*direction));
	if (rc < 0 || !p || !direction || levels_init(&base, c, 0) < 0 ||
	    levels_init(&comparison, c, 1) < 0)
		return -ENOMEM;
	for (i = 0; i < c->row_count; i++) {
		set_shares(c, &c->rows[i]);
		p[i] = level_row(c, (struct levels[2]){ base, comparison }, &c->rows[i],
				 &direction[i]);
	}
	for (i = 0; i < c->join.count; i++) {
		c->noise.samples[0] += base.samples[i];
		c->noise.samples[1] += comparison.samples[i];
	}
	return decide(c, p, direction);
}

/* ---- exact counts ---------------------------------------------------------------------------- */

bool compare_count_changed(double base, double comparison)
{
	double change = fabs(comparison - base);

	return change >= fmax(COUNT_LEAST, COUNT_PART * base) &&
	       change >= COUNT_DEVIATIONS * sqrt(base + comparison);
}

int compare_by_counts(struct comparison *c)
{
	cleanup_free double *p = NULL, *direction = NULL;
	size_t i;
	int rc = compare_candidates(c, false, &c->rows, &c->row_count);

	p = calloc(c->row_count + 1, sizeof(*p));
	direction = calloc(c->row_count + 1, sizeof(*direction));
	if (rc < 0 || !p || !direction)
		return -ENOMEM;
	for (i = 0; i < c->row_count; i++) {
		struct share_row *row = &c->rows[i];
		double b = c->sum[0][row->function], n = c->sum[1][row->function];
		double whole = (c->total[0] + c->total[1]) / 2;

		set_shares(c, row);
		direction[i] = n - b;
		row->df = MANY_DF;
		row->variance = whole > 0 ? (b + n) / (whole * whole) : 0;
		bar(row, !compare_count_changed(b, n));
		p[i] = b + n > 0 ? stats_normal_p((n - b) / sqrt(b + n)) : 1;
	}
	return decide(c, p, direction);
}
