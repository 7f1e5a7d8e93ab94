// SPDX-License-Identifier: Apache-2.0
/* A year of continuous data: retention deletes exactly what is due, each service by its own; the
 * byte cap takes the oldest first and holds; baselines stay. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/session/records/list_cursor.h"
#include "agent/session/records/session_record.h"
#include "agent/session/sessions_run.h"
#include "agent/store/store.h"
#include "tests/support/store_fixture.h"

#define NS_PER_DAY (86400 * NS_PER_S)
#define DAYS	   365u
#define BYTES	   4000u
#define WAIT_MS	   60000u
#define MANY_SERVICES 400u

static const uint32_t retentions[] = { 7, 30, 400 };

struct fixture {
	struct store_fixture on;
	uint32_t today;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	store_fixture_open(&f->on);
	f->today = (uint32_t)(clock_realtime_ns() / NS_PER_DAY);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	store_fixture_close(&f->on);
	free(f);
	return 0;
}

static void add_day(struct fixture *f, uint32_t day, uint32_t retention)
{
	const struct store_day which = { .day = day, .retention_days = retention };
	uint8_t data[BYTES];
	const struct store_window window = { .service = "web", .type = "cpu", .owners = ",default:19,",
					     .from_ns = day * NS_PER_DAY, .whole = true,
					     .samples = 1, .value = 1, .data = data, .len = BYTES };
	struct err err = { 0 };

	for (size_t i = 0; i < BYTES; i++) /* nothing to compress */
		data[i] = (uint8_t)hash_mix64(((uint64_t)day << 32) + i);
	if (store_history_append(f->on.store, &which, NULL, 0, &window, 1, 1, 1, &err) < 0)
		fail_msg("%s", err.text);
	store_history_seal(f->on.store, &which);
}

static void put_baseline(struct fixture *f)
{
	static const struct store_record record = { .kind = "baseline", .tenant = "default", .id = "bl-1",
						    .service = "web", .type = "cpu",
						    .status = "completed", .created_ns = 1,
						    .body = "{}", .body_len = 2 };
	static const struct store_chunk chunk = { STORE_CHUNK_STACKS, "data", 4 };
	struct err err = { 0 };

	assert_int_equal(store_put(f->on.store, &record, &err), 0);
	assert_int_equal(store_session_append(f->on.store, "bl-1", &chunk, 1, 1, 1, &err), 0);
}

struct kept {
	unsigned count[3];
	uint32_t oldest[3];
	uint64_t bytes;
};

static int keep(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct kept *kept = ctx;

	for (size_t i = 0; i < ARRAY_SIZE(retentions); i++) {
		if (day->retention_days != retentions[i])
			continue;
		if (!kept->count[i]++)
			kept->oldest[i] = day->day;
	}
	kept->bytes += bytes;
	return 0;
}

static struct kept kept_now(struct fixture *f)
{
	struct kept kept = { 0 };
	struct err err = { 0 };

	assert_int_equal(store_history_days(f->on.store, false, keep, &kept, &err), 0);
	return kept;
}

static void check_baseline(struct fixture *f)
{
	cleanup_free char *body = NULL;
	struct err err = { 0 };

	assert_int_equal(store_get(f->on.store, "baseline", "default", "bl-1", &body, NULL, &err), 0);
	assert_true(store_session_bytes(f->on.store, "bl-1") > 0);
}

static struct sessions *run(struct fixture *f, uint64_t budget)
{
	const struct sessions_options options = { .store = f->on.store,
						  .feed_fd = -1,
						  .disk_budget_bytes = budget,
						  .continuous_span_ns = 600 * NS_PER_S };
	struct sessions *s = NULL;
	struct err err = { 0 };

	if (sessions_create(&options, &s, &err) < 0)
		fail_msg("%s", err.text);
	return s;
}

static void test_retention_is_exact(void **state)
{
	struct fixture *f = *state;
	struct sessions *s;
	struct kept kept;

	put_baseline(f);
	for (uint32_t back = 0; back < DAYS; back++)
		for (size_t i = 0; i < ARRAY_SIZE(retentions); i++)
			if (back <= retentions[i] + 3)
				add_day(f, f->today - back, retentions[i]);
	s = run(f, 0);
	for (unsigned i = 0; i < WAIT_MS / 20; i++) {
		kept = kept_now(f);
		/* Today and so many whole days before it. */
		if (kept.count[0] == 8 && kept.count[1] == 31)
			break;
		clock_sleep_ns(20 * NS_PER_MS);
	}
	sessions_destroy(s);
	kept = kept_now(f);
	/* Midnight may have passed meanwhile. */
	assert_in_range(kept.count[0], 7, 8);
	assert_in_range(kept.count[1], 30, 31);
	assert_int_equal(kept.count[2], DAYS);
	assert_true(kept.oldest[0] >= f->today - 7 && kept.oldest[1] >= f->today - 30);
	assert_int_equal(kept.oldest[2], f->today - DAYS + 1);
	check_baseline(f);
}

static void test_byte_cap_takes_the_oldest(void **state)
{
	struct fixture *f = *state;
	struct kept before, kept;
	struct sessions *s;
	uint64_t budget;

	put_baseline(f);
	for (uint32_t back = 0; back < 100; back++)
		add_day(f, f->today - back, 400);
	before = kept_now(f);
	assert_int_equal(before.count[2], 100);
	budget = store_bytes(f->on.store) / 2;
	s = run(f, budget);
	for (unsigned i = 0; i < WAIT_MS / 20 && store_bytes(f->on.store) > budget; i++)
		clock_sleep_ns(20 * NS_PER_MS);
	sessions_destroy(s);
	kept = kept_now(f);
	assert_true(store_bytes(f->on.store) <= budget);
	/* Not much more than had to go, and the youngest stay. */
	assert_in_range(kept.count[2], 30, 60);
	assert_int_equal(kept.oldest[2], f->today - kept.count[2] + 1);
	check_baseline(f);
}

/* A finished session of @kib; with a record of no use its data are beyond reach. */
static void put_session(struct fixture *f, const char *id, uint64_t created_ns, unsigned kib,
			bool readable)
{
	struct session_info info = { .type = PROFILE_CPU,
				     .status = SESSION_COMPLETED,
				     .created_at_ns = created_ns,
				     .started_at_ns = created_ns,
				     .completed_at_ns = created_ns + NS_PER_S };
	struct store_record record = { .kind = "session",
				       .tenant = "default",
				       .id = id,
				       .service = "web",
				       .type = "cpu",
				       .status = "completed",
				       .created_ns = created_ns };
	cleanup_free uint8_t *data = malloc(kib << 10);
	cleanup_free char *body = NULL;
	struct store_chunk chunk = { STORE_CHUNK_STACKS, data, kib << 10 };

	(void)snprintf(info.id, sizeof(info.id), "%s", id);
	strcpy(info.tenant, "default");
	strcpy(info.service, "web");
	for (size_t i = 0; i < (kib << 10); i++)
		data[i] = (uint8_t)hash_mix64(created_ns + i);
	record.body = body = readable ? session_record_encode(&info, NULL) : strdup("{}");
	record.body_len = strlen(body);
	assert_int_equal(store_put(f->on.store, &record, NULL), 0);
	assert_int_equal(store_session_append(f->on.store, id, &chunk, 1, 1, 1, NULL), 0);
}

/* The oldest sessions are deleted first. A session that cannot be deleted stays, and the next ones
 * go instead, so that the store keeps its bound. */
static void test_byte_cap_passes_over_what_stays(void **state)
{
	static const char *const ids[] = { "sess-01jgz4w8x2m3n4p5q6r7s8t9v0",
					   "sess-01jgz4w8x2m3n4p5q6r7s8t9v1",
					   "sess-01jgz4w8x2m3n4p5q6r7s8t9v2" };
	struct fixture *f = *state;
	struct sessions *s;
	uint64_t budget;

	for (unsigned i = 0; i < ARRAY_SIZE(ids); i++)
		put_session(f, ids[i], clock_realtime_ns() - (10 - i) * NS_PER_S, 512, i > 0);
	budget = store_bytes(f->on.store) - 200 * 1024;
	s = run(f, budget);
	for (unsigned i = 0; i < WAIT_MS / 20 && store_session_bytes(f->on.store, ids[1]); i++)
		clock_sleep_ns(20 * NS_PER_MS);
	sessions_destroy(s);
	assert_true(store_bytes(f->on.store) <= budget);
	assert_true(store_session_bytes(f->on.store, ids[0]) > 0);
	assert_true(store_session_bytes(f->on.store, ids[1]) == 0);
	assert_true(store_session_bytes(f->on.store, ids[2]) > 0);
}

/* How many there are, each once, in pages of @limit; @ret_id: of one in the middle. */
static uint32_t count_in_pages(struct sessions *s, int status, uint32_t limit,
			       char ret_id[SESSION_ID_SIZE])
{
	struct session_query query = { .tenant = "default", .type = -1, .status = status, .limit = limit };
	uint64_t before_ns = UINT64_MAX;
	uint32_t seen = 0, total;
	struct err err = { 0 };
	char cursor[64];

	do {
		struct session_list list;

		if (sessions_list(s, &query, &list, &err) < 0)
			fail_msg("%s", err.text);
		for (uint32_t i = 0; i < list.count; i++, seen++) {
			assert_true(list.items[i].created_at_ns < before_ns);
			before_ns = list.items[i].created_at_ns;
			if (seen == 12)
				strcpy(ret_id, list.items[i].id);
		}
		total = (uint32_t)list.total;
		strcpy(cursor, list.next_cursor);
		query.cursor = cursor;
		session_list_deinit(&list);
	} while (cursor[0]);
	if (seen != total)
		fail_msg("pages of %u, status %d: %u seen of %u", limit, status, seen, total);
	return total;
}

/* A page reads the days it shows and counts the others; the data of a span may lie in two files of
 * its day. */
static void test_pages_of_many_days(void **state)
{
	enum { N = 25 };
	struct fixture *f = *state;
	char id[SESSION_ID_SIZE] = "";
	struct err err = { 0 };
	struct sessions *s;
	bool stopped;

	for (uint32_t back = 1; back <= N; back++) {
		add_day(f, f->today - back, 400);
		if (back % 5 == 0)
			add_day(f, f->today - back, 30);
	}
	s = run(f, 0);
	for (uint32_t limit = 1; limit <= 30; limit += 1 + limit / 4) {
		assert_int_equal(count_in_pages(s, -1, limit, id), N);
		assert_int_equal(count_in_pages(s, SESSION_COMPLETED, limit, id), N);
		assert_int_equal(count_in_pages(s, SESSION_RUNNING, limit, id), 0);
	}
	assert_int_equal(sessions_delete(s, "default", id, &stopped, &err), 0);
	for (uint32_t limit = 1; limit <= 30; limit += 7)
		assert_int_equal(count_in_pages(s, -1, limit, id), N - 1);
	sessions_destroy(s);
}

/* An hour of @services with six minutes each, rolled up. */
static void add_hour(struct fixture *f, const struct store_day *day, unsigned hour,
		     unsigned services)
{
	static const struct store_minute minutes[] = {
		{ .minute = 0, .samples = 1, .value = 1, .profiled_ms = 60000 },
		{ .minute = 10, .samples = 1, .value = 1, .profiled_ms = 60000 },
		{ .minute = 20, .samples = 1, .value = 1, .profiled_ms = 60000 },
		{ .minute = 30, .samples = 1, .value = 1, .profiled_ms = 60000 },
		{ .minute = 40, .samples = 1, .value = 1, .profiled_ms = 60000 },
		{ .minute = 50, .samples = 1, .value = 1, .profiled_ms = 60000 },
	};
	const uint64_t from_ns = day->day * NS_PER_DAY + hour * 3600 * NS_PER_S;
	struct store_window windows[MANY_SERVICES];
	char names[MANY_SERVICES][16];
	struct err err = { 0 };

	for (unsigned i = 0; i < services; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "web-%u", i);
		windows[i] = (struct store_window){ .service = names[i], .type = "cpu",
						    .owners = ",default:19,", .from_ns = from_ns,
						    .whole = true, .samples = 6, .value = 6, .data = "x",
						    .len = 1, .minutes = minutes,
						    .minute_count = ARRAY_SIZE(minutes) };
	}
	if (store_history_roll(f->on.store, day, from_ns, 0, NULL, NULL, windows, services, &err) < 0)
		fail_msg("%s", err.text);
}

/* Spans of one day by the thousands: a page anywhere in it has the next spans, the total is that of
 * all, and pages go on. */
static void test_pages_of_one_day(void **state)
{
	enum { SPANS = MANY_SERVICES * 144, LIMIT = 90 };
	struct fixture *f = *state;
	const struct store_day day = { .day = f->today - 1, .retention_days = 400 },
			       other = { .day = f->today - 1, .retention_days = 30 };
	uint64_t begin_ns = day.day * NS_PER_DAY;
	struct sessions *s;

	for (unsigned hour = 0; hour < 24; hour++) {
		add_hour(f, &day, hour, MANY_SERVICES);
		add_hour(f, &other, hour, 7);
	}
	s = run(f, 0);
	for (unsigned stretch = 0; stretch <= 144; stretch += 36) {
		uint64_t before_ns = begin_ns + stretch * 600 * NS_PER_S, next_ns;
		struct session_query query = { .tenant = "default", .type = -1, .status = -1, .limit = LIMIT };
		char cursor[64], last[SESSION_ID_SIZE];

		list_cursor_write(cursor, sizeof(cursor), before_ns, "sess-00000000000000000000000000");
		query.cursor = cursor;
		next_ns = before_ns - 600 * NS_PER_S;
		strcpy(last, "sess-~");
		for (unsigned seen = 0; seen < 5 * LIMIT;) {
			struct session_list list;
			struct err err = { 0 };

			if (sessions_list(s, &query, &list, &err) < 0)
				fail_msg("%s", err.text);
			assert_int_equal(list.total, SPANS);
			assert_int_equal(list.count, stretch ? LIMIT : 0);
			for (uint32_t i = 0; i < list.count; i++, seen++) {
				if (seen == MANY_SERVICES) {
					next_ns -= 600 * NS_PER_S;
					strcpy(last, "sess-~");
				}
				assert_int_equal(list.items[i].created_at_ns, next_ns);
				assert_true(strcmp(list.items[i].id, last) < 0);
				strcpy(last, list.items[i].id);
			}
			assert_int_equal(list.next_cursor[0] != '\0', stretch > 0);
			strcpy(cursor, list.next_cursor);
			session_list_deinit(&list);
			if (!stretch)
				break;
		}
	}
	sessions_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_retention_is_exact, setup, teardown),
		cmocka_unit_test_setup_teardown(test_byte_cap_takes_the_oldest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_byte_cap_passes_over_what_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pages_of_many_days, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pages_of_one_day, setup, teardown),
	};

	return cmocka_run_group_tests_name("history_year", tests, NULL, NULL);
}
