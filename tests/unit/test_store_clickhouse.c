// SPDX-License-Identifier: Apache-2.0
/* tools/test: takes minutes */
/* Tests of the ClickHouse engine alone: several hosts, and a server that is away, hangs, lies or
 * refuses. */
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
#include "tests/support/clickhouse_host.h"
#include "tests/support/store_fixture.h"

#define SHORT                                                                                      \
	(2 * NS_PER_S) /* what must not wait for a server takes less, however busy this host is */

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
	buf_printf(ctx, "%s@%llu=%.*s ", window->service,
		   (unsigned long long)((window->from_ns - START) / MINUTE), (int)window->len,
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

/* ---- opening --------------------------------------------------------------------------------- */

static void test_password(void **state)
{
	char url[128];
	struct store *store = (struct store *)1;
	struct err err = { 0 };
	struct host *h;

	(void)clickhouse_fresh_url();
	(void)snprintf(url, sizeof(url), "clickhouse://prof:wrong-secret@127.0.0.1:%u/pw",
		       clickhouse_port());
	h = new_host("a", url);
	assert_int_equal(store_open(h->dir, url, "a", &store, &err), -EIO);
	assert_ptr_equal(store, (struct store *)1);
	assert_string_equal(err.word, "StoreUnavailable");
	assert_null(strstr(err.text, "secret"));
	(void)snprintf(h->url, sizeof(h->url),
		       "clickhouse://prof:p%%40ss%%3aw%%2Frd@127.0.0.1:%u/pw", clickhouse_port());
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
	(void)snprintf(sql, sizeof(sql), "INSERT INTO %s.profd_format VALUES (99)",
		       strrchr(h->url, '/') + 1);
	clickhouse_query(sql, &answer);
	assert_int_equal(store_open(h->dir, h->url, "a", &h->store, &err), -EPROTO);
	assert_non_null(strstr(err.text, "newer profd"));
	end_host(h);
}

/* ---- several hosts --------------------------------------------------------------------------- */

static void test_two_hosts(void **state)
{
	struct host *a = begin_host("a", clickhouse_fresh_url()), *b = begin_host("b", a->url),
		    *none = begin_host("", a->url);
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
	assert_int_equal(store_history_windows(b->store, &of_a, &(struct store_window_query){ 0 },
					       see_window, NULL, NULL, &err),
			 -ENOENT);
	end_host(a);
	end_host(b);
	end_host(none);
}

static int add_samples(void *ctx, const struct store_span *span)
{
	*(uint64_t *)ctx += span->samples;
	return 0;
}

/* Counts stretches of ten minutes that begin between two minutes of the day. */
static uint64_t samples_between(struct host *h, const struct store_day *day, unsigned from,
				unsigned to)
{
	const struct store_window_query query = { .from_ns = START + from * MINUTE,
						  .to_ns = START + to * MINUTE };
	struct err err = { 0 };
	uint64_t samples = 0;
	int rc = store_history_spans(h->store, day, &query, 10 * MINUTE, add_samples, &samples, &err);

	if (rc < 0 && rc != -ENOENT)
		fail_msg("%s", err.text);
	return samples;
}

static uint64_t samples_of(struct host *h, const struct store_day *day)
{
	return samples_between(h, day, 0, 24 * 60);
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

/* A question about one host brings the sums of the others, each host's its own. */
static void test_spans_of_many_hosts(void **state)
{
	static const char *const names[] = { "h0", "h1", "h2", "h3", "h4", "h5" };
	struct host *own = begin_host("h3-own", clickhouse_fresh_url()), *hosts[ARRAY_SIZE(names)];
	struct err err = { 0 };

	record(own, "web", 1, "x");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		hosts[i] = begin_host(names[i], own->url);
		for (unsigned minute = 0; minute <= i; minute++)
			record(hosts[i], "web", minute, "x");
	}
	for (unsigned more = 0; more < 3; more++) {
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			struct store_day day = { DAY, 7, "" };

			strcpy(day.host, names[i]);
			while (samples_of(own, &day) != i + 1 + more)
				clock_sleep_ns(50 * NS_PER_MS);
		}
		assert_int_equal(samples_of(own, &week), 1);
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			record(hosts[i], "web", (unsigned)i + 1 + more, "x");
	}
	assert_int_equal(store_history_drop(hosts[2]->store, &week, &err), 0);
	while (samples_of(own, &(struct store_day){ DAY, 7, "h2" }) != 0)
		clock_sleep_ns(50 * NS_PER_MS);
	assert_int_equal(samples_of(own, &(struct store_day){ DAY, 7, "h1" }), 5);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		end_host(hosts[i]);
	end_host(own);
}

/* The time asked for alone is read of many hosts; another time is not answered from its sums. */
static void test_spans_of_a_part(void **state)
{
	struct host *own = begin_host("own", clickhouse_fresh_url()), *hosts[3];
	char name[] = "h0";

	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++, name[1]++) {
		hosts[i] = begin_host(name, own->url);
		for (unsigned minute = 5; minute < 35 + i; minute++)
			record(hosts[i], "web", minute, "x");
		settle(hosts[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct store_day day = { DAY, 7, "" };

		(void)snprintf(day.host, sizeof(day.host), "h%u", i);
		while (samples_between(own, &day, 10, 20) != 10)
			clock_sleep_ns(50 * NS_PER_MS);
		assert_int_equal(samples_between(own, &day, 11, 21), 10);
		assert_int_equal(samples_between(own, &day, 11, 19), 0);
		assert_int_equal(samples_between(own, &day, 0, 10), 5);
		assert_int_equal(samples_between(own, &day, 10, 40), 25 + i);
		assert_int_equal(samples_of(own, &day), 30 + i);
		end_host(hosts[i]);
	}
	end_host(own);
}

static unsigned questions(void)
{
	cleanup_buf struct buf answer = { 0 };

	clickhouse_query("SELECT value FROM system.events WHERE event = 'SelectQuery'", &answer);
	return (unsigned)atoi(answer.data);
}

/* A question about one host says of others, too, that they have nothing in the time asked for. */
static void test_spans_of_idle_hosts(void **state)
{
	struct host *own = begin_host("own", clickhouse_fresh_url()), *hosts[8];
	char name[] = "h0";
	unsigned before;

	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++, name[1]++) {
		hosts[i] = begin_host(name, own->url);
		record(hosts[i], "web", 5, "x");
		settle(hosts[i]);
	}
	while (samples_between(own, &(struct store_day){ DAY, 7, "h7" }, 0, 10) != 1)
		clock_sleep_ns(50 * NS_PER_MS);
	before = questions();
	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct store_day day = { DAY, 7, "" };

		(void)snprintf(day.host, sizeof(day.host), "h%u", i);
		assert_int_equal(samples_between(own, &day, 10, 20), 0);
	}
	/* that of the counter, of the days' versions, and two of the hosts: not one of each host */
	assert_true(questions() - before < 6);
	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++)
		end_host(hosts[i]);
	end_host(own);
}

static void test_any_text(void **state)
{
	static const char *const texts[] = { "it's",	     "back\\slash",
					     "a\nb\tc",	     "\\'); DROP TABLE records; --",
					     "ж日本🙂", "%5c?&=#",
					     "\\0",	     "{x}" };
	struct host *h = begin_host("ho'st\\", clickhouse_fresh_url());

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct store_query query = { .kind = "session",
					     .service = texts[i],
					     .before_id = "\xff'",
					     .before_ns = UINT64_MAX };
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
		      "it's@0=x back\\slash@1=x a\nb\tc@2=x \\'); DROP TABLE records; --@3=x "
		      "ж日本🙂@4=x %5c?&=#@5=x \\0@6=x {x}@7=x ");
	end_host(h);
}

/* ---- a server in trouble --------------------------------------------------------------------- */

static void test_server_away(void **state)
{
	struct host *h = begin_host("a", clickhouse_fresh_url());
	cleanup_free char *body = NULL;
	struct err err = { 0 };
	uint64_t begin, waits;
	size_t len;

	append(h, "sess-1", "before", 1);
	check_session(h, "sess-1", "before ");
	check_days(h, false, "");
	clickhouse_kill();
	check_days(h, false, ""); /* as long as it writes nothing, it need not ask */
	begin = clock_monotonic_ns();
	for (unsigned i = 0; i < 20; i++) {
		append(h, "sess-1", "x", i + 2);
		put(h, "s1", "web", i, "x");
		record(h, "web", i, "x");
	}
	waits = store_waiting_bytes(h->store);
	assert_true(waits > 0);
	assert_int_equal(store_history_days(h->store, false, see_day, NULL, &err), -EIO);
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
	for (unsigned i = 0;
	     i < 100 && store_get(h->store, "session", "default", "s2", &body, &len, &err) == -EIO;
	     i++)
		clock_sleep_ns(100 * NS_PER_MS);
	check_session(h, "sess-1", "before x x x x x x x x x x x x x x x x x x x x ");
	check_list(h, false, "a/s1 a/s2 ", 2);
	check_days(h, false, "20778: ");
	assert_int_equal(store_waiting_bytes(h->store), 0);
	end_host(h);
}

/* Asks until the server answers; whoever asks makes the sender try again. */
static void await_server(struct host *h)
{
	cleanup_free char *body = NULL;
	struct err err = { 0 };
	size_t len;
	int rc = -EIO;

	for (unsigned i = 0; i < 600 && rc == -EIO; i++) {
		rc = store_get(h->store, "session", "default", "nobody", &body, &len, &err);
		if (rc == -EIO)
			clock_sleep_ns(100 * NS_PER_MS);
	}
	assert_int_equal(rc, -ENOENT);
}

/* A backlog in which tables alternate goes as a few INSERTs. */
static void test_backlog(void **state)
{
	struct host *h = begin_host("a", clickhouse_fresh_url());
	static const char *const tables[] = { "minutes", "chunks", "records" };

	check_list(h, false, "", 0);
	clickhouse_kill();
	for (unsigned i = 0; i < 60; i++) {
		append(h, "sess-1", "x", i + 1);
		record(h, "web", i, "x");
		put(h, "s1", "web", i, "x");
	}
	clickhouse_start();
	await_server(h);
	assert_int_equal(store_waiting_bytes(h->store), 0);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		cleanup_buf struct buf sql = { 0 }, answer = { 0 };

		/* A partition numbers its INSERTs. */
		buf_printf(&sql,
			   "SELECT max(max_block_number) <= 4 FROM system.parts WHERE database = '%s' "
			   "AND table = '%s'",
			   strrchr(h->url, '/') + 1, tables[i]);
		clickhouse_query(sql.data, &answer);
		assert_string_equal(answer.data, "1");
	}
	check_list(h, false, "a/s1 ", 1);
	end_host(h);
}

struct load {
	struct host *host;
	atomic_bool stop;
	unsigned written;
};

static void *write_on(void *arg)
{
	struct load *load = arg;

	while (!atomic_load(&load->stop)) {
		const unsigned number = ++load->written;
		char text[16];

		(void)snprintf(text, sizeof(text), "%u", number);
		append(load->host, "sess-1", text, number);
		record(load->host, "web", number % 60, "x");
		(void)snprintf(text, sizeof(text), "s%u", number);
		put(load->host, text, "web", number, "x");
		clock_sleep_ns(5 * NS_PER_MS);
	}
	return NULL;
}

static int add_samples_of(void *ctx, const struct store_window *window)
{
	*(uint64_t *)ctx += window->samples;
	return 0;
}

/* The server is killed 20 times while a host writes: nothing is lost, nothing is there twice. */
static void test_server_killed_under_load(void **state)
{
	const struct store_query all = { .kind = "session", .tenant = "default", .limit = 1 };
	const struct store_window_query query = { 0 };
	struct load load = { .host = begin_host("a", clickhouse_fresh_url()) };
	cleanup_buf struct buf expect = { 0 }, found = { 0 };
	struct err err = { 0 };
	uint64_t samples = 0, total = 0;
	unsigned damaged = 0;
	pthread_t thread;

	await_server(load.host);
	assert_int_equal(pthread_create(&thread, NULL, write_on, &load), 0);
	for (unsigned i = 0; i < 20; i++) {
		clock_sleep_ns((50 + i * 37 % 200) * NS_PER_MS);
		clickhouse_kill();
		clock_sleep_ns(20 * NS_PER_MS);
		clickhouse_start();
		await_server(load.host);
	}
	atomic_store(&load.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	for (unsigned i = 1; i <= load.written; i++)
		buf_printf(&expect, "%u ", i);
	assert_int_equal(store_session_read(load.host->store, "sess-1", see_chunk, &found, NULL, &err), 0);
	assert_int_equal(found.len, expect.len);
	assert_memory_equal(found.data, expect.data, expect.len);
	assert_int_equal(store_history_windows(load.host->store, &week, &query, add_samples_of, &samples,
					       &damaged, &err),
			 0);
	assert_int_equal(samples, load.written);
	assert_int_equal(store_list(load.host->store, &all, add_id, &found, &total, &err), 0);
	assert_int_equal(total, load.written);
	end_host(load.host);
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

static void query_about(const char *format, const char *database, const char *table,
			struct buf *ret)
{
	cleanup_buf struct buf sql = { 0 };

	ret->len = 0;
	buf_printf(&sql, format, database, table);
	clickhouse_query(sql.data, ret);
}

/* Replicas know a block that they have by its token. One server stands for them, whose tables
 * remember blocks. */
static void test_sent_twice_to_replicas(void **state)
{
	static const char *const tables[] = { "records", "chunks", "minutes", "hours",
					      "record_sizes", "chunk_sizes", "days" };
	struct host *h = begin_host("a", clickhouse_fresh_url());
	cleanup_buf struct buf answer = { 0 }, first = { 0 };
	char command[192], database[16];

	(void)snprintf(database, sizeof(database), "%s", strrchr(h->url, '/') + 1);
	check_list(h, false, "", 0);
	clickhouse_query("SELECT version()", &answer);
	if (atoi(answer.data) < 23) {
		end_host(h);
		return; /* blocks have no tokens */
	}
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		query_about("ALTER TABLE %s.%s MODIFY SETTING non_replicated_deduplication_window = 9", database,
			    tables[i], &answer);
	clickhouse_kill();
	close_host(h);
	strcat(h->url, "?cluster=main");
	open_host(h);
	for (unsigned i = 0; i < 3; i++) {
		put(h, i == 1 ? "s1" : "s2", "web", i, "x");
		append(h, "sess-1", "one", i);
		record(h, "web", i, "a");
	}
	close_host(h);
	(void)snprintf(command, sizeof(command), "cp -r %s/clickhouse %s/copy", h->dir, h->dir);
	assert_int_equal(system(command), 0);
	clickhouse_start();
	query_about("SYSTEM STOP MERGES", "", "", &answer);
	for (unsigned i = 0; i < 3; i++) {
		open_host(h);
		check_session(h, "sess-1", "one one one ");
		query_about("SELECT sum(total_rows) FROM system.tables WHERE database = '%s'", database, "",
			    i ? &answer : &first);
		if (i)
			assert_string_equal(answer.data, first.data);
		close_host(h);
		(void)snprintf(command, sizeof(command), "cp %s/copy/*.journal %s/clickhouse/", h->dir, h->dir);
		assert_int_equal(system(command), 0);
	}
	end_host(h);
}

/* An operation that the server will never accept does not hold up the others. */
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

/* ---- answers of somebody who is no ClickHouse ------------------------------------------------ */

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
	static const uint8_t zero[12] = { 0xa5, 0xae, 0xe1, 0x9e },
			     two[12] = { 0xa5, 0xae, 0xe1, 0x9e, 2 },
			     modern[10] = { 0xa5, 0xae, 0xe1, 0x9e, 5, '2', '6', '.', '9', 0 };
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
		body = two, body_len = sizeof(two);
	else if (strstr(request, "version()"))
		body = modern, body_len = sizeof(modern);
	else if (strstr(request, "max(n)"))
		body = zero, body_len = sizeof(zero);
	else if (!strstr(request, "CREATE") && !strstr(request, "system.tables")) {
		(void)!send(fd, atomic_load(&liar->answer), atomic_load(&liar->len), MSG_NOSIGNAL);
		return;
	}
	(void)snprintf(head, sizeof(head),
		       "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
		       body_len);
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
		ROW("a length that never ends",
		    HEAD("16") MARK "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		ROW("a text without its end", HEAD("14") MARK "\3abc\3abc\1"),
		ROW("an exception behind a 200",
		    HEAD("70") "Code: 241. DB::Exception: Memory limit (total) exceeded: would use "
			       "9 G"),
		ROW("an exception", "HTTP/1.1 500 Oh\r\nContent-Length: 28\r\nConnection: "
				    "close\r\n\r\nCode: 60, DB::Exception: \n\x1b[m"),
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
		cmocka_unit_test(test_backlog),
		cmocka_unit_test(test_server_killed_under_load),
		cmocka_unit_test(test_server_hangs),
		cmocka_unit_test(test_sent_twice),
		cmocka_unit_test(test_sent_twice_to_replicas),
		cmocka_unit_test(test_refused_operation),
		cmocka_unit_test(test_hostile_answers),
		cmocka_unit_test(test_spans_of_others),
		cmocka_unit_test(test_spans_of_many_hosts),
		cmocka_unit_test(test_spans_of_a_part),
		cmocka_unit_test(test_spans_of_idle_hosts),
	};

	return store_fixture_run_on_clickhouse(tests, ARRAY_SIZE(tests));
}
