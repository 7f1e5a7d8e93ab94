// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/memory/heap_growth.h"

#include <math.h>
#include <string.h>

#include "agent/base/clock.h"

#define WALKS_MIN     4u   /* on fewer everything looks like a line */
#define BLOCKS_MIN    100u
#define NOISE_MIN     10.0 /* standard deviations of a number that comes and goes */
#define OFF_LINE_MAX  0.25 /* of the growth */
#define AGAIN_NS      (15 * NS_PER_S)
#define AGAIN_SHARE   8u   /* of the time so far */
#define CPU_PART      1000u

/* Leaves out the one that lies nearest between its neighbours. */
static void make_room(struct heap_growth *growth)
{
	const struct heap_growth_walk *walks = growth->walks;
	unsigned best = 1;

	for (unsigned i = 2; i + 1 < growth->count; i++)
		if (walks[i + 1].time_ns - walks[i - 1].time_ns <
		    walks[best + 1].time_ns - walks[best - 1].time_ns)
			best = i;
	memmove(&growth->walks[best], &walks[best + 1], (growth->count - 1 - best) * sizeof(*walks));
	growth->count--;
}

void heap_growth_add(struct heap_growth *growth, uint64_t time_ns,
		     const uint32_t blocks_of[READ_HEAP_SIZES])
{
	struct heap_growth_walk *walk;

	if (growth->count == HEAP_GROWTH_WALKS_MAX)
		make_room(growth);
	walk = &growth->walks[growth->count++];
	walk->time_ns = time_ns;
	memcpy(walk->blocks_of, blocks_of, sizeof(walk->blocks_of));
}

static bool is_on_line(const struct heap_growth *growth, unsigned size)
{
	const struct heap_growth_walk *first = &growth->walks[0],
				      *last = &growth->walks[growth->count - 1];
	const double from = first->blocks_of[size], grown = last->blocks_of[size] - from;
	const double span_ns = (double)(last->time_ns - first->time_ns);

	for (unsigned i = 1; i + 1 < growth->count; i++) {
		const struct heap_growth_walk *walk = &growth->walks[i];
		const double due = from + grown * (double)(walk->time_ns - first->time_ns) / span_ns;

		if (fabs(walk->blocks_of[size] - due) > OFF_LINE_MAX * grown)
			return false;
	}
	return true;
}

static void insert(struct profile_grown ret[PROFILE_GROWN_MAX], unsigned *count,
		   const struct profile_grown *one)
{
	unsigned at = *count;

	while (at && ret[at - 1].blocks * ret[at - 1].block_bytes < one->blocks * one->block_bytes)
		at--;
	if (at == PROFILE_GROWN_MAX)
		return;
	*count += *count < PROFILE_GROWN_MAX;
	memmove(&ret[at + 1], &ret[at], (*count - 1 - at) * sizeof(*ret));
	ret[at] = *one;
}

unsigned heap_growth_find(const struct heap_growth *growth,
			  struct profile_grown ret[PROFILE_GROWN_MAX])
{
	unsigned count = 0;

	if (growth->count < WALKS_MIN)
		return 0;
	for (unsigned size = 0; size < READ_HEAP_SIZES; size++) {
		const uint32_t before = growth->walks[0].blocks_of[size];
		const uint32_t after = growth->walks[growth->count - 1].blocks_of[size];
		const struct profile_grown one = { .block_bytes = 32 + 16 * size - 8,
						   .before = before,
						   .blocks = after - before };

		if (after >= before + BLOCKS_MIN && one.blocks >= NOISE_MIN * sqrt(before) &&
		    is_on_line(growth, size))
			insert(ret, &count, &one);
	}
	return count;
}

uint64_t heap_growth_next_ns(const struct heap_growth *growth, uint64_t now_ns, uint64_t cost_ns)
{
	uint64_t wait_ns = AGAIN_NS;

	if (growth->count && (now_ns - growth->walks[0].time_ns) / AGAIN_SHARE > wait_ns)
		wait_ns = (now_ns - growth->walks[0].time_ns) / AGAIN_SHARE;
	return now_ns + (cost_ns * CPU_PART > wait_ns ? cost_ns * CPU_PART : wait_ns);
}
