// SPDX-License-Identifier: Apache-2.0
/* Kept answers: found by the whole key, the longest unused goes, bounds hold; and a flame graph
 * that is asked for twice is the same bytes, until the data is another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/http/answer_cache.h"
#include "tests/support/http_fixture.h"

#define A "/api/v1/observability/profiling"

static bool holds(struct answer_cache *cache, uint64_t number, const char *text)
{
	struct buf out = { 0 };
	bool found = answer_cache_get(cache, &(struct answer_key){ { number, 1 } }, &out);

	if (found && text && (out.len != strlen(text) || memcmp(out.data, text, out.len) != 0))
		fail_msg("%llu holds %.*s", (unsigned long long)number, (int)out.len, out.data);
	buf_deinit(&out);
	return found;
}

static void put(struct answer_cache *cache, uint64_t number, const char *text)
{
	answer_cache_put(cache, &(struct answer_key){ { number, 1 } }, text, strlen(text));
}

static void test_bounds(void **state)
{
	cleanup(answer_cache) struct answer_cache *cache = NULL;
	struct answer_cache_counts counts;

	(void)state;
	assert_int_equal(answer_cache_create(40, &cache), 0);
	put(cache, 1, "0123456789");
	put(cache, 1, "other");
	assert_true(holds(cache, 1, "0123456789"));
	put(cache, 2, "0123456789x");
	assert_false(holds(cache, 2, NULL));
	for (uint64_t i = 3; i < 6; i++)
		put(cache, i, "abcdefghij");
	assert_true(holds(cache, 1, NULL));
	put(cache, 6, "ABCDEFGHIJ");
	assert_false(holds(cache, 3, NULL));
	assert_true(holds(cache, 1, "0123456789") && holds(cache, 6, "ABCDEFGHIJ"));
	answer_cache_count(cache, &counts);
	assert_int_equal(counts.bytes, 40);
	assert_int_equal(counts.misses, 2);
	for (uint64_t i = 100; i < 300; i++)
		put(cache, i, "x");
	answer_cache_count(cache, &counts);
	assert_true(counts.bytes <= 40);
	assert_false(holds(cache, 1, NULL));
}

static void test_same_bytes(void **state)
{
	static const char *const formats[] = { "flame", "html", "folded", "pprof", "otlp" };
	struct http_fixture *f = calloc(1, sizeof(*f));
	char id[SESSION_ID_SIZE], target[256];
	struct http_reply one, two;

	(void)state;
	http_fixture_open(f);
	http_make_session(f, "default", id);
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		(void)snprintf(target, sizeof(target), A "/%s/flamegraph?format=%s", id, formats[i]);
		one = http_request(f, "GET", target, "", "");
		two = http_request(f, "GET", target, "", "");
		assert_int_equal(one.status, 200);
		assert_int_equal(one.body_len, two.body_len);
		assert_memory_equal(one.body, two.body, one.body_len);
		assert_string_equal(http_reply_header(&one, "Content-Type"),
				    http_reply_header(&two, "Content-Type"));
		http_reply_free(&one);
		http_reply_free(&two);
	}
	one = http_request(f, "GET", "/metrics", "", "");
	assert_non_null(strstr(one.body, "\nprofd_answer_cache_hits_total 5\n"));
	http_reply_free(&one);
	/* Another view and another tenant are other answers. */
	(void)snprintf(target, sizeof(target), A "/%s/flamegraph?format=folded&where=pid:101", id);
	one = http_request(f, "GET", target, "", "");
	assert_non_null(strstr(one.body, "f_300;f_100 "));
	assert_null(strstr(one.body, "f_200"));
	http_reply_free(&one);
	one = http_request(f, "GET", target, "X-Tenant-ID: other\r\n", "");
	assert_int_equal(one.status, 404);
	http_reply_free(&one);
	http_fixture_close(f);
	free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_same_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
