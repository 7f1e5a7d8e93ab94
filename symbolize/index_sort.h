/* SPDX-License-Identifier: Apache-2.0 */
/* Turns overlapping intervals into a flat table of segments: the innermost start wins. */
#ifndef PROFD_SYMBOLIZE_INDEX_SORT_H
#define PROFD_SYMBOLIZE_INDEX_SORT_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "symbolize/index_builder.h"

struct index_segment {
	uint64_t start;
	uint32_t value;
};
VEC_DEFINE(index_segments, struct index_segment);

struct index_sort_item {
	uint64_t key;
	uint32_t index;
};

/* Stable sort by key: least significant digit first, so that sorted or short keys cost little.
 * -ENOMEM. */
int index_sort(struct index_sort_item *items, size_t count) must_use;
/* Segments of @intervals (any order), ascending; @gap marks addresses that none covers. The
 * segments before the first interval are not written. Work is linear after sorting, whatever the
 * overlaps. */
int index_flatten(const struct index_interval *intervals, size_t count, uint32_t gap,
		  struct index_segments_vec *ret) must_use;
/* Puts what @others, ascending and disjoint, say into the gaps (of value 0) of @segments. -ENOMEM.
 */
int index_fill_gaps(struct index_segments_vec *segments, const struct index_interval *others,
		    size_t count) must_use;

#endif
