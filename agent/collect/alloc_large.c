// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc_large.h"

#include <errno.h>
#include <sys/uio.h>

#define HEADER	   16u
#define SIZE_FLAGS 7u
#define IS_MMAPPED 2u
#define PAGE	   4096u
#define BYTES_MAX  (1ull << 46)

void alloc_large_deinit(struct alloc_large *large)
{
	alloc_large_blocks_vec_deinit(&large->blocks);
}

/* What the block can hold; 0 = it is none. */
static uint64_t bytes_of(const uint64_t header[2])
{
	const uint64_t bytes = header[1] & ~(uint64_t)SIZE_FLAGS;

	/* What lies before the block is 0 unless it was aligned to more than a page. */
	if ((header[1] & SIZE_FLAGS) != IS_MMAPPED || header[0] || bytes % PAGE || bytes < ALLOC_LARGE_BYTES ||
	    bytes > BYTES_MAX)
		return 0;
	return bytes - HEADER;
}

void alloc_large_read(uint32_t tgid, struct alloc_large_block *blocks, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t header[2] = { 0 };
		struct iovec local = { header, HEADER };
		struct iovec remote = { (void *)(uintptr_t)blocks[i].chunk_va, HEADER }; /* NOLINT */

		blocks[i].bytes = 0;
		if (process_vm_readv((pid_t)tgid, &local, 1, &remote, 1, 0) == HEADER)
			blocks[i].bytes = bytes_of(header);
	}
}

void alloc_large_take(struct alloc_large *large, const struct alloc_large_block *read, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < large->blocks.count; i++) {
		struct alloc_large_block block = large->blocks.data[i];

		if (i < count && block.time_ns == read[i].time_ns)
			block.bytes = read[i].bytes;
		if (block.bytes)
			large->header_ip = block.ip;
		if (i >= count || block.time_ns != read[i].time_ns || block.bytes)
			large->blocks.data[kept++] = block;
	}
	large->blocks.count = kept;
}

int alloc_large_saw(struct alloc_large *large, const struct alloc_large_block *block)
{
	/* A mapping at the place of one that is gone. */
	for (size_t i = large->blocks.count; i-- > 0;) {
		if (large->blocks.data[i].chunk_va != block->chunk_va)
			continue;
		large->blocks.data[i] = *block;
		return 0;
	}
	if (large->blocks.count >= ALLOC_LARGE_MAX)
		return -ENOSPC;
	return alloc_large_blocks_vec_push(&large->blocks, *block);
}
