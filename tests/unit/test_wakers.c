// SPDX-License-Identifier: Apache-2.0
/* Joins wakeups to the waits that they end. */
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

/* Holder 7 releases the GIL at 100 (seen to have it since 40) and at 300 (since 120); holder 7 of
 * another process, and holder 8, between them. */
static void test_releases(void **state)
{
	static const struct waking given[] = {
		{ .process = 1, .tid = 7, .time_ns = 300, .since_ns = 120, .pair = 2 },
		{ .process = 1, .tid = 7, .time_ns = 100, .since_ns = 40, .pair = 1 },
		{ .process = 2, .tid = 7, .time_ns = 50, .since_ns = 10, .pair = 3 },
		{ .process = 1, .tid = 8, .time_ns = 119, .since_ns = 105, .pair = 4 },
	};
	static const struct {
		uint32_t process, holder;
		uint64_t from_ns, to_ns;
		uint32_t pair; /* 0 = none is to be found */
	} cases[] = {
		{ 1, 7, 60, 101, 1 },	{ 1, 7, 99, 100, 1 },  { 1, 7, 250, 350, 2 }, /* ended by it */
		{ 1, 7, 50, 60, 1 },	{ 1, 7, 290, 299, 2 }, { 1, 7, 110, 120, 2 }, /* timed out before */
		{ 1, 8, 106, 111, 4 },	{ 1, 8, 106, 130, 4 }, { 2, 7, 20, 40, 3 },
		{ 1, 7, 101, 119, 0 },	{ 1, 7, 301, 350, 0 }, { 1, 7, 10, 39, 0 },   { 1, 8, 90, 104, 0 },
		{ 1, 8, 120, 130, 0 },	{ 1, 9, 60, 101, 0 },  { 3, 7, 60, 101, 0 },
	};
	struct wakers releases = { 0 };

	(void)state;
	assert_null(wakers_find_release(&releases, 1, 7, 60, 101));
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
		assert_int_equal(wakers_add(&releases, &given[i]), 0);
	wakers_sort(&releases);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct waking *found =
			wakers_find_release(&releases, cases[i].process, cases[i].holder,
					    cases[i].from_ns, cases[i].to_ns);

		if ((found ? found->pair : 0) != cases[i].pair)
			fail_msg("case %zu: %u", i, found ? found->pair : 0);
	}
	wakers_deinit(&releases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_within),
		cmocka_unit_test(test_releases),
	};

	return cmocka_run_group_tests_name("wakers", tests, NULL, NULL);
}
