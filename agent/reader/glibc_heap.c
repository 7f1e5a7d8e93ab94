// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/glibc_heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/vec.h"
#include "agent/reader/glibc_arenas.h"

#define WINDOW_BYTES	(1u << 20)
#define PAGES		256u /* of lists that are followed, remembered */
#define PAGE		4096u
#define HEAPS_MAX	4096u /* of one arena, 64 MiB each */
#define HEAP_ATTEMPTS	8u
#define ATTEMPTS	64u   /* at a header that makes no sense */
#define TRAIL_MAX	128u  /* chunks that can be read again */
#define SMALL_BYTES	4096u /* read at once where the program is at work */
#define CHUNK_MIN	32u
#define HEADER		16u
#define PREV_INUSE	1u
#define CACHES_MAX	16384u /* threads */
#define CACHE_BINS	64u
#define LINKS_PER_LOOK	4096u /* at the clock */
#define FENCE_MAX	16u    /* a heap that grew elsewhere ends in chunks that are none */

/* struct tcache_perthread_struct: counts of 16 bits (2.30…2.41) or 8 bits (2.26…2.29), then first blocks. */
#define CACHE_CHUNK_16 0x290u
#define CACHE_CHUNK_8  0x250u

struct cache {
	uint16_t counts[CACHE_BINS];
	uint64_t heads[CACHE_BINS];
	uint64_t chunk_va;
	uint32_t chunk_bytes;
};
VEC_DEFINE(caches, struct cache);

struct walk {
	struct target *target;
	uint64_t deadline_ns;
	struct read_heap *sum;
	struct caches_vec caches;
	size_t caches_before; /* of the heap under way */
	uint64_t window_va;
	size_t window_len;
	size_t window_bytes; /* to be read at once */
	_Alignas(8) uint8_t window[WINDOW_BYTES];
	uint64_t page_va[PAGES]; /* 0 = none */
	uint64_t pages[PAGES][PAGE / 8];
};

/* ---- reading ----------------------------------------------------------------------------------- */

/* @len bytes at @va, NULL if they are not there; valid until the next call. */
static const void *at(struct walk *w, uint64_t va, size_t len)
{
	ssize_t got;

	if (va >= w->window_va && va - w->window_va + len <= w->window_len)
		return w->window + (va - w->window_va);
	if (clock_monotonic_ns() > w->deadline_ns) {
		w->window_len = 0;
		return NULL;
	}
	got = target_read_some(w->target, va, w->window, len > w->window_bytes ? len : w->window_bytes);
	w->window_va = va;
	w->window_len = got > 0 ? (size_t)got : 0;
	return len <= w->window_len ? w->window : NULL;
}

/* The size of the chunk at @va with its flags, 0 = cannot be read. */
static uint64_t size_at(struct walk *w, uint64_t va)
{
	const uint64_t *word = at(w, va + 8, sizeof(*word));

	return word ? *word : 0;
}

/* A word of a list, whose pieces lie all over the heap. */
static bool list_word(struct walk *w, uint64_t va, uint64_t *ret)
{
	const uint64_t page = va & ~(uint64_t)(PAGE - 1);
	const size_t slot = (page / PAGE) % PAGES;

	if (va & 7 || !page)
		return false;
	if (w->page_va[slot] != page) {
		w->page_va[slot] = 0;
		if (target_read(w->target, page, w->pages[slot], PAGE) < 0)
			return false;
		w->page_va[slot] = page;
	}
	*ret = w->pages[slot][(va & (PAGE - 1)) / 8];
	return true;
}

/* ---- lists of free chunks that look used --------------------------------------------------------- */

/* What was counted as in use is free after all. */
static void drop(struct read_heap *sum, uint64_t bytes)
{
	const uint64_t size = read_heap_size_of(bytes);

	sum->in_use_bytes -= bytes - 8;
	sum->in_use_blocks--;
	if (size < READ_HEAP_SIZES && sum->blocks_of[size])
		sum->blocks_of[size]--;
}

static bool is_block_of(struct walk *w, uint64_t block, uint64_t bytes)
{
	uint64_t size;

	return block > HEADER && !(block & 15) && list_word(w, block - 8, &size) &&
	       (size & ~(uint64_t)GLIBC_SIZE_FLAGS) == bytes;
}

/* Follows blocks of chunks of @bytes from @block on, at most @max. Their first word leads to the next one's
 * block, or to its chunk, which is @skip bytes before; from 2.32 on it is xor-ed with its own place. */
static void drop_list(struct walk *w, uint64_t block, uint64_t bytes, uint64_t skip, uint64_t max)
{
	uint64_t link;

	for (uint64_t i = 0; i < max && is_block_of(w, block, bytes) && list_word(w, block, &link); i++) {
		const uint64_t plain = link ^ block >> 12;

		/* A list that runs in circles, by the program's will or because it moved. */
		if (w->sum->in_use_blocks == 0 || w->sum->in_use_bytes < bytes - 8 ||
		    (i % LINKS_PER_LOOK == 0 && clock_monotonic_ns() > w->deadline_ns))
			return;
		drop(w->sum, bytes);
		block = (is_block_of(w, plain + skip, bytes) ? plain : link) + skip;
	}
}

static void drop_cached(struct walk *w)
{
	for (size_t i = 0; i < w->caches.count; i++) {
		const struct cache *cache = &w->caches.data[i];

		for (unsigned bin = 0; bin < CACHE_BINS; bin++)
			drop_list(w, cache->heads[bin], CHUNK_MIN + 16u * bin, 0, cache->counts[bin]);
		if (w->sum->in_use_blocks && w->sum->in_use_bytes >= cache->chunk_bytes)
			drop(w->sum, cache->chunk_bytes);
	}
}

static void drop_fast(struct walk *w, const struct glibc_arena *arena)
{
	const uint64_t max = arena->held_bytes / CHUNK_MIN;

	for (unsigned bin = 0; bin < GLIBC_FAST_BINS; bin++)
		drop_list(w, arena->fast[bin] + HEADER, CHUNK_MIN + 16u * bin, HEADER, max);
}

/* ---- chunks ------------------------------------------------------------------------------------ */

/* A block of the right size may be a thread's cache: its counts and heads agree then. */
static int look_at_cache(struct walk *w, uint64_t chunk_va, uint64_t bytes)
{
	const size_t wide = bytes == CACHE_CHUNK_16 ? 2 : 1;
	const uint8_t *block = at(w, chunk_va + HEADER, CACHE_BINS * (wide + 8));
	struct cache cache = { .chunk_va = chunk_va, .chunk_bytes = (uint32_t)bytes };
	bool holds = false;

	if (!block || w->caches.count >= CACHES_MAX)
		return 0;
	memcpy(cache.heads, block + CACHE_BINS * wide, sizeof(cache.heads));
	for (unsigned i = 0; i < CACHE_BINS; i++) {
		if (wide == 2)
			memcpy(&cache.counts[i], block + 2 * i, 2);
		else
			cache.counts[i] = block[i];
		if (!cache.counts[i] != !cache.heads[i] || cache.heads[i] & 15)
			return 0;
		holds |= cache.counts[i];
	}
	return holds ? caches_vec_push(&w->caches, cache) : 0;
}

/* Chunks behind, latest last, so that the walk can go back a few and read them again. */
struct trail {
	uint64_t va[TRAIL_MAX];
	bool used[TRAIL_MAX]; /* they counted */
	unsigned count;
};

static void count_chunk(struct read_heap *sum, uint64_t bytes, bool used, bool adds)
{
	const uint64_t sign = adds ? 1 : UINT64_MAX, size = read_heap_size_of(bytes);

	sum->walked_bytes += sign * bytes;
	sum->in_use_bytes += used ? sign * (bytes - 8) : 0;
	sum->in_use_blocks += used ? sign : 0;
	if (used && size < READ_HEAP_SIZES)
		sum->blocks_of[size] += (uint32_t)sign;
}

static void step_on(struct trail *trail, uint64_t va, bool used)
{
	if (trail->count == TRAIL_MAX) {
		trail->count /= 2;
		memmove(trail->va, trail->va + trail->count, trail->count * sizeof(*trail->va));
		memmove(trail->used, trail->used + trail->count, trail->count * sizeof(*trail->used));
	}
	trail->va[trail->count] = va;
	trail->used[trail->count++] = used;
}

/* Goes back @steps chunks from @va; what they were is taken back. */
static uint64_t step_back(struct walk *w, struct trail *trail, uint64_t va, unsigned steps, struct read_heap *sum)
{
	for (; steps && trail->count; steps--) {
		trail->count--;
		count_chunk(sum, va - trail->va[trail->count], trail->used[trail->count], false);
		va = trail->va[trail->count];
	}
	while (w->caches.count > w->caches_before && w->caches.data[w->caches.count - 1].chunk_va >= va)
		w->caches.count--;
	return va;
}

/* The chunks of [@va, @end_va), whose end is said at @top_at (0 = it stays). Where a header makes no sense it is half
 * written, or what was read is older than what the program has done since: the last ones are
 * read again, in pieces so small that little happens while they are read. -EIO. */
static int walk_chunks(struct walk *w, uint64_t va, uint64_t end_va, uint64_t top_at, struct read_heap *sum)
{
	uint64_t size = size_at(w, va), next, trouble_va = 0;
	struct trail trail = { .count = 0 };
	unsigned attempts = 0;
	int rc = 0;

	while (va < end_va && rc == 0) {
		uint64_t bytes = size & ~(uint64_t)GLIBC_SIZE_FLAGS;

		if (bytes <= FENCE_MAX && end_va - va <= 2 * CHUNK_MIN + FENCE_MAX)
			return 0;
		if (bytes < CHUNK_MIN || bytes & 15 || bytes > end_va - va) {
			/* The top takes in what was freed before it. */
			if (top_at && target_read(w->target, top_at, &end_va, sizeof(end_va)) < 0)
				return -EFAULT;
			if (va >= end_va)
				return 0;
			attempts = va > trouble_va ? 0 : attempts + 1;
			trouble_va = va > trouble_va ? va : trouble_va;
			if (attempts > ATTEMPTS)
				return -EIO;
			va = step_back(w, &trail, va, 1u << attempts % 6, sum);
			w->window_len = 0;
			w->window_bytes = SMALL_BYTES;
			size = size_at(w, va);
			continue;
		}
		next = size_at(w, va + bytes);
		count_chunk(sum, bytes, next & PREV_INUSE, true);
		if (next & PREV_INUSE && (bytes == CACHE_CHUNK_16 || bytes == CACHE_CHUNK_8))
			rc = look_at_cache(w, va, bytes);
		step_on(&trail, va, next & PREV_INUSE);
		va += bytes;
		size = next;
		if (va > trouble_va + WINDOW_BYTES)
			w->window_bytes = WINDOW_BYTES;
	}
	return rc;
}

static int walk_heap(struct walk *w, uint64_t va, uint64_t end_va, uint64_t top_at)
{
	for (unsigned attempt = 0; attempt < HEAP_ATTEMPTS; attempt++) {
		struct read_heap sum = { 0 };
		int rc;

		if (clock_monotonic_ns() > w->deadline_ns)
			return -ETIMEDOUT;
		w->window_len = 0;
		w->window_bytes = attempt ? SMALL_BYTES : WINDOW_BYTES;
		w->caches_before = w->caches.count;
		rc = walk_chunks(w, va, end_va, top_at, &sum);
		if (rc == 0) {
			w->sum->in_use_bytes += sum.in_use_bytes;
			w->sum->in_use_blocks += sum.in_use_blocks;
			w->sum->walked_bytes += sum.walked_bytes;
			for (unsigned i = 0; i < READ_HEAP_SIZES; i++)
				w->sum->blocks_of[i] += sum.blocks_of[i];
			return 0;
		}
		w->caches.count = w->caches_before;
		if (rc != -EIO)
			return rc;
	}
	return -EIO;
}

/* Heaps of an arena that is not the main one: the newest has the top, each knows the one before. */
static int walk_heaps(struct walk *w, const struct glibc_arena *arena)
{
	const uint64_t first_va = arena->state_va & ~(GLIBC_HEAP_SPAN - 1);
	uint64_t heap_va = arena->top_va & ~(GLIBC_HEAP_SPAN - 1), end_va = arena->top_va;
	uint64_t info[3]; /* struct heap_info: arena, the one before, size */
	int rc = 0;

	for (unsigned i = 0; i < HEAPS_MAX && rc == 0; i++) {
		uint64_t start_va = heap_va == first_va ? arena->chunks_va
							: heap_va + (arena->state_va - first_va);

		rc = target_read(w->target, heap_va, info, sizeof(info));
		if (rc < 0 || info[0] != arena->state_va || info[2] > GLIBC_HEAP_SPAN)
			return rc < 0 ? rc : -EIO;
		if (end_va != arena->top_va)
			end_va = heap_va + info[2];
		rc = walk_heap(w, start_va, end_va, end_va == arena->top_va ? arena->top_at : 0);
		if (heap_va == first_va)
			return rc;
		heap_va = info[1] & ~(GLIBC_HEAP_SPAN - 1);
		end_va = 0;
	}
	return rc < 0 ? rc : -EIO;
}

static int walk_all(struct walk *w, const struct glibc_arenas *arenas)
{
	int rc = 0;

	for (unsigned i = 0; i < arenas->count && rc == 0; i++) {
		const struct glibc_arena *arena = &arenas->list[i];

		if (!arena->top_va)
			continue;
		rc = i ? walk_heaps(w, arena)
		       : walk_heap(w, arena->chunks_va, arena->top_va, arena->top_at);
	}
	for (unsigned i = 0; i < arenas->count && rc == 0; i++)
		drop_fast(w, &arenas->list[i]);
	if (rc == 0)
		drop_cached(w);
	return rc;
}

static int explain(int rc, struct err *err)
{
	switch (rc) {
	case -EOPNOTSUPP:
		return err_set(err, EOPNOTSUPP, NULL, NULL, "no heap of glibc (2.26 or newer) was found in it");
	case -EFBIG:
		return err_set(err, EFBIG, NULL, NULL, "its heap is larger than %llu GiB",
			       (unsigned long long)(GLIBC_HEAP_BYTES_MAX >> 30));
	case -EIO:
	case -EFAULT:
		return err_set(err, EIO, NULL, NULL, "its heap changes too fast to be walked, or lies in several pieces");
	default:
		return rc;
	}
}

int glibc_heap_walk(struct target *target, const struct target_maps *maps, uint64_t deadline_ns,
		    struct read_heap *ret, struct err *err)
{
	cleanup_free struct glibc_arenas *arenas = calloc(1, sizeof(*arenas));
	cleanup_free struct walk *w = calloc(1, sizeof(*w));
	struct read_heap sum = { 0 };
	int rc;

	if (!arenas || !w)
		return -ENOMEM;
	rc = glibc_arenas_find(target, maps, arenas);
	for (unsigned i = 0; rc == 0 && i < arenas->count; i++)
		sum.held_bytes += arenas->list[i].held_bytes;
	if (rc == 0 && sum.held_bytes > GLIBC_HEAP_BYTES_MAX)
		rc = -EFBIG;
	if (rc < 0)
		return explain(rc, err);
	w->target = target;
	w->deadline_ns = deadline_ns;
	w->sum = &sum;
	rc = walk_all(w, arenas);
	caches_vec_deinit(&w->caches);
	if (rc < 0)
		return explain(rc, err);
	sum.arenas = arenas->count;
	sum.mapped_known = arenas->has_mapped;
	sum.mapped_blocks = arenas->mapped_blocks;
	sum.mapped_bytes = arenas->mapped_bytes - HEADER * arenas->mapped_blocks;
	*ret = sum;
	return 0;
}
