// SPDX-License-Identifier: Apache-2.0
/* Sessions of allocations, from what the collector says to the profile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/memory/interval.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/session_chunks.h"
#include "agent/session/core/alloc_session.h"
#include "agent/session/records/session_record.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

#define BYTES 1000000

/* One place that frees, known to a half: its period, and what is in use of it when it is asked for,
 * with so many addresses that are followed still. */
static void tell(struct fake_feed *feed, uint64_t now_ns, uint8_t followed, uint32_t deaths)
{
	fake_feed_alloc(feed, &(struct feed_alloc){ .time_ns = now_ns,
						    .since_ns = now_ns,
						    .period_ns = NS_PER_S,
						    .window_ns = NS_PER_S / 100,
						    .proc = 3,
						    .what = FEED_ALLOC_PERIOD,
						    .dilation = 100 });
	fake_feed_live(feed, &(struct feed_sample){ .time_ns = now_ns,
						    .value = BYTES,
						    .value2 = 1024,
						    .proc = 3,
						    .user_stack = 1,
						    .type = PROF_SAMPLE_ALLOC,
						    .state = FEED_ALLOC_LIVE,
						    .detail = followed,
						    .holder = deaths,
						    .object = feed_alloc_site(500, 0, 0, !deaths) });
}

/* The label of what a function has in use, "" = it has none of that name. */
static const char *label_of(const struct profile *p, const char *name)
{
	for (uint32_t i = 0; i < p->event_count; i++) {
		const struct profile_attrs *attrs = &p->attrs[p->events[i].attrs];

		for (uint32_t k = 0; k < attrs->label_count; k++) {
			const struct profile_label *label = &p->labels[attrs->label_first + k];

			if (strcmp(profile_string(p, label->name), name) == 0)
				return profile_string(p, label->value);
		}
	}
	return "";
}

/* Blocks of a mebibyte. */
static void tell_blocks(struct fake_feed *feed, uint32_t stack, uint32_t count)
{
	fake_feed_live(feed, &(struct feed_sample){ .time_ns = clock_monotonic_ns(),
						    .value = (uint64_t)count << 20,
						    .value2 = 1 << 20,
						    .proc = 3,
						    .user_stack = stack,
						    .type = PROF_SAMPLE_ALLOC,
						    .state = FEED_ALLOC_LIVE,
						    .detail = FEED_ALLOC_FEW | 2,
						    .holder = 4,
						    .object = 500 });
}

/* A session of which that was told. */
static void session_of(struct session_fixture *f, uint8_t followed, uint32_t deaths,
		       uint32_t blocks, char id[SESSION_ID_SIZE])
{
	struct session_request request = session_fixture_request("db", 60);

	f->feed.probes = true;
	fake_feed_connect(&f->feed, f->sessions);
	session_fixture_wait_type(f, "db", PROFILE_MEMORY);
	fake_feed_alloc(&f->feed, &(struct feed_alloc){ .time_ns = clock_monotonic_ns() + 60 * NS_PER_S,
							.proc = 3,
							.what = FEED_ALLOC_READY });
	request.type = PROFILE_MEMORY;
	session_fixture_start(f, &request, id);
	tell(&f->feed, clock_monotonic_ns(), followed, deaths);
	if (blocks) {
		tell_blocks(&f->feed, 1, 1000);
		tell_blocks(&f->feed, 2, blocks);
	}
	session_fixture_stop(f, id);
}

/* Its profile; the caller's. */
static struct profile *profile_of(struct session_fixture *f, uint8_t followed, uint32_t deaths)
{
	struct profile *p = NULL;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];

	session_of(f, followed, deaths, 0, id);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	return p;
}

/* The facts behind an estimate (deaths, error, few samples) reach the profile as labels. */
static void test_the_error_of_what_is_in_use(void **state)
{
	cleanup(profile) struct profile *p = profile_of(*state, FEED_ALLOC_FEW | 2, 4);

	assert_int_equal(session_fixture_self(p, "f_100"), BYTES);
	assert_string_equal(label_of(p, PROFILE_LABEL_DEATHS), "4");
	assert_string_equal(label_of(p, PROFILE_LABEL_ERROR), "50");
	assert_string_equal(label_of(p, PROFILE_LABEL_FEW), "2");
	assert_string_equal(label_of(p, PROFILE_LABEL_FOLLOWED), "");
}

/* None was seen to end, and none may be left. */
static void test_what_may_have_ended(void **state)
{
	cleanup(profile) struct profile *p = profile_of(*state, 0, 0);
	cleanup_free struct profile_interval *intervals = NULL;

	assert_int_equal(session_fixture_self(p, "f_100"), BYTES);
	assert_string_equal(label_of(p, PROFILE_LABEL_UNSURE), "yes");
	assert_string_equal(label_of(p, PROFILE_LABEL_ERROR), "");
	assert_int_equal(profile_intervals(p, profile_value_index(p), &intervals), 0);
	assert_true(intervals[0].lo == 0 && intervals[0].hi >= BYTES);
}

/* As many as, with waits, is the number of a kernel's lock or of files: that says nothing of what
 * is in use. */
static void test_any_number_is_followed(void **state)
{
	cleanup(profile) struct profile *lock = profile_of(*state, PROF_DETAIL_KERNEL_LOCK, 4);

	assert_int_equal(session_fixture_self(lock, "f_100"), BYTES);
	assert_string_equal(label_of(lock, PROFILE_LABEL_FOLLOWED), "7");
}

static void test_what_is_followed_is_no_file(void **state)
{
	cleanup(profile) struct profile *file = profile_of(*state, PROF_DETAIL_FILE, 4);

	assert_string_equal(label_of(file, PROFILE_LABEL_FOLLOWED), "3");
	for (uint32_t i = 0; i < file->attrs_count; i++)
		assert_string_equal(profile_string(file, file->attrs[i].extra), "");
}

/* The memory in use is a level: over time it is averaged, not added up. This holds for the trend,
 * for one function and for the merged profile. */
static void test_a_level_is_no_sum(void **state)
{
	struct session_fixture *f = *state;
	cleanup(profile) struct profile *one = profile_of(f, FEED_ALLOC_FEW | 2, 4),
					*two = profile_of(f, FEED_ALLOC_FEW | 2, 4), *merged = NULL;
	const uint64_t now_ns = clock_realtime_ns();
	const struct history_window window = { .tenant = "default",
					       .service = "db",
					       .type = PROFILE_MEMORY,
					       .from_ns = now_ns - 1800 * NS_PER_S,
					       .to_ns = now_ns + 1800 * NS_PER_S };
	static const char *const functions[] = { NULL, "f_100", "f_0" };
	const int64_t mean = (one->totals[1] + two->totals[1]) / 2;
	struct err err = { 0 };

	assert_true(one->totals[1] >= BYTES && two->totals[1] >= BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		const int64_t due = i < 2 ? mean : 0;
		struct history_points points;

		assert_int_equal(sessions_points(f->sessions, &window, 3600 * NS_PER_S,
						 functions[i], &points, &err),
				 0);
		assert_int_equal(points.count, 1);
		assert_int_equal(points.items[0].total_value, due);
		assert_true(points.items[0].value_per_second == (double)due);
		history_points_deinit(&points);
	}
	assert_int_equal(sessions_window_profile(f->sessions, &window, &merged, &err), 0);
	assert_int_equal(merged->totals[1], mean);
	assert_int_equal(session_fixture_self(merged, "f_100"), mean);
}

/* Also what continuous profiling takes as sessions of a span's length is held against a baseline.
 */
static void test_memory_is_watched(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "db", 99);
	struct finding_query query = { .tenant = "default", .service = "db", .limit = 10 };
	struct baseline_request make = {
		.tenant = "default", .label = "before", .description = "", .type = PROFILE_MEMORY
	};
	struct session_info info = { 0 };
	struct baseline_info baseline;
	struct finding_list list;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	uint32_t checked = 0;
	bool stopped;

	session_of(f, FEED_ALLOC_FEW | 2, 4, 1000, id);
	make.session_id = id;
	assert_int_equal(sessions_baseline_create(f->sessions, &make, &baseline, &err), 0);
	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	session_of(f, FEED_ALLOC_FEW | 2, 4, 5000, id);
	/* It was 50 minutes ago; whoever stores it first has done so when all is closed. */
	session_fixture_close(f);
	session_fixture_open(f);
	assert_int_equal(sessions_get(f->sessions, "default", id, &info, &err), 0);
	info.created_at_ns -= 3000 * NS_PER_S;
	assert_int_equal(session_record_put(f->store, &info, NULL, &err), 0);
	session_info_deinit(&info);
	setting.types = 1u << PROFILE_MEMORY;
	(void)snprintf(setting.watch_against, sizeof(setting.watch_against), "%s", baseline.id);
	session_fixture_put(f, &setting);
	for (uint64_t ago_ns = 2400 * NS_PER_S; ago_ns; ago_ns -= 2400 * NS_PER_S) {
		if (sessions_watch_check(f->sessions, "default", "db", clock_realtime_ns() - ago_ns,
					 &checked, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(checked, 1);
	}
	if (sessions_watch_check(f->sessions, "default", "db", 0, &checked, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(sessions_findings(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.items[0].type, PROFILE_MEMORY);
	assert_non_null(strstr(list.items[0].comparison, "\"funcName\":\"f_200\""));
	finding_list_deinit(&list);
	baseline_info_deinit(&baseline);
}

static const struct profile_grown grown[] = { { 104, 384, 11803 }, { 24, 0, 1ull << 40 } };

static void assert_grown(const struct profile_grown *got, uint32_t count)
{
	assert_int_equal(count, ARRAY_SIZE(grown));
	for (size_t i = 0; i < ARRAY_SIZE(grown); i++) {
		assert_int_equal(got[i].block_bytes, grown[i].block_bytes);
		assert_int_equal(got[i].before, grown[i].before);
		assert_int_equal(got[i].blocks, grown[i].blocks);
	}
}

static int same_growth(void *ctx, const struct chunk_quality *quality)
{
	assert_grown(quality->alloc.grown, quality->alloc.grown_count);
	assert_int_equal(quality->alloc.blocks_of[0], 7);
	assert_int_equal(quality->alloc.blocks_of[READ_HEAP_SIZES - 1], 9);
	*(bool *)ctx = true;
	return 0;
}

/* Whoever uses another allocator than glibc's is told what is not seen of its large blocks. */
static void test_unseen_blocks_are_noted(void **state)
{
	struct chunk_quality of = { .alloc = { .windows = 10,
					       .period_ns = 10 * NS_PER_S,
					       .window_ns = 3 * NS_PER_S,
					       .families = 1u << ALLOC_FAMILY_JEMALLOC,
					       .heap.resident_bytes = 1 } };
	const struct session_fixture *f = *state;
	struct profile_quality quality = { 0 };

	alloc_session_quality(f->sessions, &of, &quality);
	assert_int_equal(quality.note_count, 1);
	assert_non_null(strstr(quality.notes[0], "the 70 % of the time without probes"));
	quality.note_count = 0;
	of.alloc.families = 1u << ALLOC_FAMILY_GLIBC;
	alloc_session_quality(f->sessions, &of, &quality);
	of.alloc.families = 1u << ALLOC_FAMILY_JEMALLOC;
	of.alloc.window_ns = 95 * NS_PER_S / 10;
	alloc_session_quality(f->sessions, &of, &quality);
	assert_int_equal(quality.note_count, 0);
}

/* The growth and the blocks of the heap are stored with a session, which goes on after a restart.
 * */
static void test_growth_is_kept(void **state)
{
	struct chunk_quality quality = { .alloc = { .windows = 7,
						    .heap.bytes = 1,
						    .grown_count = ARRAY_SIZE(grown),
						    .blocks_of = { 7, [READ_HEAP_SIZES - 1] = 9 } } };
	cleanup_buf struct buf chunk = { 0 };
	bool seen = false;
	const struct chunk_sink sink = { .ctx = &seen, .quality = same_growth };

	memcpy(quality.alloc.grown, grown, sizeof(grown));
	chunk_encode_quality(&chunk, &quality);
	assert_int_equal(chunk_decode(STORE_CHUNK_QUALITY, chunk.data, chunk.len, &sink), 0);
	assert_true(seen);
	for (size_t len = 0; len < chunk.len; len++)
		(void)!chunk_decode(STORE_CHUNK_QUALITY, chunk.data, len, &(struct chunk_sink){ .ctx = NULL });
}

/* And with the record of one that has ended. */
static void test_growth_is_stored(void **state)
{
	struct session_info info = {
		.id = "s", .tenant = "default", .service = "db", .type = PROFILE_MEMORY
	};
	struct session_info back = { 0 };
	cleanup_free char *text = NULL;

	(void)snprintf(info.quality.probes.mode, sizeof(info.quality.probes.mode), "windows");
	info.quality.probes.grown_count = ARRAY_SIZE(grown);
	memcpy(info.quality.probes.grown, grown, sizeof(grown));
	text = session_record_encode(&info, NULL);
	assert_non_null(text);
	assert_int_equal(session_record_decode(text, strlen(text), &back, NULL), 0);
	assert_grown(back.quality.probes.grown, back.quality.probes.grown_count);
	session_info_deinit(&back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_error_of_what_is_in_use,
						session_fixture_setup, session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_what_may_have_ended, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_any_number_is_followed, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_what_is_followed_is_no_file,
						session_fixture_setup, session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_a_level_is_no_sum, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_memory_is_watched, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_unseen_blocks_are_noted, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test(test_growth_is_kept),
		cmocka_unit_test(test_growth_is_stored),
	};

	return cmocka_run_group_tests_name("alloc_session", tests, NULL, NULL);
}
