// SPDX-License-Identifier: Apache-2.0
/* The store that stands in for a shared one: what it is given, and what is moved back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/session/sessions_run.h"
#include "tests/support/store_fixture.h"

#define DAY    20778u
#define START  (DAY * 86400ull * NS_PER_S)
#define MINUTE (60 * NS_PER_S)

static struct store *open_standby(const struct store_fixture *f)
{
	struct store *standby;
	struct err err = { 0 };

	if (store_open_standby(f->dir, &standby, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(store_is_shared(standby));
	return standby;
}

static void put(struct store *store, const char *kind, const char *id, const char *body)
{
	const struct store_record record = { .kind = kind,
					     .tenant = "t",
					     .id = id,
					     .service = "",
					     .type = "",
					     .status = "",
					     .created_ns = 7,
					     .body = body,
					     .body_len = strlen(body) };
	struct err err = { 0 };

	if (store_put(store, &record, &err) < 0)
		fail_msg("%s", err.text);
}

static int see_record(void *ctx, const struct store_record *record)
{
	buf_printf(ctx, "%s=%.*s ", record->id, (int)record->body_len, record->body);
	return 0;
}

static void check_records(struct store *store, const char *kind, const char *expect)
{
	const struct store_query query = { .kind = kind, .oldest_first = true };
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };

	buf_add_str(&seen, "");
	if (store_list(store, &query, see_record, &seen, NULL, &err) < 0)
		fail_msg("%s", err.text);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
}

static void mirror(struct store *shared, struct store *standby)
{
	struct err err = { 0 };

	if (sessions_mirror(shared, standby, &err) < 0)
		fail_msg("%s", err.text);
}

static void leave(struct store *standby, struct store *shared)
{
	struct err err = { 0 };

	if (sessions_leave_standby(standby, shared, true, &err) < 0)
		fail_msg("%s", err.text);
}

static void test_changes_of_both_sides(void **state)
{
	struct store_fixture *f = *state;
	struct store *standby = open_standby(f);
	struct err err = { 0 };

	put(f->store, "key", "kept", "1");
	put(f->store, "key", "deleted-here", "1");
	put(f->store, "key", "revoked-there", "1");
	put(f->store, "key", "gone-before", "1");
	put(f->store, "continuous", "web", "19");
	mirror(f->store, standby);
	assert_int_equal(store_delete(f->store, "key", "t", "gone-before", &err), 0);
	mirror(f->store, standby);
	check_records(standby, "key", "deleted-here=1 kept=1 revoked-there=1 ");
	/* the store is away: both sides go on */
	assert_int_equal(store_delete(standby, "key", "t", "deleted-here", &err), 0);
	put(standby, "key", "made-here", "1");
	put(standby, "continuous", "web", "99");
	assert_int_equal(store_delete(f->store, "key", "t", "revoked-there", &err), 0);
	leave(standby, f->store);
	leave(standby, f->store);
	check_records(f->store, "key", "kept=1 made-here=1 ");
	check_records(f->store, "continuous", "web=99 ");
	check_records(f->store, "seed-key", "");
	store_close(standby);
}

static int see_chunk(void *ctx, const struct store_chunk *chunk)
{
	buf_printf(ctx, "%d:%.*s ", chunk->kind, (int)chunk->len, (const char *)chunk->data);
	return 0;
}

static void append_session(struct store *store, const char *id, const char *text, uint64_t position)
{
	const struct store_chunk chunk = { STORE_CHUNK_SAMPLES, text, strlen(text) };

	assert_int_equal(store_session_append(store, id, &chunk, 1, 5, position, NULL), 0);
}

static void test_session_moved_once(void **state)
{
	struct store_fixture *f = *state;
	struct store *standby = open_standby(f);
	cleanup_buf struct buf seen = { 0 };
	uint64_t identity, position;
	struct err err = { 0 };

	append_session(standby, "sess-1", "one", 100);
	append_session(standby, "sess-1", "two", 200);
	put(standby, "session", "sess-1", "{}");
	put(standby, "finding", "f1", "{}");
	put(standby, "detail", "detail-1-7", "{}");
	leave(standby, f->store);
	leave(standby, f->store); /* as after a kill before the standby store was removed */
	check_records(f->store, "session", "sess-1={} ");
	check_records(f->store, "finding", "f1={} ");
	check_records(f->store, "detail", "");
	assert_int_equal(store_session_read(f->store, "sess-1", see_chunk, &seen, NULL, &err), 0);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, "4:one 4:two ");
	assert_int_equal(store_session_position(f->store, "sess-1", &identity, &position, &err), 0);
	assert_int_equal(identity, 5);
	assert_int_equal(position, 200);
	store_close(standby);
}

static void append_minute(struct store *store, unsigned retention_days, unsigned minute,
			  const char *data, uint64_t position)
{
	const struct store_day day = { .day = DAY, .retention_days = retention_days };
	const struct store_chunk chunk = { STORE_CHUNK_STACKS, data, strlen(data) };
	const struct store_window window = { .service = "web",
					     .type = "cpu",
					     .owners = ",a:19,",
					     .from_ns = START + minute * MINUTE,
					     .samples = 1,
					     .value = 10,
					     .data = data,
					     .len = strlen(data) };
	struct err err = { 0 };

	if (store_history_append(store, &day, &chunk, 1, &window, 1, 5, position, &err) < 0)
		fail_msg("%s", err.text);
}

static int see_window(void *ctx, const struct store_window *window)
{
	buf_printf(ctx, "%s@%llu=%.*s ", window->service,
		   (unsigned long long)((window->from_ns - START) / MINUTE), (int)window->len,
		   (const char *)window->data);
	return 0;
}

static int see_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	buf_printf(ctx, "%u ", day->retention_days);
	return 0;
}

static void check_day(struct store *store, unsigned retention_days, const char *windows,
		      const char *dictionary, uint64_t at)
{
	const struct store_day day = { .day = DAY, .retention_days = retention_days };
	const struct store_window_query query = { .with_data = true };
	cleanup_buf struct buf seen = { 0 }, pieces = { 0 };
	uint64_t identity = 0, position = 0;
	unsigned damaged;
	struct err err = { 0 };

	assert_int_equal(
		store_history_windows(store, &day, &query, see_window, &seen, &damaged, &err), 0);
	assert_int_equal(store_history_dictionary(store, &day, see_chunk, &pieces, &damaged, &err),
			 0);
	buf_add_char(&seen, '\0');
	buf_add_char(&pieces, '\0');
	assert_string_equal(seen.data, windows);
	assert_string_equal(pieces.data, dictionary);
	assert_int_equal(store_history_position(store, &day, &identity, &position, &err), 0);
	assert_int_equal(position, at);
}

static void test_history_beside_what_is_there(void **state)
{
	struct store_fixture *f = *state;
	struct store *standby = open_standby(f);
	cleanup_buf struct buf days = { 0 };

	append_minute(f->store, 7, 1, "a", 100);
	append_minute(standby, 7, 2, "b", 200);
	append_minute(standby, 7, 2, "c", 300);
	append_minute(standby, 30, 3, "d", 300);
	leave(standby, f->store);
	leave(standby, f->store);
	/* the dictionary of what was there is left alone, and its day does not take the same
	 * samples again */
	check_day(f->store, 7, "web@1=a ", "3:a ", 300);
	check_day(f->store, 8, "web@2=b web@2=c ", "3:b 3:c ", 300);
	check_day(f->store, 30, "web@3=d ", "3:d ", 300);
	assert_int_equal(store_history_days(f->store, false, see_day, &days, NULL), 0);
	assert_int_equal(days.len, strlen("7 8 30 "));
	store_close(standby);
}

static void test_refuses(void **state)
{
	struct store_fixture *f = *state;
	struct err err = { 0 };

	put(f->store, "key", "k", "1");
	store_refuse(f->store, "it is away");
	store_refuse(f->store, "another reason");
	assert_int_equal(store_try(f->store, &err), -EIO);
	assert_string_equal(err.text, "it is away");
	assert_int_equal(store_history_days(f->store, true, see_day, NULL, &err), -EIO);
	assert_int_equal(store_session_read(f->store, "sess-1", see_chunk, NULL, NULL, &err), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_changes_of_both_sides, store_fixture_setup,
						store_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_session_moved_once, store_fixture_setup,
						store_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_history_beside_what_is_there,
						store_fixture_setup, store_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_refuses, store_fixture_setup,
						store_fixture_teardown),
	};

	return store_fixture_run_on_engines(tests, sizeof(tests) / sizeof(*tests));
}
