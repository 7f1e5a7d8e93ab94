// SPDX-License-Identifier: Apache-2.0
#include "api/render/chains.h"

#include <errno.h>

#include "agent/base/u64map.h"

int chains_build(const struct profile *p, struct chains *ret)
{
	struct chains chains = { .count = 1 };
	struct u64map known = { 0 };
	int rc = 0;

	chains.items = calloc(p->node_count + 1, sizeof(*chains.items));
	chains.of_node = calloc(p->node_count + 1, sizeof(*chains.of_node));
	chains.up = calloc(p->node_count + 1, sizeof(*chains.up));
	if (!chains.items || !chains.of_node || !chains.up)
		rc = -ENOMEM;
	for (uint32_t i = 1; rc == 0 && i < p->node_count; i++) {
		uint32_t parent = p->nodes[i].parent, frame = p->nodes[i].frame;
		bool inlined = parent && (p->frames[frame].flags & PROFILE_FRAME_INLINED);
		uint32_t outer = inlined ? chains.of_node[parent] : 0;
		uint64_t key = (uint64_t)outer << 32 | frame;
		uint64_t at;

		if (!u64map_get(&known, key, &at)) {
			at = chains.count++;
			chains.items[at] = (struct chain){ frame, outer };
			rc = u64map_put(&known, key, at);
		}
		chains.of_node[i] = (uint32_t)at;
		chains.up[i] = inlined ? chains.up[parent] : parent;
	}
	u64map_deinit(&known);
	if (rc < 0) {
		chains_deinit(&chains);
		return rc;
	}
	*ret = chains;
	return 0;
}

void chains_deinit(struct chains *chains)
{
	free(chains->items);
	free(chains->of_node);
	free(chains->up);
	*chains = (struct chains){ 0 };
}
