// SPDX-License-Identifier: Apache-2.0
/* A child writes and reports every acknowledged step through a pipe; it is killed at a random
 * moment. What was acknowledged must be there, what is there must be whole. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/store/store.h"
#include "tests/support/clickhouse.h"

#define KILLS	     50 /* PROFD_TEST_KILLS=1000 in make check-long */
#define SERVER_KILLS 20 /* where a life begins with a server's answers */

struct ack {
	uint32_t record; /* last number put */
	uint32_t chunk;	 /* last number appended */
	uint32_t sample; /* last number recorded in the history, one each; every tenth time they are
			    rolled up */
};

static const struct store_day day = { .day = 20778, .retention_days = 7 };
static const char *url; /* of the store; NULL = the embedded one */

static int record_one(struct store *store, uint32_t number, struct err *err)
{
	const struct store_minute minute = { .samples = number };
	struct store_window window = { .service = "web", .type = "cpu", .owners = ",default:19,",
				       .from_ns = day.day * 86400ull * NS_PER_S, .data = "x", .len = 1 };

	if (number % 10) {
		window.from_ns += number % 60 * 60 * NS_PER_S;
		window.samples = 1;
		return store_history_append(store, &day, NULL, 0, &window, 1, 1, number, err);
	}
	window.minutes = &minute;
	window.minute_count = 1;
	return store_history_roll(store, &day, window.from_ns, 0, NULL, NULL, &window, 1, err);
}

static int count_samples(void *ctx, const struct store_window *window)
{
	*(uint32_t *)ctx += (uint32_t)window->samples;
	return 0;
}

static void write_until_killed(const char *dir, struct ack last, int out)
{
	struct store *store = NULL;
	struct err err = { 0 };

	if (store_open(dir, url, "host", &store, &err) < 0)
		_exit(3);
	for (;;) {
		uint32_t numbers[64];
		struct store_chunk chunks[2] = { { STORE_CHUNK_STACKS, numbers, sizeof(numbers) },
						 { STORE_CHUNK_SAMPLES, numbers,
						   sizeof(numbers) } };
		char body[32];
		struct store_record record = { .kind = "session",
					       .tenant = "default",
					       .id = "a",
					       .service = "s",
					       .type = "cpu",
					       .status = "running",
					       .created_ns = 1,
					       .body = body };

		last.chunk++;
		for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
			numbers[i] = last.chunk;
		if (store_session_append(store, "sess-1", chunks, 2, 1, last.chunk, &err) < 0)
			_exit(4);
		last.record++;
		record.body_len = (size_t)snprintf(body, sizeof(body), "%u", last.record);
		if (store_put(store, &record, &err) < 0)
			_exit(5);
		last.sample++;
		if (record_one(store, last.sample, &err) < 0)
			_exit(7);
		if (write(out, &last, sizeof(last)) != sizeof(last))
			_exit(6);
	}
}

struct check {
	uint32_t expect; /* next chunk number */
	bool second;
};

static int check_chunk(void *ctx, const struct store_chunk *chunk)
{
	struct check *check = ctx;
	const uint32_t *numbers = chunk->data;

	assert_int_equal(chunk->len, 256);
	assert_int_equal(chunk->kind, check->second ? STORE_CHUNK_SAMPLES : STORE_CHUNK_STACKS);
	for (size_t i = 0; i < 64; i++)
		assert_int_equal(numbers[i], check->expect);
	check->expect += check->second;
	check->second = !check->second;
	return 0;
}

static struct ack verify(const char *dir, struct ack acked)
{
	struct check check = { .expect = 1 };
	cleanup(store) struct store *store = NULL;
	cleanup_free char *body = NULL;
	uint64_t identity, position = 0;
	struct err err = { 0 };
	unsigned damaged = 0;
	struct ack found = { 0 };
	int rc;

	if (store_open(dir, url, "host", &store, &err) < 0)
		fail_msg("%s", err.text);
	rc = store_session_read(store, "sess-1", check_chunk, &check, &damaged, &err);
	assert_true(rc == 0 || (rc == -ENOENT && acked.chunk == 0));
	assert_int_equal(damaged, 0);
	assert_false(check.second);
	found.chunk = check.expect - 1;
	if (rc == 0)
		assert_int_equal(
			store_session_position(store, "sess-1", &identity, &position, &err), 0);
	assert_int_equal(position, found.chunk);
	rc = store_get(store, "session", "default", "a", &body, NULL, &err);
	assert_true(rc == 0 || (rc == -ENOENT && acked.record == 0));
	found.record = rc == 0 ? (uint32_t)atoi(body) : 0;
	rc = store_history_windows(store, &day, &(struct store_window_query){ 0 }, count_samples,
				   &found.sample, &damaged, &err);
	assert_true((rc == 0 && damaged == 0) || (rc == -ENOENT && acked.sample == 0));
	assert_in_range(found.sample, acked.sample, acked.sample + 1);
	/* Acknowledged is there; at most the one step under way beyond it. */
	assert_in_range(found.chunk, acked.chunk, acked.chunk + 1);
	assert_in_range(found.record, acked.record, acked.record + 1);
	return found;
}

/* A life of the writer that goes on from @last and is killed after @ns, counted from its first step
 * if it is to be
 * @writing; what is there then. */
static struct ack live_and_die(const char *dir, struct ack last, bool writing, uint64_t ns)
{
	struct ack acked = last, got;
	int pipe_fds[2], status;
	pid_t child;

	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		write_until_killed(dir, last, pipe_fds[1]);
	(void)close(pipe_fds[1]);
	if (writing && read(pipe_fds[0], &got, sizeof(got)) == sizeof(got))
		acked = got;
	clock_sleep_ns(ns);
	assert_int_equal(kill(child, SIGKILL), 0);
	while (read(pipe_fds[0], &got, sizeof(got)) == sizeof(got))
		acked = got;
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status))
		fail_msg("the writer failed with %d", WEXITSTATUS(status));
	(void)close(pipe_fds[0]);
	return verify(dir, acked);
}

static void remove_folder(const char *dir)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

static void kill_often(int kills)
{
	char dir[] = "/tmp/profd-crash-XXXXXX";
	struct ack last = { 0 };
	const char *more = getenv("PROFD_TEST_KILLS");
	unsigned seed = 12345;

	kills = more ? atoi(more) : kills;

	assert_non_null(mkdtemp(dir));
	/* Half of them while it writes, however slow this host is, the others at any moment. */
	for (int i = 0; i < kills; i++)
		last = live_and_die(dir, last, i % 2,
				    (uint64_t)(rand_r(&seed) % 40) * NS_PER_MS + rand_r(&seed) % NS_PER_MS);
	print_message("%d kills, %u steps\n", kills, last.chunk);
	assert_true(last.chunk > 0 && last.sample > 0);
	remove_folder(dir);
}

static void test_kill_nine(void **state)
{
	kill_often(KILLS);
}

/* The sender is killed while data is on its way to the server. Each operation arrives or does not,
 * and is sent again. */
static void test_kill_nine_sender(void **state)
{
	static const enum clickhouse_engine engines[] = { CLICKHOUSE_DEBIANS, CLICKHOUSE_CURRENT };

	for (size_t i = 0; i < ARRAY_SIZE(engines); i++) {
		clickhouse_use(engines[i]);
		url = clickhouse_fresh_url();
		kill_often(SERVER_KILLS);
		url = NULL;
	}
}

/* Each at another moment of the first milliseconds, in which the files are made. */
static void test_kill_while_files_are_made(void **state)
{
	for (uint64_t i = 0; i < 200; i++) {
		char dir[] = "/tmp/profd-crash-XXXXXX";
		struct ack found;

		assert_non_null(mkdtemp(dir));
		found = live_and_die(dir, (struct ack){ 0 }, false, i * 75000);
		/* and life goes on */
		(void)live_and_die(dir, found, true, 0);
		remove_folder(dir);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_kill_nine),
					    cmocka_unit_test(test_kill_while_files_are_made),
					    cmocka_unit_test(test_kill_nine_sender) };

	return cmocka_run_group_tests_name("store_crash", tests, NULL, NULL);
}
