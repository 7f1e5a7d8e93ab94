// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/live_fit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "agent/recording/recording_internal.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

#define BLOCK_BYTES 16.0 /* glibc's blocks are multiples of it, less the 8 of their size */
#define BLOCK_MIN   32.0
#define ROUNDING    1e-6
#define STEP	    0.02 /* relative, of the sum */
#define STEPS_MAX   1000u
#define ERROR_MIN   1e-3

/* With its size, of one that was asked for so many. */
static double block_of(double bytes)
{
	return fmax(ceil((bytes + 8) / BLOCK_BYTES - ROUNDING) * BLOCK_BYTES, BLOCK_MIN);
}

static double held_by(const struct live_part *part)
{
	if (part->objects <= 0)
		return part->bytes;
	return part->objects * (block_of(part->bytes / part->objects) - 8);
}

static double sum_of(const struct live_part *parts, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += held_by(&parts[i]);
	return sum;
}

/* How readily what parts have in common gives way: it moves all of them that share it at once. */
static double give_of_common(const struct live_part *parts, size_t count, double common, double sum)
{
	double sharing = 0;

	for (size_t i = 0; i < count; i++)
		sharing += parts[i].ends ? 0 : held_by(&parts[i]);
	return common * common * sharing / sum;
}

/* How readily a part gives way: the derivative of its likelihood by the sum, for the logarithm of
 * its bytes, whose variance is log1p(error^2). */
static double give_of(const struct live_part *part, double of_common, double sum)
{
	double error = fmax(part->error, ERROR_MIN);

	return log1p(error * error) * held_by(part) / sum + (part->ends ? 0 : of_common);
}

void live_fit_parts(struct live_part *parts, size_t count, double common, double least, double most)
{
	for (unsigned step = 0; step < STEPS_MAX; step++) {
		const double sum = sum_of(parts, count), bound = fmin(fmax(sum, least), most);
		const double wanted = bound / sum - 1;
		double of_common, gives = 0, change;

		if (sum <= 0 || fabs(wanted) < 1e-6)
			return;
		of_common = give_of_common(parts, count, common, sum);
		for (size_t i = 0; i < count; i++)
			gives += give_of(&parts[i], of_common, sum) * held_by(&parts[i]) / sum;
		change = fmin(fmax(wanted, -STEP), STEP) / gives;
		for (size_t i = 0; i < count; i++) {
			const double factor = exp(change * give_of(&parts[i], of_common, sum));

			parts[i].bytes *= factor;
			parts[i].objects *= factor;
			parts[i].scale *= factor;
		}
	}
}

/* The size classes of a part's smallest and largest blocks in the heap. The largest class is one
 * more, since a block keeps leftover bytes that are too few for another block. */
static bool sizes_of(const struct live_part *part, unsigned *ret_first, unsigned *ret_last)
{
	const double most = block_of(part->most_bytes) + BLOCK_BYTES;

	if (!part->most_bytes || read_heap_size_of((uint64_t)most) >= READ_HEAP_SIZES)
		return false;
	*ret_first = (unsigned)read_heap_size_of((uint64_t)block_of(part->least_bytes));
	*ret_last = (unsigned)read_heap_size_of((uint64_t)most);
	return *ret_first <= *ret_last;
}

struct range {
	unsigned first, last;
	double bytes; /* that blocks of these sizes hold */
};

/* @room: for @count parts. */
static void fit_range(struct live_part *parts, size_t count, double common,
		      const struct range *range, struct live_part *room)
{
	unsigned first, last;
	size_t inside = 0, next = 0;

	for (size_t i = 0; i < count; i++)
		if (sizes_of(&parts[i], &first, &last) && first >= range->first && last <= range->last)
			room[inside++] = parts[i];
	live_fit_parts(room, inside, common, 0, range->bytes);
	for (size_t i = 0; i < count; i++)
		if (sizes_of(&parts[i], &first, &last) && first >= range->first && last <= range->last)
			parts[i] = room[next++];
}

int live_fit_sizes(struct live_part *parts, size_t count, double common,
		   const uint32_t blocks_of[READ_HEAP_SIZES])
{
	cleanup_free struct live_part *room = calloc(count + 1, sizeof(*room));
	bool has[READ_HEAP_SIZES][READ_HEAP_SIZES] = { 0 };
	struct range range;

	if (!room)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (sizes_of(&parts[i], &range.first, &range.last))
			has[range.first][range.last] = true;
	/* The narrowest first: what is left for it bounds the others. */
	for (unsigned width = 0; width < READ_HEAP_SIZES; width++) {
		for (range.first = 0; range.first + width < READ_HEAP_SIZES; range.first++) {
			range.last = range.first + width;
			range.bytes = 0;
			for (unsigned size = range.first; size <= range.last; size++)
				range.bytes += blocks_of[size] * (BLOCK_MIN + size * BLOCK_BYTES - 8);
			if (has[range.first][range.last])
				fit_range(parts, count, common, &range, room);
		}
	}
	return 0;
}

/* ---- of a recording -------------------------------------------------------------------------- */

static uint64_t key_of(const struct chunk_event *event)
{
	return (uint64_t)event->pair << 32 | event->attr;
}

static const struct chunk_attr *live_attr(const struct recording *recording,
					  const struct chunk_event *event)
{
	const struct chunk_attr *attr =
		event->attr < recording->attrs.count ? &recording->attrs.data[event->attr] : NULL;

	return attr && attr->type == PROF_SAMPLE_ALLOC ? attr : NULL;
}

static int add(struct live_fit *fit, const struct chunk_event *event, const struct chunk_attr *attr)
{
	const struct live_part part = { .error = (double)feed_alloc_error(attr->object) / 1000,
					.ends = attr->holder,
					.scale = 1,
					.least_bytes = feed_alloc_least(attr->object),
					.most_bytes = feed_alloc_most(attr->object) };
	uint64_t at = fit->parts.count;
	int rc = 0;

	if (!u64map_get(&fit->part_at, key_of(event), &at)) {
		rc = u64map_put(&fit->part_at, key_of(event), at);
		if (rc == 0)
			rc = live_parts_vec_push(&fit->parts, part);
	}
	if (rc == 0) {
		fit->parts.data[at].bytes += (double)event->value;
		fit->parts.data[at].objects += (double)event->value2 / 1024;
	}
	return rc;
}

int live_fit_recording(struct live_fit *fit, const struct recording *recording, double common)
{
	const struct chunk_heap *heap = &recording->quality.alloc.heap;
	double most = (double)(heap->bytes ? heap->bytes : heap->resident_bytes),
	       least = most - (double)heap->mapped_bytes - (double)heap->before_bytes;
	double before;
	double exact = 0;
	bool sizes_known = false;
	int rc = 0;

	fit->scale = 1;
	fit->gone_bytes = INFINITY;
	if (most <= 0 || recording->sums)
		return 0;
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = live_attr(recording, event);

		exact += attr && attr->state == FEED_ALLOC_EXACT ? (double)event->value : 0;
		if (attr && attr->state == FEED_ALLOC_LIVE)
			rc = add(fit, event, attr);
	}
	/* Blocks with mappings of their own are no matter of estimates, nor of room for them; nor are
	 * other large ones that are known one by one. */
	if (exact > 0)
		most -= fmax((double)heap->mapped_bytes, exact);
	if (rc < 0 || most <= 0)
		return rc;
	before = sum_of(fit->parts.data, fit->parts.count);
	least = heap->before_bytes ? fmax(least, 0) : 0;
	fit->gone_bytes = fmax(before - least, 0);
	for (unsigned i = 0; i < READ_HEAP_SIZES; i++)
		sizes_known |= recording->quality.alloc.blocks_of[i] > 0;
	/* Before, that what is certainly too much pushes nothing else out; and after, as more may
	 * have been found to be missing. */
	if (sizes_known)
		rc = live_fit_sizes(fit->parts.data, fit->parts.count, common,
				    recording->quality.alloc.blocks_of);
	live_fit_parts(fit->parts.data, fit->parts.count, common, least, most);
	if (rc == 0 && sizes_known)
		rc = live_fit_sizes(fit->parts.data, fit->parts.count, common,
				    recording->quality.alloc.blocks_of);
	if (before > 0)
		fit->scale = sum_of(fit->parts.data, fit->parts.count) / before;
	return rc;
}

double live_fit_scale(const struct live_fit *fit, const struct chunk_event *event)
{
	uint64_t at;

	return u64map_get(&fit->part_at, key_of(event), &at) ? fit->parts.data[at].scale : 1;
}

void live_fit_deinit(struct live_fit *fit)
{
	live_parts_vec_deinit(&fit->parts);
	u64map_deinit(&fit->part_at);
}
