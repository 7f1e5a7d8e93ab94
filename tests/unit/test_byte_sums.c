// SPDX-License-Identifier: Apache-2.0
/* Bytes of calls that were all recorded: exact for each place, however low a session's rate is; of
 * more places a second than its rate admits a sample, which is right in the mean and says how far
 * it may be off. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/memory/interval.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

enum { OPERATIONS, DELAY, BYTES };

#define RATE_HZ 10u

/* One that moved @bytes, recorded with certainty (@events 1024) or as one of several. */
static void call(struct session_fixture *f, uint64_t time_ns, uint64_t stack, uint32_t tid,
		 uint64_t bytes, uint64_t events)
{
	const struct feed_sample sample = { .time_ns = time_ns,
					    .user_stack = stack,
					    .value = bytes,
					    .value2 = events,
					    .proc = 1,
					    .tid = tid,
					    .type = PROF_SAMPLE_IO,
					    .comm = "worker",
					    .detail = PROF_DETAIL_SOCKET };

	fake_feed_any_sample(&f->feed, &sample);
}

static void start(struct session_fixture *f, char id[SESSION_ID_SIZE])
{
	struct session_request request = session_fixture_request("web", 60);

	request.type = PROFILE_IO;
	request.rate_hz = RATE_HZ;
	session_fixture_start(f, &request, id);
	clock_sleep_ns(20 * NS_PER_MS);
}

/* The session's profile as soon as it has @calls calls. A profile built a moment before may be
 * served again, so the function polls. */
static struct profile *profile_of(struct session_fixture *f, const char *id, int64_t calls)
{
	struct err err = { 0 };

	for (int i = 0; i < 6000; i++, clock_sleep_ns(10 * NS_PER_MS)) {
		struct profile *p = NULL;
		int rc = sessions_profile(f->sessions, "default", id, &p, &err);

		if (rc < 0 && rc != -ENODATA)
			fail_msg("%s", err.text);
		if (rc == 0 && p->totals[OPERATIONS] >= calls)
			return p;
		if (rc == 0)
			(void)profile_unref(p);
	}
	fail_msg("the calls are not there");
	return NULL;
}

/* Adds up the values of all samples whose innermost function is @function. Returns the interval of
 * its bytes, {0, 0} where nothing is an estimate. */
static struct profile_interval sums_of(const struct profile *p, const char *function,
				       int64_t ret[PROFILE_VALUES_MAX])
{
	cleanup_free struct profile_interval *intervals = NULL;
	struct profile_interval interval = { 0, 0 };
	int rc = profile_intervals(p, BYTES, &intervals);

	memset(ret, 0, PROFILE_VALUES_MAX * sizeof(*ret));
	assert_true(rc == 0 || rc == -ENODATA);
	for (uint32_t i = 0; i < p->sample_count; i++) {
		uint32_t id = p->frames[p->nodes[p->samples[i].node].frame].function;

		if (strcmp(profile_string(p, p->functions[id].name), function) != 0)
			continue;
		interval = rc == 0 ? intervals[id] : interval;
		for (int v = 0; v < PROFILE_VALUES_MAX; v++)
			ret[v] += p->samples[i].values[v];
	}
	return interval;
}

static void this_is_known(const struct profile *p, const char *function, int64_t calls,
			  int64_t bytes)
{
	int64_t sums[PROFILE_VALUES_MAX];
	struct profile_interval interval = sums_of(p, function, sums);

	assert_int_equal(sums[OPERATIONS], calls);
	assert_int_equal(sums[BYTES], bytes);
	assert_true(interval.lo == interval.hi && (interval.lo == 0 || interval.lo == (double)bytes));
}

/* Some thousand calls at two places in a session of 10 samples a second, with a restart of the
 * server in the middle. */
static void test_exact_at_any_rate(void **state)
{
	enum { CALLS = 3000, ALL = CALLS + CALLS / 10 };
	struct session_fixture *f = *state;
	char id[SESSION_ID_SIZE];
	struct session_info info;

	start(f, id);
	for (int half = 1; half <= 2; half++) {
		uint64_t now_ns = clock_monotonic_ns();
		cleanup(profile) struct profile *p = NULL;

		for (uint64_t i = 0; i < CALLS; i++) {
			call(f, now_ns + i, 1, 7, 100 + i % 2, 1024);
			if (i % 10 == 0)
				call(f, now_ns + i, 2, 8, 5000, 1024);
		}
		p = profile_of(f, id, half * ALL);
		this_is_known(p, "f_100", half * CALLS, half * CALLS / 2 * 201);
		this_is_known(p, "f_200", half * CALLS / 10, half * CALLS / 10 * 5000);
		if (half == 1) {
			session_fixture_kill(f);
			session_fixture_open(f);
		}
	}
	session_fixture_stop(f, id);
	info = session_fixture_get(f, id);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 2 * ALL);
	session_info_deinit(&info);
}

/* More threads than the rate admits events a second stay exact once they are known, also while
 * somebody looks all the time. */
static void test_exact_while_looked_at(void **state)
{
	enum { THREADS = 3 * RATE_HZ, SECONDS = 5 };
	struct session_fixture *f = *state;
	uint64_t begin_ns;
	char id[SESSION_ID_SIZE];

	start(f, id);
	begin_ns = clock_monotonic_ns();
	for (uint32_t second = 0; second < SECONDS; second++) {
		cleanup(profile) struct profile *p = NULL;

		for (uint32_t i = 0; i < 2 * THREADS; i++)
			call(f, begin_ns + second * NS_PER_S + i, 1, 100 + i % THREADS, 1 + i, 1024);
		p = profile_of(f, id, (int64_t)(second + 1) * 2 * THREADS);
		this_is_known(p, "f_100", (int64_t)(second + 1) * 2 * THREADS,
			      (int64_t)(second + 1) * THREADS * (2 * THREADS + 1));
	}
	session_fixture_stop(f, id);
}

/* Samples that stand for others are not replaced by exact sums, and they keep their interval. */
static void test_estimates_stay_estimates(void **state)
{
	struct session_fixture *f = *state;
	cleanup(profile) struct profile *p = NULL;
	int64_t sums[PROFILE_VALUES_MAX];
	struct profile_interval interval;
	char id[SESSION_ID_SIZE];

	start(f, id);
	for (unsigned i = 0; i < 4; i++)
		call(f, clock_monotonic_ns(), 1, 7, 40960, 10 * 1024);
	call(f, clock_monotonic_ns(), 2, 7, 40960, 1024);
	p = profile_of(f, id, 41);
	interval = sums_of(p, "f_100", sums);
	assert_int_equal(sums[OPERATIONS], 40);
	assert_int_equal(sums[BYTES], 4 * 40960);
	assert_true(interval.lo < 4 * 40960 && interval.hi > 4 * 40960);
	this_is_known(p, "f_200", 1, 40960);
	session_fixture_stop(f, id);
}

/* One call each of ever new threads, of which there are more than the session may record a second.
 */
static void test_many_places_are_thinned(void **state)
{
	enum { SECONDS = 40, THREADS = 500, MOVED = 1000 };
	struct session_fixture *f = *state;
	const double due = (double)SECONDS * THREADS * MOVED;
	cleanup(profile) struct profile *p = NULL;
	int64_t sums[PROFILE_VALUES_MAX];
	struct profile_interval interval;
	char id[SESSION_ID_SIZE];
	struct session_info info;
	uint64_t begin_ns;
	double deviation;

	start(f, id);
	begin_ns = clock_monotonic_ns();
	for (uint64_t i = 0; i < SECONDS * THREADS; i++)
		call(f, begin_ns + i / THREADS * NS_PER_S + i % THREADS * 1000, 1,
		     100 + (uint32_t)i, MOVED, 1024);
	call(f, begin_ns + SECONDS * NS_PER_S, 2, 7, 1u << 30, 1024); /* never thinned: the last one */
	for (sums[OPERATIONS] = 0; !sums[OPERATIONS]; clock_sleep_ns(10 * NS_PER_MS)) {
		(void)profile_unref(p);
		p = profile_of(f, id, 1);
		(void)sums_of(p, "f_200", sums);
	}
	interval = sums_of(p, "f_100", sums);
	deviation = (interval.hi - interval.lo) / 2 / 1.96;
	print_message("%.2f of the bytes, +- %.2f\n", (double)sums[BYTES] / due, deviation / due);
	assert_true(fabs((double)sums[BYTES] - due) < 5 * deviation && deviation < due / 10);
	info = session_fixture_get(f, id);
	assert_in_range(info.sample_count, SECONDS * RATE_HZ / 2, THREADS + SECONDS * RATE_HZ * 2);
	session_info_deinit(&info);
	session_fixture_stop(f, id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_exact_at_any_rate, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_exact_while_looked_at, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_estimates_stay_estimates,
						session_fixture_setup, session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_many_places_are_thinned, session_fixture_setup,
						session_fixture_teardown),
	};

	return cmocka_run_group_tests_name("byte_sums", tests, NULL, NULL);
}
