// SPDX-License-Identifier: Apache-2.0
/* A stored window matrix is outside input: whatever is accepted can be written again, read back the
 * same and coarsened without losing value; a comparison with it ends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static double sum(const struct window_matrix *m)
{
	double total = 0;
	uint32_t i;

	for (i = 0; i < m->window_count; i++)
		total += (double)m->totals[i];
	return total;
}

static void compare_with_itself(const struct window_matrix *m)
{
	struct profile_meta meta = { .type = m->type };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 10);
	cleanup(profile) struct profile *p = NULL;
	struct compare_side side = { .windows = m, .runqueue_share = -1 };
	cleanup_compare struct compare c = { 0 };

	if (profile_builder_finish(b, &quality, &p) < 0)
		abort();
	side.profile = p;
	if (compare_init(&c, &side, &side, NULL) < 0 || c.regression_count || c.improvement_count)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup(window_matrix) struct window_matrix *m = NULL, *again = NULL, *coarse = NULL;
	cleanup_buf struct buf first = { 0 }, second = { 0 };

	if (window_matrix_read(data, size, &m) < 0)
		return 0;
	window_matrix_write(m, &first);
	if (first.error || window_matrix_read(first.data, first.len, &again) < 0)
		abort();
	window_matrix_write(again, &second);
	if (second.len != first.len || memcmp(first.data, second.data, first.len) != 0)
		abort();
	if (window_matrix_coarsen(m, 1 + size % 5, &coarse) < 0)
		abort();
	if (sum(m) < 9e15 && sum(coarse) != sum(m))
		abort();
	compare_with_itself(m);
	return 0;
}
