// SPDX-License-Identifier: Apache-2.0
#include "api/render/flame_tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/vec.h"
#include "api/render/stack_groups.h"

VEC_DEFINE(heap, uint32_t);
VEC_DEFINE(taken, struct flame_node);

/* Groups are taken by their totals, largest first: what is pruned in the end was never folded, so
 * that time and memory, beyond those of the profile's tree, go with what is shown. */
struct fold {
	const struct profile *p;
	struct stack_groups groups;
	struct heap_vec heap;	/* of groups, largest total on top */
	struct taken_vec taken; /* parents have smaller numbers */
	uint32_t *cut_nodes;	/* of the taken: pruned nodes below, and their value */
	int64_t *cut_value;
};

static void fold_deinit(struct fold *f)
{
	free(f->cut_nodes);
	free(f->cut_value);
	heap_vec_deinit(&f->heap);
	taken_vec_deinit(&f->taken);
}

/* ---- heap of groups -------------------------------------------------------------------------- */

/* Equal totals: who was made last, so that a stack is shown to its end before the next is begun. */
static bool is_before(const struct fold *f, uint32_t a, uint32_t b)
{
	int64_t x = f->groups.all.data[a].total, y = f->groups.all.data[b].total;

	return x != y ? x > y : a > b;
}

static int heap_put(struct fold *f, uint32_t group)
{
	size_t at = f->heap.count;
	int rc = heap_vec_push(&f->heap, group);

	if (rc < 0)
		return rc;
	while (at > 0 && is_before(f, group, f->heap.data[(at - 1) / 2])) {
		f->heap.data[at] = f->heap.data[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	f->heap.data[at] = group;
	return 0;
}

static uint32_t heap_take(struct fold *f)
{
	uint32_t top = f->heap.data[0], last = f->heap.data[--f->heap.count];
	size_t at = 0;

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= f->heap.count)
			break;
		if (child + 1 < f->heap.count &&
		    is_before(f, f->heap.data[child + 1], f->heap.data[child]))
			child++;
		if (!is_before(f, f->heap.data[child], last))
			break;
		f->heap.data[at] = f->heap.data[child];
		at = child;
	}
	if (f->heap.count)
		f->heap.data[at] = last;
	return top;
}

/* ---- folding --------------------------------------------------------------------------------- */

/* Descends along the path of hashes; the deepest node that exists decides, -ENOENT if not even the
 * first. */
static int find_root(struct fold *f, const struct render_options *options, struct stack_group *root)
{
	for (unsigned step = 0; step < options->root_count; step++) {
		struct stack_group *best = NULL;
		size_t begin;
		int rc = stack_groups_make(&f->groups, root->head, 0, &begin);

		if (rc < 0)
			return rc;
		for (size_t i = begin; i < f->groups.all.count; i++) {
			struct stack_group *group = &f->groups.all.data[i];
			const char *name = profile_string(f->p, f->p->functions[group->function].name);

			if (flame_name_hash(name) == options->root[step] &&
			    (!best || group->total > best->total))
				best = group;
		}
		if (!best)
			return step > 0 ? 0 : -ENOENT;
		*root = *best;
		f->groups.all.count = 0;
	}
	return 0;
}

/* A node of a group: the attributes that all its frames share, else those of the first frame that
 * has them. */
static struct flame_node node_of(const struct fold *f, const struct stack_group *group)
{
	const struct profile *p = f->p;
	struct flame_node node = { .function = FLAME_PRUNED, .parent = group->parent,
				   .kind = PROFILE_FRAME_MARKER, .total = group->total,
				   .self = stack_groups_self(&f->groups, group->head) };
	uint32_t first = f->groups.members.data[group->head].place.node;

	if (!group->head)
		return node;
	node.function = group->function;
	node.kind = p->frames[p->nodes[first].frame].kind;
	node.flags = UINT8_MAX;
	for (uint32_t m = group->head; m; m = f->groups.members.data[m].next) {
		const struct profile_frame *frame =
			&p->frames[p->nodes[f->groups.members.data[m].place.node].frame];

		node.flags &= frame->flags;
		node.line = node.line ? node.line : frame->line;
		node.mapping = node.mapping ? node.mapping : frame->mapping;
	}
	return node;
}

static int take_group(struct fold *f, struct stack_group group)
{
	uint32_t number = (uint32_t)f->taken.count;
	struct flame_node node = node_of(f, &group);
	size_t begin;
	int rc = stack_groups_make(&f->groups, group.head, number, &begin);

	stack_groups_drop(&f->groups, group.head);
	node.depth = number ? f->taken.data[group.parent].depth + 1 : 0;
	for (size_t i = begin; rc == 0 && i < f->groups.all.count; i++)
		/* A stack without value (a name only) is no box. */
		if (f->groups.all.data[i].total != 0)
			rc = heap_put(f, (uint32_t)i);
	return rc < 0 ? rc : taken_vec_push(&f->taken, node);
}

static int take_largest(struct fold *f, struct stack_group root, uint32_t max_nodes)
{
	int rc = take_group(f, root);

	while (rc == 0 && f->heap.count && f->taken.count < max_nodes)
		rc = take_group(f, f->groups.all.data[heap_take(f)]);
	return rc;
}

/* Nodes with a value at a place and below it. */
static uint32_t count_nodes(const struct tree *tree, struct tree_place place)
{
	struct tree_cursor at = { .place = place };
	uint32_t count = tree_total(tree, place) != 0;

	while (tree_step(tree, &at))
		count += !at.leaving && tree_total(tree, at.place) != 0;
	return count;
}

/* Counts the nodes that were not chosen, with all below them, at the chosen node above. */
static int count_pruned(struct fold *f, struct flame_tree *tree)
{
	f->cut_nodes = calloc(f->taken.count, sizeof(*f->cut_nodes));
	f->cut_value = calloc(f->taken.count, sizeof(*f->cut_value));
	if (!f->cut_nodes || !f->cut_value)
		return -ENOMEM;
	tree->min_total = f->heap.count ? f->groups.all.data[f->heap.data[0]].total : 0;
	for (size_t i = 0; i < f->heap.count; i++) {
		const struct stack_group *group = &f->groups.all.data[f->heap.data[i]];

		f->cut_value[group->parent] += group->total;
		tree->pruned_value += group->total;
		for (uint32_t m = group->head; m; m = f->groups.members.data[m].next) {
			uint32_t nodes = count_nodes(&f->groups.tree, f->groups.members.data[m].place);

			f->cut_nodes[group->parent] += nodes;
			tree->pruned_nodes += nodes;
		}
	}
	return 0;
}

/* ---- order ----------------------------------------------------------------------------------- */

struct order {
	uint32_t *first, *next; /* children of the taken, largest total first; 0 = none */
	uint32_t *place;	/* in the tree */
};

static void put_node(struct flame_tree *tree, struct flame_node node)
{
	if (node.depth > tree->depth_max)
		tree->depth_max = node.depth;
	tree->nodes[tree->count++] = node;
}

static void put_pruned(const struct fold *f, uint32_t at, uint32_t own, struct flame_tree *tree)
{
	if (!f->cut_nodes[at])
		return;
	put_node(tree, (struct flame_node){
		.function = FLAME_PRUNED,
		.parent = own,
		.depth = tree->nodes[own].depth + 1,
		.pruned = f->cut_nodes[at],
		.kind = PROFILE_FRAME_MARKER,
		.self = f->cut_value[at],
		.total = f->cut_value[at],
	});
}

/* Without recursion: stacks may be thousands deep. */
static void write_preorder(const struct fold *f, const struct order *o, struct flame_tree *tree)
{
	uint32_t at = 0;

	for (;;) {
		struct flame_node node = f->taken.data[at];

		node.parent = o->place[node.parent];
		o->place[at] = tree->count;
		put_node(tree, node);
		if (o->first[at]) {
			at = o->first[at];
			continue;
		}
		put_pruned(f, at, o->place[at], tree);
		while (at && !o->next[at]) {
			at = f->taken.data[at].parent;
			put_pruned(f, at, o->place[at], tree);
		}
		if (!at)
			return;
		at = o->next[at];
	}
}

static int order_nodes(const struct fold *f, struct flame_tree *tree)
{
	size_t count = f->taken.count, slots = count;
	cleanup_free uint32_t *links = calloc(3, count * sizeof(*links));
	struct order o = { .first = links };

	for (size_t i = 0; i < count; i++)
		slots += f->cut_nodes[i] > 0;
	tree->nodes = malloc(slots * sizeof(*tree->nodes));
	if (!links || !tree->nodes)
		return -ENOMEM;
	o.next = links + count;
	o.place = links + 2 * count;
	/* Taken largest first: pushed to the front in the opposite order. */
	for (size_t i = count - 1; i > 0; i--) {
		uint32_t parent = f->taken.data[i].parent;

		o.next[i] = o.first[parent];
		o.first[parent] = (uint32_t)i;
	}
	write_preorder(f, &o, tree);
	return 0;
}

int flame_tree_build(const struct profile *p, const struct render_options *options,
		     struct flame_tree *ret)
{
	struct fold fold = { .p = p };
	struct stack_group root = { 0 };
	struct flame_tree tree = { 0 };
	int rc = stack_groups_init(&fold.groups, p, options->value_index, false);

	if (rc == 0) {
		root.total = tree_total(&fold.groups.tree, (struct tree_place){ 0 });
		rc = find_root(&fold, options, &root);
	}
	if (rc == 0)
		rc = take_largest(&fold, root,
				  options->max_nodes ? options->max_nodes : RENDER_NODES_DEFAULT);
	if (rc == 0)
		rc = count_pruned(&fold, &tree);
	stack_groups_deinit(&fold.groups);
	if (rc == 0)
		rc = order_nodes(&fold, &tree);
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
