// SPDX-License-Identifier: Apache-2.0
/* The life of a profile through the HTTP API: real server, real sessions, real store, samples by
 * hand. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "api/render/render.h"
#include "tests/support/http_fixture.h"

#define A      "/api/v1/observability/profiling"
#define B      "/api/v1/profiling"
#define PERIOD 10101010

static struct http_reply get(struct http_fixture *f, const char *format, const char *id)
{
	char target[512];

	(void)snprintf(target, sizeof(target), format, id);
	return http_request(f, "GET", target, "", "");
}

static void wait_for_status(struct http_fixture *f, const char *id, const char *status)
{
	for (int i = 0; i < 500; i++) {
		struct http_reply reply = get(f, A "/%s", id);
		bool there = reply.status == 200 && strcmp(http_text(&reply, "status"), status) == 0;

		http_reply_free(&reply);
		if (there)
			return;
		clock_sleep_ns(10 * NS_PER_MS);
	}
	fail_msg("%s never became %s", id, status);
}

static void test_services(void **state)
{
	struct http_reply reply = get(*state, "/api/v1/observability/services", "");

	assert_int_equal(reply.status, 200);
	assert_int_equal(http_number(&reply, "total"), 2);
	assert_string_equal(http_text(&reply, "items.0.name"), "db");
	assert_string_equal(http_text(&reply, "items.1.name"), "web");
	assert_string_equal(http_text(&reply, "items.1.source"), "unit");
	assert_int_equal(cJSON_GetArraySize(http_member(&reply, "items.1.processes")), 2);
	assert_int_equal(cJSON_GetArraySize(http_member(&reply, "items.1.profileTypes")),
			 PROFILE_TYPE_MAX);
	http_reply_free(&reply);
}

static void test_start_stop_delete(void **state)
{
	static const char body[] = "{\"service\":\"web\",\"profileType\":\"cpu\",\"durationSeconds\":60,"
				   "\"sampleRate\":99,\"labels\":{\"who\":\"me\"},\"odd\":1}";
	struct http_fixture *f = *state;
	struct http_reply reply = http_request(f, "POST", A "/start",
					       "Idempotency-Key: one\r\nX-Request-ID: mine\r\n", body);
	struct http_reply again;
	char id[64], target[256];

	assert_int_equal(reply.status, 202);
	(void)snprintf(id, sizeof(id), "%s", http_text(&reply, "id"));
	assert_string_equal(http_text(&reply, "profileId"), id);
	assert_string_equal(http_text(&reply, "sessionId"), id);
	assert_string_equal(http_text(&reply, "status"), "running");
	assert_string_equal(http_text(&reply, "labels.who"), "me");
	assert_non_null(strstr(http_text(&reply, "warnings.0"), "odd"));
	assert_true(cJSON_IsNull(http_member(&reply, "completedAt")));
	assert_true(cJSON_IsNull(http_member(&reply, "flameGraphUrl")));
	assert_string_equal(http_reply_header(&reply, "X-Request-ID"), "mine");
	(void)snprintf(target, sizeof(target), A "/%s", id);
	assert_string_equal(http_reply_header(&reply, "Location"), target);
	http_reply_free(&reply);

	/* The same key is the same session; without it, a conflict that names the running one. */
	again = http_request(f, "POST", A "/start", "Idempotency-Key: one\r\n", body);
	assert_int_equal(again.status, 202);
	assert_string_equal(http_text(&again, "id"), id);
	http_reply_free(&again);
	again = http_request(f, "POST", A "/start", "", body);
	assert_int_equal(again.status, 409);
	assert_string_equal(http_text(&again, "error_code"), "AlreadyRunning");
	assert_string_equal(http_text(&again, "details.profileId"), id);
	http_reply_free(&again);

	{
		struct err err = { 0 };
		uint64_t now_ns;

		assert_int_equal(sessions_wait_started(f->sessions, "default", id, 5 * NS_PER_S,
						       &err), 0);
		now_ns = clock_monotonic_ns();
		for (int i = 0; i < 20; i++)
			fake_feed_sample(&f->feed, 1, 101, 1, now_ns + (uint64_t)i, PERIOD);
	}
	reply = http_request(f, "DELETE", target, "", "");
	assert_int_equal(reply.status, 202);
	http_reply_free(&reply);
	wait_for_status(f, id, "completed");
	reply = get(f, A "/%s?top=1", id);
	assert_true(cJSON_IsTrue(http_member(&reply, "stoppedEarly")));
	assert_int_equal(http_number(&reply, "sampleCount"), 20);
	assert_int_equal(http_number(&reply, "totalValue"), 20 * PERIOD);
	assert_int_equal(cJSON_GetArraySize(http_member(&reply, "topFunctions")), 1);
	assert_string_equal(http_text(&reply, "topFunctions.0.funcName"), "f_100");
	assert_true(http_number(&reply, "topFunctions.0.selfPct") == 100);
	assert_true(cJSON_IsNumber(http_member(&reply, "topFunctions.0.sampleCount")));
	(void)snprintf(target, sizeof(target), A "/%s/flamegraph", id);
	assert_string_equal(http_text(&reply, "flameGraphUrl"), target);
	http_reply_free(&reply);

	(void)snprintf(target, sizeof(target), B "/sessions/%s", id);
	reply = http_request(f, "DELETE", target, "", "");
	assert_int_equal(reply.status, 204);
	http_reply_free(&reply);
	reply = get(f, A "/%s", id);
	assert_int_equal(reply.status, 404);
	http_reply_free(&reply);
	/* A repetition begins nothing, and says why there is nothing to answer with. */
	again = http_request(f, "POST", A "/start", "Idempotency-Key: one\r\n", body);
	assert_int_equal(again.status, 404);
	assert_string_equal(http_text(&again, "error_code"), "UnknownSession");
	assert_string_equal(http_text(&again, "details.field"), "Idempotency-Key");
	assert_non_null(strstr(http_text(&again, "detail"), id));
	http_reply_free(&again);
}

static void test_formats(void **state)
{
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[256];

	http_make_session(f, "default", id);
	for (const struct render_format *format = render_formats; format->name; format++) {
		struct http_reply reply;
		unsigned expected = strcmp(format->name, "pgo") == 0 ? 422 : 200;

		(void)snprintf(target, sizeof(target), A "/%s/flamegraph?format=%s", id, format->name);
		reply = http_request(f, "GET", target, "", "");
		if (reply.status != expected)
			fail_msg("%s: %u %.300s", format->name, reply.status, reply.body);
		if (expected == 200)
			assert_string_equal(http_reply_header(&reply, "Content-Type"),
					    format->content_type);
		http_reply_free(&reply);
	}
}

static void test_flamegraph_options(void **state)
{
	static const struct {
		const char *query, *accept;
		unsigned status;
		const char *holds; /* in the body */
	} rows[] = {
		{ "", "", 200, "<!doctype html>" },
		{ "", "Accept: application/json\r\n", 200, "\"name\":\"all\"" },
		{ "", "Accept: image/svg+xml\r\n", 200, "<svg" },
		{ "", "Accept: audio/ogg\r\n", 406, "NotAcceptable" },
		{ "?format=folded", "", 200, "f_300;f_100 101010100\nf_300;f_200 303030300\n" },
		{ "?format=folded&value=samples", "", 200, "f_300;f_100 10\nf_300;f_200 30\n" },
		{ "?format=folded&where=pid:101", "", 200, "f_300;f_100 101010100\n" },
		{ "?format=folded&groupBy=pid", "", 200, "web (101);f_300;f_100 101010100\n" },
		{ "?format=folded&where=pid:101&where=tid:7", "", 200, "" },
		{ "?format=json&maxNodes=2", "", 200, "small frames]" },
		{ "?format=svg&download=true", "", 200, "<svg" },
		{ "?format=exe", "", 400, "\"field\":\"format\"" },
		{ "?value=bytes", "", 400, "\"field\":\"value\"" },
		{ "?where=nonsense", "", 400, "\"field\":\"where\"" },
		{ "?where=colour:red", "", 400, "\"field\":\"where\"" },
		{ "?groupBy=colour", "", 400, "\"field\":\"groupBy\"" },
		{ "?maxNodes=0", "", 400, "\"field\":\"maxNodes\"" },
		{ "?root=abc", "", 400, "\"field\":\"root\"" },
		{ "?root=****", "", 400, "\"field\":\"root\"" },
		{ "?root=AAAA", "", 404, "\"field\":\"root\"" },
		{ "?from=now&to=now-1h", "", 400, "\"field\":\"to\"" },
	};
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[512];

	http_make_session(f, "default", id);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply;

		(void)snprintf(target, sizeof(target), A "/%s/flamegraph%s", id, rows[i].query);
		reply = http_request(f, "GET", target, rows[i].accept, "");
		if (reply.status != rows[i].status || !strstr(reply.body, rows[i].holds))
			fail_msg("%s %s: %u %.400s", rows[i].query, rows[i].accept, reply.status,
				 reply.body);
		http_reply_free(&reply);
	}
}

static void test_revalidation(void **state)
{
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[256], headers[256];
	struct http_reply reply;

	http_make_session(f, "default", id);
	(void)snprintf(target, sizeof(target), A "/%s/flamegraph?format=json", id);
	reply = http_request(f, "GET", target, "", "");
	/* The same for what is sent packed. */
	assert_int_equal(strncmp(http_reply_header(&reply, "ETag"), "W/\"", 3), 0);
	(void)snprintf(headers, sizeof(headers), "If-None-Match: %s\r\n",
		       http_reply_header(&reply, "ETag"));
	http_reply_free(&reply);
	reply = http_request(f, "GET", target, headers, "");
	assert_int_equal(reply.status, 304);
	assert_int_equal(reply.body_len, 0);
	http_reply_free(&reply);
	reply = http_request(f, "HEAD", target, "", "");
	assert_int_equal(reply.status, 200);
	assert_int_equal(reply.body_len, 0);
	http_reply_free(&reply);
	reply = http_request(f, "GET", A "/history", "Accept-Encoding: gzip\r\n", "");
	assert_string_equal(http_reply_header(&reply, "Content-Encoding"), "gzip");
	http_reply_free(&reply);
}

/* Pages of a list hold each item once, newest first, also in the alias spelling. */
static void test_history_pages(void **state)
{
	struct http_fixture *f = *state;
	char ids[5][SESSION_ID_SIZE], cursor[128] = "", target[256];
	unsigned seen = 0;

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		http_make_session(f, "pages", ids[i]);
	do {
		struct http_reply reply;
		const cJSON *next;

		(void)snprintf(target, sizeof(target), A "/history?size=2&service=web%s%s",
			       *cursor ? "&cursor=" : "", cursor);
		reply = http_request(f, "GET", target, "X-Tenant-ID: pages\r\n", "");
		assert_int_equal(reply.status, 200);
		assert_int_equal(http_number(&reply, "total"), 5);
		assert_string_equal(http_text(&reply, "service"), "web");
		for (const cJSON *item = http_member(&reply, "items")->child; item; item = item->next) {
			assert_true(seen < 5);
			assert_string_equal(cJSON_GetObjectItem(item, "id")->valuestring,
					    ids[4 - seen]);
			assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(item, "topFunctions")) > 0);
			seen++;
		}
		next = http_member(&reply, "nextCursor");
		(void)snprintf(cursor, sizeof(cursor), "%s",
			       cJSON_IsString(next) ? next->valuestring : "");
		http_reply_free(&reply);
	} while (*cursor);
	assert_int_equal(seen, 5);
}

/* A request that names only an end gets the day before it. An end far in the future is accepted. */
static void test_history_until(void **state)
{
	struct http_reply reply = http_request(*state, "GET", A "/history?to=now-48h", "", "");
	char id[SESSION_ID_SIZE];

	assert_int_equal(reply.status, 200);
	assert_int_equal(http_number(&reply, "total"), 0);
	http_reply_free(&reply);
	http_make_session(*state, "until", id);
	reply = http_request(*state, "GET", A "/history?from=0&to=9999999999",
			     "X-Tenant-ID: until\r\n", "");
	assert_int_equal(reply.status, 200);
	assert_int_equal(http_number(&reply, "total"), 1);
	http_reply_free(&reply);
}

static void test_tenants_are_apart(void **state)
{
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[256];
	struct http_reply reply;

	http_make_session(f, "red", id);
	(void)snprintf(target, sizeof(target), A "/%s", id);
	reply = http_request(f, "GET", target, "X-Tenant-ID: red\r\n", "");
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "tenant"), "red");
	http_reply_free(&reply);
	reply = http_request(f, "GET", target, "X-Tenant-ID: blue\r\n", "");
	assert_int_equal(reply.status, 404);
	http_reply_free(&reply);
	reply = http_request(f, "DELETE", target, "", "");
	assert_int_equal(reply.status, 404);
	http_reply_free(&reply);
	reply = http_request(f, "GET", A "/history", "X-Tenant-ID: blue\r\n", "");
	assert_int_equal(http_number(&reply, "total"), 0);
	http_reply_free(&reply);
}

static void test_family_b(void **state)
{
	struct http_fixture *f = *state;
	struct http_reply reply =
		http_request(f, "POST", B "/sessions?wait=false", "",
			     "{\"profileType\":\"profile\",\"target\":\"db\",\"durationSeconds\":1}");
	char id[64];

	assert_int_equal(reply.status, 202);
	assert_string_equal(http_text(&reply, "profileType"), "cpu");
	assert_string_equal(http_text(&reply, "target"), "db");
	(void)snprintf(id, sizeof(id), "%s", http_text(&reply, "sessionId"));
	http_reply_free(&reply);
	reply = get(f, B "/sessions/%s", id);
	assert_string_equal(http_text(&reply, "id"), id);
	http_reply_free(&reply);
	/* Blocks until done; the other one is still running, so another service. */
	reply = http_request(f, "POST", B "/sessions", "",
			     "{\"profileType\":\"cpu\",\"target\":\"web\",\"durationSeconds\":1}");
	assert_int_equal(reply.status, 200);
	assert_true(reply.seconds > 0.9);
	assert_true(strcmp(http_text(&reply, "status"), "running") != 0);
	assert_true(cJSON_IsNumber(http_member(&reply, "rawDataSizeBytes")));
	http_reply_free(&reply);
}

static void test_agent_paths(void **state)
{
	static const struct {
		const char *target, *type, *holds;
	} rows[] = {
		{ "/healthz", "application/json", "\"ok\"" },
		{ "/readyz", "application/json", "\"ready\"" },
		{ "/version", "application/json", "\"profd\"" },
		{ "/openapi.json", "application/json", "\"3.1.0\"" },
		{ "/metrics", "text/plain; version=0.0.4; charset=utf-8", "profd_build_info" },
		{ "/", "text/html; charset=utf-8", "/ui/" },
		{ "/s/web?type=cpu", "text/html; charset=utf-8", "/ui/" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply = get(*state, rows[i].target, "");

		if (reply.status != 200 || !strstr(reply.body, rows[i].holds))
			fail_msg("%s: %u %.200s", rows[i].target, reply.status, reply.body);
		assert_string_equal(http_reply_header(&reply, "Content-Type"), rows[i].type);
		assert_string_equal(http_reply_header(&reply, "X-Content-Type-Options"), "nosniff");
		http_reply_free(&reply);
	}
}

struct client {
	struct http_fixture *f;
	const char *id;
	unsigned number, failures;
};

static void *run_client(void *arg)
{
	static const char *const targets[] = {
		A "/history?limit=3",	 A "/%s",		     A "/%s/flamegraph?format=pprof",
		A "/%s/flamegraph",	 "/api/v1/observability/services", "/metrics",
		A "/%s/flamegraph?format=folded&groupBy=thread",     B "/sessions/none",
	};
	struct client *client = arg;

	for (unsigned i = 0; i < 24; i++) {
		unsigned which = (i + client->number) % ARRAY_SIZE(targets);
		struct http_reply reply = get(client->f, targets[which], client->id);

		client->failures += reply.status != (which == 7 ? 404 : 200);
		http_reply_free(&reply);
	}
	return NULL;
}

static void test_many_at_once(void **state)
{
	struct client clients[12];
	pthread_t threads[12];
	char id[SESSION_ID_SIZE];

	http_make_session(*state, "default", id);
	for (unsigned i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = (struct client){ *state, id, i, 0 };
		assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(clients); i++) {
		(void)pthread_join(threads[i], NULL);
		assert_int_equal(clients[i].failures, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_services),	   cmocka_unit_test(test_start_stop_delete),
		cmocka_unit_test(test_formats),		   cmocka_unit_test(test_flamegraph_options),
		cmocka_unit_test(test_revalidation),	   cmocka_unit_test(test_history_pages),
		cmocka_unit_test(test_history_until),
		cmocka_unit_test(test_tenants_are_apart),  cmocka_unit_test(test_family_b),
		cmocka_unit_test(test_agent_paths),	   cmocka_unit_test(test_many_at_once),
	};

	return cmocka_run_group_tests(tests, http_fixture_setup, http_fixture_teardown);
}
