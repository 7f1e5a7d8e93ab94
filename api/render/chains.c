// SPDX-License-Identifier: Apache-2.0
#include "api/render/chains.h"

#include <errno.h>

#define INLINED_MAX 128 /* of one location; what is above begins another */

/* Frames from *@node, innermost first, to the one that all others are inlined into; *@node becomes
 * its caller's. */
static unsigned list_frames(const struct profile *p, uint32_t *node, uint32_t frames[INLINED_MAX])
{
	unsigned count = 0;
	bool inlined;

	do {
		uint32_t frame = p->nodes[*node].frame;

		frames[count++] = frame;
		*node = p->nodes[*node].parent;
		inlined = *node && (p->frames[frame].flags & PROFILE_FRAME_INLINED);
	} while (inlined && count < INLINED_MAX);
	return count;
}

static uint64_t key_of(uint32_t outer, uint32_t frame)
{
	return (uint64_t)outer << 32 | frame;
}

static int add_node(struct chains *c, uint32_t node)
{
	uint32_t frames[INLINED_MAX], outer = 0;
	unsigned count = list_frames(c->p, &node, frames);
	int rc = 0;

	while (rc == 0 && count-- > 0) {
		uint32_t frame = frames[count];
		uint64_t at = outer ? 0 : c->of_frame[frame];

		if (at || (outer && u64map_get(&c->known, key_of(outer, frame), &at))) {
			outer = (uint32_t)at;
			continue;
		}
		at = c->all.count;
		rc = chain_vec_push(&c->all, (struct chain){ frame, outer });
		if (rc == 0 && outer)
			rc = u64map_put(&c->known, key_of(outer, frame), at);
		else if (rc == 0)
			c->of_frame[frame] = (uint32_t)at;
		outer = (uint32_t)at;
	}
	return rc;
}

int chains_build(const struct profile *p, struct chains *ret)
{
	int rc;

	*ret = (struct chains){
		.p = p, .of_frame = calloc((size_t)p->frame_count + 1, sizeof(*ret->of_frame))
	};
	rc = ret->of_frame ? chain_vec_push(&ret->all, (struct chain){ 0 }) : -ENOMEM;
	for (uint32_t i = 1; rc == 0 && i < p->node_count; i++)
		rc = add_node(ret, i);
	return rc;
}

void chains_deinit(struct chains *chains)
{
	chain_vec_deinit(&chains->all);
	u64map_deinit(&chains->known);
	free(chains->of_frame);
	*chains = (struct chains){ 0 };
}

uint32_t chains_climb(const struct chains *chains, uint32_t *node)
{
	uint32_t frames[INLINED_MAX];
	unsigned count = list_frames(chains->p, node, frames);
	uint64_t chain = chains->of_frame[frames[--count]];

	while (count-- > 0)
		(void)u64map_get(&chains->known, key_of((uint32_t)chain, frames[count]), &chain);
	return (uint32_t)chain;
}
