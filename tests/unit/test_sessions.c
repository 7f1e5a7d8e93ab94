// SPDX-License-Identifier: Apache-2.0
/* The session layer as a whole: a feed made by hand through a real ring, a real store, a symbolizer
 * at the other end of a real channel. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/session/history.h"
#include "agent/session/sessions_run.h"
#include "bpf/profiler.h"
#include "tests/support/fake_feed.h"

#define PERIOD_99 (1000000000ull / 99)

struct fixture {
	char dir[64];
	struct fake_feed feed;
	struct store *store;
	struct sessions *sessions;
	struct sessions_options options;
};

static void open_sessions(struct fixture *f)
{
	struct err err = { 0 };

	if (store_open(f->dir, NULL, &f->store, &err) < 0)
		fail_msg("%s", err.text);
	f->options.store = f->store;
	f->options.feed_fd = f->feed.ring_fd;
	if (!f->options.flush_interval_ns)
		f->options.flush_interval_ns = 100 * NS_PER_MS;
	if (sessions_create(&f->options, &f->sessions, &err) < 0)
		fail_msg("%s", err.text);
	fake_feed_connect(&f->feed, f->sessions);
}

static void close_sessions(struct fixture *f)
{
	sessions_destroy(f->sessions);
	store_close(f->store);
	f->sessions = NULL;
	f->store = NULL;
}

/* Three processes: two of `web`, one of `db`; stack 1 = main>a, 2 = main>b. */
static void fill_tables(struct fixture *f)
{
	const uint64_t a[] = { prof_frame_module(0, 0x100, 0), prof_frame_module(0, 0x300, 0) };
	const uint64_t b[] = { prof_frame_module(1, 0x200, 0), prof_frame_module(0, 0x300, 0) };

	fake_feed_epoch(&f->feed, 1);
	fake_feed_module(&f->feed, 0, 0xa0, "/usr/bin/web");
	fake_feed_module(&f->feed, 1, 0xb0, "/usr/lib/libx.so");
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 1,
						      .tgid = 101,
						      .comm = "web",
						      .exe = "/usr/bin/web",
						      .ports = "8080",
						      .cgroup = "/system.slice/web.service" });
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 2,
						      .tgid = 102,
						      .comm = "web",
						      .exe = "/usr/bin/web",
						      .cgroup = "/system.slice/web.service" });
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 3,
						      .tgid = 103,
						      .comm = "db",
						      .exe = "/usr/bin/db",
						      .cgroup = "/" });
	fake_feed_stack(&f->feed, 1, a, 2, 0);
	fake_feed_stack(&f->feed, 2, b, 2, 1);
}

static void wait_until_known(struct fixture *f, const char *service)
{
	for (int i = 0; i < 200; i++) {
		struct service_list list;
		struct err err = { 0 };
		bool found = false;

		assert_int_equal(sessions_services(f->sessions, "default", &list, &err), 0);
		for (uint32_t j = 0; j < list.count; j++)
			found |= strcmp(list.items[j].name, service) == 0 &&
				 list.items[j].types[PROFILE_CPU].available;
		service_list_deinit(&list);
		if (found)
			return;
		clock_sleep_ns(10 * NS_PER_MS);
	}
	fail_msg("service %s never appeared", service);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/profd-sessions-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	fake_feed_open(&f->feed, 8 << 20);
	open_sessions(f);
	fill_tables(f);
	wait_until_known(f, "db");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	close_sessions(f);
	fake_feed_close(&f->feed);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

static struct session_request request_of(const char *service, uint32_t duration_s)
{
	return (struct session_request){ .tenant = "default",
					 .service = service,
					 .type = PROFILE_CPU,
					 .duration_s = duration_s,
					 .rate_hz = 99 };
}

static void start(struct fixture *f, const struct session_request *request,
		  char id[SESSION_ID_SIZE])
{
	struct session_info info;
	struct err err = { 0 };

	if (sessions_start(f->sessions, request, &info, &err) < 0)
		fail_msg("%s: %s", err.word ? err.word : "?", err.text);
	strcpy(id, info.id);
	assert_int_equal(info.status, SESSION_RUNNING);
	session_info_deinit(&info);
	if (!request->wait_s &&
	    sessions_wait_started(f->sessions, request->tenant, id, 5 * NS_PER_S, &err) < 0)
		fail_msg("%s", err.text);
}

static struct session_info get(struct fixture *f, const char *id)
{
	struct session_info info = { 0 };
	struct err err = { 0 };

	if (sessions_get(f->sessions, "default", id, &info, &err) < 0)
		fail_msg("%s", err.text);
	return info;
}

static void stop_and_wait(struct fixture *f, const char *id)
{
	struct err err = { 0 };
	bool stopped = false;

	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	assert_true(stopped);
	if (sessions_wait(f->sessions, "default", id, 10 * NS_PER_S, &err) < 0)
		fail_msg("%s", err.text);
}

static void samples(struct fixture *f, uint32_t proc, uint64_t stack, int count)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (int i = 0; i < count; i++)
		fake_feed_sample(&f->feed, proc, proc * 100, stack, now_ns + (uint64_t)i,
				 PERIOD_99);
}

static int64_t self_of(const struct profile *p, const char *function)
{
	struct profile_function_row *rows = NULL;
	size_t count = 0;
	int64_t self = -1;

	assert_int_equal(profile_top_functions(p, &rows, &count), 0);
	for (size_t i = 0; i < count; i++)
		if (strcmp(profile_string(p, p->functions[rows[i].function].name), function) == 0)
			self = rows[i].self;
	free(rows);
	return self;
}

/* ---- what a session sees --------------------------------------------------------------------- */

static void test_a_session(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct session_info info;
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	start(f, &request, id);
	samples(f, 1, 1, 10);
	samples(f, 2, 2, 30);
	samples(f, 3, 1, 50); /* another service */
	stop_and_wait(f, id);
	info = get(f, id);
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
	assert_int_equal(info.quality.outcomes[1], 30);
	assert_true(fabs(info.quality.effective_rate - 99) < 0.1);
	assert_true(info.completed_at_ns > info.started_at_ns);
	session_info_deinit(&info);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(p->totals[0], 40);
	assert_int_equal(p->totals[1], 40 * PERIOD_99);
	assert_int_equal(self_of(p, "f_100"), 10 * PERIOD_99);
	assert_int_equal(self_of(p, "f_200"), 30 * PERIOD_99);
	assert_int_equal(self_of(p, "f_300"), 0);
	assert_int_equal(p->event_count, 40);
	for (uint32_t i = 1; i < p->event_count; i++)
		assert_true(p->events[i - 1].time_ns <= p->events[i].time_ns);
	(void)profile_unref(p);
}

/* While it runs the same is seen, also what is not stored yet, and each sample once. */
static void test_partial_results(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	int sent = 0;

	start(f, &request, id);
	for (int round = 0; round < 4; round++) {
		struct profile *p = NULL;
		struct session_info info;

		samples(f, 1, 1, 25);
		sent += 25;
		for (int i = 0; i < 100; i++) {
			info = get(f, id);
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
	stop_and_wait(f, id);
}

/* A session that wants less than the host samples keeps its share, and the sum stays right. */
static void test_thinning_is_unbiased(void **state)
{
	enum { N = 20000 };
	struct fixture *f = *state;
	struct session_request slow = request_of("web", 60), fast = request_of("host", 60);
	double p = 100.0 / 1000.0, expected = N * 1e6, deviation;
	struct session_info info;
	char slow_id[SESSION_ID_SIZE], fast_id[SESSION_ID_SIZE];
	uint64_t now_ns;

	slow.rate_hz = 100;
	fast.rate_hz = 1000;
	start(f, &slow, slow_id);
	start(f, &fast, fast_id);
	now_ns = clock_monotonic_ns();
	for (int i = 0; i < N; i++)
		fake_feed_sample(&f->feed, 1, 7, 1, now_ns + (uint64_t)i, 1000000);
	stop_and_wait(f, slow_id);
	stop_and_wait(f, fast_id);
	info = get(f, fast_id);
	assert_int_equal(info.sample_count, N);
	assert_int_equal(info.total_value, N * 1000000ll);
	session_info_deinit(&info);
	info = get(f, slow_id);
	/* Binomial: four standard deviations. */
	deviation = 4 * sqrt(N * p * (1 - p));
	assert_true(fabs((double)info.sample_count - N * p) < deviation);
	assert_true(fabs((double)info.total_value - expected) < deviation / p * 1e6);
	assert_true(fabs(info.quality.effective_rate - 100) < 0.1);
	session_info_deinit(&info);
}

static void test_losses_are_shared_out(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct session_info info;
	char id[SESSION_ID_SIZE];

	start(f, &request, id);
	samples(f, 1, 1, 25);
	samples(f, 3, 1, 75);
	fake_feed_outcome(&f->feed, 34, 40);
	fake_feed_outcome(&f->feed, 32, 1000); /* idle is no loss */
	stop_and_wait(f, id);
	info = get(f, id);
	assert_int_equal(info.quality.lost, 10);
	session_info_deinit(&info);
}

/* Waits keep their state; many short ones are thinned to the rate without changing their sum. */
static void test_offcpu(void **state)
{
	enum { N = 30000 };
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	const uint8_t futex = PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX;
	const uint8_t preempted = PROF_OFF_PREEMPTED << 4;
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	double expected = 0;
	uint64_t now_ns;

	request.type = PROFILE_OFFCPU;
	start(f, &request, id);
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
	stop_and_wait(f, id);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(p->event_count < N / 2);
	for (uint32_t i = 0; i < p->sample_count; i++) {
		const struct profile_attrs *attrs = &p->attrs[p->samples[i].attrs];
		double got = (double)p->samples[i].values[1];

		if (attrs->tid == 7) {
			assert_string_equal(profile_string(p, attrs->state), "preempted");
			/* At least a hundred kept a second: four standard deviations are below a half. */
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
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	fake_feed_keep_stack(&f->feed, 77, frames, 1);
	fake_feed_keep_stack(&f->feed, 78, frames, 0);
	fake_feed_module(&f->feed, 5, 0x55, "/late.so");
	start(f, &request, id);
	samples(f, 1, 77, 3);
	samples(f, 1, 999, 2); /* never to be had */
	stop_and_wait(f, id);
	assert_true(f->feed.wants > 1);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	/* An odd offset has an inlined function in this symbolizer; 0x500 has none. */
	assert_int_equal(self_of(p, "f_500"), 3 * PERIOD_99);
	assert_int_equal(self_of(p, "[unknown]"), 2 * PERIOD_99);
	assert_int_equal(p->quality.outcomes[39], 2);
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
	struct fixture *f = *state;

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
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct session_info info = { 0 };
	struct err err = { 0 };
	char id[SESSION_ID_SIZE], other[SESSION_ID_SIZE];

	start(f, &request, id);
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "AlreadyRunning");
	assert_string_equal(info.id, id);
	/* An alias that means something else, and another tenant, are no collision. */
	request.service = "pid:101";
	start(f, &request, other);
	request.service = "web";
	request.tenant = "other";
	start(f, &request, other);
	assert_true(sessions_get(f->sessions, "other", id, &info, &err) < 0);
	assert_string_equal(err.word, "UnknownSession");
	/* A unit resolves to what it is, not to its service. */
	request.tenant = "default";
	request.service = "unit:web";
	start(f, &request, other);
	info = get(f, other);
	assert_string_equal(info.selector, "unit:web.service");
	assert_string_equal(info.service, "web");
	session_info_deinit(&info);
}

static void test_idempotency(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct session_info info;
	struct err err = { 0 };
	char first[SESSION_ID_SIZE], again[SESSION_ID_SIZE];

	request.idempotency_key = "k1";
	start(f, &request, first);
	start(f, &request, again);
	assert_string_equal(first, again);
	request.duration_s = 61;
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "InvalidParam");
	assert_string_equal(err.field, "Idempotency-Key");
	/* The key outlives the process. */
	request.duration_s = 60;
	fake_feed_disconnect(&f->feed);
	close_sessions(f);
	open_sessions(f);
	assert_int_equal(sessions_start(f->sessions, &request, &info, &err), 0);
	assert_string_equal(info.id, first);
	session_info_deinit(&info);
}

static void test_limits(void **state)
{
	struct fixture *f = *state;
	static const char *const services[] = { "web", "db", "pid:101", "pid:102" };
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	fake_feed_disconnect(&f->feed);
	close_sessions(f);
	f->options.running_per_tenant = 2;
	f->options.running_per_host = 3;
	open_sessions(f);
	wait_until_known(f, "db");
	for (int i = 0; i < 2; i++) {
		struct session_request request = request_of(services[i], 60);

		start(f, &request, id);
	}
	struct session_request request = request_of(services[2], 60);
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "TooManySessions");
	assert_true(err.retry_after_s > 0);
	request.tenant = "other";
	start(f, &request, id);
	request.service = services[3];
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "AgentBusy");
	assert_true(err.retry_after_s > 0);
}

/* ---- time ------------------------------------------------------------------------------------ */
static void test_ends_by_time(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("web", 1);
	uint64_t begin_ns = clock_monotonic_ns();
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	start(f, &request, id);
	samples(f, 1, 1, 5);
	/* Delivered now, but from after the end. */
	fake_feed_sample(&f->feed, 1, 1, 1, clock_monotonic_ns() + 2 * NS_PER_S, PERIOD_99);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 5 * NS_PER_S, &err), 0);
	assert_in_range(clock_monotonic_ns() - begin_ns, NS_PER_S, 3 * NS_PER_S);
	info = get(f, id);
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
	struct fixture *f = *state;
	struct session_request request = request_of("late", 60);
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	request.wait_s = 30;
	start(f, &request, id);
	info = get(f, id);
	assert_int_equal(info.started_at_ns, 0);
	session_info_deinit(&info);
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 9,
						      .tgid = 109,
						      .comm = "late",
						      .exe = "/usr/bin/late",
						      .cgroup = "/" });
	assert_int_equal(sessions_wait_started(f->sessions, "default", id, 5 * NS_PER_S, &err), 0);
	samples(f, 9, 1, 4);
	stop_and_wait(f, id);
	info = get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 4);
	session_info_deinit(&info);

	request.service = "never";
	request.wait_s = 1;
	start(f, &request, id);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 5 * NS_PER_S, &err), 0);
	info = get(f, id);
	assert_int_equal(info.status, SESSION_FAILED);
	assert_non_null(strstr(info.failure, "waitSeconds"));
	session_info_deinit(&info);
}

static void test_a_process_that_exits(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("pid:103", 60);
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	start(f, &request, id);
	samples(f, 3, 1, 4);
	fake_feed_exit(&f->feed, 3);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 5 * NS_PER_S, &err), 0);
	info = get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 4);
	assert_true(info.duration_ns < 5 * NS_PER_S);
	session_info_deinit(&info);
	request.service = "db";
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "ServiceNotRunning"); /* known by its session */
}

/* ---- restarts -------------------------------------------------------------------------------- */
/* The server is killed (its memory is gone, the ring and the files stay) and comes back. */
static void test_restart_of_the_server(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct profile *p = NULL;
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	int sent = 0;

	start(f, &request, id);
	for (int life = 0; life < 4; life++) {
		samples(f, 1, 1, 100);
		samples(f, 2, 2, 50);
		sent += 150;
		if (life % 2)
			clock_sleep_ns(250 * NS_PER_MS); /* some of it was flushed, some not */
		fake_feed_disconnect(&f->feed);
		sessions_abandon(f->sessions);
		store_close(f->store);
		samples(f, 1, 1, 7); /* while nobody reads */
		sent += 7;
		open_sessions(f);
	}
	samples(f, 2, 2, 1);
	sent++;
	stop_and_wait(f, id);
	info = get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, sent);
	assert_int_equal(info.process_count, 2);
	assert_int_equal(info.quality.outcomes[1], 4 * 50 + 1);
	session_info_deinit(&info);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	assert_int_equal(p->totals[0], sent);
	assert_int_equal(self_of(p, "f_200"), (4 * 50 + 1) * PERIOD_99);
	(void)profile_unref(p);
}

static void test_restart_of_the_daemon(void **state)
{
	struct fixture *f = *state;
	struct session_request with = request_of("web", 60), without = request_of("db", 60);
	struct session_info info;
	char id[SESSION_ID_SIZE], empty[SESSION_ID_SIZE];

	start(f, &with, id);
	start(f, &without, empty);
	samples(f, 1, 1, 100);
	clock_sleep_ns(400 * NS_PER_MS);
	fake_feed_disconnect(&f->feed);
	sessions_abandon(f->sessions);
	store_close(f->store);
	fake_feed_close(&f->feed);
	fake_feed_open(&f->feed, 1 << 20); /* another ring */
	open_sessions(f);
	info = get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 100);
	assert_in_range(info.duration_ns, 1, 5 * NS_PER_S);
	session_info_deinit(&info);
	info = get(f, empty);
	assert_int_equal(info.status, SESSION_FAILED);
	assert_non_null(strstr(info.failure, "restarted"));
	session_info_deinit(&info);
}

static void test_restart_of_the_collector(void **state)
{
	const uint64_t swapped[] = { prof_frame_module(0, 0x200, 0) };
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct profile *p = NULL;
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	start(f, &request, id);
	samples(f, 1, 1, 10);
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
	samples(f, 3, 5, 20);
	stop_and_wait(f, id);
	info = get(f, id);
	assert_int_equal(info.sample_count, 30);
	assert_int_equal(info.process_count, 1);
	assert_int_equal(info.quality.note_count, 1);
	assert_non_null(strstr(info.quality.notes[0], "collector"));
	session_info_deinit(&info);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	assert_int_equal(self_of(p, "f_100"), 10 * PERIOD_99);
	assert_int_equal(self_of(p, "f_200"), 20 * PERIOD_99);
	(void)profile_unref(p);
}

/* ---- names ----------------------------------------------------------------------------------- */
static void test_names_outlive_the_symbolizer(void **state)
{
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	uint64_t begin_ns;
	unsigned asked;

	start(f, &request, id);
	samples(f, 1, 1, 10);
	stop_and_wait(f, id);
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	(void)profile_unref(p);
	for (int i = 0; i < 100; i++) { /* until the finisher has kept them */
		struct session_info info = get(f, id);

		session_info_deinit(&info);
		if (info.quality.unknown_frame_pct >= 0)
			break;
		clock_sleep_ns(20 * NS_PER_MS);
	}
	fake_feed_disconnect(&f->feed);
	close_sessions(f);
	f->feed.mute_names = true;
	open_sessions(f);
	asked = f->feed.names;
	begin_ns = clock_monotonic_ns();
	assert_int_equal(sessions_profile(f->sessions, "default", id, &p, &err), 0);
	assert_int_equal(f->feed.names, asked);
	assert_in_range(clock_monotonic_ns() - begin_ns, 0, 3 * NS_PER_S);
	assert_int_equal(self_of(p, "f_100"), 10 * PERIOD_99);
	(void)profile_unref(p);
}

/* ---- lists and baselines --------------------------------------------------------------------- */

static void test_lists(void **state)
{
	struct fixture *f = *state;
	char ids[5][SESSION_ID_SIZE];
	struct session_query query = { .tenant = "default", .type = -1, .status = -1, .limit = 2 };
	struct session_list list;
	struct err err = { 0 };
	char cursor[64];
	bool stopped;

	for (int i = 0; i < 5; i++) {
		struct session_request request = request_of(i == 2 ? "db" : "web", 60);

		start(f, &request, ids[i]);
		samples(f, i == 2 ? 3 : 1, 1, 1);
		if (i < 4)
			stop_and_wait(f, ids[i]);
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

static void test_baselines(void **state)
{
	static const char *const tags[] = { "v1", "prod" };
	struct fixture *f = *state;
	struct session_request request = request_of("web", 60);
	struct baseline_request make = { .tenant = "default",
					 .label = "v1.0",
					 .type = PROFILE_CPU,
					 .description = "first",
					 .tags = tags,
					 .tag_count = 2 };
	struct baseline_query query = {
		.tenant = "default", .type = -1, .limit = 10, .tag = "prod"
	};
	struct baseline_info first, second;
	struct baseline_list list;
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	bool stopped;

	start(f, &request, id);
	samples(f, 1, 1, 10);
	make.session_id = id;
	assert_true(sessions_baseline_create(f->sessions, &make, &first, &err) < 0);
	assert_string_equal(err.word, "NotFinished");
	stop_and_wait(f, id);
	make.type = PROFILE_MEMORY;
	assert_true(sessions_baseline_create(f->sessions, &make, &first, &err) < 0);
	assert_string_equal(err.word, "ProfileTypeMismatch");
	make.type = PROFILE_CPU;
	if (sessions_baseline_create(f->sessions, &make, &first, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(first.is_latest);
	make.tag_count = 0;
	assert_int_equal(sessions_baseline_create(f->sessions, &make, &second, &err), 0);
	/* It survives its session. */
	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	assert_true(sessions_profile(f->sessions, "default", id, &p, &err) < 0);
	assert_string_equal(err.word, "UnknownSession");
	assert_int_equal(sessions_profile(f->sessions, "default", first.id, &p, &err), 0);
	assert_int_equal(p->totals[0], 10);
	(void)profile_unref(p);
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

static void test_health(void **state)
{
	struct fixture *f = *state;
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

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_session),
		T(test_partial_results),
		T(test_thinning_is_unbiased),
		T(test_losses_are_shared_out),
		T(test_offcpu),
		T(test_stacks_are_asked_for),
		T(test_refusals),
		T(test_already_running),
		T(test_idempotency),
		T(test_limits),
		T(test_ends_by_time),
		T(test_waits_for_a_process),
		T(test_a_process_that_exits),
		T(test_restart_of_the_server),
		T(test_restart_of_the_daemon),
		T(test_restart_of_the_collector),
		T(test_names_outlive_the_symbolizer),
		T(test_lists),
		T(test_baselines),
		T(test_health),
	};

	return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
