// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/compare/hour_outliers.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/intern.h"
#include "agent/base/vec.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/compare/share_changes.h"
#include "agent/profile/stats.h"

#define MAD_TO_SD	1.48
#define SAMPLING_LEAST	0.8  /* of the standard error of sampling: the spread is never less */
#define CENTRE_NOISE	1.57 /* variance of a median over that of a mean */
#define SPREAD_DF	20.0
#define CONFIDENCE_REST 0.01

struct entry {
	const char *name, *package, *file;
	uint32_t function; /* of the hour's matrix, UINT32_MAX = not in it */
	uint8_t flags;	   /* enum window_function_flag */
	double now, past[HOUR_OUTLIERS_PAST_MAX]; /* shares */
};
VEC_DEFINE(entries, struct entry);

struct work {
	const struct window_matrix *hour;
	const struct window_matrix *past[HOUR_OUTLIERS_PAST_MAX]; /* those with enough samples */
	uint32_t past_at[HOUR_OUTLIERS_PAST_MAX];		      /* their place in the caller's list */
	uint32_t past_count;
	const struct hour_options *options;
	struct entries_vec entries;
	struct intern index;
};

static void work_deinit(struct work *w)
{
	entries_vec_deinit(&w->entries);
	intern_deinit(&w->index);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static double total_of(const struct window_matrix *m)
{
	double total = 0;

	for (uint32_t i = 0; i < m->window_count; i++)
		total += (double)m->totals[i];
	return total;
}

static double self_of(const struct window_matrix *m, uint32_t function)
{
	double sum = 0;

	for (uint32_t i = m->self.first[function]; i < m->self.first[function + 1]; i++)
		sum += (double)m->self.value[i];
	return sum;
}

static struct entry *find_entry(struct work *w, const struct window_matrix *m,
				const struct window_function *f)
{
	const char *name = window_text(m, f->name), *package = window_text(m, f->package);
	uint64_t hash = hash_bytes(package, strlen(package), hash_bytes(name, strlen(name), 0));
	struct intern_probe probe = intern_probe(&w->index, hash);
	uint32_t id;

	while ((id = intern_next(&w->index, &probe)) != INTERN_NONE) {
		struct entry *e = &w->entries.data[id];

		if (!strcmp(e->name, name) && !strcmp(e->package, package))
			return e;
	}
	if (intern_add(&w->index, hash, (uint32_t)w->entries.count) < 0 ||
	    entries_vec_push(&w->entries, (struct entry){ .name = name,
							  .package = package,
							  .file = window_text(m, f->file),
							  .function = UINT32_MAX }) < 0)
		return NULL;
	return &w->entries.data[w->entries.count - 1];
}

/* @slot: of past[], UINT32_MAX = the hour itself. */
static int add_shares(struct work *w, const struct window_matrix *m, uint32_t slot)
{
	double total = total_of(m);

	for (uint32_t f = 0; f < m->function_count; f++) {
		double share = total > 0 ? self_of(m, f) / total : 0;
		struct entry *e = share > 0 ? find_entry(w, m, &m->functions[f]) : NULL;

		if (share <= 0)
			continue;
		if (!e)
			return -ENOMEM;
		e->flags |= m->functions[f].flags;
		if (slot != UINT32_MAX) {
			e->past[slot] += share;
			continue;
		}
		e->now += share;
		e->function = f;
	}
	return 0;
}

/* ---- the range of the past ------------------------------------------------------------------- */

/* Median of @values, which are sorted. */
static double median(double *values, uint32_t count)
{
	return stats_quantile(values, count, 0.5);
}

struct range {
	double centre, spread; /* of one hour's share */
	uint32_t hours;
};

/* The spread comes from differences of neighbouring hours, so that a slow trend does not widen it.
 */
static struct range range_of(const struct work *w, const struct entry *e)
{
	double kept[HOUR_OUTLIERS_PAST_MAX], steps[HOUR_OUTLIERS_PAST_MAX], middle;
	struct range range = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->past_count; i++)
		if (!w->options->counts ||
		    w->options->counts(w->options->ctx, w->past_at[i], e->name, e->package))
			kept[n++] = e->past[i];
	range.hours = n;
	if (n < 2)
		return range;
	for (uint32_t i = 0; i + 1 < n; i++)
		steps[i] = kept[i + 1] - kept[i];
	middle = median(steps, n - 1);
	for (uint32_t i = 0; i + 1 < n; i++)
		steps[i] = fabs(steps[i] - middle);
	range.spread = MAD_TO_SD * median(steps, n - 1) / sqrt(2);
	range.centre = median(kept, n);
	return range;
}

/* Variance of the share over its binomial one, from blocks of the hour's minutes; @share: the
 * hour's own. Around any other its change would count as its spread: nothing could be more certain
 * than 6.7 standard errors, and all functions of a steady hour were equally so. */
static double dispersion(const struct window_matrix *m, uint32_t function, double share)
{
	uint32_t length = share_block_windows(m->window_count, m->window_count);
	uint32_t blocks = m->window_count / length ? m->window_count / length : 1, at = 0;
	double total = total_of(m) * m->scale, sum = 0;

	if (function == UINT32_MAX || blocks < 2 || share <= 0 || share >= 1 || total <= 0)
		return 1;
	at = m->self.first[function];
	for (uint32_t b = 0; b < blocks; b++) {
		uint32_t end = b + 1 < blocks ? (b + 1) * length : m->window_count;
		double residual = 0;

		for (uint32_t i = b * length; i < end; i++)
			residual -= share * (double)m->totals[i];
		for (; at < m->self.first[function + 1] && m->self.window[at] < end; at++)
			residual += (double)m->self.value[at];
		residual *= m->scale;
		sum += residual * residual;
	}
	return fmax(1, (double)blocks / total * sum / ((blocks - 1) * share * (1 - share)));
}

/* Standard error of the hour's share from sampling; 0 for types without samples. */
static double sampling_error(const struct work *w, const struct entry *e, double centre)
{
	const struct window_matrix *m = w->hour;
	double share = (e->now + centre) / 2, samples = total_of(m) * m->scale;
	double drift = share_drift_least(m->window_count, m->window_count);

	if (samples <= 0)
		return 0;
	return sqrt(dispersion(m, e->function, e->now) * drift * share * (1 - share) / samples);
}

static bool fill_row(const struct work *w, uint32_t at, struct share_row *row)
{
	const struct entry *e = &w->entries.data[at];
	struct range range = range_of(w, e);
	double spread;

	if (range.hours < HOUR_OUTLIERS_PAST_LEAST ||
	    (e->now + range.centre) / 2 < w->options->threshold / 2)
		return false;
	spread = fmax(range.spread, SAMPLING_LEAST * sampling_error(w, e, range.centre)) *
		 sqrt(1 + CENTRE_NOISE / range.hours);
	*row = (struct share_row){ .function = at,
				   .base = range.centre,
				   .comparison = e->now,
				   .pooled = (e->now + range.centre) / 2,
				   .delta = e->now - range.centre,
				   .variance = spread * spread,
				   /* Functions of the host and idle waits are never changes. */
				   .barred = e->flags & (WINDOW_FUNCTION_ENVIRONMENT | WINDOW_FUNCTION_IDLE),
				   .df = SPREAD_DF };
	return true;
}

/* ---- the test -------------------------------------------------------------------------------- */

static int by_change(const void *a, const void *b)
{
	const struct hour_function *x = a, *y = b;
	double dx = fabs(x->comparison - x->base), dy = fabs(y->comparison - y->base);

	if (dx != dy)
		return dx > dy ? -1 : 1;
	return strcmp(x->name, y->name);
}

static struct hour_function element(const struct work *w, const struct share_row *row)
{
	const struct entry *e = &w->entries.data[row->function];
	double error = sqrt(row->variance);
	double half = stats_t_quantile(CONFIDENCE_REST, row->df) * error;

	return (struct hour_function){ .name = e->name,
				       .package = e->package,
				       .file = e->file,
				       .base = row->base,
				       .comparison = row->comparison,
				       .z = error > 0 ? row->delta / error
					    : row->delta != 0 ? copysign(INFINITY, row->delta)
							      : 0,
				       .p = row->p,
				       .q = row->q,
				       .interval = { row->delta - half, row->delta + half },
				       .changed = row->changed };
}

static int test(struct work *w, struct hour_function **ret, size_t *ret_count)
{
	struct share_limits limits = { w->options->threshold, w->options->q, { 1, 1 }, 0 };
	cleanup_free struct share_row *rows = calloc(w->entries.count + 1, sizeof(*rows));
	struct hour_function *list = calloc(w->entries.count + 1, sizeof(*list));
	size_t count = 0;
	struct share_fit fit;
	int rc = rows && list ? 0 : -ENOMEM;

	for (uint32_t i = 0; rc == 0 && i < w->entries.count; i++)
		count += fill_row(w, i, &rows[count]);
	if (rc == 0)
		rc = share_rows_test(rows, count, &limits, true, &fit);
	if (rc < 0) {
		free(list);
		return rc;
	}
	for (size_t i = 0; i < count; i++)
		list[i] = element(w, &rows[i]);
	qsort(list, count, sizeof(*list), by_change);
	*ret = list;
	*ret_count = count;
	return 0;
}

static bool has_samples(const struct window_matrix *m)
{
	double total = total_of(m);

	return m->scale > 0 ? total * m->scale >= SHARE_SAMPLES_LEAST : total > 0;
}

int hour_outliers(const struct window_matrix *hour, const struct window_matrix *const *past,
	      uint32_t past_count, const struct hour_options *options, struct hour_function **ret,
	      size_t *ret_count)
{
	__attribute__((__cleanup__(work_deinit))) struct work w = { .hour = hour,
								    .options = options };
	int rc = has_samples(hour) ? 0 : -ENODATA;

	if (rc == 0)
		rc = add_shares(&w, hour, UINT32_MAX);
	for (uint32_t i = 0; rc == 0 && i < past_count && w.past_count < HOUR_OUTLIERS_PAST_MAX; i++) {
		if (!past[i] || !has_samples(past[i]))
			continue;
		w.past[w.past_count] = past[i];
		w.past_at[w.past_count] = i;
		rc = add_shares(&w, past[i], w.past_count++);
	}
	if (rc == 0 && w.past_count < HOUR_OUTLIERS_PAST_LEAST)
		rc = -ENODATA;
	return rc < 0 ? rc : test(&w, ret, ret_count);
}
