// SPDX-License-Identifier: Apache-2.0
/* Which waking belongs to which wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/recording/wakers.h"

static void test_last_within(void **state)
{
	static const struct waking given[] = {
		{ .process = 1, .tid = 7, .time_ns = 300, .pair = 3 },
		{ .process = 1, .tid = 7, .time_ns = 100, .pair = 1 },
		{ .process = 1, .tid = 7, .time_ns = 200, .pair = 2 },
		{ .process = 1, .tid = 8, .time_ns = 150, .pair = 4 },
		{ .process = 0, .tid = 7, .time_ns = 150, .pair = 5 },
	};
	static const struct {
		uint32_t process, tid;
		uint64_t from_ns, to_ns;
		bool found;
		uint32_t pair;
	} cases[] = {
		{ 1, 7, 50, 250, true, 2 },   { 1, 7, 250, 300, true, 3 },  { 1, 7, 100, 100, true, 1 },
		{ 1, 7, 201, 299, false, 0 }, { 1, 7, 0, 99, false, 0 },    { 1, 8, 0, 1000, true, 4 },
		{ 1, 9, 0, 1000, false, 0 },  { 0, 7, 150, 1000, true, 5 }, { 2, 7, 0, 1000, false, 0 },
	};
	struct wakers wakers = { 0 };
	uint32_t pair = 99;

	(void)state;
	wakers_sort(&wakers);
	assert_false(wakers_find(&wakers, 1, 7, 0, 1000, &pair));
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
		assert_int_equal(wakers_add(&wakers, &given[i]), 0);
	wakers_sort(&wakers);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pair = 99;
		if (wakers_find(&wakers, cases[i].process, cases[i].tid, cases[i].from_ns,
				cases[i].to_ns, &pair) != cases[i].found ||
		    pair != (cases[i].found ? cases[i].pair : 99))
			fail_msg("case %zu: %u", i, pair);
	}
	wakers_deinit(&wakers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_within),
	};

	return cmocka_run_group_tests_name("wakers", tests, NULL, NULL);
}
