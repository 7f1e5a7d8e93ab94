// SPDX-License-Identifier: Apache-2.0
/* Functions that are tested, and a row of a result from a tested function. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "agent/profile/compare/compare_internal.h"
#include "agent/profile/stats.h"

double compare_tau(const struct comparison *c, uint32_t function)
{
	return c->join.functions[function].kind == PROFILE_FRAME_KERNEL ? c->tau_kernel
									: c->tau_user;
}

int compare_candidates(struct comparison *c, bool cumulative, struct share_row **ret,
		       size_t *ret_count)
{
	struct share_row *rows = calloc((size_t)c->join.count + 1, sizeof(*rows));
	size_t used = 0;
	uint32_t i;
	int s;

	if (!rows)
		return -ENOMEM;
	for (i = 0; i < c->join.count; i++) {
		double share[2];

		for (s = 0; s < 2; s++) {
			double sum =
				cumulative ? (double)join_sum(&c->join, s, i, &c->m[s]->cumulative)
					   : c->sum[s][i];

			share[s] = c->total[s] > 0 ? sum / c->total[s] : 0;
		}
		if (share[0] + share[1] <= 0 || (share[0] + share[1]) / 2 < c->threshold / 2)
			continue;
		rows[used].function = i;
		/* A new unwinder or new symbols change names, not the program. */
		rows[used].doubtful = c->out->names_in_doubt && (share[0] <= 0 || share[1] <= 0);
		rows[used].barred = rows[used].doubtful;
		used++;
	}
	*ret = rows;
	*ret_count = used;
	return 0;
}

int compare_bands(struct comparison *c)
{
	cleanup_free double *share = calloc((size_t)c->join.count + 1, sizeof(*share));
	struct share_row *rows;
	int count;

	c->band_of = calloc((size_t)c->join.count + 1, sizeof(*c->band_of));
	if (!share || !c->band_of)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->join.count; i++)
		for (int s = 0; s < 2; s++)
			share[i] += c->total[s] > 0 ? c->sum[s][i] / c->total[s] / 2 : 0;
	count = share_bands(share, c->join.count, c->threshold / 2, c->band_of);
	if (count < 0)
		return count;
	rows = realloc(c->rows, (c->row_count + (size_t)count + 1) * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	c->rows = rows;
	c->band_count = (size_t)count;
	for (int i = 0; i < count; i++)
		rows[c->row_count + (size_t)i] = (struct share_row){
			.function = c->join.count + (uint32_t)i, .band = true, .barred = true
		};
	return 0;
}

static double cumulative_pct(const struct comparison *c, int s, uint32_t function)
{
	if (c->total[s] <= 0)
		return 0;
	return fmin(100, 100 * (double)join_sum(&c->join, s, function, &c->m[s]->cumulative) /
				 c->total[s]);
}

struct compare_function compare_element(const struct comparison *c, const struct share_row *row)
{
	const struct join_function *f = &c->join.functions[row->function];
	bool rate = profile_type_info(c->m[0]->type)->rate;
	double t = stats_t_quantile(c->q, row->df > 0 ? row->df : 1) * sqrt(row->variance);
	struct compare_function element = {
		.name = f->name,
		.package = f->package,
		.file = f->file,
		.line = f->line,
		.kind = f->kind,
		.change = c->sum[0][row->function] <= 0	  ? COMPARE_NEW
			  : c->sum[1][row->function] <= 0 ? COMPARE_GONE
							  : COMPARE_CHANGED,
		.base_pct = 100 * row->base,
		.comparison_pct = 100 * row->comparison,
		.delta_pct = 100 * row->delta,
		.base_cumulative_pct = cumulative_pct(c, 0, row->function),
		.comparison_cumulative_pct = cumulative_pct(c, 1, row->function),
		.base_value = row->base * c->total[0] / (rate ? c->seconds[0] : 1),
		.comparison_value = row->comparison * c->total[1] / (rate ? c->seconds[1] : 1),
		.p_value = row->p,
		.q_value = row->q,
		.interval = { 100 * (row->delta - t), 100 * (row->delta + t) },
		.cost_delta_pct = 100 * row->cost_delta,
		.cost_growth =
			row->base > 0 ? row->comparison / (c->scale * row->base) - 1 : INFINITY,
		.environment = f->flags & WINDOW_FUNCTION_ENVIRONMENT,
	};

	return element;
}
