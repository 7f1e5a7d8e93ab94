// SPDX-License-Identifier: Apache-2.0
/* The spool: order, bound, what has been seen, reopening; a store that is away; answers of
 * receivers. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/store/store.h"
#include "api/push/push.h"
#include "api/push/push_http.h"
#include "api/push/push_spool.h"
#include "tests/support/session_fixture.h"

#define MB (1u << 20)

struct fixture {
	char dir[64], path[96];
	struct push_spool *spool;
};

static void open_spool(struct fixture *f, uint64_t max_bytes)
{
	struct err err = { 0 };

	if (push_spool_open(f->path, max_bytes, &f->spool, &err) < 0)
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/profd-push-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/spool", f->dir);
	open_spool(f, MB);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	push_spool_close(f->spool);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

static void test_oldest_first(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *data = NULL;
	char name[PUSH_NAME_SIZE] = "untouched";
	size_t len = 0;

	assert_int_equal(push_spool_first(f->spool, name), -ENOENT);
	assert_int_equal(push_spool_put(f->spool, "sess-2", "two", 3), 0);
	assert_int_equal(push_spool_put(f->spool, "sess-1", "one\0more", 8), 0);
	assert_int_equal(push_spool_put(f->spool, "sess-2", "three", 5), 0);
	assert_int_equal(push_spool_bytes(f->spool), 13);
	assert_int_equal(push_spool_first(f->spool, name), 0);
	assert_string_equal(name, "sess-1");
	assert_int_equal(push_spool_read(f->spool, name, &data, &len), 0);
	assert_int_equal(len, 8);
	assert_memory_equal(data, "one\0more", 8);
	push_spool_remove(f->spool, name);
	assert_int_equal(push_spool_first(f->spool, name), 0);
	assert_string_equal(name, "sess-2");
	push_spool_remove(f->spool, name);
	push_spool_remove(f->spool, "sess-none");
	assert_int_equal(push_spool_bytes(f->spool), 0);
	assert_int_equal(push_spool_first(f->spool, name), -ENOENT);
}

static void test_full(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *data = calloc(1, MB + 1);
	char name[PUSH_NAME_SIZE];

	for (int i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "sess-%d", i);
		assert_int_equal(push_spool_put(f->spool, name, data, MB / 4), 0);
	}
	assert_int_equal(push_spool_bytes(f->spool), MB);
	assert_int_equal(push_spool_dropped(f->spool), 6);
	assert_int_equal(push_spool_first(f->spool, name), 0);
	assert_string_equal(name, "sess-6");
	assert_int_equal(push_spool_put(f->spool, "sess-x", data, MB + 1), -EFBIG);
	assert_int_equal(push_spool_bytes(f->spool), MB);
}

static void test_names(void **state)
{
	static const char *const bad[] = { "", "../x", "a/b", "A", ".", "x.message",
					   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(push_spool_put(f->spool, bad[i], "x", 1), -EINVAL);
		assert_int_equal(push_spool_mark(f->spool, bad[i], 1), -EINVAL);
	}
}

static void test_seen_after_reopening(void **state)
{
	struct fixture *f = *state;
	uint64_t since_ns = push_spool_since_ns(f->spool);
	char name[PUSH_NAME_SIZE];

	assert_true(since_ns > 0);
	assert_false(push_spool_seen(f->spool, "sess-1"));
	assert_int_equal(push_spool_put(f->spool, "sess-1", "x", 1), 0);
	assert_int_equal(push_spool_mark(f->spool, "sess-1", 100), 0);
	assert_int_equal(push_spool_mark(f->spool, "sess-1", 100), 0);
	assert_int_equal(push_spool_mark(f->spool, "sess-2", 200), 0);
	assert_int_equal(push_spool_commit(f->spool, since_ns, 0), 0);
	assert_int_equal(push_spool_mark(f->spool, "sess-3", 300), 0);
	push_spool_close(f->spool);
	open_spool(f, MB);
	/* A message that was not made durable counts as not seen: it is written again under the
	 * same name. */
	assert_true(push_spool_seen(f->spool, "sess-1") && push_spool_seen(f->spool, "sess-2"));
	assert_false(push_spool_seen(f->spool, "sess-3"));
	assert_int_equal(push_spool_since_ns(f->spool), since_ns);
	assert_int_equal(push_spool_bytes(f->spool), 1);
	assert_int_equal(push_spool_first(f->spool, name), 0);
	assert_int_equal(push_spool_commit(f->spool, since_ns + 5, 150), 0);
	assert_false(push_spool_seen(f->spool, "sess-1"));
	push_spool_close(f->spool);
	open_spool(f, MB);
	assert_false(push_spool_seen(f->spool, "sess-1"));
	assert_true(push_spool_seen(f->spool, "sess-2"));
	assert_int_equal(push_spool_since_ns(f->spool), since_ns + 5);
}

static void test_foreign_files(void **state)
{
	static const char text[] = "since 7\nsess-1 5\nnonsense\n../x 6\n\nsess-2\n";
	struct fixture *f = *state;
	char path[128], name[PUSH_NAME_SIZE];

	push_spool_close(f->spool);
	(void)snprintf(path, sizeof(path), "%s/seen", f->path);
	assert_int_equal(io_write_file_atomic(AT_FDCWD, path, text, strlen(text), 0600), 0);
	(void)snprintf(path, sizeof(path), "%s/Not.A.message", f->path);
	assert_int_equal(io_write_file_atomic(AT_FDCWD, path, "x", 1, 0600), 0);
	open_spool(f, MB);
	assert_int_equal(push_spool_since_ns(f->spool), 7);
	assert_true(push_spool_seen(f->spool, "sess-1"));
	assert_false(push_spool_seen(f->spool, "sess-2"));
	assert_int_equal(push_spool_first(f->spool, name), -ENOENT);
}

/* Until when a turn that reads @store has seen everything; it begins an hour ago. */
static uint64_t since_after_turn(const struct fixture *f, struct sessions *sessions,
				 struct store *store, uint64_t begin_ns)
{
	const struct push_receiver receiver = {
		.name = "r", .kind = "otlp", .url = "http://127.0.0.1:1", .spool_bytes = MB
	};
	const struct push_options options = { .sessions = sessions, .store = store, .data_dir = f->dir,
					      .receivers = &receiver, .receiver_count = 1, .span_ns = 600 * NS_PER_S };
	cleanup(push_spool) struct push_spool *spool = NULL;
	char path[128], text[64];
	struct err err = { 0 };
	struct push *push;

	(void)snprintf(path, sizeof(path), "%s/r", f->path);
	assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
	(void)snprintf(path, sizeof(path), "%s/r/seen", f->path);
	(void)snprintf(text, sizeof(text), "since %" PRIu64 "\n", begin_ns);
	assert_int_equal(io_write_file_atomic(AT_FDCWD, path, text, strlen(text), 0600), 0);
	assert_int_equal(push_create(&options, &push, &err), 0);
	clock_sleep_ns(300 * NS_PER_MS);
	push_destroy(push);
	(void)snprintf(path, sizeof(path), "%s/r", f->path);
	assert_int_equal(push_spool_open(path, MB, &spool, &err), 0);
	return push_spool_since_ns(spool);
}

/* Sessions that end while the store cannot be read are found when it can be read again. */
static void test_store_away(void **state)
{
	const uint64_t begin_ns = clock_realtime_ns() - 3600 * NS_PER_S;
	struct fixture *f = *state;
	struct session_fixture *layer;
	void *layer_state;
	struct store *away;
	struct err err = { 0 };

	assert_int_equal(session_fixture_setup(&layer_state), 0);
	layer = layer_state;
	assert_int_equal(store_open(f->dir, "clickhouse://127.0.0.1:1/profd", "here", &away, &err), 0);
	assert_true(since_after_turn(f, layer->sessions, away, begin_ns) == begin_ns);
	store_close(away);
	assert_true(since_after_turn(f, layer->sessions, layer->store, begin_ns) > begin_ns);
	assert_int_equal(session_fixture_teardown(&layer_state), 0);
}

static void test_answers(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		uint64_t rejected;
		const char *text;
	} rows[] = {
		{ "", 0, 0, "" },
		{ "\x0a\x00", 2, 0, "" },
		{ "\x0a\x02\x08\x03", 4, 3, "" },
		{ "\x0a\x07\x08\x03\x12\x03no\x1b", 9, 3, "no " },
		{ "\x12\x02\x08\x03\x0a\x02\x08\x04", 8, 4, "" },
		{ "\x0a\x7f\x08\x03", 4, 0, "" },   /* longer than there is */
		{ "\x0a\x02\x08\x83", 4, 0, "" },   /* a number without end */
		{ "{\"ok\":true}", 11, 0, "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct push_answer answer = { 0 };

		push_read_answer(rows[i].bytes, rows[i].len, &answer);
		if (answer.rejected != rows[i].rejected || strcmp(answer.text, rows[i].text) != 0)
			fail_msg("row %zu: %llu '%s'", i, (unsigned long long)answer.rejected,
				 answer.text);
	}
}

/* A webhook must have a public address, not one that only this host or its network has. */
static void test_public_addresses(void **state)
{
	static const struct {
		const char *text;
		bool is_public;
	} rows[] = {
		{ "127.0.0.1", false },	      { "127.9.9.9", false },	  { "169.254.169.254", false },
		{ "10.1.2.3", false },	      { "172.16.0.1", false },	  { "172.31.255.255", false },
		{ "172.32.0.1", true },	      { "192.168.1.1", false },	  { "100.64.0.1", false },
		{ "0.0.0.0", false },	      { "224.0.0.1", false },	  { "255.255.255.255", false },
		{ "198.18.0.1", false },      { "8.8.8.8", true },	  { "93.184.216.34", true },
		{ "::1", false },	      { "::", false },		  { "fe80::1", false },
		{ "fd00:ec2::254", false },   { "ff02::1", false },	  { "::ffff:127.0.0.1", false },
		{ "::ffff:10.0.0.1", false }, { "64:ff9b::7f00:1", false }, { "2002:7f00:1::", false },
		{ "2606:4700::1111", true },  { "::ffff:8.8.8.8", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
		struct sockaddr_in four = { .sin_family = AF_INET };
		const void *address = &six;

		if (inet_pton(AF_INET, rows[i].text, &four.sin_addr) == 1)
			address = &four;
		else
			assert_int_equal(inet_pton(AF_INET6, rows[i].text, &six.sin6_addr), 1);
		if (push_address_is_public(address) != rows[i].is_public)
			fail_msg("%s", rows[i].text);
	}
}

/* A real listener of the loopback address, by number and by name, is not spoken to. */
static void test_loopback_is_refused(void **state)
{
	const struct sockaddr_in any = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	cleanup_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	static const char *const hosts[] = { "127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]" };
	atomic_bool stop = false;
	struct sockaddr_in at;
	socklen_t len = sizeof(at);

	assert_int_equal(bind(listener, (const void *)&any, sizeof(any)), 0);
	assert_int_equal(listen(listener, 8), 0);
	assert_int_equal(getsockname(listener, (void *)&at, &len), 0);
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		char url[64];
		const struct push_target target = { .url = url,
						    .content_type = "application/json",
						    .public_only = true,
						    .limit_s = 5,
						    .stop = &stop };
		struct push_answer answer;

		(void)snprintf(url, sizeof(url), "http://%s:%u/", hosts[i], ntohs(at.sin_port));
		assert_int_equal(push_send(&target, "{}", 2, &answer), PUSH_LATER);
		assert_non_null(strstr(answer.text, "not public"));
		assert_int_equal(accept4(listener, NULL, NULL, SOCK_CLOEXEC), -1);
	}
}

/* The address shown to people contains no secret. */
static void test_shown_url(void **state)
{
	char shown[PUSH_SHOWN_SIZE];

	push_show_url("https://hooks.example:8443/services/T0/B0/secret?x=y", shown);
	assert_string_equal(shown, "https://hooks.example:8443/***");
	push_show_url("http://user:secret@hooks.example", shown);
	assert_string_equal(shown, "http://hooks.example/***");
	push_show_url("http://a@b@hooks.example?secret", shown);
	assert_string_equal(shown, "http://hooks.example/***");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_oldest_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_seen_after_reopening, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_store_away, setup, teardown),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_public_addresses),
		cmocka_unit_test(test_loopback_is_refused),
		cmocka_unit_test(test_shown_url),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
