// SPDX-License-Identifier: Apache-2.0
/* The session layer as a whole: a feed made by hand through a real ring, a real store, a symbolizer
 * at the other end of a real channel. What sessions see, what is refused, lists and baselines. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/compare/window_matrix.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

/* ---- what a session sees --------------------------------------------------------------------- */

static void test_a_session(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_samples(f, 2, 2, 30);
	session_fixture_samples(f, 3, 1, 50); /* another service */
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_true(info.stopped_early);
	assert_string_equal(info.selector, "service:web");
	assert_int_equal(info.sample_count, 40);
	assert_int_equal(info.total_value, 40 * PERIOD_99);
	assert_int_equal(info.process_count, 2);
	assert_int_equal(info.processes[0].pid, 102);
	assert_int_equal(info.processes[0].value, 30 * PERIOD_99);
	assert_int_equal(info.quality.samples, 40);
	assert_int_equal(info.quality.lost, 0);
	assert_int_equal(info.quality.outcomes[OUTCOME_truncated], 30);
	assert_true(fabs(info.quality.effective_rate - 99) < 0.1);
	assert_true(info.completed_at_ns > info.started_at_ns);
	session_info_deinit(&info);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(p->totals[0], 40);
	assert_int_equal(p->totals[1], 40 * PERIOD_99);
	assert_int_equal(session_fixture_self(p, "f_100"), 10 * PERIOD_99);
	assert_int_equal(session_fixture_self(p, "f_200"), 30 * PERIOD_99);
	assert_int_equal(session_fixture_self(p, "f_300"), 0);
	assert_int_equal(p->event_count, 40);
	for (uint32_t i = 1; i < p->event_count; i++)
		assert_true(p->events[i - 1].time_ns <= p->events[i].time_ns);
	(void)profile_unref(p);
}

/* While it runs the same is seen, also what is not stored yet, and each sample once. */
static void test_partial_results(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	int sent = 0;

	session_fixture_start(f, &request, id);
	for (int round = 0; round < 4; round++) {
		struct profile *p = NULL;
		struct session_info info;

		session_fixture_samples(f, 1, 1, 25);
		sent += 25;
		for (int i = 0; i < 100; i++) {
			info = session_fixture_get(f, id);
			session_info_deinit(&info);
			if ((int)info.sample_count == sent)
				break;
			clock_sleep_ns(10 * NS_PER_MS);
		}
		assert_int_equal(info.sample_count, sent);
		assert_int_equal(info.status, SESSION_RUNNING);
		clock_sleep_ns(1050 * NS_PER_MS); /* past the cache of a running session */
		if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(p->totals[0], sent);
		(void)profile_unref(p);
	}
	session_fixture_stop(f, id);
}

/* A session that nothing comes for any more, after somebody has asked for what it had, does not
 * hold the ring. */
static void test_a_question_holds_nothing(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	session_fixture_close(f);
	f->options.flush_interval_ns = 1 * NS_PER_S;
	session_fixture_open(f);
	session_fixture_wait_known(f, "web");
	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 25);
	while (!p || !p->totals[0]) {
		if (p)
			(void)profile_unref(p);
		clock_sleep_ns(10 * NS_PER_MS);
		if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
			fail_msg("%s", err.text);
	}
	(void)profile_unref(p);
	session_fixture_samples(f, 3, 1, 75);
	for (int i = 0; i < 500 && ring_tail(f->feed.ring) != ring_head(f->feed.ring); i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_int_equal(ring_tail(f->feed.ring), ring_head(f->feed.ring));
	session_fixture_stop(f, id);
}

/* The clock that people read is set back and forth: a session still ends as much after its begin as
 * it lasted. */
static void test_clock_is_set(void **state)
{
	static const int64_t steps_ns[] = { -3600 * (int64_t)NS_PER_S, 3600 * (int64_t)NS_PER_S };
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	char id[SESSION_ID_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(steps_ns); i++) {
		struct session_info info;

		fake_feed_set_clock(&f->feed, 0);
		session_fixture_start(f, &request, id);
		session_fixture_samples(f, 1, 1, 25);
		fake_feed_set_clock(&f->feed, steps_ns[i]);
		session_fixture_samples(f, 1, 1, 25);
		clock_sleep_ns(200 * NS_PER_MS);
		session_fixture_stop(f, id);
		info = session_fixture_get(f, id);
		assert_int_equal(info.status, SESSION_COMPLETED);
		assert_int_equal(info.sample_count, 50);
		assert_true(info.duration_ns >= 200 * NS_PER_MS);
		/* The three clocks are not read at one instant. */
		assert_in_range(info.completed_at_ns - info.started_at_ns,
				info.duration_ns - NS_PER_MS, info.duration_ns + NS_PER_MS);
		session_info_deinit(&info);
	}
}

/* A session that wants less than the host samples keeps its share, and the sum stays right. */
static void test_thinning_is_unbiased(void **state)
{
	enum { N = 20000 };
	struct session_fixture *f = *state;
	struct session_request slow = session_fixture_request("web", 60),
			       fast = session_fixture_request("host", 60);
	double p = 100.0 / 1000.0, expected = N * 1e6, deviation;
	struct session_info info;
	char slow_id[SESSION_ID_SIZE], fast_id[SESSION_ID_SIZE];
	uint64_t now_ns;

	slow.rate_hz = 100;
	fast.rate_hz = 1000;
	session_fixture_start(f, &slow, slow_id);
	session_fixture_start(f, &fast, fast_id);
	now_ns = clock_monotonic_ns();
	for (int i = 0; i < N; i++)
		fake_feed_sample(&f->feed, 1, 7, 1, now_ns + (uint64_t)i, 1000000);
	session_fixture_stop(f, slow_id);
	session_fixture_stop(f, fast_id);
	info = session_fixture_get(f, fast_id);
	assert_int_equal(info.sample_count, N);
	assert_int_equal(info.total_value, N * 1000000ll);
	session_info_deinit(&info);
	info = session_fixture_get(f, slow_id);
	/* Binomial: four standard deviations. */
	deviation = 4 * sqrt(N * p * (1 - p));
	assert_true(fabs((double)info.sample_count - N * p) < deviation);
	assert_true(fabs((double)info.total_value - expected) < deviation / p * 1e6);
	assert_true(fabs(info.quality.effective_rate - 100) < 0.1);
	session_info_deinit(&info);
}

/* A high rate for one service is not the host's; for the whole host it is. */
static void test_high_rates(void **state)
{
	struct session_fixture *f = *state;
	struct session_request service = session_fixture_request("web", 60),
			       host = session_fixture_request("host", 60);
	char service_id[SESSION_ID_SIZE], host_id[SESSION_ID_SIZE];
	struct session_info info;
	uint64_t now_ns;

	service.rate_hz = 999;
	session_fixture_start(f, &service, service_id);
	assert_int_equal(f->feed.rate_hz, 99);
	assert_int_equal(f->feed.fast_hz, 999);
	/* what its processes' own events bring, and what the host sampler found before them */
	now_ns = clock_monotonic_ns();
	for (int i = 0; i < 500; i++)
		fake_feed_sample(&f->feed, 1, 7, 1, now_ns + (uint64_t)i, i % 5 ? 1001001 : 10101010);
	session_fixture_stop(f, service_id);
	info = session_fixture_get(f, service_id);
	assert_int_equal(info.sample_count, 500);
	assert_int_equal(info.total_value, 400 * 1001001ll + 100 * 10101010ll);
	assert_int_equal(info.quality.note_count, 0);
	session_info_deinit(&info);
	host.rate_hz = 500;
	session_fixture_start(f, &host, host_id);
	assert_int_equal(f->feed.rate_hz, 500);
	service.rate_hz = 400;
	session_fixture_start(f, &service, service_id);
	assert_int_equal(f->feed.rate_hz, 500);
	assert_int_equal(f->feed.fast_hz, 0);
	session_fixture_stop(f, host_id);
	session_fixture_stop(f, service_id);
}

static void test_losses_are_shared_out(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	char id[SESSION_ID_SIZE];

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 25);
	session_fixture_samples(f, 3, 1, 75);
	fake_feed_outcome(&f->feed, 34, 40);
	fake_feed_outcome(&f->feed, 32, 1000); /* idle is no loss */
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.quality.lost, 10);
	session_info_deinit(&info);
}

/* The collector keeps to its budget: whoever gets less than was asked for is told, also if it was
 * so from the start. */
static void test_restraint_is_said(void **state)
{
	static const struct {
		enum profile_type type;
		const char *said;
	} cases[] = {
		{ PROFILE_CPU,
		  "sampled at 20 per second for a while: the CPU budget held it back" },
		{ PROFILE_OFFCPU,
		  "waits shorter than 80 ms were sampled, not all recorded, for a while: the CPU budget "
		  "held it back" },
	};
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	char id[SESSION_ID_SIZE];

	f->feed.rate_limit = 20;
	f->feed.off_threshold_ns = 80 * NS_PER_MS;
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		bool said = false;

		request.type = cases[k].type;
		session_fixture_start(f, &request, id);
		session_fixture_samples(f, 1, 100, 10);
		session_fixture_stop(f, id);
		info = session_fixture_get(f, id);
		for (uint32_t i = 0; i < info.quality.note_count; i++)
			said |= strcmp(info.quality.notes[i], cases[k].said) == 0;
		assert_true(said);
		session_info_deinit(&info);
	}
}

/* A session shows what its own type costs; another type's programs are in the whole alone. */
static void test_costs_by_type(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info[2];
	char ids[2][SESSION_ID_SIZE];

	fake_feed_costs(&f->feed, PROF_PROGRAM_SWITCH, 0);
	fake_feed_clock(&f->feed, 0, 0);
	session_fixture_start(f, &request, ids[0]);
	request.type = PROFILE_OFFCPU;
	session_fixture_start(f, &request, ids[1]);
	session_fixture_samples(f, 1, 1, 10);
	fake_feed_wait(&f->feed, 1, 8, 2, clock_monotonic_ns(), NS_PER_MS,
		       PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX);
	clock_sleep_ns(100 * NS_PER_MS);
	fake_feed_costs(&f->feed, PROF_PROGRAM_SWITCH, 10 * NS_PER_MS);
	fake_feed_clock(&f->feed, 20 * NS_PER_MS, 10 * NS_PER_MS);
	for (int i = 0; i < 2; i++) {
		session_fixture_stop(f, ids[i]);
		info[i] = session_fixture_get(f, ids[i]);
		/* of two CPUs, for at least 100 ms */
		assert_true(info[i].quality.overhead_pct > 0 && info[i].quality.overhead_pct <= 15);
	}
	assert_true(info[0].quality.type_overhead_pct == 0);
	assert_true(fabs(info[1].quality.type_overhead_pct / info[1].quality.overhead_pct -
			 1 / 3.0) < 0.01);
	session_info_deinit(&info[0]);
	session_info_deinit(&info[1]);
}

/* A program that executes another one is one process of the list, by its last name. */
static void test_an_exec_is_no_other_process(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	char id[SESSION_ID_SIZE];

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 10);
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 11,
						      .tgid = 101,
						      .comm = "web",
						      .exe = "/usr/bin/other",
						      .cgroup = "/system.slice/web.service",
						      .generation = 1 });
	session_fixture_samples(f, 11, 1, 20);
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.process_count, 1);
	assert_int_equal(info.processes[0].pid, 101);
	assert_string_equal(info.processes[0].exe, "/usr/bin/other");
	assert_int_equal(info.processes[0].value, 30 * PERIOD_99);
	session_info_deinit(&info);
}

/* Waits keep their state; many short ones are thinned to the rate without changing their sum. */
static void test_offcpu(void **state)
{
	enum { N = 30000 };
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	const uint8_t futex = PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX;
	const uint8_t preempted = PROF_OFF_PREEMPTED << 4;
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	double expected = 0;
	uint64_t now_ns;

	request.type = PROFILE_OFFCPU;
	session_fixture_start(f, &request, id);
	now_ns = clock_monotonic_ns();
	/* Three seconds of the feed's time, 10000 a second, 1 to 2 us each. */
	for (int i = 0; i < N; i++) {
		uint64_t off_ns = 1000 + (uint64_t)i % 1000;

		fake_feed_wait(&f->feed, 1, 7, 1, now_ns + (uint64_t)i * 100000, off_ns, preempted);
		expected += (double)off_ns;
	}
	fake_feed_wait(&f->feed, 1, 8, 2, now_ns + 3 * NS_PER_S, NS_PER_S, futex);
	/* It began an hour before the session. */
	fake_feed_wait(&f->feed, 1, 9, 2, now_ns + 4 * NS_PER_S, 3600 * NS_PER_S, futex);
	clock_sleep_ns(4200 * NS_PER_MS);
	session_fixture_stop(f, id);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(p->event_count < N / 2);
	for (uint32_t i = 0; i < p->sample_count; i++) {
		const struct profile_attrs *attrs = &p->attrs[p->samples[i].attrs];
		double got = (double)p->samples[i].values[1];

		if (attrs->tid == 7) {
			assert_string_equal(profile_string(p, attrs->state), "preempted");
			/* At least a hundred kept a second: four standard deviations are below a
			 * half. */
			assert_true(fabs(got - expected) < expected / 2);
			assert_true(fabs((double)p->samples[i].values[0] - N) < N / 2.0);
		} else if (attrs->tid == 8) {
			assert_string_equal(profile_string(p, attrs->state), "blocked");
			assert_string_equal(profile_string(p, attrs->wait), "futex");
			assert_int_equal(p->samples[i].values[0], 1);
			assert_true(got == 1e9);
		} else {
			assert_true(got < 6e9);
		}
	}
	(void)profile_unref(p);
}

static void test_stacks_are_asked_for(void **state)
{
	const uint64_t frames[] = { prof_frame_module(5, 0x500, 0) };
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	fake_feed_keep_stack(&f->feed, 77, frames, 1);
	fake_feed_keep_stack(&f->feed, 78, frames, 0);
	fake_feed_module(&f->feed, 5, 0x55, "/late.so");
	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 77, 3);
	session_fixture_samples(f, 1, 999, 2); /* never to be had */
	session_fixture_stop(f, id);
	assert_true(f->feed.wants > 1);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	/* An odd offset has an inlined function in this symbolizer; 0x500 has none. */
	assert_int_equal(session_fixture_self(p, "f_500"), 3 * PERIOD_99);
	assert_int_equal(session_fixture_self(p, "[unknown]"), 2 * PERIOD_99);
	assert_int_equal(p->quality.outcomes[OUTCOME_stack_missing], 2);
	(void)profile_unref(p);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
	static const struct {
		const char *what;
		struct session_request request;
		const char *word;
	} rows[] = {
		{ "unknown", { .service = "nope" }, "UnknownService" },
		{ "unknown pid", { .service = "pid:999" }, "UnknownService" },
		{ "pid with wait", { .service = "pid:999", .wait_s = 5 }, "UnknownService" },
		{ "bad alias", { .service = "pid:x" }, "InvalidParam" },
		{ "no service", { .service = "" }, "InvalidParam" },
		{ "duration 0", { .service = "web", .duration_s = 3601 }, "InvalidParam" },
		{ "rate", { .service = "web", .rate_hz = 1001 }, "InvalidParam" },
		{ "wait", { .service = "web", .wait_s = 3601 }, "InvalidParam" },
		{ "memory",
		  { .service = "web", .type = PROFILE_MEMORY },
		  "ProfileTypeUnavailable" },
		{ "tenant", { .tenant = "a b", .service = "web" }, "InvalidParam" },
	};
	struct session_fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct session_request request = rows[i].request;
		struct session_info info;
		struct err err = { 0 };

		if (!request.tenant)
			request.tenant = "default";
		if (!request.duration_s)
			request.duration_s = 1;
		if (!request.rate_hz)
			request.rate_hz = 99;
		if (sessions_start(f->sessions, &request, &info, &err) >= 0)
			fail_msg("%s: accepted", rows[i].what);
		if (!err.word || strcmp(err.word, rows[i].word) != 0)
			fail_msg("%s: got %s (%s)", rows[i].what, err.word ? err.word : "-",
				 err.text);
	}
}

static void test_already_running(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info = { 0 };
	struct err err = { 0 };
	char id[SESSION_ID_SIZE], other[SESSION_ID_SIZE];

	session_fixture_start(f, &request, id);
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "AlreadyRunning");
	assert_string_equal(info.id, id);
	/* An alias that means something else, and another tenant, are no collision. */
	request.service = "pid:101";
	session_fixture_start(f, &request, other);
	request.service = "web";
	request.tenant = "other";
	session_fixture_start(f, &request, other);
	assert_true(sessions_get(f->sessions, "other", id, &info, &err) < 0);
	assert_string_equal(err.word, "UnknownSession");
	/* A unit resolves to what it is, not to its service. */
	request.tenant = "default";
	request.service = "unit:web";
	session_fixture_start(f, &request, other);
	info = session_fixture_get(f, other);
	assert_string_equal(info.selector, "unit:web.service");
	assert_string_equal(info.service, "web");
	session_info_deinit(&info);
}

/* A session whose data cannot be deleted stays, and can be deleted later. */
static void test_data_that_cannot_be_deleted(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE], path[256], away[256];
	bool stopped;

	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 3);
	session_fixture_stop(f, id);
	(void)snprintf(path, sizeof(path), "%s/sessions/%s.log", f->dir, id);
	(void)snprintf(away, sizeof(away), "%s/away", f->dir);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(mkdir(path, 0700), 0); /* not to be unlinked */
	assert_true(sessions_delete(f->sessions, "default", id, &stopped, &err) < 0);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rename(away, path), 0);
	info = session_fixture_get(f, id);
	assert_int_equal(info.sample_count, 3);
	session_info_deinit(&info);
	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_true(sessions_get(f->sessions, "default", id, &info, &err) < 0);
}

static void test_limits(void **state)
{
	struct session_fixture *f = *state;
	static const char *const services[] = { "web", "db", "pid:101", "pid:102" };
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	fake_feed_disconnect(&f->feed);
	session_fixture_close(f);
	f->options.running_per_tenant = 2;
	f->options.running_per_host = 3;
	session_fixture_open(f);
	session_fixture_wait_known(f, "db");
	for (int i = 0; i < 2; i++) {
		struct session_request request = session_fixture_request(services[i], 60);

		session_fixture_start(f, &request, id);
	}
	struct session_request request = session_fixture_request(services[2], 60);
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "TooManySessions");
	assert_true(err.retry_after_s > 0);
	request.tenant = "other";
	session_fixture_start(f, &request, id);
	request.service = services[3];
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "AgentBusy");
	assert_true(err.retry_after_s > 0);
}

/* ---- lists and baselines --------------------------------------------------------------------- */

static void test_lists(void **state)
{
	struct session_fixture *f = *state;
	char ids[5][SESSION_ID_SIZE];
	struct session_query query = { .tenant = "default", .type = -1, .status = -1, .limit = 2 };
	struct session_list list;
	struct err err = { 0 };
	char cursor[64];
	bool stopped;

	for (int i = 0; i < 5; i++) {
		struct session_request request = session_fixture_request(i == 2 ? "db" : "web", 60);

		session_fixture_start(f, &request, ids[i]);
		session_fixture_samples(f, i == 2 ? 3 : 1, 1, 1);
		if (i < 4)
			session_fixture_stop(f, ids[i]);
	}
	assert_int_equal(sessions_list(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.total, 5);
	assert_int_equal(list.count, 2);
	assert_string_equal(list.items[0].id, ids[4]);
	assert_int_equal(list.items[0].status, SESSION_RUNNING);
	assert_string_equal(list.items[1].id, ids[3]);
	strcpy(cursor, list.next_cursor);
	session_list_deinit(&list);
	/* Deleting what was on the first page does not shift the second. */
	assert_int_equal(sessions_delete(f->sessions, "default", ids[3], &stopped, &err), 0);
	assert_false(stopped);
	query.cursor = cursor;
	assert_int_equal(sessions_list(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.total, 4);
	assert_string_equal(list.items[0].id, ids[2]);
	assert_string_equal(list.items[1].id, ids[1]);
	session_list_deinit(&list);
	query = (struct session_query){ .tenant = "default",
					.service = "db",
					.type = PROFILE_CPU,
					.status = SESSION_COMPLETED,
					.limit = 10 };
	assert_int_equal(sessions_list(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.total, 1);
	assert_string_equal(list.next_cursor, "");
	session_list_deinit(&list);
	query.tenant = "other";
	assert_int_equal(sessions_list(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.total, 0);
	session_list_deinit(&list);
	query.cursor = "nonsense";
	assert_true(sessions_list(f->sessions, &query, &list, &err) < 0);
	assert_string_equal(err.field, "cursor");
}

/* A comparison's matrix of the profile @id, in windows so short that there are several. */
static struct window_matrix *matrix_of(struct session_fixture *f, const char *id)
{
	const struct window_options options = { .window_ns = 10 * NS_PER_MS };
	struct window_matrix *m = NULL;
	struct profile *p = NULL;
	struct err err = { 0 };

	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	assert_int_equal(window_matrix_create(p, &options, &m, NULL), 0);
	(void)profile_unref(p);
	return m;
}

/* It is not stored: what is made from a baseline's events is what was made from its session's. */
static void assert_same_matrix(const struct window_matrix *a, const struct window_matrix *b)
{
	assert_true(a->window_count > 2);
	assert_int_equal(a->window_count, b->window_count);
	assert_int_equal(a->function_count, b->function_count);
	assert_int_equal(a->start_ns, b->start_ns);
	assert_int_equal(a->life_count, b->life_count);
	assert_true(a->scale == b->scale && a->effective_lives == b->effective_lives);
	assert_memory_equal(a->totals, b->totals, a->window_count * sizeof(*a->totals));
	assert_int_equal(a->self.count, b->self.count);
	assert_memory_equal(a->self.first, b->self.first,
			    (a->function_count + 1) * sizeof(*a->self.first));
	assert_memory_equal(a->self.window, b->self.window, a->self.count * sizeof(*a->self.window));
	assert_memory_equal(a->self.value, b->self.value, a->self.count * sizeof(*a->self.value));
	for (uint32_t i = 0; i < a->function_count; i++)
		assert_string_equal(window_text(a, a->functions[i].name), window_text(b, b->functions[i].name));
}

static void test_baselines(void **state)
{
	static const char *const tags[] = { "v1", "prod" };
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct baseline_request make = { .tenant = "default",
					 .label = "v1.0",
					 .type = PROFILE_CPU,
					 .description = "first",
					 .tags = tags,
					 .tag_count = 2 };
	struct baseline_query query = {
		.tenant = "default", .type = -1, .limit = 10, .tag = "prod"
	};
	cleanup(window_matrix) struct window_matrix *of_session = NULL, *of_baseline = NULL;
	struct baseline_info first, second;
	struct baseline_list list;
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	bool stopped;

	session_fixture_start(f, &request, id);
	for (int i = 0; i < 5; i++) {
		session_fixture_samples(f, 1, 1 + (uint64_t)i % 2, 2);
		clock_sleep_ns(20 * NS_PER_MS);
	}
	make.session_id = id;
	assert_true(sessions_baseline_create(f->sessions, &make, &first, &err) < 0);
	assert_string_equal(err.word, "NotFinished");
	session_fixture_stop(f, id);
	make.type = PROFILE_MEMORY;
	assert_true(sessions_baseline_create(f->sessions, &make, &first, &err) < 0);
	assert_string_equal(err.word, "ProfileTypeMismatch");
	make.type = PROFILE_CPU;
	if (sessions_baseline_create(f->sessions, &make, &first, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(first.is_latest);
	make.tag_count = 0;
	assert_int_equal(sessions_baseline_create(f->sessions, &make, &second, &err), 0);
	of_session = matrix_of(f, id);
	/* It survives its session. */
	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	assert_true(sessions_profile(f->sessions, "default", id, &p, &err) < 0);
	assert_string_equal(err.word, "UnknownSession");
	assert_int_equal(sessions_profile(f->sessions, "default", first.id, &p, &err), 0);
	assert_int_equal(p->totals[0], 10);
	(void)profile_unref(p);
	of_baseline = matrix_of(f, first.id);
	assert_same_matrix(of_session, of_baseline);
	assert_int_equal(sessions_baseline_list(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.items[0].id, first.id);
	assert_string_equal(list.items[0].description, "first");
	assert_false(list.items[0].is_latest);
	baseline_list_deinit(&list);
	assert_int_equal(sessions_baseline_delete(f->sessions, "default", second.id, &err), 0);
	assert_true(sessions_baseline_delete(f->sessions, "other", first.id, &err) < 0);
	assert_string_equal(err.word, "UnknownBaseline");
	baseline_info_deinit(&first);
	assert_int_equal(sessions_baseline_get(f->sessions, "default", first.id, &first, &err), 0);
	assert_true(first.is_latest);
	baseline_info_deinit(&first);
	baseline_info_deinit(&second);
}

/* A switch that could not be stored is stored when it is asked for again. */
static void test_sampling_stays_as_it_was_set(void **state)
{
	struct session_fixture *f = *state;

	for (int on = 0; on < 2; on++) {
		struct sampling_state is;
		struct err err = { 0 };
		sqlite3 *other = session_fixture_lock_records(f);

		assert_true(sessions_sampling_set(f->sessions, on, &is, &err) < 0);
		assert_int_equal(is.enabled, on); /* all the same */
		assert_int_equal(sqlite3_close(other), SQLITE_OK);
		assert_int_equal(sessions_sampling_set(f->sessions, on, &is, &err), 0);
		session_fixture_close(f);
		session_fixture_open(f);
		sessions_sampling_get(f->sessions, &is);
		assert_int_equal(is.enabled, on);
	}
}

static void test_health(void **state)
{
	struct session_fixture *f = *state;
	struct sessions_health health;

	sessions_health(f->sessions, &health);
	assert_true(health.store_ok);
	assert_true(health.collector_ok);
	assert_true(health.symbolizer_ok);
	assert_string_equal(health.reason, "");
	assert_int_equal(health.processes, 3);
	assert_int_equal(health.services, 2);
	assert_int_equal(health.modules, 2);
}

static struct profile *heap_of(const char *mode)
{
	const struct profile_meta meta = { .type = PROFILE_MEMORY, .service = "web" };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 10);
	struct profile_quality quality = { 0 };
	struct profile_function function = { 0 };
	struct profile_process process = { .pid = 7, .started_at_ns = 1 };
	struct profile_frame frame = { .kind = PROFILE_FRAME_NATIVE };
	struct profile_attrs attrs = { 0 };
	struct profile *p;
	struct profile_event event = { .time_ns = 2, .value = 200 };

	(void)snprintf(quality.probes.mode, sizeof(quality.probes.mode), "%s", mode);
	function.name = profile_builder_string(b, "fill", 4);
	frame.function = profile_builder_function(b, &function);
	event.node = profile_builder_node(b, 0, profile_builder_frame(b, &frame));
	attrs.process = profile_builder_process(b, &process);
	event.attrs = profile_builder_attrs(b, &attrs, NULL);
	profile_builder_sample(b, event.node, event.attrs, (const int64_t[]){ 2, 200 });
	profile_builder_event(b, &event);
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

/* The estimated memory in use is fitted into the heap when the profile is made. The totals of the
 * session and its processes follow. */
static void test_sums_of_a_fitted_heap(void **state)
{
	cleanup(profile) struct profile *probed = heap_of("windows"), *read = heap_of("");
	struct session_process process = { .pid = 7, .started_at_ns = 1, .value = 90000 };
	struct session_info info = { .type = PROFILE_MEMORY,
				     .total_value = 90000,
				     .processes = &process,
				     .process_count = 1 };

	session_info_settle(&info, read);
	assert_int_equal(info.total_value, 90000);
	session_info_settle(&info, probed);
	assert_int_equal(info.total_value, 200);
	assert_int_equal(process.value, 200);
}

int main(void)
{
#define T(name)                                                                                    \
	cmocka_unit_test_setup_teardown(name, session_fixture_setup, session_fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_session),
		T(test_partial_results),
		T(test_a_question_holds_nothing),
		T(test_clock_is_set),
		T(test_thinning_is_unbiased),
		T(test_high_rates),
		T(test_losses_are_shared_out),
		T(test_restraint_is_said),
		T(test_costs_by_type),
		T(test_an_exec_is_no_other_process),
		T(test_offcpu),
		T(test_stacks_are_asked_for),
		T(test_refusals),
		T(test_already_running),
		T(test_data_that_cannot_be_deleted),
		T(test_limits),
		T(test_lists),
		T(test_baselines),
		T(test_sampling_stays_as_it_was_set),
		T(test_health),
		cmocka_unit_test(test_sums_of_a_fitted_heap),
	};

	return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
