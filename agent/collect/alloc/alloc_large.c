// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_large.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

#define HEADER	   16u
#define SIZE_FLAGS 7u
#define IS_MMAPPED 2u
#define PAGE	   4096u
#define BYTES_MAX  (1ull << 46)
#define WRITTEN_NS NS_PER_S

void alloc_large_deinit(struct alloc_large *large)
{
	alloc_large_blocks_vec_deinit(&large->blocks);
	u64map_deinit(&large->at);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* The bytes that the block can hold; 0 = it is no block. */
static uint64_t bytes_of(uint32_t tgid, uint64_t va)
{
	uint64_t header[2], bytes;
	struct iovec local = { header, HEADER };
	struct iovec remote = { (void *)(uintptr_t)va, HEADER }; /* NOLINT */

	if (process_vm_readv((pid_t)tgid, &local, 1, &remote, 1, 0) != HEADER)
		return 0;
	bytes = header[1] & ~(uint64_t)SIZE_FLAGS;
	/* The word before the block is 0 unless the block was aligned to more than a page. */
	if ((header[1] & SIZE_FLAGS) != IS_MMAPPED || header[0] || bytes % PAGE ||
	    bytes < ALLOC_LARGE_BYTES || bytes > BYTES_MAX)
		return 0;
	return bytes - HEADER;
}

void alloc_large_read(uint32_t tgid, struct alloc_large_block *blocks, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!blocks[i].probed)
			blocks[i].bytes = bytes_of(tgid, blocks[i].at_va);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Block @i is gone; another may have come to its place. */
static void drop(struct alloc_large *large, size_t i)
{
	const size_t last = --large->blocks.count;
	uint64_t at;

	if (u64map_get(&large->at, large->blocks.data[i].at_va, &at) && at == i)
		(void)u64map_remove(&large->at, large->blocks.data[i].at_va);
	if (i == last)
		return;
	large->blocks.data[i] = large->blocks.data[last];
	if (u64map_get(&large->at, large->blocks.data[i].at_va, &at) && at == last)
		(void)!u64map_put(&large->at, large->blocks.data[i].at_va, i);
}

int alloc_large_saw(struct alloc_large *large, const struct alloc_large_block *block)
{
	uint64_t at;
	int rc;

	/* At the place of one that is gone. */
	if (u64map_get(&large->at, block->at_va, &at)) {
		large->blocks.data[at] = *block;
		return 0;
	}
	if (large->blocks.count >= ALLOC_LARGE_MAX)
		return -ENOSPC;
	rc = u64map_put(&large->at, block->at_va, large->blocks.count);
	if (rc < 0)
		return rc;
	rc = alloc_large_blocks_vec_push(&large->blocks, *block);
	if (rc < 0)
		(void)u64map_remove(&large->at, block->at_va);
	return rc;
}

bool alloc_large_ended(struct alloc_large *large, uint64_t address)
{
	uint64_t at;

	if (!u64map_get(&large->at, address, &at) || !large->blocks.data[at].probed)
		return false;
	drop(large, at);
	return true;
}

void alloc_large_hand_over(struct alloc_large *large,
			   void (*taken)(void *ctx, const struct alloc_large_block *block), void *ctx)
{
	for (size_t i = large->blocks.count; i-- > 0;) {
		const struct alloc_large_block block = large->blocks.data[i];

		if (!block.probed)
			continue;
		drop(large, i);
		taken(ctx, &block);
	}
}

void alloc_large_take(struct alloc_large *large, const struct alloc_large_block *read, size_t count,
		      uint64_t read_ns)
{
	for (size_t i = 0; i < count; i++) {
		struct alloc_large_block *block;
		uint64_t at;

		if (read[i].probed || !u64map_get(&large->at, read[i].at_va, &at))
			continue;
		block = &large->blocks.data[at];
		if (block->time_ns != read[i].time_ns)
			continue;
		block->bytes = read[i].bytes;
		if (!block->bytes && block->time_ns + WRITTEN_NS <= read_ns)
			drop(large, at);
		else if (block->bytes && block->ip)
			large->header_ip = block->ip;
	}
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* The bytes that a block holds after mremap() made its mapping @bytes long: less, by the header. */
static uint64_t held_by(uint64_t bytes)
{
	bytes = (bytes + PAGE - 1) / PAGE * PAGE;
	return bytes > HEADER && bytes <= BYTES_MAX ? bytes - HEADER : 0;
}

/* Takes the block out that was moved. False: it had not been seen, and only a stack that resized it
 * says whose it is. */
static bool take_moved(struct alloc_large *large, const struct alloc_moved *moved,
		       struct alloc_large_block *ret)
{
	uint64_t at;

	if (!u64map_get(&large->at, moved->from_va, &at) || large->blocks.data[at].probed ||
	    large->blocks.data[at].time_ns > moved->first_ns)
		return false;
	*ret = large->blocks.data[at];
	drop(large, at);
	return true;
}

void alloc_large_move(struct alloc_large *large, const struct alloc_large_move *moves,
		      size_t count)
{
	cleanup_free struct alloc_large_block *blocks = calloc(count + 1, sizeof(*blocks));

	/* All leave before one arrives: a block may go where another has been. */
	for (size_t i = 0; blocks && i < count; i++) {
		const struct alloc_moved *moved = &moves[i].moved;
		const bool known = take_moved(large, moved, &blocks[i]) &&
				   (blocks[i].bytes || blocks[i].ip == large->header_ip);

		/* Else its header says whether it is a block. */
		blocks[i].bytes = known ? held_by(moved->bytes) : 0;
		blocks[i].at_va = moves[i].at_va;
		blocks[i].ip = 0;
		blocks[i].time_ns = moved->last_ns;
		if (moved->stack)
			blocks[i].stack = moved->stack;
	}
	for (size_t i = 0; blocks && i < count; i++)
		if (blocks[i].stack)
			(void)!alloc_large_saw(large, &blocks[i]);
}
