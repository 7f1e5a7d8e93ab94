/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the arenas of glibc's malloc in a running program without symbols, by the targets of the
 * words of its main arena. In every release from 2.23 on, struct malloc_state (malloc/malloc.c) is:
 * ten heads of fast bins, top, last_remainder, 127 pairs of bin heads, the bin map, the ring of
 * arenas, and the bytes held now and at most. Both heads of an empty bin are the address of the
 * pair before it. The part before the fast bins grew by 8 bytes in 2.27. */
#ifndef PROFD_READER_GLIBC_ARENAS_H
#define PROFD_READER_GLIBC_ARENAS_H

#include "agent/base/cleanup.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/target_memory.h"

#define GLIBC_ARENAS_MAX 1024u /* of a process; glibc makes at most 8 per CPU by itself */
#define GLIBC_FAST_BINS	 10u
#define GLIBC_HEAP_SPAN	 (64ull << 20) /* heaps of other arenas are aligned to it: HEAP_MAX_SIZE */
#define GLIBC_SIZE_FLAGS 7u		/* of the word in front of a block: the rest is the chunk's size */

struct glibc_arena {
	uint64_t state_va; /* struct malloc_state */
	uint64_t chunks_va; /* where the first chunk of its first heap is */
	uint64_t top_va;   /* the chunk that is not handed out yet; 0 = nothing was ever asked for */
	uint64_t top_at;   /* where that is said */
	uint64_t held_bytes; /* from the kernel */
	uint64_t fast_at; /* where GLIBC_FAST_BINS lists begin, of free chunks that look used; 0 =
			     an empty one */
};

struct glibc_arenas {
	struct glibc_arena list[GLIBC_ARENAS_MAX]; /* the main arena first */
	unsigned count;
	bool has_mapped; /* what follows is known */
	uint64_t mapped_bytes; /* chunks with a mapping of their own (128 KB and more), headers included */
	uint64_t mapped_blocks;
};

/* -EOPNOTSUPP: none that is understood; -ESRCH, -EPERM, -ENOMEM. */
int glibc_arenas_find(struct target *target, const struct target_maps *maps,
		      struct glibc_arenas *ret) must_use;

#endif
