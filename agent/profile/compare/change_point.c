// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/compare/change_point.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAD_TO_SD      1.48
#define CLIP	       3.0
#define EDGE	       6u  /* points on each side of a change at least */
#define PART_LEAST     24u /* of a series that is searched again */
#define CORRELATION_MOST 0.9

struct scratch {
	double *clipped, *sorted;
};

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median_of(const double *values, size_t count, double *sorted)
{
	memcpy(sorted, values, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_value);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* Median of |value - centre|. */
static double deviation_of(const double *values, size_t count, double centre, double *sorted)
{
	for (size_t i = 0; i < count; i++)
		sorted[i] = fabs(values[i] - centre);
	qsort(sorted, count, sizeof(*sorted), by_value);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* One wild value must not move a mean. */
static void clip(const double *y, size_t count, struct scratch *s)
{
	double centre = median_of(y, count, s->sorted);
	double reach = CLIP * MAD_TO_SD * deviation_of(y, count, centre, s->sorted);

	/* If most values are equal, no spread tells which value is an outlier. */
	if (reach <= 0)
		reach = INFINITY;
	for (size_t i = 0; i < count; i++)
		s->clipped[i] = fmin(fmax(y[i], centre - reach), centre + reach);
}

static double mean_of(const double *values, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += values[i];
	return sum / (double)count;
}

/* The place of the largest |G_k|, and G_k. */
static size_t largest_step(const double *y, size_t count, double *ret_step)
{
	double all = mean_of(y, count) * (double)count, before = 0, n = (double)count;
	size_t best = 0;

	*ret_step = 0;
	for (size_t k = 1; k <= count - EDGE; k++) {
		double part = (double)k, step;

		before += y[k - 1];
		if (k < EDGE)
			continue;
		step = ((all - before) / (n - part) - before / part) * sqrt(part * (n - part) / n);
		if (fabs(step) > fabs(*ret_step)) {
			*ret_step = step;
			best = k;
		}
	}
	return best;
}

/* Long-run standard deviation: of residuals from the medians of both parts, widened by their
 * correlation. */
static double long_run_deviation(const double *y, size_t count, size_t at, struct scratch *s)
{
	double median[2], sd, products = 0, squares = 0, r;
	double *residual = s->clipped;

	median[0] = median_of(y, at, s->sorted);
	median[1] = median_of(y + at, count - at, s->sorted);
	for (size_t i = 0; i < count; i++)
		residual[i] = y[i] - median[i >= at];
	sd = MAD_TO_SD * deviation_of(residual, count, 0, s->sorted);
	for (size_t i = 0; i < count; i++)
		residual[i] = fmin(fmax(residual[i], -CLIP * sd), CLIP * sd);
	for (size_t i = 0; i < count; i++) {
		squares += residual[i] * residual[i];
		products += i ? residual[i] * residual[i - 1] : 0;
	}
	r = squares > 0 ? products / squares + 3 / (double)count : 0;
	r = fmin(fmax(r, 0), CORRELATION_MOST);
	return sd * sqrt((1 + r) / (1 - r));
}

/* The critical value of the maximum at 1 %, from simulation: 3.92 (60 points), 3.81 (288), 3.61
 * (2016). */
static double critical_value(size_t count)
{
	static const struct {
		double count, value;
	} known[] = { { 60, 3.92 }, { 288, 3.81 }, { 2016, 3.61 } };
	double n = log((double)count), low, high;
	size_t i = count < 288 ? 0 : 1;

	low = log(known[i].count);
	high = log(known[i + 1].count);
	n = fmin(fmax(n, low), high);
	return known[i].value +
	       (known[i + 1].value - known[i].value) * (n - low) / (high - low);
}

struct search {
	const double *y;
	struct change_point *found;
	size_t count, max;
	struct scratch scratch;
};

static void find_in(struct search *s, size_t from, size_t to)
{
	size_t count = to - from, at;
	double step, deviation, strength;

	if (count < PART_LEAST || s->count >= s->max)
		return;
	clip(s->y + from, count, &s->scratch);
	at = largest_step(s->scratch.clipped, count, &step);
	if (!at)
		return;
	deviation = long_run_deviation(s->y + from, count, at, &s->scratch);
	strength = deviation > 0 ? fabs(step) / deviation : step != 0 ? INFINITY : 0;
	if (strength <= critical_value(count))
		return;
	find_in(s, from, from + at);
	if (s->count < s->max)
		s->found[s->count++] = (struct change_point){ .at = from + at, .strength = strength };
	find_in(s, from + at, to);
}

/* The levels between neighbouring changes. */
static void set_levels(struct search *s, size_t count)
{
	for (size_t i = 0; i < s->count; i++) {
		size_t from = i ? s->found[i - 1].at : 0, at = s->found[i].at;
		size_t to = i + 1 < s->count ? s->found[i + 1].at : count;

		clip(s->y + from, at - from, &s->scratch);
		s->found[i].before = mean_of(s->scratch.clipped, at - from);
		clip(s->y + at, to - at, &s->scratch);
		s->found[i].after = mean_of(s->scratch.clipped, to - at);
	}
}

int change_points_find(const double *y, size_t count, struct change_point *ret, size_t max,
		       size_t *ret_count)
{
	cleanup_free double *clipped = calloc(count + 1, sizeof(*clipped));
	cleanup_free double *sorted = calloc(count + 1, sizeof(*sorted));
	struct search search = { .y = y, .found = ret, .max = max, .scratch = { clipped, sorted } };

	if (!clipped || !sorted)
		return -ENOMEM;
	if (count >= CHANGE_POINT_LEAST)
		find_in(&search, 0, count);
	set_levels(&search, count);
	*ret_count = search.count;
	return 0;
}
