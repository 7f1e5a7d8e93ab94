// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/store/packed.h"
#include "agent/store/store.h"
#include "tests/support/store_fixture.h"

#define DAY    20778u /* 2026-11-21 */
#define MINUTE (60 * NS_PER_S)
#define START  (DAY * 86400ull * NS_PER_S)

static const struct store_day week = { .day = DAY, .retention_days = 7 };

static struct store_window window_of(const char *service, const char *owners, unsigned minute,
				     bool whole, const char *data)
{
	return (struct store_window){ .service = service,
				      .type = "cpu",
				      .owners = owners,
				      .from_ns = START + minute * MINUTE,
				      .whole = whole,
				      .samples = strlen(data),
				      .value = (int64_t)strlen(data) * 10,
				      .data = data,
				      .len = strlen(data) };
}

static void append(struct store_fixture *f, const struct store_window *windows, size_t count,
		   uint64_t position)
{
	struct store_chunk chunk = { STORE_CHUNK_STACKS, "dict", 4 };
	struct err err = { 0 };

	if (store_history_append(f->store, &week, &chunk, 1, windows, count, 5, position, &err) < 0)
		fail_msg("%s", err.text);
}

static int see_window(void *ctx, const struct store_window *window)
{
	buf_printf(ctx, "%s@%llu%s=%.*s ", window->service,
		   (unsigned long long)((window->from_ns - START) / MINUTE),
		   window->whole ? "" : "+", (int)window->len, (const char *)window->data);
	return 0;
}

static void check(struct store_fixture *f, struct store_window_query query, const char *expect)
{
	cleanup_buf struct buf seen = { 0 };
	unsigned damaged = 99;
	struct err err = { 0 };

	query.with_data = true;
	buf_add_str(&seen, "");
	assert_int_equal(
		store_history_windows(f->store, &week, &query, see_window, &seen, &damaged, &err),
		0);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
	assert_int_equal(damaged, 0);
}

static int count_chunk(void *ctx, const struct store_chunk *chunk)
{
	assert_int_equal(chunk->kind, STORE_CHUNK_STACKS);
	assert_memory_equal(chunk->data, "dict", 4);
	(*(int *)ctx)++;
	return 0;
}

static void test_parts_and_minutes(void **state)
{
	struct store_fixture *f = *state;
	const struct store_window first[] = { window_of("web", ",a:19,", 0, false, "1"),
					      window_of("db", ",a:19,b:99,", 0, false, "2") };
	const struct store_window second[] = { window_of("web", ",a:19,", 0, false, "3"),
					       window_of("web", ",a:19,", 1, false, "4") };
	const struct store_window folded[] = { window_of("web", ",a:19,", 0, true, "13") };
	uint64_t identity = 0, position = 0;
	struct err err = { 0 };
	int chunks = 0;

	assert_int_equal(store_history_position(f->store, &week, &identity, &position, &err),
			 -ENOENT);
	append(f, first, 2, 100);
	append(f, second, 2, 200);
	check(f, (struct store_window_query){ .service = "web" }, "web@0+=1 web@0+=3 web@1+=4 ");
	append(f, folded, 1, 300);
	check(f, (struct store_window_query){ .service = "web" }, "web@0=13 web@1+=4 ");
	check(f, (struct store_window_query){ .tenant = "b" }, "db@0+=2 ");
	check(f, (struct store_window_query){ .tenant = "aa" }, "");
	check(f, (struct store_window_query){ .type = "offcpu" }, "");
	check(f, (struct store_window_query){ .from_ns = START + MINUTE }, "web@1+=4 ");
	check(f, (struct store_window_query){ .service = "web", .to_ns = START + MINUTE },
	      "web@0=13 ");
	assert_int_equal(store_history_position(f->store, &week, &identity, &position, &err), 0);
	assert_int_equal(identity, 5);
	assert_int_equal(position, 300);
	assert_int_equal(
		store_history_dictionary(f->store, &week, count_chunk, &chunks, NULL, &err), 0);
	assert_int_equal(chunks, 3);
	/* Sealed, it reads the same and can still be added to. */
	store_history_seal(f->store, &week);
	check(f, (struct store_window_query){ .service = "web" }, "web@0=13 web@1+=4 ");
	append(f, second + 1, 1, 400);
	check(f, (struct store_window_query){ .service = "web" }, "web@0=13 web@1+=4 web@1+=4 ");
}

static int see_span(void *ctx, const struct store_span *span)
{
	buf_printf(ctx, "%s@%llu:%llu-%llu n=%llu v=%lld ", span->service,
		   (unsigned long long)((span->from_ns - START) / MINUTE),
		   (unsigned long long)((span->first_ns - START) / MINUTE),
		   (unsigned long long)((span->last_ns - START) / MINUTE),
		   (unsigned long long)span->samples, (long long)span->value);
	return 0;
}

static void check_spans(struct store_fixture *f, struct store_window_query query,
			const char *expect)
{
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };

	buf_add_str(&seen, "");
	assert_int_equal(
		store_history_spans(f->store, &week, &query, 10 * MINUTE, see_span, &seen, &err),
		0);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
}

static void test_spans(void **state)
{
	struct store_fixture *f = *state;
	const struct store_window windows[] = {
		window_of("web", ",a:19,", 3, true, "x"),
		window_of("web", ",a:19,", 9, true, "xx"),
		window_of("web", ",a:19,", 10, true, "xxx"),
		window_of("web", ",a:99,", 11, true, "x"),
		window_of("db", ",b:19,", 10, true, "x"),
	};
	const struct store_window late = window_of("web", ",a:99,", 15, true, "xxxx");
	const struct store_window_query all = { 0 }, own = { .tenant = "a" };
	struct err err = { 0 };

	append(f, windows, 5, 1);
	check_spans(f, own, "web@0:3-9 n=3 v=30 web@10:10-11 n=4 v=40 ");
	check_spans(f, all, "web@0:3-9 n=3 v=30 db@10:10-10 n=1 v=10 web@10:10-11 n=4 v=40 ");
	check_spans(f, (struct store_window_query){ .service = "db" }, "db@10:10-10 n=1 v=10 ");
	check_spans(f, (struct store_window_query){ .type = "offcpu" }, "");
	check_spans(f, (struct store_window_query){ .tenant = "a", .to_ns = START + MINUTE },
		    "web@0:3-9 n=3 v=30 ");
	check_spans(f, (struct store_window_query){ .tenant = "a", .from_ns = START + MINUTE },
		    "web@10:10-11 n=4 v=40 ");
	/* The cached facts about a file are dropped when the file is written to or removed. */
	append(f, &late, 1, 2);
	check_spans(f, own, "web@0:3-9 n=3 v=30 web@10:10-15 n=8 v=80 ");
	assert_int_equal(store_history_drop(f->store, &week, &err), 0);
	assert_int_equal(
		store_history_spans(f->store, &week, &own, 10 * MINUTE, see_span, NULL, &err),
		-ENOENT);
}

static int see_shared(void *ctx, const struct store_window *window)
{
	const char *expect = ctx;

	assert_int_equal(window->shared_len, strlen(expect));
	assert_memory_equal(window->shared ? window->shared : "", expect, window->shared_len);
	return 0;
}

/* An hour takes the place of its minutes, and the dictionary that of the pieces that are not kept.
 */
static void test_hours(void **state)
{
	struct store_fixture *f = *state;
	const struct store_window minutes[] = { window_of("web", ",a:19,", 0, true, "x"),
						window_of("web", ",a:19,", 59, false, "xx"),
						window_of("web", ",a:19,", 60, true, "y") };
	const struct store_minute parts[] = { { 0, 60000, 1, 0, 10 }, { 59, 8000, 2, 1, 21 } };
	const struct store_chunk dictionary = { STORE_CHUNK_STACKS, "dict", 4 };
	struct store_window hour = window_of("web", ",a:19,", 0, true, "hour");
	struct store_window_query query = { .tenant = "a" },
				  with_data = { .tenant = "a", .with_data = true };
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };
	int chunks = 0;

	append(f, minutes, 3, 1);
	append(f, minutes, 0, 2);
	hour.minutes = parts;
	hour.minute_count = 2;
	assert_int_equal(
		store_history_roll(f->store, &week, START, 1, &dictionary, NULL, &hour, 1, &err),
		0);
	check(f, (struct store_window_query){ .tenant = "a" }, "web@0=hour web@60=y ");
	check(f,
	      (struct store_window_query){ .from_ns = START + 59 * MINUTE,
					   .to_ns = START + 60 * MINUTE },
	      "web@0=hour ");
	assert_int_equal(store_history_dictionary(f->store, &week, count_chunk, &chunks, NULL, &err), 0);
	assert_int_equal(chunks, 2);
	check_spans(f, query, "web@0:0-0 n=1 v=10 web@50:59-59 n=2 v=21 web@60:60-60 n=1 v=10 ");
	/* The data that the hours of a series share comes with each hour. It stays when a new hour
	 * brings none. */
	assert_int_equal(store_history_windows(f->store, &week, &with_data, see_shared,
					       (char[]){ "" }, NULL, &err),
			 0);
	hour.shared = "shared";
	hour.shared_len = 6;
	assert_int_equal(store_history_roll(f->store, &week, START, 1, NULL, NULL, &hour, 1, &err), 0);
	assert_int_equal(store_history_windows(f->store, &week, &with_data, see_shared,
					       (char[]){ "shared" }, NULL, &err),
			 0);
	hour.shared = NULL;
	hour.shared_len = 0;
	assert_int_equal(store_history_roll(f->store, &week, START, 1, NULL, NULL, &hour, 1, &err), 0);
	assert_int_equal(store_history_windows(f->store, &week, &with_data, see_shared,
					       (char[]){ "shared" }, NULL, &err),
			 0);
}

static int see_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	assert_true(bytes > 0);
	buf_printf(ctx, "%u/%u ", day->day, day->retention_days);
	return 0;
}

static void check_days(struct store_fixture *f, const char *expect)
{
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };

	buf_add_str(&seen, "");
	assert_int_equal(store_history_days(f->store, false, see_day, &seen, &err), 0);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
}

static void test_days(void **state)
{
	static const struct store_day days[] = {
		{ .day = DAY, .retention_days = 30 },
		{ .day = DAY - 1, .retention_days = 7 },
		{ .day = DAY, .retention_days = 7 },
		{ .day = 0, .retention_days = 1 },
	};
	struct store_fixture *f = *state;
	struct store_window window = window_of("web", ",a:19,", 0, true, "x");
	struct err err = { 0 };
	uint64_t before;

	before = store_bytes(f->store);
	for (size_t i = 0; i < ARRAY_SIZE(days); i++)
		assert_int_equal(
			store_history_append(f->store, &days[i], NULL, 0, &window, 1, 0, 0, &err),
			0);
	assert_true(store_bytes(f->store) > before);
	check_days(f, "0/1 20777/7 20778/7 20778/30 ");
	assert_int_equal(store_history_drop(f->store, &days[1], &err), 0);
	assert_int_equal(store_history_drop(f->store, &days[1], &err), 0);
	check_days(f, "0/1 20778/7 20778/30 ");
}

/* More days than writers are kept open, each still whole. */
static void test_many_days(void **state)
{
	struct store_fixture *f = *state;
	struct store_window window = window_of("web", ",a:19,", 0, false, "x");
	struct err err = { 0 };

	for (uint32_t round = 1; round <= 2; round++) {
		for (uint32_t day = 1; day <= 20; day++) {
			struct store_day one = { .day = day, .retention_days = 7 };
			uint64_t identity, position = 0;

			assert_int_equal(store_history_append(f->store, &one, NULL, 0, &window, 1,
							      9, round, &err),
					 0);
			assert_int_equal(
				store_history_position(f->store, &one, &identity, &position, &err),
				0);
			assert_int_equal(position, round);
		}
	}
}

struct days_reader {
	struct store *store;
	_Atomic uint32_t day; /* is being made, or was; 0 = no more */
	struct err err;	      /* the first that is not -ENOENT, nor asks for patience */
	int rc;
};

static void *read_days(void *arg)
{
	struct days_reader *reader = arg;
	uint32_t day;

	while ((day = atomic_load(&reader->day)) && !reader->rc) {
		struct store_day one = { .day = day, .retention_days = 7 };
		uint64_t identity, position;
		int rc = store_history_position(reader->store, &one, &identity, &position, &reader->err);
		const bool slow = rc < 0 && strstr(reader->err.text, "has not accepted all waiting data yet");

		reader->rc = rc == -ENOENT || slow ? 0 : rc;
	}
	return NULL;
}

/* A reader of a day that is just being created finds nothing yet, and no damage. */
static void test_days_being_made(void **state)
{
	struct store_fixture *f = *state;
	struct days_reader reader = { .store = f->store, .day = 1 };
	struct store_window window = window_of("web", ",a:19,", 0, false, "x");
	struct err err = { 0 };
	pthread_t thread;
	int rc = 0;

	assert_int_equal(pthread_create(&thread, NULL, read_days, &reader), 0);
	for (uint32_t day = 1; day <= 300 && rc == 0; day++) {
		struct store_day one = { .day = day, .retention_days = 7 };

		atomic_store(&reader.day, day);
		rc = store_history_append(f->store, &one, NULL, 0, &window, 1, 9, 1, &err);
	}
	atomic_store(&reader.day, 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(rc, 0);
	if (reader.rc < 0)
		fail_msg("%s", reader.err.text);
}

static void test_packed_damage(void **state)
{
	static const uint32_t end = 500;
	const struct store_ends ends = { &end, 1 };
	char text[2000];
	void *packed = NULL, *again = (void *)1;
	size_t len, got = 7;

	memset(text, 'x', sizeof(text));
	assert_int_equal(packed_make(text, sizeof(text), &ends, &packed, &len), 0);
	assert_true(len < 100);
	for (size_t bit = 0; bit < len * 8; bit++) {
		((char *)packed)[bit / 8] ^= (char)(1 << bit % 8);
		if (packed_open(NULL, packed, len, &again, &got) == 0) {
			/* An unused bit of the flags: harmless. */
			assert_int_equal(got, sizeof(text));
			assert_memory_equal(again, text, got);
			free(again);
		}
		((char *)packed)[bit / 8] ^= (char)(1 << bit % 8);
	}
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(packed_open(NULL, packed, cut, &again, &got), -EUCLEAN);
	free(packed);
}

#define test(name)                                                                                 \
	cmocka_unit_test_setup_teardown(name, store_fixture_setup, store_fixture_teardown)

int main(void)
{
	const struct CMUnitTest interface[] = {
		test(test_parts_and_minutes),
		test(test_spans),
		test(test_hours),
		test(test_days),
		test(test_many_days),
		test(test_days_being_made),
	};
	const struct CMUnitTest files[] = { cmocka_unit_test(test_packed_damage) };
	int failed = store_fixture_run_on_engines(interface, ARRAY_SIZE(interface));

	return failed + cmocka_run_group_tests_name("store_history", files, NULL, NULL);
}
