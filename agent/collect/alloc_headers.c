// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc_headers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "agent/base/hash.h"

#define PIECES_MAX	512u
#define PREV_INUSE	1u
#define IS_MMAPPED	2u
#define SIZE_FLAGS	7u
#define CHUNK_MIN	32u
#define CHUNK_MAX	(1ull << 40)
#define FAST_MAX	128u		/* largest chunk of a fast bin: M_MXFAST */
#define HEAP_SPAN	(64ull << 20)	/* links lead to the same heap */
#define MAPS_LINES_MAX	65536
/* struct tcache_perthread_struct: 64 counts of 16 bits, 64 heads; the first chunk of a heap. */
#define TCACHE_CHUNK	0x291u
#define TCACHE_BINS	64u
#define TCACHE_HEADS_AT (16u + TCACHE_BINS * 2)
#define KEY_VOTES	2 /* more for than against */

void alloc_headers_init(struct alloc_headers *headers, uint32_t tgid, bool glibc)
{
	*headers = (struct alloc_headers){ .tgid = tgid, .glibc = glibc };
}

void alloc_headers_deinit(struct alloc_headers *headers)
{
	u64map_deinit(&headers->words);
}

/* ---- one chunk ----------------------------------------------------------------------------------- */

uint64_t alloc_chunk_next(const struct alloc_chunk *chunk)
{
	uint64_t size = chunk->words[1] & ~(uint64_t)SIZE_FLAGS;

	if (chunk->words[1] & IS_MMAPPED || size < CHUNK_MIN || size > CHUNK_MAX)
		return 0;
	return chunk->address - 16 + size + 8;
}

static bool is_fast_link(const struct alloc_chunk *chunk)
{
	uint64_t link = chunk->words[2] ^ chunk->address >> 12, distance;

	if ((chunk->words[1] & ~(uint64_t)SIZE_FLAGS) > FAST_MAX)
		return false;
	/* What comes from a thread's cache keeps its link, and has its key cleared, until something is written to it. */
	if (!chunk->words[3])
		return false;
	if (!link)
		return true;
	distance = link > chunk->address ? link - chunk->address : chunk->address - link;
	return !(link & 15) && distance < HEAP_SPAN;
}

bool alloc_chunk_is_free(const struct alloc_chunk *chunk)
{
	uint64_t size = chunk->words[1] & ~(uint64_t)SIZE_FLAGS;

	/* The neighbour's flag changes without this one's doing. */
	if (chunk->size_before && (chunk->size_before ^ chunk->words[1]) & ~(uint64_t)PREV_INUSE)
		return true;
	if (chunk->words[1] & IS_MMAPPED)
		return false;
	if (size < CHUNK_MIN || size > CHUNK_MAX)
		return true;
	if (chunk->next_size && !(chunk->next_size & PREV_INUSE))
		return true;
	return (chunk->key && chunk->words[3] == chunk->key) || is_fast_link(chunk);
}

/* ---- reading ------------------------------------------------------------------------------------- */

/* Reads pieces of @len bytes each; @got says which. What is not there is passed over. */
static int read_pieces(uint32_t tgid, const uint64_t *from, void *to, size_t len, size_t count, bool *got)
{
	struct iovec local[PIECES_MAX], remote[PIECES_MAX];

	for (size_t i = 0; i < count; i++) {
		got[i] = false;
		local[i] = (struct iovec){ (char *)to + i * len, len };
		remote[i] = (struct iovec){ (void *)(uintptr_t)from[i], len }; /* NOLINT */
	}
	for (size_t at = 0; at < count;) {
		ssize_t bytes = process_vm_readv((pid_t)tgid, local + at, count - at, remote + at, count - at, 0);

		if (bytes < 0 && errno != EFAULT)
			return -errno;
		for (; bytes >= (ssize_t)len; bytes -= (ssize_t)len)
			got[at++] = true;
		at++; /* the one that could not be read, or the end */
	}
	return 0;
}

static int read_one(uint32_t tgid, uint64_t from, void *to, size_t len)
{
	bool got;
	int rc = read_pieces(tgid, &from, to, len, 1, &got);

	return rc < 0 ? rc : got ? 0 : -EFAULT;
}

/* ---- the key of the thread caches ------------------------------------------------------------------ */

/* Where the program's first heap begins; 0 = it has none. */
static uint64_t heap_start(uint32_t tgid)
{
	char path[40], line[512];
	uint64_t found = 0;
	FILE *maps;

	(void)snprintf(path, sizeof(path), "/proc/%u/maps", tgid);
	maps = fopen(path, "re");
	if (!maps)
		return 0;
	for (int i = 0; i < MAPS_LINES_MAX && !found && fgets(line, sizeof(line), maps); i++)
		if (strstr(line, " [heap]"))
			found = strtoull(line, NULL, 16);
	(void)fclose(maps);
	return found;
}

/* The second word of chunks in the cache, if they agree. */
static uint64_t find_key(uint32_t tgid)
{
	uint64_t start = heap_start(tgid), head[2], heads[TCACHE_BINS], key = 0;
	int votes = 0;

	if (!start || read_one(tgid, start, head, sizeof(head)) < 0 || head[1] != TCACHE_CHUNK ||
	    read_one(tgid, start + TCACHE_HEADS_AT, heads, sizeof(heads)) < 0)
		return 0;
	for (unsigned i = 0; i < TCACHE_BINS; i++) {
		uint64_t word;

		if (!heads[i] || read_one(tgid, heads[i] + 8, &word, sizeof(word)) < 0 || !word)
			continue;
		if (!votes)
			key = word;
		votes += word == key ? 1 : -1;
	}
	return votes >= KEY_VOTES ? key : 0;
}

/* ---- looking ------------------------------------------------------------------------------------- */

struct batch {
	const struct alloc_headers *headers;
	struct alloc_header *asked;
	size_t count;
	struct alloc_chunk chunks[PIECES_MAX];
	uint64_t words[PIECES_MAX][4];
	uint64_t from[PIECES_MAX];
	uint64_t next[PIECES_MAX];
	bool got[PIECES_MAX], got_next[PIECES_MAX];
};

static int read_batch(struct batch *b)
{
	uint32_t tgid = b->headers->tgid;
	int rc;

	for (size_t i = 0; i < b->count; i++)
		b->from[i] = b->asked[i].address - 16;
	rc = read_pieces(tgid, b->from, b->words, sizeof(b->words[0]), b->count, b->got);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < b->count; i++) {
		struct alloc_chunk *chunk = &b->chunks[i];
		uint64_t next;

		*chunk = (struct alloc_chunk){ .address = b->asked[i].address, .key = b->headers->key };
		memcpy(chunk->words, b->words[i], sizeof(chunk->words));
		(void)u64map_get(&b->headers->words, chunk->address, &chunk->size_before);
		next = b->got[i] && b->headers->glibc ? alloc_chunk_next(chunk) : 0;
		b->from[i] = next ? next : b->from[i];
	}
	rc = read_pieces(tgid, b->from, b->next, sizeof(b->next[0]), b->count, b->got_next);
	for (size_t i = 0; rc == 0 && i < b->count; i++)
		if (b->got_next[i] && b->got[i] && alloc_chunk_next(&b->chunks[i]))
			b->chunks[i].next_size = b->next[i];
	return rc;
}

static void judge_batch(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct alloc_chunk *chunk = &b->chunks[i];
		const bool glibc = b->headers->glibc;

		b->asked[i].size_word = 0;
		if (b->got[i] && !(glibc && alloc_chunk_is_free(chunk)))
			b->asked[i].size_word = glibc ? chunk->words[1] : 1;
		b->asked[i].content = hash_combine(chunk->words[2], chunk->words[3]);
	}
}

int alloc_headers_read(struct alloc_headers *headers, struct alloc_header *chunks, size_t count)
{
	cleanup_free struct batch *batch = malloc(sizeof(*batch));
	int rc = 0;

	if (!batch)
		return -ENOMEM;
	if (headers->glibc && !headers->key)
		headers->key = find_key(headers->tgid);
	for (size_t at = 0; at < count && rc == 0; at += batch->count) {
		batch->headers = headers;
		batch->asked = chunks + at;
		batch->count = count - at < PIECES_MAX ? count - at : PIECES_MAX;
		rc = read_batch(batch);
		if (rc == 0)
			judge_batch(batch);
	}
	return rc;
}

int alloc_headers_take(struct alloc_headers *headers, const struct alloc_header *chunks, size_t count,
		       void (*gone)(void *ctx, uint64_t address), void *ctx)
{
	int rc = 0;

	/* Words of addresses that are followed no more. */
	if (headers->words.count > 2 * count + PIECES_MAX)
		u64map_clear(&headers->words);
	for (size_t i = 0; i < count && rc == 0; i++) {
		uint64_t known;

		if (!chunks[i].size_word) {
			(void)u64map_remove(&headers->words, chunks[i].address);
			gone(ctx, chunks[i].address);
		} else if (!u64map_get(&headers->words, chunks[i].address, &known)) {
			rc = u64map_put(&headers->words, chunks[i].address, chunks[i].size_word);
		}
	}
	return rc;
}
