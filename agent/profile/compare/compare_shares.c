// SPDX-License-Identifier: Apache-2.0
/* cpu: shares of samples, with strata by process name where several matter, and the cumulative
 * family. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/compare/compare_internal.h"

#define STRATUM_PART   0.10 /* of both sides' samples: worth a stratum of its own */
#define STRATA_MAX     WINDOW_MATRIX_STRATA_MAX
#define EXPLAINED_PART 0.70 /* of a caller's change by one callee */

/* Cells of both sides that make up one data set; strata with NULL cells mean "all minus @without".
 */
struct cells_pair {
	const struct join *join;
	const struct window_cells *cells[2];
	const struct window_cells *without[2][STRATA_MAX];
	uint32_t without_count;
	double scale[2];
	const uint32_t *band_of; /* functions after those of @join are bands; NULL = there are none */
};

static void add_cells(const struct join *join, int side, uint32_t function,
		      const struct window_cells *cells, double scale, double *ret)
{
	uint32_t f, i;

	for (f = join->functions[function].first[side]; f != JOIN_NONE; f = join->next[side][f])
		for (i = cells->first[f]; i < cells->first[f + 1]; i++)
			ret[cells->window[i]] += scale * (double)cells->value[i];
}

static void add_function(const struct cells_pair *pair, int side, uint32_t function, double *ret)
{
	uint32_t k;

	add_cells(pair->join, side, function, pair->cells[side], pair->scale[side], ret);
	for (k = 0; k < pair->without_count; k++)
		add_cells(pair->join, side, function, pair->without[side][k], -pair->scale[side],
			  ret);
}

static void pair_values(void *ctx, int side, uint32_t function, double *ret)
{
	const struct cells_pair *pair = ctx;

	if (function < pair->join->count) {
		add_function(pair, side, function, ret);
		return;
	}
	for (uint32_t i = 0; i < pair->join->count; i++)
		if (pair->band_of[i] == function - pair->join->count)
			add_function(pair, side, i, ret);
}

static double *scaled(const int64_t *totals, uint32_t count, double scale)
{
	double *n = calloc((size_t)count + 1, sizeof(*n));
	uint32_t i;

	for (i = 0; n && i < count; i++)
		n[i] = scale * (double)totals[i];
	return n;
}

static int add_pair(struct comparison *c, struct cells_pair *pair, double *n[2], double weight,
		    struct share_row *rows, size_t count, struct share_noise *noise)
{
	pair->band_of = c->band_of;
	struct share_data data = { .window_count = { c->m[0]->window_count, c->m[1]->window_count },
				   .window_total = { n[0], n[1] },
				   .ctx = pair,
				   .values = pair_values,
				   .totals_only = c->m[0]->totals_only || c->m[1]->totals_only };

	return share_noise_add(&data, weight, rows, count, noise);
}

/* All processes together. */
static int add_all(struct comparison *c, bool cumulative, struct share_row *rows, size_t count,
		   struct share_noise *noise)
{
	struct cells_pair pair = { .join = &c->join };
	cleanup_free double *n0 = NULL, *n1 = NULL;
	int s;

	for (s = 0; s < 2; s++) {
		pair.cells[s] = cumulative ? &c->m[s]->cumulative : &c->m[s]->self;
		pair.scale[s] = c->m[s]->scale;
	}
	n0 = scaled(c->m[0]->totals, c->m[0]->window_count, c->m[0]->scale);
	n1 = scaled(c->m[1]->totals, c->m[1]->window_count, c->m[1]->scale);
	if (!n0 || !n1)
		return -ENOMEM;
	return add_pair(c, &pair, (double *[]){ n0, n1 }, 1, rows, count, noise);
}

/* ---- strata ---------------------------------------------------------------------------------- */

struct stratum {
	const struct window_stratum *on[2]; /* NULL = below the matrix's limit on that side */
	double part[2];			    /* of the side's total */
	const char *name;
};

static double stratum_sum(const struct window_matrix *m, const struct window_stratum *s)
{
	double sum = 0;
	uint32_t i;

	for (i = 0; i < m->window_count; i++)
		sum += (double)s->totals[i];
	return sum;
}

/* Named strata of both sides, matched by name; the nameless rest is not among them. */
static uint32_t match_strata(const struct comparison *c, struct stratum *ret)
{
	uint32_t count = 0, k, i;
	int s;

	for (s = 0; s < 2; s++) {
		for (k = 0; k < c->m[s]->stratum_count; k++) {
			const struct window_stratum *stratum = &c->m[s]->strata[k];
			const char *name = window_text(c->m[s], stratum->name);

			if (!*name)
				continue;
			for (i = 0; i < count && strcmp(ret[i].name, name) != 0; i++)
				;
			if (i == count)
				ret[count++] = (struct stratum){ .name = name };
			ret[i].on[s] = stratum;
			ret[i].part[s] =
				c->total[s] > 0 ? stratum_sum(c->m[s], stratum) / c->total[s] : 0;
		}
	}
	return count;
}

/* Keeps those that matter on both sides; one that matters and is missing on a side changes what the
 * profile is of. Fewer than two strata with samples are none. */
static uint32_t choose_strata(struct comparison *c, struct stratum *strata, uint32_t count)
{
	uint32_t used = 0, i;

	for (i = 0; i < count; i++) {
		bool both = strata[i].on[0] && strata[i].on[1];

		if (!both &&
		    (strata[i].part[0] >= STRATUM_PART || strata[i].part[1] >= STRATUM_PART)) {
			c->composition = true;
			c->composition_name = strata[i].name;
		}
		if (both && strata[i].part[0] + strata[i].part[1] >= 2 * STRATUM_PART)
			strata[used++] = strata[i];
	}
	return used >= 2 ? used : 0;
}

static double part_of_both(const struct comparison *c, double part0, double part1)
{
	double n0 = c->total[0] * c->m[0]->scale, n1 = c->total[1] * c->m[1]->scale;

	return n0 + n1 > 0 ? (part0 * n0 + part1 * n1) / (n0 + n1) : 0;
}

static int add_stratum(struct comparison *c, const struct stratum *stratum,
		       struct share_noise *noise)
{
	struct cells_pair pair = { .join = &c->join };
	double weight = part_of_both(c, stratum->part[0], stratum->part[1]);
	cleanup_free double *n0 = NULL, *n1 = NULL;
	int s;

	for (s = 0; s < 2; s++) {
		pair.cells[s] = &stratum->on[s]->self;
		pair.scale[s] = c->m[s]->scale;
	}
	n0 = scaled(stratum->on[0]->totals, c->m[0]->window_count, c->m[0]->scale);
	n1 = scaled(stratum->on[1]->totals, c->m[1]->window_count, c->m[1]->scale);
	if (!n0 || !n1)
		return -ENOMEM;
	return add_pair(c, &pair, (double *[]){ n0, n1 }, weight, c->rows,
			c->row_count + c->band_count, noise);
}

/* Everything in no stratum of its own. */
static int add_rest(struct comparison *c, const struct stratum *strata, uint32_t count)
{
	struct cells_pair pair = { .join = &c->join, .without_count = count };
	cleanup_free double *n0 = scaled(c->m[0]->totals, c->m[0]->window_count, c->m[0]->scale);
	cleanup_free double *n1 = scaled(c->m[1]->totals, c->m[1]->window_count, c->m[1]->scale);
	double *n[2] = { n0, n1 }, part[2] = { 1, 1 };
	struct share_noise noise;
	uint32_t k, i;
	int s;

	if (!n0 || !n1)
		return -ENOMEM;
	for (s = 0; s < 2; s++) {
		pair.cells[s] = &c->m[s]->self;
		pair.scale[s] = c->m[s]->scale;
		for (k = 0; k < count; k++) {
			pair.without[s][k] = &strata[k].on[s]->self;
			part[s] -= strata[k].part[s];
			for (i = 0; i < c->m[s]->window_count; i++)
				n[s][i] -= pair.scale[s] * (double)strata[k].on[s]->totals[i];
		}
		/* The rest that rounding leaves of an empty window is no sample. */
		for (i = 0; i < c->m[s]->window_count; i++)
			n[s][i] = n[s][i] < 0.5 ? 0 : n[s][i];
	}
	if (part[0] < 1e-9 || part[1] < 1e-9)
		return 0;
	return add_pair(c, &pair, n, part_of_both(c, part[0], part[1]), c->rows,
			c->row_count + c->band_count, &noise);
}

static int add_strata(struct comparison *c, const struct stratum *strata, uint32_t count)
{
	struct share_noise noise;
	double drift = 0;
	uint32_t k;
	int rc = 0;

	for (k = 0; rc == 0 && k < count; k++) {
		rc = add_stratum(c, &strata[k], &noise);
		if (rc == 0 && noise.drift > drift) {
			c->noise.drift = drift = noise.drift;
			c->noise.nu0 = noise.nu0;
			c->noise.phi0 = noise.phi0;
		}
	}
	return rc < 0 ? rc : add_rest(c, strata, count);
}

int compare_by_shares(struct comparison *c)
{
	struct share_limits limits = { c->threshold,
				       c->q,
				       { c->m[0]->effective_lives, c->m[1]->effective_lives },
				       compare_cost_ratio(c) };
	struct stratum strata[2 * STRATA_MAX];
	uint32_t count;
	size_t i;
	struct share_fit fit;
	int rc = compare_candidates(c, false, &c->rows, &c->row_count);

	if (rc == 0)
		rc = compare_bands(c);
	if (rc < 0)
		return rc;
	count = choose_strata(c, strata, match_strata(c, strata));
	if (count && count < STRATA_MAX && !c->composition) {
		/* Blocks and samples of the whole; the rows are filled stratum by stratum. */
		rc = add_all(c, false, NULL, 0, &c->noise);
		if (rc == 0)
			rc = add_strata(c, strata, count);
	} else {
		rc = add_all(c, false, c->rows, c->row_count + c->band_count, &c->noise);
	}
	if (rc < 0)
		return rc;
	for (i = 0; i < c->row_count + c->band_count; i++)
		c->rows[i].tau = c->rows[i].band ? c->tau_user : compare_tau(c, c->rows[i].function);
	rc = share_rows_test(c->rows, c->row_count + c->band_count, &limits, true, &fit);
	if (rc < 0)
		return rc;
	c->scale = fit.scale;
	c->unsettled = !fit.settled;
	return 0;
}

/* ---- cumulative ------------------------------------------------------------------------------ */

/* Marks, by joined function, what a change is already explained by. */
static void mark_explained(const struct comparison *c, const struct profile *p, const uint32_t *map,
			   const uint32_t *joined, const double *delta, bool *explained)
{
	uint32_t i;

	(void)c;
	for (i = 1; i < p->node_count; i++) {
		uint32_t parent = p->nodes[i].parent, caller, callee;

		if (!parent)
			continue;
		caller = joined[map[p->frames[p->nodes[parent].frame].function]];
		callee = joined[map[p->frames[p->nodes[i].frame].function]];
		if (caller != callee && delta[caller] * delta[callee] > 0 &&
		    fabs(delta[callee]) >= EXPLAINED_PART * fabs(delta[caller]))
			explained[caller] = true;
	}
}

static int by_delta(const void *left, const void *right)
{
	const struct compare_function *a = left, *b = right;

	return (fabs(b->delta_pct) > fabs(a->delta_pct)) -
	       (fabs(b->delta_pct) < fabs(a->delta_pct));
}

/* The rows were tested by their cost against the unchanged rest; shown is, as of every function,
 * how far its shares lie apart. A caller may have no self value on either side. */
static struct compare_function cumulative_element(const struct comparison *c,
						  const struct share_row *row)
{
	struct share_row shown = *row;
	struct compare_function element;

	shown.delta = row->comparison - row->base;
	shown.variance /= (1 + c->scale * c->scale) / 2;
	element = compare_element(c, &shown);
	element.change = row->base <= 0		? COMPARE_NEW
			 : row->comparison <= 0 ? COMPARE_GONE
						: COMPARE_CHANGED;
	element.cumulative = true;
	return element;
}

static int list_unexplained(struct comparison *c, const bool *explained)
{
	struct compare_function *list = calloc(c->cumulative_row_count + 1, sizeof(*list));
	uint32_t used = 0;
	size_t i;

	if (!list)
		return -ENOMEM;
	for (i = 0; i < c->cumulative_row_count; i++) {
		const struct share_row *row = &c->cumulative_rows[i];

		if (!row->changed || explained[row->function])
			continue;
		list[used++] = cumulative_element(c, row);
	}
	qsort(list, used, sizeof(*list), by_delta);
	c->out->unexplained = list;
	c->out->unexplained_count = used;
	return 0;
}

/* Changed by cumulative share against the unchanged rest (the k of the self changes). */
static int test_cumulative(struct comparison *c)
{
	struct share_limits limits = { c->threshold,
				       c->q,
				       { c->m[0]->effective_lives, c->m[1]->effective_lives },
				       0 };
	struct share_noise noise;
	struct share_fit unused;
	size_t i;
	int rc = compare_candidates(c, true, &c->cumulative_rows, &c->cumulative_row_count);

	if (rc == 0)
		rc = add_all(c, true, c->cumulative_rows, c->cumulative_row_count, &noise);
	if (rc < 0)
		return rc;
	for (i = 0; i < c->cumulative_row_count; i++) {
		struct share_row *row = &c->cumulative_rows[i];

		row->tau = compare_tau(c, row->function);
		/* A self change elsewhere dilutes every caller that does not lead to it. */
		row->delta = row->comparison - c->scale * row->base;
		row->variance *= (1 + c->scale * c->scale) / 2;
	}
	return share_rows_test(c->cumulative_rows, c->cumulative_row_count, &limits, false,
			       &unused);
}

int compare_unexplained(struct comparison *c)
{
	cleanup_free double *delta = calloc((size_t)c->join.count + 1, sizeof(*delta));
	cleanup_free bool *explained = calloc((size_t)c->join.count + 1, sizeof(*explained));
	size_t i;
	int s, rc = test_cumulative(c);

	if (rc < 0)
		return rc;
	if (!delta || !explained)
		return -ENOMEM;
	for (i = 0; i < c->cumulative_row_count; i++)
		delta[c->cumulative_rows[i].function] = c->cumulative_rows[i].delta;
	for (s = 0; s < 2; s++)
		if (c->map[s])
			mark_explained(c, c->side[s]->profile, c->map[s], c->join.of[s], delta,
				       explained);
	for (i = 0; i < c->row_count; i++)
		if (c->rows[i].changed)
			explained[c->rows[i].function] = true;
	/* Without the call graph nothing can be called unexplained. */
	if (!c->map[0] || !c->map[1])
		memset(explained, 1, (size_t)c->join.count + 1);
	return list_unexplained(c, explained);
}
