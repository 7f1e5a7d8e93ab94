/* SPDX-License-Identifier: Apache-2.0 */
/* Time views of one profile's events: the sub-second heat map (FlameScope's layout: a column per
 * second, rows inside it) and the share of a function. Pure, thread-safe. */
#ifndef PROFD_PROFILE_HEATMAP_H
#define PROFD_PROFILE_HEATMAP_H

#include "agent/profile/profile.h"

#define HEATMAP_CELLS_MAX 2000000u

struct heatmap {
	uint64_t from_ns; /* realtime of the first column, a multiple of the column width */
	uint32_t col_ms, row_ms;
	uint32_t cols, rows;
	int64_t max;	/* largest cell */
	int64_t *cells; /* main value, column by column; cells[col * rows + row]; of a wait what
			   lies in each; owned */
};

/* Makes the map. @col_ms must be a multiple of @row_ms, both > 0 (-EINVAL). -ENODATA without
 * events, or when a row is not whole times the profile's grain; -E2BIG above HEATMAP_CELLS_MAX,
 * -ENOMEM. */
int heatmap_init(struct heatmap *ret, const struct profile *p, uint32_t col_ms, uint32_t row_ms)
	must_use;
void heatmap_deinit(struct heatmap *map);

/* Percentage of the total that functions of this name hold, by self or cumulative; 0 if none does.
 */
int trend_value(const struct profile *p, const char *function, bool cumulative, double *ret)
	must_use;

#endif
