/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals for the values of a profile of probed allocations. Events come in probe windows, and
 * events of one window share a time. So the data itself shows how a function's value varies between
 * windows: with sums x_1 … x_k the sum of all has the variance k/(k-1) * (sum of x^2 - (sum of
 * x)^2/k), which includes the sampling inside windows. Memory in use that rests on deaths is mostly
 * of the last windows and carries its own standard error (PROFILE_LABEL_ERROR). Blocks that were
 * not sampled (PROFILE_STATE_EXACT) add their bytes and no variance. Blocks of which none was seen
 * to end may have ended all the same (PROFILE_LABEL_UNSURE). The lower end leaves them out as far
 * as the heap as a whole allows that; the upper end of the others then takes back the amount by
 * which they were fitted. All windows together have an error of their own (rel_err), the same for
 * every place. Few windows widen the interval (Student), and so do few samples: the upper end
 * allows for a missed one. The upper end is at most what the heap
 * holds (heap_bytes), or, where it cannot be walked, what is resident.
 *
 * Samples of other types know the variance of their random choice (profile_sample.variance: offcpu,
 * wall, block, mutex, io). A value v recorded with probability p counts v/p and adds (1-p) *
 * (v/p)^2 (Horvitz and Thompson, Journal of the American Statistical Association 47, 1952). Where
 * the sum of each thread is also known (offcpu, wall, bytes of io), this is too wide for a function
 * in which a thread spends most of its time. Counts of events have no interval. Pure. */
#ifndef PROFD_PROFILE_INTERVAL_H
#define PROFD_PROFILE_INTERVAL_H

#include "agent/profile/profile.h"

struct profile_interval {
	double lo, hi; /* 95 % */
};

/* Does the profile hold probed allocations? */
bool profile_is_probed(const struct profile *p);
/* Intervals of every function's cumulative value @value_index, by function id, and last of the
 * total: function_count + 1 entries, the caller's (free). -ENODATA if the value is no estimate,
 * -ENOMEM. */
int profile_intervals(const struct profile *p, unsigned value_index, struct profile_interval **ret)
	must_use;

#endif
