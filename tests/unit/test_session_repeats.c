// SPDX-License-Identifier: Apache-2.0
/* Requests for a session that come again (Idempotency-Key), or whose record is slow to write. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "tests/support/session_fixture.h"

static void test_idempotency(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	struct err err = { 0 };
	char first[SESSION_ID_SIZE], again[SESSION_ID_SIZE];

	request.idempotency_key = "k1";
	session_fixture_start(f, &request, first);
	session_fixture_start(f, &request, again);
	assert_string_equal(first, again);
	request.duration_s = 61;
	assert_true(sessions_start(f->sessions, &request, &info, &err) < 0);
	assert_string_equal(err.word, "InvalidParam");
	assert_string_equal(err.field, "Idempotency-Key");
	/* The key outlives the process. */
	request.duration_s = 60;
	fake_feed_disconnect(&f->feed);
	session_fixture_close(f);
	session_fixture_open(f);
	assert_int_equal(sessions_start(f->sessions, &request, &info, &err), 0);
	assert_string_equal(info.id, first);
	session_info_deinit(&info);
}

/* A request that is repeated after its session was deleted starts nothing, also in the next life of
 * the server. */
static void test_key_of_a_deleted_session(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	bool stopped = true;

	request.idempotency_key = "gone";
	session_fixture_start(f, &request, id);
	session_fixture_samples(f, 1, 1, 3);
	session_fixture_stop(f, id);
	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	assert_false(stopped);
	for (int life = 0; life < 2; life++) {
		assert_int_equal(sessions_start(f->sessions, &request, &info, &err), -ENOENT);
		assert_string_equal(err.field, "Idempotency-Key");
		fake_feed_disconnect(&f->feed);
		session_fixture_close(f);
		session_fixture_open(f);
	}
}

struct repeated {
	struct session_fixture *f;
	const char *service;
	pthread_barrier_t *begin;
	struct session_info info;
	int rc;
	struct err err;
};

static void *repeat(void *arg)
{
	struct repeated *r = arg;
	struct session_request request = session_fixture_request(r->service, 60);

	request.idempotency_key = "k2";
	(void)pthread_barrier_wait(r->begin);
	r->rc = sessions_start(r->f->sessions, &request, &r->info, &r->err);
	return NULL;
}

/* The request comes again while the first one is being looked at. */
static void test_repeated_meanwhile(void **state)
{
	struct repeated r[8] = { 0 };
	pthread_t threads[ARRAY_SIZE(r)];
	pthread_barrier_t begin;

	assert_int_equal(pthread_barrier_init(&begin, NULL, ARRAY_SIZE(r)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		r[i].f = *state;
		r[i].service = "web";
		r[i].begin = &begin;
		assert_int_equal(pthread_create(&threads[i], NULL, repeat, &r[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(r); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		if (r[i].rc < 0)
			fail_msg("%s", r[i].err.text);
		assert_string_equal(r[i].info.id, r[0].info.id);
		session_info_deinit(&r[i].info);
	}
	(void)pthread_barrier_destroy(&begin);
}

/* While its record was being written, which took long, its only process ended. */
static void test_a_slow_beginning(void **state)
{
	struct session_fixture *f = *state;
	struct repeated r = { .f = f, .service = "db" };
	pthread_barrier_t begin;
	pthread_t thread;
	sqlite3 *other = session_fixture_lock_records(f);
	struct session_info info;
	struct err err = { 0 };

	assert_int_equal(pthread_barrier_init(&begin, NULL, 1), 0);
	r.begin = &begin;
	assert_int_equal(pthread_create(&thread, NULL, repeat, &r), 0);
	clock_sleep_ns(300 * NS_PER_MS);
	fake_feed_exit(&f->feed, 3);
	clock_sleep_ns(700 * NS_PER_MS);
	assert_int_equal(sqlite3_close(other), SQLITE_OK);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(r.rc, 0);
	assert_int_equal(sessions_wait(f->sessions, "default", r.info.id, 10 * NS_PER_S, &err), 0);
	info = session_fixture_get(f, r.info.id);
	assert_int_equal(info.status, SESSION_FAILED);
	assert_string_equal(info.failure, "the last process of 'db' ended before the session could begin");
	session_info_deinit(&info);
	session_info_deinit(&r.info);
	(void)pthread_barrier_destroy(&begin);
}

int main(void)
{
#define T(name)                                                                                    \
	cmocka_unit_test_setup_teardown(name, session_fixture_setup, session_fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_idempotency),
		T(test_key_of_a_deleted_session),
		T(test_repeated_meanwhile),
		T(test_a_slow_beginning),
	};

	return cmocka_run_group_tests_name("session repeats", tests, NULL, NULL);
}
