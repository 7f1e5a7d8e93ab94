/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at followed addresses without probes, before each window: whether their contents change,
 * and whether glibc's headers show them to be free. A death that no probe saw then ends the
 * observation and is not mistaken for a long-lived block.
 *
 * A chunk is free if its size is not the one that was asked for (another chunk was made at its
 * place), if the next chunk says so (PREV_INUSE), if it carries the key of the thread caches (2.34
 * and newer) or a fast bin's mangled link, or if it cannot be read. None of these show a chunk
 * that was joined with the one before it and handed out as part of another: its old header stays
 * until somebody writes there. The chunks around it tell (alloc_chunk_is_inside()). An address
 * whose headers show nothing stays followed.
 *
 * Reads the target's memory, writes nothing. Sources: glibc malloc/malloc.c, struct malloc_chunk,
 * tcache_entry, PROTECT_PTR. */
#ifndef PROFD_COLLECT_ALLOC_HEADERS_H
#define PROFD_COLLECT_ALLOC_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

struct alloc_headers {
	uint32_t tgid;
	bool glibc; /* whose headers are known; of other allocators only what is mapped no more is
		       free */
	uint64_t key;	     /* that marks chunks in thread caches, 0 = not known */
};

/* A followed address. */
struct alloc_header {
	uint64_t address;
	uint64_t bytes; /* that were asked for */
	bool around;	/* the chunks around it are to be looked at, too: some 5 us */
	/* Results. */
	bool is_free;
	uint64_t content; /* a hash of the first words in it */
};

/* Reads the headers of @chunks, and learns the key. May wait for whoever provides the pages, for
 * ever: alloc_look.h. -ESRCH, -EPERM, -ENOMEM. */
int alloc_headers_read(struct alloc_headers *headers, struct alloc_header *chunks, size_t count)
	must_use;

/* One chunk as read: @words are the two before and the two behind the address (prev_size, size,
 * first, second). Pure. */
struct alloc_chunk {
	uint64_t address;
	uint64_t words[4];
	uint64_t bytes;	      /* that were asked for */
	uint64_t next_size;   /* of the chunk behind it, 0 = not read */
	uint64_t key;
};
bool alloc_chunk_is_free(const struct alloc_chunk *chunk);

/* Memory that is read before and behind an address. */
#define ALLOC_AROUND_BYTES 8192u
/* Whether there is no chunk at words[@at], its two first words, but one that begins before it and
 * ends behind it. @words:
 * @count of them, from an address that is a multiple of 16 on. Whoever goes from chunk to chunk, no
 * matter where he began, comes to the chunks that are there: most of those that began before
 * decide. False where too few come so far. Pure. */
bool alloc_chunk_is_inside(const uint64_t *words, size_t count, size_t at);
/* The address of the next chunk's size word; 0 = the size makes no sense, or the chunk is mapped
 * by itself. */
uint64_t alloc_chunk_next(const struct alloc_chunk *chunk);

#endif
