// SPDX-License-Identifier: Apache-2.0
/* Requests that must be refused, byte for byte over a real socket. Each row has its status and a
 * problem document that names the field; the server still serves afterwards. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "tests/support/http_fixture.h"

#define A "/api/v1/observability/profiling"
#define B "/api/v1/profiling"

struct row {
	const char *method, *target, *headers, *body;
	unsigned status;
	const char *code, *field; /* NULL = not checked */
};

static const struct row rows[] = {
	/* paths and methods */
	{ "GET", "/api/v1/nothing", "", "", 404, "NotFound", NULL },
	{ "GET", "/api/", "", "", 404, "NotFound", NULL },
	{ "GET", A "/start", "", "", 405, "MethodNotAllowed", "method" },
	{ "PUT", A "/start", "", "{}", 405, "MethodNotAllowed", "method" },
	{ "BREW", "/healthz", "", "", 405, "MethodNotAllowed", "method" },
	{ "OPTIONS", A "/history", "", "", 405, "MethodNotAllowed", "method" },
	{ "GET", "/../../etc/passwd", "", "", 404, "NotFound", NULL },
	{ "GET", "/%2e%2e/%2e%2e/etc/passwd", "", "", 404, "NotFound", NULL },
	{ "GET", "/ui/..%2f..%2fetc%2fpasswd", "", "", 404, "NotFound", NULL },
	{ "GET", "//healthz", "", "", 404, "NotFound", NULL },
	{ "GET", "/healthz/", "", "", 404, "NotFound", NULL },
	{ "GET", "healthz", "", "", 400, "InvalidParam", "path" },
	{ "GET", A "/sess-1%00x", "", "", 400, "InvalidParam", "profileId" },
	{ "GET", A "/%zz", "", "", 400, "InvalidParam", "profileId" },
	{ "GET", A "/%ff%fe", "", "", 400, "InvalidParam", "profileId" },
	{ "GET", A "/a%0d%0aX-Evil:1", "", "", 400, "InvalidParam", "profileId" },
	{ "GET", A "/sess-nope", "", "", 404, "UnknownSession", NULL },
	{ "DELETE", A "/sess-01jgz4w8x2m3n4p5q6r7s8t9v0", "", "", 404, "UnknownSession", NULL },
	{ "GET", A "/sess-01jgz4w8x2m3n4p5q6r7s8t9v0/flamegraph", "", "", 404, "UnknownSession",
	  NULL },
	/* queries */
	{ "GET", A "/history?limit=0", "", "", 400, "InvalidParam", "limit" },
	{ "GET", A "/history?limit=101", "", "", 400, "InvalidParam", "limit" },
	{ "GET", A "/history?limit=abc", "", "", 400, "InvalidParam", "limit" },
	{ "GET", A "/history?limit=1&limit=2", "", "", 400, "InvalidParam", "limit" },
	{ "GET", A "/history?nonsense=1", "", "", 400, "InvalidParam", "nonsense" },
	{ "GET", A "/history?profileType=banana", "", "", 400, "InvalidParam", "profileType" },
	{ "GET", A "/history?status=dead", "", "", 400, "InvalidParam", "status" },
	{ "GET", A "/history?from=tomorrow", "", "", 400, "InvalidParam", "from" },
	{ "GET", A "/history?from=now&to=now-1h", "", "", 400, "InvalidParam", "to" },
	{ "GET", A "/history?service=%c3%28", "", "", 400, "InvalidParam", "service" },
	{ "GET", A "/history?service=a%00b", "", "", 400, "InvalidParam", "service" },
	{ "GET", A "/history?cursor=garbage", "", "", 400, "InvalidParam", "cursor" },
	{ "GET", A "/sess-x?top=1001", "", "", 400, "InvalidParam", "top" },
	{ "GET", A "/sess-x?top=-1", "", "", 400, "InvalidParam", "top" },
	{ "GET", A "/sess-x?breakdown=nix", "", "", 400, "InvalidParam", "breakdown" },
	{ "GET", A "/sess-x?breakdown=pid,", "", "", 400, "InvalidParam", "breakdown" },
	{ "GET", A "/sess-x?breakdown=pid,path,lock", "", "", 404, "UnknownSession", NULL },
	{ "GET", B "/goroutine-flame/sess-x?state=nix", "", "", 400, "InvalidParam", "state" },
	{ "GET", B "/goroutine-flame/sess-x?state=", "", "", 404, "UnknownSession", NULL },
	{ "GET", B "/goroutine-flame/sess-x?state=waiting", "", "", 404, "UnknownSession", NULL },
	/* bodies */
	{ "POST", A "/start", "", "", 415, "UnsupportedMediaType", "Content-Type" },
	{ "POST", A "/start", "Content-Type: text/plain\r\n", "{}", 415, "UnsupportedMediaType",
	  "Content-Type" },
	{ "POST", A "/start", "Content-Type: application/x-www-form-urlencoded\r\n", "service=web",
	  415, "UnsupportedMediaType", "Content-Type" },
	{ "POST", A "/start", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "{}",
	  415, "UnsupportedMediaType", "Content-Encoding" },
	{ "POST", A "/start", "Content-Type: application/json\r\n", "", 400, "InvalidBody",
	  "body" },
	{ "POST", A "/start", "", "{", 400, "InvalidBody", "body" },
	{ "POST", A "/start", "", "[]", 400, "InvalidBody", "body" },
	{ "POST", A "/start", "", "null", 400, "InvalidBody", "body" },
	{ "POST", A "/start", "", "{\"service\":\"web\",}", 400, "InvalidBody", "body" },
	{ "POST", A "/start", "", "{\"service\":\"\xff\",\"profileType\":\"cpu\"}", 400,
	  "InvalidBody", "body" },
	{ "POST", A "/start", "", "{\"service\":\"a\\u0000b\",\"profileType\":\"cpu\"}", 400,
	  "InvalidBody", "body" },
	{ "POST", A "/start", "", "{\"service\":\"\\ud800\",\"profileType\":\"cpu\"}", 400,
	  "InvalidBody", "body" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"service\":\"db\",\"profileType\":\"cpu\"}", 400, "InvalidBody",
	  "service" },
	{ "POST", A "/start", "", "{\"profileType\":\"cpu\"}", 400, "InvalidParam", "service" },
	{ "POST", A "/start", "", "{\"service\":\"\",\"profileType\":\"cpu\"}", 400, "InvalidParam",
	  "service" },
	{ "POST", A "/start", "", "{\"service\":7,\"profileType\":\"cpu\"}", 400, "InvalidParam",
	  "service" },
	{ "POST", A "/start", "", "{\"service\":\"web\"}", 400, "InvalidParam", "profileType" },
	{ "POST", A "/start", "", "{\"service\":\"web\",\"profileType\":\"banana\"}", 400,
	  "InvalidParam", "profileType" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"durationSeconds\":0}", 400,
	  "InvalidParam", "durationSeconds" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"durationSeconds\":3601}", 400,
	  "InvalidParam", "durationSeconds" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"durationSeconds\":1.5}", 400,
	  "InvalidParam", "durationSeconds" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"durationSeconds\":1e400}", 400,
	  "InvalidParam", "durationSeconds" },
	{ "POST", A "/start", "", "{\"service\":\"web\",\"profileType\":\"cpu\",\"sampleRate\":-1}",
	  400, "InvalidParam", "sampleRate" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"sampleRate\":[99]}", 400, "InvalidParam",
	  "sampleRate" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"durationSeconds\":\"30\"}", 400,
	  "InvalidParam", "durationSeconds" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"sampleRate\":\"99\"}", 400,
	  "InvalidParam", "sampleRate" },
	{ "POST", A "/continuous", "", "{\"service\":\"web\",\"retentionDays\":\"7\"}", 400,
	  "InvalidParam", "retentionDays" },
	{ "POST", A "/start", "", "{\"service\":\"web\",\"profileType\":\"cpu\",\"labels\":[]}",
	  400, "InvalidParam", "labels" },
	{ "POST", A "/start", "",
	  "{\"service\":\"web\",\"profileType\":\"cpu\",\"labels\":{\"a b\":\"x\"}}", 400,
	  "InvalidParam", "labels" },
	{ "POST", A "/start", "", "{\"service\":\"never-heard-of\",\"profileType\":\"cpu\"}", 404,
	  "UnknownService", NULL },
	{ "POST", A "/start", "", "{\"service\":\"pid:0\",\"profileType\":\"cpu\"}", 0, NULL,
	  NULL },
	{ "POST", B "/sessions", "", "{\"profileType\":\"cpu\"}", 400, "InvalidParam", "target" },
	{ "POST", B "/sessions?wait=perhaps", "", "{\"profileType\":\"cpu\",\"target\":\"web\"}",
	  400, "InvalidParam", "wait" },
	/* headers */
	{ "GET", "/healthz", "Host: evil.example\r\n", "", 403, "Forbidden", "Host" },
	{ "GET", "/healthz", "Host: 127.0.0.1.evil.example\r\n", "", 403, "Forbidden", "Host" },
	{ "GET", "/healthz", "Host: localhost.\r\n", "", 403, "Forbidden", "Host" },
	{ "GET", "/healthz", "Host: \r\n", "", 400, "InvalidParam", "Host" },
	{ "GET", A "/history", "X-Tenant-ID: a/b\r\n", "", 400, "InvalidParam", "X-Tenant-ID" },
	{ "GET", A "/history", "X-Tenant-ID: \r\n", "", 400, "InvalidParam", "X-Tenant-ID" },
	/* an image of a page of another site */
	{ "GET", "/debug/pprof/profile?seconds=1", "Sec-Fetch-Site: cross-site\r\n", "", 403,
	  "Forbidden", "Origin" },
	{ "GET", "/debug/pprof/heap", "Sec-Fetch-Site: same-site\r\n", "", 403, "Forbidden",
	  "Origin" },
	{ "GET", "/debug/pprof/goroutine", "Origin: https://evil.example\r\n", "", 403, "Forbidden",
	  "Origin" },
	{ "POST", A "/start", "Sec-Fetch-Site: cross-site\r\n",
	  "{\"service\":\"web\",\"profileType\":\"cpu\"}", 403, "Forbidden", "Origin" },
	{ "POST", A "/start", "Origin: https://evil.example\r\n",
	  "{\"service\":\"web\",\"profileType\":\"cpu\"}", 403, "Forbidden", "Origin" },
	{ "GET", "/api/v1/keys", "", "", 403, "Forbidden", NULL },
};

static void check_row(const struct row *row, const struct http_reply *reply)
{
	const cJSON *item;

	if (row->status == 0) { /* any clean refusal */
		if (reply->status < 400 || reply->status > 499)
			fail_msg("%s %s: %u", row->method, row->target, reply->status);
		return;
	}
	if (reply->status != row->status)
		fail_msg("%s %s %s: %u, not %u: %s", row->method, row->target, row->body,
			 reply->status, row->status, reply->body);
	assert_string_equal(http_reply_header(reply, "Content-Type"), "application/problem+json");
	assert_non_null(http_reply_header(reply, "X-Request-ID"));
	if (row->code && strcmp(http_text(reply, "error_code"), row->code) != 0)
		fail_msg("%s %s: %s", row->method, row->target, reply->body);
	assert_int_equal(http_number(reply, "status"), row->status);
	assert_true(strlen(http_text(reply, "detail")) > 5);
	assert_string_equal(http_text(reply, "detail"), http_text(reply, "message"));
	item = http_member(reply, "details");
	assert_true(cJSON_IsObject(item));
	if (row->field && strcmp(http_text(reply, "details.field"), row->field) != 0)
		fail_msg("%s %s: names %s", row->method, row->target,
			 http_text(reply, "details.field"));
	if (row->status == 405)
		assert_non_null(http_reply_header(reply, "Allow"));
}

static int setup(void **state)
{
	struct http_fixture *f = calloc(1, sizeof(*f));

	f->options.header_timeout_ns = NS_PER_S;
	f->options.body_timeout_ns = NS_PER_S;
	f->options.body_bytes = 64u << 10;
	*state = f;
	return http_fixture_setup(state);
}

static void assert_serves(struct http_fixture *f)
{
	struct http_reply reply = http_request(f, "GET", "/healthz", "", "");

	assert_int_equal(reply.status, 200);
	http_reply_free(&reply);
}

static void test_rows(void **state)
{
	struct http_fixture *f = *state;

	assert_true(ARRAY_SIZE(rows) >= 40);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_reply reply = http_request(f, rows[i].method, rows[i].target,
						       rows[i].headers, rows[i].body);

		check_row(&rows[i], &reply);
		http_reply_free(&reply);
	}
	assert_serves(f);
}

/* Nothing above left a session behind. */
static void test_nothing_was_started(void **state)
{
	struct http_fixture *f = *state;
	struct http_reply reply = http_request(f, "GET", A "/history", "", "");

	assert_int_equal(http_number(&reply, "total"), 0);
	http_reply_free(&reply);
}

static char *repeated(const char *before, char c, size_t count, const char *after)
{
	struct buf text = { 0 };

	buf_add_str(&text, before);
	for (size_t i = 0; i < count; i++)
		buf_add_char(&text, c);
	buf_add_str(&text, after);
	return buf_take(&text, NULL);
}

static void test_too_long(void **state)
{
	static const struct {
		size_t url, headers, body;
		unsigned status;
		const char *code;
	} sizes[] = {
		{ 9000, 0, 0, 414, "UriTooLong" },
		{ 60000, 0, 0, 414, "UriTooLong" },
		{ 0, 20000, 0, 431, "HeadersTooLarge" },
		{ 0, 60000, 0, 431, "HeadersTooLarge" },
		{ 0, 0, 70000, 413, "BodyTooLarge" },
		{ 0, 0, 5000000, 413, "BodyTooLarge" },
	};
	struct http_fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		cleanup_free char *url = repeated(A "/start?x=", 'a', sizes[i].url, "");
		cleanup_free char *header = repeated("X-Long: ", 'b', sizes[i].headers, "\r\n");
		cleanup_free char *body = repeated("{\"service\":\"", 'c', sizes[i].body, "\"}");
		struct http_reply reply = http_request(f, "POST", sizes[i].url ? url : A "/start",
						       sizes[i].headers ? header : "", body);

		if (reply.status != sizes[i].status)
			fail_msg("row %zu: %u %.200s", i, reply.status, reply.body);
		assert_string_equal(http_text(&reply, "error_code"), sizes[i].code);
		http_reply_free(&reply);
	}
	assert_serves(f);
}

/* Beyond what the library keeps in memory it answers itself, with the same status. */
static void test_absurdly_long(void **state)
{
	struct http_fixture *f = *state;
	cleanup_free char *url = repeated("/", 'a', 1u << 20, "");
	struct http_reply reply = http_request(f, "GET", url, "", "");

	assert_true(reply.status == 414 || reply.status == 0);
	http_reply_free(&reply);
	assert_serves(f);
}

static void test_deep_json(void **state)
{
	struct http_fixture *f = *state;
	cleanup_free char *open = repeated("{\"service\":", '[', 20000, "");
	struct http_reply reply = http_request(f, "POST", A "/start", "", open);

	assert_int_equal(reply.status, 400);
	assert_string_equal(http_text(&reply, "error_code"), "InvalidBody");
	assert_non_null(strstr(http_text(&reply, "detail"), "deeply"));
	http_reply_free(&reply);
}

/* Not HTTP at all, half of it, or with lengths that lie: an answer or a closed connection, never a
 * hang. */
static void test_raw(void **state)
{
	static const struct {
		const char *bytes;
		unsigned status; /* 0 = closed or any 4xx */
	} raw[] = {
		{ "\r\n\r\n\r\n", 0 },
		{ "GET\r\n\r\n", 0 },
		{ "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 0 },
		{ "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0 },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 0 },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", 0 },
		{ "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 400 },
		{ "GET /healthz HTTP/1.1\r\nHost: local", 408 },
		{ "GET /heal", 408 },
		{ "POST " A "/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		  "Content-Length: 500\r\n\r\n{\"service\":", 408 },
		{ "POST " A "/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		  "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"ser", 408 },
	};
	struct http_fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(raw); i++) {
		struct http_reply reply = http_send(f, raw[i].bytes, strlen(raw[i].bytes));

		if (raw[i].status ? reply.status != raw[i].status
				  : reply.status && (reply.status < 400 || reply.status > 505))
			fail_msg("row %zu: %u %.300s", i, reply.status, reply.text);
		/* The deadline is absolute: one second here, and the sweep's tenth. */
		if (reply.seconds > 3)
			fail_msg("row %zu took %.1f s", i, reply.seconds);
		if (reply.status == 408) {
			assert_string_equal(http_text(&reply, "error_code"), "RequestTimeout");
			assert_non_null(http_reply_header(&reply, "X-Request-ID"));
			assert_string_equal(http_reply_header(&reply, "X-Request-ID"), http_text(&reply, "requestId"));
		}
		http_reply_free(&reply);
	}
	assert_serves(f);
}

/* A request that the HTTP library refuses before any handler sees it gets the same problem document
 * as any other. */
static void test_refused_by_the_library(void **state)
{
	static const struct {
		const char *target, *rest;
		unsigned status;
		const char *code, *field;
	} refused[] = {
		{ A "/start", "Content-Length: ten\r\n\r\n", 400, "InvalidParam",
		  "Content-Length" },
		{ A "/start", "Content-Length: -1\r\n\r\n", 400, "InvalidParam", "Content-Length" },
		{ "/v0/pipelines", "Content-Length: 1x\r\n\r\n", 400, "InvalidParam",
		  "Content-Length" },
		{ A "/start", "Content-Length: 18446744073709551616\r\n\r\n", 413, "BodyTooLarge",
		  NULL },
		{ A "/start", "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "InvalidParam",
		  "Transfer-Encoding" },
		{ A "/start", "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 413,
		  "BodyTooLarge", NULL },
		{ A "/start", "nonsense\r\n\r\n", 400, "InvalidParam", NULL },
	};
	struct http_fixture *f = *state;
	char text[512];

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		bool family_c = refused[i].target[1] == 'v';
		struct http_reply reply;

		(void)snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: localhost\r\n%s", refused[i].target,
			       refused[i].rest);
		reply = http_send(f, text, strlen(text));
		if (reply.status != refused[i].status || !reply.json)
			fail_msg("row %zu: %u %.300s", i, reply.status, reply.text);
		assert_string_equal(http_reply_header(&reply, "Content-Type"),
				    family_c ? "application/json" : "application/problem+json");
		assert_string_equal(http_text(&reply, "error_code"), refused[i].code);
		if (refused[i].field)
			assert_string_equal(http_text(&reply, "details.field"), refused[i].field);
		assert_non_null(http_reply_header(&reply, "X-Request-ID"));
		assert_string_equal(http_reply_header(&reply, "Connection"), "close");
		http_reply_free(&reply);
	}
	assert_serves(f);
}

/* A late body is refused under the client's own name of the request, one that cannot be echoed
 * under a made one. */
static void test_name_of_late_request(void **state)
{
	static const char late[] =
		"POST " A "/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		"Content-Length: 500\r\nX-Request-ID: %s\r\n\r\n{";
	static const struct {
		const char *id;
		bool echoed;
	} ids[] = { { "mine-7", true }, { "a\"b", false } };
	struct http_fixture *f = *state;
	struct http_reply reply;
	char text[512];

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		(void)snprintf(text, sizeof(text), late, ids[i].id);
		reply = http_send(f, text, strlen(text));
		assert_int_equal(reply.status, 408);
		assert_non_null(http_reply_header(&reply, "X-Request-ID"));
		assert_int_equal(strcmp(http_reply_header(&reply, "X-Request-ID"), ids[i].id) == 0,
				 ids[i].echoed);
		http_reply_free(&reply);
	}
}

/* A late body below /v0 is refused as anything there is: exactly message, error_code and details.
 */
static void test_late_request_of_pipelines(void **state)
{
	static const char late[] =
		"POST /v0/pipelines HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		"Content-Length: 500\r\n\r\n{";
	struct http_fixture *f = *state;
	struct http_reply reply = http_send(f, late, sizeof(late) - 1);

	assert_int_equal(reply.status, 408);
	assert_string_equal(http_reply_header(&reply, "Content-Type"), "application/json");
	assert_string_equal(http_text(&reply, "error_code"), "RequestTimeout");
	assert_int_equal(cJSON_GetArraySize(reply.json), 3);
	http_reply_free(&reply);
}

/* Health checks of load balancers speak HTTP/1.0 without a Host, and a target may name the host
 * (RFC 9112 3.2). */
static void test_hosts_of_requests(void **state)
{
	static const struct {
		const char *bytes;
		unsigned status;
	} hosts[] = {
		{ "GET /healthz HTTP/1.0\r\n\r\n", 200 },
		{ "GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n", 403 },
		{ "POST " A
		  "/start HTTP/1.0\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n",
		  403 },
		{ "GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: "
		  "close\r\n\r\n",
		  200 },
		{ "GET HTTPS://LOCALHOST:1/healthz?a HTTP/1.1\r\nHost: localhost\r\nConnection: "
		  "close\r\n\r\n",
		  400 },
		{ "GET http://localhost HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		  200 },
		{ "GET http://localhost/healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 400 },
		{ "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: "
		  "close\r\n\r\n",
		  403 },
		{ "GET http://localhost:1@evil.example/healthz HTTP/1.1\r\nHost: "
		  "localhost\r\nConnection: close\r\n\r\n",
		  400 },
		{ "GET http:///healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		  400 },
		{ "GET ftp://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: "
		  "close\r\n\r\n",
		  400 },
	};
	struct http_fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct http_reply reply = http_send(f, hosts[i].bytes, strlen(hosts[i].bytes));

		if (reply.status != hosts[i].status)
			fail_msg("row %zu: %u %.300s", i, reply.status, reply.text);
		http_reply_free(&reply);
	}
}

/* A byte now and then never lets an idle timeout pass; the deadline ends it all the same. */
static void test_drip(void **state)
{
	static const char text[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ";
	struct http_fixture *f = *state;
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)f->port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t begin_ns = clock_monotonic_ns();
	char answer[512] = "";

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	while (recv(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) {
		(void)send(fd, "a", 1, MSG_NOSIGNAL);
		clock_sleep_ns(50 * NS_PER_MS);
		assert_true(clock_monotonic_ns() - begin_ns < 3 * NS_PER_S);
	}
	(void)close(fd);
	assert_non_null(strstr(answer, "HTTP/1.1 408 "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_nothing_was_started),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_absurdly_long),
		cmocka_unit_test(test_deep_json),
		cmocka_unit_test(test_raw),
		cmocka_unit_test(test_hosts_of_requests),
		cmocka_unit_test(test_drip),
		cmocka_unit_test(test_name_of_late_request),
		cmocka_unit_test(test_late_request_of_pipelines),
		cmocka_unit_test(test_refused_by_the_library),
	};

	return cmocka_run_group_tests(tests, setup, http_fixture_teardown);
}
