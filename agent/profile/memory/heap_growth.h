/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the sizes of glibc's blocks that become steadily more while a session runs, by walks of
 * the heap (agent/reader/glibc_heap.h). Such growth is what a leak looks like, counted and not
 * sampled. A table that is filled once, and a cache whose blocks come and go, do not grow along a
 * line. Pure. */
#ifndef PROFD_PROFILE_HEAP_GROWTH_H
#define PROFD_PROFILE_HEAP_GROWTH_H

#include "agent/profile/profile.h"
#include "agent/wire/read_stream.h"

#define HEAP_GROWTH_WALKS_MAX 16u

struct heap_growth {
	unsigned count;
	struct heap_growth_walk {
		uint64_t time_ns; /* monotonic */
		uint32_t blocks_of[READ_HEAP_SIZES];
	} walks[HEAP_GROWTH_WALKS_MAX]; /* ascending time; the first one stays, others make room */
};

void heap_growth_add(struct heap_growth *growth, uint64_t time_ns,
		     const uint32_t blocks_of[READ_HEAP_SIZES]);
/* Those that grew by most bytes, largest first; how many. */
unsigned heap_growth_find(const struct heap_growth *growth,
			  struct profile_grown ret[PROFILE_GROWN_MAX]);
/* When it is worth the next walk, after one that took @cost_ns of CPU time: not more than a
 * thousandth of it goes into them. */
uint64_t heap_growth_next_ns(const struct heap_growth *growth, uint64_t now_ns, uint64_t cost_ns);

#endif
