// SPDX-License-Identifier: Apache-2.0
/* Sampled reads and writes of threads against the kernel's counts of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/recording/moved_totals.h"

#define S   1000000000ull
#define PID 7u

static struct moved_totals *totals;

static int create(void **state)
{
	totals = moved_totals_create();
	return totals ? 0 : -1;
}

static int destroy(void **state)
{
	moved_totals_destroy(totals);
	return 0;
}

static void read_at(uint32_t tid, uint64_t start_ns, uint64_t time_ns, uint64_t bytes, bool ends)
{
	const struct thread_reading reading = { time_ns, start_ns, { bytes }, ends };

	assert_int_equal(moved_totals_read(totals, PID, tid, &reading), 0);
}

/* Samples of 4096 each, as many as given: what they come to, with the rest. */
static int64_t sum(uint32_t tid, unsigned samples, int64_t *ret_rest)
{
	int64_t all = 0;

	for (unsigned i = 0; i < samples; i++)
		all += moved_totals_scale(totals, PID, tid, 4096, false);
	*ret_rest = moved_totals_take_rest(totals, PID, tid);
	assert_int_equal(moved_totals_take_rest(totals, PID, tid), 0);
	return all;
}

/* Whatever the samples say, a thread's sum is the difference of its readings. */
static void test_sums_are_exact(void **state)
{
	static const struct {
		uint64_t start_ns, first_ns, first, last_ns, last;
		unsigned samples;
		int64_t due, rest;
		bool ends;
	} cases[] = {
		{ S, 10 * S, 500, 20 * S, 10007, 3, 9507, 0, false },
		{ S, 10 * S, 0, 20 * S, 3, 7, 3, 0, false },
		{ S, 10 * S, 5, 20 * S, 5 + (1ull << 40) + 1, 1000, (1ll << 40) + 1, 0, false },
		{ S, 10 * S, 5, 20 * S, 12, 0, 0, 7, false },	    /* none was sampled */
		{ S, 10 * S, 5, 20 * S, 5, 2, 0, 0, false },	    /* sampled before it was read */
		{ 12 * S, 13 * S, 70, 20 * S, 100, 2, 100, 0, false }, /* it began inside */
		{ 12 * S, 14 * S, 100, 14 * S, 100, 2, 100, 0, true }, /* and ended there */
		{ S, 10 * S, 40, 14 * S, 100, 2, 60, 0, true },
		{ S, 10 * S, 40, 15 * S, 100, 2, 8192, 0, false }, /* it runs: not known yet */
		{ S, 10 * S, 40, 20 * S, 30, 2, 8192, 0, false },  /* it cannot shrink */
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		read_at(i, cases[i].start_ns, cases[i].first_ns, cases[i].first, false);
		read_at(i, cases[i].start_ns, cases[i].last_ns, cases[i].last, cases[i].ends);
		for (unsigned n = 0; n < cases[i].samples; n++)
			moved_totals_add(totals, PID, i, 4096, false);
	}
	moved_totals_settle(totals, 10 * S, 20 * S);
	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int64_t rest, all = sum(i, cases[i].samples, &rest);

		if (all != cases[i].due || rest != cases[i].rest)
			fail_msg("case %u: %ld and %ld", i, all, rest);
	}
}

/* A thread id that is used again, and one that nobody has read. */
static void test_lives(void **state)
{
	int64_t rest;

	read_at(1, S, 10 * S, 100, false);
	read_at(1, S, 12 * S, 150, true);
	read_at(1, 13 * S, 19 * S, 30, true);
	for (int i = 0; i < 3; i++)
		moved_totals_add(totals, PID, 1, 4096, false);
	moved_totals_add(totals, PID, 2, 4096, false);
	moved_totals_settle(totals, 10 * S, 20 * S);
	assert_int_equal(sum(1, 3, &rest), 80);
	assert_int_equal(sum(2, 1, &rest), 4096);
	assert_int_equal(rest, 0);
}

/* Sums stay what they are: samples share what is left, and without samples it is the rest. */
static void test_sums_stay(void **state)
{
	int64_t rest;

	for (uint32_t tid = 1; tid <= 3; tid++) {
		read_at(tid, S, 10 * S, 0, false);
		read_at(tid, S, 20 * S, tid == 3 ? 900 : 10000, false);
		moved_totals_add(totals, PID, tid, 1001, true);
	}
	for (int i = 0; i < 2; i++)
		moved_totals_add(totals, PID, 1, 4096, false);
	moved_totals_settle(totals, 10 * S, 20 * S);
	for (uint32_t tid = 1; tid <= 3; tid++)
		assert_int_equal(moved_totals_scale(totals, PID, tid, 1001, true), 1001);
	assert_int_equal(sum(1, 2, &rest), 8999);
	assert_int_equal(rest, 0);
	assert_int_equal(moved_totals_take_rest(totals, PID, 2), 8999);
	assert_int_equal(moved_totals_take_rest(totals, PID, 3), 0); /* it was read before the last ones */
}

/* Read for another session that ended later, and as the thread exited: what it moved between is of
 * neither sample nor rest. */
static void test_readings_behind_the_end(void **state)
{
	moved_totals_until(totals, 20 * S);
	for (uint32_t tid = 1; tid <= 2; tid++) {
		read_at(tid, S, 10 * S, 0, false);
		read_at(tid, S, 20 * S, 1000, false);
		read_at(tid, S, 21 * S, 5000, tid == 2);
	}
	moved_totals_add(totals, PID, 2, 4096, false);
	moved_totals_settle(totals, 10 * S, 20 * S);
	assert_int_equal(moved_totals_take_rest(totals, PID, 1), 1000);
	assert_int_equal(moved_totals_scale(totals, PID, 2, 4096, false), 1000);
}

#define test(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = { test(test_sums_are_exact), test(test_lives),
					    test(test_sums_stay),
					    test(test_readings_behind_the_end) };

	return cmocka_run_group_tests_name("moved_totals", tests, NULL, NULL);
}
