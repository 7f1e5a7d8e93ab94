// SPDX-License-Identifier: Apache-2.0
/* Continuous settings, the windows they leave, and the spans that look like sessions. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/ulid.h"
#include "agent/recording/roll_up.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/continuous/standing.h"
#include "agent/session/records/session_record.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

#define MINUTE (60 * NS_PER_S)

static void test_settings(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 19);
	struct continuous_list list;
	struct continuous_info info;
	struct err err = { 0 };

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 19);
	setting.rate_hz = 49;
	setting.retention_days = 30;
	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 49);
	setting = session_fixture_setting("default", "host", 5);
	setting.enabled = false;
	session_fixture_put(f, &setting);
	setting = session_fixture_setting("other", "db", 99);
	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	/* They survive. */
	session_fixture_kill(f);
	session_fixture_open(f);
	assert_int_equal(sessions_continuous_list(f->sessions, "default", &list, &err), 0);
	assert_int_equal(list.count, 2);
	assert_string_equal(list.items[0].setting.service, "*");
	assert_false(list.items[0].setting.enabled);
	assert_int_equal(list.items[0].status.active_since_ns, 0);
	assert_string_equal(list.items[1].setting.service, "web");
	assert_int_equal(list.items[1].setting.rate_hz, 49);
	assert_int_equal(list.items[1].setting.retention_days, 30);
	assert_true(list.items[1].status.active_since_ns > 0);
	continuous_list_deinit(&list);
	assert_int_equal(sessions_continuous_get(f->sessions, "default", "host", &info, &err), 0);
	assert_true(sessions_continuous_get(f->sessions, "default", "db", &info, &err) < 0);
	assert_string_equal(err.word, "UnknownService");
	assert_int_equal(sessions_continuous_delete(f->sessions, "other", "db", &err), 0);
	assert_true(sessions_continuous_delete(f->sessions, "other", "db", &err) < 0);
	assert_int_equal(sessions_continuous_delete(f->sessions, "default", "web", &err), 0);
	session_fixture_wait_rate(f, 0);
}

/* Puts settings of @tenant with @types until one is refused; how many were taken. */
static unsigned fill_settings(struct session_fixture *f, const char *tenant, uint32_t types,
			      struct err *err)
{
	unsigned count = 0;

	for (;; count++) {
		char service[32];
		struct continuous_setting setting;
		struct continuous_info info;

		(void)snprintf(service, sizeof(service), "many-%u", count);
		setting = session_fixture_setting(tenant, service, 19);
		setting.types = types;
		setting.enabled = false;
		if (sessions_continuous_put(f->sessions, &setting, &info, err) < 0)
			return count;
	}
}

/* A tenant that takes all it may leaves the others theirs, and reads nothing about them. */
static void test_limits_of_each_tenant(void **state)
{
	const uint32_t chained = profile_types_kept(PROFILE_KEPT_SESSIONS);
	const unsigned types = (unsigned)__builtin_popcount(chained);
	struct session_fixture *f = *state;
	struct err err = { 0 };

	assert_int_equal(fill_settings(f, "one", 1u << PROFILE_CPU, &err), CONTINUOUS_TENANT_MAX);
	assert_string_equal(err.word, "LimitReached");
	assert_int_equal(fill_settings(f, "two", 1u << PROFILE_CPU, &err), CONTINUOUS_TENANT_MAX);
	assert_int_equal(fill_settings(f, "three", chained, &err), STANDING_TENANT_MAX / types);
	assert_string_equal(err.word, "LimitReached");
	assert_non_null(strstr(err.text, "this tenant's settings ask for"));
	assert_int_equal(fill_settings(f, "four", chained, &err), STANDING_TENANT_MAX / types);
	assert_int_equal(fill_settings(f, "five", chained, &err), STANDING_TENANT_MAX / types);
	(void)fill_settings(f, "six", chained, &err);
	assert_string_equal(err.word, "LimitReached");
	assert_null(strpbrk(err.text, "0123456789"));
	(void)fill_settings(f, "seven", 1u << PROFILE_CPU, &err);
	(void)fill_settings(f, "eight", 1u << PROFILE_CPU, &err);
	assert_string_equal(err.word, "LimitReached");
	assert_null(strpbrk(err.text, "0123456789"));
}

static void test_refused_settings(void **state)
{
	struct session_fixture *f = *state;
	struct {
		const char *what, *word;
		struct continuous_setting setting;
	} rows[] = {
		{ "no type", "InvalidParam", session_fixture_setting("default", "web", 19) },
		{ "rate", "InvalidParam", session_fixture_setting("default", "web", 1001) },
		{ "retention", "InvalidParam", session_fixture_setting("default", "web", 19) },
		{ "pid", "InvalidParam", session_fixture_setting("default", "pid:101", 19) },
		{ "empty", "InvalidParam", session_fixture_setting("default", "", 19) },
		{ "io", "ProfileTypeUnavailable", session_fixture_setting("default", "web", 19) },
		{ "block of all", "ProfileTypeUnavailable", session_fixture_setting("default", "*", 19) },
		{ "watch of block of a port", "InvalidParam", session_fixture_setting("default", "port:80", 19) },
	};

	rows[0].setting.types = 0;
	rows[2].setting.retention_days = 3651;
	rows[5].setting.types = 1u << PROFILE_IO;
	rows[6].setting.types = rows[7].setting.types = 1u << PROFILE_BLOCK;
	strcpy(rows[7].setting.watch_against, "history");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct continuous_info info;
		struct err err = { 0 };

		if (sessions_continuous_put(f->sessions, &rows[i].setting, &info, &err) >= 0)
			fail_msg("%s: accepted", rows[i].what);
		if (!err.word || strcmp(err.word, rows[i].word) != 0)
			fail_msg("%s: %s (%s)", rows[i].what, err.word ? err.word : "-", err.text);
	}
}

static void test_spans_are_sessions(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "*", 99);
	struct session_request request = session_fixture_request("db", 60);
	struct session_list list, again;
	struct session_info info;
	struct profile *p = NULL;
	struct err err = { 0 };
	char on_demand[SESSION_ID_SIZE];
	bool stopped = true;

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	session_fixture_start(f, &request, on_demand);
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_samples(f, 2, 2, 30);
	session_fixture_samples(f, 3, 1, 5);
	session_fixture_wait_samples(f, "default", "web", 40);
	list = session_fixture_list(f, "default", NULL);
	assert_int_equal(list.total, list.count);
	assert_in_range(list.count, 3, 5); /* two spans, four if the minute fell on a border */
	assert_string_equal(list.items[0].id, on_demand);
	session_list_deinit(&list);
	list = session_fixture_list(f, "default", "web");
	assert_true(list.items[0].continuous);
	assert_int_equal(list.items[0].status, SESSION_RUNNING);
	assert_string_equal(list.items[0].service, "web");
	assert_int_equal(list.items[0].created_at_ns % (600 * NS_PER_S), 0);
	/* The same span has the same id, also for another server. */
	session_fixture_kill(f);
	session_fixture_open(f);
	again = session_fixture_list(f, "default", "web");
	assert_string_equal(again.items[0].id, list.items[0].id);
	session_list_deinit(&again);
	assert_int_equal(sessions_get(f->sessions, "default", list.items[0].id, &info, &err), 0);
	assert_int_equal(info.total_value, list.items[0].total_value);
	session_info_deinit(&info);
	assert_true(sessions_get(f->sessions, "other", list.items[0].id, &info, &err) < 0);
	assert_string_equal(err.word, "UnknownSession");
	if (sessions_profile(f->sessions, "default", list.items[0].id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(p->totals[0], list.items[0].sample_count);
	if (list.count == 1) {
		assert_int_equal(session_fixture_self(p, "f_100"), 10 * PERIOD_99);
		assert_int_equal(session_fixture_self(p, "f_200"), 30 * PERIOD_99);
	}
	(void)profile_unref(p);
	/* Deleting leaves a tombstone. */
	assert_int_equal(sessions_delete(f->sessions, "default", list.items[0].id, &stopped, &err),
			 0);
	assert_false(stopped);
	assert_true(sessions_get(f->sessions, "default", list.items[0].id, &info, &err) < 0);
	again = session_fixture_list(f, "default", "web");
	assert_int_equal(again.count, list.count - 1);
	session_list_deinit(&again);
	session_list_deinit(&list);
}

/* Nothing is lost and nothing counts twice, whatever was flushed when the server was killed. */
static void test_kills_lose_nothing(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	uint64_t sent = 0;

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	for (int life = 0; life < 5; life++) {
		session_fixture_samples(f, 1, 1, 100);
		sent += 100;
		clock_sleep_ns((uint64_t)life * 60 * NS_PER_MS);
		session_fixture_kill(f);
		session_fixture_samples(f, 2, 2, 3);
		sent += 3;
		session_fixture_open(f);
	}
	session_fixture_wait_samples(f, "default", "web", sent);
}

/* Nothing is known of the stacks where nobody looks at them. */
static void assert_quality(const struct profile_quality *quality, int64_t samples, int64_t lost,
			   double rate)
{
	assert_int_equal(quality->samples, samples);
	assert_int_equal(quality->lost, lost);
	assert_true(fabs(quality->effective_rate - rate) < 0.01 * rate);
	assert_true(quality->truncated_pct < 0 && quality->unknown_frame_pct < 0 &&
		    quality->guessed_frame_pct < 0);
	assert_true(quality->overhead_pct < 0);
}

static void assert_functions_are_those_of_the_profile(struct session_fixture *f,
						      const struct history_window *window)
{
	cleanup_free struct profile_function_row *rows = NULL;
	cleanup(profile) struct profile *p = NULL;
	struct history_functions functions = { 0 };
	struct err err = { 0 };
	size_t count = 0;

	assert_int_equal(sessions_window_profile(f->sessions, window, &p, &err), 0);
	assert_int_equal(profile_top_functions(p, profile_value_index(p), &rows, &count), 0);
	assert_int_equal(sessions_window_functions(f->sessions, window, &functions, &err), 0);
	assert_int_equal(functions.count, count);
	for (size_t i = 0; i < count; i++) {
		const struct profile_function_row *row = &functions.rows[i];

		assert_string_equal(
			profile_string(functions.profile,
				       functions.profile->functions[row->function].name),
			profile_string(p, p->functions[rows[i].function].name));
		assert_int_equal(row->self, rows[i].self);
		assert_int_equal(row->cumulative, rows[i].cumulative);
		assert_int_equal(row->count, rows[i].count);
	}
	for (int i = 0; i < PROFILE_VALUES_MAX; i++)
		assert_int_equal(functions.profile->totals[i], p->totals[i]);
	assert_quality(&functions.profile->quality, p->quality.samples, p->quality.lost,
		       p->quality.effective_rate);
	history_functions_deinit(&functions);
}

/* While no server writes: this hour and the one before, if it has just begun. */
static void roll_up(struct session_fixture *f)
{
	uint64_t now_ns = clock_realtime_ns(), hour_ns = now_ns - now_ns % CONTINUOUS_HOUR_NS;
	cleanup(store) struct store *store = NULL;
	struct err err = { 0 };

	assert_int_equal(store_open(f->dir, NULL, "", &store, &err), 0);
	for (int i = 0; i < 2; i++, hour_ns -= CONTINUOUS_HOUR_NS) {
		const struct store_day day = { .day = (uint32_t)(hour_ns / CONTINUOUS_DAY_NS),
					       .retention_days = 7 };
		int rc = roll_up_hour(store, &day, hour_ns, &err);

		assert_true(rc == 0 || rc == -ENOENT);
	}
}

/* Pairs get their lasting numbers in the order of their stacks, not as they came: each keeps its
 * own samples, also when their hour is rolled up. */
static void test_each_stack_keeps_its_samples(void **state)
{
	enum { STACKS = 40, LIVES = 2 };
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct history_window window = { .tenant = "default", .service = "web", .type = PROFILE_CPU };
	struct profile *p = NULL;
	struct err err = { 0 };
	uint64_t sent = 0;
	char name[16];

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	for (uint64_t life = 0; life < LIVES; life++) {
		/* From the last to the first; of the same life and of the one before. */
		for (uint64_t i = STACKS * (life + 1); i > 0; i--) {
			const uint64_t frames[] = { prof_frame_module(1, i * 256, 0), prof_frame_module(1, 65536, 0) };

			fake_feed_stack(&f->feed, 1000 + i, frames, 2, 0);
			session_fixture_samples(f, 1, 1000 + i, (int)i % 7 + 1);
			sent += i % 7 + 1;
		}
		session_fixture_wait_samples(f, "default", "web", sent);
		session_fixture_kill(f);
		if (life == LIVES - 1)
			roll_up(f);
		session_fixture_open(f);
	}
	window.from_ns = clock_realtime_ns() - 3600 * NS_PER_S;
	window.to_ns = window.from_ns + 7200 * NS_PER_S;
	if (sessions_window_profile(f->sessions, &window, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(p->totals[0], sent);
	for (uint64_t i = 1; i <= STACKS * LIVES; i++) {
		(void)snprintf(name, sizeof(name), "f_%lx", (unsigned long)i * 256);
		assert_int_equal(session_fixture_self(p, name),
				 (int64_t)((i % 7 + 1) * (i <= STACKS ? LIVES : 1) * PERIOD_99));
	}
	assert_functions_are_those_of_the_profile(f, &window);
	(void)profile_unref(p);
}

/* Stored once at the highest rate; each owner sees its own. */
static void test_each_owner_its_rate(void **state)
{
	enum { N = 4000 };
	struct session_fixture *f = *state;
	double deviation = session_fixture_two_owners(f, N);
	struct history_window window = { .tenant = "b", .service = "web", .type = PROFILE_CPU };
	struct profile *p = NULL, *again = NULL;
	struct err err = { 0 };

	window.from_ns = clock_realtime_ns() - 3600 * NS_PER_S;
	window.to_ns = window.from_ns + 7200 * NS_PER_S;
	if (sessions_window_profile(f->sessions, &window, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(fabs((double)p->totals[0] - N * 0.2) < deviation);
	assert_true(fabs((double)p->totals[1] - N * 1e7) < deviation / 0.2 * 1e7);
	/* The same whenever it is asked. */
	assert_int_equal(sessions_window_profile(f->sessions, &window, &again, &err), 0);
	assert_int_equal(again->totals[0], p->totals[0]);
	(void)profile_unref(again);
	(void)profile_unref(p);
	window.tenant = "c";
	assert_true(sessions_window_profile(f->sessions, &window, &p, &err) < 0);
	assert_string_equal(err.word, "NotFound");
}

static void test_windows_and_points(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct history_window window = { .tenant = "default",
					 .service = "web",
					 .type = PROFILE_CPU };
	struct history_points points;
	struct err err = { 0 };
	uint64_t samples = 0;
	int64_t value = 0;

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_samples(f, 2, 2, 30);
	session_fixture_wait_samples(f, "default", "web", 40);
	window.to_ns = (clock_realtime_ns() / MINUTE + 1) * MINUTE;
	window.from_ns = window.to_ns - 10 * MINUTE;
	assert_int_equal(sessions_points(f->sessions, &window, MINUTE, NULL, &points, &err), 0);
	assert_in_range(points.count, 1, 2);
	for (uint32_t i = 0; i < points.count; i++) {
		assert_int_equal(points.items[i].to_ns - points.items[i].from_ns, MINUTE);
		/* Over the time that was looked, not over the minute. */
		assert_in_range(points.items[i].profiled_ns, 1, MINUTE);
		assert_true(fabs(points.items[i].value_per_second * (double)points.items[i].profiled_ns / 1e9 -
				 (double)points.items[i].total_value) < 1);
		samples += points.items[i].sample_count;
		value += points.items[i].total_value;
	}
	assert_int_equal(samples, 40);
	assert_int_equal(value, 40 * PERIOD_99);
	assert_quality(&points.quality, 40, 0, 99);
	history_points_deinit(&points);
	assert_functions_are_those_of_the_profile(f, &window);
	assert_int_equal(sessions_points(f->sessions, &window, 10 * MINUTE, "f_200", &points, &err),
			 0);
	assert_int_equal(points.count, 1);
	assert_quality(&points.quality, 40, 0, 99); /* of the data, not of the function */
	assert_int_equal(points.items[0].total_value, 30 * PERIOD_99);
	assert_int_equal(points.items[0].sample_count, 30);
	assert_in_range(points.items[0].profiled_ns, 1, 2 * MINUTE);
	assert_true(points.items[0].value_per_second >= 30 * PERIOD_99 / 120.0);
	history_points_deinit(&points);
	assert_true(sessions_points(f->sessions, &window, MINUTE / 2, NULL, &points, &err) < 0);
	assert_string_equal(err.word, "InvalidParam");
	window.service = "nope";
	struct profile *p = NULL;
	assert_true(sessions_window_profile(f->sessions, &window, &p, &err) < 0);
	assert_string_equal(err.word, "UnknownService");
	window.service = "web";
	window.to_ns = window.from_ns;
	assert_true(sessions_window_profile(f->sessions, &window, &p, &err) < 0);
	assert_string_equal(err.word, "InvalidParam");
}

static struct store_window looked(const char *service, uint64_t minute_ns, uint64_t samples)
{
	return (struct store_window){ .service = service,
				      .type = "cpu",
				      .owners = ",default:99,",
				      .from_ns = minute_ns,
				      .whole = true,
				      .profiled_ms = samples ? 60000 : 30000,
				      .samples = samples,
				      .lost = samples / 10,
				      .value = (int64_t)samples * 1000,
				      .data = "",
				      .len = 1 };
}

/* Services that are looked at side by side are looked at in the same time: of the whole host it
 * counts once. */
static void test_the_host_is_looked_at_once(void **state)
{
	struct session_fixture *f = *state;
	uint64_t day = clock_realtime_ns() / (86400 * NS_PER_S) - 1,
		 begin_ns = day * 86400 * NS_PER_S + 600 * NS_PER_S;
	struct store_window windows[] = { looked("*", begin_ns, 0), looked("other", begin_ns, 10),
					  looked("web", begin_ns, 40) };
	const struct store_day which = { .day = (uint32_t)day, .retention_days = 7 };
	struct history_window window = { .tenant = "default",
					 .service = "*",
					 .type = PROFILE_CPU,
					 .from_ns = begin_ns,
					 .to_ns = begin_ns + MINUTE };
	struct history_points points;
	struct err err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(windows); i++)
		windows[i].profiled_ms = 12000;
	assert_int_equal(store_history_append(f->store, &which, NULL, 0, windows,
					      ARRAY_SIZE(windows), 1, 1, &err),
			 0);
	assert_int_equal(sessions_points(f->sessions, &window, MINUTE, NULL, &points, &err), 0);
	assert_int_equal(points.count, 1);
	assert_int_equal(points.items[0].total_value, 50 * 1000);
	assert_int_equal(points.items[0].profiled_ns, 12 * NS_PER_S);
	history_points_deinit(&points);
}

/* A minute without samples is zero when it was looked at, and a gap when it was not. */
static void test_zero_is_no_gap(void **state)
{
	struct session_fixture *f = *state;
	uint64_t now_ns = clock_realtime_ns(), day = now_ns / (86400 * NS_PER_S) - 1;
	uint64_t begin_ns = day * 86400 * NS_PER_S + 600 * NS_PER_S;
	const struct store_window windows[] = {
		looked("*", begin_ns, 0), looked("web", begin_ns + MINUTE, 40),
		looked("*", begin_ns + MINUTE, 0), looked("*", begin_ns + 2 * MINUTE, 0),
		/* nobody looked in the fourth */
		looked("other", begin_ns + 3 * MINUTE, 10), looked("web", begin_ns + 4 * MINUTE, 50),
	};
	const struct store_day which = { .day = (uint32_t)day, .retention_days = 7 };
	struct history_window window = { .tenant = "default", .service = "web", .type = PROFILE_CPU,
					 .from_ns = begin_ns, .to_ns = begin_ns + 5 * MINUTE };
	static const struct {
		uint32_t minute;
		uint64_t samples, profiled_s;
	} expected[] = { { 0, 0, 30 }, { 1, 40, 60 }, { 2, 0, 30 }, { 4, 50, 60 } };
	struct history_points points;
	struct err err = { 0 };

	assert_int_equal(store_history_append(f->store, &which, NULL, 0, windows,
					      ARRAY_SIZE(windows), 1, 1, &err),
			 0);
	assert_int_equal(sessions_points(f->sessions, &window, MINUTE, NULL, &points, &err), 0);
	assert_int_equal(points.count, ARRAY_SIZE(expected));
	for (uint32_t i = 0; i < points.count; i++) {
		assert_int_equal((points.items[i].from_ns - begin_ns) / MINUTE, expected[i].minute);
		assert_int_equal(points.items[i].sample_count, expected[i].samples);
		assert_int_equal(points.items[i].profiled_ns, expected[i].profiled_s * NS_PER_S);
		assert_int_equal(points.items[i].total_value, expected[i].samples * 1000);
	}
	assert_quality(&points.quality, 90, 9, 1e6);
	history_points_deinit(&points);
	/* A service that was never seen has no quality figures. */
	window.service = "nobody";
	assert_int_equal(sessions_points(f->sessions, &window, MINUTE, NULL, &points, &err), 0);
	assert_int_equal(points.count, 0);
	assert_true(points.quality.samples < 0 && points.quality.lost < 0 &&
		    points.quality.effective_rate < 0);
	history_points_deinit(&points);
}

struct looked_at {
	struct store *store;
	const char *service;
	uint64_t ms, samples;
};

static int add_looked(void *ctx, const struct store_window *window)
{
	struct looked_at *sum = ctx;

	sum->ms += window->profiled_ms;
	sum->samples += window->samples;
	return 0;
}

static int add_days(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct looked_at *sum = ctx;
	const struct store_window_query query = { .service = sum->service };
	int rc = store_history_windows(sum->store, day, &query, add_looked, sum, NULL, NULL);

	return rc == -ENOENT ? 0 : rc; /* it is just being made */
}

/* While nothing runs, that it was looked is kept; while no collector is there, it is not. */
static void test_looking_is_kept(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "*", 99);
	struct looked_at sum = { .store = f->store, .service = "*" };
	uint64_t begin_ns = clock_realtime_ns(), ms;
	struct err err = { 0 };

	session_fixture_put(f, &setting);
	for (int i = 0; i < 6000 && sum.ms < 500; i++) {
		sum.ms = 0;
		clock_sleep_ns(10 * NS_PER_MS);
		assert_int_equal(store_history_days(f->store, false, add_days, &sum, &err), 0);
	}
	assert_true(sum.ms >= 500);
	assert_int_equal(sum.samples, 0);
	assert_true(sum.ms <= (clock_realtime_ns() - begin_ns) / NS_PER_MS);
	fake_feed_disconnect(&f->feed);
	clock_sleep_ns(500 * NS_PER_MS);
	sum.ms = 0;
	assert_int_equal(store_history_days(f->store, false, add_days, &sum, &err), 0);
	ms = sum.ms;
	clock_sleep_ns(500 * NS_PER_MS);
	sum.ms = 0;
	assert_int_equal(store_history_days(f->store, false, add_days, &sum, &err), 0);
	assert_int_equal(sum.ms, ms);
}

/* An alias looks at the services that live there: under their names, and no others. */
static void test_looking_by_an_alias(void **state)
{
	static const char *const aliases[] = { "unit:web.service", "port:8080" };
	struct session_fixture *f = *state;

	for (size_t k = 0; k < ARRAY_SIZE(aliases); k++) {
		struct continuous_setting setting = session_fixture_setting("default", aliases[k], 99);
		struct looked_at sum = { .store = f->store, .service = "web" }, all = { .store = f->store };
		struct err err = { 0 };

		session_fixture_put(f, &setting);
		for (int i = 0; i < 6000 && sum.ms < 300 * (k + 1); i++) {
			sum.ms = 0;
			clock_sleep_ns(10 * NS_PER_MS);
			assert_int_equal(store_history_days(f->store, false, add_days, &sum, &err), 0);
		}
		assert_true(sum.ms >= 300 * (k + 1));
		assert_int_equal(sessions_continuous_delete(f->sessions, "default", aliases[k], &err), 0);
		sum.service = "db";
		sum.ms = 0;
		assert_int_equal(store_history_days(f->store, false, add_days, &sum, &err), 0);
		assert_int_equal(sum.ms, 0);
		assert_int_equal(store_history_days(f->store, false, add_days, &all, &err), 0);
		assert_int_equal(all.samples, 0);
	}
}

/* A process listens, or is found to be another's, after it was first told of. */
static void test_what_is_learned_later_counts(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "port:9090", 99);
	struct fake_proc late = {
		.proc = 7, .tgid = 107, .comm = "late", .exe = "/usr/bin/late", .cgroup = "/"
	};

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	fake_feed_proc(&f->feed, &late);
	session_fixture_wait_known(f, "late");
	session_fixture_samples(f, 7, 1, 5); /* nobody wants them */
	clock_sleep_ns(300 * NS_PER_MS);
	late.ports = "9090";
	fake_feed_proc(&f->feed, &late);
	session_fixture_samples(f, 7, 1, 20);
	session_fixture_wait_samples(f, "default", "late", 20);
}

/* Each minute that a wait goes through has its part of it. What does not end is asked for, as the
 * setting begins and then once a minute. */
static void test_long_waits(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	uint64_t end_ns = clock_monotonic_ns(), realtime_ns = clock_realtime_ns();
	struct history_window window = { .tenant = "default", .service = "web", .type = PROFILE_OFFCPU,
					 .from_ns = realtime_ns / MINUTE * MINUTE - 4 * MINUTE,
					 .to_ns = realtime_ns / MINUTE * MINUTE + 2 * MINUTE };
	const uint64_t parts = realtime_ns / MINUTE - (realtime_ns - 150 * NS_PER_S) / MINUTE + 1;
	struct history_points points;
	struct err err = { 0 };
	int64_t total = 0;
	uint64_t whole = 0;

	setting.types = 1u << PROFILE_OFFCPU;
	session_fixture_put(f, &setting);
	for (int i = 0; i < 6000 && !f->feed.sweeps; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_true(f->feed.sweeps > 0);
	fake_feed_wait(&f->feed, 1, 100, 2, end_ns, 150 * NS_PER_S,
		       PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX);
	session_fixture_wait_samples(f, "default", "web", parts);
	assert_int_equal(sessions_points(f->sessions, &window, MINUTE, NULL, &points, &err), 0);
	for (uint32_t i = 0; i < points.count; i++) {
		total += points.items[i].total_value;
		whole += points.items[i].total_value == (int64_t)MINUTE;
		assert_true(points.items[i].total_value <= (int64_t)MINUTE);
	}
	assert_int_equal(whole, parts - 2);
	assert_int_equal(total, 150 * (int64_t)NS_PER_S);
	history_points_deinit(&points);
}

/* Steps of the clock, and nights in which the machine slept, are nobody's looking. */
static void test_clock_jumps_are_gaps(void **state)
{
	const uint64_t now = 1000000 * NS_PER_S, flush = 10 * NS_PER_S;

	assert_int_equal(continuous_looked_from(now - flush, now, flush), now - flush);
	assert_int_equal(continuous_looked_from(now - 2 * flush, now, flush), now - 2 * flush);
	assert_int_equal(continuous_looked_from(0, now, flush), now);
	assert_int_equal(continuous_looked_from(now - 3600 * NS_PER_S, now, flush),
			 now); /* slept, or set on */
	assert_int_equal(continuous_looked_from(now + NS_PER_S, now, flush), now);	  /* set back */
}

/* A sampled minor page fault, which stands for FAULTS. */
#define FAULTS 64
static void fault(struct session_fixture *f, uint64_t time_ns)
{
	struct feed_sample sample = { .time_ns = time_ns,
				      .value = FAULTS,
				      .value2 = FAULTS * 1024,
				      .proc = 1,
				      .tid = 100,
				      .user_stack = 2,
				      .type = PROF_SAMPLE_FAULT,
				      .state = PROF_FAULT_MINOR,
				      .comm = "worker" };

	fake_feed_any_sample(&f->feed, &sample);
}

static int64_t self_of_200(enum profile_type type)
{
	if (type == PROFILE_FAULTS)
		return (int64_t)20 * FAULTS;
	return type == PROFILE_CPU ? -1 : 20 * 5 * (int64_t)NS_PER_MS;
}

/* CPU, waits, both together and page faults of one service, each a span of its own; windows begin
 * with the minute. */
static void test_several_types(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct history_window window = { .tenant = "default", .service = "web" };
	struct session_list list = { 0 };
	struct err err = { 0 };
	uint64_t now_ns = clock_monotonic_ns();
	bool complete = false;

	setting.types = 1u << PROFILE_CPU | 1u << PROFILE_OFFCPU | 1u << PROFILE_WALL |
			1u << PROFILE_FAULTS;
	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	assert_int_equal(f->feed.types & (PROF_WANT_CPU | PROF_WANT_OFFCPU | PROF_WANT_FAULTS),
			 PROF_WANT_CPU | PROF_WANT_OFFCPU | PROF_WANT_FAULTS);
	for (uint64_t i = 0; i < 20; i++) {
		fake_feed_sample(&f->feed, 1, 100, 1, now_ns + i, PERIOD_99);
		fake_feed_wait(&f->feed, 1, 100, 2, now_ns + i, 5 * NS_PER_MS, PROF_OFF_BLOCKED << 4);
		fault(f, now_ns + i);
	}
	for (int i = 0; i < 6000 && !complete; i++) {
		clock_sleep_ns(10 * NS_PER_MS);
		session_list_deinit(&list);
		list = session_fixture_list(f, "default", "web");
		complete = list.count >= 4;
		for (uint32_t j = 0; j < list.count; j++)
			complete &= list.items[j].sample_count >=
				    (list.items[j].type == PROFILE_WALL ? 40u : 20u);
	}
	assert_int_equal(list.count, 4);
	for (uint32_t j = 0; j < list.count; j++) {
		cleanup(profile) struct profile *p = NULL;

		assert_true(list.items[j].continuous);
		assert_int_equal(list.items[j].started_at_ns % MINUTE, 0);
		window.type = list.items[j].type;
		window.from_ns = list.items[j].created_at_ns;
		window.to_ns = window.from_ns + 600 * NS_PER_S;
		assert_int_equal(sessions_window_profile(f->sessions, &window, &p, &err), 0);
		assert_int_equal(p->quality.samples, list.items[j].sample_count);
		for (uint32_t i = 0; i < p->event_count; i++)
			assert_int_equal(p->events[i].time_ns % MINUTE, 0);
		assert_int_equal(session_fixture_self(p, "f_100"),
				 window.type == PROFILE_OFFCPU || window.type == PROFILE_FAULTS
					 ? -1
					 : 20 * (int64_t)PERIOD_99);
		assert_int_equal(session_fixture_self(p, "f_200"), self_of_200(window.type));
	}
	session_list_deinit(&list);
}

/* One setting for everything: each of 200 services has its own windows, those that appear later
 * too. */
static void test_two_hundred_services(void **state)
{
	enum { SERVICES = 200, EACH = 19 };
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "*", 19);
	struct continuous_info info;
	struct err err = { 0 };
	char name[32];

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 19);
	for (uint32_t i = 0; i < SERVICES; i++) {
		(void)snprintf(name, sizeof(name), "/system.slice/svc-%03u.service", i);
		fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 1000 + i, .tgid = 1000 + i, .comm = "svc",
							      .exe = "/usr/bin/svc", .cgroup = name });
		for (uint64_t k = 0; k < EACH; k++)
			fake_feed_sample(&f->feed, 1000 + i, 1000 + i, 1 + k % 2,
					 clock_monotonic_ns() + k, NS_PER_S / 19);
	}
	for (uint32_t i = 0; i < SERVICES; i += i < SERVICES - 34 ? 33 : 1) {
		(void)snprintf(name, sizeof(name), "svc-%03u", i);
		session_fixture_wait_samples(f, "default", name, EACH);
	}
	assert_int_equal(sessions_continuous_get(f->sessions, "default", "*", &info, &err), 0);
	assert_true(info.status.sessions >= SERVICES && info.status.bytes > 0);
}

static int note_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	void *const *to = ctx;
	struct store_day *days = to[0];
	size_t *count = to[1];

	assert_true(*count < 4);
	days[(*count)++] = *day;
	return 0;
}

/* Pages of sessions and spans mixed: each once, whatever the limit. */
static void test_pages(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "*", 99);
	struct session_query query = { .tenant = "default", .type = -1, .status = -1 };
	struct session_list own;
	struct err err = { 0 };

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	for (int i = 0; i < 3; i++) {
		struct session_request request = session_fixture_request("db", 60);
		char id[SESSION_ID_SIZE];

		session_fixture_start(f, &request, id);
		session_fixture_samples(f, 3, 1, 2);
		session_fixture_stop(f, id);
	}
	session_fixture_samples(f, 1, 1, 7);
	session_fixture_wait_samples(f, "default", "web", 7);
	query.limit = 100;
	assert_int_equal(sessions_list_on_demand(f->sessions, &query, &own, &err), 0);
	assert_int_equal(own.total, 3);
	session_list_deinit(&own);
	for (query.limit = 1; query.limit <= 5; query.limit++) {
		char cursor[64], before[SESSION_ID_SIZE] = "";
		uint64_t before_ns = UINT64_MAX;
		uint32_t seen = 0, total;

		query.cursor = NULL;
		do {
			struct session_list list;

			assert_int_equal(sessions_list(f->sessions, &query, &list, &err), 0);
			for (uint32_t i = 0; i < list.count; i++) {
				const struct session_info *item = &list.items[i];

				assert_true(item->created_at_ns < before_ns ||
					    (item->created_at_ns == before_ns &&
					     strcmp(item->id, before) < 0));
				before_ns = item->created_at_ns;
				strcpy(before, item->id);
			}
			seen += list.count;
			total = (uint32_t)list.total;
			strcpy(cursor, list.next_cursor);
			query.cursor = cursor;
			session_list_deinit(&list);
		} while (cursor[0]);
		assert_int_equal(seen, total);
		assert_true(total >= 5);
	}
}

/* A baseline of a span has its own copy: it is the same when the history is gone. */
static void test_baseline_of_a_span_outlives_it(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct baseline_request request = { .tenant = "default", .label = "then", .type = PROFILE_CPU,
					    .description = "" };
	struct store_day days[4];
	struct baseline_info info;
	struct session_list list;
	struct profile *p = NULL;
	struct err err = { 0 };
	uint64_t now_ns = clock_monotonic_ns(), before_ns = now_ns - 660 * NS_PER_S;
	size_t count = 0;

	if (now_ns < 660 * NS_PER_S) {
		print_message("skip: this machine is up for less than the length of a span\n");
		return;
	}
	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	/* In a span that is over. */
	for (int i = 0; i < 30; i++)
		fake_feed_sample(&f->feed, 1, 100, 1 + (uint64_t)i % 3 / 2, before_ns + (uint64_t)i, PERIOD_99);
	session_fixture_wait_samples(f, "default", "web", 30);
	list = session_fixture_list(f, "default", "web");
	assert_int_equal(list.count, 1);
	assert_int_equal(list.items[0].status, SESSION_COMPLETED);
	request.session_id = list.items[0].id;
	if (sessions_baseline_create(f->sessions, &request, &info, &err) < 0)
		fail_msg("%s", err.text);
	session_list_deinit(&list);
	session_fixture_kill(f);
	session_fixture_open(f);
	assert_int_equal(
		store_history_days(f->store, false, note_day, (void *[]){ days, &count }, &err), 0);
	assert_true(count > 0);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(store_history_drop(f->store, &days[i], &err), 0);
	f->feed.mute_names = true; /* nobody knows the names any more */
	if (sessions_profile(f->sessions, "default", info.id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(p->totals[0], 30);
	assert_int_equal(session_fixture_self(p, "f_100"), 20 * PERIOD_99);
	assert_int_equal(session_fixture_self(p, "f_200"), 10 * PERIOD_99);
	assert_int_equal(p->events[0].time_ns % MINUTE, 0);
	(void)profile_unref(p);
	baseline_info_deinit(&info);
}

int main(void)
{
#define T(name)                                                                                    \
	cmocka_unit_test_setup_teardown(name, session_fixture_setup, session_fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_settings),
		T(test_limits_of_each_tenant),
		T(test_refused_settings),
		T(test_spans_are_sessions),
		T(test_kills_lose_nothing),
		T(test_each_stack_keeps_its_samples),
		T(test_each_owner_its_rate),
		T(test_windows_and_points),
		T(test_zero_is_no_gap),
		T(test_the_host_is_looked_at_once),
		T(test_looking_is_kept),
		T(test_looking_by_an_alias),
		T(test_what_is_learned_later_counts),
		cmocka_unit_test(test_clock_jumps_are_gaps),
		T(test_long_waits),
		T(test_several_types),
		T(test_two_hundred_services),
		T(test_pages),
		T(test_baseline_of_a_span_outlives_it),
	};

	return cmocka_run_group_tests_name("continuous", tests, NULL, NULL);
}
