/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of glibc that have a mapping of their own (128 KB and more): which stack asked for each, from the
 * first touch of its header (bpf/alloc.bpf.c, alloc_fault), and whether it is still there and how large, from
 * the header itself. Exact, not sampled. Reads the target's memory, writes nothing. Source: glibc
 * malloc/malloc.c, sysmalloc_mmap(), IS_MMAPPED. */
#ifndef PROFD_COLLECT_ALLOC_LARGE_H
#define PROFD_COLLECT_ALLOC_LARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/vec.h"

#define ALLOC_LARGE_MAX	  8192u /* of a process: a GiB at least */
#define ALLOC_LARGE_BYTES (128u << 10)

struct alloc_large_block {
	uint64_t chunk_va; /* its header, at the beginning of the mapping */
	uint64_t ip;	   /* of the instruction that touched it */
	uint64_t stack;
	uint64_t time_ns;
	uint64_t bytes; /* that it can hold, as last read; 0 = not read yet */
};
VEC_DEFINE(alloc_large_blocks, struct alloc_large_block);

struct alloc_large {
	uint64_t header_ip; /* which instruction writes headers; 0 = not known yet */
	struct alloc_large_blocks_vec blocks;
};

void alloc_large_deinit(struct alloc_large *large);
/* The header at @block->chunk_va was touched. -ENOSPC, -ENOMEM. */
int alloc_large_saw(struct alloc_large *large, const struct alloc_large_block *block) must_use;
/* Reads the headers of @blocks in process @tgid into their bytes, 0 = it is no such block any more. May wait for
 * whoever provides the pages, for ever: alloc_look.h. */
void alloc_large_read(uint32_t tgid, struct alloc_large_block *blocks, size_t count);
/* Takes over what was read of the first @count blocks, which may have become others meanwhile, and drops those that
 * are none. */
void alloc_large_take(struct alloc_large *large, const struct alloc_large_block *read, size_t count);

/* Would a block of @bytes at @address be one of these? */
static inline bool alloc_large_is(uint64_t address, uint64_t bytes)
{
	return bytes >= ALLOC_LARGE_BYTES && (address & 4095) == 16;
}

#endif
