// SPDX-License-Identifier: Apache-2.0
/* Time that a thread was blocked for and no sample stands for: it is in the profile and in the
 * ledger under a name of its own, and the session says what it comes from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/thread_ledger.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

#define TID 9u

/* The thread has not run until then. */
static void read_thread(struct session_fixture *f, uint64_t time_ns)
{
	struct feed_sample sample = { .time_ns = time_ns,
				      .value = NS_PER_MS,
				      .proc = 1,
				      .tid = TID,
				      .object = 1,
				      .type = PROF_SAMPLE_THREAD,
				      .comm = "worker" };

	fake_feed_any_sample(&f->feed, &sample);
}

static int64_t ms_of(const struct profile *p, const struct thread_ledger *ledger, const char *wait)
{
	int64_t ns = 0;

	for (uint32_t i = 0; i < ledger->wait_count; i++)
		if (strcmp(profile_string(p, ledger->waits[i].wait), wait) == 0)
			ns += ledger->waits[i].ns;
	return ns / (int64_t)NS_PER_MS;
}

static bool is_noted(const struct profile_quality *quality, const char *begin)
{
	for (uint32_t i = 0; i < quality->note_count; i++)
		if (strncmp(quality->notes[i], begin, strlen(begin)) == 0)
			return true;
	return false;
}

/* The first of two waits ended with a return that nobody saw. */
static void unseen_return(struct session_fixture *f, bool told)
{
	struct session_request request = session_fixture_request("web", 60);
	cleanup(profile) struct profile *p = NULL;
	struct thread_ledger ledger;
	char id[SESSION_ID_SIZE];
	struct err err = { 0 };

	request.type = PROFILE_WALL;
	session_fixture_start(f, &request, id);
	read_thread(f, clock_monotonic_ns());
	clock_sleep_ns(300 * NS_PER_MS);
	if (told)
		fake_feed_outcome(&f->feed, OUTCOME_return_missed, 1);
	fake_feed_wait(&f->feed, 1, TID, 2, clock_monotonic_ns(), 100 * NS_PER_MS,
		       PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX);
	/* as it is when the session's end is read */
	read_thread(f, clock_monotonic_ns() + 200 * NS_PER_MS);
	session_fixture_stop(f, id);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(thread_ledger_init(&ledger, p), 0);
	assert_int_equal(ledger.thread_count, 1);
	assert_int_equal(ms_of(p, &ledger, "futex"), 100);
	assert_true(ms_of(p, &ledger, "unsampled") >= 200);
	assert_int_equal(ms_of(p, &ledger, "other") + ms_of(p, &ledger, ""), 0);
	assert_int_equal(is_noted(&p->quality,
				  "waits of a process on this host may be missing: the kernel did not "
				  "report that a thread was back on a CPU"),
			 told);
	thread_ledger_deinit(&ledger);
}

static void test_unseen_return(void **state)
{
	unseen_return(*state, true);
	unseen_return(*state, false);
}

/* Bytes of which some may be missing are not called exact. */
static void unseen_end(struct session_fixture *f, bool told)
{
	struct session_request request = session_fixture_request("web", 60);
	struct feed_sample sync = { .kernel_stack = 1,
				    .value = 2 * NS_PER_MS,
				    .proc = 1,
				    .tid = TID,
				    .type = PROF_SAMPLE_OFFCPU,
				    .state = PROF_OFF_BLOCKED << 4 | PROF_WAIT_DISK,
				    .comm = "worker",
				    .detail = PROF_DETAIL_SYNC };
	cleanup(profile) struct profile *p = NULL;
	char id[SESSION_ID_SIZE];
	struct err err = { 0 };

	request.type = PROFILE_IO;
	session_fixture_start(f, &request, id);
	clock_sleep_ns(50 * NS_PER_MS);
	if (told)
		fake_feed_outcome(&f->feed, OUTCOME_end_missed, 1);
	sync.time_ns = clock_monotonic_ns();
	fake_feed_any_sample(&f->feed, &sync);
	session_fixture_stop(f, id);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(is_noted(&p->quality, "bytes of a process on this host may be missing"), told);
	assert_int_equal(is_noted(&p->quality, "bytes are exact"), !told);
	assert_true(is_noted(&p->quality, "bytes of Linux AIO"));
}

static void test_unseen_end(void **state)
{
	unseen_end(*state, true);
	unseen_end(*state, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_unseen_return, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_unseen_end, session_fixture_setup,
						session_fixture_teardown),
	};

	return cmocka_run_group_tests_name("unseen_waits", tests, NULL, NULL);
}
