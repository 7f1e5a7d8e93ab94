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
#define CACHE_BINS	64u
#define CACHED_MAX	(1u << 22) /* blocks of threads' caches; those beyond it count as in use */
#define LINKS_PER_LOOK	4096u /* at the clock */
#define FENCE_MAX	16u    /* a heap that grew elsewhere ends in chunks that are none */

/* struct tcache_perthread_struct: counts of 16 bits (2.30 to 2.41) or 8 (2.26 to 2.29), then first
 * blocks. */
#define CACHE_CHUNK_16 0x290u
#define CACHE_CHUNK_8  0x250u

/* One stretch of chunks, and which of them count: a bit for 16 bytes each. */
struct heap {
	uint64_t start_va, end_va;
	uint64_t top_at; /* where its end is said, 0 = it stays */
	unsigned arena;
	uint64_t *used;	  /* counted as in use */
	uint64_t *listed; /* in a fast bin when its arena's walk began */
};
VEC_DEFINE(heaps, struct heap);

/* A chunk that was in a thread's cache when the walk met the cache, which is one of them, too. */
struct cached {
	uint64_t chunk_va, bytes;
	uint64_t cache_va;
};
VEC_DEFINE(cached, struct cached);

struct walk {
	struct target *target;
	uint64_t deadline_ns;
	struct read_heap *sum;
	struct heaps_vec heaps; /* by address */
	uint64_t heap_bytes;
	struct cached_vec cached;
	size_t cached_before; /* of the heap under way */
	uint64_t window_va;
	size_t window_len;
	size_t window_bytes; /* to be read at once */
	_Alignas(8) uint8_t window[WINDOW_BYTES];
	uint64_t page_va[PAGES]; /* 0 = none */
	uint64_t pages[PAGES][PAGE / 8];
};

/* ---- reading -----------------------------------------------------------------------------------
 */

/* @len bytes at @va, NULL if they are not there; valid until the next call. */
static const void *at(struct walk *w, uint64_t va, size_t len)
{
	ssize_t got;

	if (va >= w->window_va && va - w->window_va <= w->window_len &&
	    len <= w->window_len - (va - w->window_va))
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

/* ---- marks -------------------------------------------------------------------------------------
 */

static bool is_marked(const struct heap *heap, const uint64_t *bits, uint64_t va)
{
	const uint64_t bit = (va - heap->start_va) / 16;

	return va >= heap->start_va && va < heap->end_va && bits[bit / 64] >> bit % 64 & 1;
}

static void mark(const struct heap *heap, uint64_t *bits, uint64_t va, bool on)
{
	const uint64_t bit = (va - heap->start_va) / 16, mask = 1ull << bit % 64;

	if (va >= heap->start_va && va < heap->end_va)
		bits[bit / 64] = on ? bits[bit / 64] | mask : bits[bit / 64] & ~mask;
}

static size_t mark_bytes(const struct heap *heap)
{
	return ((heap->end_va - heap->start_va) / (16 * 64) + 1) * sizeof(*heap->used);
}

static int by_address(const void *a, const void *b)
{
	const struct heap *x = a, *y = b;

	return (x->start_va > y->start_va) - (x->start_va < y->start_va);
}

/* NULL = in none of them. */
static struct heap *heap_with(struct walk *w, uint64_t va)
{
	size_t low = 0, high = w->heaps.count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (va >= w->heaps.data[middle].end_va)
			low = middle + 1;
		else
			high = middle;
	}
	return low < w->heaps.count && va >= w->heaps.data[low].start_va ? &w->heaps.data[low] : NULL;
}

/* ---- lists of free chunks that look used ----------------------------------------------------- */

static bool is_block_of(struct walk *w, uint64_t block, uint64_t bytes)
{
	uint64_t size;

	return block > HEADER && !(block & 15) && list_word(w, block - 8, &size) &&
	       (size & ~(uint64_t)GLIBC_SIZE_FLAGS) == bytes;
}

/* Follows blocks of chunks of @bytes from @block on, at most @max. Their first word leads to the
 * next one's block, or to its chunk, which is @skip bytes before; from 2.32 on it is xor-ed with
 * its own place. @cache_va: of the cache that the list is of, 0 = a fast bin. -ENOMEM, -ETIMEDOUT.
 */
static int follow(struct walk *w, uint64_t block, uint64_t bytes, uint64_t skip, uint64_t max,
		  uint64_t cache_va)
{
	uint64_t link;

	for (uint64_t i = 0; i < max && is_block_of(w, block, bytes) && list_word(w, block, &link); i++) {
		const uint64_t plain = link ^ block >> 12, chunk_va = block - HEADER;

		if (i % LINKS_PER_LOOK == 0 && clock_monotonic_ns() > w->deadline_ns)
			return -ETIMEDOUT;
		if (cache_va) {
			const struct cached cached = { .chunk_va = chunk_va, .bytes = bytes, .cache_va = cache_va };
			const int rc = w->cached.count < CACHED_MAX ? cached_vec_push(&w->cached, cached) : 0;

			if (rc < 0)
				return rc;
		} else {
			struct heap *heap = heap_with(w, chunk_va);

			/* A list that runs in circles, by the program's will or because it moved. */
			if (!heap || is_marked(heap, heap->listed, chunk_va))
				return 0;
			mark(heap, heap->listed, chunk_va, true);
		}
		block = (is_block_of(w, plain + skip, bytes) ? plain : link) + skip;
	}
	return 0;
}

static int list_fast(struct walk *w, const struct glibc_arena *arena)
{
	uint64_t fast[GLIBC_FAST_BINS];
	int rc = target_read(w->target, arena->fast_at, fast, sizeof(fast));

	memset(w->page_va, 0, sizeof(w->page_va));
	for (unsigned bin = 0; bin < GLIBC_FAST_BINS && rc == 0; bin++)
		rc = follow(w, fast[bin] + HEADER, CHUNK_MIN + 16u * bin, HEADER, UINT64_MAX, 0);
	return rc;
}

/* Takes off blocks that were counted as in use but are free. */
static void drop_cached(struct walk *w)
{
	for (size_t i = 0; i < w->cached.count; i++) {
		const struct cached *cached = &w->cached.data[i];
		const uint64_t size = read_heap_size_of(cached->bytes);
		struct heap *heap = heap_with(w, cached->chunk_va);

		if (!heap || !is_marked(heap, heap->used, cached->chunk_va) ||
		    w->sum->in_use_bytes < cached->bytes - 8)
			continue;
		mark(heap, heap->used, cached->chunk_va, false);
		w->sum->in_use_bytes -= cached->bytes - 8;
		w->sum->in_use_blocks--;
		if (size < READ_HEAP_SIZES && w->sum->blocks_of[size])
			w->sum->blocks_of[size]--;
	}
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

struct bin {
	unsigned count;
	uint64_t head; /* first block */
};

/* @block: a cache whose counts have @wide bytes. */
static struct bin bin_of(const uint8_t *block, size_t wide, unsigned bin)
{
	struct bin ret = { 0 };

	memcpy(&ret.count, block + wide * bin, wide);
	memcpy(&ret.head, block + CACHE_BINS * wide + sizeof(ret.head) * bin, sizeof(ret.head));
	return ret;
}

/* A block of the right size may be a thread's cache: its counts and heads agree then. What it holds
 * is listed now, as the chunks around are walked now: a program at work takes and gives back
 * meanwhile, and what it took from the lists is as much, on average, as what it put there. */
static int look_at_cache(struct walk *w, uint64_t chunk_va, uint64_t bytes)
{
	const size_t wide = bytes == CACHE_CHUNK_16 ? 2 : 1, len = CACHE_BINS * (wide + 8);
	const struct cached itself = { .chunk_va = chunk_va, .bytes = bytes, .cache_va = chunk_va };
	const uint8_t *block = at(w, chunk_va + HEADER, len);
	uint8_t fresh[CACHE_BINS * (2 + 8)];
	bool holds = false;
	int rc;

	for (unsigned bin = 0; bin < CACHE_BINS && block; bin++) {
		const struct bin first = bin_of(block, wide, bin);

		if (!first.count != !first.head || first.head & 15)
			return 0;
		holds |= first.count;
	}
	if (!block || !holds || target_read(w->target, chunk_va + HEADER, fresh, len) < 0)
		return 0;
	memset(w->page_va, 0, sizeof(w->page_va));
	rc = w->cached.count < CACHED_MAX ? cached_vec_push(&w->cached, itself) : 0;
	for (unsigned i = 0; i < CACHE_BINS && rc == 0; i++) {
		const struct bin bin = bin_of(fresh, wide, i);

		rc = follow(w, bin.head, CHUNK_MIN + 16u * i, 0, bin.count, chunk_va);
	}
	return rc;
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
static uint64_t step_back(struct walk *w, const struct heap *heap, struct trail *trail, uint64_t va,
			  unsigned steps, struct read_heap *sum)
{
	for (; steps && trail->count; steps--) {
		trail->count--;
		count_chunk(sum, va - trail->va[trail->count], trail->used[trail->count], false);
		va = trail->va[trail->count];
		mark(heap, heap->used, va, false);
	}
	while (w->cached.count > w->cached_before && w->cached.data[w->cached.count - 1].cache_va >= va)
		w->cached.count--;
	return va;
}

/* Sets @ret to the present end of @heap. False if it cannot be read or is no valid end of such a
 * heap. */
static bool new_end(struct walk *w, const struct heap *heap, uint64_t *ret)
{
	uint64_t end_va;

	if (target_read(w->target, heap->top_at, &end_va, sizeof(end_va)) < 0 ||
	    end_va < heap->start_va || end_va - heap->start_va > GLIBC_HEAP_BYTES_MAX)
		return false;
	*ret = end_va;
	return true;
}

/* The chunks of @heap. Where a header makes no sense it is half
 * written, or what was read is older than what the program has done since: the last ones are
 * read again, in pieces so small that little happens while they are read. -EIO. */
static int walk_chunks(struct walk *w, const struct heap *heap, struct read_heap *sum)
{
	uint64_t va = heap->start_va, end_va = heap->end_va, size = size_at(w, va), next, trouble_va = 0;
	struct trail trail = { .count = 0 };
	unsigned attempts = 0;
	bool used;
	int rc = 0;

	while (va < end_va && rc == 0) {
		uint64_t bytes = size & ~(uint64_t)GLIBC_SIZE_FLAGS;

		if (bytes <= FENCE_MAX && end_va - va <= 2 * CHUNK_MIN + FENCE_MAX)
			return 0;
		if (bytes < CHUNK_MIN || bytes & 15 || bytes > end_va - va) {
			/* The top takes in what was freed before it. */
			if (heap->top_at && !new_end(w, heap, &end_va))
				return -EFAULT;
			if (va >= end_va)
				return 0;
			attempts = va > trouble_va ? 0 : attempts + 1;
			trouble_va = va > trouble_va ? va : trouble_va;
			if (attempts > ATTEMPTS)
				return -EIO;
			va = step_back(w, heap, &trail, va, 1u << attempts % 6, sum);
			w->window_len = 0;
			w->window_bytes = SMALL_BYTES;
			size = size_at(w, va);
			continue;
		}
		next = size_at(w, va + bytes);
		used = next & PREV_INUSE && !is_marked(heap, heap->listed, va);
		count_chunk(sum, bytes, used, true);
		if (used)
			mark(heap, heap->used, va, true);
		if (used && (bytes == CACHE_CHUNK_16 || bytes == CACHE_CHUNK_8))
			rc = look_at_cache(w, va, bytes);
		step_on(&trail, va, used);
		va += bytes;
		size = next;
		if (va > trouble_va + WINDOW_BYTES)
			w->window_bytes = WINDOW_BYTES;
	}
	return rc;
}

static int walk_heap(struct walk *w, const struct heap *heap)
{
	for (unsigned attempt = 0; attempt < HEAP_ATTEMPTS; attempt++) {
		struct read_heap sum = { 0 };
		int rc;

		if (clock_monotonic_ns() > w->deadline_ns)
			return -ETIMEDOUT;
		w->window_len = 0;
		w->window_bytes = attempt ? SMALL_BYTES : WINDOW_BYTES;
		w->cached_before = w->cached.count;
		memset(heap->used, 0, mark_bytes(heap));
		rc = walk_chunks(w, heap, &sum);
		if (rc == 0) {
			w->sum->in_use_bytes += sum.in_use_bytes;
			w->sum->in_use_blocks += sum.in_use_blocks;
			w->sum->walked_bytes += sum.walked_bytes;
			for (unsigned i = 0; i < READ_HEAP_SIZES; i++)
				w->sum->blocks_of[i] += sum.blocks_of[i];
			return 0;
		}
		w->cached.count = w->cached_before;
		if (rc != -EIO)
			return rc;
	}
	return -EIO;
}

static int add_heap(struct walk *w, struct heap heap)
{
	if (heap.end_va < heap.start_va ||
	    heap.end_va - heap.start_va > GLIBC_HEAP_BYTES_MAX - w->heap_bytes)
		return -EIO;
	w->heap_bytes += heap.end_va - heap.start_va;
	heap.used = calloc(1, mark_bytes(&heap));
	heap.listed = calloc(1, mark_bytes(&heap));
	if (!heap.used || !heap.listed || heaps_vec_push(&w->heaps, heap) < 0) {
		free(heap.used);
		free(heap.listed);
		return -ENOMEM;
	}
	return 0;
}

/* Heaps of an arena that is not the main one: the newest has the top, each knows the one before. */
static int add_heaps(struct walk *w, const struct glibc_arena *arena, unsigned number)
{
	const uint64_t first_va = arena->state_va & ~(GLIBC_HEAP_SPAN - 1);
	uint64_t heap_va = arena->top_va & ~(GLIBC_HEAP_SPAN - 1);
	uint64_t info[3]; /* struct heap_info: arena, the one before, size */
	int rc = 0;

	for (unsigned i = 0; i < HEAPS_MAX && rc == 0; i++) {
		struct heap heap = { .start_va = heap_va == first_va ? arena->chunks_va
								     : heap_va + (arena->state_va - first_va),
				     .end_va = arena->top_va,
				     .top_at = arena->top_at,
				     .arena = number };

		rc = target_read(w->target, heap_va, info, sizeof(info));
		if (rc < 0 || info[0] != arena->state_va || info[2] > GLIBC_HEAP_SPAN)
			return rc < 0 ? rc : -EIO;
		if (i > 0) {
			heap.end_va = heap_va + info[2];
			heap.top_at = 0;
		}
		rc = add_heap(w, heap);
		if (heap_va == first_va)
			return rc;
		heap_va = info[1] & ~(GLIBC_HEAP_SPAN - 1);
	}
	return rc < 0 ? rc : -EIO;
}

static int walk_all(struct walk *w, const struct glibc_arenas *arenas)
{
	unsigned listed = UINT32_MAX;
	int rc = 0;

	for (unsigned i = 0; i < arenas->count && rc == 0; i++) {
		const struct glibc_arena *arena = &arenas->list[i];
		const struct heap first = { .start_va = arena->chunks_va,
					    .end_va = arena->top_va,
					    .top_at = arena->top_at };

		if (arena->top_va)
			rc = i ? add_heaps(w, arena, i) : add_heap(w, first);
	}
	if (w->heaps.count)
		qsort(w->heaps.data, w->heaps.count, sizeof(*w->heaps.data), by_address);
	for (size_t i = 0; i < w->heaps.count && rc == 0; i++) {
		const struct heap *heap = &w->heaps.data[i];

		if (heap->arena != listed)
			rc = list_fast(w, &arenas->list[heap->arena]);
		listed = heap->arena;
		if (rc == 0)
			rc = walk_heap(w, heap);
	}
	if (rc == 0)
		drop_cached(w);
	return rc;
}

static void walk_deinit(struct walk *w)
{
	for (size_t i = 0; i < w->heaps.count; i++) {
		free(w->heaps.data[i].used);
		free(w->heaps.data[i].listed);
	}
	heaps_vec_deinit(&w->heaps);
	cached_vec_deinit(&w->cached);
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
		return err_set(err, EIO, NULL, NULL,
			       "its heap changes too fast to be walked, or lies in several pieces");
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
	walk_deinit(w);
	if (rc < 0)
		return explain(rc, err);
	sum.arenas = arenas->count;
	sum.mapped_known = arenas->has_mapped;
	sum.mapped_blocks = arenas->mapped_blocks;
	sum.mapped_bytes = arenas->mapped_bytes - HEADER * arenas->mapped_blocks;
	*ret = sum;
	return 0;
}
