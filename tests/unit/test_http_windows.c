// SPDX-License-Identifier: Apache-2.0
/* Continuous settings, and what is made of the history's windows: points, merges, comparisons. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "tests/support/http_fixture.h"

#define A "/api/v1/observability/profiling"

static struct http_reply post(struct http_fixture *f, const char *body)
{
	return http_request(f, "POST", A "/continuous", "", body);
}

static void test_settings(void **state)
{
	struct http_fixture *f = *state;
	struct http_reply reply = post(f, "{\"service\":\"web\",\"odd\":1}");

	if (reply.status != 200)
		fail_msg("%u %s", reply.status, reply.body);
	assert_string_equal(http_text(&reply, "service"), "web");
	assert_string_equal(http_text(&reply, "profileTypes.0"), "cpu");
	assert_int_equal(http_number(&reply, "sampleRate"), 19);
	assert_int_equal(http_number(&reply, "retentionDays"), 7);
	assert_true(cJSON_IsTrue(http_member(&reply, "enabled")));
	assert_true(cJSON_IsObject(http_member(&reply, "status")));
	assert_non_null(strstr(http_text(&reply, "warnings.0"), "odd"));
	http_reply_free(&reply);
	/* Again is a change, not a second one; what was read may be sent back. */
	reply = post(f, "{\"service\":\"web\",\"enabled\":false,\"sampleRate\":49,\"retentionDays\":3650,"
			"\"status\":{},\"tenant\":\"x\"}");
	assert_int_equal(reply.status, 200);
	assert_int_equal(http_number(&reply, "sampleRate"), 49);
	assert_null(cJSON_GetObjectItem(reply.json, "warnings"));
	http_reply_free(&reply);
	reply = http_request(f, "GET", A "/continuous", "", "");
	assert_int_equal(http_number(&reply, "total"), 1);
	assert_true(cJSON_IsFalse(http_member(&reply, "items.0.enabled")));
	http_reply_free(&reply);
	reply = http_request(f, "GET", A "/continuous/web", "X-Tenant-ID: other\r\n", "");
	assert_int_equal(reply.status, 404);
	http_reply_free(&reply);
	reply = http_request(f, "GET", A "/continuous/web", "", "");
	assert_int_equal(reply.status, 200);
	http_reply_free(&reply);
	reply = http_request(f, "DELETE", A "/continuous/web", "", "");
	assert_int_equal(reply.status, 204);
	http_reply_free(&reply);
	reply = http_request(f, "DELETE", A "/continuous/web", "", "");
	assert_int_equal(reply.status, 404);
	assert_string_equal(http_text(&reply, "error_code"), "UnknownService");
	http_reply_free(&reply);
}

/* As every list; a change makes no setting newer. */
static void test_settings_newest_first(void **state)
{
	static const char *const services[] = { "b", "c", "a" };
	struct http_fixture *f = *state;
	struct http_reply reply;
	char body[64], path[64];

	for (size_t i = 0; i < 4; i++) {
		(void)snprintf(body, sizeof(body), "{\"service\":\"%s\",\"enabled\":false}", services[i % 3]);
		reply = post(f, body);
		assert_int_equal(reply.status, 200);
		http_reply_free(&reply);
		clock_sleep_ns(2 * NS_PER_MS);
	}
	reply = http_request(f, "GET", A "/continuous", "", "");
	assert_int_equal(http_number(&reply, "total"), 3);
	assert_string_equal(http_text(&reply, "items.0.service"), "a");
	assert_string_equal(http_text(&reply, "items.1.service"), "c");
	assert_string_equal(http_text(&reply, "items.2.service"), "b");
	http_reply_free(&reply);
	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof(path), A "/continuous/%s", services[i]);
		reply = http_request(f, "DELETE", path, "", "");
		assert_int_equal(reply.status, 204);
		http_reply_free(&reply);
	}
}

static void test_setting_refusals(void **state)
{
	static const struct {
		const char *body, *field;
	} rows[] = {
		{ "{}", "service" },
		{ "{\"service\":\"web\",\"profileTypes\":\"cpu\"}", "profileTypes" },
		{ "{\"service\":\"web\",\"profileTypes\":[]}", "profileTypes" },
		{ "{\"service\":\"web\",\"profileTypes\":[\"banana\"]}", "profileTypes" },
		{ "{\"service\":\"web\",\"sampleRate\":0}", "sampleRate" },
		{ "{\"service\":\"web\",\"retentionDays\":3651}", "retentionDays" },
		{ "{\"service\":\"web\",\"enabled\":\"yes\"}", "enabled" },
		{ "{\"service\":\"web\",\"watch\":\"x\"}", "watch" },
		{ "{\"service\":\"web\",\"watch\":{}}", "against" },
		{ "{\"service\":\"web\",\"watch\":{\"against\":\"yesterday\"}}", "against" },
		{ "{\"service\":\"web\",\"watch\":{\"against\":\"bl-00000000000000000000000000\"}}", "against" },
		{ "{\"service\":\"web\",\"watch\":{\"against\":\"history\",\"webhook\":\"ftp://x\"}}",
		  "webhook" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply = post(*state, rows[i].body);

		if (reply.status != 400 || strcmp(http_text(&reply, "details.field"), rows[i].field) != 0)
			fail_msg("%s: %u %s", rows[i].body, reply.status, reply.body);
		http_reply_free(&reply);
	}
}

static void assert_one_quality(const struct http_reply *reply)
{
	unsigned found = 0;

	for (const cJSON *c = reply->json->child; c; c = c->next)
		found += strcmp(c->string, "quality") == 0;
	assert_int_equal(found, 1);
	assert_true(http_number(reply, "quality.samples") > 0);
	assert_true(http_number(reply, "quality.lost") == 0);
	assert_true(http_number(reply, "quality.effectiveRate") > 0);
}

/* Every answer made from sessions says how good it is; of what there is nothing of, nothing is
 * said. */
static void test_quality_of_windows(void **state)
{
	static const char *const wanted[] = { "&aggregate=5m", "&merge=true",
					      "&aggregate=5m&function=f_200" };
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[256];

	http_make_session(f, "default", id);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		struct http_reply reply;

		(void)snprintf(target, sizeof(target),
			       A "/history?service=web&profileType=cpu&from=now-1h%s", wanted[i]);
		reply = http_request(f, "GET", target, "", "");
		if (reply.status != 200)
			fail_msg("%s: %u %s", target, reply.status, reply.body);
		assert_one_quality(&reply);
		http_reply_free(&reply);
		(void)snprintf(target, sizeof(target),
			       A "/history?service=web&profileType=offcpu&from=now-1h%s",
			       wanted[i]);
		reply = http_request(f, "GET", target, "", "");
		if (reply.status != 200)
			fail_msg("%s: %u %s", target, reply.status, reply.body);
		assert_null(cJSON_GetObjectItem(http_member(&reply, "quality"), "samples"));
		assert_null(cJSON_GetObjectItem(http_member(&reply, "quality"), "truncatedPct"));
		http_reply_free(&reply);
	}
}

static void test_points_and_merge(void **state)
{
	struct http_fixture *f = *state;
	char one[SESSION_ID_SIZE], two[SESSION_ID_SIZE], link[1024];
	struct http_reply reply;

	http_make_session(f, "default", one);
	http_make_session(f, "default", two);
	reply = http_request(f, "GET", A "/history?service=web&profileType=cpu&from=now-1h&aggregate=60s"
				       "&merge=true", "", "");
	if (reply.status != 200)
		fail_msg("%u %s", reply.status, reply.body);
	assert_true(http_number(&reply, "total") >= 2);
	assert_true(cJSON_GetArraySize(http_member(&reply, "points")) >= 1);
	assert_true(http_number(&reply, "points.0.totalValue") > 0);
	assert_string_equal(http_text(&reply, "topFunctions.0.funcName"), "f_200");
	assert_one_quality(&reply);
	(void)snprintf(link, sizeof(link), "%s&format=folded", http_text(&reply, "flameGraphUrl"));
	http_reply_free(&reply);
	reply = http_request(f, "GET", link, "", "");
	if (reply.status != 200 || !strstr(reply.body, "f_300;f_200 "))
		fail_msg("%s: %u %s", link, reply.status, reply.body);
	http_reply_free(&reply);
}

static void reply_is_empty(struct http_fixture *f, const char *target)
{
	struct http_reply reply = http_request(f, "GET", target, "", "");

	assert_int_equal(reply.status, 200);
	assert_int_equal(http_number(&reply, "total"), 0);
	http_reply_free(&reply);
}

/* A service may be named by an alias of its processes, wherever it is named. */
static void test_aliases(void **state)
{
	static const char *const aliases[] = { "pid:101", "unit:web", "unit:web.service" };
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[512];

	http_make_session(f, "default", id);
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
		struct http_reply reply;

		(void)snprintf(target, sizeof(target),
			       A "/history?service=%s&profileType=cpu&aggregate=60s", aliases[i]);
		reply = http_request(f, "GET", target, "", "");
		assert_int_equal(reply.status, 200);
		assert_string_equal(http_text(&reply, "service"), "web");
		assert_string_equal(http_text(&reply, "items.0.id"), id);
		assert_true(cJSON_GetArraySize(http_member(&reply, "points")) > 0);
		http_reply_free(&reply);
		(void)snprintf(target, sizeof(target),
			       A "/compare?service=%s&profileType=cpu&baseFrom=now-1h&baseTo=now&"
				 "comparisonFrom=now-1h&comparisonTo=now",
			       aliases[i]);
		reply = http_request(f, "GET", target, "", "");
		assert_int_equal(reply.status, 200);
		assert_non_null(strstr(http_text(&reply, "baseProfile"), "web/cpu/"));
		http_reply_free(&reply);
	}
	/* A name that no running process has is used as it is written. */
	reply_is_empty(f, A "/history?service=unit:gone");
	reply_is_empty(f, A "/history?service=pid:4");
}

static void test_refusals(void **state)
{
	static const struct {
		const char *target;
		unsigned status;
		const char *field;
	} rows[] = {
		{ A "/history?aggregate=5m", 400, "service" },
		{ A "/history?merge=true&service=web", 400, "profileType" },
		{ A "/history?aggregate=5m&service=web&profileType=cpu&from=2200-01-01T00:00:00Z", 400, "from" },
		{ A "/history?merge=true&service=web&profileType=cpu&from=2200-01-01T00:00:00Z", 400, "from" },
		{ A "/history?aggregate=1s&service=web&profileType=cpu", 400, "aggregate" },
		{ A "/history?aggregate=60s&from=now-90d&service=web&profileType=cpu", 400, "aggregate" },
		{ A "/history?function=f&service=web&profileType=cpu", 400, "function" },
		{ A "/window/flamegraph?service=web&profileType=cpu&start=now", 400, "end" },
		{ A "/window/flamegraph?service=web&profileType=cpu&start=now&end=now-1h", 400, "end" },
		{ A "/compare?baseFrom=now-2h&baseTo=now-1h&comparisonFrom=now-1h&comparisonTo=now", 400,
		  "baseService" },
		{ A "/compare?service=web&baseFrom=now-2h&baseTo=now-1h&comparisonFrom=now-1h"
		    "&comparisonTo=now", 400, "profileType" },
		{ A "/compare?service=web&profileType=cpu&baseFrom=now-1h&baseTo=now-2h&comparisonFrom=now-1h"
		    "&comparisonTo=now", 400, "baseTo" },
		{ "/api/v1/profiling/sessions?merge=true", 400, "merge" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply = http_request(*state, "GET", rows[i].target, "", "");

		if (reply.status != rows[i].status ||
		    strcmp(http_text(&reply, "details.field"), rows[i].field) != 0)
			fail_msg("%s: %u %s", rows[i].target, reply.status, reply.body);
		http_reply_free(&reply);
	}
}

/* from and to lie in the session, with a second of grace for rounded durations. */
static void test_time_outside_the_session(void **state)
{
	static const struct {
		const char *query;
		unsigned status;
		const char *field;
	} rows[] = {
		{ "", 200, NULL },
		{ "&from=now-1h", 400, "from" },
		{ "&from=2020-01-01T00:00:00Z&to=2020-01-01T01:00:00Z", 400, "from" },
		{ "&to=now-1h", 400, "to" },
		{ "&to=2099-01-01T00:00:00Z", 400, "to" },
		{ "&from=2099-01-01T00:00:00Z", 400, "from" },
	};
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[256];

	http_make_session(f, "default", id);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply;

		(void)snprintf(target, sizeof(target), A "/%s/flamegraph?format=folded%s", id,
			       rows[i].query);
		reply = http_request(f, "GET", target, "", "");
		if (reply.status != rows[i].status)
			fail_msg("%s: %u %s", target, reply.status, reply.body);
		if (rows[i].field)
			assert_string_equal(http_text(&reply, "details.field"), rows[i].field);
		http_reply_free(&reply);
	}
}

static void test_compare_windows(void **state)
{
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[512];
	struct http_reply reply;

	http_make_session(f, "default", id);
	(void)snprintf(target, sizeof(target),
		       A "/compare?service=web&profileType=cpu&baseFrom=now-1h&baseTo=now&"
			 "comparisonProfileId=%s&comparisonWhere=pid:102", id);
	reply = http_request(f, "GET", target, "", "");
	if (reply.status != 200)
		fail_msg("%u %s", reply.status, reply.body);
	assert_true(strncmp(http_text(&reply, "baseProfile"), "web/cpu/20", 10) == 0);
	assert_string_equal(http_text(&reply, "comparisonProfile"), id);
	http_reply_free(&reply);
}

static void test_services(void **state)
{
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE];
	struct http_reply reply;
	const cJSON *items;
	bool found = false;

	http_make_session(f, "default", id);
	reply = http_request(f, "GET", "/api/v1/observability/services?sparkline=cpu&points=30", "", "");
	assert_int_equal(reply.status, 200);
	(void)http_member(&reply, "items.1.sparkline");
	http_reply_free(&reply);
	reply = http_request(f, "GET", "/api/v1/observability/services?lastProfile=true", "", "");
	assert_int_equal(reply.status, 200);
	items = http_member(&reply, "items");
	for (int i = 0; i < cJSON_GetArraySize(items); i++) {
		const cJSON *last = cJSON_GetObjectItem(cJSON_GetArrayItem(items, i), "lastProfile");

		if (strcmp(cJSON_GetObjectItem(cJSON_GetArrayItem(items, i), "name")->valuestring, "web") != 0) {
			assert_true(cJSON_IsNull(last));
			continue;
		}
		found = true;
		assert_string_equal(cJSON_GetObjectItem(last, "id")->valuestring, id);
		assert_string_equal(cJSON_GetObjectItem(last, "profileType")->valuestring, "cpu");
		assert_string_equal(cJSON_GetObjectItem(last, "status")->valuestring, "completed");
	}
	assert_true(found);
	http_reply_free(&reply);
	reply = http_request(f, "GET", "/api/v1/observability/services?sparkline=memory", "", "");
	assert_int_equal(reply.status, 400);
	http_reply_free(&reply);
	reply = http_request(f, "GET", "/api/v1/observability/services?points=61", "", "");
	assert_int_equal(reply.status, 400);
	http_reply_free(&reply);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_settings),	 cmocka_unit_test(test_setting_refusals),
		cmocka_unit_test(test_points_and_merge), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_compare_windows),	 cmocka_unit_test(test_time_outside_the_session),
		cmocka_unit_test(test_services),	 cmocka_unit_test(test_settings_newest_first),
		cmocka_unit_test(test_quality_of_windows), cmocka_unit_test(test_aliases),
	};

	return cmocka_run_group_tests(tests, http_fixture_setup, http_fixture_teardown);
}
