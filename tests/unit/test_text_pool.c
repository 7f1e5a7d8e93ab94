// SPDX-License-Identifier: Apache-2.0
/* Texts are kept once each, as they were given, for as long as their pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/text_pool.h"

static void test_equal_texts(void **state)
{
	struct text_pool pool = { 0 };
	char other[] = "/usr/bin/true";
	const char *first = text_pool_keep(&pool, "/usr/bin/true", 13);

	assert_string_equal(first, "/usr/bin/true");
	assert_ptr_equal(text_pool_keep(&pool, other, strlen(other)), first);
	/* only @len bytes count, and none behind a NUL */
	assert_ptr_equal(text_pool_keep(&pool, "/usr/bin/true-or-false", 13), first);
	assert_ptr_equal(text_pool_keep(&pool, "/usr/bin/true\0rest", 18), first);
	assert_string_equal(text_pool_keep(&pool, "/usr/bin/true", 12), "/usr/bin/tru");
	assert_string_equal(text_pool_keep(&pool, "", 0), "");
	assert_int_equal(pool.texts.count, 3);
	text_pool_deinit(&pool);
}

static void test_many_texts(void **state)
{
	enum { COUNT = 20000 };
	static const char *kept[COUNT];
	struct text_pool pool = { 0 };
	char text[32];

	for (int round = 0; round < 2; round++)
		for (int i = 0; i < COUNT; i++) {
			int len = snprintf(text, sizeof(text), "%d", i);
			const char *at = text_pool_keep(&pool, text, (size_t)len);

			assert_string_equal(at, text);
			if (round)
				assert_ptr_equal(at, kept[i]);
			kept[i] = at;
		}
	assert_int_equal(pool.texts.count, COUNT);
	text_pool_deinit(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_equal_texts),
					    cmocka_unit_test(test_many_texts) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
