/* SPDX-License-Identifier: Apache-2.0 */
/* Followed addresses that glibc's own headers show to be free: looked at before each window, so that a death
 * that nobody saw ends the observation and is not mistaken for a long life. A chunk is free if its size word
 * changed, if the next chunk says so (PREV_INUSE), if it carries the key of the thread caches (2.34 and newer)
 * or a fast bin's mangled link, or if it cannot be read. What the headers do not show stays followed. Reads the
 * target's memory, writes nothing. Sources: glibc malloc/malloc.c, struct malloc_chunk, tcache_entry,
 * PROTECT_PTR. */
#ifndef PROFD_COLLECT_ALLOC_HEADERS_H
#define PROFD_COLLECT_ALLOC_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"

struct alloc_headers {
	uint32_t tgid;
	uint64_t key;	     /* that marks chunks in thread caches, 0 = not known */
	struct u64map words; /* address -> its size word when first seen */
};

void alloc_headers_init(struct alloc_headers *headers, uint32_t tgid);
void alloc_headers_deinit(struct alloc_headers *headers);
/* Calls @gone for each of @count addresses that is free by now. -ESRCH, -EPERM, -ENOMEM. */
int alloc_headers_look(struct alloc_headers *headers, const uint64_t *addresses, size_t count,
		       void (*gone)(void *ctx, uint64_t address), void *ctx) must_use;

/* One chunk as read: @words are the two before and the two behind the address (prev_size, size, first, second). Pure. */
struct alloc_chunk {
	uint64_t address;
	uint64_t words[4];
	uint64_t size_before; /* the size word when it was first seen, 0 = now */
	uint64_t next_size;   /* of the chunk behind it, 0 = not read */
	uint64_t key;
};
bool alloc_chunk_is_free(const struct alloc_chunk *chunk);
/* Where the next chunk's size word is; 0 = the size makes no sense, or it is mapped by itself. */
uint64_t alloc_chunk_next(const struct alloc_chunk *chunk);

#endif
