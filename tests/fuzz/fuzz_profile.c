// SPDX-License-Identifier: Apache-2.0
/* Bytes as a program for the builder and the stack resolver, then every operation on the result:
 * stacks of any frame words, any attributes, values and times. Sums must agree however the profile
 * is looked at. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/compare/compare.h"
#include "agent/profile/compare/flame_diff.h"
#include "agent/profile/goroutine/goroutine_analysis.h"
#include "agent/profile/heatmap.h"
#include "agent/profile/profile_fold.h"
#include "agent/profile/goroutine/profile_diff.h"
#include "tests/fuzz/profile_of_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sums(const struct profile *p)
{
	cleanup_free int64_t *self = NULL, *total = NULL;
	cleanup_free struct profile_function_row *rows = NULL;
	int64_t sum = 0, root = 0;
	size_t count, i;

	if (profile_node_values(p, &self, &total) < 0 ||
	    profile_top_functions(p, profile_value_index(p), &rows, &count) < 0)
		abort();
	for (i = 0; i < count; i++) {
		sum += rows[i].self;
		if (rows[i].self > rows[i].cumulative || rows[i].cumulative > total[0])
			abort();
	}
	for (i = 0; i < p->sample_count && !p->samples[i].node; i++)
		root += p->samples[i].values[profile_value_index(p)];
	if (total[0] != p->totals[profile_value_index(p)] || sum + root != total[0])
		abort();
}

static void check_operations(struct profile *p, struct profile *q)
{
	struct profile_filter group = { .group_by = "tid" };
	cleanup(profile) struct profile *merged = NULL, *grouped = NULL, *folded = NULL;
	cleanup_goroutine_analysis struct goroutine_analysis analysis = { 0 };
	cleanup_flame_diff struct flame_diff flames = { 0 };
	struct compare_side sides[2] = { { .profile = p, .runqueue_share = -1 },
					 { .profile = q, .runqueue_share = -1 } };
	unsigned k = profile_value_index(p);
	int64_t twice = profile_type_info(p->meta.type)->rate ? 2 : 1; /* of a level it is the mean */

	if (profile_merge((struct profile *[]){ p, p }, 2, &merged) < 0 ||
	    merged->totals[k] != twice * p->totals[k])
		abort();
	if (profile_select(p, &group, &grouped) < 0 || grouped->totals[k] != p->totals[k])
		abort();
	if (profile_fold(p, &folded) < 0 || folded->totals[k] != p->totals[k])
		abort();
	check_sums(folded);
	check_sums(merged);
	(void)!goroutine_analysis_init(&analysis, p, &(struct goroutine_options){ 0 });
	if (flame_diff_init(&flames, p, merged, 5) < 0 || flames.total[0] != p->totals[k])
		abort();
	if (p->meta.type == q->meta.type) {
		cleanup_compare struct compare c = { 0 };
		cleanup_profile_diff struct profile_diff diff = { 0 };

		if (compare_init(&c, &sides[0], &sides[1], NULL) < 0 ||
		    profile_diff_init(&diff, p, q, &(struct goroutine_options){ 0 }) < 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = bytes_of(data, size / 2),
		     rest = bytes_of(data + size / 2, size - size / 2);
	cleanup(profile) struct profile *p = profile_of_bytes(&in), *q = profile_of_bytes(&rest);

	q->meta.type = size % 3 && profile_type_info(q->meta.type)->value_count ==
					       profile_type_info(p->meta.type)->value_count
			       ? p->meta.type
			       : q->meta.type;
	check_sums(p);
	check_operations(p, q);
	return 0;
}
