// SPDX-License-Identifier: Apache-2.0
/* Prepares the two sides, lets the type's family find changed functions, and lists them. */
#include "agent/profile/compare/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/compare/compare_internal.h"
#include "agent/profile/stats.h"

#define THRESHOLD_POINTS  0.5
#define CONFIDENCE	  0.99
#define GO_SAMPLE_BYTES	  524288.0 /* runtime.MemProfileRate's default */
#define TAU_USER	  0.05	   /* restart deviation of a share across process lives */
#define TAU_KERNEL	  0.30
#define TAU_USER_WITHIN	  0.02 /* one life, but at different times */
#define TAU_KERNEL_WITHIN 0.10
#define NEAR_NS		  (600ull * NS_PER_S) /* sides closer than this in one life: no restart term */
#define LIFE_TOLERANCE_NS (1 * NS_PER_S) /* a start time is realtime, and clocks are corrected */
#define SAME_LIFE_PART	  0.5
#define COARSE_LEAST	  12u /* windows that must be left when the finer side is coarsened */

/* ---- sides ----------------------------------------------------------------------------------- */

/* The matrix of one side; of a lent one the caller knows no map, so paths are not compared. */
static int side_matrix(struct comparison *c, int s)
{
	struct window_matrix *made = NULL;
	int rc;

	if (c->side[s]->windows) {
		c->m[s] = c->side[s]->windows;
		return 0;
	}
	rc = window_matrix_create(c->side[s]->profile, NULL, &made, &c->map[s]);
	c->m[s] = c->out->owned[s] = made;
	return rc;
}

/* The finer side takes the other's window length, if enough windows are left. */
static int equalize(struct comparison *c)
{
	int fine = c->m[0]->window_ns <= c->m[1]->window_ns ? 0 : 1, rc;
	uint64_t factor = c->m[!fine]->window_ns / c->m[fine]->window_ns;
	struct window_matrix *coarse = NULL;

	if (c->m[0]->totals_only || c->m[1]->totals_only || factor < 2 ||
	    factor > WINDOW_MATRIX_WINDOWS_MAX || c->m[fine]->window_count / factor < COARSE_LEAST)
		return 0;
	rc = window_matrix_coarsen(c->m[fine], (uint32_t)factor, &coarse);
	if (rc == 0)
		c->m[fine] = c->out->owned[2] = coarse;
	return rc;
}

static int sums(struct comparison *c)
{
	uint32_t i;
	int s;

	for (s = 0; s < 2; s++) {
		c->sum[s] = calloc((size_t)c->join.count + 1, sizeof(double));
		if (!c->sum[s])
			return -ENOMEM;
		for (i = 0; i < c->join.count; i++)
			c->sum[s][i] = (double)join_sum(&c->join, s, i, &c->m[s]->self);
		for (i = 0; i < c->m[s]->window_count; i++)
			c->total[s] += (double)c->m[s]->totals[i];
		c->seconds[s] = (double)c->m[s]->covered_ns / (double)NS_PER_S;
		if (c->seconds[s] <= 0)
			c->seconds[s] = 1;
	}
	return 0;
}

static bool is_same_life(const struct window_life *a, const struct window_life *b)
{
	uint64_t apart = a->started_at_ns > b->started_at_ns ? a->started_at_ns - b->started_at_ns
							     : b->started_at_ns - a->started_at_ns;

	return a->pid == b->pid && apart < LIFE_TOLERANCE_NS;
}

/* Part of the samples whose process life is on both sides. */
static double shared_lives(const struct comparison *c)
{
	double shared = 0;
	uint32_t i, k;

	for (i = 0; i < c->m[0]->life_count; i++)
		for (k = 0; k < c->m[1]->life_count; k++)
			if (is_same_life(&c->m[0]->lives[i], &c->m[1]->lives[k]))
				shared += fmin(c->m[0]->lives[i].part, c->m[1]->lives[k].part);
	return fmin(shared, 1);
}

static uint64_t apart_ns(const struct comparison *c)
{
	uint64_t end[2], start[2];
	int s;

	for (s = 0; s < 2; s++) {
		start[s] = c->m[s]->start_ns;
		end[s] = start[s] + c->m[s]->duration_ns;
	}
	if (start[1] > end[0])
		return start[1] - end[0];
	return start[0] > end[1] ? start[0] - end[1] : 0;
}

static void set_restart(struct comparison *c)
{
	double shared = shared_lives(c), within = apart_ns(c) < NEAR_NS ? 0 : 1;

	c->out->different_lives = shared < SAME_LIFE_PART;
	c->tau_user = sqrt((1 - shared) * TAU_USER * TAU_USER +
			   shared * within * TAU_USER_WITHIN * TAU_USER_WITHIN);
	c->tau_kernel = sqrt((1 - shared) * TAU_KERNEL * TAU_KERNEL +
			     shared * within * TAU_KERNEL_WITHIN * TAU_KERNEL_WITHIN);
}

static int find_changes(struct comparison *c)
{
	switch (profile_type_info(c->m[0]->type)->judged) {
	case PROFILE_JUDGED_COUNTS:
		return compare_by_counts(c);
	case PROFILE_JUDGED_LEVELS:
		return compare_by_levels(c);
	case PROFILE_JUDGED_AMOUNTS:
		return compare_by_durations(c);
	case PROFILE_JUDGED_SHARES:
		break;
	}
	return compare_by_shares(c);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int by_effect(const void *left, const void *right)
{
	const struct compare_function *a = left, *b = right;
	double da = fabs(a->delta_pct), db = fabs(b->delta_pct);

	if (da != db)
		return da > db ? -1 : 1;
	return strcmp(a->name, b->name);
}

enum list { LIST_REGRESSIONS, LIST_IMPROVEMENTS, LIST_DILUTED, LIST_DOUBTFUL };

static bool belongs(const struct share_row *row, enum list list)
{
	switch (list) {
	case LIST_REGRESSIONS:
		return row->changed && row->delta > 0;
	case LIST_IMPROVEMENTS:
		return row->changed && row->delta < 0;
	case LIST_DOUBTFUL:
		return row->significant && row->doubtful;
	default:
		return row->significant && !row->changed && !row->barred;
	}
}

static int make_list(const struct comparison *c, enum list list, uint32_t max,
		     struct compare_function **ret, uint32_t *ret_count)
{
	struct compare_function *elements = calloc(c->row_count + 1, sizeof(*elements));
	uint32_t used = 0;
	size_t i;

	if (!elements)
		return -ENOMEM;
	/* Functions that could not be judged are listed even if no function could be judged. */
	for (i = 0; i < c->row_count && (list == LIST_DOUBTFUL || !c->out->insufficient_data); i++)
		if (belongs(&c->rows[i], list))
			elements[used++] = compare_element(c, &c->rows[i]);
	qsort(elements, used, sizeof(*elements), by_effect);
	*ret = elements;
	*ret_count = used < max ? used : max;
	return 0;
}

static int lists(struct comparison *c)
{
	struct compare *out = c->out;
	int rc = make_list(c, LIST_REGRESSIONS, UINT32_MAX, &out->regressions,
			   &out->regression_count);

	if (rc == 0)
		rc = make_list(c, LIST_IMPROVEMENTS, UINT32_MAX, &out->improvements,
			       &out->improvement_count);
	if (rc == 0)
		rc = make_list(c, LIST_DILUTED, COMPARE_DILUTED_MAX, &out->diluted,
			       &out->diluted_count);
	if (rc == 0)
		rc = make_list(c, LIST_DOUBTFUL, COMPARE_DILUTED_MAX, &out->doubtful,
			       &out->doubtful_count);
	if (rc < 0)
		return rc;
	out->unchanged = c->join.count - out->regression_count - out->improvement_count;
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int set_options(struct comparison *c, const struct compare_options *options)
{
	double points = options && options->threshold_points > 0 ? options->threshold_points
								 : THRESHOLD_POINTS;
	double confidence = options && options->confidence > 0 ? options->confidence : CONFIDENCE;

	if (!(points > 0 && points <= 100) || !(confidence >= 0.5 && confidence <= 0.99999))
		return -EINVAL;
	c->threshold = points / 100;
	c->q = 1 - confidence;
	c->sample_bytes = options && options->memory_sample_bytes > 0 ? options->memory_sample_bytes
								      : GO_SAMPLE_BYTES;
	c->out->threshold_points = points;
	c->out->confidence = confidence;
	return 0;
}

static void comparison_deinit(struct comparison *c)
{
	int s;

	for (s = 0; s < 2; s++) {
		free(c->map[s]);
		free(c->sum[s]);
	}
	free(c->rows);
	free(c->band_of);
	free(c->cumulative_rows);
	join_deinit(&c->join);
}

static int judge(struct comparison *c)
{
	int rc = find_changes(c);

	if (rc == 0)
		rc = compare_overall(c);
	if (rc == 0 && !c->out->insufficient_data)
		rc = compare_moved(c);
	compare_doubt(c);
	if (rc == 0)
		rc = lists(c);
	if (rc == 0 && compare_is_judged(c, PROFILE_JUDGED_SHARES) && !c->out->insufficient_data)
		rc = compare_unexplained(c);
	if (rc < 0)
		return rc;
	compare_verdict(c);
	compare_summary(c);
	return 0;
}

int compare_init(struct compare *ret, const struct compare_side *base,
		 const struct compare_side *comparison, const struct compare_options *options)
{
	cleanup_compare struct compare out = { 0 };
	__attribute__((__cleanup__(comparison_deinit))) struct comparison c = {
		.out = &out, .side = { base, comparison }, .scale = 1
	};
	int s, rc;

	if (base->profile->meta.type != comparison->profile->meta.type)
		return -EINVAL;
	rc = set_options(&c, options);
	for (s = 0; rc == 0 && s < 2; s++)
		rc = side_matrix(&c, s);
	if (rc == 0 && c.m[0]->type != c.m[1]->type)
		rc = -EINVAL;
	if (rc == 0)
		rc = equalize(&c);
	if (rc == 0)
		rc = join_init(&c.join, c.m[0], c.m[1]);
	if (rc == 0)
		rc = sums(&c);
	if (rc < 0)
		return rc;
	set_restart(&c);
	rc = compare_names(&c);
	if (rc < 0)
		return rc;
	out.base_quality = base->profile->quality;
	out.comparison_quality = comparison->profile->quality;
	rc = judge(&c);
	if (rc < 0)
		return rc;
	*ret = out;
	out = (struct compare){ 0 };
	return 0;
}

void compare_deinit(struct compare *c)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(c->owned); i++)
		window_matrix_destroy(c->owned[i]);
	free(c->regressions);
	free(c->improvements);
	free(c->diluted);
	free(c->doubtful);
	free(c->unexplained);
	free(c->moved);
	*c = (struct compare){ 0 };
}
