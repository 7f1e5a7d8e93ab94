// SPDX-License-Identifier: Apache-2.0
/* Cost that only changed its name. A function inlined into its caller vanishes and the caller grows
 * by as much; a renamed one vanishes while another with the same neighbours appears. Neither is a
 * change.
 *
 * Callers are judged only by their own value on the very paths that call the function: a path is
 * known across the sides by the hash of its joined function ids from the root. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/compare_internal.h"

#define UNMOVED_PART	 0.2 /* of the function's own change: the group as a whole stayed */
#define COMPENSATED_PART 0.5 /* some caller moved the other way by as much of it */
#define RENAMED_ERRORS	 2.0 /* standard errors between the two shares */
#define RENAMED_COMMON	 0.8 /* of callers and callees */

VEC_DEFINE(moved, struct compare_moved);

/* The trees of both sides as paths of joined functions. */
struct paths {
	const struct comparison *c;
	uint64_t *hash[2];	/* by node */
	uint32_t *function[2];	/* by node: joined function */
	struct u64map value[2]; /* path hash -> self value */
};

static void paths_deinit(struct paths *p)
{
	int s;

	for (s = 0; s < 2; s++) {
		free(p->hash[s]);
		free(p->function[s]);
		u64map_deinit(&p->value[s]);
	}
}

static int paths_side(struct paths *paths, int s)
{
	const struct comparison *c = paths->c;
	const struct profile *p = c->side[s]->profile;
	cleanup_free int64_t *self = NULL, *total = NULL;
	uint64_t before;
	uint32_t i;
	int rc = profile_node_values(p, &self, &total);

	paths->hash[s] = calloc(p->node_count, sizeof(uint64_t));
	paths->function[s] = calloc(p->node_count, sizeof(uint32_t));
	if (rc < 0 || !paths->hash[s] || !paths->function[s])
		return -ENOMEM;
	for (i = 1; i < p->node_count; i++) {
		uint32_t f = c->join.of[s][c->map[s][p->frames[p->nodes[i].frame].function]];

		paths->function[s][i] = f;
		paths->hash[s][i] = hash_combine(paths->hash[s][p->nodes[i].parent], f);
		if (self[i] <= 0)
			continue;
		before = 0;
		(void)u64map_get(&paths->value[s], paths->hash[s][i], &before);
		rc = u64map_put(&paths->value[s], paths->hash[s][i], before + (uint64_t)self[i]);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static double path_share(const struct paths *paths, int s, uint64_t hash)
{
	uint64_t value = 0;

	(void)u64map_get(&paths->value[s], hash, &value);
	return paths->c->total[s] > 0 ? (double)value / paths->c->total[s] : 0;
}

/* Change of each caller of @function on the paths that call it, found on side @s: against the
 * unchanged rest, because a callee that grows dilutes its callers too. Sums into
 * @by_caller (by joined function, zeros before); @callers lists those touched. */
static int caller_changes(const struct paths *paths, int s, uint32_t function, double *by_caller,
			  uint32_t *callers, uint32_t *ret_count)
{
	const struct profile *p = paths->c->side[s]->profile;
	struct u64map seen = { 0 };
	uint32_t i, count = 0;
	uint64_t unused;
	int rc = 0;

	for (i = 1; rc == 0 && i < p->node_count; i++) {
		uint32_t parent = p->nodes[i].parent, caller = paths->function[s][parent];
		uint64_t hash = paths->hash[s][parent];

		if (paths->function[s][i] != function || !parent || caller == function ||
		    u64map_get(&seen, hash, &unused))
			continue;
		rc = u64map_put(&seen, hash, 1);
		if (by_caller[caller] == 0)
			callers[count++] = caller;
		by_caller[caller] +=
			path_share(paths, 1, hash) - paths->c->scale * path_share(paths, 0, hash);
		/* Marks the caller as listed even when its change is none. */
		if (by_caller[caller] == 0)
			by_caller[caller] = 1e-300;
	}
	u64map_deinit(&seen);
	*ret_count = count;
	return rc;
}

static struct share_row *find_row(struct comparison *c, uint32_t function)
{
	size_t i;

	for (i = 0; i < c->row_count; i++)
		if (c->rows[i].function == function)
			return &c->rows[i];
	return NULL;
}

/* Variance of the group's change: a share of its own with the function's dispersion. */
static double group_p(const struct share_row *row, double change, double pooled)
{
	double own = row->pooled * (1 - row->pooled);
	double variance = own > 0 ? row->variance * pooled * (1 - pooled) / own : row->variance;

	return variance > 0 ? erfc(fabs(change) / sqrt(2 * variance)) : change == 0;
}

/* Takes @caller's row out too if the function's change is what its own amounts to. */
static void release_caller(struct comparison *c, uint32_t caller, double change)
{
	struct share_row *row = find_row(c, caller);

	if (row && row->changed &&
	    fabs(row->delta + change) < fmax(c->threshold, UNMOVED_PART * fabs(change)))
		row->changed = false;
}

static int judge_inlined(struct comparison *c, const struct paths *paths, struct share_row *row,
			 double *by_caller, uint32_t *callers, struct moved_vec *moved)
{
	int s = row->base > row->comparison ? 0 : 1, rc;
	double group = row->cost_delta, pooled = row->pooled;
	uint32_t count, i, best = JOIN_NONE;
	const char *own, *other;
	bool stayed;

	rc = caller_changes(paths, s, row->function, by_caller, callers, &count);
	for (i = 0; i < count; i++) {
		double change = by_caller[callers[i]];

		group += change;
		pooled += fabs(change) / 2;
		if (change * row->delta < 0 &&
		    fabs(change) >= COMPENSATED_PART * fabs(row->delta) &&
		    (best == JOIN_NONE || fabs(change) > fabs(by_caller[best])))
			best = callers[i];
	}
	stayed = fabs(group) < fmax(c->threshold, UNMOVED_PART * fabs(row->delta)) ||
		 group_p(row, group, fmin(pooled, 0.5)) > c->q;
	for (i = 0; i < count; i++)
		by_caller[callers[i]] = 0;
	if (rc < 0 || !stayed || best == JOIN_NONE)
		return rc;
	own = c->join.functions[row->function].name;
	other = c->join.functions[best].name;
	row->changed = false;
	release_caller(c, best, row->delta);
	return moved_vec_push(moved, (struct compare_moved){ row->delta < 0 ? own : other,
							     row->delta < 0 ? other : own,
							     100 * fabs(row->delta) });
}

/* ---- renames --------------------------------------------------------------------------------- */

/* Neighbours of @function on side @s: its callers and callees, each once, in @list; bits in @mark.
 */
static uint32_t neighbours(const struct paths *paths, int s, uint32_t function, uint8_t *mark,
			   uint32_t *list)
{
	const struct profile *p = paths->c->side[s]->profile;
	uint32_t i, count = 0;

	for (i = 1; i < p->node_count; i++) {
		uint32_t parent = p->nodes[i].parent, a, b;

		if (!parent)
			continue;
		a = paths->function[s][parent];
		b = paths->function[s][i];
		if ((a == function) == (b == function))
			continue;
		a = a == function ? b : a;
		if (!mark[a])
			list[count++] = a;
		mark[a] = 1;
	}
	return count;
}

static int same_neighbours(const struct paths *paths, uint32_t gone, uint32_t born, bool *ret)
{
	uint32_t functions = paths->c->join.count, count[2], i, common = 0;
	cleanup_free uint8_t *before = calloc((size_t)functions + 1, 1);
	cleanup_free uint8_t *after = calloc((size_t)functions + 1, 1);
	cleanup_free uint32_t *list = calloc((size_t)functions + 1, sizeof(*list));

	if (!before || !after || !list)
		return -ENOMEM;
	count[1] = neighbours(paths, 1, born, after, list);
	count[0] = neighbours(paths, 0, gone, before, list);
	for (i = 0; i < count[0]; i++)
		common += after[list[i]];
	*ret = count[0] && common >= RENAMED_COMMON * count[0] &&
	       common >= RENAMED_COMMON * count[1];
	return 0;
}

static bool is_new(const struct share_row *row)
{
	return row->changed && row->base == 0;
}

static bool is_gone(const struct share_row *row)
{
	return row->changed && row->comparison == 0;
}

static int judge_renamed(struct comparison *c, const struct paths *paths, struct moved_vec *moved)
{
	size_t i, k;
	int rc = 0;

	for (i = 0; i < c->row_count; i++) {
		for (k = 0; rc == 0 && is_gone(&c->rows[i]) && k < c->row_count; k++) {
			struct share_row *gone = &c->rows[i], *born = &c->rows[k];
			double error = sqrt(fmax(gone->variance, born->variance));
			bool same = false;

			if (!is_new(born) ||
			    fabs(born->comparison - gone->base) > RENAMED_ERRORS * error)
				continue;
			rc = same_neighbours(paths, gone->function, born->function, &same);
			if (rc < 0 || !same)
				continue;
			gone->changed = born->changed = false;
			rc = moved_vec_push(moved, (struct compare_moved){
							   c->join.functions[gone->function].name,
							   c->join.functions[born->function].name,
							   100 * gone->base });
		}
	}
	return rc;
}

int compare_moved(struct comparison *c)
{
	__attribute__((__cleanup__(paths_deinit))) struct paths paths = { .c = c };
	__attribute__((__cleanup__(moved_vec_deinit))) struct moved_vec moved = { 0 };
	cleanup_free double *by_caller = NULL;
	cleanup_free uint32_t *callers = NULL;
	bool any = false;
	size_t i;
	int rc = 0;

	for (i = 0; i < c->row_count; i++)
		any |= c->rows[i].changed;
	if (!any || !c->map[0] || !c->map[1])
		return 0;
	by_caller = calloc((size_t)c->join.count + 1, sizeof(*by_caller));
	callers = calloc((size_t)c->join.count + 1, sizeof(*callers));
	if (!by_caller || !callers)
		return -ENOMEM;
	for (i = 0; rc == 0 && i < 2; i++)
		rc = paths_side(&paths, (int)i);
	if (rc == 0)
		rc = judge_renamed(c, &paths, &moved);
	for (i = 0; rc == 0 && i < c->row_count; i++)
		if (c->rows[i].changed)
			rc = judge_inlined(c, &paths, &c->rows[i], by_caller, callers, &moved);
	if (rc < 0)
		return rc;
	c->out->moved_count = (uint32_t)moved.count;
	c->out->moved = take_ptr(moved.data);
	return 0;
}
