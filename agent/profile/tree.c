// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/tree.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/profile/builder_internal.h"

/* The origin of a run. */
struct origin {
	uint32_t parent, run;
};

static int by_parent(const void *left, const void *right)
{
	const struct origin *a = left, *b = right;

	if (a->parent != b->parent)
		return a->parent < b->parent ? -1 : 1;
	return a->run < b->run ? -1 : 1;
}

static bool begins_run(const struct profile *p, uint32_t node)
{
	return node == 0 || p->nodes[node].parent != node - 1;
}

/* All runs, and where they come from, by parent; the root's run comes from nowhere. */
static int find_runs(struct tree *tree, struct origin **ret)
{
	const struct profile *p = tree->p;
	struct origin *origins;
	bool sorted = true;
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->node_count; i++)
		tree->run_count += begins_run(p, i);
	tree->runs = calloc(tree->run_count, sizeof(*tree->runs));
	origins = malloc(tree->run_count * sizeof(*origins));
	*ret = origins;
	if (!tree->runs || !origins)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->node_count; i++) {
		if (!begins_run(p, i))
			continue;
		tree->runs[n].node = i;
		if (n > 0)
			origins[n - 1] = (struct origin){ p->nodes[i].parent, n };
		if (n > 1)
			sorted &= origins[n - 2].parent <= origins[n - 1].parent;
		n++;
	}
	if (!sorted)
		qsort(origins, n - 1, sizeof(*origins), by_parent);
	return 0;
}

static void add_branch(struct tree *tree, uint32_t node, uint32_t run, int64_t self)
{
	if (tree->branches)
		tree->branches[tree->branch_count] = (struct tree_branch){ node, run, self, 0 };
	tree->branch_count++;
}

/* Samples and origins come in the order of nodes, as the runs do. */
struct merge {
	const struct origin *origins;
	uint32_t origin, sample; /* the next */
	unsigned value;
};

static void add_branches_of(struct tree *tree, struct merge *m, uint32_t run, uint32_t end)
{
	const struct profile *p = tree->p;
	bool ends = false;

	tree->runs[run].branch = tree->branch_count;
	for (;;) {
		uint32_t node = end;
		int64_t self = 0;

		if (m->sample < p->sample_count && p->samples[m->sample].node < node)
			node = p->samples[m->sample].node;
		if (m->origin + 1 < tree->run_count && m->origins[m->origin].parent < node)
			node = m->origins[m->origin].parent;
		if (node == end)
			break;
		for (; m->sample < p->sample_count && p->samples[m->sample].node == node; m->sample++)
			self = profile_add(self, p->samples[m->sample].values[m->value]);
		ends = node == end - 1;
		if (self || ends)
			add_branch(tree, node, 0, self);
		for (; m->origin + 1 < tree->run_count && m->origins[m->origin].parent == node; m->origin++) {
			struct tree_run *inner = &tree->runs[m->origins[m->origin].run];

			inner->at = tree->branch_count;
			inner->outer = run;
			add_branch(tree, node, m->origins[m->origin].run, 0);
		}
	}
	if (!ends)
		add_branch(tree, end - 1, 0, 0);
}

/* Without memory for them they are counted. */
static void add_branches(struct tree *tree, const struct origin *origins, unsigned value_index)
{
	struct merge merge = { .origins = origins, .value = value_index };

	tree->branch_count = 0;
	for (uint32_t run = 0; run < tree->run_count; run++)
		add_branches_of(tree, &merge, run,
				run + 1 < tree->run_count ? tree->runs[run + 1].node : tree->p->node_count);
}

/* Runs have larger numbers than those they come from. */
static void sum_branches(struct tree *tree)
{
	uint32_t b = tree->branch_count;

	for (uint32_t run = tree->run_count; run-- > 0;) {
		int64_t total = 0;

		while (b > tree->runs[run].branch) {
			struct tree_branch *branch = &tree->branches[--b];

			total = profile_add(total, branch->run ? tree->branches[tree->runs[branch->run].branch].total
							       : branch->self);
			branch->total = total;
		}
	}
}

int tree_init(struct tree *ret, const struct profile *p, unsigned value_index)
{
	cleanup_tree struct tree tree = { .p = p };
	cleanup_free struct origin *origins = NULL;
	int rc = find_runs(&tree, &origins);

	if (rc < 0)
		return rc;
	add_branches(&tree, origins, value_index);
	tree.branches = malloc(tree.branch_count * sizeof(*tree.branches));
	if (!tree.branches)
		return -ENOMEM;
	add_branches(&tree, origins, value_index);
	sum_branches(&tree);
	*ret = tree;
	tree = (struct tree){ 0 };
	return 0;
}

void tree_deinit(struct tree *tree)
{
	free(tree->runs);
	free(tree->branches);
	*tree = (struct tree){ 0 };
}

static bool is_at(const struct tree *tree, uint32_t branch, uint32_t node)
{
	return branch < tree->branch_count && tree->branches[branch].node == node;
}

static bool goes_on(const struct tree *tree, uint32_t node)
{
	return node + 1 < tree->p->node_count && tree->p->nodes[node + 1].parent == node;
}

/* The first of the node's branches into other runs, if it has one. */
static uint32_t first_inner(const struct tree *tree, struct tree_place at)
{
	return at.branch + (is_at(tree, at.branch, at.node) && !tree->branches[at.branch].run);
}

static struct tree_place next_in_run(const struct tree *tree, struct tree_place at)
{
	while (tree->branches[at.branch].node == at.node)
		at.branch++;
	at.node++;
	return at;
}

static struct tree_place begin_of(const struct tree *tree, uint32_t run)
{
	return (struct tree_place){ tree->runs[run].node, tree->runs[run].branch };
}

bool tree_child(const struct tree *tree, struct tree_children *children, struct tree_place *ret)
{
	if (!children->begun) {
		children->begun = true;
		children->branch = first_inner(tree, children->parent);
		if (goes_on(tree, children->parent.node)) {
			*ret = next_in_run(tree, children->parent);
			return true;
		}
	}
	if (!is_at(tree, children->branch, children->parent.node))
		return false;
	*ret = begin_of(tree, tree->branches[children->branch++].run);
	return true;
}

/* The branch behind that of the node's which led to where the cursor is. */
static uint32_t branch_behind(const struct tree *tree, struct tree_cursor *at, uint32_t parent)
{
	struct tree_place above = { parent, at->place.branch };
	const struct tree_run *run = &tree->runs[at->run];

	if (at->place.node == run->node) {
		at->run = run->outer;
		return run->at + 1;
	}
	while (above.branch > 0 && is_at(tree, above.branch - 1, parent))
		above.branch--;
	return first_inner(tree, above);
}

static bool enter_run(const struct tree *tree, struct tree_cursor *at, uint32_t branch)
{
	at->run = tree->branches[branch].run;
	at->place = begin_of(tree, at->run);
	at->leaving = false;
	return true;
}

bool tree_step(const struct tree *tree, struct tree_cursor *at)
{
	uint32_t parent, branch;

	if (!at->leaving) {
		if (goes_on(tree, at->place.node)) {
			at->place = next_in_run(tree, at->place);
			at->depth++;
			return true;
		}
		branch = first_inner(tree, at->place);
		if (is_at(tree, branch, at->place.node)) {
			at->depth++;
			return enter_run(tree, at, branch);
		}
		at->leaving = true;
		return at->depth > 0;
	}
	parent = tree->p->nodes[at->place.node].parent;
	branch = branch_behind(tree, at, parent);
	if (is_at(tree, branch, parent))
		return enter_run(tree, at, branch);
	while (branch > 0 && is_at(tree, branch - 1, parent))
		branch--;
	at->place = (struct tree_place){ parent, branch };
	return --at->depth > 0;
}
