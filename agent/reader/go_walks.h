/* SPDX-License-Identifier: Apache-2.0 */
/* Results about goroutines, kept from one reading of a program to the next: stacks, each once, and
 * for goroutines that were seen parked which stack that was.
 *
 * The runtime notes when a garbage collection first found a goroutine parked (g.waitsince) and
 * clears that when the goroutine runs (execute() in src/runtime/proc.go). The same number, not 0,
 * in two readings means that it did not run in between: neither its stack nor what it waits for is
 * read again. Not thread-safe. */
#ifndef PROFD_READER_GO_WALKS_H
#define PROFD_READER_GO_WALKS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/reader/go_unwind.h"

#define GO_SEEN_MAX	    131072u /* goroutines of a program, by their place in the runtime's list */
#define GO_WALKS_MAX	    65536u  /* distinct stacks */
#define GO_WALKS_FRAMES_MAX (1u << 20)

struct go_seen {
	uint64_t goid, wait_since, pc, sp; /* what must be as it was */
	uint64_t object;		   /* what it waits for */
	uint32_t walk;			   /* 0 = nothing is known */
	uint32_t object_flags;		   /* enum read_goroutine_flag */
};

struct go_walk_entry {
	uint32_t first; /* in pcs and marks */
	uint16_t count;
	uint8_t end; /* enum go_walk_end */
	bool lock_wait;
};
VEC_DEFINE(go_walk_entries, struct go_walk_entry);
VEC_DEFINE(go_walk_pcs, uint64_t);
VEC_DEFINE(go_walk_marks, uint8_t);

struct go_walks {
	struct go_seen *seen; /* GO_SEEN_MAX, NULL until the first is kept */
	struct go_walk_entries_vec walks;
	struct go_walk_pcs_vec pcs;
	struct go_walk_marks_vec marks; /* by pc: bit 0 exact, the rest enum read_frame_flag */
	struct u64map at;		/* hash -> number of the walk */
};

void go_walks_deinit(struct go_walks *walks);
/* To be called before a reading: makes room where there is none left; numbers lose their meaning
 * then. */
void go_walks_begin(struct go_walks *walks);
/* The number of @walk, from 1 on; 0 = no room. */
uint32_t go_walks_number(struct go_walks *walks, const struct go_walk *walk);
const struct go_walk_entry *go_walks_entry(const struct go_walks *walks, uint32_t number);
/* Copies a walk back; lock_va is not part of it. */
void go_walks_load(const struct go_walks *walks, uint32_t number, struct go_walk *ret);
/* The result for the goroutine at @index of the list, if it did not run since; else NULL. */
const struct go_seen *go_walks_find(const struct go_walks *walks, uint64_t index,
				    const struct go_seen *now);
/* Keeps it for the next reading. */
void go_walks_keep(struct go_walks *walks, uint64_t index, const struct go_seen *seen);

#endif
