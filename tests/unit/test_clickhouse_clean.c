// SPDX-License-Identifier: Apache-2.0
/* Cleaning of the ClickHouse engine: what is gone for readers leaves the server's disk, and nothing
 * else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/store/clickhouse.h"
#include "agent/store/store.h"
#include "agent/store/store_engine.h"
#include "tests/support/clickhouse.h"
#include "tests/support/clickhouse_host.h"
#include "tests/support/store_fixture.h"

/* ---- helpers ------------------------------------------------------------- */

static void count_rows(const char *url, const char *what, const char *expect)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };

	buf_printf(&sql, what, strrchr(url, '/') + 1);
	clickhouse_query(sql.data, &answer);
	assert_string_equal(answer.data, expect);
}

static void wait_rewritten(void)
{
	for (;;) {
		cleanup_buf struct buf answer = { 0 };

		clickhouse_query("SELECT count() FROM system.mutations WHERE is_done = 0", &answer);
		if (strcmp(answer.data, "0") == 0)
			return;
		clock_sleep_ns(20 * NS_PER_MS);
	}
}

/* Cleaning frees the disk of deleted data; the remaining data reads as before. */
static void test_cleaning(void **state)
{
	static const struct store_day old = { .day = 19000, .retention_days = 7 },
				      dropped = { .day = 19000, .retention_days = 30 };
	struct host *h = new_host("a", clickhouse_fresh_url());
	const struct store_chunk piece = { STORE_CHUNK_STACKS, "dict", 4 },
				 settled = { STORE_CHUNK_SETTLED, "all", 3 };
	const struct store_minute minute = { .minute = 1, .samples = 3, .profiled_ms = 60000 };
	struct store_window window = { .service = "web",
				       .type = "cpu",
				       .owners = ",d:1,",
				       .from_ns = 19000 * 86400ull * NS_PER_S,
				       .samples = 1,
				       .data = "x",
				       .len = 1 };
	struct store_window hour = window;
	cleanup_buf struct buf seen = { 0 };
	const struct store_ops *ops;
	uint64_t bytes, identity, position;
	struct err err = { 0 };
	void *engine;

	hour.minutes = &minute;
	hour.minute_count = 1;
	if (clickhouse_engine_open(h->dir, h->url, "a", &ops, &engine, &err) < 0)
		fail_msg("%s", err.text);
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(ops->history_append(engine, &old, &piece, 1, &window, 1, 1, i, &err), 0);
		assert_int_equal(ops->history_append(engine, &dropped, &piece, 1, &window, 1, 1, i, &err), 0);
		assert_int_equal(ops->session_append(engine, i < 5 ? "one" : "two", &piece, 1, 1, i, &err), 0);
	}
	assert_int_equal(
		ops->history_roll(engine, &old, window.from_ns, 0, &settled, NULL, &hour, 1, &err),
		0);
	assert_int_equal(ops->history_roll(engine, &dropped, window.from_ns, 0, &settled, NULL,
					   &hour, 1, &err),
			 0);
	assert_int_equal(ops->history_append(engine, &old, NULL, 0, NULL, 0, 1, 99, &err), 0);
	assert_int_equal(ops->history_drop(engine, &dropped, &err), 0);
	assert_int_equal(ops->session_remove(engine, "one", &err), 0);
	bytes = ops->bytes(engine);
	/* Rolled minutes, dropped ones, and then the partition of their hours. */
	for (unsigned i = 0; i < 3; i++) {
		clickhouse_clean_now(engine);
		wait_rewritten();
	}
	/* The last position, what replaced the minutes, and the session that is there. The partition
	 * of the dropped day is gone as a whole. */
	count_rows(h->url, "SELECT groupArray(row) FROM %s.minutes", "[7,7]");
	count_rows(h->url, "SELECT arraySort(groupArray(row)) FROM %s.hours", "[3,4,5]");
	count_rows(h->url,
		   "SELECT id, kind = 0, count() FROM %s.chunks GROUP BY id, kind = 0 ORDER BY id",
		   "one\t1\t1\ntwo\t0\t10");
	assert_true(ops->bytes(engine) <= bytes);
	assert_int_equal(ops->history_position(engine, &old, &identity, &position, &err), 0);
	assert_int_equal(position, 99);
	assert_int_equal(ops->history_dictionary(engine, &old, see_chunk, &seen, NULL, &err), 0);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, "all ");
	ops->close(engine);
	end_host(h);
}

/* A day that many hosts have dropped is freed, though each had only a little of it. */
static void test_many_hosts_drop_a_day(void **state)
{
	char url[96], name[8];
	struct err err = { 0 };
	const struct store_ops *ops;
	struct host *h;
	void *engine;

	(void)snprintf(url, sizeof(url), "%s", clickhouse_fresh_url());
	for (unsigned i = 0; i < 12; i++) {
		(void)snprintf(name, sizeof(name), "h%u", i);
		h = begin_host(name, url);
		record(h, "web", 0, "x");
		assert_int_equal(store_history_drop(h->store, &week, &err), 0);
		settle(h);
		end_host(h);
	}
	count_rows(url, "SELECT count() FROM %s.minutes", "36");
	h = new_host("cleaner", url);
	assert_int_equal(clickhouse_engine_open(h->dir, url, "cleaner", &ops, &engine, &err), 0);
	clickhouse_clean_now(engine);
	wait_rewritten();
	count_rows(url, "SELECT count() FROM %s.minutes", "0");
	ops->close(engine);
	end_host(h);
}

/* Each day of sessions is freed by itself: one whose sessions are all deleted goes, though it is
 * little of the table. Of a day that is mostly there nothing is rewritten, and markers stay. */
static void test_a_day_of_sessions(void **state)
{
	struct host *h = new_host("a", clickhouse_fresh_url());
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	const struct store_ops *ops;
	struct err err = { 0 };
	void *engine;

	assert_int_equal(clickhouse_engine_open(h->dir, h->url, "a", &ops, &engine, &err), 0);
	/* Two old days: s1 alone on one, s2 and s3 to s9 on the other, long ago. */
	buf_printf(&sql,
		   "INSERT INTO %s.chunks (host, id, op, seq, kind, identity, position, size, z) SELECT "
		   "'a', concat('s', toString(number)), toUInt64(if(number = 1, 100, 101)) * "
		   "86400000000000 + number, toUInt32(0), toUInt32(3), toUInt64(0), toUInt64(0), "
		   "toUInt32(10), '' FROM (SELECT number FROM system.numbers LIMIT 10) WHERE number > 0",
		   strrchr(h->url, '/') + 1);
	clickhouse_query(sql.data, &answer);
	assert_int_equal(ops->session_remove(engine, "s1", &err), 0);
	assert_int_equal(ops->session_remove(engine, "s2", &err), 0);
	while (ops->waiting_bytes(engine))
		clock_sleep_ns(10 * NS_PER_MS);
	clickhouse_clean_now(engine);
	wait_rewritten();
	count_rows(h->url,
		   "SELECT arraySort(groupArray(id)) FROM %s.chunks WHERE "
		   "intDiv(op, 86400000000000) = 100 AND kind != 0",
		   "[]");
	count_rows(h->url,
		   "SELECT arraySort(groupArray(concat(id, toString(kind)))) FROM %s.chunks WHERE "
		   "intDiv(op, 86400000000000) = 101",
		   "['s20','s23','s33','s43','s53','s63','s73','s83','s93']");
	assert_int_equal(ops->session_remove(engine, "s3", &err), 0);
	while (ops->waiting_bytes(engine))
		clock_sleep_ns(10 * NS_PER_MS);
	clickhouse_clean_now(engine);
	wait_rewritten();
	/* Two of eight are a good part; now that nothing is hidden any more, old markers go. */
	count_rows(h->url, "SELECT arraySort(groupArray(concat(id, toString(kind)))) FROM %s.chunks",
		   "['s43','s53','s63','s73','s83','s93']");
	ops->close(engine);
	end_host(h);
}

/* Appends a minute to @day and rolls it up, as a host does of its own. */
static void fill_day(struct host *h, const struct store_day *day, bool drop)
{
	const struct store_chunk piece = { STORE_CHUNK_STACKS, "dict", 4 },
				 settled = { STORE_CHUNK_SETTLED, "all", 3 };
	const struct store_minute minute = { .minute = 1, .samples = 3, .profiled_ms = 60000 };
	struct store_window window = { .service = "web",
				       .type = "cpu",
				       .owners = ",d:1,",
				       .from_ns = day->day * 86400ull * NS_PER_S,
				       .samples = 1,
				       .data = "x",
				       .len = 1 };
	struct err err = { 0 };

	assert_int_equal(store_history_append(h->store, day, &piece, 1, &window, 1, 1, 1, &err), 0);
	window.minutes = &minute;
	window.minute_count = 1;
	assert_int_equal(store_history_roll(h->store, day, window.from_ns, 0, &settled, NULL, &window,
					    1, &err),
			 0);
	if (drop)
		assert_int_equal(store_history_drop(h->store, day, &err), 0);
	settle(h);
}

/* Partitions of days that are over for all hosts go as a whole, without a row being rewritten;
 * those of a day that one host still has stay. */
static void test_days_that_are_over(void **state)
{
	static const struct store_day over = { .day = 19000, .retention_days = 7 },
				      kept = { .day = 19001, .retention_days = 7 };
	char url[96], name[8];
	struct err err = { 0 };
	const struct store_ops *ops;
	struct host *h;
	void *engine;

	(void)snprintf(url, sizeof(url), "%s", clickhouse_fresh_url());
	for (unsigned i = 0; i < 50; i++) {
		(void)snprintf(name, sizeof(name), "h%u", i);
		h = begin_host(name, url);
		fill_day(h, &over, true);
		fill_day(h, &kept, i > 0);
		end_host(h);
	}
	h = new_host("cleaner", url);
	assert_int_equal(clickhouse_engine_open(h->dir, url, "cleaner", &ops, &engine, &err), 0);
	clickhouse_clean_now(engine);
	count_rows(url,
		   "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = '%s' AND "
		   "table IN ('hours', 'minutes') AND partition LIKE '%%19000%%'",
		   "0");
	wait_rewritten();
	count_rows(url, "SELECT groupUniqArray(day) FROM %s.hours", "[19001]");
	count_rows(url, "SELECT count() FROM %s.hours WHERE row = 5 AND host = 'h0'", "1");
	ops->close(engine);
	end_host(h);
}

/* One of the hosts that write cleans in each hour, and each has its turn. */
static void test_who_cleans(void **state)
{
	const struct store_day today = { .day = (uint32_t)(clock_realtime_ns() / (86400 * NS_PER_S)),
					 .retention_days = 7 };
	unsigned turns[3] = { 0 }, viewer_turns = 0;
	struct host *hosts[3], *viewer;
	const struct store_ops *ops;
	void *engines[3], *idle;
	struct err err = { 0 };
	char url[96], name[8];

	(void)snprintf(url, sizeof(url), "%s", clickhouse_fresh_url());
	viewer = new_host("viewer", url);
	assert_int_equal(clickhouse_engine_open(viewer->dir, url, "viewer", &ops, &idle, &err), 0);
	assert_true(clickhouse_clean_is_elected(idle, 1)); /* nobody writes */
	for (unsigned i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof(name), "h%u", i);
		hosts[i] = begin_host(name, url);
		fill_day(hosts[i], &today, false);
		close_host(hosts[i]);
		assert_int_equal(clickhouse_engine_open(hosts[i]->dir, url, name, &ops, &engines[i], &err),
				 0);
	}
	for (uint64_t hour = 0; hour < 24; hour++) {
		unsigned elected = 0;

		for (unsigned i = 0; i < 3; i++)
			if (clickhouse_clean_is_elected(engines[i], hour))
				elected++, turns[i]++;
		assert_int_equal(elected, 1);
		viewer_turns += clickhouse_clean_is_elected(idle, hour);
	}
	assert_int_equal(viewer_turns, 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(turns[i] > 0);
		ops->close(engines[i]);
		end_host(hosts[i]);
	}
	ops->close(idle);
	end_host(viewer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cleaning),
		cmocka_unit_test(test_a_day_of_sessions),
		cmocka_unit_test(test_days_that_are_over),
		cmocka_unit_test(test_who_cleans),
		cmocka_unit_test(test_many_hosts_drop_a_day),
	};

	return store_fixture_run_on_clickhouse(tests, ARRAY_SIZE(tests));
}
