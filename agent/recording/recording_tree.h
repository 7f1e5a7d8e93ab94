/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of settled pieces, kept as the trees that they are stored as: a frame that many stacks
 * share is gone through once for all of them. */
#ifndef PROFD_RECORDING_RECORDING_TREE_H
#define PROFD_RECORDING_RECORDING_TREE_H

#include "agent/base/vec.h"
#include "agent/profile/stack_resolver.h"
#include "agent/recording/session_chunks.h"

struct recording_tree {
	struct chunk_tree tree; /* its arrays are those below */
	uint64_t *frames;
	uint32_t *node_frames, *parents;
	uint32_t *user, *kernel; /* codes, by pair */
	uint32_t *nodes;	 /* the profile's, by node; NO_NODE until asked for */
	bool *wanted;		 /* by node: of a stack that occurs */
};
VEC_DEFINE(recording_trees, struct recording_tree);

#define NO_NODE UINT32_MAX

void recording_trees_free(struct recording_trees_vec *trees);
/* A copy. -ENOMEM. */
int recording_trees_add(struct recording_trees_vec *trees, const struct chunk_tree *tree) must_use;
/* NULL: the pair is in none. */
struct recording_tree *recording_trees_find(const struct recording_trees_vec *trees, uint32_t pair);
/* @pair of @tree occurs. */
void recording_tree_want(struct recording_tree *tree, uint32_t pair);
/* A profile is built, of all that occur. -ENOMEM. */
int recording_tree_begin(struct recording_tree *tree, struct stack_resolver *resolver) must_use;
/* The profile's node of a pair that is wanted; 0 when it has no frame: *ret_whole says whether none
 * is missing. -ENOMEM. */
int recording_tree_node(struct recording_tree *tree, struct stack_resolver *resolver, uint32_t pair,
			uint32_t *ret, bool *ret_whole) must_use;

#endif
