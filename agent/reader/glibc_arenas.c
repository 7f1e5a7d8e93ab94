// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/glibc_arenas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE		4096u
#define DATA_BYTES_MAX	(16ull << 20) /* of one file's writable part */
#define BIN_PAIRS	127u
#define EMPTY_MIN	16u /* pairs that point to themselves: no other data does that */
#define THREADS_MAX	(1u << 22)
#define HELD_MAX	(1ull << 46)
#define MMAPS_MAX	65536 /* malloc_par.n_mmaps_max: M_MMAP_MAX unless the program sets another */

/* Words from the first bin. */
#define AT_NEXT	    256u /* behind the pairs and the 16 bytes of the bin map */
#define AT_ATTACHED 258u
#define AT_HELD	    259u
#define AT_HELD_MAX 260u
#define AT_END	    261u
/* Bytes before the first bin. */
#define TOP_BEFORE  16u
#define FAST_BEFORE 96u
static const unsigned bins_at[] = { 112, 104 }; /* from the state: 2.27 and newer, older ones */

struct data {
	uint64_t va;
	size_t count;
	const uint64_t *words;
};

/* ---- the main arena ----------------------------------------------------------------------------
 */

static bool is_bins(const struct data *data, size_t at)
{
	const uint64_t *bins = data->words + at;
	const uint64_t va = data->va + at * 8;
	unsigned empty = 0;

	if (!bins[AT_NEXT] || bins[AT_NEXT] & 7 || bins[AT_ATTACHED] > THREADS_MAX ||
	    bins[AT_HELD] > bins[AT_HELD_MAX] || bins[AT_HELD_MAX] > HELD_MAX)
		return false;
	for (unsigned i = 0; i < BIN_PAIRS; i++) {
		const uint64_t self = va + i * 16 - 16;

		empty += bins[2 * i] == self && bins[2 * i + 1] == self;
	}
	return empty >= EMPTY_MIN;
}

/* ---- the others --------------------------------------------------------------------------------
 */

static uint64_t heap_of(uint64_t va)
{
	return va & ~(GLIBC_HEAP_SPAN - 1);
}

/* Reads the fields of one arena. */
static int describe(struct target *target, uint64_t state_va, unsigned bins, bool is_main,
		    struct glibc_arena *ret, uint64_t *ret_next)
{
	const uint64_t bins_va = state_va + bins;
	uint64_t front[FAST_BEFORE / 8], back[AT_END - AT_NEXT], size;
	int rc = target_read(target, bins_va - FAST_BEFORE, front, sizeof(front));

	if (rc == 0)
		rc = target_read(target, bins_va + AT_NEXT * 8, back, sizeof(back));
	if (rc < 0)
		return rc;
	*ret = (struct glibc_arena){ .state_va = state_va,
				     .top_va = front[GLIBC_FAST_BINS],
				     .top_at = bins_va - TOP_BEFORE,
				     .fast_at = bins_va - FAST_BEFORE,
				     .held_bytes = back[AT_HELD - AT_NEXT],
				     .chunks_va = (bins_va + AT_END * 8 + 15) & ~15ull };
	*ret_next = back[0];
	if (!is_main)
		return 0;
	/* Before anything was asked for its top is a bin. */
	if (ret->top_va == bins_va - TOP_BEFORE || !ret->held_bytes) {
		ret->top_va = 0;
		return 0;
	}
	rc = target_read(target, ret->top_va + 8, &size, sizeof(size));
	if (rc < 0)
		return rc;
	/* The heap of a static program begins anywhere behind its thread-local storage. */
	ret->chunks_va = ret->top_va + (size & ~(uint64_t)GLIBC_SIZE_FLAGS) - ret->held_bytes;
	ret->chunks_va = (ret->chunks_va + 15) & ~15ull;
	return 0;
}

/* The ring leads from the main arena through all others back to it. */
static int follow_ring(struct target *target, uint64_t bins_va, unsigned bins,
		       struct glibc_arenas *ret)
{
	const uint64_t main_va = bins_va - bins;
	uint64_t va = main_va, next, owner;
	int rc;

	ret->count = 0;
	do {
		rc = describe(target, va, bins, va == main_va, &ret->list[ret->count], &next);
		if (rc < 0)
			return rc;
		ret->count++;
		va = next;
		if (va == main_va)
			return 0;
		/* The heap that it lies in begins with its address. */
		rc = target_read(target, heap_of(va), &owner, sizeof(owner));
		if (rc < 0)
			return rc;
	} while (owner == va && ret->count < GLIBC_ARENAS_MAX);
	return -EFAULT;
}

/* ---- blocks with a mapping of their own ------------------------------------------------------ */

static int32_t int_at(const struct data *data, size_t at)
{
	int32_t value;

	memcpy(&value, (const char *)data->words + at * sizeof(value), sizeof(value));
	return value;
}

/* struct malloc_par: n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold (32 bits each),
 * mmapped_mem, max_mmapped_mem, sbrk_base. @at: of the second, in 32-bit steps. */
static bool is_counters(const struct data *data, size_t at, uint64_t first_va,
			struct glibc_arenas *ret)
{
	const size_t sums = (at + 4) / 2; /* behind no_dyn_threshold, aligned */
	const uint64_t *words = data->words + sums;
	int32_t now, fixed;

	if (int_at(data, at) != MMAPS_MAX || sums + 3 > data->count)
		return false;
	now = int_at(data, at - 1);
	fixed = int_at(data, at + 2);
	if (now < 0 || now > int_at(data, at + 1) || (fixed != 0 && fixed != 1))
		return false;
	if (words[0] > words[1] || words[0] % PAGE || words[1] % PAGE || !words[0] != !now ||
	    words[0] / PAGE < (uint64_t)now || words[1] > HELD_MAX ||
	    words[2] > first_va || first_va - words[2] > 15)
		return false;
	ret->has_mapped = true;
	ret->mapped_bytes = words[0];
	ret->mapped_blocks = (uint64_t)now;
	return true;
}

static void find_counters(const struct data *data, struct glibc_arenas *ret)
{
	const struct glibc_arena *first = &ret->list[0];
	const uint64_t first_va = first->top_va ? first->chunks_va : 0;

	for (size_t at = 1; at + 3 < data->count * 2 && !ret->has_mapped; at++)
		(void)is_counters(data, at, first_va, ret);
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static int look_at_data(struct target *target, const struct data *data, struct glibc_arenas *ret)
{
	int rc = -EOPNOTSUPP;

	for (size_t at = FAST_BEFORE / 8; at + AT_END <= data->count; at++) {
		if (!is_bins(data, at))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(bins_at); i++) {
			rc = follow_ring(target, data->va + at * 8, bins_at[i], ret);
			if (rc == 0) {
				find_counters(data, ret);
				return 0;
			}
			if (rc != -EFAULT)
				return rc;
		}
	}
	return -EOPNOTSUPP;
}

int glibc_arenas_find(struct target *target, const struct target_maps *maps,
		      struct glibc_arenas *ret)
{
	cleanup_free struct glibc_arenas *found = calloc(1, sizeof(*found));
	int rc = -EOPNOTSUPP;

	if (!found)
		return -ENOMEM;
	for (size_t i = 0; i < maps->count && rc == -EOPNOTSUPP; i++) {
		const struct target_map *map = &maps->maps[i];
		const uint64_t bytes = map->end_va - map->start_va;
		cleanup_free uint64_t *words = NULL;
		struct data data = { .va = map->start_va };
		ssize_t got;

		if (!(map->prot & TARGET_MAP_WRITE) || bytes > DATA_BYTES_MAX)
			continue;
		words = malloc(bytes);
		if (!words)
			return -ENOMEM;
		got = target_read_some(target, map->start_va, words, bytes);
		if (got == -ESRCH || got == -EPERM)
			return (int)got;
		data.words = words;
		data.count = got > 0 ? (size_t)got / 8 : 0;
		rc = look_at_data(target, &data, found);
	}
	if (rc == 0)
		*ret = *found;
	return rc;
}
