/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as the collector reports it, for tests of what is made of stacks. */
#ifndef PROFD_TESTS_LIVE_STACK_H
#define PROFD_TESTS_LIVE_STACK_H

#include "agent/session/ingest/live_tables.h"
#include "bpf/profiler.h"

/* Adds the stack @id of two frames: the address @leaf, called from the address 1. */
static inline void live_stack_add(struct live_tables *tables, uint64_t id, uint64_t leaf)
{
	const struct {
		struct feed_stack head;
		uint64_t frames[2];
	} record = { { .stack = id, .frame_count = 2 },
		     { prof_frame_address(PROF_FRAME_ADDRESS, leaf, 0),
		       prof_frame_address(PROF_FRAME_ADDRESS, 1, 0) } };

	assert_int_equal(live_tables_add_stack(tables, &record, sizeof(record)), 0);
}

#endif
