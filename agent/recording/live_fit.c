// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/live_fit.h"

#include <math.h>

#include "agent/recording/recording_internal.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

#define BLOCK_BYTES 16.0 /* glibc's blocks are multiples of it, less the 8 of their size */
#define BLOCK_MIN   32.0
#define ROUNDING    1e-6
#define STEP	    0.02 /* relative, of the sum */
#define STEPS_MAX   1000u
#define ERROR_MIN   1e-3

static double held_by(const struct live_part *part)
{
	double block;

	if (part->objects <= 0)
		return part->bytes;
	block = ceil((part->bytes / part->objects + 8) / BLOCK_BYTES - ROUNDING) * BLOCK_BYTES;
	return part->objects * (fmax(block, BLOCK_MIN) - 8);
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

/* How readily a part gives way: the derivative of its likelihood by the sum, for the logarithm of its bytes. */
static double give_of(const struct live_part *part, double of_common, double sum)
{
	double error = fmax(part->error, ERROR_MIN);

	return error * error * held_by(part) / sum + (part->ends ? 0 : of_common);
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

/* ---- of a recording ------------------------------------------------------------------------------ */

static uint64_t key_of(const struct chunk_event *event)
{
	return (uint64_t)event->pair << 32 | event->attr;
}

static const struct chunk_attr *live_attr(const struct recording *recording, const struct chunk_event *event)
{
	const struct chunk_attr *attr =
		event->attr < recording->attrs.count ? &recording->attrs.data[event->attr] : NULL;

	return attr && attr->type == PROF_SAMPLE_ALLOC ? attr : NULL;
}

static int add(struct live_fit *fit, const struct chunk_event *event, const struct chunk_attr *attr)
{
	const struct live_part part = { .error = (double)attr->object / 1000, .ends = attr->holder, .scale = 1 };
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
	double most = (double)heap->bytes, least = most - (double)heap->mapped_bytes - (double)heap->before_bytes;
	double before;
	bool exact = false;
	int rc = 0;

	fit->scale = 1;
	if (!heap->bytes || recording->sums)
		return 0;
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = live_attr(recording, event);

		exact |= attr && attr->state == FEED_ALLOC_EXACT;
		if (attr && attr->state == FEED_ALLOC_LIVE)
			rc = add(fit, event, attr);
	}
	/* Blocks with mappings of their own are no matter of estimates, nor of room for them. */
	if (exact)
		most -= (double)heap->mapped_bytes;
	if (rc < 0 || most <= 0)
		return rc;
	before = sum_of(fit->parts.data, fit->parts.count);
	live_fit_parts(fit->parts.data, fit->parts.count, common, heap->before_bytes ? fmax(least, 0) : 0, most);
	if (before > 0)
		fit->scale = sum_of(fit->parts.data, fit->parts.count) / before;
	return 0;
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
