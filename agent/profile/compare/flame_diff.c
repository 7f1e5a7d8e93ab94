// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/compare/flame_diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/intern.h"
#include "agent/base/vec.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/canonical.h"

VEC_DEFINE(functions, struct flame_diff_function);
VEC_DEFINE(nodes, struct flame_diff_node);

struct work {
	struct functions_vec functions;
	struct nodes_vec nodes; /* parents before children */
	struct intern function_index, node_index;
	double *weight;	 /* by node: sum of its shares of both sides */
	uint32_t *order; /* nodes by parent, then weight */
	uint32_t *first; /* by node: its children in order[first … first of the next) */
};

static void work_deinit(struct work *w)
{
	functions_vec_deinit(&w->functions);
	nodes_vec_deinit(&w->nodes);
	intern_deinit(&w->function_index);
	intern_deinit(&w->node_index);
	free(w->weight);
	free(w->order);
	free(w->first);
}

/* ---- laying over ----------------------------------------------------------------------------- */

static int function_id(struct work *w, const struct profile *p, uint32_t function, uint8_t kind,
		       uint32_t *ret)
{
	const struct profile_function *f = &p->functions[function];
	struct flame_diff_function wanted = { .name = profile_string(p, f->name),
					      .package = profile_string(p, f->package),
					      .file = profile_string(p, f->file),
					      .line = f->line,
					      .kind = kind };
	const struct canonical_function key = { wanted.name, wanted.package, wanted.file };
	uint64_t hash = canonical_hash(&key);
	struct intern_probe probe = intern_probe(&w->function_index, hash);
	uint32_t id;
	int rc;

	while ((id = intern_next(&w->function_index, &probe)) != INTERN_NONE) {
		const struct flame_diff_function *known = &w->functions.data[id];

		if (canonical_equal(&(struct canonical_function){ known->name, known->package,
								  known->file },
				    &key)) {
			*ret = id;
			return 0;
		}
	}
	*ret = (uint32_t)w->functions.count;
	rc = intern_add(&w->function_index, hash, *ret);
	return rc < 0 ? rc : functions_vec_push(&w->functions, wanted);
}

static int node_id(struct work *w, uint32_t parent, uint32_t function, uint32_t *ret)
{
	uint64_t hash = hash_combine(parent, function);
	struct intern_probe probe = intern_probe(&w->node_index, hash);
	uint32_t id;
	int rc;

	while ((id = intern_next(&w->node_index, &probe)) != INTERN_NONE) {
		if (w->nodes.data[id].parent == parent && w->nodes.data[id].function == function) {
			*ret = id;
			return 0;
		}
	}
	*ret = (uint32_t)w->nodes.count;
	rc = intern_add(&w->node_index, hash, *ret);
	if (rc == 0)
		rc = nodes_vec_push(&w->nodes, (struct flame_diff_node){
						       .function = function,
						       .parent = parent,
						       .depth = w->nodes.data[parent].depth + 1 });
	return rc;
}

static int add_side(struct work *w, const struct profile *p, int side)
{
	cleanup_free int64_t *self = NULL, *total = NULL;
	cleanup_free uint32_t *functions = malloc(((size_t)p->function_count + 1) * 4);
	cleanup_free uint32_t *nodes = calloc(p->node_count, sizeof(*nodes));
	uint32_t i;
	int rc = profile_node_values(p, &self, &total);

	if (rc < 0 || !functions || !nodes)
		return -ENOMEM;
	memset(functions, 0xff, ((size_t)p->function_count + 1) * 4);
	w->nodes.data[0].self[side] = self[0];
	for (i = 1; rc == 0 && i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];
		uint32_t *function = &functions[frame->function];

		if (!total[i])
			continue;
		if (*function == UINT32_MAX)
			rc = function_id(w, p, frame->function, frame->kind, function);
		if (rc == 0)
			rc = node_id(w, nodes[p->nodes[i].parent], *function, &nodes[i]);
		if (rc == 0)
			w->nodes.data[nodes[i]].self[side] =
				profile_add(w->nodes.data[nodes[i]].self[side], self[i]);
	}
	return rc;
}

static void sum_totals(struct work *w)
{
	size_t i;
	int s;

	for (i = w->nodes.count; i-- > 0;) {
		struct flame_diff_node *node = &w->nodes.data[i];

		for (s = 0; s < 2; s++) {
			node->total[s] = profile_add(node->total[s], node->self[s]);
			if (i)
				w->nodes.data[node->parent].total[s] = profile_add(
					w->nodes.data[node->parent].total[s], node->total[s]);
		}
	}
}

/* ---- order and pruning ----------------------------------------------------------------------- */

struct ranked {
	double weight;
	uint32_t parent, node;
};

static int by_parent(const void *left, const void *right)
{
	const struct ranked *a = left, *b = right;

	if (a->parent != b->parent)
		return a->parent < b->parent ? -1 : 1;
	if (a->weight != b->weight)
		return a->weight > b->weight ? -1 : 1;
	return (a->node > b->node) - (a->node < b->node);
}

static int by_weight(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a < b) - (a > b);
}

static int arrange(struct work *w)
{
	size_t count = w->nodes.count, i;
	cleanup_free struct ranked *ranked = calloc(count, sizeof(*ranked));
	const struct flame_diff_node *root = &w->nodes.data[0];

	w->weight = calloc(count, sizeof(*w->weight));
	w->order = calloc(count, sizeof(*w->order));
	w->first = calloc(count + 1, sizeof(*w->first));
	if (!ranked || !w->weight || !w->order || !w->first)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		const struct flame_diff_node *node = &w->nodes.data[i];
		int s;

		for (s = 0; s < 2; s++)
			if (root->total[s] > 0)
				w->weight[i] += (double)node->total[s] / (double)root->total[s];
		ranked[i] = (struct ranked){ w->weight[i], node->parent, (uint32_t)i };
	}
	/* The root is its own parent and comes first of all. */
	ranked[0].weight = 4;
	qsort(ranked, count, sizeof(*ranked), by_parent);
	for (i = 0; i < count; i++) {
		w->order[i] = ranked[i].node;
		w->first[ranked[i].parent + 1]++;
	}
	for (i = 0; i < count; i++)
		w->first[i + 1] += w->first[i];
	return 0;
}

/* Least weight that is kept: a parent weighs at least as much as its child, so the kept nodes are a
 * tree. */
static int cutoff(const struct work *w, uint32_t max, double *ret)
{
	cleanup_free double *sorted = NULL;
	size_t count = w->nodes.count;

	*ret = 0;
	if (count <= max)
		return 0;
	sorted = malloc(count * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, w->weight, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_weight);
	/* Equal values are all dropped: the result is never larger than asked for. */
	*ret = sorted[max] * (1 + 1e-12);
	return 0;
}

static uint32_t size_below(const struct work *w, uint32_t node, uint32_t *stack)
{
	uint32_t depth = 0, size = 0, i;

	stack[depth++] = node;
	while (depth) {
		uint32_t at = stack[--depth];

		size++;
		for (i = w->first[at]; i < w->first[at + 1]; i++)
			if (w->order[i])
				stack[depth++] = w->order[i];
	}
	return size;
}

struct emitter {
	struct work *w;
	struct nodes_vec out;
	double least;
	uint32_t *stack;  /* of size_below() */
	uint32_t *number; /* by node: its index in out */
};

/* One node for all cut children of @parent. */
static int emit_pruned(struct emitter *e, uint32_t parent)
{
	struct flame_diff_node rest = { .function = FLAME_DIFF_PRUNED,
					.parent = e->number[parent],
					.depth = e->w->nodes.data[parent].depth + 1 };
	uint32_t i;
	int s;

	for (i = e->w->first[parent]; i < e->w->first[parent + 1]; i++) {
		uint32_t child = e->w->order[i];

		if (!child || e->w->weight[child] >= e->least)
			continue;
		rest.pruned += size_below(e->w, child, e->stack);
		for (s = 0; s < 2; s++)
			rest.total[s] =
				profile_add(rest.total[s], e->w->nodes.data[child].total[s]);
	}
	memcpy(rest.self, rest.total, sizeof(rest.self));
	return rest.pruned ? nodes_vec_push(&e->out, rest) : 0;
}

/* Preorder by an explicit stack of (node, next child). */
static int emit_all(struct emitter *e)
{
	struct work *w = e->w;
	cleanup_free uint32_t *next = malloc(w->nodes.count * sizeof(*next));
	uint32_t node = 0;
	int rc = nodes_vec_push(&e->out, w->nodes.data[0]);

	if (!next)
		return -ENOMEM;
	memcpy(next, w->first, w->nodes.count * sizeof(*next));
	while (rc == 0) {
		uint32_t child = UINT32_MAX;

		while (next[node] < w->first[node + 1] && child == UINT32_MAX) {
			child = w->order[next[node]++];
			if (!child || w->weight[child] < e->least)
				child = UINT32_MAX;
		}
		if (child != UINT32_MAX) {
			struct flame_diff_node copy = w->nodes.data[child];

			copy.parent = e->number[node];
			e->number[child] = (uint32_t)e->out.count;
			rc = nodes_vec_push(&e->out, copy);
			node = child;
			continue;
		}
		rc = emit_pruned(e, node);
		if (!node)
			break;
		node = w->nodes.data[node].parent;
	}
	return rc;
}

static int emit(struct work *w, uint32_t max_nodes, struct flame_diff *ret)
{
	struct emitter e = { .w = w };
	uint32_t i;
	int rc = cutoff(w, max_nodes, &e.least);

	e.stack = calloc(w->nodes.count, sizeof(*e.stack));
	e.number = calloc(w->nodes.count, sizeof(*e.number));
	if (rc == 0)
		rc = e.stack && e.number ? emit_all(&e) : -ENOMEM;
	free(e.stack);
	free(e.number);
	if (rc < 0) {
		nodes_vec_deinit(&e.out);
		return rc;
	}
	*ret = (struct flame_diff){ 0 };
	ret->functions = take_ptr(w->functions.data);
	ret->function_count = (uint32_t)w->functions.count;
	ret->nodes = e.out.data;
	ret->node_count = (uint32_t)e.out.count;
	memcpy(ret->total, e.out.data[0].total, sizeof(ret->total));
	for (i = 0; i < ret->node_count; i++)
		if (ret->nodes[i].depth > ret->depth_max)
			ret->depth_max = ret->nodes[i].depth;
	return 0;
}

int flame_diff_init(struct flame_diff *ret, const struct profile *base,
		    const struct profile *comparison, uint32_t max_nodes)
{
	__attribute__((__cleanup__(work_deinit))) struct work w = { 0 };
	int rc;

	if (base->meta.type != comparison->meta.type)
		return -EINVAL;
	rc = nodes_vec_push(&w.nodes, (struct flame_diff_node){ .function = FLAME_DIFF_PRUNED });
	if (rc == 0)
		rc = add_side(&w, base, 0);
	if (rc == 0)
		rc = add_side(&w, comparison, 1);
	if (rc < 0)
		return rc;
	sum_totals(&w);
	rc = arrange(&w);
	return rc < 0 ? rc : emit(&w, max_nodes ? max_nodes : FLAME_DIFF_NODES_DEFAULT, ret);
}

void flame_diff_deinit(struct flame_diff *diff)
{
	free(diff->functions);
	free(diff->nodes);
	*diff = (struct flame_diff){ 0 };
}
