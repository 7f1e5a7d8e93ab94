// SPDX-License-Identifier: Apache-2.0
/* Large blocks, known one by one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/collect/alloc/alloc_heap.h"
#include "agent/collect/alloc/alloc_large.h"

static void add_block(struct alloc_large *large, uint64_t va, uint64_t stack, uint64_t time_ns)
{
	const struct alloc_large_block block = {
		.at_va = va, .stack = stack, .time_ns = time_ns, .bytes = 200000
	};

	assert_int_equal(alloc_large_saw(large, &block), 0);
}

static const struct alloc_large_block *block_at(const struct alloc_large *large, uint64_t va)
{
	for (size_t i = 0; i < large->blocks.count; i++)
		if (large->blocks.data[i].at_va == va)
			return &large->blocks.data[i];
	return NULL;
}

/* One block goes where another has been, a third takes the place of the first, and a fourth had not
 * been seen before it was moved. */
static void test_moves(void **state)
{
	const struct alloc_large_move moves[] = {
		{ 0x20000, { .from_va = 0x10000, .first_ns = 10, .last_ns = 12, .bytes = 0x80000, .stack = 7 } },
		{ 0x30000, { .from_va = 0x20000, .first_ns = 10, .last_ns = 11, .bytes = 0x81001 } },
		{ 0x50000, { .from_va = 0x40000, .first_ns = 10, .last_ns = 11, .bytes = 0x90000, .stack = 9 } },
	};
	struct alloc_large large = { 0 };
	struct alloc_large_block read[8];
	size_t count;

	add_block(&large, 0x10000, 1, 1);
	add_block(&large, 0x20000, 2, 2);
	add_block(&large, 0x40000, 4, 20); /* came after the other had left */
	count = large.blocks.count;
	memcpy(read, large.blocks.data, count * sizeof(*read));
	alloc_large_move(&large, moves, ARRAY_SIZE(moves));
	assert_int_equal(large.blocks.count, 4);
	assert_null(block_at(&large, 0x10000));
	assert_int_equal(block_at(&large, 0x20000)->stack, 7);
	assert_int_equal(block_at(&large, 0x20000)->bytes, 0x80000 - 16);
	assert_int_equal(block_at(&large, 0x30000)->stack, 2);
	assert_int_equal(block_at(&large, 0x30000)->bytes, 0x82000 - 16);
	assert_int_equal(block_at(&large, 0x40000)->stack, 4);
	assert_int_equal(block_at(&large, 0x50000)->stack, 9);
	assert_int_equal(block_at(&large, 0x50000)->bytes, 0); /* until its header has been read */
	/* Headers that were read before the moves say nothing about the blocks at these addresses
	 * now. */
	for (size_t i = 0; i < count; i++)
		read[i].bytes = 0;
	alloc_large_take(&large, read, count, 20 + NS_PER_S);
	assert_int_equal(large.blocks.count, 3);
	assert_null(block_at(&large, 0x40000));
	alloc_large_deinit(&large);
}

/* The kernel tells of the first touch before the header is written. */
static void test_header_to_come(void **state)
{
	struct alloc_large large = { 0 };
	struct alloc_large_block read;

	add_block(&large, 0x10000, 1, 1000);
	read = large.blocks.data[0];
	read.bytes = 0;
	alloc_large_take(&large, &read, 1, 1000 + NS_PER_S - 1);
	assert_int_equal(large.blocks.count, 1);
	assert_int_equal(block_at(&large, 0x10000)->bytes, 0);
	read.bytes = 300000;
	alloc_large_take(&large, &read, 1, 1000 + NS_PER_S - 1);
	assert_int_equal(block_at(&large, 0x10000)->bytes, 300000);
	read.bytes = 0;
	alloc_large_take(&large, &read, 1, 1000 + NS_PER_S);
	assert_int_equal(large.blocks.count, 0);
	alloc_large_deinit(&large);
}

static void count_taken(void *ctx, const struct alloc_large_block *block)
{
	assert_int_equal(block->at_va, 0x10000);
	++*(unsigned *)ctx;
}

static void test_probed(void **state)
{
	const struct alloc_large_block probed[] = {
		{ .at_va = 0x10000, .stack = 1, .time_ns = 1, .bytes = 300000, .probed = true },
		{ .at_va = 0x20000, .stack = 1, .time_ns = 2, .bytes = 300000, .probed = true },
	};
	struct alloc_large large = { 0 };
	unsigned taken = 0;

	for (size_t i = 0; i < ARRAY_SIZE(probed); i++)
		assert_int_equal(alloc_large_saw(&large, &probed[i]), 0);
	add_block(&large, 0x30000, 3, 3);
	assert_false(alloc_large_ended(&large, 0x30000)); /* its header tells */
	assert_true(alloc_large_ended(&large, 0x20000));
	assert_false(alloc_large_ended(&large, 0x20000));
	alloc_large_hand_over(&large, count_taken, &taken);
	assert_int_equal(taken, 1);
	assert_int_equal(large.blocks.count, 1);
	assert_non_null(block_at(&large, 0x30000));
	alloc_large_deinit(&large);
}

struct sum {
	double bytes;
	unsigned count;
};

static int add_up(void *ctx, const struct alloc_live *live)
{
	struct sum *sum = ctx;

	sum->bytes += live->bytes;
	sum->count++;
	return 0;
}

/* It counts as itself until it is seen to end. */
static void test_adopted(void **state)
{
	const struct alloc_birth birth = {
		.stack = 5, .time_ns = NS_PER_S, .bytes = 1 << 20, .address = 0x7000
	};
	const struct alloc_window window = { .begin_ns = NS_PER_S,
					     .end_ns = 2 * NS_PER_S,
					     .open_ns = NS_PER_S,
					     .close_ns = 2 * NS_PER_S,
					     .weight = 50,
					     .dilation = 1 };
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	struct sum sum = { 0 };

	assert_int_equal(alloc_heap_adopt(heap, &birth), 0);
	alloc_heap_close(heap, &window);
	assert_int_equal(alloc_heap_each_live(heap, 2 * NS_PER_S, add_up, &sum), 0);
	assert_int_equal(sum.count, 1);
	assert_true(sum.bytes == 1 << 20);
	assert_int_equal(alloc_heap_tracked(heap), 1);
	assert_true(alloc_heap_gone(heap, 0x7000, 3 * NS_PER_S, true));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_header_to_come),
		cmocka_unit_test(test_probed),
		cmocka_unit_test(test_adopted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
