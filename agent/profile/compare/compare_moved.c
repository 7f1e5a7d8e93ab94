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
#include "agent/profile/compare/compare_internal.h"

#define UNMOVED_PART	 0.2 /* of the function's own change: the group as a whole stayed */
#define COMPENSATED_PART 0.5 /* some caller moved the other way by as much of it */
#define RENAMED_ERRORS	 2.0 /* standard errors between the two shares */
#define RENAMED_COMMON	 0.8 /* of callers and callees */
#define RENAMED_STEPS	 20000000u /* pairs and neighbours looked at in all: some 50 ms */

VEC_DEFINE(moved, struct compare_moved);

/* Lists by joined function, one behind another: that of @f is items[first[f]] up to
 * items[first[f + 1]]. */
struct lists {
	uint32_t *first; /* owned */
	uint32_t *items; /* owned */
};

/* The trees of both sides as paths of joined functions. */
struct paths {
	const struct comparison *c;
	uint64_t *hash[2];	/* by node */
	uint32_t *function[2];	/* by node: joined function */
	struct u64map value[2]; /* path hash -> self value */
	struct lists nodes[2];	/* of each function, ascending */
	struct lists near[2];	/* its callers and callees, each once, ascending */
	struct share_row **row; /* owned; by joined function, NULL = no candidate */
};

static void lists_deinit(struct lists *lists)
{
	free(lists->first);
	free(lists->items);
}

static void paths_deinit(struct paths *p)
{
	int s;

	for (s = 0; s < 2; s++) {
		free(p->hash[s]);
		free(p->function[s]);
		u64map_deinit(&p->value[s]);
		lists_deinit(&p->nodes[s]);
		lists_deinit(&p->near[s]);
	}
	free(p->row);
}

/* Sorts @count pairs of (function, item) into lists. Both arrays are borrowed. */
static int lists_of_pairs(const uint32_t *functions, const uint32_t *items, size_t count,
			  uint32_t function_count, struct lists *ret)
{
	uint32_t *first = calloc((size_t)function_count + 2, sizeof(*first));
	uint32_t *sorted = calloc(count + 1, sizeof(*sorted));

	*ret = (struct lists){ first, sorted };
	if (!first || !sorted)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		first[functions[i] + 2]++;
	for (uint32_t f = 1; f <= function_count; f++)
		first[f + 1] += first[f];
	for (size_t i = 0; i < count; i++)
		sorted[first[functions[i] + 1]++] = items[i];
	return 0;
}

static int ascending(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Makes each list ascending, with each item once. */
static void lists_make_unique(struct lists *lists, uint32_t function_count)
{
	uint32_t to = 0, from = 0;

	for (uint32_t f = 0; f < function_count; f++) {
		uint32_t end = lists->first[f + 1], start = to;

		qsort(lists->items + from, end - from, sizeof(*lists->items), ascending);
		lists->first[f] = start;
		for (; from < end; from++)
			if (to == start || lists->items[to - 1] != lists->items[from])
				lists->items[to++] = lists->items[from];
	}
	lists->first[function_count] = to;
}

static int list_nodes(struct paths *paths, int s)
{
	uint32_t count = paths->c->side[s]->profile->node_count;
	cleanup_free uint32_t *nodes = calloc((size_t)count + 1, sizeof(*nodes));

	if (!nodes)
		return -ENOMEM;
	for (uint32_t i = 1; i < count; i++)
		nodes[i - 1] = i;
	return count ? lists_of_pairs(paths->function[s] + 1, nodes, count - 1, paths->c->join.count,
				      &paths->nodes[s])
		     : -EINVAL;
}

static int list_neighbours(struct paths *paths, int s)
{
	const struct profile *p = paths->c->side[s]->profile;
	cleanup_free uint32_t *of = calloc(2 * (size_t)p->node_count + 1, sizeof(*of));
	cleanup_free uint32_t *near = calloc(2 * (size_t)p->node_count + 1, sizeof(*near));
	size_t count = 0;
	int rc;

	if (!of || !near)
		return -ENOMEM;
	for (uint32_t i = 1; i < p->node_count; i++) {
		uint32_t parent = p->nodes[i].parent, a, b;

		if (!parent)
			continue;
		a = paths->function[s][parent];
		b = paths->function[s][i];
		if (a == b)
			continue;
		of[count] = near[count + 1] = a;
		near[count] = of[count + 1] = b;
		count += 2;
	}
	rc = lists_of_pairs(of, near, count, paths->c->join.count, &paths->near[s]);
	if (rc == 0)
		lists_make_unique(&paths->near[s], paths->c->join.count);
	return rc;
}

static int list_rows(struct paths *paths)
{
	const struct comparison *c = paths->c;

	paths->row = calloc((size_t)c->join.count + 1, sizeof(*paths->row));
	if (!paths->row)
		return -ENOMEM;
	for (size_t i = c->row_count; i-- > 0;)
		paths->row[c->rows[i].function] = &c->rows[i];
	return 0;
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
	const struct lists *nodes = &paths->nodes[s];
	struct u64map seen = { 0 };
	uint32_t at, count = 0;
	uint64_t unused;
	int rc = 0;

	for (at = nodes->first[function]; rc == 0 && at < nodes->first[function + 1]; at++) {
		uint32_t parent = p->nodes[nodes->items[at]].parent;
		uint32_t caller = paths->function[s][parent];
		uint64_t hash = paths->hash[s][parent];

		if (!parent || caller == function || u64map_get(&seen, hash, &unused))
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

/* Variance of the group's change: a share of its own with the function's dispersion. */
static double group_p(const struct share_row *row, double change, double pooled)
{
	double own = row->pooled * (1 - row->pooled);
	double variance = own > 0 ? row->variance * pooled * (1 - pooled) / own : row->variance;

	return variance > 0 ? erfc(fabs(change) / sqrt(2 * variance)) : change == 0;
}

/* Takes @caller's row out too if the function's change is what its own amounts to. */
static void release_caller(const struct paths *paths, uint32_t caller, double change)
{
	const struct comparison *c = paths->c;
	struct share_row *row = paths->row[caller];

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
	release_caller(paths, best, row->delta);
	return moved_vec_push(moved, (struct compare_moved){ row->delta < 0 ? own : other,
							     row->delta < 0 ? other : own,
							     100 * fabs(row->delta) });
}

/* ---- renames --------------------------------------------------------------------------------- */

/* Whether the functions have enough neighbours in common. Counts what it looks at. */
static bool same_neighbours(const struct paths *paths, uint32_t gone, uint32_t born,
			    uint64_t *steps)
{
	const uint32_t *before = paths->near[0].items + paths->near[0].first[gone];
	const uint32_t *after = paths->near[1].items + paths->near[1].first[born];
	uint32_t count[2] = { paths->near[0].first[gone + 1] - paths->near[0].first[gone],
			      paths->near[1].first[born + 1] - paths->near[1].first[born] };
	uint32_t i = 0, k = 0, common = 0;

	while (i < count[0] && k < count[1]) {
		uint32_t a = before[i], b = after[k];

		i += a <= b;
		k += b <= a;
		common += a == b;
	}
	*steps += count[0] + count[1];
	return count[0] && common >= RENAMED_COMMON * count[0] && common >= RENAMED_COMMON * count[1];
}

static bool is_new(const struct share_row *row)
{
	return row->changed && row->base == 0;
}

static bool is_gone(const struct share_row *row)
{
	return row->changed && row->comparison == 0;
}

VEC_DEFINE(rows, struct share_row *);

/* The function of @born that @gone is called now, NULL = none. */
static struct share_row *find_renamed(const struct paths *paths, const struct share_row *gone,
				      const struct rows_vec *born, uint64_t *steps)
{
	for (size_t i = 0; i < born->count && *steps < RENAMED_STEPS; i++) {
		struct share_row *row = born->data[i];
		double error = sqrt(fmax(gone->variance, row->variance));

		++*steps;
		if (row->changed && fabs(row->comparison - gone->base) <= RENAMED_ERRORS * error &&
		    same_neighbours(paths, gone->function, row->function, steps))
			return row;
	}
	return NULL;
}

/* Each gone function is compared with each new one: beyond RENAMED_STEPS the rest is left as it is,
 * which the result tells. A program can have thousands of both. */
static int judge_renamed(struct comparison *c, const struct paths *paths, struct moved_vec *moved)
{
	__attribute__((__cleanup__(rows_vec_deinit))) struct rows_vec born = { 0 };
	uint64_t steps = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < c->row_count; i++)
		if (is_new(&c->rows[i]))
			rc = rows_vec_push(&born, &c->rows[i]);
	for (size_t i = 0; rc == 0 && i < c->row_count && steps < RENAMED_STEPS; i++) {
		struct share_row *gone = &c->rows[i], *row;

		row = is_gone(gone) ? find_renamed(paths, gone, &born, &steps) : NULL;
		if (!row)
			continue;
		gone->changed = row->changed = false;
		rc = moved_vec_push(moved,
				    (struct compare_moved){ c->join.functions[gone->function].name,
							    c->join.functions[row->function].name,
							    100 * gone->base });
	}
	c->out->moved_partly = steps >= RENAMED_STEPS;
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
	rc = list_rows(&paths);
	for (int side = 0; rc == 0 && side < 2; side++) {
		rc = paths_side(&paths, side);
		rc = rc < 0 ? rc : list_nodes(&paths, side);
		rc = rc < 0 ? rc : list_neighbours(&paths, side);
	}
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
