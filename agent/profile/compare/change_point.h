/* SPDX-License-Identifier: Apache-2.0 */
/* Finds lasting steps in the level of a series: cumulative sums of clipped values, against the
 * spread that the series' own slow noise gives such sums. Method: README.md, "Hours and series".
 * Pure, deterministic, thread-safe. */
#ifndef PROFD_PROFILE_CHANGE_POINT_H
#define PROFD_PROFILE_CHANGE_POINT_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define CHANGE_POINT_LEAST 100u /* points of a series; fewer say nothing */
#define CHANGE_POINTS_MAX  8u

struct change_point {
	size_t at;	     /* first point of the new level */
	double before, after; /* mean of the clipped values on both sides, to the next change or the end */
	double strength;     /* |G| / long-run deviation; above the critical value of 1 % */
};

/* At most @max changes, in order of time; @ret_count may be 0. -ENOMEM. */
int change_points_find(const double *y, size_t count, struct change_point *ret, size_t max,
		       size_t *ret_count) must_use;

#endif
