/* SPDX-License-Identifier: Apache-2.0 */
/* How far the values of a profile of probed allocations may be from the truth. What was seen comes in
 * windows, and events of one window share a time, so the spread of a function's value between windows is
 * seen in the data: with sums x_1 … x_k the sum of all has the variance k/(k-1) * (sum of x^2 - (sum of x)^2/k),
 * which holds the sampling inside windows as well. What is in use and rests on deaths is mostly of the last windows: it
 * says its own standard error (PROFILE_LABEL_ERROR). Blocks that were not sampled (PROFILE_STATE_EXACT) add their bytes
 * and no variance.
 * What none was seen to end of may have ended all the same (PROFILE_LABEL_UNSURE): the lower end goes without it, as far as
 * the heap as a whole leaves that open, and the upper end of the others then gives back what they were fitted by.
 * What all windows stand for together has an error of its own (rel_err), the same for every place; few windows widen
 * the interval (Student), and few samples: the upper end allows for one that was missed.
 *
 * Of other types the samples know their variance, as far as chance chose them (profile_sample.variance: offcpu, wall,
 * block, mutex, io): a value v recorded with probability p counts v/p and adds (1-p) * (v/p)^2 (Horvitz and Thompson,
 * Journal of the American Statistical Association 47, 1952). Where the sum of each thread is known besides (offcpu,
 * wall, bytes of io) this is more than what is open of a function in which a thread spends most of its time. How many
 * events there were has no interval. Pure. */
#ifndef PROFD_PROFILE_INTERVAL_H
#define PROFD_PROFILE_INTERVAL_H

#include "agent/profile/profile.h"

struct profile_interval {
	double lo, hi; /* 95 % */
};

/* Does the profile hold probed allocations? */
bool profile_is_probed(const struct profile *p);
/* Of every function's cumulative value, that of @value_index, by function id, and of the total behind them:
 * function_count + 1 entries, the caller's (free). -ENODATA if it is no estimate, -ENOMEM. */
int profile_intervals(const struct profile *p, unsigned value_index, struct profile_interval **ret) must_use;

#endif
