// SPDX-License-Identifier: Apache-2.0
/* Sessions over time: their end, processes that come and go, restarts of each process of the
 * daemon, a feed or a disk that is full. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

/* ---- time ------------------------------------------------------------------------------------ */
static void test_ends_by_time(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 1);
	uint64_t begin_ns = clock_monotonic_ns();
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 5);
	/* Delivered now, but from after the end. */
	fake_feed_sample(&f->feed, 1, 1, 1, clock_monotonic_ns() + 2 * NS_PER_S, PERIOD_99);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 60 * NS_PER_S, &err), 0);
	assert_in_range(clock_monotonic_ns() - begin_ns, NS_PER_S, 3 * NS_PER_S);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_false(info.stopped_early);
	assert_int_equal(info.sample_count, 5);
	assert_int_equal(info.duration_ns, NS_PER_S);
	session_info_deinit(&info);
	for (int i = 0; i < 100 && f->feed.rate_hz; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_int_equal(f->feed.rate_hz, 0); /* nothing is sampled any more */
}

static void test_waits_for_a_process(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("late", 60);
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	request.wait_s = 30;
	session_fixture_start(f, &request, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.started_at_ns, 0);
	session_info_deinit(&info);
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 9,
						      .tgid = 109,
						      .comm = "late",
						      .exe = "/usr/bin/late",
						      .cgroup = "/" });
	assert_int_equal(sessions_wait_started(f->sessions, "default", id, 60 * NS_PER_S, &err), 0);
	session_fixture_samples(f, 9, 1, 4);
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 4);
	session_info_deinit(&info);

	request.service = "never";
	request.wait_s = 1;
	session_fixture_start(f, &request, id);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 60 * NS_PER_S, &err), 0);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_FAILED);
	assert_non_null(strstr(info.failure, "waitSeconds"));
	session_info_deinit(&info);
}

/* Runtimes whose locks the kernel does not know say where their waits are. */
static void test_locks_of_runtimes(void **state)
{
	static const struct {
		const char *program, *exe;
		uint32_t flag;
	} runtimes[] = { { "java", "/usr/bin/java", FEED_PROC_JVM },
			 { "ruby", "/usr/bin/ruby", FEED_PROC_RUBY } };
	struct session_fixture *f = *state;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	for (uint32_t i = 0; i < ARRAY_SIZE(runtimes); i++) {
		struct session_request request = session_fixture_request(runtimes[i].program, 60);
		struct session_info info;

		request.type = PROFILE_MUTEX;
		request.wait_s = 30;
		session_fixture_start(f, &request, id);
		fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 9 + i,
							      .tgid = 109 + i,
							      .comm = runtimes[i].program,
							      .exe = runtimes[i].exe,
							      .cgroup = "/",
							      .flags = runtimes[i].flag });
		assert_int_equal(
			sessions_wait_started(f->sessions, "default", id, 60 * NS_PER_S, &err), 0);
		info = session_fixture_get(f, id);
		assert_true(info.quality.note_count > 0);
		assert_non_null(
			strstr(info.quality.notes[info.quality.note_count - 1], "block session"));
		session_info_deinit(&info);
	}
}

static void test_a_process_that_exits(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("pid:103", 60);
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 3, 1, 4);
	fake_feed_exit(&f->feed, 3);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 60 * NS_PER_S, &err), 0);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 4);
	assert_true(info.duration_ns < 5 * NS_PER_S);
	session_info_deinit(&info);
	request.service = "db";
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "ServiceNotRunning"); /* known by its session */
}

static void test_a_process_with_children(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("pid:103", 60);
	struct fake_proc child = {
		.proc = 4, .tgid = 200, .comm = "cc1", .exe = "/usr/bin/cc1", .cgroup = "/"
	};
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	request.children = true;
	session_fixture_start(f, &request, id);
	assert_int_equal(f->feed.families.count, 1);
	assert_int_equal(f->feed.families.items[0].start_boottime_ns, 103000);
	child.family = f->feed.families.items[0].family;
	fake_feed_proc(&f->feed, &child);
	session_fixture_samples(f, 3, 1, 4);
	session_fixture_samples(f, 4, 1, 5);
	session_fixture_samples(f, 1, 1, 7); /* nobody's child */
	fake_feed_exit(&f->feed, 3);
	clock_sleep_ns(
		3500 *
		NS_PER_MS); /* longer than a process may take for an exec: the child is left */
	session_fixture_samples(f, 4, 1, 2);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_RUNNING);
	session_info_deinit(&info);
	fake_feed_exit(&f->feed, 4);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 60 * NS_PER_S, &err), 0);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 11);
	assert_int_equal(info.process_count, 2);
	session_info_deinit(&info);
	for (int i = 0; i < 100 && f->feed.families.count; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_int_equal(f->feed.families.count, 0); /* nobody is followed any more */
}

/* ---- restarts -------------------------------------------------------------------------------- */
/* The server is killed (its memory is gone, the ring and the files stay) and comes back. */
static void test_restart_of_the_server(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct profile *p = NULL;
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	int sent = 0;

	session_fixture_start(f, &request, id);
	for (int life = 0; life < 4; life++) {
		session_fixture_samples(f, 1, 1, 100);
		session_fixture_samples(f, 2, 2, 50);
		sent += 150;
		if (life % 2)
			clock_sleep_ns(250 * NS_PER_MS); /* some of it was flushed, some not */
		fake_feed_disconnect(&f->feed);
		sessions_abandon(f->sessions);
		store_close(f->store);
		session_fixture_samples(f, 1, 1, 7); /* while nobody reads */
		sent += 7;
		session_fixture_open(f);
	}
	session_fixture_samples(f, 2, 2, 1);
	sent++;
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, sent);
	assert_int_equal(info.process_count, 2);
	assert_int_equal(info.quality.outcomes[OUTCOME_truncated], 4 * 50 + 1);
	session_info_deinit(&info);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	assert_int_equal(p->totals[0], sent);
	assert_int_equal(session_fixture_self(p, "f_200"), (4 * 50 + 1) * PERIOD_99);
	(void)profile_unref(p);
}

static void test_restart_of_the_daemon(void **state)
{
	struct session_fixture *f = *state;
	struct session_request with = session_fixture_request("web", 60),
			       without = session_fixture_request("db", 60);
	struct session_info info;
	char id[SESSION_ID_SIZE], empty[SESSION_ID_SIZE];

	session_fixture_start(f, &with, id);
	session_fixture_start(f, &without, empty);
	session_fixture_samples(f, 1, 1, 100);
	clock_sleep_ns(400 * NS_PER_MS);
	fake_feed_disconnect(&f->feed);
	sessions_abandon(f->sessions);
	store_close(f->store);
	fake_feed_close(&f->feed);
	fake_feed_open(&f->feed, 1 << 20); /* another ring */
	session_fixture_open(f);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 100);
	assert_in_range(info.duration_ns, 1, 5 * NS_PER_S);
	session_info_deinit(&info);
	info = session_fixture_get(f, empty);
	assert_int_equal(info.status, SESSION_FAILED);
	assert_non_null(strstr(info.failure, "restarted"));
	session_info_deinit(&info);
}

static void test_restart_of_the_collector(void **state)
{
	const uint64_t swapped[] = { prof_frame_module(0, 0x200, 0) };
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct profile *p = NULL;
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 10);
	/* The new life numbers everything differently. */
	fake_feed_forget(&f->feed);
	fake_feed_epoch(&f->feed, 2);
	fake_feed_module(&f->feed, 0, 0xb0, "/usr/lib/libx.so");
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 3,
						      .tgid = 101,
						      .comm = "web",
						      .exe = "/usr/bin/web",
						      .cgroup = "/system.slice/web.service" });
	fake_feed_stack(&f->feed, 5, swapped, 1, 0);
	session_fixture_samples(f, 3, 5, 20);
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.sample_count, 30);
	assert_int_equal(info.process_count, 1);
	assert_int_equal(info.quality.note_count, 1);
	assert_non_null(strstr(info.quality.notes[0], "collector"));
	session_info_deinit(&info);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	assert_int_equal(session_fixture_self(p, "f_100"), 10 * PERIOD_99);
	assert_int_equal(session_fixture_self(p, "f_200"), 20 * PERIOD_99);
	(void)profile_unref(p);
}

static void *connect_later(void *arg)
{
	struct session_fixture *f = arg;

	clock_sleep_ns(300 * NS_PER_MS);
	fake_feed_connect(&f->feed, f->sessions);
	return NULL;
}

/* While the collector is away a client is told to come back, not that the type does not exist. A
 * collector that is back within moments is waited for. */
static void test_start_without_collector(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	struct err err = { 0 };
	pthread_t thread;

	fake_feed_disconnect(&f->feed);
	for (int i = 0; i < 200; i++) {
		struct sessions_health health;

		sessions_health(f->sessions, &health);
		if (!health.collector_ok)
			break;
		clock_sleep_ns(10 * NS_PER_MS);
	}
	assert_int_equal(sessions_start(f->sessions, &request, &info, &err), -EAGAIN);
	assert_string_equal(err.word, "AgentBusy");
	assert_non_null(strstr(err.text, "collector"));
	assert_true(err.retry_after_s > 0);
	assert_int_equal(pthread_create(&thread, NULL, connect_later, f), 0);
	assert_int_equal(sessions_start(f->sessions, &request, &info, &err), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	session_info_deinit(&info);
}

/* ---- names ----------------------------------------------------------------------------------- */
static void test_names_outlive_the_symbolizer(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	uint64_t begin_ns;
	unsigned asked;

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_stop(f, id);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	(void)profile_unref(p);
	for (int i = 0; i < 100; i++) { /* until the finisher has kept them */
		struct session_info info = session_fixture_get(f, id);

		session_info_deinit(&info);
		if (info.quality.unknown_frame_pct >= 0)
			break;
		clock_sleep_ns(20 * NS_PER_MS);
	}
	fake_feed_disconnect(&f->feed);
	session_fixture_close(f);
	f->feed.mute_names = true;
	session_fixture_open(f);
	asked = f->feed.names;
	begin_ns = clock_monotonic_ns();
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	assert_int_equal(f->feed.names, asked);
	assert_in_range(clock_monotonic_ns() - begin_ns, 0, 3 * NS_PER_S);
	assert_int_equal(session_fixture_self(p, "f_100"), 10 * PERIOD_99);
	(void)profile_unref(p);
}

/* ---- a full disk -------------------------------------------------------------------------------
 */

/* On a full disk running sessions fail with the reason, stored ones can still be read, and all
 * works again when there is room. */
static void test_a_full_disk(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct session_request request = session_fixture_request("db", 60);
	char kept[SESSION_ID_SIZE], running[SESSION_ID_SIZE];
	uint64_t begin_ns, sent = 0, got = 0;
	struct session_info info;
	struct profile *p = NULL;
	struct err err = { 0 };

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	session_fixture_start(f, &request, kept);
	session_fixture_samples(f, 3, 1, 5);
	session_fixture_stop(f, kept);
	session_fixture_start(f, &request, running);
	store_set_budget(f->store, 1); /* refused as on a full disk: test_store.c, test_conversation.py */
	session_fixture_samples(f, 3, 1, 5);
	session_fixture_samples(f, 1, 1, 7);
	assert_int_equal(sessions_wait(f->sessions, "default", running, 60 * NS_PER_S, &err), 0);
	info = session_fixture_get(f, running);
	assert_int_equal(info.status, SESSION_FAILED);
	assert_non_null(strstr(info.failure, "budget is full"));
	session_info_deinit(&info);
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "StoreUnavailable");
	assert_int_equal(sessions_profile(f->sessions, "default", kept, &p, &err), 0);
	assert_int_equal(p->totals[0], 5);
	(void)profile_unref(p);

	store_set_budget(f->store, 0);
	begin_ns = clock_monotonic_ns();
	session_fixture_start(f, &request, running);
	session_fixture_samples(f, 3, 1, 5);
	session_fixture_stop(f, running);
	info = session_fixture_get(f, running);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 5);
	session_info_deinit(&info);
	/* Continuous data comes again by itself. */
	for (; !got && clock_monotonic_ns() < begin_ns + 60 * NS_PER_S; sent++) {
		struct session_list list = session_fixture_list(f, "default", "web");

		for (uint32_t i = 0; i < list.count; i++)
			got += list.items[i].sample_count;
		session_list_deinit(&list);
		session_fixture_samples(f, 1, 1, 1);
		clock_sleep_ns(100 * NS_PER_MS);
	}
	assert_in_range(got, 1, 7 + sent);
}

/* A feed that is full until the end has no room for the losses either, until what was read of it is
 * stored. */
static void test_late_losses_are_counted(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	char id[SESSION_ID_SIZE];

	session_fixture_close(f);
	f->options.flush_interval_ns = 60 * NS_PER_S;
	session_fixture_open(f);
	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 100);
	session_fixture_wait_samples(f, "default", "web", 100);
	f->feed.untold = 40;
	fake_feed_fill(&f->feed);
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.quality.lost, 40);
	assert_int_equal(info.quality.samples, 100);
	session_info_deinit(&info);
}

int main(void)
{
#define T(name)                                                                                    \
	cmocka_unit_test_setup_teardown(name, session_fixture_setup, session_fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_ends_by_time),
		T(test_waits_for_a_process),
		T(test_locks_of_runtimes),
		T(test_a_process_that_exits),
		T(test_a_process_with_children),
		T(test_restart_of_the_server),
		T(test_restart_of_the_daemon),
		T(test_restart_of_the_collector),
		T(test_start_without_collector),
		T(test_names_outlive_the_symbolizer),
		T(test_a_full_disk),
		T(test_late_losses_are_counted),
	};

	return cmocka_run_group_tests_name("session restarts", tests, NULL, NULL);
}
