// SPDX-License-Identifier: Apache-2.0
/* Estimates of what is in use, between what the heap holds and what it has grown by. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/recording/live_fit.h"
#include "agent/recording/recording_internal.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

#define MB 1e6
#define BLOCK 104 /* of glibc: it holds what it was asked for */

static struct live_part part(double bytes, double error)
{
	return (struct live_part){ .bytes = bytes, .objects = bytes / BLOCK, .error = error, .scale = 1 };
}

static void test_what_fits_stays(void **state)
{
	struct live_part parts[] = { part(10 * MB, 0.1), part(5 * MB, 1) };

	live_fit_parts(parts, ARRAY_SIZE(parts), 0.1, 14 * MB, 16 * MB);
	assert_true(parts[0].bytes == 10 * MB && parts[1].bytes == 5 * MB && parts[1].scale == 1);
	live_fit_parts(parts, 0, 0.1, 14 * MB, 16 * MB);
}

/* Uncertain estimates give way first. A less certain part keeps most of its bytes where an even
 * less certain one alone can give up the excess. */
static void test_too_much(void **state)
{
	struct live_part parts[] = { part(10 * MB, 0.02), part(20 * MB, 0.8), part(1 * MB, 0.3) };

	live_fit_parts(parts, ARRAY_SIZE(parts), 0, 0, 13 * MB);
	assert_true(fabs(parts[0].bytes + parts[1].bytes + parts[2].bytes - 13 * MB) < 0.01 * MB);
	assert_true(parts[0].scale > 0.97 && parts[1].scale < 0.2 && parts[2].scale > 0.8 &&
		    parts[2].scale < 1);
}

/* A sum that is a little too large by the error of one kept site takes hardly anything from a
 * cache. */
static void test_a_cache_is_not_squeezed(void **state)
{
	struct live_part parts[] = { part(100 * MB, 0.15), part(4 * MB, 0.4) };

	live_fit_parts(parts, ARRAY_SIZE(parts), 0, 0, 95 * MB);
	assert_true(parts[1].scale > 0.7 && parts[0].scale > 0.9 && parts[0].scale < 0.95);
}

static void test_too_little(void **state)
{
	struct live_part parts[] = { part(300 * MB, 0.05), part(1 * MB, 0.5) };

	/* what all have in common scales all */
	live_fit_parts(parts, ARRAY_SIZE(parts), 0.7, 1500 * MB, 1600 * MB);
	assert_true(fabs(parts[0].bytes + parts[1].bytes - 1500 * MB) < 2 * MB);
	assert_true(parts[0].scale > 4.5 && parts[1].scale > 4 && parts[1].scale < 6);
}

/* A leak and a cache, seen at a third of the rate at which they allocate: the cache's blocks are
 * seen to end as seldom. */
static void test_a_cache_keeps_its_size(void **state)
{
	struct live_part parts[] = { part(16 * MB, 0.27), part(2 * MB, 0.86) };

	parts[1].ends = true;
	live_fit_parts(parts, ARRAY_SIZE(parts), 0.57, 60 * MB, 70 * MB);
	assert_true(fabs(parts[0].bytes + parts[1].bytes - 60 * MB) < 0.1 * MB);
	assert_true(parts[1].scale > 1 && parts[1].scale < 1.5);
}

/* A cache that is taken for eight times as large as it can be is no reason to think less of a leak,
 * however little is known of how much is allocated: the leak's part of the sum is small. */
static void test_a_leak_beside_a_cache(void **state)
{
	struct live_part parts[] = { part(1.4 * MB, 0.2), part(33 * MB, 0.57) };

	parts[1].ends = true;
	live_fit_parts(parts, ARRAY_SIZE(parts), 0.46, 1.6 * MB, 4 * MB);
	assert_true(fabs(parts[0].bytes + parts[1].bytes - 4 * MB) < 0.01 * MB);
	assert_true(parts[0].scale > 0.5 && parts[1].scale < 0.11);
}

/* Blocks hold more than was asked for. */
static void test_small_blocks(void **state)
{
	struct live_part parts[] = { { .bytes = 1 * MB, .objects = 1 * MB, .error = 0.1, .scale = 1 } };

	live_fit_parts(parts, 1, 0, 0, 12 * MB);
	assert_true(fabs(parts[0].scale - 0.5) < 0.001);
}

/* A part of @objects blocks of 100 to 500 bytes, 300 on average. */
static struct live_part mixed(double objects, double error)
{
	return (struct live_part){ .bytes = objects * 300,
				   .objects = objects,
				   .error = error,
				   .scale = 1,
				   .least_bytes = 100,
				   .most_bytes = 500,
				   .ends = true };
}

static void hold(uint32_t blocks_of[READ_HEAP_SIZES], uint64_t chunk_bytes, uint32_t blocks)
{
	blocks_of[read_heap_size_of(chunk_bytes)] = blocks;
}

/* Nobody has more blocks of his sizes than the heap; of what two share the one that is less certain
 * gives way. Where it is not known what sizes a place asks for, or they are not counted, nothing is
 * taken away. */
static void test_sizes(void **state)
{
	uint32_t blocks_of[READ_HEAP_SIZES] = { 0 };
	struct live_part leak = { .bytes = 100 * 2000,
				  .objects = 2000,
				  .error = 0.05,
				  .scale = 1,
				  .least_bytes = 100,
				  .most_bytes = 100 };
	struct live_part unknown = mixed(5000, 0.5), large = mixed(5000, 0.5), parts[4];

	unknown.most_bytes = 0;
	large.most_bytes = 1030; /* may get blocks of 1,056 */
	hold(blocks_of, 112, 1900);
	hold(blocks_of, 320, 1000);
	memcpy(parts, (struct live_part[]){ leak, mixed(5000, 0.5), unknown, large }, sizeof(parts));
	assert_int_equal(live_fit_sizes(parts, ARRAY_SIZE(parts), 0, blocks_of), 0);
	assert_float_equal(parts[0].objects, 1900, 30);
	assert_float_equal(parts[1].objects, 1000, 100);
	assert_true(parts[1].scale > 0.18 && parts[1].scale < 0.22);
	assert_true(parts[2].scale == 1 && parts[3].scale == 1);
}

/* An estimate that fits into the heap stays, also where the blocks are somewhat larger than the
 * sizes that the program asked for. */
static void test_sizes_that_fit(void **state)
{
	uint32_t blocks_of[READ_HEAP_SIZES] = { 0 };
	struct live_part part = { .bytes = 100 * 2000,
				  .objects = 2000,
				  .error = 0.5,
				  .scale = 1,
				  .least_bytes = 100,
				  .most_bytes = 100 };

	hold(blocks_of, 112, 1500);
	hold(blocks_of, 128, 600);
	hold(blocks_of, 144, 50000);
	assert_int_equal(live_fit_sizes(&part, 1, 0.3, blocks_of), 0);
	assert_true(part.scale == 1);
	hold(blocks_of, 128, 0);
	assert_int_equal(live_fit_sizes(&part, 1, 0.3, blocks_of), 0);
	assert_float_equal(part.objects, 1500, 1);
}

/* Blocks with mappings of their own, where those are known, leave no room for estimates. */
static void test_room_beside_mapped_blocks(void **state)
{
	struct recording recording = { .quality.alloc.heap = { .bytes = 12 * (uint64_t)MB,
							       .mapped_bytes = 5 * (uint64_t)MB } };
	struct chunk_event event = { .value = 10 * (int64_t)MB };
	struct live_fit fit = { 0 };

	assert_int_equal(attrs_vec_push(&recording.attrs, (struct chunk_attr){ .type = PROF_SAMPLE_ALLOC,
										 .state = FEED_ALLOC_LIVE, .object = 100 }), 0);
	assert_int_equal(attrs_vec_push(&recording.attrs, (struct chunk_attr){ .type = PROF_SAMPLE_ALLOC,
										 .state = FEED_ALLOC_EXACT }), 0);
	assert_int_equal(events_vec_push(&recording.events, event), 0);
	assert_int_equal(live_fit_recording(&fit, &recording, 0), 0);
	assert_float_equal(live_fit_scale(&fit, &event), 1, 1e-6);
	live_fit_deinit(&fit);
	fit = (struct live_fit){ 0 };
	assert_int_equal(
		events_vec_push(&recording.events,
				(struct chunk_event){ .attr = 1, .value = 5 * (int64_t)MB }),
		0);
	assert_int_equal(live_fit_recording(&fit, &recording, 0), 0);
	assert_float_equal(live_fit_scale(&fit, &event), 0.7, 1e-3);
	live_fit_deinit(&fit);
	events_vec_deinit(&recording.events);
	attrs_vec_deinit(&recording.attrs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_fits_stays),
		cmocka_unit_test(test_too_much),
		cmocka_unit_test(test_a_cache_is_not_squeezed),
		cmocka_unit_test(test_too_little),
		cmocka_unit_test(test_a_cache_keeps_its_size),
		cmocka_unit_test(test_a_leak_beside_a_cache),
		cmocka_unit_test(test_small_blocks),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_sizes_that_fit),
		cmocka_unit_test(test_room_beside_mapped_blocks),
	};

	return cmocka_run_group_tests_name("live_fit", tests, NULL, NULL);
}
