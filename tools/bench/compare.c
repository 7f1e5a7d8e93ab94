// SPDX-License-Identifier: Apache-2.0
/* Time of one comparison of 5,000 functions by 60 windows on each side, without reading the store:
 * prints the milliseconds of CPU time of the median of 21. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/profile/compare/compare.h"

#define FUNCTIONS 5000u
#define WINDOWS	  60u
#define OFTEN                                                                                      \
	18u /* windows in which a function was seen: 180,000 cells together, as measured on        \
	       programs */
#define ROUNDS	  21

static uint64_t random_state = 1;

static uint64_t draw(uint64_t below)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return hash_mix64(random_state) % below;
}

static int fill_names(struct window_matrix *m)
{
	cleanup_buf struct buf text = { 0 };

	buf_add(&text, "\0app\0", 6);
	for (uint32_t f = 0; f < FUNCTIONS; f++) {
		m->functions[f] = (struct window_function){ .name = (uint32_t)text.len, .package = 1 };
		buf_printf(&text, "namespace::some_function_%u", f);
		buf_add_char(&text, '\0');
	}
	m->text_len = (uint32_t)text.len;
	m->text = buf_take(&text, NULL);
	return m->text ? 0 : -1;
}

/* Few functions are hot, as in programs. */
static void fill_cells(struct window_matrix *m)
{
	for (uint32_t f = 0; f < FUNCTIONS; f++) {
		uint32_t skip = (uint32_t)draw(WINDOWS - OFTEN + 1);

		m->self.first[f] = m->self.count;
		for (uint32_t i = skip; i < skip + OFTEN; i++) {
			int64_t value = 1 + (int64_t)draw(3) + (f < 100 ? 2000 / (1 + f) : 0);

			m->self.window[m->self.count] = i;
			m->self.value[m->self.count++] = value;
			m->totals[i] += value;
		}
	}
	m->self.first[FUNCTIONS] = m->self.count;
}

static int make_cells(struct window_cells *cells)
{
	cells->first = calloc(FUNCTIONS + 1, sizeof(*cells->first));
	cells->window = calloc((size_t)FUNCTIONS * OFTEN, sizeof(*cells->window));
	cells->value = calloc((size_t)FUNCTIONS * OFTEN, sizeof(*cells->value));
	return cells->first && cells->window && cells->value ? 0 : -1;
}

static struct window_matrix *make_matrix(void)
{
	cleanup(window_matrix) struct window_matrix *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	*m = (struct window_matrix){ .type = PROFILE_CPU, .window_ns = NS_PER_S,
				     .duration_ns = WINDOWS * NS_PER_S, .scale = 1,
				     .window_count = WINDOWS, .function_count = FUNCTIONS,
				     .effective_lives = 1 };
	m->functions = calloc(FUNCTIONS, sizeof(*m->functions));
	m->totals = calloc(WINDOWS, sizeof(*m->totals));
	if (!m->functions || !m->totals || make_cells(&m->self) < 0 ||
	    make_cells(&m->cumulative) < 0 || fill_names(m) < 0)
		return NULL;
	fill_cells(m);
	return take_ptr(m);
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(void)
{
	static struct profile empty = { .meta = { .type = PROFILE_CPU } };
	cleanup(window_matrix) struct window_matrix *base = make_matrix();
	cleanup(window_matrix) struct window_matrix *other = make_matrix();
	struct compare_side sides[2] = { { .profile = &empty, .windows = base, .runqueue_share = -1 },
					 { .profile = &empty, .windows = other, .runqueue_share = -1 } };
	double ms[ROUNDS];

	for (int i = 0; base && other && i < ROUNDS; i++) {
		struct compare c = { 0 };
		struct timespec from, to;

		(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
		if (compare_init(&c, &sides[0], &sides[1], NULL) < 0)
			return 1;
		(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
		compare_deinit(&c);
		ms[i] = (double)(to.tv_sec - from.tv_sec) * 1e3 +
			(double)(to.tv_nsec - from.tv_nsec) / 1e6;
	}
	if (!base || !other)
		return 1;
	qsort(ms, ROUNDS, sizeof(ms[0]), by_value);
	(void)printf("%.3f\n", ms[ROUNDS / 2]);
	return 0;
}
