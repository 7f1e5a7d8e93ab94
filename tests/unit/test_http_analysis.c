// SPDX-License-Identifier: Apache-2.0
/* Routes that compute from sessions: comparisons, baselines, the gate, the trend, views, Samply
 * profiles, pull paths. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/session/core/sessions.h"
#include "agent/session/history.h"
#include "agent/store/store.h"
#include "api/http/json_in.h"
#include "tests/support/http_fixture.h"

#define A "/api/v1/observability/profiling"
#define B "/api/v1/profiling"

static struct http_reply call(struct http_fixture *f, const char *method, const char *body,
			      const char *format, ...) printf_like(4, 5);

static struct http_reply call(struct http_fixture *f, const char *method, const char *body,
			      const char *format, ...)
{
	char target[1024];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(target, sizeof(target), format, args);
	va_end(args);
	return http_request(f, method, target, "", body);
}

static void make_baseline(struct http_fixture *f, const char *session, const char *label,
			  char id[64])
{
	struct http_reply reply;
	char body[512];

	(void)snprintf(body, sizeof(body),
		       "{\"label\":\"%s\",\"sessionId\":\"%s\",\"profileType\":\"cpu\","
		       "\"description\":\"d\",\"tags\":[\"x\"],\"topFunctions\":\"(nested array)\"}",
		       label, session);
	reply = call(f, "POST", body, B "/baselines");
	if (reply.status != 200)
		fail_msg("%u %s", reply.status, reply.body);
	(void)snprintf(id, 64, "%s", http_text(&reply, "baselineId"));
	assert_string_equal(http_text(&reply, "baselineLabel"), label);
	assert_string_equal(http_text(&reply, "sessionId"), session);
	assert_string_equal(http_text(&reply, "topFunctions.0.funcName"), "f_200");
	assert_string_equal(http_text(&reply, "topFunctions.0.sampleCount"), "30");
	assert_true(http_number(&reply, "topFunctions.0.selfPct") == 75);
	assert_true(cJSON_IsTrue(http_member(&reply, "isLatest")));
	assert_string_equal(http_text(&reply, "tags.0"), "x");
	assert_non_null(strstr(http_text(&reply, "warnings.0"), "topFunctions"));
	http_reply_free(&reply);
}

/* A watch against a baseline that can say nothing is refused, unless it is switched off. */
static void test_watch_against_baseline(void **state)
{
	static const struct {
		const char *service, *type, *enabled, *words; /* words NULL = taken */
	} rows[] = {
		{ "other", "cpu", "true", "of the service web" },
		{ "web", "offcpu", "true", "of type cpu" },
		{ "other", "cpu", "false", NULL },
		{ "web", "cpu", "true", NULL },
		{ "*", "cpu", "true", NULL },
	};
	struct http_fixture *f = *state;
	char session[SESSION_ID_SIZE], baseline[64], body[512];

	http_make_session(f, "default", session);
	make_baseline(f, session, "watched", baseline);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply;

		(void)snprintf(body, sizeof(body),
			       "{\"service\":\"%s\",\"profileTypes\":[\"%s\"],\"enabled\":%s,"
			       "\"watch\":{\"against\":\"%s\"}}",
			       rows[i].service, rows[i].type, rows[i].enabled, baseline);
		reply = call(f, "POST", body, A "/continuous");
		if (reply.status != (rows[i].words ? 400 : 200) ||
		    (rows[i].words && !strstr(reply.body, rows[i].words)))
			fail_msg("%s: %u %s", body, reply.status, reply.body);
		http_reply_free(&reply);
	}
}

static void test_compare(void **state)
{
	struct http_fixture *f = *state;
	char one[SESSION_ID_SIZE], two[SESSION_ID_SIZE], other[SESSION_ID_SIZE], baseline[64];
	struct http_reply reply;

	http_make_session(f, "default", one);
	http_make_session(f, "default", two);
	reply = call(f, "GET", "", A "/compare?baseProfileId=%s&comparisonProfileId=%s", one, two);
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "verdict"), "unchanged");
	assert_string_equal(http_text(&reply, "baseProfile"), one);
	assert_int_equal(cJSON_GetArraySize(http_member(&reply, "regressions")), 0);
	assert_int_equal(cJSON_GetArraySize(http_member(&reply, "improvements")), 0);
	assert_true(http_number(&reply, "unchanged") >= 2);
	assert_true(strlen(http_text(&reply, "summary")) > 10);
	assert_null(cJSON_GetObjectItem(reply.json, "warnings"));
	http_reply_free(&reply);
	http_make_session_of(f, "default", "db", other);
	reply = call(f, "GET", "", A "/compare?baseProfileId=%s&comparisonProfileId=%s", one, other);
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "warnings.0"),
			    "the sides are of different services: web and db");
	http_reply_free(&reply);
	make_baseline(f, one, "v1", baseline);
	reply = call(f, "GET", "", A "/compare?baseProfileId=%s&comparisonProfileId=%s", baseline, two);
	assert_int_equal(reply.status, 200);
	http_reply_free(&reply);
	for (size_t i = 0; i < 6; i++) {
		static const char *const formats[] = {
			"html", "svg", "json", "flame", "json&frames=details", "folded"
		};
		static const char *const holds[] = { "<!doctype html>", "<svg", "\"deltaPct\"", "\"base\":[",
						     "\"kind\":\"native\"", "f_300;f_100 101010100 101010100\n" };

		reply = call(f, "GET", "",
			     A "/compare/flamegraph?baseProfileId=%s&comparisonProfileId=%s&format=%s",
			     one, two, formats[i]);
		assert_int_equal(reply.status, 200);
		assert_non_null(strstr(reply.body, holds[i]));
		http_reply_free(&reply);
	}
}

static void test_compare_refusals(void **state)
{
	static const struct {
		const char *query;
		unsigned status;
		const char *code, *field;
	} rows[] = {
		{ "", 400, "InvalidParam", "baseProfileId" },
		{ "?baseProfileId=sess-x", 400, "InvalidParam", "comparisonProfileId" },
		{ "?baseProfileId=sess-x&comparisonProfileId=sess-y", 404, "UnknownSession", NULL },
		{ "?baseProfileId=bl-x&comparisonProfileId=sess-y", 404, "UnknownBaseline", NULL },
		{ "?baseProfileId=x&comparisonProfileId=y&threshold=0", 400, "InvalidParam", "threshold" },
		{ "?baseProfileId=x&comparisonProfileId=y&confidence=0.2", 400, "InvalidParam",
		  "confidence" },
		{ "?baseProfileId=x&comparisonProfileId=y&baseUnits=5", 400, "InvalidParam",
		  "comparisonUnits" },
		{ "?baseProfileId=x&comparisonProfileId=y&baseUnits=0&comparisonUnits=5", 400, "InvalidParam",
		  "baseUnits" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply = call(*state, "GET", "", A "/compare%s", rows[i].query);

		if (reply.status != rows[i].status ||
		    strcmp(http_text(&reply, "error_code"), rows[i].code) != 0)
			fail_msg("%s: %u %s", rows[i].query, reply.status, reply.body);
		if (rows[i].field)
			assert_string_equal(http_text(&reply, "details.field"), rows[i].field);
		http_reply_free(&reply);
	}
}

static void test_unfinished(void **state)
{
	struct http_fixture *f = *state;
	char done[SESSION_ID_SIZE], body[256], running[64];
	struct http_reply reply;

	http_make_session(f, "default", done);
	reply = call(f, "POST", "{\"service\":\"db\",\"profileType\":\"cpu\",\"durationSeconds\":30}",
		     A "/start");
	assert_int_equal(reply.status, 202);
	(void)snprintf(running, sizeof(running), "%s", http_text(&reply, "id"));
	http_reply_free(&reply);
	reply = call(f, "GET", "", A "/compare?baseProfileId=%s&comparisonProfileId=%s", done, running);
	assert_int_equal(reply.status, 409);
	assert_string_equal(http_text(&reply, "error_code"), "NotFinished");
	assert_true(atoi(http_reply_header(&reply, "Retry-After")) > 0);
	http_reply_free(&reply);
	(void)snprintf(body, sizeof(body), "{\"baseId\":\"%s\",\"compareId\":\"%s\",\"type\":\"cpu\"}",
		       running, done);
	reply = call(f, "POST", body, B "/diff");
	assert_int_equal(reply.status, 409);
	http_reply_free(&reply);
	reply = call(f, "DELETE", "", A "/%s", running);
	http_reply_free(&reply);
}

static void test_diff(void **state)
{
	struct http_fixture *f = *state;
	char one[SESSION_ID_SIZE], two[SESSION_ID_SIZE], body[256];
	struct http_reply reply;

	http_make_session(f, "default", one);
	http_make_session(f, "default", two);
	(void)snprintf(body, sizeof(body), "{\"baseId\":\"%s\",\"compareId\":\"%s\",\"type\":\"cpu\"}",
		       one, two);
	reply = call(f, "POST", body, B "/diff");
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "baseSessionId"), one);
	assert_int_equal(http_number(&reply, "growthCount"), 0);
	assert_true(cJSON_GetArraySize(http_member(&reply, "functions")) >= 2);
	http_reply_free(&reply);
	(void)snprintf(body, sizeof(body),
		       "{\"baseId\":\"%s\",\"compareId\":\"%s\",\"type\":\"goroutine\"}", one, two);
	reply = call(f, "POST", body, B "/diff");
	assert_int_equal(reply.status, 422);
	assert_string_equal(http_text(&reply, "error_code"), "ProfileTypeMismatch");
	http_reply_free(&reply);
	reply = call(f, "GET", "", B "/sessions/%s/analysis", one);
	assert_int_equal(reply.status, 422);
	http_reply_free(&reply);
	reply = call(f, "GET", "", B "/goroutine-flame/%s", one);
	assert_int_equal(reply.status, 422);
	http_reply_free(&reply);
}

static void test_gate_and_trend(void **state)
{
	struct http_fixture *f = *state;
	char session[SESSION_ID_SIZE], first[64], second[64], body[512], report[64];
	struct http_reply reply, again;

	http_make_session(f, "default", session);
	make_baseline(f, session, "old", first);
	make_baseline(f, session, "new", second);
	(void)snprintf(body, sizeof(body),
		       "{\"baselineId\":\"%s\",\"compareId\":\"%s\",\"thresholds\":{\"functionDeltaPct\":1,"
		       "\"odd\":1}}",
		       first, session);
	reply = call(f, "POST", body, B "/regression/check");
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "severity"), "NONE");
	assert_true(cJSON_IsFalse(http_member(&reply, "regressionDetected")));
	assert_string_equal(http_text(&reply, "baselineLabel"), "old");
	assert_true(http_number(&reply, "quality.base.samples") > 0);
	assert_true(http_number(&reply, "quality.comparison.samples") > 0);
	assert_non_null(strstr(http_text(&reply, "warnings.0"), "odd"));
	(void)snprintf(report, sizeof(report), "%s", http_text(&reply, "reportId"));
	again = call(f, "GET", "", B "/regression/%s", report);
	assert_int_equal(again.status, 200);
	assert_string_equal(http_text(&again, "reportId"), report);
	http_reply_free(&again);
	http_reply_free(&reply);
	reply = call(f, "GET", "", B "/regression/rpt-none");
	assert_int_equal(reply.status, 404);
	assert_string_equal(http_text(&reply, "error_code"), "UnknownReport");
	http_reply_free(&reply);

	reply = call(f, "GET", "",
		     B "/trend?profileType=cpu&funcName=f_200&service=web&order=newest&limit=2");
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "metric"), "self_pct");
	assert_string_equal(http_text(&reply, "items.0.baselineLabel"), "new");
	assert_string_equal(http_text(&reply, "items.1.baselineLabel"), "old");
	assert_true(http_number(&reply, "items.1.value") == 75);
	http_reply_free(&reply);
	reply = call(f, "GET", "", B "/trend?profileType=cpu");
	assert_int_equal(reply.status, 400);
	assert_string_equal(http_text(&reply, "details.field"), "funcName");
	http_reply_free(&reply);

	reply = call(f, "GET", "", B "/baselines?service=web&tag=x&limit=1");
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "items.0.baselineId"), second);
	assert_true(cJSON_IsString(http_member(&reply, "nextCursor")));
	http_reply_free(&reply);
	reply = call(f, "DELETE", "", B "/baselines/%s", first);
	assert_int_equal(reply.status, 204);
	http_reply_free(&reply);
	reply = call(f, "GET", "", B "/baselines/%s", first);
	assert_int_equal(reply.status, 404);
	http_reply_free(&reply);
}

/* Pages of one point, oldest first, or newest where that is asked for; each baseline once. */
static void test_trend_pages(void **state)
{
	static const char *const labels[] = { "one", "two", "three" };
	struct http_fixture *f = *state;
	char session[SESSION_ID_SIZE], ids[3][64], cursor[64];
	struct http_reply reply;

	http_make_session(f, "paged", session);
	for (int i = 0; i < 3; i++) {
		char body[256];

		(void)snprintf(body, sizeof(body),
			       "{\"label\":\"%s\",\"sessionId\":\"%s\",\"profileType\":\"cpu\"}",
			       labels[i], session);
		reply = http_request(f, "POST", B "/baselines", "X-Tenant-ID: paged\r\n", body);
		assert_int_equal(reply.status, 200);
		(void)snprintf(ids[i], sizeof(ids[i]), "%s", http_text(&reply, "baselineId"));
		http_reply_free(&reply);
		clock_sleep_ns(2 * NS_PER_MS); /* ids sort by the millisecond */
	}
	for (int newest = 0; newest < 2; newest++) {
		cursor[0] = '\0';
		for (int i = 0; i < 3; i++) {
			char target[256];

			(void)snprintf(target, sizeof(target), B "/trend?profileType=cpu&funcName=f_200&limit=1%s%s%s",
				       newest ? "&order=newest" : "", *cursor ? "&cursor=" : "", cursor);
			reply = http_request(f, "GET", target, "X-Tenant-ID: paged\r\n", "");
			assert_int_equal(reply.status, 200);
			assert_int_equal(http_number(&reply, "total"), 3);
			assert_string_equal(http_text(&reply, "items.0.baselineLabel"), labels[newest ? 2 - i : i]);
			assert_int_equal(cJSON_GetArraySize(http_member(&reply, "items")), 1);
			assert_int_equal(cJSON_IsString(http_member(&reply, "nextCursor")), i < 2);
			if (i < 2)
				(void)snprintf(cursor, sizeof(cursor), "%s", http_text(&reply, "nextCursor"));
			http_reply_free(&reply);
		}
	}
}

/* Where there is time for one profile only, a page has one; the rest comes with the cursor. */
static void test_page_that_takes_long(void **state)
{
	static const char *const lists[] = { "/baselines?limit=100",
					     "/trend?profileType=cpu&funcName=f_200&limit=100" };
	struct http_fixture f = { .build_budget_ns = 1 };
	struct http_reply reply;
	char session[SESSION_ID_SIZE], body[256];

	http_fixture_open(&f);
	http_make_session(&f, "default", session);
	(void)snprintf(body, sizeof(body),
		       "{\"label\":\"x\",\"sessionId\":\"%s\",\"profileType\":\"cpu\"}", session);
	for (int i = 0; i < 3; i++) {
		reply = http_request(&f, "POST", B "/baselines", "", body);
		assert_int_equal(reply.status, 200);
		http_reply_free(&reply);
	}
	for (size_t list = 0; list < ARRAY_SIZE(lists); list++) {
		char target[256];

		(void)snprintf(target, sizeof(target), B "%s", lists[list]);
		for (int i = 0; i < 3; i++) {
			reply = http_request(&f, "GET", target, "", "");
			assert_int_equal(reply.status, 200);
			assert_int_equal(cJSON_GetArraySize(http_member(&reply, "items")), 1);
			assert_int_equal(cJSON_IsString(http_member(&reply, "nextCursor")), i < 2);
			if (i < 2)
				(void)snprintf(target, sizeof(target), B "%s&cursor=%s", lists[list],
					       http_text(&reply, "nextCursor"));
			http_reply_free(&reply);
		}
	}
	http_fixture_close(&f);
}

/* A copy of a baseline under another id, made at another time. */
static void put_copy(struct http_fixture *f, const char *of, const char *id, uint64_t created_ns)
{
	cleanup(json) cJSON *json = NULL;
	cleanup_free char *body = NULL, *copy = NULL;
	struct store_record record = { .kind = "baseline",
				       .tenant = "instant",
				       .id = id,
				       .service = "web",
				       .type = "cpu",
				       .status = "completed",
				       .created_ns = created_ns };
	char number[24];
	size_t len;

	assert_int_equal(store_get(f->store, "baseline", "default", of, &body, &len, NULL), 0);
	json = cJSON_ParseWithLength(body, len);
	(void)snprintf(number, sizeof(number), "%llu", (unsigned long long)created_ns);
	assert_true(cJSON_ReplaceItemInObjectCaseSensitive(json, "id", cJSON_CreateString(id)));
	assert_true(cJSON_ReplaceItemInObjectCaseSensitive(json, "createdNs", cJSON_CreateString(number)));
	record.body = copy = cJSON_PrintUnformatted(json);
	record.body_len = strlen(copy);
	assert_int_equal(store_put(f->store, &record, NULL), 0);
}

/* Those of one millisecond, whose ids do not tell which came first, stand on one page each. */
static void test_pages_of_one_millisecond(void **state)
{
	static const char *const ids[] = { "bl-01jgz4w8x2m3n4p5q6r7s8t9v3",
					   "bl-01jgz4w8x2m3n4p5q6r7s8t9v1",
					   "bl-01jgz4w8x2m3n4p5q6r7s8t9v2" };
	struct http_fixture *f = *state;
	char session[SESSION_ID_SIZE], of[64], cursor[64] = "";
	struct http_reply reply;

	http_make_session(f, "default", session);
	make_baseline(f, session, "copied", of);
	for (unsigned i = 0; i < 3; i++)
		put_copy(f, of, ids[i], 1736000000000000000ull + i);
	for (unsigned i = 0; i < 3; i++) {
		char target[256];

		(void)snprintf(target, sizeof(target), B "/baselines?limit=1%s%s",
			       *cursor ? "&cursor=" : "", cursor);
		reply = http_request(f, "GET", target, "X-Tenant-ID: instant\r\n", "");
		assert_int_equal(reply.status, 200);
		assert_int_equal(http_number(&reply, "total"), 3);
		assert_int_equal(cJSON_GetArraySize(http_member(&reply, "items")), 1);
		assert_string_equal(http_text(&reply, "items.0.baselineId"), ids[2 - i]);
		assert_int_equal(cJSON_IsString(http_member(&reply, "nextCursor")), i < 2);
		if (i < 2)
			(void)snprintf(cursor, sizeof(cursor), "%s", http_text(&reply, "nextCursor"));
		http_reply_free(&reply);
	}
}

static void test_baseline_refusals(void **state)
{
	static const struct {
		const char *body;
		unsigned status;
		const char *field;
	} rows[] = {
		{ "{\"sessionId\":\"s\",\"profileType\":\"cpu\"}", 400, "label" },
		{ "{\"label\":\"l\",\"profileType\":\"cpu\"}", 400, "sessionId" },
		{ "{\"label\":\"l\",\"sessionId\":\"s\"}", 400, "profileType" },
		{ "{\"label\":\"l\",\"sessionId\":\"s\",\"profileType\":\"cpu\",\"tags\":\"x\"}",
		  400, "tags" },
		{ "{\"label\":\"l\",\"sessionId\":\"s\",\"profileType\":\"cpu\",\"tags\":[\"a "
		  "b\"]}",
		  400, "tags" },
		{ "{\"label\":\"l\",\"sessionId\":\"s\",\"profileType\":\"cpu\",\"topFunctions\":["
		  "1]}",
		  400, "topFunctions" },
		{ "{\"label\":\"l\",\"sessionId\":\"s\",\"profileType\":\"cpu\",\"topFunctions\":[{"
		  "\"selfPct\":\"x\"}]}",
		  400, "selfPct" },
		{ "{\"label\":\"l\",\"sessionId\":\"sess-none\",\"profileType\":\"cpu\"}", 404,
		  "sessionId" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply = call(*state, "POST", rows[i].body, B "/baselines");

		if (reply.status != rows[i].status)
			fail_msg("%s: %u %s", rows[i].body, reply.status, reply.body);
		if (rows[i].field)
			assert_string_equal(http_text(&reply, "details.field"), rows[i].field);
		http_reply_free(&reply);
	}
}

/* There is no baseline of what is being deleted. */
static void test_baseline_of_nothing(void **state)
{
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], body[256];
	struct http_reply reply;

	http_make_session(f, "default", id);
	/* As a deletion does it: the names of a finished session are appended a little later. */
	(void)pthread_mutex_lock(&f->sessions->file_lock);
	assert_int_equal(store_session_remove(f->store, id, NULL), 0);
	(void)pthread_mutex_unlock(&f->sessions->file_lock);
	(void)snprintf(body, sizeof(body),
		       "{\"label\":\"l\",\"sessionId\":\"%s\",\"profileType\":\"cpu\"}", id);
	reply = call(f, "POST", body, B "/baselines");
	assert_int_equal(reply.status, 404);
	assert_string_equal(http_text(&reply, "error_code"), "UnknownSession");
	http_reply_free(&reply);
}

#define DELETED 24

struct deleting {
	struct http_fixture *f;
	char ids[DELETED][SESSION_ID_SIZE];
	atomic_bool done;
};

static void *delete_baselines(void *ctx)
{
	struct deleting *d = ctx;
	struct err err = { 0 };

	for (int i = 0; i < DELETED; i++)
		(void)!sessions_baseline_delete(d->f->sessions, "gone", d->ids[i], &err);
	atomic_store(&d->done, true);
	return NULL;
}

/* Lists stay lists while others delete what is in them. */
static void test_lists_while_baselines_go(void **state)
{
	struct deleting d = { .f = *state };
	char session[SESSION_ID_SIZE];
	struct err err = { 0 };
	pthread_t thread;

	http_make_session(d.f, "gone", session);
	for (int i = 0; i < DELETED; i++) {
		const struct baseline_request request = {
			.tenant = "gone", .session_id = session, .label = "l", .type = PROFILE_CPU
		};
		struct baseline_info info;

		assert_int_equal(sessions_baseline_create(d.f->sessions, &request, &info, &err), 0);
		strcpy(d.ids[i], info.id);
		baseline_info_deinit(&info);
	}
	assert_int_equal(pthread_create(&thread, NULL, delete_baselines, &d), 0);
	while (!atomic_load(&d.done)) {
		static const char *const lists[] = {
			B "/baselines?limit=100",
			B "/trend?profileType=cpu&funcName=f_200&limit=100"
		};

		for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
			struct http_reply reply = http_request(d.f, "GET", lists[i], "X-Tenant-ID: gone\r\n", "");

			if (reply.status != 200)
				fail_msg("%u %s", reply.status, reply.body);
			http_reply_free(&reply);
		}
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_views(void **state)
{
	struct http_fixture *f = *state;
	char id[SESSION_ID_SIZE], target[128];
	struct http_reply reply;
	double sum = 0;

	http_make_session(f, "default", id);
	reply = call(f, "GET", "", A "/%s/heatmap?colMs=1000&rowMs=50", id);
	assert_int_equal(reply.status, 200);
	assert_int_equal(http_number(&reply, "rows"), 20);
	for (const cJSON *c = http_member(&reply, "cells")->child; c; c = c->next)
		sum += c->valuedouble;
	assert_true(sum == 40 * 10101010.0);
	http_reply_free(&reply);
	reply = call(f, "GET", "", A "/%s/flamegraph?format=lines&function=f_300", id);
	assert_int_equal(reply.status, 200);
	assert_int_equal(cJSON_GetArraySize(http_member(&reply, "lines")), 1);
	assert_true(http_number(&reply, "lines.0.cumulativeValue") == http_number(&reply, "totalValue"));
	http_reply_free(&reply);
	(void)snprintf(target, sizeof(target), A "/%s/flamegraph?format=folded", id);
	reply = http_request(f, "GET", target, "Accept-Encoding: gzip;q=0\r\n", "");
	assert_int_equal(reply.status, 200);
	assert_null(http_reply_header(&reply, "Content-Encoding"));
	http_reply_free(&reply);
	reply = call(f, "GET", "", A "/%s/heatmap?colMs=1000&rowMs=30", id);
	assert_int_equal(reply.status, 400);
	http_reply_free(&reply);
	reply = call(f, "GET", "", A "/%s/ledger", id);
	assert_int_equal(reply.status, 422);
	http_reply_free(&reply);
}

static void check_v0_error(struct http_reply *reply, unsigned status, const char *code)
{
	if (reply->status != status || strcmp(http_text(reply, "error_code"), code) != 0)
		fail_msg("%u %s", reply->status, reply->body);
	assert_int_equal(cJSON_GetArraySize(reply->json), 3);
	assert_true(cJSON_IsObject(http_member(reply, "details")));
	http_reply_free(reply);
}

/* As large as the documentation's own functions get, with counts as numbers and as the documented
 * strings. */
static void test_functions_sent_back(void **state)
{
	struct http_fixture *f = *state;
	struct buf body = { .max = 1u << 20 };
	char session[SESSION_ID_SIZE], baseline[64];
	struct http_reply reply;

	http_make_session(f, "default", session);
	buf_printf(
		&body,
		"{\"label\":\"l\",\"sessionId\":\"%s\",\"profileType\":\"cpu\",\"topFunctions\":[",
		session);
	for (int i = 0; i < 1000; i++)
		buf_printf(
			&body,
			"%s{\"funcName\":\"f%d\",\"package\":\"p\",\"file\":\"\",\"line\":0,\"selfPct\":1.5,"
			"\"cumulativePct\":2,\"selfValue\":1,\"cumulativeValue\":2,\"sampleCount\":%s%d%s}",
			i ? "," : "", i, i % 2 ? "\"" : "", i, i % 2 ? "\"" : "");
	buf_add_str(&body, "]}");
	buf_add(&body, "", 1);
	assert_int_equal(body.error, 0);
	reply = call(f, "POST", body.data, B "/baselines");
	if (reply.status != 200)
		fail_msg("%u %s", reply.status, reply.body);
	assert_string_equal(http_text(&reply, "topFunctions.999.funcName"), "f999");
	assert_string_equal(http_text(&reply, "topFunctions.999.sampleCount"), "999");
	(void)snprintf(baseline, sizeof(baseline), "%s", http_text(&reply, "baselineId"));
	http_reply_free(&reply);
	reply = call(f, "GET", "", B "/baselines/%s", baseline);
	assert_string_equal(http_text(&reply, "topFunctions.7.sampleCount"), "7");
	assert_true(http_number(&reply, "quality.samples") > 0);
	http_reply_free(&reply);
	reply = call(f, "GET", "", B "/baselines?cursor=zzz");
	assert_int_equal(reply.status, 400);
	assert_string_equal(http_text(&reply, "details.field"), "cursor");
	http_reply_free(&reply);
	buf_deinit(&body);
}

static void feed(struct http_fixture *f, int count)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (int i = 0; i < count; i++)
		fake_feed_sample(&f->feed, 1, 101, 1, now_ns + (uint64_t)i, 1000000);
}

static void test_samply(void **state)
{
	static const char path[] = "/v0/pipelines/web/samply_profile";
	struct http_fixture *f = *state;
	struct http_reply reply = call(f, "POST", "", "/v0/pipelines/nobody/samply_profile");

	assert_string_equal(http_text(&reply, "message"), "Unknown pipeline name 'nobody'");
	assert_string_equal(http_text(&reply, "details.pipeline_name"), "nobody");
	check_v0_error(&reply, 404, "UnknownPipelineName");
	reply = call(f, "GET", "", "%s", path);
	check_v0_error(&reply, 400, "NoSamplyProfile");
	reply = call(f, "POST", "", "%s?duration_secs=0", path);
	check_v0_error(&reply, 400, "InvalidParam");
	reply = call(f, "POST", "", "%s?duration_secs=abc", path);
	check_v0_error(&reply, 400, "InvalidParam");
	reply = call(f, "POST", "", "%s?ordinal=7", path);
	check_v0_error(&reply, 404, "UnknownOrdinal");

	reply = call(f, "POST", "", "%s?duration_secs=2", path);
	if (reply.status != 202)
		fail_msg("%u %s", reply.status, reply.body);
	assert_int_equal(reply.body_len, 0);
	http_reply_free(&reply);
	feed(f, 25);
	reply = call(f, "POST", "", "%s", path);
	check_v0_error(&reply, 409, "SamplyProfilingInProgress");
	reply = call(f, "GET", "", "%s?latest=true", path);
	assert_int_equal(reply.status, 204);
	assert_int_equal(reply.body_len, 0);
	assert_in_range(atoi(http_reply_header(&reply, "Retry-After")), 0, 2);
	http_reply_free(&reply);
	for (int i = 0; i < 600; i++) {
		reply = call(f, "GET", "", "%s?latest=true", path);
		if (reply.status != 204)
			break;
		http_reply_free(&reply);
		clock_sleep_ns(10 * NS_PER_MS);
	}
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_reply_header(&reply, "Content-Type"), "application/gzip");
	assert_null(http_reply_header(&reply, "Content-Encoding"));
	assert_non_null(strstr(http_reply_header(&reply, "Content-Disposition"),
			       "-samply_profile.json.gz\""));
	assert_int_equal((unsigned char)reply.body[0], 0x1f);
	assert_int_equal((unsigned char)reply.body[1], 0x8b);
	http_reply_free(&reply);
	reply = call(f, "GET", "", "/v0/pipelines");
	assert_true(cJSON_IsArray(reply.json));
	assert_string_equal(http_text(&reply, "1.name"), "web");
	http_reply_free(&reply);
	reply = call(f, "GET", "", "/v0/pipelines/web");
	assert_string_equal(http_text(&reply, "name"), "web");
	http_reply_free(&reply);
}

/* Known, without a process: what was measured stays, of the instance that is asked for. */
static void test_stopped_pipeline(void **state)
{
	static const char path[] = "/v0/pipelines/dormant";
	struct http_fixture *f = *state;
	struct http_reply reply = call(f, "GET", "", "%s", path);

	check_v0_error(&reply, 404, "UnknownPipelineName");
	reply = call(f, "POST", "{\"service\":\"dormant\",\"enabled\":false}", A "/continuous");
	assert_int_equal(reply.status, 200);
	assert_non_null(strstr(reply.body, "no service 'dormant' is known here"));
	http_reply_free(&reply);
	/* Once it is in the store it is known. */
	reply = call(f, "POST", "{\"service\":\"dormant\",\"enabled\":false}", A "/continuous");
	assert_null(strstr(reply.body, "warnings"));
	http_reply_free(&reply);
	reply = call(f, "GET", "", "%s", path);
	assert_string_equal(http_text(&reply, "deployment_status"), "Stopped");
	assert_string_equal(http_text(&reply, "name"), "dormant");
	http_reply_free(&reply);
	reply = call(f, "POST", "", "%s/samply_profile", path);
	check_v0_error(&reply, 503, "PipelineInteractionNotDeployed");
	reply = call(f, "GET", "", "%s/samply_profile?ordinal=0", path);
	check_v0_error(&reply, 400, "NoSamplyProfile");
	reply = call(f, "DELETE", "", A "/continuous/dormant");
	assert_int_equal(reply.status, 204);
	http_reply_free(&reply);
}

/* A run whose sampling does not begin is a failure, and in nobody's way afterwards. */
static void test_run_that_never_begins(void **state)
{
	static const char path[] = "/v0/pipelines/db/samply_profile";
	struct http_fixture *f = *state;
	struct http_reply reply;

	f->feed.silent = true;
	reply = call(f, "POST", "", "%s", path);
	assert_non_null(strstr(http_text(&reply, "details.cause"), "did not begin"));
	check_v0_error(&reply, 500, "SamplyProfilingFailure");
	f->feed.silent = false;
	for (int i = 0; i < 40; i++) { /* until it has ended: at once, not after the 5 s more that a
					  collector has to answer */
		reply = call(f, "POST", "", "%s?duration_secs=1", path);
		if (reply.status != 409)
			break;
		http_reply_free(&reply);
		clock_sleep_ns(20 * NS_PER_MS);
	}
	if (reply.status != 202)
		fail_msg("%u %s", reply.status, reply.body);
	http_reply_free(&reply);
}

static void test_pull(void **state)
{
	struct http_fixture *f = *state;
	struct http_reply reply = call(f, "GET", "", "/debug/pprof/profile?service=none&seconds=1");

	assert_int_equal(reply.status, 404);
	http_reply_free(&reply);
	reply = call(f, "GET", "", "/debug/pprof/profile?seconds=0");
	assert_int_equal(reply.status, 400);
	http_reply_free(&reply);
	reply = call(f, "GET", "", "/debug/pprof/nothing");
	assert_int_equal(reply.status, 404);
	http_reply_free(&reply);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_run_that_never_begins), cmocka_unit_test(test_watch_against_baseline),
		cmocka_unit_test(test_compare),	       cmocka_unit_test(test_compare_refusals),
		cmocka_unit_test(test_unfinished),     cmocka_unit_test(test_diff),
		cmocka_unit_test(test_gate_and_trend), cmocka_unit_test(test_baseline_refusals),
		cmocka_unit_test(test_views),	       cmocka_unit_test(test_samply),
		cmocka_unit_test(test_pull),	       cmocka_unit_test(test_functions_sent_back),
		cmocka_unit_test(test_stopped_pipeline), cmocka_unit_test(test_trend_pages),
		cmocka_unit_test(test_pages_of_one_millisecond),
		cmocka_unit_test(test_page_that_takes_long),
		cmocka_unit_test(test_baseline_of_nothing), cmocka_unit_test(test_lists_while_baselines_go),
	};

	return cmocka_run_group_tests(tests, http_fixture_setup, http_fixture_teardown);
}
