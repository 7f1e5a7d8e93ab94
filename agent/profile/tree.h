/* SPDX-License-Identifier: Apache-2.0 */
/* Depth-first order over a profile's nodes, without recursion: child lists built in one pass.
 * Children come in the order of their indices. */
#ifndef PROFD_PROFILE_TREE_H
#define PROFD_PROFILE_TREE_H

#include "agent/profile/profile.h"

#define TREE_NONE UINT32_MAX

struct tree {
	const struct profile *p; /* borrowed */
	uint32_t *first_child;	 /* of each node, TREE_NONE = leaf */
	uint32_t *next_sibling;
};

/* -ENOMEM. */
int tree_init(struct tree *tree, const struct profile *p) must_use;
void tree_deinit(struct tree *tree);
static inline void cleanup_tree_fn(struct tree *tree)
{
	tree_deinit(tree);
}
#define cleanup_tree __attribute__((__cleanup__(cleanup_tree_fn)))

/* Every node but the root is entered once and, after its descendants, left once:
 *   struct tree_cursor at = { 0 };
 *   while (tree_step(&tree, &at)) if (at.leaving) … at.node … else … */
struct tree_cursor {
	uint32_t node; /* 0 before the first step */
	bool leaving;
};
bool tree_step(const struct tree *tree, struct tree_cursor *at);

#endif
