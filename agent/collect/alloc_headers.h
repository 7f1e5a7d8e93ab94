/* SPDX-License-Identifier: Apache-2.0 */
/* What can be seen of followed addresses without probes, looked at before each window: whether what is in them
 * changes, and those that glibc's own headers show to be free, so that a death
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
	bool glibc;	     /* whose headers are known; of other allocators only what is mapped no more is free */
	uint64_t key;	     /* that marks chunks in thread caches, 0 = not known */
	struct u64map words; /* address -> its size word when first seen */
};

/* A followed address, the size word of its chunk (0 = it is free by now), and a hash of the first words in it. */
struct alloc_header {
	uint64_t address;
	uint64_t size_word;
	uint64_t content;
};

void alloc_headers_init(struct alloc_headers *headers, uint32_t tgid, bool glibc);
void alloc_headers_deinit(struct alloc_headers *headers);
/* Reads the size words of @chunks by what is known of them, and learns the key. May wait for whoever provides the
 * pages, for ever: alloc_look.h. -ESRCH, -EPERM, -ENOMEM. */
int alloc_headers_read(struct alloc_headers *headers, struct alloc_header *chunks, size_t count) must_use;
/* Remembers what was read of all addresses that are followed, and calls @gone for each that is free. -ENOMEM. */
int alloc_headers_take(struct alloc_headers *headers, const struct alloc_header *chunks, size_t count,
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
