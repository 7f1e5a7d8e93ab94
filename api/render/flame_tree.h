/* SPDX-License-Identifier: Apache-2.0 */
/* The tree that flame graphs show. Stacks are folded by function, while the profile's own tree
 * distinguishes lines and offsets. Nodes are in preorder, siblings by total, largest first, pruned
 * to a number of nodes. The nodes pruned below a node are one extra child, so that every sum still
 * adds up. */
#ifndef PROFD_API_RENDER_FLAME_TREE_H
#define PROFD_API_RENDER_FLAME_TREE_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/profile/profile.h"
#include "api/render/render.h"

/* Function of a node without one: the root of everything (@pruned 0), or what @pruned nodes were
 * merged to. */
#define FLAME_PRUNED UINT32_MAX

struct flame_node {
	uint32_t function; /* of the profile, or FLAME_PRUNED */
	uint32_t parent;   /* smaller than the own index */
	uint32_t depth;	   /* root 0 */
	uint32_t pruned;   /* nodes it stands for */
	uint8_t kind;	   /* enum profile_frame_kind */
	uint8_t flags;	   /* enum profile_frame_flag, when all frames of the node have it */
	uint32_t line;	   /* of one of its frames, 0 if unknown */
	uint32_t mapping;  /* of one of its frames; 0 = none */
	int64_t self, total;
};

struct flame_tree {
	struct flame_node *nodes; /* preorder */
	uint32_t count;
	uint32_t depth_max;
	uint32_t pruned_nodes;
	int64_t pruned_value;
	int64_t min_total; /* largest total that was pruned, 0 = nothing was */
};

/* -ENOMEM; -ENOENT when options->root leads nowhere. */
int flame_tree_build(const struct profile *p, const struct render_options *options,
		     struct flame_tree *ret) must_use;
void flame_tree_deinit(struct flame_tree *tree);

static inline void cleanup_flame_tree_fn(struct flame_tree *tree)
{
	flame_tree_deinit(tree);
}
#define cleanup_flame_tree __attribute__((__cleanup__(cleanup_flame_tree_fn)))

/* Text of a node, "all" for the root; @scratch serves the pruned ones. */
#define FLAME_NAME_SIZE 48
const char *flame_tree_name(const struct profile *p, const struct flame_node *node,
			   char scratch[FLAME_NAME_SIZE]);
/* 24-bit hash of a frame's name, the `z` path of page addresses: FNV-1a folded to 24 bits. */
uint32_t flame_name_hash(const char *name);

#endif
