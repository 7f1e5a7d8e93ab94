// SPDX-License-Identifier: Apache-2.0
#include "api/render/flame_tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/u64map.h"

/* The folded tree before ordering: parents have smaller indexes than children. */
struct fold {
	const struct profile *p;
	struct flame_node *nodes;
	uint32_t *of_node; /* profile node -> folded node */
	uint32_t count;
};

static void fold_deinit(struct fold *fold)
{
	free(fold->nodes);
	free(fold->of_node);
}

static void take_frame(struct flame_node *node, const struct profile_frame *frame)
{
	node->flags &= frame->flags;
	if (!node->line)
		node->line = frame->line;
	if (!node->mapping)
		node->mapping = frame->mapping;
}

static int fold_nodes(struct fold *fold)
{
	const struct profile *p = fold->p;
	struct u64map children = { 0 };
	int rc = 0;

	fold->nodes = calloc(p->node_count + 1, sizeof(*fold->nodes));
	fold->of_node = calloc(p->node_count + 1, sizeof(*fold->of_node));
	if (!fold->nodes || !fold->of_node)
		return -ENOMEM;
	fold->count = 1;
	fold->nodes[0] = (struct flame_node){ .function = FLAME_PRUNED,
					      .kind = PROFILE_FRAME_MARKER };
	for (uint32_t i = 1; rc == 0 && i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];
		uint32_t parent = fold->of_node[p->nodes[i].parent];
		uint64_t key = (uint64_t)parent << 32 | frame->function;
		uint64_t at;

		if (!u64map_get(&children, key, &at)) {
			at = fold->count++;
			fold->nodes[at] = (struct flame_node){
				.function = frame->function,
				.parent = parent,
				.depth = fold->nodes[parent].depth + 1,
				.kind = frame->kind,
				.flags = frame->flags,
			};
			rc = u64map_put(&children, key, at);
		}
		take_frame(&fold->nodes[at], frame);
		fold->of_node[i] = (uint32_t)at;
	}
	u64map_deinit(&children);
	return rc;
}

static void fold_values(struct fold *fold, unsigned value_index)
{
	const struct profile *p = fold->p;

	for (uint32_t i = 0; i < p->sample_count; i++)
		fold->nodes[fold->of_node[p->samples[i].node]].self +=
			p->samples[i].values[value_index];
	for (uint32_t i = fold->count; i-- > 0;) {
		struct flame_node *node = &fold->nodes[i];

		node->total += node->self;
		if (i > 0)
			fold->nodes[node->parent].total += node->total;
	}
}

/* Node that the path of hashes leads to; the deepest that exists decides, -ENOENT if not even the first. */
static int find_root(const struct fold *fold, const struct render_options *options, uint32_t *ret)
{
	uint32_t at = 0;

	for (unsigned step = 0; step < options->root_count; step++) {
		uint32_t best = 0;

		for (uint32_t i = at + 1; i < fold->count; i++) {
			const struct flame_node *node = &fold->nodes[i];
			const char *name = profile_string(
				fold->p, fold->p->functions[node->function].name);

			if (node->parent == at && flame_name_hash(name) == options->root[step] &&
			    (!best || node->total > fold->nodes[best].total))
				best = i;
		}
		if (!best)
			return step > 0 ? 0 : -ENOENT;
		at = best;
		*ret = at;
	}
	return 0;
}

/* ---- order and pruning --------------------------------------------------------------------------- */

struct rank {
	int64_t total;
	uint32_t index;
};

/* Largest total first; a parent never ranks behind its child (equal totals: smaller index). */
static int compare_rank(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;

	if (x->total != y->total)
		return x->total < y->total ? 1 : -1;
	return x->index < y->index ? -1 : x->index > y->index;
}

struct order {
	const struct fold *fold;
	uint32_t root;
	uint32_t *first, *next; /* child lists, largest total first; 0 = none */
	uint32_t *cut_nodes;	/* pruned nodes below a kept one */
	int64_t *cut_value;	/* and their value */
	bool *kept;
};

static void order_deinit(struct order *o)
{
	free(o->first);
	free(o->next);
	free(o->cut_nodes);
	free(o->cut_value);
	free(o->kept);
}

static int order_alloc(struct order *o, uint32_t count)
{
	o->first = calloc(count, sizeof(*o->first));
	o->next = calloc(count, sizeof(*o->next));
	o->cut_nodes = calloc(count, sizeof(*o->cut_nodes));
	o->cut_value = calloc(count, sizeof(*o->cut_value));
	o->kept = calloc(count, sizeof(*o->kept));
	return o->first && o->next && o->cut_nodes && o->cut_value && o->kept ? 0 : -ENOMEM;
}

/* Nodes of the wanted sub-tree, ranked; the count, or -ENOMEM. */
static int64_t rank_nodes(const struct fold *fold, uint32_t root, struct rank **ret)
{
	struct rank *ranks = malloc(fold->count * sizeof(*ranks));
	bool *inside = calloc(fold->count, sizeof(*inside));
	int64_t count = 0;

	if (!ranks || !inside) {
		free(ranks);
		free(inside);
		return -ENOMEM;
	}
	for (uint32_t i = root; i < fold->count; i++) {
		inside[i] = i == root || inside[fold->nodes[i].parent];
		/* A stack without value (a name only) is no box. */
		if (inside[i] && (i == root || fold->nodes[i].total != 0))
			ranks[count++] = (struct rank){ fold->nodes[i].total, i };
	}
	free(inside);
	/* The root keeps its place whatever the signs of the totals. */
	qsort(ranks + 1, (size_t)count - 1, sizeof(*ranks), compare_rank);
	*ret = ranks;
	return count;
}

static int order_nodes(struct order *o, uint32_t max_nodes, struct flame_tree *tree)
{
	const struct fold *fold = o->fold;
	struct rank *ranks = NULL;
	int64_t count = rank_nodes(fold, o->root, &ranks);
	int64_t keep = count < max_nodes ? count : max_nodes;
	int rc = count < 0 ? (int)count : order_alloc(o, fold->count);

	if (rc < 0) {
		free(ranks);
		return rc;
	}
	o->kept[o->root] = true;
	/* Smallest first, so that pushing to the front leaves each list largest first. */
	for (int64_t i = keep - 1; i > 0; i--) {
		uint32_t at = ranks[i].index, parent = fold->nodes[at].parent;

		o->kept[at] = true;
		o->next[at] = o->first[parent];
		o->first[parent] = at;
	}
	for (int64_t i = keep; i < count; i++) {
		uint32_t parent = fold->nodes[ranks[i].index].parent;
		bool top = o->kept[parent];

		tree->min_total = i == keep ? ranks[i].total : tree->min_total;
		if (top)
			o->cut_value[parent] += ranks[i].total;
		while (!o->kept[parent])
			parent = fold->nodes[parent].parent;
		o->cut_nodes[parent]++;
		tree->pruned_value += top ? ranks[i].total : 0;
		tree->pruned_nodes++;
	}
	free(ranks);
	return 0;
}

static void put_pruned(const struct order *o, uint32_t at, uint32_t own, struct flame_tree *tree)
{
	if (!o->cut_nodes[at])
		return;
	tree->nodes[tree->count++] = (struct flame_node){
		.function = FLAME_PRUNED,
		.parent = own,
		.depth = tree->nodes[own].depth + 1,
		.pruned = o->cut_nodes[at],
		.kind = PROFILE_FRAME_MARKER,
		.self = o->cut_value[at],
		.total = o->cut_value[at],
	};
}

/* Preorder without recursion: stacks may be thousands deep. */
static int write_preorder(const struct order *o, struct flame_tree *tree)
{
	const struct fold *fold = o->fold;
	uint32_t *place = malloc(fold->count * sizeof(*place));
	uint32_t at = o->root, slots = 1;

	for (uint32_t i = 0; i < fold->count; i++)
		slots += (uint32_t)o->kept[i] + (o->cut_nodes[i] > 0);
	tree->nodes = malloc(slots * sizeof(*tree->nodes));
	if (!place || !tree->nodes) {
		free(place);
		return -ENOMEM;
	}
	for (;;) {
		struct flame_node *node = &tree->nodes[tree->count];

		*node = fold->nodes[at];
		node->parent = at == o->root ? 0 : place[fold->nodes[at].parent];
		node->depth = fold->nodes[at].depth - fold->nodes[o->root].depth;
		if (node->depth > tree->depth_max)
			tree->depth_max = node->depth;
		place[at] = tree->count++;
		if (o->first[at]) {
			at = o->first[at];
			continue;
		}
		put_pruned(o, at, place[at], tree);
		while (at != o->root && !o->next[at]) {
			at = fold->nodes[at].parent;
			put_pruned(o, at, place[at], tree);
		}
		if (at == o->root)
			break;
		at = o->next[at];
	}
	free(place);
	return 0;
}

int flame_tree_build(const struct profile *p, const struct render_options *options, struct flame_tree *ret)
{
	struct fold fold = { .p = p };
	struct order order = { .fold = &fold };
	struct flame_tree tree = { 0 };
	uint32_t max_nodes = options->max_nodes ? options->max_nodes : RENDER_NODES_DEFAULT;
	int rc = fold_nodes(&fold);

	if (rc == 0) {
		fold_values(&fold, options->value_index);
		rc = find_root(&fold, options, &order.root);
	}
	if (rc == 0)
		rc = order_nodes(&order, max_nodes, &tree);
	if (rc == 0)
		rc = write_preorder(&order, &tree);
	order_deinit(&order);
	fold_deinit(&fold);
	if (rc < 0) {
		flame_tree_deinit(&tree);
		return rc;
	}
	*ret = tree;
	return 0;
}

void flame_tree_deinit(struct flame_tree *tree)
{
	free(tree->nodes);
	*tree = (struct flame_tree){ 0 };
}

const char *flame_tree_name(const struct profile *p, const struct flame_node *node,
			   char scratch[FLAME_NAME_SIZE])
{
	if (node->function != FLAME_PRUNED)
		return profile_string(p, p->functions[node->function].name);
	if (!node->pruned)
		return "all";
	(void)snprintf(scratch, FLAME_NAME_SIZE, "[%u small frame%s]", node->pruned,
		       node->pruned == 1 ? "" : "s");
	return scratch;
}

uint32_t flame_name_hash(const char *name)
{
	uint32_t hash = 2166136261u; /* FNV-1a, 32 bits */

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return (hash >> 24 ^ hash) & 0xffffff;
}
