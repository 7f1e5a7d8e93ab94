// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc_large.h"

#include <errno.h>
#include <sys/uio.h>

#define PIECES_MAX 512u
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

/* Reads the headers of @count blocks; those that cannot be read are 0. False: none can, it is gone. */
static bool read_headers(uint32_t tgid, const struct alloc_large_block *blocks, size_t count,
			 uint64_t (*headers)[2])
{
	struct iovec local[PIECES_MAX], remote[PIECES_MAX];
	size_t at = 0;

	for (size_t i = 0; i < count; i++) {
		headers[i][0] = headers[i][1] = 0;
		local[i] = (struct iovec){ headers[i], HEADER };
		remote[i] = (struct iovec){ (void *)(uintptr_t)blocks[i].chunk_va, HEADER }; /* NOLINT */
	}
	while (at < count) {
		ssize_t got = process_vm_readv((pid_t)tgid, local + at, count - at, remote + at, count - at, 0);

		if (got < 0 && errno != EFAULT)
			return false;
		/* The one behind those that were read could not be. */
		at += (got > 0 ? (size_t)got / HEADER : 0) + 1;
	}
	return true;
}

void alloc_large_look(struct alloc_large *large)
{
	uint64_t headers[PIECES_MAX][2];
	size_t kept = 0, count;

	for (size_t at = 0; at < large->blocks.count; at += count) {
		count = large->blocks.count - at < PIECES_MAX ? large->blocks.count - at : PIECES_MAX;
		if (!read_headers(large->tgid, large->blocks.data + at, count, headers))
			break;
		for (size_t i = 0; i < count; i++) {
			struct alloc_large_block block = large->blocks.data[at + i];

			block.bytes = bytes_of(headers[i]);
			if (block.bytes)
				large->blocks.data[kept++] = block;
		}
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
		alloc_large_look(large);
	if (large->blocks.count >= ALLOC_LARGE_MAX)
		return -ENOSPC;
	return alloc_large_blocks_vec_push(&large->blocks, *block);
}
