/* SPDX-License-Identifier: Apache-2.0 */
/* The plain difference of two goroutine profiles (POST /diff): stacks that appeared, grew and
 * disappeared. Exact arithmetic on two totals, without a verdict; compare.h judges. Pure,
 * thread-safe. */
#ifndef PROFD_PROFILE_PROFILE_DIFF_H
#define PROFD_PROFILE_PROFILE_DIFF_H

#include "agent/profile/goroutine/goroutine_analysis.h"

/* A goroutine stack of either side. Its identity is function names in order and creator; state and
 * wait reason are those of its largest group on the side where it is listed. */
struct diff_stack {
	const struct goroutine_analysis *side; /* owner of texts and frames of @stack */
	const struct goroutine_stack *stack;
	uint64_t base_count, compare_count;
};

struct diff_function {
	const char *name, *package, *file; /* borrowed from the profiles */
	uint32_t line;
	int64_t base_self, compare_self, base_cumulative, compare_cumulative; /* main value */
	double base_pct, compare_pct; /* of self in the side's total */
};

struct profile_diff {
	/* goroutine profiles */
	struct goroutine_analysis base, compare;
	struct diff_stack *new_stacks, *grown_stacks, *removed_stacks; /* largest change first */
	uint32_t new_count, grown_count, removed_count;
	uint64_t growth_count; /* sum over stacks of max(0, compare - base) */
	int64_t net_growth;    /* goroutines of compare - goroutines of base */
	/* all other types: every function of either side, largest change of share first */
	struct diff_function *functions;
	uint32_t function_count;
};

/* -EINVAL when types differ, @ret untouched; -ENOMEM, @ret empty. Both profiles are borrowed by the
 * result, which points into itself: it must not be moved. */
int profile_diff_init(struct profile_diff *ret, const struct profile *base,
		      const struct profile *compare, const struct goroutine_options *options)
	must_use;
void profile_diff_deinit(struct profile_diff *diff);
static inline void cleanup_profile_diff_fn(struct profile_diff *diff)
{
	profile_diff_deinit(diff);
}
#define cleanup_profile_diff __attribute__((__cleanup__(cleanup_profile_diff_fn)))

#endif
