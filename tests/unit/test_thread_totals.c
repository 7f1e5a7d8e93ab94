// SPDX-License-Identifier: Apache-2.0
/* Samples of threads against the kernel's counts for these threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/recording/thread_totals.h"

#define S  1000000000ll
#define MS 1000000ll

#define PID 7u

static struct thread_totals *totals;

static int create(void **state)
{
	totals = thread_totals_create();
	return totals ? 0 : -1;
}

static int destroy(void **state)
{
	thread_totals_destroy(totals);
	return 0;
}

static void read_at(uint32_t tid, int64_t start, int64_t time, int64_t cpu, int64_t waits,
		    bool ends)
{
	const struct thread_reading reading = { .time_ns = (uint64_t)time,
						.start_ns = (uint64_t)start,
						.counts = { [THREAD_COUNT_CPU_NS] = (uint64_t)cpu,
							    [THREAD_COUNT_WAITS_NS] = (uint64_t)waits },
						.ends = ends };

	assert_int_equal(thread_totals_read(totals, PID, tid, &reading), 0);
}

static void read_stolen_at(uint32_t tid, int64_t start, int64_t time, int64_t stolen,
			   uint64_t blocks, bool ends)
{
	const struct thread_reading reading = { .time_ns = (uint64_t)time,
						.start_ns = (uint64_t)start,
						.counts = { [THREAD_COUNT_STOLEN_NS] = (uint64_t)stolen,
							    [THREAD_COUNT_BLOCKS] = blocks },
						.ends = ends };

	assert_int_equal(thread_totals_read_stolen(totals, PID, tid, &reading), 0);
}

static int64_t scaled(uint32_t tid, enum thread_class class, bool exact, int64_t value)
{
	return thread_totals_scale(totals, PID, tid, class, exact, value);
}

/* From 10 to 20 s: 4 s on a CPU, 1 s waiting for one, 5 s blocked. */
static void test_every_class_is_its_sum(void **state)
{
	read_at(1, S, 10 * S, 3 * S, S, false);
	read_at(1, S, 20 * S, 7 * S, 2 * S, false);
	for (int i = 0; i < 100; i++)
		thread_totals_add(totals, PID, 1, THREAD_ON_CPU, false, 50 * MS);
	thread_totals_add(totals, PID, 1, THREAD_BLOCKED, true, 4 * S);
	for (int i = 0; i < 100; i++)
		thread_totals_add(totals, PID, 1, THREAD_BLOCKED, false, 8 * MS);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	assert_int_equal(scaled(1, THREAD_ON_CPU, false, 50 * MS), 40 * MS);
	/* what is exact stays, what is sampled makes up the rest */
	assert_int_equal(scaled(1, THREAD_BLOCKED, true, 4 * S), 4 * S);
	assert_int_equal(scaled(1, THREAD_BLOCKED, false, 8 * MS), 10 * MS);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_WAITS), S);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_WAITS), 0);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_BLOCKED), 0);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_ON_CPU), 0);
}

/* Readings come a little after both ends. */
static void test_readings_beside_the_ends(void **state)
{
	read_at(1, S, 10 * S + 50 * MS, 0, 0, false);
	read_at(1, S, 20 * S + 100 * MS, 1005 * MS, 0, false);
	thread_totals_add(totals, PID, 1, THREAD_ON_CPU, false, S);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	assert_int_equal(scaled(1, THREAD_ON_CPU, false, S), S);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_BLOCKED), 9 * S);
}

/* And for another session that ends later, when it has nothing to do any more, or as it exits. */
static void test_readings_behind_the_end(void **state)
{
	thread_totals_until(totals, 20 * S);
	for (uint32_t tid = 1; tid <= 2; tid++) {
		read_at(tid, S, 10 * S, 0, 0, false);
		read_stolen_at(tid, S, 10 * S, 0, 0, false);
		read_at(tid, S, 20 * S, 9 * S, 0, false);
		read_stolen_at(tid, S, 20 * S, 0, 2, false);
		read_at(tid, S, 22 * S, 9 * S, 0, tid == 2);
		read_stolen_at(tid, S, 22 * S, S, 2, tid == 2);
	}
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	for (uint32_t tid = 1; tid <= 2; tid++) {
		assert_int_equal(thread_totals_take_rest(totals, PID, tid, THREAD_ON_CPU), 9 * S);
		assert_int_equal(thread_totals_take_rest(totals, PID, tid, THREAD_BLOCKED), S);
		assert_int_equal(thread_totals_take_rest(totals, PID, tid, THREAD_STOLEN), 0);
	}
}

/* It begins and ends inside, and its number is used again. */
static void test_lives_inside(void **state)
{
	read_at(1, 12 * S, 13 * S, S / 2, 0, true);
	read_at(1, 15 * S, 17 * S, S, 0, true);
	read_at(1, 15 * S, 18 * S, 2 * S, 0, true); /* not after its end */
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_ON_CPU), 3 * S / 2);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_BLOCKED), 3 * S / 2);
}

/* Its process's first thread ends after 1 s of 10 because another one calls exec, which has its
 * number and begin from then on: what that had counted before, and that it ends too, says nothing
 * of the rest. */
static void test_another_thread_calls_exec(void **state)
{
	read_at(PID, S, 10 * S, S, 0, false);
	read_at(PID, S, 11 * S, 2 * S, 0, true);
	read_at(PID, S, 15 * S, 4 * S, 0, true);
	read_at(PID, S, 20 * S, 300 * MS, 0, false);
	thread_totals_add(totals, PID, PID, THREAD_ON_CPU, false, 8 * S);
	thread_totals_add(totals, PID, PID, THREAD_BLOCKED, true, 2 * S);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	assert_int_equal(scaled(PID, THREAD_ON_CPU, false, 8 * S), 8 * S);
	assert_int_equal(scaled(PID, THREAD_BLOCKED, true, 2 * S), 2 * S);
	assert_int_equal(thread_totals_take_rest(totals, PID, PID, THREAD_BLOCKED), 0);
}

/* It was before the session, in which the caller is read at both ends. */
static void test_another_thread_has_called_exec(void **state)
{
	read_at(PID, S, 5 * S, 4 * S, 0, true);
	read_at(PID, S, 10 * S, S, 0, false);
	read_at(PID, S, 20 * S, 7 * S, 0, false);
	thread_totals_add(totals, PID, PID, THREAD_ON_CPU, false, 5 * S);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	assert_int_equal(scaled(PID, THREAD_ON_CPU, false, 5 * S), 6 * S);
	assert_int_equal(thread_totals_take_rest(totals, PID, PID, THREAD_BLOCKED), 4 * S);
}

static void test_what_is_not_known_stays(void **state)
{
	read_at(1, S, 10 * S, 3 * S, S, false); /* no second reading */
	read_at(2, S, 10 * S, 3 * S, S, false);
	read_at(2, S, 14 * S, 4 * S, S, false); /* covers too little */
	read_at(3, S, 10 * S, 3 * S, S, false);
	read_at(3, S, 20 * S, 2 * S, S, false); /* runs backwards */
	for (uint32_t tid = 1; tid <= 4; tid++)
		thread_totals_add(totals, PID, tid, THREAD_BLOCKED, false, S);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	for (uint32_t tid = 1; tid <= 4; tid++) {
		assert_int_equal(scaled(tid, THREAD_BLOCKED, false, S), S);
		assert_int_equal(thread_totals_take_rest(totals, PID, tid, THREAD_BLOCKED), 0);
	}
}

/* Exact waits and the kernel's counters differ by a tick: spread, no rest, nothing thrown away. */
static void test_drift_is_spread(void **state)
{
	read_at(1, S, 10 * S, 0, 0, false);
	read_at(1, S, 20 * S, 10 * MS, 0, false);
	thread_totals_add(totals, PID, 1, THREAD_BLOCKED, true, 9900 * MS);
	for (int i = 0; i < 10; i++)
		thread_totals_add(totals, PID, 1, THREAD_BLOCKED, false, 10 * MS);
	thread_totals_settle(totals, 10 * S, 20 * S, false);
	assert_in_range(scaled(1, THREAD_BLOCKED, true, 9900 * MS), 9880 * MS, 9910 * MS);
	assert_in_range(scaled(1, THREAD_BLOCKED, false, 10 * MS), 5 * MS, 10 * MS);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_BLOCKED), 0);
	/* not a class of this profile */
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_ON_CPU), 0);
}

static void expect_rests(uint32_t tid, int64_t on_cpu, int64_t blocked, int64_t stolen)
{
	assert_int_equal(thread_totals_take_rest(totals, PID, tid, THREAD_ON_CPU), on_cpu);
	assert_int_equal(thread_totals_take_rest(totals, PID, tid, THREAD_BLOCKED), blocked);
	assert_int_equal(thread_totals_take_rest(totals, PID, tid, THREAD_STOLEN), stolen);
}

/* From 10 to 20 s: 7 s on a CPU, and of the rest 1 s stolen. */
static void read_both(uint32_t tid, int64_t stolen, uint64_t blocks)
{
	read_at(tid, S, 10 * S, 3 * S, 0, false);
	read_at(tid, S, 20 * S, 10 * S, 0, false);
	read_stolen_at(tid, S, 10 * S, 5 * S, 8, false);
	read_stolen_at(tid, S, 20 * S, 5 * S + stolen, 8 + blocks, false);
}

static void test_stolen_is_not_blocked(void **state)
{
	read_both(1, S, 6);
	thread_totals_add(totals, PID, 1, THREAD_BLOCKED, true, 2 * S);
	/* more than all that is missing */
	read_both(2, 4 * S, 6);
	/* of a thread that began inside, and of one that ran backwards */
	read_at(3, 12 * S, 18 * S, 4 * S, 0, true);
	read_stolen_at(3, 12 * S, 18 * S, S, 2, true);
	read_both(4, -S, 6);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	assert_int_equal(scaled(1, THREAD_BLOCKED, true, 2 * S), 2 * S);
	expect_rests(1, 7 * S, 0, S);
	expect_rests(2, 7 * S, 0, 3 * S);
	expect_rests(3, 4 * S, S, S);
	expect_rests(4, 7 * S, 3 * S, 0);
}

/* It had a CPU, or wanted one, all the time: what was not counted by the end is not blocked either.
 */
static void test_never_blocked(void **state)
{
	read_both(1, S, 0);
	/* a sample says that it was */
	read_both(2, S, 0);
	thread_totals_add(totals, PID, 2, THREAD_BLOCKED, true, 2 * S);
	/* it was all the time */
	read_at(3, S, 10 * S, 3 * S, 0, false);
	read_at(3, S, 20 * S, 3 * S, 0, false);
	read_stolen_at(3, S, 10 * S, 5 * S, 8, false);
	read_stolen_at(3, S, 20 * S, 5 * S, 8, false);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	expect_rests(1, 9 * S, 0, S);
	assert_int_equal(scaled(2, THREAD_BLOCKED, true, 2 * S), 2 * S);
	expect_rests(2, 7 * S, 0, S);
	expect_rests(3, 0, 10 * S, 0);
}

/* A thread that ends before its first tick has no counts of the kernel when it exits. */
static void test_shorter_than_a_tick(void **state)
{
	/* it waited, too */
	read_at(1, 12 * S, 12 * S + 3 * MS, 0, MS, true);
	read_stolen_at(1, 12 * S, 12 * S + 3 * MS, 0, 0, true);
	/* some of it was stolen, and its number was used before */
	read_at(2, 12 * S, 12 * S + 2 * MS, 0, 0, true);
	read_stolen_at(2, 12 * S, 12 * S + 2 * MS, 0, 0, true);
	read_at(2, 13 * S, 13 * S + 3 * MS, 0, 0, true);
	read_stolen_at(2, 13 * S, 13 * S + 3 * MS, MS, 0, true);
	/* it was blocked, and the reading does not say how long */
	read_at(3, 12 * S, 12 * S + 3 * MS, 0, 0, true);
	read_stolen_at(3, 12 * S, 12 * S + 3 * MS, 0, 2, true);
	/* it began just before the session did */
	read_at(4, 10 * S - MS, 10 * S, 0, 0, false);
	read_stolen_at(4, 10 * S - MS, 10 * S, 0, 0, false);
	read_at(4, 10 * S - MS, 10 * S + MS, 0, 0, true);
	read_stolen_at(4, 10 * S - MS, 10 * S + MS, 0, 0, true);
	thread_totals_settle(totals, 10 * S, 20 * S, true);
	assert_int_equal(thread_totals_take_rest(totals, PID, 1, THREAD_WAITS), MS);
	expect_rests(1, 2 * MS, 0, 0);
	expect_rests(2, 4 * MS, 0, MS);
	expect_rests(3, 0, 3 * MS, 0);
	expect_rests(4, MS, 0, 0);
}

#define test(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_every_class_is_its_sum),
		test(test_readings_beside_the_ends),
		test(test_readings_behind_the_end),
		test(test_lives_inside),
		test(test_another_thread_calls_exec),
		test(test_another_thread_has_called_exec),
		test(test_what_is_not_known_stays),
		test(test_drift_is_spread),
		test(test_stolen_is_not_blocked),
		test(test_never_blocked),
		test(test_shorter_than_a_tick),
	};

	return cmocka_run_group_tests_name("thread_totals", tests, NULL, NULL);
}
