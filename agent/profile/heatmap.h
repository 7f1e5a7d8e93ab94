/* SPDX-License-Identifier: Apache-2.0 */
/* Time views of one profile's events: the sub-second heat map (FlameScope's layout: a column per
 * second, rows inside it) and trend points. Pure, thread-safe. */
#ifndef PROFD_PROFILE_HEATMAP_H
#define PROFD_PROFILE_HEATMAP_H

#include "agent/profile/profile.h"

#define HEATMAP_CELLS_MAX 2000000u
#define TREND_POINTS_MAX  10000u

struct heatmap {
	uint64_t from_ns; /* realtime of the first column, a multiple of the column width */
	uint32_t col_ms, row_ms;
	uint32_t cols, rows;
	int64_t max;	/* largest cell */
	int64_t *cells; /* main value, column by column; cells[col * rows + row]; owned */
};

/* @col_ms must be a multiple of @row_ms, both > 0 (-EINVAL). -ENODATA without events, -E2BIG above
 * HEATMAP_CELLS_MAX, -ENOMEM. */
int heatmap_init(struct heatmap *ret, const struct profile *p, uint32_t col_ms, uint32_t row_ms)
	must_use;
void heatmap_deinit(struct heatmap *map);

struct trend_point {
	uint64_t from_ns, to_ns; /* realtime */
	int64_t total_value;
	double value_per_second;
	uint64_t sample_count;
};

/* Sums of the events in steps of @step_ns, which begin at multiples of it; all steps from the first
 * to the last event. @function: only stacks with a function of this name, NULL = all. @ret: the
 * caller's (free). -EINVAL step 0, -ENODATA without events, -E2BIG above TREND_POINTS_MAX, -ENOMEM.
 */
int trend_points(const struct profile *p, uint64_t step_ns, const char *function,
		 struct trend_point **ret, uint32_t *ret_count) must_use;

/* Percentage of the total that functions of this name hold, by self or cumulative; 0 if none does.
 */
int trend_value(const struct profile *p, const char *function, bool cumulative, double *ret)
	must_use;

#endif
