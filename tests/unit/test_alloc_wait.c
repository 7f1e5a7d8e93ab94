// SPDX-License-Identifier: Apache-2.0
/* When the collector comes back to a process whose allocations it observes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/alloc/alloc_internal.h"

/* Not before it has something to do: it would wait on a CPU for the rest of the millisecond, and
 * where that is the program's a window would end in a pause that the program does not make by
 * itself. */
static void test_waits_long_enough(void **state)
{
	static struct alloc_watch watch;
	const uint64_t next_ns = clock_monotonic_ns() + 5900000;
	int wait_ms;

	watch.targets[1] = (struct target){ .state = STATE_OPEN, .next_ns = next_ns };
	wait_ms = alloc_wait_ms(&watch, 100);
	assert_true(clock_monotonic_ns() + (uint64_t)wait_ms * NS_PER_MS >= next_ns);
	assert_in_range(wait_ms, 0, 6);
	watch.targets[1].next_ns = 0;
	assert_int_equal(alloc_wait_ms(&watch, 100), 0);
	watch.targets[1].state = STATE_REFUSED;
	assert_int_equal(alloc_wait_ms(&watch, 100), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_long_enough),
	};

	return cmocka_run_group_tests_name("alloc_wait", tests, NULL, NULL);
}
