// SPDX-License-Identifier: Apache-2.0
/* The whole: cost per second (or per unit, or the level), and what everything together means. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "agent/base/clock.h"
#include "agent/profile/compare/compare_internal.h"
#include "agent/profile/stats.h"

#define RATE_TAU_LIVES	  0.10 /* allowance of the rate across process lives, and within one */
#define RATE_TAU_WITHIN	  0.05
#define UNIT_TAU_LIVES	  0.05 /* of the cost per unit, which no load can move */
#define UNIT_TAU_WITHIN	  0.02
#define EFFECT_LEAST_PCT  5.0
#define CONTENDED_POINTS  0.05 /* difference of run-queue shares */
#define DETECTABLE_SHARE  0.05
#define DETECTABLE_ERRORS 5.0
#define SAMPLED_LEAST	  25.0 /* samples of memory on a side */
#define LOST_MOST	  0.05
#define BALANCE		  2.0 /* one direction must outweigh the other by this to be the verdict */

/* ---- rates ----------------------------------------------------------------------------------- */

struct rate {
	double mean;	 /* value per second */
	double relative; /* variance of the mean / mean^2 */
	uint32_t blocks;
	double drift;
};

static int rate_of(const struct comparison *c, int s, uint32_t length, double drift_least,
		   struct rate *ret)
{
	const struct window_matrix *m = c->m[s];
	uint32_t count = m->window_count / length ? m->window_count / length : 1, i;
	cleanup_free double *y = calloc(count, sizeof(*y));
	cleanup_free double *seconds = calloc(count, sizeof(*seconds));
	double sum = 0, variance = 0, samples = c->noise.samples[s];

	if (!y || !seconds)
		return -ENOMEM;
	for (i = 0; i < m->window_count; i++) {
		uint32_t block = i / length < count ? i / length : count - 1;

		y[block] += (double)m->totals[i];
		seconds[block] += window_seconds(m, i);
	}
	for (i = 0; i < count; i++) {
		y[i] /= seconds[i];
		sum += y[i];
	}
	*ret = (struct rate){ .mean = sum / count, .blocks = count };
	for (i = 0; i < count && count > 1; i++)
		variance += (y[i] - ret->mean) * (y[i] - ret->mean) / (count - 1);
	ret->relative = ret->mean > 0 ? variance / (ret->mean * ret->mean) : 0;
	/* Never below what counting alone makes of a block's samples. */
	if (m->scale > 0 && samples > 0)
		ret->relative = fmax(ret->relative, count / samples);
	ret->relative /= count;
	ret->drift = share_series_drift(y, count, drift_least);
	return 0;
}

/* Share of the samples whose process lives are on both sides, from compare.c's tau: 1 = one life.
 */
static double blend(const struct comparison *c, double lives, double within)
{
	return c->out->different_lives ? lives : within;
}

static double rate_p(const struct comparison *c, const struct rate r[2], double ratio, double tau)
{
	double restart = tau * tau * (1 / c->m[0]->effective_lives + 1 / c->m[1]->effective_lives);
	double df = (double)r[0].blocks + r[1].blocks - 2, variance;

	if (c->m[0]->totals_only || c->m[1]->totals_only) {
		if (c->noise.samples[0] <= 0 || c->noise.samples[1] <= 0 || c->m[0]->scale <= 0)
			return 1;
		variance = SHARE_TOTALS_PHI * (1 / c->noise.samples[0] + 1 / c->noise.samples[1]);
		df = SHARE_TOTALS_DF;
	} else {
		variance = fmax(r[0].drift, r[1].drift) * (r[0].relative + r[1].relative);
	}
	if (df < 1 || variance + restart <= 0)
		return ratio == 1 ? 1 : 0;
	return stats_t_p(log(ratio) / sqrt(variance + restart), df);
}

bool compare_by_unit(const struct comparison *c)
{
	return c->side[0]->units > 0 && c->side[1]->units > 0 && profile_type_info(c->m[0]->type)->rate;
}

double compare_cost_ratio(const struct comparison *c)
{
	const double base = c->total[0] / (compare_by_unit(c) ? c->side[0]->units : c->seconds[0]);
	const double now = c->total[1] / (compare_by_unit(c) ? c->side[1]->units : c->seconds[1]);

	return base > 0 ? now / base : 0;
}

static int overall_rate(struct comparison *c)
{
	uint32_t windows[2] = { c->m[0]->window_count, c->m[1]->window_count };
	uint32_t length = share_block_windows(windows[0], windows[1]);
	bool units = compare_by_unit(c);
	double least = share_drift_least(windows[0], windows[1]), ratio;
	struct rate r[2];
	int rc = rate_of(c, 0, length, least, &r[0]);

	if (rc == 0)
		rc = rate_of(c, 1, length, least, &r[1]);
	if (rc < 0)
		return rc;
	if (r[0].mean <= 0) {
		c->out->overall_known = r[1].mean <= 0;
		c->out->overall_significant = c->noise.samples[1] >= SHARE_SAMPLES_LEAST;
		c->out->overall_p = c->out->overall_significant ? 0 : 1;
		return 0;
	}
	ratio = compare_cost_ratio(c);
	c->out->overall_known = true;
	c->out->overall_delta_pct = 100 * (ratio - 1);
	if (ratio <= 0)
		c->out->overall_p = c->noise.samples[0] >= SHARE_SAMPLES_LEAST ? 0 : 1;
	else
		c->out->overall_p = rate_p(c, r, ratio,
					   units ? blend(c, UNIT_TAU_LIVES, UNIT_TAU_WITHIN)
						 : blend(c, RATE_TAU_LIVES, RATE_TAU_WITHIN));
	c->out->overall_significant =
		c->out->overall_p < c->q && fabs(c->out->overall_delta_pct) >= EFFECT_LEAST_PCT;
	return 0;
}

/* ---- levels and counts ----------------------------------------------------------------------- */

static void overall_level(struct comparison *c)
{
	bool flow = profile_type_info(c->m[0]->type)->rate;
	bool units = compare_by_unit(c);
	double b = c->total[0] / (units ? c->side[0]->units : flow ? c->seconds[0] : 1);
	double n = c->total[1] / (units ? c->side[1]->units : flow ? c->seconds[1] : 1), error;

	c->out->overall_known = b > 0 || n == 0;
	c->out->overall_delta_pct = b > 0 ? 100 * (n - b) / b : 0;
	/* Relative error of the sum of sampled objects is about 1 / sqrt(samples). */
	error = 2 * pow(COMPARE_LEVEL_TAU * (b + n) / 2, 2);
	error += c->noise.samples[0] > 0 ? b * b / c->noise.samples[0] : 0;
	error += c->noise.samples[1] > 0 ? n * n / c->noise.samples[1] : 0;
	c->out->overall_p = error > 0 ? stats_normal_p((n - b) / sqrt(error)) : 1;
	c->out->overall_significant =
		c->out->overall_p < c->q &&
		(!c->out->overall_known || fabs(c->out->overall_delta_pct) >= EFFECT_LEAST_PCT);
}

static void overall_count(struct comparison *c)
{
	double b = c->total[0], n = c->total[1];

	c->out->overall_known = b > 0 || n == 0;
	c->out->overall_delta_pct = b > 0 ? 100 * (n - b) / b : 0;
	c->out->overall_p = b + n > 0 ? stats_normal_p((n - b) / sqrt(b + n)) : 1;
	c->out->overall_significant = compare_count_changed(b, n);
}

/* ---- enough data, least change --------------------------------------------------------------- */

static double lost_part(const struct profile_quality *q)
{
	if (q->lost <= 0 || q->samples < 0)
		return 0;
	return (double)q->lost / (double)(q->lost + q->samples);
}

static bool is_insufficient(const struct comparison *c)
{
	enum profile_judged judged = profile_type_info(c->m[0]->type)->judged;
	int s;

	for (s = 0; s < 2; s++) {
		if (lost_part(&c->side[s]->profile->quality) > LOST_MOST)
			return true;
		if (judged == PROFILE_JUDGED_COUNTS)
			continue;
		if (judged == PROFILE_JUDGED_LEVELS) {
			if (c->noise.samples[s] < SAMPLED_LEAST)
				return true;
		} else if (judged == PROFILE_JUDGED_AMOUNTS) {
			if (!c->noise.blocks[s])
				return true;
		} else if (c->noise.samples[s] < SHARE_SAMPLES_LEAST ||
			   (!c->m[s]->totals_only && c->noise.blocks[s] < SHARE_BLOCKS_LEAST)) {
			return true;
		}
	}
	return false;
}

static double min_detectable(const struct comparison *c)
{
	const double *n = c->noise.samples, share = DETECTABLE_SHARE;
	double star, restart = c->tau_user * share, variance;

	if (!compare_is_judged(c, PROFILE_JUDGED_SHARES) || n[0] <= 0 || n[1] <= 0)
		return -1;
	star = c->m[0]->totals_only || c->m[1]->totals_only ? SHARE_TOTALS_PHI
							    : fmax(c->noise.phi0, 1);
	variance =
		share * (1 - share) * (1 / n[0] + 1 / n[1]) * star * c->noise.drift +
		restart * restart * (1 / c->m[0]->effective_lives + 1 / c->m[1]->effective_lives);
	return 100 * DETECTABLE_ERRORS * sqrt(variance);
}

int compare_overall(struct comparison *c)
{
	int rc = 0;

	if (compare_is_judged(c, PROFILE_JUDGED_COUNTS))
		overall_count(c);
	else if (compare_is_judged(c, PROFILE_JUDGED_LEVELS))
		overall_level(c);
	else
		rc = overall_rate(c);
	c->out->insufficient_data = is_insufficient(c);
	c->out->unsteady = c->noise.drift > SHARE_UNSTEADY_DRIFT;
	c->out->min_detectable_points = min_detectable(c);
	return rc;
}

/* ---- verdict --------------------------------------------------------------------------------- */

#define MOVED_MOST	 0.5 /* of the profile */
#define LOAD_POINTS_MOST 5.0 /* detectable of a function of 5 %, for "the same composition" */

struct balance {
	double worse, better; /* sums of |d| of changed functions of the program */
	double doubtful;      /* of significant ones that were not judged because of their names */
	unsigned count;
};

static struct balance balance_of(const struct comparison *c)
{
	struct balance b = { 0 };
	size_t i;

	for (i = 0; i < c->row_count; i++) {
		const struct share_row *row = &c->rows[i];

		if (c->join.functions[row->function].flags & WINDOW_FUNCTION_ENVIRONMENT)
			continue;
		if (row->significant && row->doubtful)
			b.doubtful += fabs(row->cost_delta);
		if (!row->changed)
			continue;
		b.count++;
		*(row->cost_delta > 0 ? &b.worse : &b.better) += fabs(row->cost_delta);
	}
	return b;
}

/* Whether the verdict would be the same whatever the doubtful functions are. */
static bool stands(const struct balance *b)
{
	return b->worse > BALANCE * (b->better + b->doubtful) ||
	       b->better > BALANCE * (b->worse + b->doubtful);
}

void compare_doubt(struct comparison *c)
{
	bool units = compare_by_unit(c);
	struct balance b = balance_of(c);

	/* Cost per unit of work is the same under every name. */
	if (b.doubtful > 0 && !stands(&b) && !(units && c->out->overall_significant))
		c->out->insufficient_data = true;
}

static bool runqueue_known(const struct comparison *c)
{
	return c->side[0]->runqueue_share >= 0 && c->side[1]->runqueue_share >= 0;
}

static void set_verdict(struct comparison *c, enum compare_verdict verdict,
			enum compare_cause cause)
{
	c->out->verdict = verdict;
	c->out->cause = cause;
}

/* The rate of samples says what the neighbours left of the CPU, not what the program needs, unless
 * the run queue is known or the value is no rate at all. */
static bool rate_speaks(const struct comparison *c, unsigned changed)
{
	return changed || runqueue_known(c) || !profile_type_info(c->m[0]->type)->rate;
}

/* Less work does not make slower code better: where functions speak against the rate, they are what
 * was changed. */
static bool contradict(const struct balance *b, enum compare_verdict sign)
{
	return sign == COMPARE_IMPROVED ? b->worse > BALANCE * b->better : b->better > BALANCE * b->worse;
}

void compare_verdict(struct comparison *c)
{
	bool units = compare_by_unit(c), contended;
	struct balance b = balance_of(c);
	enum compare_verdict sign = c->out->overall_known && c->out->overall_delta_pct < 0
					    ? COMPARE_IMPROVED
					    : COMPARE_REGRESSED;

	set_verdict(c, COMPARE_UNCHANGED, COMPARE_CAUSE_NONE);
	contended =
		!units && runqueue_known(c) &&
		fabs(c->side[1]->runqueue_share - c->side[0]->runqueue_share) > CONTENDED_POINTS;
	if (c->out->insufficient_data) {
		c->out->overall_significant = false;
		return;
	}
	if (c->composition) {
		set_verdict(c, COMPARE_UNCHANGED, COMPARE_CAUSE_COMPOSITION);
		return;
	}
	if (contended && c->out->overall_significant) {
		c->out->overall_significant = false;
		c->out->cause = COMPARE_CAUSE_CONTENDED;
	}
	if (c->out->overall_significant && (units || (rate_speaks(c, b.count) && !contradict(&b, sign)))) {
		/* Load cannot move the cost of a unit. */
		set_verdict(c, sign,
			    b.count ? COMPARE_CAUSE_FUNCTIONS
			    : units ? COMPARE_CAUSE_NONE
				    : COMPARE_CAUSE_LOAD);
	} else if (c->unsettled && b.count) {
		set_verdict(c, COMPARE_UNCHANGED, COMPARE_CAUSE_COMPOSITION);
	} else if (b.worse > BALANCE * b.better) {
		set_verdict(c, COMPARE_REGRESSED, COMPARE_CAUSE_FUNCTIONS);
	} else if (b.better > BALANCE * b.worse) {
		set_verdict(c, COMPARE_IMPROVED, COMPARE_CAUSE_FUNCTIONS);
	} else if (!units && fmin(b.worse, b.better) > MOVED_MOST) {
		/* Less than half of the profile stayed, as where nothing is steady. */
		c->unsettled = true;
		set_verdict(c, COMPARE_UNCHANGED, COMPARE_CAUSE_COMPOSITION);
	} else if (c->out->overall_significant) {
		/* Shares that could not have shown a change do not tell load from slower code. */
		c->out->cause = COMPARE_CAUSE_LOAD;
		c->out->insufficient_data = !units && c->out->min_detectable_points > LOAD_POINTS_MOST;
	}
}
