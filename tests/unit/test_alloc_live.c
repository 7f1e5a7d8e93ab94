// SPDX-License-Identifier: Apache-2.0
/* Statements about followed allocations besides their survival: which places keep what they
 * allocate, and what the chunks around an allocation tell. Each test checks one rule alone. */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/alloc/alloc_headers.h"
#include "agent/collect/alloc/alloc_heap.h"
#include "agent/collect/alloc/alloc_look.h"

#define SITE 1

static int note_live(void *ctx, const struct alloc_live *live)
{
	struct alloc_live *sum = ctx;

	if (live->stack != SITE)
		return 0;
	sum->bytes += live->bytes;
	sum->error = live->error;
	sum->deaths = live->deaths;
	sum->old = live->old;
	sum->few = live->few;
	sum->unsure = live->unsure;
	sum->least_bytes = live->least_bytes;
	sum->most_bytes = live->most_bytes;
	return 0;
}

static struct alloc_live live_at(const struct alloc_heap *heap, double now_s)
{
	struct alloc_live sum = { 0 };

	assert_int_equal(alloc_heap_each_live(heap, (uint64_t)(now_s * 1e9), note_live, &sum), 0);
	return sum;
}

static void born(struct alloc_heap *heap, uint64_t address, double at_s)
{
	const struct alloc_birth birth = {
		.stack = SITE, .time_ns = (uint64_t)(at_s * 1e9), .bytes = 100, .address = address
	};

	assert_int_equal(alloc_heap_birth(heap, &birth), 0);
}

/* A window that was open for all of its period. */
static void observed(struct alloc_heap *heap, double from_s, double to_s)
{
	const struct alloc_window window = { .begin_ns = (uint64_t)(from_s * 1e9),
					     .end_ns = (uint64_t)(to_s * 1e9),
					     .open_ns = (uint64_t)(from_s * 1e9),
					     .close_ns = (uint64_t)(to_s * 1e9),
					     .weight = 1,
					     .dilation = 1 };

	alloc_heap_close(heap, &window);
}

/* ---- leaks ----------------------------------------------------------------------------------- */

/* @count addresses born at 1 s. */
static struct alloc_heap *followed(uint64_t count)
{
	struct alloc_heap *heap = alloc_heap_create();

	assert_non_null(heap);
	for (uint64_t address = 1; address <= count; address++)
		born(heap, address, 1);
	observed(heap, 0, 2);
	return heap;
}

/* Looks at @count addresses each second up to @until_s: what is in them stays, or is another each
 * time. */
static void look_at(struct alloc_heap *heap, uint64_t count, double until_s, bool changes)
{
	for (uint64_t second = 3; (double)second < until_s; second++)
		for (uint64_t address = 1; address <= count; address++)
			alloc_heap_looked(heap, address, changes ? second : 1, second * NS_PER_S);
}

/* A cache's address that is freed and used again between two windows is never seen to end: what is
 * in it tells. */
static void test_contents_that_change(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *kept = followed(10), *cache = followed(10);

	look_at(kept, 10, 60, false);
	look_at(cache, 10, 60, true);
	assert_int_equal(live_at(kept, 60).old, 10);
	assert_int_equal(live_at(cache, 60).old, 0);
	/* It became a leak half a minute ago. */
	for (uint64_t second = 60; second < 76; second++)
		for (uint64_t address = 1; address <= 10; address++)
			alloc_heap_looked(cache, address, 1, second * NS_PER_S);
	assert_int_equal(live_at(cache, 76).old, 10);
}

/* A table may be written for ever: many of which none ended are believed, those that end now and
 * then are not. */
static void test_many_that_change(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *table = followed(25), *seen = followed(26),
					      *unseen = followed(27);

	look_at(table, 25, 60, true);
	look_at(seen, 26, 60, true);
	look_at(unseen, 27, 60, true);
	assert_true(alloc_heap_gone(seen, 26, 3 * NS_PER_S, true));
	assert_true(alloc_heap_gone(unseen, 26, 3 * NS_PER_S, false));
	assert_true(alloc_heap_gone(unseen, 27, 3 * NS_PER_S, false));
	observed(seen, 2, 4);
	observed(unseen, 2, 4);
	assert_int_equal(live_at(table, 60).old, 25);
	assert_int_equal(live_at(seen, 60).old, 0);
	assert_int_equal(live_at(unseen, 60).old, 0);
}

/* @count addresses of a place whose blocks are freed, born at 1 s; in a blind window nobody would
 * have seen it. */
static struct alloc_heap *of_a_place_that_frees(uint64_t count, bool blind)
{
	const struct alloc_window window = { .end_ns = 2 * NS_PER_S,
					     .close_ns = 2 * NS_PER_S,
					     .weight = 1,
					     .dilation = 1,
					     .blind = blind };
	struct alloc_heap *heap = alloc_heap_create();

	assert_non_null(heap);
	for (uint64_t address = 1; address <= count + 1; address++)
		born(heap, address, 1);
	if (blind)
		alloc_heap_close(heap, &window);
	assert_true(alloc_heap_gone(heap, count + 1, 3 * NS_PER_S / 2, true));
	if (!blind)
		alloc_heap_close(heap, &window);
	observed(heap, 2, 3);
	return heap;
}

/* Whoever keeps all that he allocates gets what others freed: it stays, and is not theirs. */
static void test_taken_over(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *kept = of_a_place_that_frees(10, false),
					      *unseen = of_a_place_that_frees(10, true),
					      *taken = of_a_place_that_frees(10, false);

	look_at(kept, 10, 60, false);
	look_at(unseen, 10, 60, false);
	for (uint64_t address = 1; address <= 10; address++)
		alloc_heap_looked(taken, address, 2, 2 * NS_PER_S); /* as it was when it was the place's */
	look_at(taken, 10, 60, false);
	assert_true(live_at(kept, 60).deaths && live_at(unseen, 60).deaths && live_at(taken, 60).deaths);
	assert_int_equal(live_at(kept, 60).old, 10);
	assert_int_equal(live_at(unseen, 60).old, 0);
	assert_int_equal(live_at(taken, 60).old, 0);
}

/* Probes that are open for a hundredth of the time: two windows a second, of 5 ms each, at times
 * @seed chooses. */
static void watch(struct alloc_heap *heap, unsigned from_s, unsigned to_s, uint64_t seed)
{
	for (unsigned half = 2 * from_s; half < 2 * to_s; half++) {
		struct alloc_window window = { .begin_ns = half * NS_PER_S / 2,
					       .end_ns = (half + 1) * NS_PER_S / 2,
					       .weight = 100,
					       .dilation = 1 };

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		window.open_ns = window.begin_ns + (seed >> 33) % (495 * NS_PER_S / 1000);
		window.close_ns = window.open_ns + 5 * NS_PER_S / 1000;
		alloc_heap_close(heap, &window);
	}
}

/* None was seen to end. They may have all the same, each when it was half a second old, where there
 * are windows and what is in the addresses could be anybody's. */
static void test_seen_by_nobody(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *full = followed(10), *some = followed(10),
					      *own = alloc_heap_create(),
					      *zero = alloc_heap_create(),
					      *other = alloc_heap_create();
	struct alloc_heap *const seldom[] = { own, zero, other };

	observed(full, 2, 20);
	assert_false(live_at(full, 20).unsure);
	/* The probes were open only at first. */
	watch(some, 2, 20, 1);
	assert_true(live_at(some, 20).unsure);
	for (size_t i = 0; i < ARRAY_SIZE(seldom); i++) {
		assert_non_null(seldom[i]);
		for (uint64_t address = 1; address <= 10; address++)
			born(seldom[i], address, 1.25);
		watch(seldom[i], 1, 2, i);
		for (uint64_t address = 1; address <= 10; address++)
			alloc_heap_looked(seldom[i], address, seldom[i] == zero ? 1 : address, 2 * NS_PER_S);
		watch(seldom[i], 2, 20, i);
	}
	for (uint64_t address = 1; address <= 10; address++)
		alloc_heap_looked(other, address, 100 + address, 10 * NS_PER_S);
	assert_false(live_at(own, 20).unsure); /* what is in them is what was, and no other's */
	assert_true(live_at(zero, 20).unsure);
	assert_true(live_at(other, 20).unsure);
}

/* The range of sizes that a place allocates is reported from 20 samples on. */
static void test_sizes(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *few = alloc_heap_create(), *many = alloc_heap_create();

	for (uint64_t i = 0; i < 20; i++) {
		const struct alloc_birth birth = { .stack = SITE,
						   .time_ns = NS_PER_S,
						   .bytes = 100 + 10 * (i % 7) };

		assert_int_equal(i < 19 ? alloc_heap_birth(few, &birth) : 0, 0);
		assert_int_equal(alloc_heap_birth(many, &birth), 0);
	}
	observed(few, 0, 2);
	observed(many, 0, 2);
	assert_int_equal(live_at(few, 2).most_bytes, 0);
	assert_int_equal(live_at(many, 2).least_bytes, 100);
	assert_int_equal(live_at(many, 2).most_bytes, 160);
}

/* Once one of the old allocations has ended, the others are expected to end, too. */
static void test_old_ones_that_end(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = followed(10);

	assert_int_equal(live_at(heap, 60).old, 10);
	assert_true(alloc_heap_gone(heap, 10, 40 * NS_PER_S, false));
	assert_int_equal(live_at(heap, 60).old, 9); /* known with the window only */
	observed(heap, 39, 41);
	assert_int_equal(live_at(heap, 60).old, 0);
}

/* A place with few allocations is reported with the mark "few". A place whose allocations change,
 * or one of whose allocations ended, is not reported. */
static void test_few(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *kept = followed(2), *cache = followed(2),
					      *gone = followed(2), *many = followed(10);

	look_at(cache, 2, 60, true);
	assert_true(alloc_heap_gone(gone, 2, 3 * NS_PER_S, false));
	observed(gone, 2, 4);
	assert_int_equal(live_at(kept, 60).old, 2);
	assert_true(live_at(kept, 60).few);
	assert_int_equal(live_at(cache, 60).old, 0);
	assert_int_equal(live_at(gone, 60).old, 0);
	assert_false(live_at(many, 60).few);
	assert_int_equal(live_at(kept, 20).old, 0); /* too young yet */
}

/* An address that is handed out again is not the one that it was. */
static void test_born_again(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = followed(5);

	for (uint64_t address = 1; address <= 5; address++)
		born(heap, address, 55);
	observed(heap, 54, 56);
	assert_int_equal(alloc_heap_tracked(heap), 5);
	assert_int_equal(live_at(heap, 60).old, 0);
}

/* ---- what is left ---------------------------------------------------------------------------- */

/* A quarter survives where three quarters die at once, and the quarter stays. */
static void test_survivors_of_an_early_death(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();

	assert_non_null(heap);
	for (uint64_t address = 1; address <= 400; address++)
		born(heap, address, 0);
	for (uint64_t address = 1; address <= 300; address++)
		assert_true(alloc_heap_gone(heap, address, 750 * NS_PER_MS / 1000, true));
	observed(heap, 0, 0.01);
	for (double at_s = 0.01; at_s < 30; at_s += 0.5)
		observed(heap, at_s, at_s + 0.5);
	assert_float_equal(live_at(heap, 30).bytes, 10000, 1000);
	assert_int_equal(live_at(heap, 30).deaths, 300);
}

/* Nothing survives where all twenty allocations ended. The last death that was seen would alone
 * leave one half. */
static void test_no_survivor(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();

	assert_non_null(heap);
	for (uint64_t address = 1; address <= 20; address++)
		born(heap, address, 0);
	for (uint64_t address = 1; address <= 20; address++)
		assert_true(alloc_heap_gone(heap, address, NS_PER_S, true));
	observed(heap, 0, 2);
	observed(heap, 2, 60);
	assert_true(live_at(heap, 60).bytes < 5);
}

/* Blocks that live for 10 to 90 ms, of which a second sees two or eighteen: how much is in use does
 * not rest on the two of the last one. */
static void test_few_samples_at_the_end(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	uint64_t address = 1;

	assert_non_null(heap);
	for (unsigned second = 0; second < 20; second++) {
		for (unsigned i = 0; i < (second % 2 ? 2u : 18u); i++, address++) {
			const double at_s = second + 0.1 + 0.04 * i;

			born(heap, address, at_s);
			assert_true(alloc_heap_gone(
				heap, address, (uint64_t)((at_s + 0.01 * (1 + address % 9)) * 1e9),
				true));
		}
		observed(heap, second, second + 1);
	}
	assert_in_range((uint64_t)live_at(heap, 20).bytes, 25, 100); /* 10 a second for 50 ms: 50 bytes */
}

/* A queue, whose blocks all live for a twentieth of a second. */
static void test_a_queue(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	uint64_t address = 1;

	assert_non_null(heap);
	for (unsigned second = 0; second < 20; second++) {
		for (unsigned i = 0; i < 10; i++, address++) {
			born(heap, address, second + 0.09 * i);
			assert_true(alloc_heap_gone(heap, address, (uint64_t)((second + 0.09 * i + 0.05) * 1e9), true));
		}
		observed(heap, second, second + 1);
	}
	assert_in_range((uint64_t)live_at(heap, 20).bytes, 30, 80); /* 10 a second for 50 ms: 50 bytes */
}

/* Nobody was seen to end, but most are found free: they are not kept. */
static void test_ends_that_nobody_saw(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = followed(40), *few = followed(40);

	for (uint64_t address = 1; address <= 30; address++)
		assert_true(alloc_heap_gone(heap, address, 3 * NS_PER_S, false));
	observed(heap, 2, 4);
	observed(heap, 4, 60);
	/* 30 in 40 times 3 and ten times 56 seconds: of what is 59 s old that leaves exp(-59 * 30 /
	 * 680) */
	assert_float_equal(live_at(heap, 60).bytes, 297, 10);
	assert_int_equal(live_at(heap, 60).deaths, 1);
	/* data can look like a free list's link */
	assert_true(alloc_heap_gone(few, 1, 3 * NS_PER_S, false));
	observed(few, 2, 4);
	assert_float_equal(live_at(few, 60).bytes, 4000, 1e-6);
	assert_int_equal(live_at(few, 60).deaths, 0);
}

/* The error of a place that allocates in a burst is larger than the number of its samples suggests.
 * */
static void test_bursts_leave_more_open(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *even = alloc_heap_create(), *burst = alloc_heap_create();

	assert_true(even && burst);
	for (uint64_t second = 0; second < 10; second++) {
		for (uint64_t i = 0; i < 20; i++)
			born(even, 0, (double)second);
		for (uint64_t i = 0; i < (second == 5 ? 200 : 0); i++)
			born(burst, 0, (double)second);
		if (second != 5) /* a little, so that the time counts */
			born(burst, 0, (double)second);
		observed(even, (double)second, (double)second + 1);
		observed(burst, (double)second, (double)second + 1);
	}
	assert_float_equal(live_at(even, 10).error, 1 / sqrt(200), 0.01);
	assert_true(live_at(burst, 10).error > 0.5);
}

static void drop_nothing(void *ctx, uint64_t address)
{
	(void)ctx, (void)address;
}

/* Chance decides which allocations are followed further. The ends of the dropped ones no longer
 * count against these. */
static void test_thinned_by_chance(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = followed(2000);
	static struct alloc_followed left[2000];
	size_t count, lower = 0;

	alloc_heap_thin(heap, 400, drop_nothing, NULL);
	count = alloc_heap_followed(heap, left, ARRAY_SIZE(left));
	assert_in_range(count, 200, 500);
	for (size_t i = 0; i < count; i++)
		lower += left[i].address <= 1000;
	assert_in_range(lower, count * 2 / 5, count * 3 / 5);
	/* A fifth of those that are left ends: of all that were followed once it is a thirtieth. */
	for (size_t i = 0; i < count / 5; i++)
		assert_true(alloc_heap_gone(heap, left[i].address, 3 * NS_PER_S, false));
	observed(heap, 2, 4);
	assert_int_equal(live_at(heap, 60).deaths, 1);
}

/* ---- the chunks around ----------------------------------------------------------------------- */

#define AROUND	    (ALLOC_AROUND_BYTES / 8) /* words */
#define AT	    (AROUND + 2)	     /* of the chunk asked about, whose header is before */
#define CHUNK_WORDS 8u
#define IN_USE	    1u
#define OTHER_ARENA 4u

/* @count chunks right before the one asked about, each of which ends behind it, where there is
 * another. */
static void cover(uint64_t words[2 * AROUND + 2], size_t count, uint64_t flags, bool followed)
{
	const size_t end = AT + 14;

	memset(words, 0, (2 * AROUND + 2) * sizeof(*words));
	words[AT - 1] = CHUNK_WORDS * 8 | IN_USE;
	for (size_t i = 1; i <= count; i++) {
		const size_t begin = AT - 2 - i * 4;

		words[begin + 1] = (end - begin) * 8 | IN_USE | flags;
	}
	words[end + 1] = followed ? CHUNK_WORDS * 8 | IN_USE : 0;
}

static void test_what_lies_inside_another(void **state)
{
	static uint64_t words[2 * AROUND + 2];
	static const struct {
		const char *what;
		size_t count;
		uint64_t flags;
		bool followed, inside;
	} cases[] = {
		{ "four say so", 4, 0, true, true },
		{ "three are too few", 3, 0, true, false },
		{ "nothing behind them", 10, 0, false, false },
		{ "of another arena", 10, OTHER_ARENA, true, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cover(words, cases[i].count, cases[i].flags, cases[i].followed);
		if (alloc_chunk_is_inside(words, 2 * AROUND + 2, AT) != cases[i].inside)
			fail_msg("%s", cases[i].what);
	}
}

#define BLOCKS	    8
#define TRIED	    64
#define BLOCK_BYTES 1112 /* no thread cache has as large ones; a chunk is 8 more */

static char *tried[TRIED], *whole;
static const size_t whole_bytes = BLOCKS * (BLOCK_BYTES + 8) - 8;

/* The first of BLOCKS that lie one behind the other, with others around. */
static size_t find_row(void)
{
	size_t in_row = 0, i = 1;

	for (; i + 1 < TRIED && in_row < BLOCKS; i++)
		in_row = tried[i + 1] - tried[i] == BLOCK_BYTES + 8 ? in_row + 1 : 0;
	assert_true(in_row == BLOCKS);
	return i - BLOCKS;
}

/* The last of some blocks, all of which were freed, the last one first, and became part of a larger
 * one: nothing was written to its header. */
static uint64_t swallow(void)
{
	uint64_t last;
	size_t row;

#if defined(__SANITIZE_ADDRESS__)
	print_message("skipped: the allocator is the sanitizer's\n");
	skip();
#endif
	for (size_t i = 0; i < TRIED; i++)
		tried[i] = malloc(BLOCK_BYTES);
	row = find_row();
	last = (uintptr_t)tried[row + BLOCKS - 1];
	for (size_t i = row + BLOCKS; i-- > row; tried[i] = NULL)
		free(tried[i]);
	whole = malloc(whole_bytes);
	assert_int_equal(last - (uintptr_t)whole, (BLOCKS - 1) * (BLOCK_BYTES + 8));
	return last;
}

static void release(void)
{
	free(whole);
	for (size_t i = 0; i < TRIED; i++)
		free(tried[i]);
}

static void test_swallowed(void **state)
{
	struct alloc_headers headers = { .tgid = (uint32_t)getpid(), .glibc = true };
	struct alloc_header header = { .address = swallow(), .bytes = BLOCK_BYTES };

	assert_int_equal(alloc_headers_read(&headers, &header, 1), 0);
	assert_false(header.is_free); /* it looks as it did */
	header.around = true;
	assert_int_equal(alloc_headers_read(&headers, &header, 1), 0);
	assert_true(header.is_free);
	header.address = (uintptr_t)whole;
	header.bytes = whole_bytes;
	assert_int_equal(alloc_headers_read(&headers, &header, 1), 0);
	assert_false(header.is_free);
	release();
}

/* Each turn looks at the surroundings of every fifth address: one turn of five finds the block. */
static void test_turns(void **state)
{
	enum { TURNS = 5 };
	const struct alloc_place place = { .tgid = (uint32_t)getpid() };
	const struct alloc_followed last = { swallow(), BLOCK_BYTES };
	struct alloc_headers headers = { .tgid = place.tgid, .glibc = true };
	struct alloc_look_request request = { .place = &place,
				   .headers = &headers,
				   .followed = &last,
				   .followed_count = 1,
				   .turns = TURNS };
	unsigned found = 0;

	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0,
		    0); /* a child may not read its parent everywhere */
	for (; request.turn < TURNS; request.turn++) {
		struct alloc_look child;

		assert_int_equal(alloc_look_start(&child, &request, 1), 0);
		assert_int_equal(poll(&(struct pollfd){ .fd = child.fd, .events = POLLIN }, 1, 60000), 1);
		assert_int_equal(alloc_look_poll(&child, 1), 0);
		assert_true(child.seen->headers_read);
		found += child.seen->headers[0].is_free;
		alloc_look_stop(&child);
	}
	assert_int_equal(found, 1);
	release();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contents_that_change),
		cmocka_unit_test(test_many_that_change),
		cmocka_unit_test(test_taken_over),
		cmocka_unit_test(test_seen_by_nobody),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_old_ones_that_end),
		cmocka_unit_test(test_few),
		cmocka_unit_test(test_born_again),
		cmocka_unit_test(test_survivors_of_an_early_death),
		cmocka_unit_test(test_no_survivor),
		cmocka_unit_test(test_a_queue),
		cmocka_unit_test(test_few_samples_at_the_end),
		cmocka_unit_test(test_ends_that_nobody_saw),
		cmocka_unit_test(test_bursts_leave_more_open),
		cmocka_unit_test(test_thinned_by_chance),
		cmocka_unit_test(test_what_lies_inside_another),
		cmocka_unit_test(test_swallowed),
		cmocka_unit_test(test_turns),
	};

	return cmocka_run_group_tests_name("alloc_live", tests, NULL, NULL);
}
