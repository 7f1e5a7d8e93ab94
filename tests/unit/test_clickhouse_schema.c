// SPDX-License-Identifier: Apache-2.0
/* The tables on the server: who makes them, what an older profd wrote, what a user's profile may
 * say, and the statements for replicas. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/store/clickhouse_http.h"
#include "agent/store/clickhouse_schema.h"
#include "tests/support/clickhouse.h"
#include "tests/support/store_fixture.h"

#define DAY   20778u
#define START (DAY * 86400ull * NS_PER_S)

static const struct store_day week = { .day = DAY, .retention_days = 7 },
			      month = { .day = DAY, .retention_days = 30 };

/* ---- a store with some of everything --------------------------------------------------------- */

static void fill(struct store *store)
{
	static const char text[] = "some data";
	const struct store_chunk chunk = { STORE_CHUNK_STACKS, text, sizeof(text) };
	const struct store_minute minute = { .minute = 1, .samples = 3, .profiled_ms = 60000 };
	struct store_window window = { .service = "web",
				       .type = "cpu",
				       .owners = ",default:19,",
				       .from_ns = START,
				       .samples = 1,
				       .data = text,
				       .len = sizeof(text) };
	const struct store_record record = { .kind = "session",
					     .tenant = "default",
					     .id = "s1",
					     .service = "web",
					     .created_ns = 1,
					     .body = "{}",
					     .body_len = 2 };
	struct err err = { 0 };

	assert_int_equal(store_put(store, &record, &err), 0);
	assert_int_equal(store_session_append(store, "s1", &chunk, 1, 7, 1, &err), 0);
	assert_int_equal(store_session_append(store, "s2", &chunk, 1, 7, 1, &err), 0);
	assert_int_equal(store_session_remove(store, "s2", &err), 0);
	for (unsigned i = 0; i < 3; i++) {
		window.from_ns = START + i * 3600 * NS_PER_S;
		assert_int_equal(store_history_append(store, &week, &chunk, 1, &window, 1, 1, i, &err), 0);
		assert_int_equal(store_history_append(store, &month, &chunk, 1, &window, 1, 1, i, &err), 0);
	}
	assert_int_equal(store_history_drop(store, &month, &err), 0);
	window.minutes = &minute;
	window.minute_count = 1;
	window.from_ns = START;
	assert_int_equal(store_history_roll(store, &week, START, 3, NULL, NULL, &window, 1, &err), 0);
}

static int see_record(void *ctx, const struct store_record *record)
{
	buf_printf(ctx, "record %s ", record->id);
	return 0;
}

static int see_chunk(void *ctx, const struct store_chunk *chunk)
{
	buf_printf(ctx, "chunk %zu ", chunk->len);
	return 0;
}

static int see_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	buf_printf(ctx, "day %u/%u ", day->day, day->retention_days);
	return 0;
}

static int see_window(void *ctx, const struct store_window *window)
{
	buf_printf(ctx, "window %llu=%llu ", (unsigned long long)(window->from_ns - START) / NS_PER_S,
		   (unsigned long long)window->samples);
	return 0;
}

static int see_span(void *ctx, const struct store_span *span)
{
	buf_printf(ctx, "span %llu ", (unsigned long long)span->samples);
	return 0;
}

/* Reads the data of fill() with every query of the store. */
static void check_filled(struct store *store)
{
	const struct store_query sessions = { .kind = "session" };
	const struct store_window_query all = { 0 };
	cleanup_buf struct buf seen = { 0 };
	uint64_t identity, position, total;
	struct err err = { 0 };

	assert_int_equal(store_list(store, &sessions, see_record, &seen, &total, &err), 0);
	assert_int_equal(store_session_read(store, "s1", see_chunk, &seen, NULL, &err), 0);
	assert_int_equal(store_session_read(store, "s2", see_chunk, &seen, NULL, &err), -ENOENT);
	assert_int_equal(store_history_days(store, false, see_day, &seen, &err), 0);
	assert_int_equal(store_history_days(store, true, see_day, &seen, &err), 0);
	assert_int_equal(store_history_dictionary(store, &week, see_chunk, &seen, NULL, &err), 0);
	assert_int_equal(store_history_windows(store, &week, &all, see_window, &seen, NULL, &err), 0);
	assert_int_equal(store_history_windows(store, &month, &all, see_window, &seen, NULL, &err),
			 -ENOENT);
	assert_int_equal(
		store_history_spans(store, &week, &all, 86400 * NS_PER_S, see_span, &seen, &err), 0);
	assert_int_equal(store_history_position(store, &week, &identity, &position, &err), 0);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data,
			    "record s1 chunk 10 day 20778/7 day 20778/7 chunk 10 chunk 10 chunk 10 "
			    "window 60=3 window 3600=1 window 7200=1 span 5 ");
	assert_int_equal(total, 1);
	assert_int_equal(position, 2);
	assert_in_range(store_bytes(store), 100, 2000);
}

/* ---- profiles of users ----------------------------------------------------------------------- */

static void check_with_profile(const char *settings)
{
	struct store_fixture f = { 0 };

	print_message("%s\n", settings);
	clickhouse_set_profile(settings);
	clickhouse_start();
	store_fixture_open_at(&f, clickhouse_fresh_url());
	fill(f.store);
	check_filled(f.store);
	store_fixture_close(&f);
}

static bool is_current(void)
{
	cleanup_buf struct buf answer = { 0 };

	clickhouse_start();
	clickhouse_query("SELECT version()", &answer);
	return atoi(answer.data) > 18;
}

/* Settings that would change answers are the engine's, whatever the user's profile says. */
static void test_profile_changes_nothing(void **state)
{
	check_with_profile("<join_use_nulls>1</join_use_nulls>"
			   "<max_block_size>1</max_block_size>");
	if (!is_current())
		return;
	check_with_profile(
		"<aggregate_functions_null_for_empty>1</aggregate_functions_null_for_empty>"
		"<group_by_use_nulls>1</group_by_use_nulls><limit>1</limit>"
		"<data_type_default_nullable>1</data_type_default_nullable><final>1</final>"
		"<use_query_cache>1</use_query_cache><mutations_sync>2</mutations_sync>"
		"<wait_for_async_insert>0</wait_for_async_insert>");
	check_with_profile("<compatibility>20.8</compatibility>"
			   "<optimize_on_insert>0</optimize_on_insert>");
}

/* A profile that would cut an answer short makes it fail. */
static void test_no_answer_is_cut_short(void **state)
{
	const struct store_query sessions = { .kind = "session" };
	struct store_fixture f = { 0 };
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };

	store_fixture_open_at(&f, clickhouse_fresh_url());
	for (char id[] = "aa"; id[1] <= 'z'; id[1]++) {
		const struct store_record record = {
			.kind = "session", .tenant = "default", .id = id, .body = "{}", .body_len = 2
		};

		assert_int_equal(store_put(f.store, &record, &err), 0);
	}
	assert_int_equal(store_list(f.store, &sessions, see_record, &seen, NULL, &err), 0);
	clickhouse_set_profile("<result_overflow_mode>break</result_overflow_mode>"
			       "<max_result_rows>20</max_result_rows><max_block_size>1</max_block_size>");
	clickhouse_start();
	store_fixture_reopen(&f);
	assert_int_equal(store_list(f.store, &sessions, see_record, &seen, NULL, &err), -EIO);
	store_fixture_close(&f);
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* Tables that an administrator made are enough; without them one sentence says what is missing. */
static void test_no_right_to_create(void **state)
{
	struct store_fixture f = { 0 };
	struct store *store = NULL;
	struct err err = { 0 };

	store_fixture_open_at(&f, clickhouse_fresh_url());
	fill(f.store);
	clickhouse_set_profile("<allow_ddl>0</allow_ddl>");
	clickhouse_start();
	store_fixture_reopen(&f);
	check_filled(f.store);
	store_close(f.store);
	f.store = NULL;
	assert_int_equal(store_open(f.dir, clickhouse_fresh_url(), "", &store, &err), -EIO);
	assert_string_equal(err.word, "StoreUnavailable");
	if (!strstr(err.text, "let an administrator make the tables, see GRANTS in profd(8)"))
		fail_msg("%s", err.text);
	assert_null(strchr(err.text, '\n'));
	store_fixture_close(&f);
}

/* ---- what an older profd wrote --------------------------------------------------------------- */

#define OLD_HISTORY                                                                                \
	"(host String, day UInt32, retention UInt32, row UInt8, ts UInt32, service String, type "  \
	"String, owners String, op UInt64, seq UInt32, turn UInt64, kept UInt32, samples UInt64, " \
	"lost UInt64, value Int64, profiled UInt32, identity UInt64, position UInt64, size "       \
	"UInt32, minutes String, z String) ENGINE = ReplacingMergeTree(op) "

/* As the release of format 1 made them. */
static const char *const old_tables[] = {
	"CREATE TABLE %s.profd_format (version UInt32) ENGINE = ReplacingMergeTree ORDER BY version",
	"CREATE TABLE %s.records (host String, kind String, tenant String, id String, service "
	"String, type String, status String, created UInt64, op UInt64, gone UInt8, size UInt32, "
	"body String) ENGINE = ReplacingMergeTree(op) ORDER BY (kind, tenant, id, host) "
	"SETTINGS index_granularity = 256",
	"CREATE TABLE %s.chunks (host String, id String, op UInt64, seq UInt32, kind UInt32, "
	"identity UInt64, position UInt64, size UInt32, z String) ENGINE = ReplacingMergeTree "
	"PARTITION BY intDiv(op, 86400000000000) ORDER BY (id, host, op, seq) "
	"SETTINGS index_granularity = 64",
	"CREATE TABLE %s.minutes " OLD_HISTORY "PARTITION BY day ORDER BY (host, retention, row, "
	"ts, service, type, owners, turn, seq) SETTINGS index_granularity = 128",
	"CREATE TABLE %s.hours " OLD_HISTORY "PARTITION BY (day, retention) ORDER BY (host, row, "
	"ts, service, type, owners, turn, seq) SETTINGS index_granularity = 64",
};

static void query(const char *format, const char *first, const char *second)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };

	buf_printf(&sql, format, first, second);
	clickhouse_query(sql.data, &answer);
}

static void test_older_format(void **state)
{
	static const char *const data[] = {
		"INSERT INTO %s.records SELECT * FROM %s.records",
		"INSERT INTO %s.chunks SELECT * FROM %s.chunks",
		"INSERT INTO %s.minutes SELECT * FROM %s.minutes",
		"INSERT INTO %s.hours SELECT * FROM %s.hours",
	};
	struct store_fixture f = { 0 };
	char from[16], to[16];

	store_fixture_open_at(&f, clickhouse_fresh_url());
	fill(f.store);
	check_filled(f.store);
	store_close(f.store);
	f.store = NULL;
	(void)snprintf(from, sizeof(from), "%s", strrchr(f.url, '/') + 1);
	(void)snprintf(f.url, sizeof(f.url), "%s", clickhouse_fresh_url());
	(void)snprintf(to, sizeof(to), "%s", strrchr(f.url, '/') + 1);
	query("CREATE DATABASE %s", to, "");
	for (size_t i = 0; i < ARRAY_SIZE(old_tables); i++)
		query(old_tables[i], to, "");
	for (size_t i = 0; i < ARRAY_SIZE(data); i++)
		query(data[i], to, from);
	query("INSERT INTO %s.profd_format SELECT toUInt32(1)", to, "");
	/* Twice: what is filled again is the same. */
	store_fixture_reopen(&f);
	check_filled(f.store);
	query("ALTER TABLE %s.profd_format DELETE WHERE version = 2", to, "");
	for (;;) {
		cleanup_buf struct buf answer = { 0 };

		clickhouse_query("SELECT count() FROM system.mutations WHERE is_done = 0", &answer);
		if (strcmp(answer.data, "0") == 0)
			break;
		clock_sleep_ns(20 * NS_PER_MS);
	}
	store_fixture_reopen(&f);
	check_filled(f.store);
	store_fixture_close(&f);
}

/* ---- databases that nobody writes any more ----------------------------------------------------
 */

/* Rows of the database @from, written @days longer ago than they are kept, as merges leave them. */
static void check_age(const char *from, int days, const char *expect)
{
	static const char *const tables[] = { "minutes", "hours" };
	struct store_fixture f = { 0 };
	const char *to;

	store_fixture_open_at(&f, clickhouse_fresh_url());
	to = strrchr(f.url, '/') + 1;
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		cleanup_buf struct buf insert = { 0 }, merge = { 0 }, count = { 0 }, answer = { 0 };

		buf_printf(&insert,
			   "INSERT INTO %s.%s SELECT * REPLACE(toUInt64(op - (retention + %d) * "
			   "86400000000000) AS op) FROM %s.%s",
			   to, tables[i], days, from, tables[i]);
		clickhouse_query(insert.data, &answer);
		buf_printf(&merge, "OPTIMIZE TABLE %s.%s FINAL", to, tables[i]);
		clickhouse_query(merge.data, &answer);
		answer.len = 0;
		buf_printf(&count, "SELECT count() > 0 FROM %s.%s", to, tables[i]);
		clickhouse_query(count.data, &answer);
		assert_string_equal(answer.data, expect);
	}
	store_fixture_close(&f);
}

/* On current releases what was written a week longer ago than it is kept goes without an agent. */
static void test_abandoned_days(void **state)
{
	struct store_fixture f = { 0 };

	if (!is_current())
		return;
	store_fixture_open_at(&f, clickhouse_fresh_url());
	fill(f.store);
	check_filled(f.store);
	check_age(strrchr(f.url, '/') + 1, 7, "1");
	check_age(strrchr(f.url, '/') + 1, 9, "0");
	store_fixture_close(&f);
}

/* ---- blocks that are sent again ------------------------------------------------------------ */

static void check_count(const char *database, const char *expect)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };

	buf_printf(&sql, "SELECT (SELECT count() FROM %s.twice), (SELECT count() FROM %s.seen)",
		   database, database);
	clickhouse_query(sql.data, &answer);
	assert_string_equal(answer.data, expect);
}

static void ask(struct clickhouse_http *http, const struct clickhouse_request *request)
{
	struct err err = { 0 };

	if (clickhouse_http_do(http, request, NULL, NULL, &err) < 0)
		fail_msg("%s: %s", request->sql, err.text);
}

static void send(struct clickhouse_http *http, const char *token, uint64_t number)
{
	ask(http, &(struct clickhouse_request){ .sql = "INSERT INTO twice FORMAT RowBinary",
						.body = &number,
						.body_len = sizeof(number),
						.token = token });
}

/* @database with a table and what a view is to fill; both remember blocks as replicas do. */
static void make_twice(const char *database)
{
	query("CREATE DATABASE %s", database, "");
	for (int view = 0; view < 2; view++)
		query("CREATE TABLE %s.%s (n UInt64) ENGINE = MergeTree ORDER BY n SETTINGS "
		      "non_replicated_deduplication_window = 100",
		      database, view ? "seen" : "twice");
}

static void make_view(struct clickhouse_http *http)
{
	static const struct clickhouse_request request = {
		.sql = "CREATE MATERIALIZED VIEW view TO seen AS SELECT n FROM twice"
	};

	ask(http, &request);
}

/* @options: of the URL. */
static struct clickhouse_http *open_twice(const char *options, struct clickhouse_url *url)
{
	static atomic_bool stop;
	struct clickhouse_http *http = NULL;
	struct err err = { 0 };
	char text[128];

	(void)snprintf(text, sizeof(text), "%s%s", clickhouse_fresh_url(), options);
	assert_int_equal(clickhouse_url_parse(text, url, &err), 0);
	make_twice(url->database);
	assert_int_equal(clickhouse_http_create(url, &stop, &http, &err), 0);
	return http;
}

/* A server without replicas that remembers blocks may remember one that it has lost: what is sent
 * again is stored again. The same tables take the same block of another client once. */
static void test_no_block_is_taken_for_known(void **state)
{
	static const struct clickhouse_request copy = {
		.sql = "INSERT INTO twice SELECT n FROM twice WHERE n = 1 ORDER BY ALL LIMIT 1"
	};
	cleanup(clickhouse_http) struct clickhouse_http *http = NULL;
	struct clickhouse_url url;

	if (!is_current())
		return; /* 18.16 remembers blocks of replicas alone */
	clickhouse_set_profile("<deduplicate_insert_select>force_enable</deduplicate_insert_select>");
	clickhouse_start();
	http = open_twice("", &url);
	make_view(http);
	for (int i = 0; i < 2; i++)
		query("INSERT INTO %s.twice VALUES (1)", url.database, "");
	check_count(url.database, "1\t1");
	for (int i = 0; i < 2; i++)
		send(http, "name", 7);
	check_count(url.database, "3\t3");
	for (int i = 0; i < 2; i++)
		ask(http, &copy);
	check_count(url.database, "5\t5");
}

/* Replicas take a block of the same name once, whatever it holds, and so does each of their views,
 * also where the view was missed the first time, and whatever the user's profile says. */
static void test_tokens(void **state)
{
	cleanup(clickhouse_http) struct clickhouse_http *http = NULL;
	struct clickhouse_url url;

	if (!is_current())
		return; /* before 23.1 blocks have no names */
	clickhouse_set_profile("<insert_deduplicate>0</insert_deduplicate>"
			       "<deduplicate_insert>disable</deduplicate_insert>"
			       "<deduplicate_blocks_in_dependent_materialized_views>0"
			       "</deduplicate_blocks_in_dependent_materialized_views>");
	clickhouse_start();
	http = open_twice("?cluster=main", &url);
	for (int i = 0; i < 2; i++)
		send(http, "one", 1);
	check_count(url.database, "1\t0");
	make_view(http);
	for (int i = 0; i < 2; i++)
		send(http, "one", 1);
	check_count(url.database, "1\t1");
	send(http, "two", 1);
	send(http, NULL, 1);
	check_count(url.database, "3\t3");
}

/* ---- replicas -------------------------------------------------------------------------------- */

static void check_create(const char *name, unsigned version, const char *cluster, const char *part)
{
	struct clickhouse_url url = { .database = "db" };

	strcpy(url.cluster, cluster);
	for (size_t i = 0; i < CLICKHOUSE_OBJECTS; i++) {
		cleanup_buf struct buf sql = { 0 };

		if (strcmp(clickhouse_schema_name(i), name) != 0)
			continue;
		clickhouse_schema_create(&sql, i, version, &url);
		buf_add_char(&sql, '\0');
		if (!strstr(sql.data, part))
			fail_msg("%s\nhas no: %s", sql.data, part);
		return;
	}
	fail_msg("no %s", name);
}

static void test_statements(void **state)
{
	check_create("records", 18016, "", "CREATE TABLE IF NOT EXISTS `db`.records (host String, ");
	check_create("records", 26009, "", "(host LowCardinality(String), ");
	check_create("chunks", 26009, "", "z String CODEC(NONE)) ENGINE = ReplacingMergeTree() ");
	check_create("minutes", 26009, "",
		     "SETTINGS index_granularity = 128, ttl_only_drop_parts = 1, "
		     "min_compress_block_size = 8192, ");
	check_create("hours", 26009, "", "ts, service, type, owners, turn, seq) TTL toDateTime(");
	check_create("hours", 18016, "", " owners, turn, seq) SETTINGS index_granularity = 64");
	check_create("hours", 26009, "main", "`db`.hours ON CLUSTER `main` (");
	check_create("hours", 26009, "main",
		     " ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/db/hours', "
		     "'{replica}', op) PARTITION BY (day, retention) ");
	check_create("days", 26009, "main",
		     "ReplicatedAggregatingMergeTree('/clickhouse/tables/{shard}/db/days', '{replica}')");
	check_create("days_of_hours", 26009, "main",
		     "CREATE MATERIALIZED VIEW IF NOT EXISTS `db`.days_of_hours ON CLUSTER `main` TO "
		     "`db`.days AS SELECT day, ");
}

static int plain_profile(void **state)
{
	clickhouse_set_profile("");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_profile_changes_nothing, plain_profile),
		cmocka_unit_test_teardown(test_no_answer_is_cut_short, plain_profile),
		cmocka_unit_test_teardown(test_no_right_to_create, plain_profile),
		cmocka_unit_test(test_older_format),
		cmocka_unit_test(test_abandoned_days),
		cmocka_unit_test_teardown(test_no_block_is_taken_for_known, plain_profile),
		cmocka_unit_test_teardown(test_tokens, plain_profile),
		cmocka_unit_test(test_statements),
	};

	return store_fixture_run_on_clickhouse(tests, ARRAY_SIZE(tests));
}
