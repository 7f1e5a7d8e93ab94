// SPDX-License-Identifier: Apache-2.0
/* Matrices with fewer windows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/compare/window_internal.h"

static int coarsen_cells(const struct window_cells *from, uint32_t function_count, uint32_t factor,
			 uint32_t window_count, struct window_cells *ret)
{
	__attribute__((__cleanup__(
		window_cells_list_vec_deinit))) struct window_cells_list_vec list = { 0 };
	uint32_t f, i;
	int rc;

	for (f = 0; f < function_count; f++) {
		for (i = from->first[f]; i < from->first[f + 1]; i++) {
			uint32_t window = from->window[i] / factor;
			struct window_cell *last = list.count ? &list.data[list.count - 1] : NULL;

			window = window < window_count ? window : window_count - 1;
			if (last && last->function == f && last->window == window) {
				last->value = profile_add(last->value, from->value[i]);
				continue;
			}
			rc = window_cells_list_vec_push(
				&list, (struct window_cell){ f, window, from->value[i] });
			if (rc < 0)
				return rc;
		}
	}
	return window_cells_make(&list, function_count, ret);
}

static int64_t *coarsen_totals(const int64_t *from, uint32_t from_count, uint32_t factor,
			       uint32_t count)
{
	int64_t *totals = calloc(count, sizeof(*totals));
	uint32_t i;

	for (i = 0; totals && i < from_count; i++) {
		uint32_t to = i / factor < count ? i / factor : count - 1;

		totals[to] = profile_add(totals[to], from[i]);
	}
	return totals;
}

/* A copy of an array; an empty one gets one unused element so that NULL means failure. */
static void *copy_array(const void *from, size_t count, size_t size)
{
	void *copy = calloc(count + 1, size);

	if (copy && count)
		memcpy(copy, from, count * size);
	return copy;
}

static int coarsen_strata(const struct window_matrix *m, uint32_t factor, struct window_matrix *to)
{
	uint32_t k;
	int rc = 0;

	if (!m->stratum_count)
		return 0;
	to->strata = calloc(m->stratum_count, sizeof(*to->strata));
	if (!to->strata)
		return -ENOMEM;
	to->stratum_count = m->stratum_count;
	for (k = 0; rc == 0 && k < m->stratum_count; k++) {
		to->strata[k].name = m->strata[k].name;
		to->strata[k].totals = coarsen_totals(m->strata[k].totals, m->window_count, factor,
						      to->window_count);
		if (!to->strata[k].totals)
			return -ENOMEM;
		rc = coarsen_cells(&m->strata[k].self, m->function_count, factor, to->window_count,
				   &to->strata[k].self);
	}
	return rc;
}

int window_matrix_coarsen(const struct window_matrix *m, uint32_t factor,
			  struct window_matrix **ret)
{
	cleanup(window_matrix) struct window_matrix *to = NULL;
	int rc;

	if (!factor)
		return -EINVAL;
	to = calloc(1, sizeof(*to));
	if (!to)
		return -ENOMEM;
	*to = *m;
	to->self = to->cumulative = (struct window_cells){ 0 };
	to->strata = NULL;
	to->stratum_count = 0;
	to->window_count = m->window_count / factor ? m->window_count / factor : 1;
	to->window_ns = m->window_ns * factor;
	to->text = copy_array(m->text, m->text_len, 1);
	to->functions = copy_array(m->functions, m->function_count, sizeof(*m->functions));
	to->lives = copy_array(m->lives, m->life_count, sizeof(*m->lives));
	to->totals = coarsen_totals(m->totals, m->window_count, factor, to->window_count);
	if (!to->text || !to->functions || !to->lives || !to->totals)
		return -ENOMEM;
	rc = coarsen_cells(&m->self, m->function_count, factor, to->window_count, &to->self);
	if (rc == 0)
		rc = coarsen_cells(&m->cumulative, m->function_count, factor, to->window_count,
				   &to->cumulative);
	if (rc == 0)
		rc = coarsen_strata(m, factor, to);
	if (rc == 0)
		*ret = take_ptr(to);
	return rc;
}
