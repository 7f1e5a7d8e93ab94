// SPDX-License-Identifier: Apache-2.0
/* Single samples of continuous profiling: each keeps its time for as long as the budget lasts, over
 * kills and roll-ups; what is left after that is sums of minutes, and says so. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/profile/heatmap.h"
#include "agent/recording/roll_up.h"
#include "agent/session/continuous/continuous.h"
#include "tests/support/session_fixture.h"

#define MINUTE (60 * NS_PER_S)
#define HOUR   (3600 * NS_PER_S)
#define DAY    (86400 * NS_PER_S)

/* ---- the format ------------------------------------------------------------------------------ */

struct decoded {
	struct chunk_event events[1000];
	size_t count;
	uint64_t series, minute_ns;
};

static int take_event(void *ctx, const struct chunk_event *event)
{
	struct decoded *d = ctx;

	assert_true(d->count < ARRAY_SIZE(d->events));
	d->events[d->count++] = *event;
	return 0;
}

static int take_detail(void *ctx, const struct chunk_detail *detail)
{
	struct decoded *d = ctx;

	d->series = detail->series;
	d->minute_ns = detail->minute_ns;
	return chunk_decode_detail(detail, take_event, d);
}

static void check_format(bool plain)
{
	enum { N = 500 };
	const uint64_t minute_ns = 1700000000ull / 60 * MINUTE;
	static struct decoded d;
	struct chunk_event events[N];
	cleanup_buf struct buf out = { 0 };

	d = (struct decoded){ 0 };
	for (uint64_t i = 0; i < N; i++) {
		uint64_t random = hash_mix64(i + 1);

		events[i] = (struct chunk_event){ .time_ns = minute_ns + random % MINUTE,
						  .pair = 4000000000u + (uint32_t)(random >> 20) % 70,
						  .attr = (uint32_t)(random >> 40) % 3,
						  .value = plain ? -7 : (int64_t)(random >> 30) - (1 << 20),
						  .value2 = plain ? 1024 : random >> 50 };
	}
	chunk_encode_detail(&out, 77, minute_ns, events, N);
	assert_int_equal(out.error, 0);
	assert_int_equal(chunk_decode_details(out.data, out.len, take_detail, &d), 0);
	assert_int_equal(d.series, 77);
	assert_int_equal(d.minute_ns, minute_ns);
	assert_int_equal(d.count, N);
	for (size_t i = 0; i < N; i++) {
		assert_true(events[i].time_ns - d.events[i].time_ns < CHUNK_DETAIL_TICK_NS);
		assert_int_equal(events[i].pair, d.events[i].pair);
		assert_int_equal(events[i].attr, d.events[i].attr);
		assert_true(events[i].value == d.events[i].value && events[i].value2 == d.events[i].value2);
	}
	/* Cut anywhere it is refused; what comes before is whole. */
	for (size_t len = 1; len < out.len; len++) {
		d.count = 0;
		assert_int_equal(chunk_decode_details(out.data, len, take_detail, &d), -EPROTO);
		assert_int_equal(d.count, 0);
	}
}

static void test_format(void **state)
{
	check_format(true);
	check_format(false);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* Events of all spans of a service: at most @max times, ascending; the number. @ret_timed: how many
 * spans have them. */
static size_t read_spans(struct session_fixture *f, const char *tenant, const char *service,
			 uint64_t *times, size_t max, unsigned *ret_timed)
{
	struct session_list list = session_fixture_list(f, tenant, service);
	size_t count = 0;

	*ret_timed = 0;
	for (uint32_t i = list.count; i > 0; i--) {
		cleanup(profile) struct profile *p = NULL;
		struct err err = { 0 };

		if (sessions_profile(f->sessions, tenant, list.items[i - 1].id, &p, &err) < 0)
			fail_msg("%s", err.text);
		*ret_timed += !p->meta.grain_ns;
		for (uint32_t k = 0; k < p->event_count && !p->meta.grain_ns; k++) {
			assert_true(count < max);
			times[count++] = p->events[k].time_ns;
		}
	}
	*ret_timed = *ret_timed == list.count ? UINT32_MAX : *ret_timed;
	session_list_deinit(&list);
	return count;
}

/* All spans of "web" hold @count samples at their times. */
static void check_times(struct session_fixture *f, const uint64_t *expected, size_t count)
{
	uint64_t times[256];
	unsigned timed;

	assert_int_equal(read_spans(f, "default", "web", times, ARRAY_SIZE(times), &timed), count);
	assert_int_equal(timed, UINT32_MAX);
	for (size_t i = 1; i < count; i++) {
		int64_t gap = (int64_t)(times[i] - times[i - 1]),
			meant = (int64_t)(expected[i] - expected[i - 1]);

		if (llabs(gap - meant) > (int64_t)CHUNK_DETAIL_TICK_NS)
			fail_msg("sample %zu came %ld ns after the one before, not %ld", i, gap, meant);
	}
}

static void roll_up_at(struct session_fixture *f, uint64_t time_ns)
{
	const struct store_day day = { .day = (uint32_t)(time_ns / DAY), .retention_days = 7 };
	struct store *store = NULL;
	struct err err = { 0 };

	if (store_open(f->dir, NULL, "", &store, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(roll_up_hour(store, &day, time_ns - time_ns % HOUR, &err), 0);
	store_close(store);
}

static void test_each_sample_keeps_its_time(void **state)
{
	enum { N = 60 };
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	uint64_t expected[N], begin_ns, now_ns;

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	begin_ns = clock_monotonic_ns() - 3 * NS_PER_S;
	for (uint64_t i = 0; i < N; i++) {
		expected[i] = begin_ns + i * 37 * NS_PER_MS + i * i * 1000;
		fake_feed_sample(&f->feed, 1, 100 + (uint32_t)i % 3, 1 + i % 2, expected[i], PERIOD_99);
	}
	session_fixture_wait_samples(f, "default", "web", N);
	check_times(f, expected, N);
	session_fixture_kill(f);
	session_fixture_open(f);
	check_times(f, expected, N);
	session_fixture_kill(f);
	now_ns = clock_realtime_ns();
	roll_up_at(f, now_ns);
	if ((now_ns - 10 * NS_PER_S) / HOUR != now_ns / HOUR)
		roll_up_at(f, now_ns - 10 * NS_PER_S);
	session_fixture_open(f);
	check_times(f, expected, N);
}

/* A window of a minute or two can be asked for as it was, and holds the minutes that begin in it:
 * no more, no less. */
static void test_short_windows(void **state)
{
	enum { N = 60 };
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	const uint64_t now_ns = clock_realtime_ns(), minute_ns = now_ns - now_ns % MINUTE;
	struct history_window window = { .tenant = "default", .service = "web", .type = PROFILE_CPU,
					 .from_ns = minute_ns - 150 * NS_PER_S, .to_ns = minute_ns + 2 * MINUTE };
	cleanup(profile) struct profile *sums = NULL, *timed = NULL;
	struct err err = { 0 };

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	for (uint64_t i = 0; i < N; i++)
		fake_feed_sample(&f->feed, 1, 100, 1 + i % 2,
				 clock_monotonic_ns() - (N - i) * NS_PER_MS, PERIOD_99);
	session_fixture_wait_samples(f, "default", "web", N);
	assert_int_equal(sessions_window_profile(f->sessions, &window, &sums, &err), 0);
	window.timed = true;
	assert_int_equal(sessions_window_profile(f->sessions, &window, &timed, &err), 0);
	assert_int_equal(sums->meta.grain_ns, MINUTE);
	assert_int_equal(timed->meta.grain_ns, 0);
	assert_true(sums->event_count <= 4);
	assert_int_equal(timed->event_count, N);
	assert_int_equal(timed->totals[1], sums->totals[1]);
	assert_int_equal(timed->meta.start_ns, minute_ns - 2 * MINUTE);
	assert_int_equal(sums->meta.start_ns, minute_ns - 2 * MINUTE);
	/* Before the setting nobody looked. */
	assert_true(sums->meta.duration_ns > 0 && sums->meta.duration_ns < MINUTE);
}

/* Spans answer from their single samples as on-demand sessions do: the sums are the same, only
 * finer. */
static void test_views(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct session_list list;
	uint64_t now_ns;

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	now_ns = clock_monotonic_ns();
	for (uint64_t i = 0; i < 40; i++)
		fake_feed_sample(&f->feed, 1, 100, 1 + i / 30, now_ns + i * NS_PER_MS, PERIOD_99);
	session_fixture_wait_samples(f, "default", "web", 40);
	list = session_fixture_list(f, "default", "web");
	for (uint32_t i = 0; i < list.count; i++) {
		cleanup(profile) struct profile *p = NULL, *part = NULL;
		struct profile_filter filter = { 0 };
		struct heatmap map = { 0 };
		struct err err = { 0 };
		int64_t sum = 0;

		assert_int_equal(sessions_profile(f->sessions, "default", list.items[i].id, &p, &err), 0);
		assert_int_equal(p->totals[1], list.items[i].total_value);
		assert_int_equal(heatmap_init(&map, p, 1000, 1), 0);
		for (uint32_t k = 0; k < map.cols * map.rows; k++) {
			assert_true(map.cells[k] <= 3 * (int64_t)PERIOD_99);
			sum += map.cells[k];
		}
		assert_int_equal(sum, p->totals[1]);
		heatmap_deinit(&map);
		filter.from_ns = p->events[0].time_ns;
		filter.to_ns = p->events[p->event_count - 1].time_ns + 1;
		assert_int_equal(profile_select(p, &filter, &part), 0);
		assert_int_equal(part->totals[0], p->event_count);
		part = profile_unref(part);
		filter.to_ns = p->events[p->event_count / 2].time_ns;
		if (p->event_count < 2)
			continue;
		assert_int_equal(profile_select(p, &filter, &part), 0);
		assert_int_equal(part->totals[0], p->event_count / 2);
	}
	session_list_deinit(&list);
}

/* Nothing but minutes is known of the profile, and nothing else is made of it. */
static void check_minutes(struct session_fixture *f, const char *id, uint64_t samples)
{
	cleanup(profile) struct profile *p = NULL, *part = NULL;
	struct profile_filter filter = { 0 };
	struct heatmap map = { 0 };
	struct err err = { 0 };

	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(p->totals[0], samples);
	assert_int_equal(p->meta.grain_ns, MINUTE);
	for (uint32_t i = 0; i < p->event_count; i++)
		assert_int_equal(p->events[i].time_ns % MINUTE, 0);
	assert_int_equal(heatmap_init(&map, p, 1000, 20), -ENODATA);
	assert_int_equal(heatmap_init(&map, p, 2 * 60000, 60000), 0);
	heatmap_deinit(&map);
	filter.from_ns = p->meta.start_ns + 1;
	assert_int_equal(profile_select(p, &filter, &part), -ENODATA);
	filter.from_ns = p->events[0].time_ns;
	assert_int_equal(profile_select(p, &filter, &part), 0);
	assert_int_equal(part->totals[0], samples);
}

static uint64_t kept_bytes(struct session_fixture *f)
{
	struct sessions_health health;

	sessions_health(f->sessions, &health);
	return health.detail_bytes;
}

static void test_the_budget_takes_the_oldest(void **state)
{
	enum { OLD = 6000, NEW = 500 };
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	uint64_t now_ns = clock_monotonic_ns(), bytes;
	struct session_list list;

	if (now_ns < 660 * NS_PER_S) {
		print_message("skip: this machine is up for less than the length of a span\n");
		return;
	}
	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	for (uint64_t i = 0; i < OLD; i++)
		fake_feed_sample(&f->feed, 1, 100, 1 + i % 2,
				 now_ns - 660 * NS_PER_S + hash_mix64(i) % NS_PER_S, PERIOD_99);
	session_fixture_wait_samples(f, "default", "web", OLD);
	session_fixture_kill(f);
	session_fixture_open(f);
	bytes = kept_bytes(f);
	assert_in_range(bytes, OLD / 2, 8 * OLD);
	session_fixture_kill(f);
	f->options.detail_budget_bytes = bytes + 100;
	session_fixture_open(f);
	assert_int_equal(kept_bytes(f), bytes);
	session_fixture_wait_known(f, "db");
	now_ns = clock_monotonic_ns();
	for (uint64_t i = 0; i < NEW; i++)
		fake_feed_sample(&f->feed, 1, 100, 1 + i % 2, now_ns - hash_mix64(i) % NS_PER_S, PERIOD_99);
	session_fixture_wait_samples(f, "default", "web", OLD + NEW);
	list = session_fixture_list(f, "default", "web");
	check_minutes(f, list.items[list.count - 1].id, list.items[list.count - 1].sample_count);
	for (uint32_t i = 0; i + 1 < list.count; i++) {
		cleanup(profile) struct profile *p = NULL;
		struct err err = { 0 };

		assert_int_equal(sessions_profile(f->sessions, "default", list.items[i].id, &p, &err), 0);
		assert_int_equal(p->meta.grain_ns, 0);
		assert_int_equal(p->event_count, list.items[i].sample_count);
	}
	session_list_deinit(&list);
	assert_in_range(kept_bytes(f), 1, f->options.detail_budget_bytes);
	/* A smaller budget takes the rest, none at all keeps nothing. */
	session_fixture_kill(f);
	f->options.no_detail = true;
	session_fixture_open(f);
	assert_int_equal(kept_bytes(f), 0);
	session_fixture_wait_known(f, "db");
	session_fixture_samples(f, 1, 1, 5);
	session_fixture_wait_samples(f, "default", "web", OLD + NEW + 5);
	assert_int_equal(kept_bytes(f), 0);
}

/* The day goes, and with it what cannot be read without it. */
static void test_detail_goes_with_its_day(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	uint64_t now_ns = clock_realtime_ns();

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	session_fixture_samples(f, 1, 1, 50);
	session_fixture_wait_samples(f, "default", "web", 50);
	detail_drop_day(f->sessions, &(struct store_day){ .day = (uint32_t)(now_ns / DAY),
							  .retention_days = 30 });
	assert_true(kept_bytes(f) > 0);
	detail_drop_day(f->sessions, &(struct store_day){ .day = (uint32_t)(now_ns / DAY),
							  .retention_days = 7 });
	detail_drop_day(f->sessions, &(struct store_day){ .day = (uint32_t)(now_ns / DAY) + 1,
							  .retention_days = 7 });
	assert_int_equal(kept_bytes(f), 0);
	assert_false(detail_drop_oldest(f->sessions));
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Runs a shell command in the folder of the session files. */
static void in_sessions(const struct session_fixture *f, const char *command)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "cd '%s/sessions' && %s", f->dir, command);
	assert_int_equal(system(text), 0);
}

/* Killed after the windows were stored and before their samples: those are read again, and count
 * once. */
static void test_killed_in_between(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	uint64_t times[64], tail;
	unsigned timed = 0;
	size_t count = 0;

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_wait_samples(f, "default", "web", 10);
	detail_lock(f->sessions); /* its samples are written, too */
	in_sessions(f, "mkdir ../then && cp detail-*.log ../then");
	tail = ring_tail(f->feed.ring);
	detail_unlock(f->sessions);
	session_fixture_samples(f, 2, 2, 20);
	session_fixture_wait_samples(f, "default", "web", 30);
	session_fixture_kill(f);
	in_sessions(f, "rm detail-*.log && cp ../then/* .");
	ring_release(f->feed.ring, tail);
	session_fixture_open(f);
	for (int i = 0; i < 6000 && count < 30; i++) {
		clock_sleep_ns(10 * NS_PER_MS);
		count = read_spans(f, "default", "web", times, ARRAY_SIZE(times), &timed);
	}
	assert_int_equal(count, 30);
	assert_int_equal(timed, UINT32_MAX);
	session_fixture_wait_samples(f, "default", "web", 30);
}

/* Sums stay right when single samples cannot be written or read. */
static void test_damage_costs_only_detail(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	uint64_t times[64];
	unsigned timed;

	session_fixture_put(f, &setting);
	session_fixture_wait_rate(f, 99);
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_wait_samples(f, "default", "web", 10);
	session_fixture_kill(f);
	in_sessions(f, "for i in detail-*.log; do printf damaged | dd of=$i bs=1 seek=40 "
		       "conv=notrunc 2>/dev/null; done");
	session_fixture_open(f);
	assert_int_equal(read_spans(f, "default", "web", times, ARRAY_SIZE(times), &timed), 0);
	session_fixture_wait_samples(f, "default", "web", 10);
	session_fixture_kill(f);
	/* Nobody can write to a folder. */
	in_sessions(f, "for i in detail-*.log; do rm $i; mkdir $i; done");
	session_fixture_open(f);
	session_fixture_wait_known(f, "db");
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_wait_samples(f, "default", "web", 20);
}

/* A view at a lower rate shows a share of the samples, the same at every look. */
static void test_each_owner_its_share(void **state)
{
	enum { N = 2000 };
	struct session_fixture *f = *state;
	double deviation = session_fixture_two_owners(f, N);
	uint64_t times[N], again[N];
	unsigned timed;
	size_t count;

	assert_int_equal(read_spans(f, "a", "web", times, N, &timed), N);
	count = read_spans(f, "b", "web", times, N, &timed);
	assert_int_equal(timed, UINT32_MAX);
	assert_true(fabs((double)count - N * 0.2) < deviation);
	session_fixture_kill(f);
	session_fixture_open(f);
	assert_int_equal(read_spans(f, "b", "web", again, N, &timed), count);
	assert_memory_equal(times, again, count * sizeof(times[0]));
}

int main(void)
{
#define T(name)                                                                                    \
	cmocka_unit_test_setup_teardown(name, session_fixture_setup, session_fixture_teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format),
		T(test_each_sample_keeps_its_time),
		T(test_short_windows),
		T(test_views),
		T(test_the_budget_takes_the_oldest),
		T(test_detail_goes_with_its_day),
		T(test_killed_in_between),
		T(test_damage_costs_only_detail),
		T(test_each_owner_its_share),
	};

	return cmocka_run_group_tests_name("detail", tests, NULL, NULL);
}
