/* SPDX-License-Identifier: Apache-2.0 */
/* Values by function, added up over the stacks of many days. Each day has a tree of its own. For
 * sums by function the trees need not be joined, and no stack is walked twice: the cost grows with
 * the nodes of the trees. The result is what profile_top_functions() says of one profile of all
 * stacks. Not thread-safe. */
#ifndef PROFD_PROFILE_FUNCTION_SUMS_H
#define PROFD_PROFILE_FUNCTION_SUMS_H

#include "agent/profile/stack_resolver.h"

/* Stacks from the root, in the order of a walk: parents come before their children, and all that is
 * below a node comes before what is not. Node 0 is the root and has no frame. */
struct stack_tree {
	const uint64_t *frames;	     /* frame words of bpf/profiler.h, each once */
	const uint32_t *node_frames; /* by node: index of frames */
	const uint32_t *parents;     /* by node */
	uint32_t frame_count, node_count;
};

struct stack_sum {
	uint32_t user, kernel; /* nodes; 0 = none */
	int64_t value;
	uint64_t samples_1024; /* samples times 1024 */
};

struct function_sums;

/* @modules and @names are borrowed and outlive the sums; frames of all trees mean the same modules.
 * NULL: no memory. */
struct function_sums *function_sums_create(const struct profile_meta *meta,
					   const struct stack_modules *modules,
					   const struct name_source *names);
void function_sums_destroy(struct function_sums *s);
CLEANUP_DEFINE(function_sums, struct function_sums *, function_sums_destroy);

/* Each stack has a node; user stacks ascend. -ENOMEM; -EINVAL: they do not, or a node is not in the
 * tree. */
int function_sums_add(struct function_sums *s, const struct stack_tree *tree,
		      const struct stack_sum *stacks, size_t count) must_use;
/* Adds a value without a stack under the marker @name. -ENOMEM. */
int function_sums_add_marker(struct function_sums *s, const char *name, int64_t value,
			     uint64_t samples_1024) must_use;
/* *ret has the functions and the totals, but no stacks; *ret_rows (the caller frees) as of
 * profile_top_functions(). The sums are spent. -ENOMEM, or what the builder met. */
int function_sums_finish(struct function_sums *s, struct profile **ret,
			 struct profile_function_row **ret_rows, size_t *ret_count) must_use;

#endif
