// SPDX-License-Identifier: Apache-2.0
#include "symbolize/index_sort.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define DIGIT_BITS 11
#define DIGITS	   (1u << DIGIT_BITS)

static void sort_pass(const struct index_sort_item *from, struct index_sort_item *to, size_t count,
		      unsigned shift)
{
	size_t place[DIGITS] = { 0 }, sum = 0;

	for (size_t i = 0; i < count; i++)
		place[(from[i].key >> shift) & (DIGITS - 1)]++;
	for (size_t d = 0; d < DIGITS; d++) {
		size_t here = place[d];

		place[d] = sum;
		sum += here;
	}
	for (size_t i = 0; i < count; i++)
		to[place[(from[i].key >> shift) & (DIGITS - 1)]++] = from[i];
}

int index_sort(struct index_sort_item *items, size_t count)
{
	cleanup_free struct index_sort_item *other = NULL;
	struct index_sort_item *from = items, *to;
	uint64_t differing = 0;
	bool sorted = true;

	for (size_t i = 1; i < count; i++) {
		differing |= items[i].key ^ items[i - 1].key;
		sorted = sorted && items[i - 1].key <= items[i].key;
	}
	if (sorted)
		return 0;
	other = malloc(count * sizeof(*other));
	if (!other)
		return -ENOMEM;
	to = other;
	for (unsigned shift = 0; shift < 64 && differing >> shift; shift += DIGIT_BITS) {
		struct index_sort_item *swap = from;

		if (!((differing >> shift) & (DIGITS - 1)))
			continue;
		sort_pass(from, to, count, shift);
		from = to;
		to = swap;
	}
	if (from != items)
		memcpy(items, from, count * sizeof(*items));
	return 0;
}

/* Order of intervals: by start, then by rank, then as they came. */
static int sort_intervals(const struct index_interval *intervals, size_t count,
			  struct index_sort_item **ret)
{
	cleanup_free struct index_sort_item *items = malloc((count + 1) * sizeof(*items));
	int rc;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		items[i] = (struct index_sort_item){ intervals[i].rank, (uint32_t)i };
	rc = index_sort(items, count);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < count; i++)
		items[i].key = intervals[items[i].index].start;
	rc = index_sort(items, count);
	if (rc < 0)
		return rc;
	*ret = take_ptr(items);
	return 0;
}

struct sweep {
	const struct index_interval *intervals;
	uint32_t gap;
	uint32_t *open; /* indices of intervals, by start; the last is in force */
	size_t open_count;
	struct index_segments_vec *out;
};

static int emit(struct sweep *sweep, uint64_t start, uint32_t value)
{
	struct index_segments_vec *out = sweep->out;

	if (out->count && out->data[out->count - 1].start == start)
		out->count--;
	if (out->count && out->data[out->count - 1].value == value)
		return 0;
	if (!out->count && value == sweep->gap)
		return 0;
	return index_segments_vec_push(out, (struct index_segment){ start, value });
}

static uint64_t innermost_end(const struct sweep *sweep)
{
	return sweep->intervals[sweep->open[sweep->open_count - 1]].end;
}

/* Ends what ends up to @limit. */
static int close_until(struct sweep *sweep, uint64_t limit)
{
	while (sweep->open_count && innermost_end(sweep) <= limit) {
		uint64_t end = innermost_end(sweep);
		int rc;

		while (sweep->open_count && innermost_end(sweep) <= end)
			sweep->open_count--;
		rc = emit(sweep, end,
			  sweep->open_count
				  ? sweep->intervals[sweep->open[sweep->open_count - 1]].value
				  : sweep->gap);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int index_flatten(const struct index_interval *intervals, size_t count, uint32_t gap,
		  struct index_segments_vec *ret)
{
	cleanup_free struct index_sort_item *order = NULL;
	cleanup_free uint32_t *open = malloc((count + 1) * sizeof(*open));
	struct sweep sweep = { intervals, gap, open, 0, ret };
	int rc;

	if (!open)
		return -ENOMEM;
	rc = sort_intervals(intervals, count, &order);
	for (size_t i = 0; rc >= 0 && i < count; i++) {
		const struct index_interval *at = &intervals[order[i].index];

		if (at->end <= at->start)
			continue;
		rc = close_until(&sweep, at->start);
		if (rc < 0)
			break;
		open[sweep.open_count++] = order[i].index;
		rc = emit(&sweep, at->start, at->value);
	}
	return rc < 0 ? rc : close_until(&sweep, UINT64_MAX);
}

/* Adds the parts of the gap [@start, @end) that the intervals from *@at on cover. */
static int fill_gap(struct sweep *sweep, uint64_t start, uint64_t end, size_t count, size_t *at)
{
	int rc = emit(sweep, start, 0);

	while (rc >= 0 && *at < count && sweep->intervals[*at].start < end) {
		const struct index_interval *other = &sweep->intervals[*at];

		if (other->end > start) {
			rc = emit(sweep, other->start > start ? other->start : start, other->value);
			if (rc >= 0 && other->end < end)
				rc = emit(sweep, other->end, 0);
		}
		if (other->end > end)
			break; /* perhaps goes on behind what ends the gap */
		(*at)++;
	}
	return rc;
}

int index_fill_gaps(struct index_segments_vec *segments, const struct index_interval *others,
		    size_t count)
{
	struct index_segments_vec filled = { 0 };
	struct sweep sweep = { .intervals = others, .out = &filled };
	size_t at = 0;
	int rc = count && (!segments->count || others[0].start < segments->data[0].start)
			 ? fill_gap(&sweep, 0, segments->count ? segments->data[0].start : UINT64_MAX, count, &at)
			 : 0;

	for (size_t i = 0; rc >= 0 && i < segments->count; i++) {
		const struct index_segment *here = &segments->data[i];
		uint64_t end = i + 1 < segments->count ? here[1].start : UINT64_MAX;

		rc = here->value ? emit(&sweep, here->start, here->value)
				 : fill_gap(&sweep, here->start, end, count, &at);
	}
	if (rc < 0) {
		index_segments_vec_deinit(&filled);
		return rc;
	}
	index_segments_vec_deinit(segments);
	*segments = filled;
	return 0;
}
