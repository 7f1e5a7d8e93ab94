// SPDX-License-Identifier: Apache-2.0
/* The large blocks of an observed process, between the probes that tell of them and alloc_large. */
#include "agent/collect/alloc/alloc_internal.h"

#include "agent/base/log.h"

#define TOLD_MAX 1024u /* stacks of large blocks in a period */

void alloc_blocks_refill(struct alloc_watch *watch, const struct target *target)
{
	alloc_probes_refill_large(watch->probes, target->tgid, TOLD_MAX, target->large.header_ip);
}

bool alloc_blocks_are_unread(const struct target *target)
{
	const struct alloc_large *large = &target->large;

	/* Probed and moved blocks have no touch to learn from. */
	for (size_t i = 0; target->has_large && !large->header_ip && i < large->blocks.count; i++)
		if (large->blocks.data[i].ip)
			return true;
	return false;
}

void alloc_blocks_follow(struct alloc_watch *watch, struct target *target)
{
	const struct alloc_place *place = &target->place;

	if (target->has_large || !target->track || target->state == STATE_REFUSED ||
	    place->family != ALLOC_FAMILY_GLIBC)
		return;
	target->has_large = alloc_probes_watch_large(watch->probes, target->tgid, target->slot,
						     place->code_va, place->code_end_va) == 0;
	alloc_blocks_refill(watch, target);
}

void alloc_blocks_move(struct alloc_watch *watch, struct target *target)
{
	struct alloc_large_moves_vec moves = { 0 };

	if (target->has_large && alloc_probes_take_moves(watch->probes, target->slot, &moves))
		alloc_large_move(&target->large, moves.data, moves.count);
	alloc_large_moves_vec_deinit(&moves);
}

bool alloc_blocks_certain(struct target *target, const struct alloc_birth *birth)
{
	const struct alloc_large_block block = { .at_va = birth->address,
						 .stack = birth->stack,
						 .time_ns = birth->time_ns,
						 .bytes = birth->bytes,
						 .probed = true };

	return birth->bytes >= ALLOC_LARGE_BYTES && birth->address &&
	       alloc_large_saw(&target->large, &block) == 0;
}

static void adopt(void *ctx, const struct alloc_large_block *block)
{
	const struct target *target = ctx;
	const struct alloc_birth birth = { .stack = block->stack,
					   .time_ns = block->time_ns,
					   .bytes = block->bytes,
					   .address = block->at_va };

	if (alloc_heap_adopt(target->heap, &birth) < 0)
		log_debug("process %u: too many places allocate", target->tgid);
}

void alloc_blocks_hand_over(struct target *target, const struct alloc_period *seen)
{
	if (!target->certain || (target->pace.full && !seen->lost))
		return;
	alloc_large_hand_over(&target->large, adopt, target);
	target->certain = target->pace.full;
}
