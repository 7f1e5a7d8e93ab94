/* SPDX-License-Identifier: Apache-2.0 */
/* The differential flame graph: the trees of two profiles laid over each other by function (name,
 * package, file). Frames of only one side are kept, so that what vanished can be seen. Pure,
 * thread-safe. */
#ifndef PROFD_PROFILE_FLAME_DIFF_H
#define PROFD_PROFILE_FLAME_DIFF_H

#include "agent/profile/profile.h"

#define FLAME_DIFF_NODES_DEFAULT 200000u
#define FLAME_DIFF_PRUNED	 UINT32_MAX /* function of a node that stands for what was cut */

struct flame_diff_function {
	const char *name, *package, *file; /* borrowed from the profiles */
	uint32_t line;
	uint8_t kind; /* enum profile_frame_kind */
};

struct flame_diff_node {
	uint32_t function; /* FLAME_DIFF_PRUNED: @pruned small frames; undefined for node 0, the
			      root */
	uint32_t parent;
	uint32_t depth;	 /* root 0 */
	uint32_t pruned; /* nodes it stands for */
	int64_t self[2]; /* main value: base, comparison */
	int64_t total[2];
};

struct flame_diff {
	struct flame_diff_function *functions;
	uint32_t function_count;
	struct flame_diff_node
		*nodes; /* preorder, siblings by the sum of both shares, largest first */
	uint32_t node_count;
	uint32_t depth_max;
	int64_t total[2];
};

/* @max_nodes 0 = default; the largest are kept, the rest of each parent becomes one node. -EINVAL
 * types differ; -ENOMEM; @ret untouched then. */
int flame_diff_init(struct flame_diff *ret, const struct profile *base,
		    const struct profile *comparison, uint32_t max_nodes) must_use;
void flame_diff_deinit(struct flame_diff *diff);
static inline void cleanup_flame_diff_fn(struct flame_diff *diff)
{
	flame_diff_deinit(diff);
}
#define cleanup_flame_diff __attribute__((__cleanup__(cleanup_flame_diff_fn)))

#endif
