// SPDX-License-Identifier: Apache-2.0
/* How often the truth lies inside the interval of what is in use: simulated sites whose blocks live
 * in five ways, under few and many windows. Lives, rates and windows are drawn for each run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/alloc/alloc_heap.h"

#define RUNS	     200
#define BYTES	     100
#define DURATION_S   30.0
#define BLOCKS_MAX   20000
#define BIRTHS	     50000 /* by which the truth is counted */
#define FOUND_FREE   0.9   /* of unseen ends: headers tell that it is free, or another size */
#define OTHERS_LIFE_S 1.0  /* of blocks elsewhere, which use half of the other addresses */
#define QUANTILE     2.0   /* of a standard deviation, as 60 windows have it */

enum kind { QUARTER_KEPT, QUEUE, CACHE, KEPT, MIXED, KINDS };

struct block {
	uint64_t address;
	double dies_s;
};

struct run {
	enum kind kind;
	double hz, life_s;
	double period_s, window_s, sampled; /* share of births in a window */
	struct block blocks[BLOCKS_MAX];
	uint32_t count;
	uint64_t addresses;
};

struct seen {
	double bytes, error;
	bool unsure;
};

static uint64_t seed;

static double uniform(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (double)(seed >> 11) * 0x1p-53;
}

static double exponential(double mean)
{
	return -mean * log(1 - uniform());
}

static double scale(double low, double high)
{
	return low * pow(high / low, uniform());
}

static double draw_life(const struct run *run)
{
	switch (run->kind) {
	case QUARTER_KEPT:
		return uniform() < 0.75 ? 1e-6 + exponential(2e-6) : INFINITY;
	case QUEUE:
		return run->life_s * (0.98 + 0.04 * uniform());
	case CACHE:
		return exponential(run->life_s);
	case KEPT:
		return INFINITY;
	default:
		return uniform() < 0.9	 ? exponential(1e-4)
		       : uniform() < 0.5 ? exponential(run->life_s)
					 : INFINITY;
	}
}

static uint64_t ns(double s)
{
	return (uint64_t)(s * 1e9);
}

/* Followed blocks that ended before @open_s, which nobody saw. */
static void pass_unseen(struct run *run, struct alloc_heap *heap, double open_s)
{
	for (uint32_t i = 0; i < run->count; i++) {
		struct block *block = &run->blocks[i];

		while (block->dies_s < open_s && uniform() >= FOUND_FREE)
			block->dies_s += exponential(1e-3) +
					 (uniform() < 0.5 ? draw_life(run) : exponential(OTHERS_LIFE_S));
		if (block->dies_s >= open_s)
			continue;
		(void)alloc_heap_gone(heap, block->address, ns(block->dies_s), false);
		*block = run->blocks[--run->count];
		i--;
	}
}

/* @blind: a light window, which sees no block end. */
static void open_window(struct run *run, struct alloc_heap *heap, double begin_s, bool blind)
{
	const double open_s = begin_s + uniform() * (run->period_s - run->window_s);
	const double close_s = open_s + run->window_s, rate = run->hz * run->sampled;
	const struct alloc_window window = { .begin_ns = ns(begin_s),
					     .end_ns = ns(begin_s + run->period_s),
					     .open_ns = ns(open_s),
					     .close_ns = ns(close_s),
					     .weight = run->period_s / run->window_s,
					     .dilation = 1,
					     .blind = blind };

	pass_unseen(run, heap, open_s);
	for (double t = open_s + exponential(1 / rate); t < close_s; t += exponential(1 / rate)) {
		const struct alloc_birth birth = {
			.stack = 1,
			.time_ns = ns(t),
			.bytes = BYTES,
			.gap_bytes = run->sampled < 1 ? (uint64_t)(-BYTES / log(1 - run->sampled)) : 0,
			.address = ++run->addresses
		};

		assert_int_equal(alloc_heap_birth(heap, &birth), 0);
		assert_true(run->count < BLOCKS_MAX);
		run->blocks[run->count++] = (struct block){ birth.address, t + draw_life(run) };
	}
	for (uint32_t i = 0; i < run->count && !blind; i++) {
		struct block *block = &run->blocks[i];

		if (block->dies_s >= close_s)
			continue;
		(void)alloc_heap_gone(heap, block->address, ns(block->dies_s), true);
		*block = run->blocks[--run->count];
		i--;
	}
	alloc_heap_close(heap, &window);
}

static int note_live(void *ctx, const struct alloc_live *live)
{
	struct seen *seen = ctx;

	seen->bytes += live->bytes;
	seen->error = live->error;
	seen->unsure = live->unsure;
	return 0;
}

/* Whether the truth is inside, by the interval of agent/profile/memory/interval.c. */
static bool is_inside(enum kind kind, unsigned number, double windows_low, double windows_high)
{
	struct run *run = calloc(1, sizeof(*run));
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	struct seen seen = { 0 };
	double births, truth = 0, width;
	unsigned windows;

	assert_true(run && heap);
	seed = 88172645463325252ull + (number * KINDS + kind + 1) * 802009151ull;
	for (int i = 0; i < 20; i++)
		(void)uniform();
	run->kind = kind;
	run->hz = scale(500, 30000);
	run->life_s = scale(0.02, 10);
	windows = (unsigned)scale(windows_low, windows_high);
	run->period_s = DURATION_S / windows;
	run->window_s = scale(0.004, 0.02);
	run->sampled = fmin(scale(2, 40) / (run->hz * run->window_s), 1);
	births = run->hz * DURATION_S;
	for (unsigned i = 0; i < BIRTHS; i++)
		if (uniform() * DURATION_S + draw_life(run) > DURATION_S)
			truth += BYTES * births / BIRTHS;
	for (unsigned i = 0; i < windows; i++)
		open_window(run, heap, i * run->period_s, i % 3 == 2);
	free(run);
	assert_int_equal(alloc_heap_each_live(heap, ns(DURATION_S), note_live, &seen), 0);
	width = exp(QUANTILE * sqrt(log1p(seen.error * seen.error)));
	return truth <= seen.bytes * width && (seen.unsure || truth >= seen.bytes / width);
}

static void test_coverage(void **state)
{
	static const char *const names[KINDS] = { "a quarter kept", "queue", "cache", "kept", "mixed" };
	static const double windows[][2] = { { 9, 25 }, { 40, 110 } };
	unsigned all = 0;

	for (unsigned kind = 0; kind < KINDS; kind++)
		for (unsigned few = 0; few < 2; few++) {
			unsigned inside = 0;

			for (unsigned i = 0; i < RUNS; i++)
				inside += is_inside((enum kind)kind, i, windows[few][0], windows[few][1]);
			print_message("%s, %.0f to %.0f windows: %.1f %% inside\n", names[kind],
				      windows[few][0], windows[few][1], 100.0 * inside / RUNS);
			assert_true(inside >= 0.75 * RUNS);
			all += inside;
		}
	print_message("all: %.1f %% inside\n", 100.0 * all / (2 * KINDS * RUNS));
	assert_true(all >= 0.9 * 2 * KINDS * RUNS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_coverage),
	};

	return cmocka_run_group_tests_name("alloc_coverage", tests, NULL, NULL);
}
