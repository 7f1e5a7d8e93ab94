// SPDX-License-Identifier: Apache-2.0
/* Token buckets: bursts, refilling, callers apart, a bounded table; and the 429 in front of every
 * call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "api/http/rate_limit.h"
#include "tests/support/http_fixture.h"

#define START_NS (1000 * NS_PER_S)

static void test_burst_and_refill(void **state)
{
	cleanup(rate_limit) struct rate_limit *r = NULL;

	(void)state;
	assert_int_equal(rate_limit_create(2, 10, &r), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(rate_limit_take(r, 7, START_NS), 0);
	assert_int_equal(rate_limit_take(r, 7, START_NS), 1);
	/* Others are not touched. */
	assert_int_equal(rate_limit_take(r, 8, START_NS), 0);
	/* Half a second is one token, an hour is no more than the burst. */
	assert_int_equal(rate_limit_take(r, 7, START_NS + NS_PER_S / 2), 0);
	assert_int_equal(rate_limit_take(r, 7, START_NS + NS_PER_S / 2), 1);
	for (int i = 0; i < 10; i++)
		assert_int_equal(rate_limit_take(r, 7, START_NS + 3600 * NS_PER_S), 0);
	assert_int_equal(rate_limit_take(r, 7, START_NS + 3600 * NS_PER_S), 1);
	/* A clock that stands still gives nothing and takes nothing. */
	assert_int_equal(rate_limit_take(r, 7, START_NS), 1);
}

static void test_slow_refill_says_how_long(void **state)
{
	cleanup(rate_limit) struct rate_limit *r = NULL;

	(void)state;
	assert_int_equal(rate_limit_create(1, 1, &r), 0);
	assert_int_equal(rate_limit_take(r, 1, START_NS), 0);
	assert_int_equal(rate_limit_take(r, 1, START_NS + NS_PER_S / 10), 1);
	assert_int_equal(rate_limit_take(r, 1, START_NS + NS_PER_S), 0);
}

/* More callers than places: who has used up the bucket is remembered, who was seen once is
 * forgotten. */
static void test_many_callers(void **state)
{
	cleanup(rate_limit) struct rate_limit *r = NULL;

	(void)state;
	assert_int_equal(rate_limit_create(1, 100, &r), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(rate_limit_take(r, 42, START_NS), 0);
	for (uint64_t caller = 1000; caller < 200000; caller++)
		assert_int_equal(rate_limit_take(r, caller, START_NS), 0);
	assert_true(rate_limit_take(r, 42, START_NS) > 0);
}

static void test_refused_over_http(void **state)
{
	struct http_fixture *f = calloc(1, sizeof(*f));
	struct http_reply reply = { 0 };
	unsigned answered = 0;

	(void)state;
	f->options.requests_per_second = 1;
	f->options.request_burst = 5;
	http_fixture_open(f);
	for (int i = 0; i < 5; i++) {
		reply = http_request(f, "GET", "/version", "", "");
		answered += reply.status == 200;
		http_reply_free(&reply);
	}
	assert_int_equal(answered, 5);
	/* A token may come back while this runs, but not one for each. */
	for (int i = 0; i < 100 && reply.status != 429; i++) {
		http_reply_free(&reply);
		reply = http_request(f, "GET", "/nothing", "", "");
	}
	assert_int_equal(reply.status, 429);
	assert_string_equal(http_text(&reply, "error_code"), "RateLimited");
	assert_int_equal(atoi(http_reply_header(&reply, "Retry-After")), 1);
	http_reply_free(&reply);
	/* The Unix socket has buckets of its own. */
	reply = http_request_local(f, "GET", "/metrics", "", "");
	assert_int_equal(reply.status, 200);
	assert_non_null(strstr(reply.body, "\nprofd_limit{name=\"requests_per_second\"} 1\n"));
	assert_non_null(strstr(reply.body, "\nprofd_limit_refusals_total{name=\"requests_per_second\"} "));
	assert_null(strstr(reply.body, "name=\"requests_per_second\"} 0\n"));
	http_reply_free(&reply);
	http_fixture_close(f);
	free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_burst_and_refill),
		cmocka_unit_test(test_slow_refill_says_how_long),
		cmocka_unit_test(test_many_callers),
		cmocka_unit_test(test_refused_over_http),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
