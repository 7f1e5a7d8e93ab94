/* SPDX-License-Identifier: Apache-2.0 */
/* Fits estimates of memory in use to exact figures. All estimates together are no more than the
 * heap holds, and no less than its growth while it was observed. Where the heap cannot be walked
 * (allocators other than glibc's), they are no more than the processes have resident. Sites that
 * allocate certain sizes have no more than the heap holds of these sizes. Where the estimates are
 * outside of these bounds each site gives way by its own error: a large and uncertain one most, one
 * of many samples hardly. Sites that share an error give way together, as far as they share it.
 * All sites of which nothing was seen to end share one: how much a window stands for. For the
 * others it cancels, as the number of allocations and the speed of their ends are off by the same
 * factor. That is the path of steepest ascent of their joint likelihood, from the estimates to the
 * bound. */
#ifndef PROFD_RECORDING_LIVE_FIT_H
#define PROFD_RECORDING_LIVE_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/wire/read_stream.h"

struct recording;
struct chunk_event;

/* The memory that one site has in use. */
struct live_part {
	double bytes, objects;
	double error; /* relative standard error, of its own */
	bool ends;    /* some of it was seen to end */
	double scale; /* what its bytes were multiplied by */
	uint16_t least_bytes, most_bytes; /* that one allocation asked for; most 0 = not known */
};

/* @common: the standard error that all parts have in common of which nothing ended. @least and
 * @most bound the sum of the blocks, each of which holds some bytes more than was asked for. Pure.
 */
void live_fit_parts(struct live_part *parts, size_t count, double common, double least,
		    double most);

/* The same for each range of sizes that a part has: those whose sizes all lie in it share what
 * @blocks_of says. -ENOMEM. Pure. */
int live_fit_sizes(struct live_part *parts, size_t count, double common,
		   const uint32_t blocks_of[READ_HEAP_SIZES]) must_use;

VEC_DEFINE(live_parts, struct live_part);

struct live_fit {
	struct live_parts_vec parts;
	struct u64map part_at; /* pair and attr -> index of parts */
	double scale;	       /* of all together */
	double gone_bytes; /* so much of all of them, before they were fitted, may not be there for
			      what the heap says */
};

/* Fits what the recording has in use; nothing where no total is known. @fit zeroed by
 * the caller, who calls live_fit_deinit() whatever comes back. -ENOMEM. */
int live_fit_recording(struct live_fit *fit, const struct recording *recording, double common)
	must_use;
/* The factor for the value of an event. */
double live_fit_scale(const struct live_fit *fit, const struct chunk_event *event);
void live_fit_deinit(struct live_fit *fit);

#endif
