/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks of a process (128 KiB and more), one by one. They are exact, not sampled.
 *
 * glibc gives each a mapping of its own. The first touch of its header tells the stack (alloc_fault
 * of bpf/alloc_large.bpf.h). mremap() tells the stack that moved it (alloc_mremap), and the header
 * whether the block is still there and how large. Source: glibc malloc/malloc.c, sysmalloc_mmap(),
 * mremap_chunk(), IS_MMAPPED. musl does the same, but no stack can be walked out of it: its library
 * has no unwind tables.
 *
 * Blocks anywhere else are known while the probes stay open: every birth and every end is seen.
 *
 * Reads the target's memory, writes nothing. */
#ifndef PROFD_COLLECT_ALLOC_LARGE_H
#define PROFD_COLLECT_ALLOC_LARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "bpf/alloc.h"

#define ALLOC_LARGE_MAX	  8192u /* of a process: a GiB at least */
#define ALLOC_LARGE_BYTES (128u << 10)

struct alloc_large_block {
	uint64_t at_va; /* of its mapping, which begins with its header; or of a probed one itself */
	uint64_t ip;	/* of the instruction that touched it; 0 = moved here, or probed */
	uint64_t stack;
	uint64_t time_ns;
	uint64_t bytes; /* that it can hold, as last read; of a probed one, asked for; 0 = not read yet */
	bool probed; /* its end is told by the probes, not by a header */
};
VEC_DEFINE(alloc_large_blocks, struct alloc_large_block);

struct alloc_large {
	uint64_t header_ip; /* which instruction writes headers; 0 = not known yet */
	struct alloc_large_blocks_vec blocks;
	struct u64map at; /* at_va -> index of blocks */
};

/* A block that mremap() has left at @at_va. */
struct alloc_large_move {
	uint64_t at_va;
	struct alloc_moved moved;
};
VEC_DEFINE(alloc_large_moves, struct alloc_large_move);

void alloc_large_deinit(struct alloc_large *large);
/* A block is at block->at_va, where no other is any more. -ENOSPC, -ENOMEM: it is left out. */
int alloc_large_saw(struct alloc_large *large, const struct alloc_large_block *block) must_use;
/* Applies all @moves since the last call. A block that came to its place after the move began is
 * another one. */
void alloc_large_move(struct alloc_large *large, const struct alloc_large_move *moves,
		      size_t count);
/* The probes have seen the end of what was at @address: true if it was a probed block. */
bool alloc_large_ended(struct alloc_large *large, uint64_t address);
/* The probes are not open any more, so the ends of probed blocks would be missed: calls @taken for
 * each and lets go of it. */
void alloc_large_hand_over(struct alloc_large *large,
			   void (*taken)(void *ctx, const struct alloc_large_block *block), void *ctx);
/* Reads the headers of @blocks in process @tgid into their bytes, 0 = it is no such block any more;
 * those of probed ones are left alone. May wait for whoever provides the pages, for ever:
 * alloc_look.h. */
void alloc_large_read(uint32_t tgid, struct alloc_large_block *blocks, size_t count);
/* Takes over what was read of the first @count blocks, which may have become others meanwhile, and
 * drops those that are none. The reading began at @read_ns (CLOCK_MONOTONIC). A block of the second
 * before is kept without bytes: the first touch is told before the kernel has cleared the page, a
 * huge one at times, and the header is written after that. */
void alloc_large_take(struct alloc_large *large, const struct alloc_large_block *read, size_t count,
		      uint64_t read_ns);

/* Has a block of @bytes at @address a mapping of its own? */
static inline bool alloc_large_is(uint64_t address, uint64_t bytes)
{
	return bytes >= ALLOC_LARGE_BYTES && (address & 4095) == 16;
}

#endif
