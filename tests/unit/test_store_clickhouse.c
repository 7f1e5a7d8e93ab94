// SPDX-License-Identifier: Apache-2.0
/* What is said of the ClickHouse engine alone: several hosts, a server that is away, hangs, lies or refuses. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_journal.h"
#include "agent/store/store.h"
#include "agent/store/store_engine.h"
#include "tests/support/clickhouse.h"

#define DAY    20778u
#define MINUTE (60 * NS_PER_S)
#define START  (DAY * 86400ull * NS_PER_S)
#define SHORT  (2 * NS_PER_S) /* what must not wait for a server takes less, however busy this host is */

static const struct store_day week = { .day = DAY, .retention_days = 7 };

/* ---- a host: a folder of its own and a store that is opened from it ----------------------------------- */

struct host {
	char dir[40], url[96], name[STORE_HOST_SIZE];
	struct store *store;
};

static void open_host(struct host *h)
{
	struct err err = { 0 };

	if (store_open(h->dir, h->url, h->name, &h->store, &err) < 0)
		fail_msg("%s", err.text);
}

static struct host *new_host(const char *name, const char *url)
{
	struct host *h = calloc(1, sizeof(*h));

	assert_non_null(h);
	strcpy(h->dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/profd-fleet-XXXXXX" : "/tmp/profd-fleet-XXXXXX");
	assert_non_null(mkdtemp(h->dir));
	(void)snprintf(h->url, sizeof(h->url), "%s", url);
	(void)snprintf(h->name, sizeof(h->name), "%s", name);
	return h;
}

static struct host *begin_host(const char *name, const char *url)
{
	struct host *h = new_host(name, url);

	open_host(h);
	return h;
}

static void close_host(struct host *h)
{
	store_close(h->store);
	h->store = NULL;
}

static void end_host(struct host *h)
{
	char command[64];

	close_host(h);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", h->dir);
	assert_int_equal(system(command), 0);
	free(h);
}

static void put(struct host *h, const char *id, const char *service, uint64_t created_ns, const char *body)
{
	const struct store_record record = { .kind = "session", .tenant = "default", .id = id, .service = service, .type = "cpu",
					     .status = "completed", .created_ns = created_ns, .body = body, .body_len = strlen(body) };
	struct err err = { 0 };

	if (store_put(h->store, &record, &err) < 0)
		fail_msg("%s", err.text);
}

static void append(struct host *h, const char *id, const char *text, uint64_t position)
{
	const struct store_chunk chunk = { STORE_CHUNK_SAMPLES, text, strlen(text) };
	struct err err = { 0 };

	if (store_session_append(h->store, id, &chunk, 1, 7, position, &err) < 0)
		fail_msg("%s", err.text);
}

static void record(struct host *h, const char *service, unsigned minute, const char *data)
{
	const struct store_window window = { .service = service, .type = "cpu", .owners = ",default:19,", .from_ns = START + minute * MINUTE,
					     .samples = strlen(data), .value = 10, .profiled_ms = 60000, .data = data, .len = strlen(data) };
	const struct store_chunk piece = { STORE_CHUNK_STACKS, "dict", 4 };
	struct err err = { 0 };

	if (store_history_append(h->store, &week, &piece, 1, &window, 1, 5, minute, &err) < 0)
		fail_msg("%s", err.text);
}

/* Until others see what it wrote. */
static void settle(struct host *h)
{
	while (store_waiting_bytes(h->store))
		clock_sleep_ns(NS_PER_MS);
}

static int add_id(void *ctx, const struct store_record *record)
{
	buf_printf(ctx, "%s%s%s ", record->host, record->host[0] ? "/" : "", record->id);
	return 0;
}

static void check_list(struct host *h, bool every_host, const char *expect, uint64_t expect_total)
{
	const struct store_query query = { .kind = "session", .every_host = every_host };
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };
	uint64_t total = 99;

	if (store_list(h->store, &query, add_id, &seen, &total, &err) < 0)
		fail_msg("%s", err.text);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
	assert_int_equal(total, expect_total);
}

static int see_chunk(void *ctx, const struct store_chunk *chunk)
{
	buf_printf(ctx, "%.*s ", (int)chunk->len, (const char *)chunk->data);
	return 0;
}

static void check_session(struct host *h, const char *id, const char *expect)
{
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };
	unsigned damaged = 99;

	if (store_session_read(h->store, id, see_chunk, &seen, &damaged, &err) < 0)
		fail_msg("%s", err.text);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
	assert_int_equal(damaged, 0);
}

static int see_window(void *ctx, const struct store_window *window)
{
	buf_printf(ctx, "%s@%llu=%.*s ", window->service, (unsigned long long)((window->from_ns - START) / MINUTE), (int)window->len,
		   (const char *)window->data);
	return 0;
}

static void check_windows(struct host *h, const struct store_day *day, const char *expect)
{
	const struct store_window_query query = { .with_data = true };
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };
	unsigned damaged = 99;

	if (store_history_windows(h->store, day, &query, see_window, &seen, &damaged, &err) < 0)
		fail_msg("%s", err.text);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
	assert_int_equal(damaged, 0);
}

static int see_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	assert_true(bytes > 0);
	buf_printf(ctx, "%u:%s ", day->day, day->host);
	return 0;
}

static void check_days(struct host *h, bool every_host, const char *expect)
{
	cleanup_buf struct buf seen = { 0 };
	struct err err = { 0 };

	if (store_history_days(h->store, every_host, see_day, &seen, &err) < 0)
		fail_msg("%s", err.text);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
}

/* ---- opening --------------------------------------------------------------------------------------- */

static void test_password(void **state)
{
	char url[128];
	struct store *store = (struct store *)1;
	struct err err = { 0 };
	struct host *h;

	(void)clickhouse_fresh_url();
	(void)snprintf(url, sizeof(url), "clickhouse://prof:wrong-secret@127.0.0.1:%u/pw", clickhouse_port());
	h = new_host("a", url);
	assert_int_equal(store_open(h->dir, url, "a", &store, &err), -EIO);
	assert_ptr_equal(store, (struct store *)1);
	assert_string_equal(err.word, "StoreUnavailable");
	assert_null(strstr(err.text, "secret"));
	(void)snprintf(h->url, sizeof(h->url), "clickhouse://prof:p%%40ss%%3aw%%2Frd@127.0.0.1:%u/pw", clickhouse_port());
	open_host(h);
	end_host(h);
}

static void test_newer_format_is_refused(void **state)
{
	struct host *h = begin_host("a", clickhouse_fresh_url());
	cleanup_buf struct buf answer = { 0 };
	struct err err = { 0 };
	char sql[128];

	close_host(h);
	(void)snprintf(sql, sizeof(sql), "INSERT INTO %s.profd_format VALUES (99)", strrchr(h->url, '/') + 1);
	clickhouse_query(sql, &answer);
	assert_int_equal(store_open(h->dir, h->url, "a", &h->store, &err), -EPROTO);
	assert_non_null(strstr(err.text, "newer profd"));
	end_host(h);
}

/* ---- several hosts ----------------------------------------------------------------------------------- */

static void test_two_hosts(void **state)
{
	struct host *a = begin_host("a", clickhouse_fresh_url()), *b = begin_host("b", a->url), *none = begin_host("", a->url);
	const struct store_day of_a = { DAY, 7, "a" }, of_b = { DAY, 7, "b" };
	cleanup_free char *body = NULL, *other = NULL;
	struct err err = { 0 };
	size_t len;

	assert_true(store_is_shared(a->store));
	put(a, "s1", "web", 10, "of a");
	put(b, "s2", "web", 20, "of b");
	put(a, "both", "web", 30, "a's");
	put(b, "both", "web", 30, "b's");
	put(none, "key", "", 40, "of none");
	check_list(a, false, "a/both a/s1 ", 2);
	check_list(b, false, "b/both b/s2 ", 2);
	check_list(none, false, "key ", 1);
	check_list(none, true, "key a/both b/both b/s2 a/s1 ", 5);
	/* Its own first, else another's. */
	assert_int_equal(store_get(b->store, "session", "default", "both", &body, &len, &err), 0);
	assert_string_equal(body, "b's");
	assert_int_equal(store_get(none->store, "session", "default", "s1", &other, &len, &err), 0);
	assert_string_equal(other, "of a");

	append(a, "sess-a", "one", 1);
	append(a, "sess-a", "two", 2);
	settle(a);
	check_session(a, "sess-a", "one two ");
	check_session(b, "sess-a", "one two ");
	assert_true(store_session_bytes(none->store, "sess-a") > 0);
	assert_int_equal(store_session_copy(none->store, "sess-a", "bl-1", &err), 0);

	record(a, "web", 0, "x");
	record(b, "web", 0, "yy");
	record(b, "db", 1, "z");
	settle(a);
	settle(b);
	check_days(a, false, "20778: ");
	check_days(a, true, "20778: 20778:b ");
	check_days(none, true, "20778:a 20778:b ");
	check_windows(a, &week, "web@0=x ");
	check_windows(b, &of_a, "web@0=x ");
	check_windows(b, &week, "web@0=yy db@1=z ");
	check_windows(none, &of_b, "web@0=yy db@1=z ");

	/* Whoever wrote it. */
	assert_int_equal(store_delete(b->store, "session", "default", "s1", &err), 0);
	assert_int_equal(store_session_remove(b->store, "sess-a", &err), 0);
	check_list(b, true, "key a/both b/both b/s2 ", 4);
	settle(none);
	check_list(a, false, "a/both ", 1);
	assert_int_equal(store_session_read(a->store, "sess-a", see_chunk, NULL, NULL, &err), -ENOENT);
	check_session(a, "bl-1", "one two ");
	/* And it can be written again. */
	append(a, "sess-a", "three", 3);
	settle(a);
	check_session(b, "sess-a", "three ");
	put(a, "s1", "web", 10, "again");
	check_list(a, false, "a/both a/s1 ", 2);
	/* A day of one is not that of the other. */
	assert_int_equal(store_history_drop(a->store, &week, &err), 0);
	settle(a);
	check_days(a, true, "20778:b ");
	check_windows(a, &of_b, "web@0=yy db@1=z ");
	assert_int_equal(store_history_windows(b->store, &of_a, &(struct store_window_query){ 0 }, see_window, NULL, NULL, &err), -ENOENT);
	end_host(a);
	end_host(b);
	end_host(none);
}

static int add_samples(void *ctx, const struct store_span *span)
{
	*(uint64_t *)ctx += span->samples;
	return 0;
}

static uint64_t samples_of(struct host *h, const struct store_day *day)
{
	const struct store_window_query all = { 0 };
	struct err err = { 0 };
	uint64_t samples = 0;
	int rc = store_history_spans(h->store, day, &all, 10 * MINUTE, add_samples, &samples, &err);

	if (rc < 0 && rc != -ENOENT)
		fail_msg("%s", err.text);
	return samples;
}

/* Sums are kept until the day changes: its own at once, those of others within seconds. */
static void test_spans_of_others(void **state)
{
	struct host *a = begin_host("a", clickhouse_fresh_url()), *b = begin_host("b", a->url);
	const struct store_day of_a = { DAY, 7, "a" };
	struct err err = { 0 };

	assert_int_equal(samples_of(b, &of_a), 0);
	for (unsigned i = 1; i <= 3; i++) {
		record(a, "web", i, "x");
		assert_int_equal(samples_of(a, &week), i);
		assert_int_equal(samples_of(a, &of_a), i);
		assert_int_equal(samples_of(b, &week), 0);
	}
	while (samples_of(b, &of_a) != 3)
		clock_sleep_ns(50 * NS_PER_MS);
	assert_int_equal(store_history_drop(a->store, &week, &err), 0);
	assert_int_equal(samples_of(a, &week), 0);
	while (samples_of(b, &of_a) != 0)
		clock_sleep_ns(50 * NS_PER_MS);
	end_host(a);
	end_host(b);
}

static void test_any_text(void **state)
{
	static const char *const texts[] = { "it's", "back\\slash", "a\nb\tc", "\\'); DROP TABLE records; --", "ж日本🙂", "%5c?&=#", "\\0", "{x}" };
	struct host *h = begin_host("ho'st\\", clickhouse_fresh_url());

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct store_query query = { .kind = "session", .service = texts[i], .before_id = "\xff'", .before_ns = UINT64_MAX };
		cleanup_buf struct buf seen = { 0 };
		cleanup_free char *body = NULL;
		struct err err = { 0 };
		uint64_t total = 0;
		size_t len;

		put(h, texts[i], texts[i], i + 1, texts[i]);
		record(h, texts[i], (unsigned)i, "x");
		assert_int_equal(store_list(h->store, &query, add_id, &seen, &total, &err), 0);
		assert_int_equal(total, 1);
		assert_int_equal(store_get(h->store, "session", "default", texts[i], &body, &len, &err), 0);
		assert_string_equal(body, texts[i]);
		assert_int_equal(store_delete(h->store, "session", "default", texts[i], &err), 0);
	}
	check_list(h, true, "", 0);
	check_windows(h, &(struct store_day){ DAY, 7, "ho'st\\" },
		      "it's@0=x back\\slash@1=x a\nb\tc@2=x \\'); DROP TABLE records; --@3=x ж日本🙂@4=x %5c?&=#@5=x \\0@6=x {x}@7=x ");
	end_host(h);
}

/* ---- what is not needed any more ------------------------------------------------------------------------- */

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

/* What is gone goes from the disk, and what is there reads as before. */
static void test_cleaning(void **state)
{
	static const struct store_day old = { .day = 19000, .retention_days = 7 }, dropped = { .day = 19000, .retention_days = 30 };
	struct host *h = new_host("a", clickhouse_fresh_url());
	const struct store_chunk piece = { STORE_CHUNK_STACKS, "dict", 4 }, settled = { STORE_CHUNK_SETTLED, "all", 3 };
	const struct store_minute minute = { .minute = 1, .samples = 3, .profiled_ms = 60000 };
	struct store_window window = { .service = "web", .type = "cpu", .owners = ",d:1,", .from_ns = 19000 * 86400ull * NS_PER_S,
				       .samples = 1, .data = "x", .len = 1 };
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
	assert_int_equal(ops->history_roll(engine, &old, window.from_ns, 0, &settled, NULL, &hour, 1, &err), 0);
	assert_int_equal(ops->history_roll(engine, &dropped, window.from_ns, 0, &settled, NULL, &hour, 1, &err), 0);
	assert_int_equal(ops->history_append(engine, &old, NULL, 0, NULL, 0, 1, 99, &err), 0);
	assert_int_equal(ops->history_drop(engine, &dropped, &err), 0);
	assert_int_equal(ops->session_remove(engine, "one", &err), 0);
	bytes = ops->bytes(engine);
	for (unsigned i = 0; i < 2; i++) {
		clickhouse_clean_now(engine);
		wait_rewritten();
	}
	/* The last position, what replaced the minutes, and the session that is there. */
	count_rows(h->url, "SELECT groupArray(row) FROM %s.minutes", "[7,7]");
	count_rows(h->url, "SELECT arraySort(groupArray(row)) FROM %s.hours", "[1,3,4,5]");
	count_rows(h->url, "SELECT id, kind = 0, count() FROM %s.chunks GROUP BY id, kind = 0 ORDER BY id", "one\t1\t1\ntwo\t0\t10");
	assert_true(ops->bytes(engine) <= bytes);
	assert_int_equal(ops->history_position(engine, &old, &identity, &position, &err), 0);
	assert_int_equal(position, 99);
	assert_int_equal(ops->history_dictionary(engine, &old, see_chunk, &seen, NULL, &err), 0);
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, "all ");
	ops->close(engine);
	end_host(h);
}

/* ---- a server in trouble ------------------------------------------------------------------------------- */

static void test_server_away(void **state)
{
	struct host *h = begin_host("a", clickhouse_fresh_url());
	cleanup_free char *body = NULL;
	struct err err = { 0 };
	uint64_t begin, waits;
	size_t len;

	append(h, "sess-1", "before", 1);
	check_session(h, "sess-1", "before ");
	clickhouse_kill();
	begin = clock_monotonic_ns();
	for (unsigned i = 0; i < 20; i++) {
		append(h, "sess-1", "x", i + 2);
		put(h, "s1", "web", i, "x");
		record(h, "web", i, "x");
	}
	waits = store_waiting_bytes(h->store);
	assert_true(waits > 0);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(store_get(h->store, "session", "default", "s1", &body, &len, &err), -EIO);
		assert_string_equal(err.word, "StoreUnavailable");
		assert_non_null(strstr(err.text, "127.0.0.1:"));
	}
	assert_true(clock_monotonic_ns() - begin < SHORT);
	/* A life without a server, and one that begins without. */
	close_host(h);
	open_host(h);
	assert_true(store_waiting_bytes(h->store) >= waits);
	put(h, "s2", "web", 1, "x");
	clickhouse_start();
	/* Whoever asks makes it try again. */
	for (unsigned i = 0; i < 100 && store_get(h->store, "session", "default", "s2", &body, &len, &err) == -EIO; i++)
		clock_sleep_ns(100 * NS_PER_MS);
	check_session(h, "sess-1", "before x x x x x x x x x x x x x x x x x x x x ");
	check_list(h, false, "a/s1 a/s2 ", 2);
	assert_int_equal(store_waiting_bytes(h->store), 0);
	end_host(h);
}

/* It takes connections and says nothing. */
static void test_server_hangs(void **state)
{
	struct host *h = begin_host("a", clickhouse_fresh_url());
	uint64_t begin;

	append(h, "sess-1", "before", 1);
	check_session(h, "sess-1", "before ");
	clickhouse_freeze();
	begin = clock_monotonic_ns();
	for (unsigned i = 0; i < 50; i++)
		append(h, "sess-1", "x", i + 2);
	assert_true(clock_monotonic_ns() - begin < SHORT);
	clickhouse_thaw();
	assert_int_equal(store_session_remove(h->store, "sess-1", NULL), 0);
	append(h, "sess-1", "after", 1);
	check_session(h, "sess-1", "after ");
	end_host(h);
}

/* The files of the journal, as they were before a crash, are all sent again. */
static void test_sent_twice(void **state)
{
	struct host *h = begin_host("a", clickhouse_fresh_url());
	struct err err = { 0 };
	char command[192];

	check_list(h, false, "", 0);
	clickhouse_kill();
	put(h, "s1", "web", 1, "x");
	put(h, "s2", "web", 2, "x");
	assert_int_equal(store_delete(h->store, "session", "default", "s1", &err), 0);
	put(h, "s1", "web", 3, "y");
	append(h, "sess-1", "gone", 1);
	assert_int_equal(store_session_remove(h->store, "sess-1", &err), 0);
	append(h, "sess-1", "one", 1);
	append(h, "sess-1", "two", 2);
	record(h, "web", 0, "gone");
	assert_int_equal(store_history_drop(h->store, &week, &err), 0);
	record(h, "web", 0, "a");
	record(h, "web", 0, "b");
	close_host(h);
	(void)snprintf(command, sizeof(command), "cp -r %s/clickhouse %s/copy", h->dir, h->dir);
	assert_int_equal(system(command), 0);
	clickhouse_start();
	for (unsigned i = 0; i < 3; i++) {
		open_host(h);
		check_list(h, false, "a/s1 a/s2 ", 2);
		check_session(h, "sess-1", "one two ");
		check_windows(h, &week, "web@0=a web@0=b ");
		close_host(h);
		(void)snprintf(command, sizeof(command), "cp %s/copy/*.journal %s/clickhouse/", h->dir, h->dir);
		assert_int_equal(system(command), 0);
	}
	end_host(h);
}

/* What the server will never take does not hold up the rest. */
static void test_refused_operation(void **state)
{
	struct host *h = begin_host("a", clickhouse_fresh_url());
	const struct journal_op bad = { .table = 1, .number = 2, .data = "no row", .len = 6 };
	cleanup_close int dir = -1;
	struct journal *journal = NULL;
	struct err err = { 0 };
	uint64_t total;
	char path[64];
	struct stat st;

	close_host(h);
	dir = open(h->dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(journal_open(dir, h->dir, &journal, &err), 0);
	(void)journal_begin(journal);
	assert_int_equal(journal_write(journal, &bad, false, &err), 0);
	journal_close(journal);
	open_host(h);
	put(h, "s1", "web", 1, "x");
	for (unsigned i = 0; i < 200 && store_waiting_bytes(h->store); i++) {
		(void)!store_list(h->store, &(struct store_query){ .kind = "session" }, NULL, NULL, &total, NULL);
		clock_sleep_ns(50 * NS_PER_MS);
	}
	check_list(h, false, "a/s1 ", 1);
	(void)snprintf(path, sizeof(path), "%s/clickhouse/refused", h->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 6);
	end_host(h);
}

/* ---- answers of somebody who is no ClickHouse ------------------------------------------------------------ */

struct liar {
	int fd;
	_Atomic(const char *) answer; /* to what is asked after opening; with status line */
	_Atomic size_t len;
	atomic_bool stop;
	pthread_t thread;
	char url[64];
};

static void answer_one(struct liar *liar, int fd)
{
	static const uint8_t zero[12] = { 0xa5, 0xae, 0xe1, 0x9e }, one[12] = { 0xa5, 0xae, 0xe1, 0x9e, 1 };
	char request[4096], head[128];
	const void *body = "";
	size_t body_len = 0;
	ssize_t len = recv(fd, request, sizeof(request) - 1, 0);

	if (len <= 0)
		return;
	request[len] = '\0';
	if (!strstr(request, "\r\n\r\n") || !strstr(request, "\r\n\r\n")[4])
		len += recv(fd, request + len, sizeof(request) - 1 - (size_t)len, 0);
	request[len] = '\0';
	if (strstr(request, "max(version)"))
		body = one, body_len = sizeof(one);
	else if (strstr(request, "max(n)"))
		body = zero, body_len = sizeof(zero);
	else if (!strstr(request, "CREATE")) {
		(void)!send(fd, atomic_load(&liar->answer), atomic_load(&liar->len), MSG_NOSIGNAL);
		return;
	}
	(void)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", body_len);
	(void)!send(fd, head, strlen(head), MSG_NOSIGNAL | MSG_MORE);
	(void)!send(fd, body, body_len, MSG_NOSIGNAL);
}

static void *lie(void *arg)
{
	struct liar *liar = arg;

	while (!atomic_load(&liar->stop)) {
		cleanup_close int fd = accept(liar->fd, NULL, NULL);

		if (fd >= 0)
			answer_one(liar, fd);
	}
	return NULL;
}

static void begin_liar(struct liar *liar)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);

	liar->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(liar->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(liar->fd, 16), 0);
	assert_int_equal(getsockname(liar->fd, (struct sockaddr *)&at, &len), 0);
	(void)snprintf(liar->url, sizeof(liar->url), "clickhouse://127.0.0.1:%u/lies", ntohs(at.sin_port));
	assert_int_equal(pthread_create(&liar->thread, NULL, lie, liar), 0);
}

static void end_liar(struct liar *liar)
{
	atomic_store(&liar->stop, true);
	(void)shutdown(liar->fd, SHUT_RDWR);
	assert_int_equal(pthread_join(liar->thread, NULL), 0);
	(void)close(liar->fd);
}

static int never(void *ctx, const struct store_record *record)
{
	fail_msg("a row was made of an answer that is none: %s", record->id);
	return 0;
}

static int never_chunk(void *ctx, const struct store_chunk *chunk)
{
	fail_msg("a chunk was made of an answer that is none");
	return 0;
}

static int never_window(void *ctx, const struct store_window *window)
{
	fail_msg("a window was made of an answer that is none");
	return 0;
}

static void ask_everything(struct host *h, const char *name)
{
	const struct store_query query = { .kind = "session" };
	const struct store_window_query all = { .with_data = true };
	char *body = (char *)1;
	struct err err = { 0 };
	uint64_t a = 7, b = 7;
	int rc[6];

	rc[0] = store_get(h->store, "session", "default", "x", &body, NULL, &err);
	rc[1] = store_list(h->store, &query, never, NULL, NULL, &err);
	rc[2] = store_session_read(h->store, "x", never_chunk, NULL, NULL, &err);
	rc[3] = store_history_windows(h->store, &week, &all, never_window, NULL, NULL, &err);
	rc[4] = store_history_position(h->store, &week, &a, &b, &err);
	rc[5] = store_history_days(h->store, true, see_day, NULL, &err);
	for (size_t i = 0; i < ARRAY_SIZE(rc); i++)
		if (rc[i] != -EIO)
			fail_msg("%s: question %zu: %d", name, i, rc[i]);
	assert_ptr_equal(body, (char *)1);
	assert_true(a == 7 && b == 7);
	assert_string_equal(err.word, "StoreUnavailable");
	assert_non_null(strstr(err.text, "127.0.0.1"));
}

#define HEAD(length) "HTTP/1.1 200 OK\r\nContent-Length: " length "\r\nConnection: close\r\n\r\n"
#define MARK	     "\xa5\xae\xe1\x9e"

static void test_hostile_answers(void **state)
{
#define ROW(name, text) { name, text, sizeof(text) - 1 }
	static const struct {
		const char *name, *text;
		size_t len;
	} rows[] = {
		ROW("no HTTP", "SSH-2.0-OpenSSH_9.2\r\n"),
		ROW("nothing", ""),
		ROW("garbage", HEAD("8") "garbage!"),
		ROW("shorter than it says", HEAD("100") MARK "\1"),
		ROW("a row that is cut", HEAD("6") MARK "\1\0"),
		ROW("a huge length", HEAD("14") MARK "\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"),
		ROW("a length that never ends", HEAD("16") MARK "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		ROW("a text without its end", HEAD("14") MARK "\3abc\3abc\1"),
		ROW("an exception behind a 200", HEAD("70") "Code: 241. DB::Exception: Memory limit (total) exceeded: would use 9 G"),
		ROW("an exception", "HTTP/1.1 500 Oh\r\nContent-Length: 28\r\nConnection: close\r\n\r\nCode: 60, DB::Exception: \n\x1b[m"),
		ROW("a mark alone", HEAD("4") MARK),
		ROW("broken chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
	};
	struct liar liar = { .answer = "" };
	struct host *h;

	begin_liar(&liar);
	h = begin_host("a", liar.url);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		atomic_store(&liar.answer, rows[i].text);
		atomic_store(&liar.len, rows[i].len);
		ask_everything(h, rows[i].name);
	}
	end_host(h);
	end_liar(&liar);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_password),
		cmocka_unit_test(test_newer_format_is_refused),
		cmocka_unit_test(test_two_hosts),
		cmocka_unit_test(test_any_text),
		cmocka_unit_test(test_server_away),
		cmocka_unit_test(test_server_hangs),
		cmocka_unit_test(test_sent_twice),
		cmocka_unit_test(test_refused_operation),
		cmocka_unit_test(test_hostile_answers),
		cmocka_unit_test(test_cleaning),
		cmocka_unit_test(test_spans_of_others),
	};

	return cmocka_run_group_tests_name("store_clickhouse", tests, NULL, NULL);
}
