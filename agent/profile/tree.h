/* SPDX-License-Identifier: Apache-2.0 */
/* Depth-first order over a profile's nodes with their sums, without recursion. A stack adds its new
 * nodes to a profile one behind the other. So the tree is made of *runs*: nodes i, i+1, each the
 * parent of the next. Only where a run branches or a sample ends is something kept, 24 bytes: what
 * this costs goes with the stacks of a profile and not with their frames. Children come in the
 * order of their indices. */
#ifndef PROFD_PROFILE_TREE_H
#define PROFD_PROFILE_TREE_H

#include "agent/profile/profile.h"

struct tree_run {
	uint32_t node;	 /* its first */
	uint32_t branch; /* the first in it; it ends with one */
	uint32_t at;	 /* branch of its parent from which it comes; the root's run: 0 */
	uint32_t outer;	 /* the run of that branch */
};

/* By node, and of one node: its own value first, then its children in other runs. */
struct tree_branch {
	uint32_t node;
	uint32_t run; /* that begins here; 0 = none, it is the node's own value */
	int64_t self;
	int64_t total; /* of this one and those behind it in its run: the total of the nodes down to
			  here */
};

struct tree {
	const struct profile *p; /* borrowed */
	struct tree_run *runs;	 /* by node; 0 = the root's */
	struct tree_branch *branches;
	uint32_t run_count, branch_count;
};

/* A node, and the first branch at it or behind it in its run. */
struct tree_place {
	uint32_t node, branch;
};

/* Sums of the value @value_index, saturating. -ENOMEM. */
int tree_init(struct tree *tree, const struct profile *p, unsigned value_index) must_use;
void tree_deinit(struct tree *tree);
static inline void cleanup_tree_fn(struct tree *tree)
{
	tree_deinit(tree);
}
#define cleanup_tree __attribute__((__cleanup__(cleanup_tree_fn)))

static inline int64_t tree_total(const struct tree *tree, struct tree_place at)
{
	return tree->branches[at.branch].total;
}

/* The value of the samples that end at the node. */
static inline int64_t tree_self(const struct tree *tree, struct tree_place at)
{
	const struct tree_branch *branch = &tree->branches[at.branch];

	return branch->node == at.node && !branch->run ? branch->self : 0;
}

/* The children of a node:
 *   struct tree_children children = { .parent = place };
 *   while (tree_child(&tree, &children, &child)) … */
struct tree_children {
	struct tree_place parent;
	uint32_t branch; /* private: the next to look at */
	bool begun;	 /* private */
};
bool tree_child(const struct tree *tree, struct tree_children *children, struct tree_place *ret);

/* Every node below the first place is entered once and, after its descendants, left once:
 *   struct tree_cursor at = { 0 };
 *   while (tree_step(&tree, &at)) if (at.leaving) … at.place.node … else … */
struct tree_cursor {
	struct tree_place place; /* the root before the first step */
	bool leaving;
	uint32_t run, depth; /* private */
};
bool tree_step(const struct tree *tree, struct tree_cursor *at);

#endif
