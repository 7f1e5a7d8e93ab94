/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the profile builder, shared by profile_builder.c (interning) and profile_finish.c
 * (sums, order, quality). */
#ifndef PROFD_PROFILE_BUILDER_INTERNAL_H
#define PROFD_PROFILE_BUILDER_INTERNAL_H

#include "agent/base/intern.h"
#include "agent/profile/profile.h"

/* Bounds of one profile; beyond them the builder's error is -E2BIG. Nodes have the caller's own
 * bound. */
#define PROFILE_STRINGS_MAX	 (1u << 24)
#define PROFILE_STRING_BYTES_MAX (1ull << 30)
#define PROFILE_FUNCTIONS_MAX	 (1u << 24)
#define PROFILE_FRAMES_MAX	 (1u << 25)
#define PROFILE_MAPPINGS_MAX	 (1u << 20)
#define PROFILE_PROCESSES_MAX	 (1u << 22)
#define PROFILE_ATTRS_MAX	 (1u << 24)
#define PROFILE_LABELS_MAX	 (1u << 25)
#define PROFILE_SAMPLES_MAX	 (1u << 27)
#define PROFILE_EVENTS_MAX	 (1u << 28)

struct profile_builder {
	struct profile *p; /* owned until handed over */
	int error;	   /* first failure, sticky */
	uint32_t max_nodes;
	uint32_t overflow_node; /* root's [truncated] child, 0 = not needed yet */
	uint64_t overflow_calls;
	struct intern strings, mappings, functions, frames, nodes, processes, attrs, samples;
	size_t string_capacity, string_bytes_capacity, mapping_capacity, function_capacity,
		frame_capacity, node_capacity, process_capacity, attrs_capacity, label_capacity,
		sample_capacity, event_capacity;
	uint64_t string_bytes_len;
};

/* By self, cumulative and name, as profile_top_functions() gives them. -ENOMEM. */
int profile_sort_rows(const struct profile *p, struct profile_function_row *rows, size_t count)
	must_use;

/* Saturates instead of overflowing: totals of hostile values stay finite. */
static inline int64_t profile_add(int64_t a, int64_t b)
{
	int64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return a < 0 ? INT64_MIN : INT64_MAX;
	return sum;
}

#endif
