// SPDX-License-Identifier: Apache-2.0
/* Sizes of blocks are reported as growing if they grow all the time, and only then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/memory/heap_growth.h"

#define SIZE_104 5u /* chunks of 112 bytes */

/* Blocks of one size at second @s of @of. */
typedef uint32_t course_fn(unsigned s, unsigned of);

static uint32_t leak(unsigned s, unsigned of)
{
	(void)of;
	return 500 + 100 * s;
}

static uint32_t uneven_leak(unsigned s, unsigned of)
{
	return 500 + 100 * s + (s > of / 2 ? 1000 : 0);
}

static uint32_t filled_at_the_start(unsigned s, unsigned of)
{
	return s < of / 4 ? 400 * s : 100 * of;
}

static uint32_t filled_once(unsigned s, unsigned of)
{
	return s < of / 2 ? 0 : 5000;
}

static uint32_t comes_and_goes(unsigned s, unsigned of)
{
	(void)of;
	return 100000 + s % 30 * 100;
}

/* A number that is spread by chance as a Poisson process is, and happened to rise. */
static uint32_t large_and_steady(unsigned s, unsigned of)
{
	return 1000000 + 2000 * s / of;
}

static uint32_t shrinks(unsigned s, unsigned of)
{
	return 100 * (of - s);
}

static uint32_t hardly(unsigned s, unsigned of)
{
	return 99 * s / of;
}

static struct heap_growth growth_of(course_fn *course, unsigned seconds, unsigned every)
{
	struct heap_growth growth = { .count = 0 };

	for (unsigned s = 0; s <= seconds; s += every) {
		uint32_t blocks_of[READ_HEAP_SIZES] = { [SIZE_104] = course(s, seconds) };

		heap_growth_add(&growth, 7 * NS_PER_S + s * NS_PER_S, blocks_of);
	}
	return growth;
}

static unsigned found(course_fn *course)
{
	struct profile_grown grown[PROFILE_GROWN_MAX];
	const struct heap_growth growth = growth_of(course, 120, 20);

	return heap_growth_find(&growth, grown);
}

static void test_courses(void **state)
{
	struct profile_grown grown[PROFILE_GROWN_MAX];
	const struct heap_growth growth = growth_of(leak, 120, 20);

	assert_int_equal(heap_growth_find(&growth, grown), 1);
	assert_int_equal(grown[0].block_bytes, 104);
	assert_int_equal(grown[0].before, 500);
	assert_int_equal(grown[0].blocks, 12000);
	assert_int_equal(found(uneven_leak), 1);
	assert_int_equal(found(filled_at_the_start), 0);
	assert_int_equal(found(filled_once), 0);
	assert_int_equal(found(comes_and_goes), 0);
	assert_int_equal(found(large_and_steady), 0);
	assert_int_equal(found(shrinks), 0);
	assert_int_equal(found(hardly), 0);
}

/* Two walks and three make everything a line. Hundreds are thinned, and begin where the first one
 * was. */
static void test_how_many(void **state)
{
	struct profile_grown grown[PROFILE_GROWN_MAX];
	struct heap_growth growth = growth_of(leak, 40, 20);

	assert_int_equal(growth.count, 3);
	assert_int_equal(heap_growth_find(&growth, grown), 0);
	growth = growth_of(leak, 3600, 15);
	assert_int_equal(growth.count, HEAP_GROWTH_WALKS_MAX);
	assert_int_equal(heap_growth_find(&growth, grown), 1);
	assert_int_equal(grown[0].blocks, 360000);
	growth = growth_of(filled_at_the_start, 3600, 15);
	assert_int_equal(heap_growth_find(&growth, grown), 0);
}

static void test_largest_first(void **state)
{
	struct profile_grown grown[PROFILE_GROWN_MAX];
	struct heap_growth growth = { .count = 0 };

	for (unsigned s = 0; s < 5; s++) {
		uint32_t blocks_of[READ_HEAP_SIZES] = { 0 };

		for (unsigned i = 0; i < 20; i++)
			blocks_of[i] = 1000 * s * (i * 7 % 20);
		heap_growth_add(&growth, (1 + s) * NS_PER_S, blocks_of);
	}
	assert_int_equal(heap_growth_find(&growth, grown), PROFILE_GROWN_MAX);
	for (unsigned i = 1; i < PROFILE_GROWN_MAX; i++)
		assert_true(grown[i - 1].blocks * grown[i - 1].block_bytes >=
			    grown[i].blocks * grown[i].block_bytes);
	assert_int_equal(grown[0].blocks, 4000 * 19);
}

/* Seldom where it costs: a second (about a gigabyte) every 17 minutes; and the more seldom the
 * longer it lasts. */
static void test_when(void **state)
{
	const struct heap_growth growth = growth_of(leak, 0, 1);
	const uint64_t begin_ns = growth.walks[0].time_ns;

	assert_int_equal(heap_growth_next_ns(&growth, begin_ns, 1000000), begin_ns + 15 * NS_PER_S);
	assert_in_range(heap_growth_next_ns(&growth, begin_ns, NS_PER_S),
			begin_ns + 1000 * NS_PER_S, begin_ns + 1000 * NS_PER_S);
	assert_int_equal(heap_growth_next_ns(&growth, begin_ns + 3600 * NS_PER_S, 0),
			 begin_ns + (3600 + 450) * NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_courses),
		cmocka_unit_test(test_how_many),
		cmocka_unit_test(test_largest_first),
		cmocka_unit_test(test_when),
	};

	return cmocka_run_group_tests_name("heap_growth", tests, NULL, NULL);
}
