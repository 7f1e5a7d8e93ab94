// SPDX-License-Identifier: Apache-2.0
/* The ClickHouse engine on a real cluster of three replicas (tests/support/clickhouse_cluster.py):
 * tables on both, reads behind a balancer, a quorum without a replica, and cleaning. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/store/clickhouse.h"
#include "agent/store/store.h"
#include "agent/store/store_engine.h"
#include "tests/support/clickhouse.h"
#include "tests/support/clickhouse_host.h"

#define DATABASES 6 /* one for each call of url_of() with 0 */
#define CLUSTER "tests/support/clickhouse_cluster.py"
#define QUORUM	"quorum@" /* a user whose profile has insert_quorum=2 */

enum { FIRST, SECOND, THIRD, BALANCER, PORTS };

static struct {
	FILE *to, *from; /* the program that runs the cluster */
	pid_t pid;
	unsigned ports[PORTS];
	unsigned databases;
} cluster;

/* ---- the cluster ---------------------------------------------------------------------------- */

/* @login: "" or QUORUM. @database 0: one that no other test uses. */
static const char *url_of(const char *login, int where, unsigned database)
{
	static char url[96];

	if (!database)
		database = ++cluster.databases;
	assert_in_range(database, 1, DATABASES);
	(void)snprintf(url, sizeof(url), "clickhouse://%s127.0.0.1:%u/t%u?cluster=main", login,
		       cluster.ports[where], database);
	return url;
}

static int begin_cluster(void **state)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	cluster.pid = fork();
	assert_true(cluster.pid >= 0);
	if (cluster.pid == 0) {
		(void)dup2(pair[1], 0);
		(void)dup2(pair[1], 1);
		(void)execlp("python3", "python3", CLUSTER, (char *)NULL);
		_exit(127);
	}
	(void)close(pair[1]);
	cluster.to = fdopen(pair[0], "w");
	cluster.from = fdopen(fcntl(pair[0], F_DUPFD_CLOEXEC, 0), "r");
	assert_true(cluster.to && cluster.from);
	for (int i = 0; i < PORTS; i++)
		if (fscanf(cluster.from, "%u", &cluster.ports[i]) != 1)
			fail_msg("%s did not start", CLUSTER);
	/* Before a replica is killed: 18.16 may not run statements ON CLUSTER after that. */
	for (unsigned i = 1; i <= DATABASES; i++)
		end_host(begin_host("setup", url_of("", FIRST, i)));
	return 0;
}

/* The program sees the end of its input, and ends the servers. */
static int end_cluster(void **state)
{
	int status;

	(void)shutdown(fileno(cluster.to), SHUT_WR);
	(void)waitpid(cluster.pid, &status, 0);
	(void)fclose(cluster.from);
	return fclose(cluster.to);
}

/* @verb: "kill" or "start", which returns when the replica answers. */
static void tell(const char *verb, int replica)
{
	char answer[8] = "";

	(void)fprintf(cluster.to, "%s %d\n", verb, replica + 1);
	(void)fflush(cluster.to);
	if (fscanf(cluster.from, "%7s", answer) != 1 || strcmp(answer, "ok") != 0)
		fail_msg("%s %d: %s", verb, replica + 1, answer);
}

static void check_at(int replica, const char *what, const char *expect)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	char database[16];

	(void)snprintf(database, sizeof(database), "t%u", cluster.databases);
	buf_printf(&sql, what, database);
	clickhouse_query_at(cluster.ports[replica], sql.data, &answer);
	if (strcmp(answer.data, expect) != 0)
		fail_msg("replica %d: %s\n%s\ninstead of\n%s", replica + 1, sql.data, answer.data, expect);
}

static void check_all(const char *what, const char *expect)
{
	for (int replica = FIRST; replica <= THIRD; replica++)
		check_at(replica, what, expect);
}

/* ---- what a host sees ----------------------------------------------------------------------- */

/* @h reads the session of a writer of @count numbers. */
static void check_numbers(struct host *h, const char *session, unsigned count)
{
	cleanup_buf struct buf expect = { 0 }, seen = { 0 };
	struct err err = { 0 };

	for (unsigned i = 1; i <= count; i++)
		buf_printf(&expect, "%u ", i);
	if (store_session_read(h->store, session, see_chunk, &seen, NULL, &err) < 0)
		fail_msg("%s, %s of %u: %s", h->name, session, count, err.text);
	buf_add_char(&expect, '\0');
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect.data);
}

static int add_samples(void *ctx, const struct store_window *window)
{
	*(uint64_t *)ctx += window->samples;
	return 0;
}

static void check_samples(struct host *h, const char *of, uint64_t expect)
{
	const struct store_window_query query = { 0 };
	struct store_day day = week;
	uint64_t samples = 0;
	struct err err = { 0 };

	strcpy(day.host, strcmp(h->name, of) == 0 ? "" : of);
	if (store_history_windows(h->store, &day, &query, add_samples, &samples, NULL, &err) < 0)
		fail_msg("%s: %s", h->name, err.text);
	assert_int_equal(samples, expect);
}

static void check_records(struct host *h, uint64_t expect)
{
	const struct store_query query = { .kind = "session", .every_host = true, .limit = 1 };
	uint64_t total = 0;
	struct err err = { 0 };

	if (store_list(h->store, &query, NULL, NULL, &total, &err) < 0)
		fail_msg("%s: %s", h->name, err.text);
	assert_int_equal(total, expect);
}

static void write_number(struct host *h, unsigned number)
{
	char text[STORE_HOST_SIZE + 16];

	(void)snprintf(text, sizeof(text), "%u", number);
	append(h, h->name, text, number);
	record(h, "web", number % 60, "x");
	(void)snprintf(text, sizeof(text), "%s-%u", h->name, number);
	put(h, text, "web", number, "x");
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_tables(void **state)
{
	struct host *h = begin_host("a", url_of(QUORUM, FIRST, 0));

	check_all("SELECT count(), countIf(engine LIKE 'Replicated%%'), countIf(engine = "
		   "'MaterializedView') FROM system.tables WHERE database = '%s' AND name NOT LIKE '.%%'",
		   "12\t8\t4");
	check_all("SELECT groupUniqArray(total_replicas) FROM system.replicas WHERE database = '%s'",
		  "[3]");
	end_host(h);
}

/* A host reads what it has written, whichever replica a balancer asks, and so does another host at
 * the other replica. */
static void test_reads_follow_writes(void **state)
{
	struct host *a = begin_host("a", url_of(QUORUM, BALANCER, 0)),
		    *b = begin_host("b", url_of(QUORUM, SECOND, cluster.databases));

	for (unsigned i = 1; i <= 30; i++) {
		write_number(a, i);
		check_numbers(a, "a", i);
		check_samples(a, "a", i);
		check_records(a, i);
		check_numbers(b, "a", i);
		check_records(b, i);
	}
	check_samples(b, "a", 30);
	end_host(a);
	end_host(b);
}

static void *fetch_again(void *ctx)
{
	cleanup_buf struct buf answer = { 0 };

	clock_sleep_ns(NS_PER_S);
	clickhouse_query_at(cluster.ports[THIRD], "SYSTEM START REPLICATION QUEUES", &answer);
	return ctx;
}

/* A replica that lacks what others have taken is asked again until it has that; it answers nothing
 * older meanwhile. */
static void test_replica_that_is_behind(void **state)
{
	struct host *a = begin_host("a", url_of(QUORUM, FIRST, 0)),
		    *b = begin_host("b", url_of(QUORUM, THIRD, cluster.databases));
	cleanup_buf struct buf answer = { 0 };
	pthread_t thread;

	write_number(a, 1);
	check_numbers(a, "a", 1);
	check_numbers(b, "a", 1);
	clickhouse_query_at(cluster.ports[THIRD], "SYSTEM STOP REPLICATION QUEUES", &answer);
	write_number(a, 2);
	check_numbers(a, "a", 2);
	assert_int_equal(pthread_create(&thread, NULL, fetch_again, NULL), 0);
	check_numbers(b, "a", 2);
	(void)pthread_join(thread, NULL);
	end_host(a);
	end_host(b);
}

/* While most replicas are away, new data waits on the host. */
static void test_quorum(void **state)
{
	struct host *h = begin_host("a", url_of(QUORUM, FIRST, 0));
	cleanup_free char *body = NULL;
	struct err err = { 0 };
	size_t len;

	write_number(h, 1);
	check_numbers(h, "a", 1);
	tell("kill", SECOND);
	tell("kill", THIRD);
	write_number(h, 2);
	assert_int_equal(store_get(h->store, "session", "default", "a-2", &body, &len, &err), -EIO);
	assert_string_equal(err.word, "StoreUnavailable");
	if (!strstr(err.text, "start the other replicas"))
		fail_msg("%s", err.text);
	assert_true(store_waiting_bytes(h->store) > 0);
	tell("start", SECOND);
	tell("start", THIRD);
	while (store_get(h->store, "session", "default", "a-2", &body, &len, &err) < 0)
		clock_sleep_ns(100 * NS_PER_MS);
	check_numbers(h, "a", 2);
	check_samples(h, "a", 2);
	check_records(h, 2);
	end_host(h);
}

static void wait_rewritten(void)
{
	for (int replica = FIRST; replica <= THIRD; replica++) {
		for (;;) {
			cleanup_buf struct buf answer = { 0 };

			clickhouse_query_at(cluster.ports[replica],
					    "SELECT count() FROM system.mutations WHERE is_done = 0", &answer);
			if (strcmp(answer.data, "0") == 0)
				break;
			clock_sleep_ns(20 * NS_PER_MS);
		}
	}
}

/* Deleted rows and days that are over leave the disks of all replicas, whichever is asked. */
static void test_cleaning(void **state)
{
	static const struct store_day over = { .day = 19000, .retention_days = 7 };
	const struct store_chunk piece = { STORE_CHUNK_STACKS, "dict", 4 };
	struct store_window window = { .service = "web",
				       .type = "cpu",
				       .owners = ",d:1,",
				       .samples = 1,
				       .data = "x",
				       .len = 1 };
	const struct store_ops *ops;
	struct err err = { 0 };
	struct host *h;
	void *engine;

	for (int replica = FIRST; replica <= SECOND; replica++) {
		h = new_host("a", url_of("", replica, 0));
		window.from_ns = over.day * 86400ull * NS_PER_S;
		assert_int_equal(clickhouse_engine_open(h->dir, h->url, "a", &ops, &engine, &err), 0);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(ops->session_append(engine, i < 2 ? "one" : "two", &piece, 1, 1, i, &err), 0);
			assert_int_equal(ops->history_append(engine, &over, &piece, 1, &window, 1, 1, i, &err), 0);
		}
		window.from_ns = START;
		assert_int_equal(ops->history_append(engine, &week, &piece, 1, &window, 1, 1, 1, &err), 0);
		assert_int_equal(ops->history_drop(engine, &over, &err), 0);
		assert_int_equal(ops->session_remove(engine, "one", &err), 0);
		while (ops->waiting_bytes(engine))
			clock_sleep_ns(10 * NS_PER_MS);
		for (unsigned i = 0; i < 2; i++) {
			clickhouse_clean_now(engine);
			wait_rewritten();
		}
		check_all("SELECT groupUniqArray(day) FROM %s.minutes", "[20778]");
		check_all("SELECT count() FROM %s.hours", "0");
		check_all("SELECT id, kind = 0, count() FROM %s.chunks GROUP BY id, kind = 0 ORDER BY id",
			   "one\t1\t1\ntwo\t0\t4");
		ops->close(engine);
		end_host(h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_reads_follow_writes),
		cmocka_unit_test(test_replica_that_is_behind),
		cmocka_unit_test(test_quorum),
		cmocka_unit_test(test_cleaning),
	};

	return cmocka_run_group_tests(tests, begin_cluster, end_cluster);
}
