// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_headers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "agent/base/hash.h"

#define PIECES_MAX	512u
#define HEADER_BYTES	16u /* before the address: the size of the chunk before, its own */
#define PREV_INUSE	1u
#define IS_MMAPPED	2u
#define SIZE_FLAGS	7u
#define OTHER_ARENA	4u /* NON_MAIN_ARENA */
#define CHUNK_MIN	32u
#define REST_MAX	(15u + CHUNK_MIN) /* by rounding, and what is too small for a chunk of its own */
#define CHUNK_MAX	(1ull << 40)
#define FAST_MAX	128u		/* largest chunk of a fast bin: M_MXFAST */
#define HEAP_SPAN	(64ull << 20)	/* HEAP_MAX_SIZE: links lead to the same heap */
#define MAPS_LINES_MAX	65536
/* struct tcache_perthread_struct: 64 counts of 16 bits, 64 heads; the first chunk of a heap. */
#define TCACHE_CHUNK	0x291u
#define TCACHE_BINS	64u
#define TCACHE_HEADS_AT (16u + TCACHE_BINS * 2)
#define KEY_VOTES	2 /* more for than against */
#define KEY_CHUNKS_MAX	32u
/* The heap of a thread's arena begins with struct heap_info, then the arena, then the thread's
 * cache. */
#define ARENA_AT_MAX	64u
#define ARENA_BYTES	4096u
#define VOTES_MIN	4u /* of places before a chunk, that it is none */
#define VOTES_FACTOR	3u

/* ---- one chunk ------------------------------------------------------------------------------- */

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
	/* A chunk from a thread's cache keeps its link, with a cleared key, until something is
	 * written to it. */
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

	if (size < CHUNK_MIN || size > CHUNK_MAX || size < chunk->bytes + sizeof(size))
		return true;
	if (chunk->words[1] & IS_MMAPPED)
		return false;
	if (size > chunk->bytes + sizeof(size) + REST_MAX)
		return true;
	if (chunk->next_size && !(chunk->next_size & PREV_INUSE))
		return true;
	return (chunk->key && chunk->words[3] == chunk->key) || is_fast_link(chunk);
}

/* ---- the chunks around ----------------------------------------------------------------------- */

enum way { WAY_LOST, WAY_HERE, WAY_OVER };

/* Whether it can be the size word of a chunk of the same arena as @own; free ones do not say that
 * they are another's. */
static bool is_size(uint64_t word, uint64_t own)
{
	const uint64_t size = word & ~(uint64_t)SIZE_FLAGS;

	return size >= CHUNK_MIN && size % 16 == 0 && !(word & IS_MMAPPED) && !(word & ~own & OTHER_ARENA);
}

/* Whether the chunk at @begin, which ends at @end, has one behind it that knows of it. */
static bool is_followed(const uint64_t *words, size_t count, size_t begin, size_t end, uint64_t own)
{
	if (end + 2 > count || !is_size(words[end + 1], own))
		return false;
	return words[end + 1] & PREV_INUSE || words[end] == (words[begin + 1] & ~(uint64_t)SIZE_FLAGS);
}

bool alloc_chunk_is_inside(const uint64_t *words, size_t count, size_t at)
{
	enum way ways[ALLOC_AROUND_BYTES / 16 + 1]; /* where one gets to from each place before it */
	unsigned votes[WAY_OVER + 1] = { 0 };
	const uint64_t own = words[at - 1];

	for (size_t place = at / 2 - 1; place-- > 0;) {
		const size_t begin = place * 2, size = (words[begin + 1] & ~(uint64_t)SIZE_FLAGS) / 8;
		enum way way = WAY_LOST;

		if (!is_size(words[begin + 1], own) || size > count)
			way = WAY_LOST;
		else if (begin + size < at - 2)
			way = ways[(begin + size) / 2];
		else if (begin + size == at - 2)
			way = WAY_HERE;
		else if (is_followed(words, count, begin, begin + size, own))
			way = WAY_OVER;
		ways[place] = way;
		votes[way]++;
	}
	return votes[WAY_OVER] >= VOTES_MIN && votes[WAY_OVER] > VOTES_FACTOR * votes[WAY_HERE];
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads pieces of @len bytes each; @got says which. What is not there is passed over. */
static int read_pieces(uint32_t tgid, const uint64_t *from, void *to, size_t len, size_t count,
		       bool *got)
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

/* ---- the key of the thread caches ------------------------------------------------------------ */

/* The address of the program's first heap; 0 = it has none. */
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

/* The address, in another arena's heap, of the cache of the thread that the arena was made for; 0
 * = none. */
static uint64_t cache_of_arena(uint32_t tgid, uint64_t heap_va)
{
	uint64_t words[ARENA_BYTES / 8];

	if (read_one(tgid, heap_va, words, sizeof(words)) < 0 || words[0] - heap_va > ARENA_AT_MAX)
		return 0; /* heap_info.ar_ptr: the arena lies in its first heap */
	for (size_t i = 1; i < ARRAY_SIZE(words); i += 2)
		if (words[i] == (TCACHE_CHUNK | OTHER_ARENA))
			return heap_va + (i - 1) * 8;
	return 0;
}

struct ballot {
	uint64_t key;
	int votes; /* for it, less those for others */
};

/* The second words of chunks in a cache are the key. */
static void vote(uint32_t tgid, uint64_t cache_va, struct ballot *ballot)
{
	uint64_t head[2], heads[TCACHE_BINS], word;

	if (!cache_va || read_one(tgid, cache_va, head, sizeof(head)) < 0 ||
	    (head[1] & ~(uint64_t)OTHER_ARENA) != TCACHE_CHUNK ||
	    read_one(tgid, cache_va + TCACHE_HEADS_AT, heads, sizeof(heads)) < 0)
		return;
	for (unsigned i = 0; i < TCACHE_BINS; i++) {
		if (!heads[i] || read_one(tgid, heads[i] + 8, &word, sizeof(word)) < 0 || !word)
			continue;
		if (!ballot->votes)
			ballot->key = word;
		ballot->votes += word == ballot->key ? 1 : -1;
	}
}

/* The key, if the caches of the main thread and of those that own the heaps of @chunks agree; 0 =
 * not known. */
static uint64_t find_key(uint32_t tgid, const struct alloc_header *chunks, size_t count)
{
	struct ballot ballot = { 0 };
	uint64_t heap_va = 0;

	vote(tgid, heap_start(tgid), &ballot);
	for (size_t i = 0; i < count && i < KEY_CHUNKS_MAX && ballot.votes < KEY_VOTES; i++) {
		if (chunks[i].address - heap_va < HEAP_SPAN)
			continue;
		heap_va = chunks[i].address & ~(HEAP_SPAN - 1);
		vote(tgid, cache_of_arena(tgid, heap_va), &ballot);
	}
	return ballot.votes >= KEY_VOTES ? ballot.key : 0;
}

/* ---- looking --------------------------------------------------------------------------------- */

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

		*chunk = (struct alloc_chunk){
			.address = b->asked[i].address, .bytes = b->asked[i].bytes, .key = b->headers->key
		};
		memcpy(chunk->words, b->words[i], sizeof(chunk->words));
		next = b->got[i] && b->headers->glibc ? alloc_chunk_next(chunk) : 0;
		b->from[i] = next ? next : b->from[i];
	}
	rc = read_pieces(tgid, b->from, b->next, sizeof(b->next[0]), b->count, b->got_next);
	for (size_t i = 0; rc == 0 && i < b->count; i++)
		if (b->got_next[i] && b->got[i] && alloc_chunk_next(&b->chunks[i]))
			b->chunks[i].next_size = b->next[i];
	return rc;
}

static bool is_inside(uint32_t tgid, uint64_t address)
{
	uint64_t words[(2 * ALLOC_AROUND_BYTES + HEADER_BYTES) / 8];
	const size_t before = ALLOC_AROUND_BYTES + HEADER_BYTES;
	const struct iovec local[] = { { words, before }, { (char *)words + before, ALLOC_AROUND_BYTES } };
	const struct iovec remote[] = { { (void *)(uintptr_t)(address - before), before }, /* NOLINT */
					{ (void *)(uintptr_t)address, ALLOC_AROUND_BYTES } }; /* NOLINT */
	const ssize_t bytes = process_vm_readv((pid_t)tgid, local, 2, remote, 2, 0);

	return bytes > (ssize_t)before && alloc_chunk_is_inside(words, (size_t)bytes / 8, before / 8);
}

static void judge_batch(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct alloc_chunk *chunk = &b->chunks[i];
		struct alloc_header *asked = &b->asked[i];

		asked->is_free = !b->got[i] || (b->headers->glibc && alloc_chunk_is_free(chunk));
		if (!asked->is_free && b->headers->glibc && asked->around && !(chunk->words[1] & IS_MMAPPED))
			asked->is_free = is_inside(b->headers->tgid, chunk->address);
		asked->content = hash_combine(chunk->words[2], chunk->words[3]);
	}
}

int alloc_headers_read(struct alloc_headers *headers, struct alloc_header *chunks, size_t count)
{
	cleanup_free struct batch *batch = malloc(sizeof(*batch));
	int rc = 0;

	if (!batch)
		return -ENOMEM;
	if (headers->glibc && !headers->key)
		headers->key = find_key(headers->tgid, chunks, count);
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
