// SPDX-License-Identifier: Apache-2.0
/* Facts about a futex, learnt from the stacks of the threads that wait for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/recording/lock_names.h"

enum { PROCESS = 3, FUNCTION = 5 };

/* A wait whose stack says nothing (function 0) is taken for what those at its futex are whose
 * stacks do, if they agree. */
static void test_waits_without_a_stack(void **state)
{
	enum { CONDITION = 0x1000, LOCK = 0x2000, BOTH = 0x3000, UNKNOWN = 0x4000 };
	struct lock_names names = { 0 };

	for (int i = 0; i < 2; i++) {
		assert_int_equal(lock_names_wait(&names, PROCESS, CONDITION, 0, 900), 0);
		assert_int_equal(lock_names_other(&names, PROCESS, CONDITION), 0);
		assert_int_equal(lock_names_wait(&names, PROCESS, LOCK, FUNCTION, 10), 0);
		assert_int_equal(lock_names_other(&names, PROCESS, BOTH), 0);
		assert_int_equal(lock_names_wait(&names, PROCESS, BOTH, FUNCTION, 10), 0);
		assert_int_equal(lock_names_wait(&names, PROCESS, BOTH, 0, 900), 0);
		assert_int_equal(lock_names_wait(&names, PROCESS, UNKNOWN, 0, 10), 0);
	}
	assert_true(lock_names_is_other(&names, PROCESS, CONDITION));
	assert_false(lock_names_is_other(&names, PROCESS, LOCK));
	assert_false(lock_names_is_other(&names, PROCESS, BOTH));
	assert_false(lock_names_is_other(&names, PROCESS, UNKNOWN));
	assert_false(lock_names_is_other(&names, PROCESS + 1, CONDITION));
	lock_names_deinit(&names);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_waits_without_a_stack) };

	return cmocka_run_group_tests_name("lock_names", tests, NULL, NULL);
}
