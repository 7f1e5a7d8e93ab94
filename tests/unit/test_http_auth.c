// SPDX-License-Identifier: Apache-2.0
/* Authentication and authorisation: the open API, keys and roles, tenants, signed links, the Unix
 * socket. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gnutls/crypto.h>

#include "agent/base/clock.h"
#include "api/api_internal.h"
#include "api/auth/secret.h"
#include "tests/support/http_fixture.h"

#define A "/api/v1/observability/profiling"

struct made_key {
	char id[64], header[160]; /* an Authorization line */
};

static struct made_key make_key(struct http_fixture *f, const char *role, const char *tenant)
{
	struct made_key key;
	struct http_reply reply;
	char body[256], member[128] = "";

	if (tenant)
		(void)snprintf(member, sizeof(member), ",\"tenant\":\"%s\"", tenant);
	(void)snprintf(body, sizeof(body), "{\"name\":\"test\",\"role\":\"%s\"%s}", role, member);
	reply = http_request_local(f, "POST", "/api/v1/keys", "", body);
	if (reply.status != 200)
		fail_msg("%u %s", reply.status, reply.body);
	(void)snprintf(key.id, sizeof(key.id), "%s", http_text(&reply, "id"));
	(void)snprintf(key.header, sizeof(key.header), "Authorization: Bearer %s\r\n",
		       http_text(&reply, "key"));
	assert_string_equal(http_text(&reply, "role"), role);
	http_reply_free(&reply);
	return key;
}

static void expect(struct http_fixture *f, const char *method, const char *target,
		   const char *headers, const char *body, unsigned status, const char *code)
{
	struct http_reply reply = http_request(f, method, target, headers, body);

	if (reply.status != status)
		fail_msg("%s %s %s: %u, not %u: %s", method, target, headers, reply.status, status,
			 reply.body);
	if (code)
		assert_string_equal(http_text(&reply, "error_code"), code);
	if (status == 401)
		assert_string_equal(http_reply_header(&reply, "WWW-Authenticate"), "Bearer");
	http_reply_free(&reply);
}

static void delete_keys(struct http_fixture *f)
{
	struct http_reply reply = http_request_local(f, "GET", "/api/v1/keys", "", "");

	for (const cJSON *item = http_member(&reply, "items")->child; item; item = item->next) {
		struct http_reply gone;
		char target[128];

		assert_null(cJSON_GetObjectItem(item, "key"));
		(void)snprintf(target, sizeof(target), "/api/v1/keys/%s",
			       cJSON_GetObjectItem(item, "id")->valuestring);
		gone = http_request_local(f, "DELETE", target, "", "");
		assert_int_equal(gone.status, 204);
		http_reply_free(&gone);
	}
	http_reply_free(&reply);
}

static void test_open_until_the_first_key(void **state)
{
	struct http_fixture *f = *state;
	struct made_key key;

	expect(f, "GET", A "/history", "", "", 200, NULL);
	expect(f, "GET", A "/history", "Authorization: Bearer whatever\r\n", "", 200, NULL);
	expect(f, "GET", "/api/v1/keys", "", "", 403, "Forbidden");
	key = make_key(f, "read", NULL);
	expect(f, "GET", A "/history", "", "", 401, "Unauthenticated");
	expect(f, "GET", A "/history", "Authorization: Bearer whatever\r\n", "", 401, "Unauthenticated");
	expect(f, "GET", A "/history", "Authorization: Basic YTpi\r\n", "", 401, "Unauthenticated");
	expect(f, "GET", A "/history", key.header, "", 200, NULL);
	for (size_t i = 0; i < 4; i++) {
		static const char *const open[] = { "/healthz", "/readyz", "/version", "/openapi.json" };

		expect(f, "GET", open[i], "", "", 200, NULL);
	}
	expect(f, "GET", "/metrics", "", "", 401, "Unauthenticated");
	expect(f, "GET", "/", "", "", 303, NULL);
	expect(f, "GET", "/", "Accept: */*\r\n", "", 303, NULL);
	expect(f, "GET", "/", "Accept: application/json\r\n", "", 401, NULL);
	delete_keys(f);
	expect(f, "GET", A "/history", "", "", 200, NULL);
	expect(f, "GET", A "/sess-none/flamegraph?tenant=a%20b", "", "", 400, "InvalidParam");
}

static void test_roles(void **state)
{
	static const char body[] = "{\"service\":\"nobody\",\"profileType\":\"cpu\"}";
	struct http_fixture *f = *state;
	struct made_key read = make_key(f, "read", NULL), profile = make_key(f, "profile", NULL);
	struct made_key admin = make_key(f, "admin", NULL);
	char prefixed[192];

	expect(f, "POST", A "/start", read.header, body, 403, "Forbidden");
	expect(f, "POST", A "/start", profile.header, body, 404, "UnknownService");
	expect(f, "GET", "/api/v1/keys", profile.header, "", 403, "Forbidden");
	expect(f, "GET", "/api/v1/keys", admin.header, "", 200, NULL);
	expect(f, "DELETE", "/api/v1/keys/key-none", admin.header, "", 404, "UnknownKey");
	(void)snprintf(prefixed, sizeof(prefixed), "Authorization: bearer apikey:%s",
		       admin.header + strlen("Authorization: Bearer "));
	expect(f, "GET", "/api/v1/keys", prefixed, "", 200, NULL);
	/* Keys outlive the server. */
	http_fixture_restart(f);
	expect(f, "GET", "/api/v1/keys", admin.header, "", 200, NULL);
	expect(f, "GET", A "/history", "", "", 401, "Unauthenticated");
	delete_keys(f);
}

static void test_bad_keys(void **state)
{
	static const char *const bodies[] = {
		"{}",
		"{\"name\":\"n\"}",
		"{\"name\":\"n\",\"role\":\"god\"}",
		"{\"name\":\"\",\"role\":\"read\"}",
		"{\"name\":\"n\",\"role\":\"read\",\"tenant\":\"a/b\"}",
	};
	struct http_fixture *f = *state;
	struct http_reply odd;

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct http_reply reply = http_request_local(f, "POST", "/api/v1/keys", "", bodies[i]);

		if (reply.status != 400)
			fail_msg("%s: %u", bodies[i], reply.status);
		http_reply_free(&reply);
	}
	odd = http_request_local(f, "POST", "/api/v1/keys", "",
				 "{\"name\":\"n\",\"role\":\"read\",\"odd\":1}");
	assert_non_null(strstr(http_text(&odd, "warnings.0"), "odd"));
	http_reply_free(&odd);
	delete_keys(f);
	expect(f, "GET", A "/history", "", "", 200, NULL);
}

static void test_tenants(void **state)
{
	struct http_fixture *f = *state;
	struct made_key red = make_key(f, "profile", "red"), all = make_key(f, "read", NULL);
	char id[SESSION_ID_SIZE], target[128], headers[256];

	http_make_session(f, "red", id);
	(void)snprintf(target, sizeof(target), A "/%s", id);
	expect(f, "GET", target, red.header, "", 200, NULL);
	(void)snprintf(headers, sizeof(headers), "%sX-Tenant-ID: red\r\n", red.header);
	expect(f, "GET", target, headers, "", 200, NULL);
	(void)snprintf(headers, sizeof(headers), "%sX-Tenant-ID: blue\r\n", red.header);
	expect(f, "GET", target, headers, "", 403, "TenantMismatch");
	expect(f, "GET", target, all.header, "", 404, "UnknownSession");
	(void)snprintf(headers, sizeof(headers), "%sX-Tenant-ID: red\r\n", all.header);
	expect(f, "GET", target, headers, "", 200, NULL);
	delete_keys(f);
}

static void replace(char *text, const char *what, const char *with)
{
	char *at = strstr(text, what);

	assert_non_null(at);
	assert_int_equal(strlen(what), strlen(with));
	memcpy(at, with, strlen(with));
}

static void test_signed_links(void **state)
{
	struct http_fixture *f = *state;
	struct made_key key = make_key(f, "read", "red"), all = make_key(f, "read", NULL);
	char id[SESSION_ID_SIZE], other[SESSION_ID_SIZE], target[256], link[1024], bad[1100];
	struct http_reply reply;
	uint64_t exp_s;

	http_make_session(f, "red", id);
	http_make_session(f, "red", other);
	(void)snprintf(target, sizeof(target), A "/%s", id);
	reply = http_request(f, "GET", target, key.header, "");
	(void)snprintf(link, sizeof(link), "%s", http_text(&reply, "flameGraphUrl"));
	http_reply_free(&reply);
	assert_non_null(strstr(link, "&sig="));

	/* It lives for the hour that it is said to. */
	exp_s = strtoull(strstr(link, "exp=") + 4, NULL, 10);
	assert_in_range(exp_s, clock_realtime_ns() / NS_PER_S + 3500,
			clock_realtime_ns() / NS_PER_S + 3600);

	/* It opens, in every format, also for whoever is signed in for all tenants, and nothing
	 * else does. */
	expect(f, "GET", link, "", "", 200, NULL);
	expect(f, "GET", link, all.header, "", 200, NULL);
	(void)snprintf(bad, sizeof(bad), "%s&format=folded", link);
	expect(f, "GET", bad, "", "", 200, NULL);
	expect(f, "DELETE", link, "", "", 405, NULL);
	strcpy(bad, link);
	replace(bad, id, other);
	expect(f, "GET", bad, "", "", 401, "Unauthenticated");
	strcpy(bad, link);
	replace(bad, "tenant=red", "tenant=rad");
	expect(f, "GET", bad, "", "", 401, "Unauthenticated");
	strcpy(bad, link);
	replace(bad, "exp=1", "exp=2");
	expect(f, "GET", bad, "", "", 401, "Unauthenticated");
	strcpy(bad, link);
	bad[strlen(bad) - 3] ^= 1;
	expect(f, "GET", bad, "", "", 401, "Unauthenticated");
	(void)snprintf(bad, sizeof(bad), A "/%s%s", id, strchr(link, '?'));
	expect(f, "GET", bad, "", "", 400, NULL);

	http_fixture_restart(f);
	expect(f, "GET", link, "", "", 200, NULL);
	reply = http_request_local(f, "POST", "/api/v1/links/rotate", "", "");
	assert_int_equal(reply.status, 204);
	http_reply_free(&reply);
	expect(f, "GET", link, "", "", 401, "Unauthenticated");
	delete_keys(f);
}

/* With authentication a comparison hands out a link that opens exactly its two sides. */
static void test_comparison_link(void **state)
{
	struct http_fixture *f = *state;
	struct made_key key = make_key(f, "read", "red");
	char base[SESSION_ID_SIZE], other[SESSION_ID_SIZE], target[256], link[2048], bad[2200];
	struct http_reply reply;

	http_make_session(f, "red", base);
	http_make_session(f, "red", other);
	(void)snprintf(target, sizeof(target), A "/compare?baseProfileId=%s&comparisonProfileId=%s",
		       base, other);
	reply = http_request(f, "GET", target, key.header, "");
	assert_int_equal(reply.status, 200);
	(void)snprintf(link, sizeof(link), "%s", http_text(&reply, "flameGraphUrl"));
	http_reply_free(&reply);
	assert_non_null(strstr(link, "&sig="));
	expect(f, "GET", link, "", "", 200, NULL);
	(void)snprintf(bad, sizeof(bad), "%s&format=json&maxNodes=10", link);
	expect(f, "GET", bad, "", "", 200, NULL);
	strcpy(bad, link);
	replace(bad, other, base);
	expect(f, "GET", bad, "", "", 401, "Unauthenticated");
	(void)snprintf(bad, sizeof(bad), "%s&comparisonWhere=pid:101", link);
	expect(f, "GET", bad, "", "", 401, "Unauthenticated");

	/* Windows are named by moments, whatever words were asked with. */
	(void)snprintf(target, sizeof(target),
		       A "/compare?service=web&profileType=cpu&baseFrom=now-1h&baseTo=now"
			 "&comparisonFrom=now-2h&comparisonTo=now&baseWhere=pid:101");
	reply = http_request(f, "GET", target, key.header, "");
	assert_int_equal(reply.status, 200);
	(void)snprintf(link, sizeof(link), "%s", http_text(&reply, "flameGraphUrl"));
	http_reply_free(&reply);
	assert_null(strstr(link, "now"));
	expect(f, "GET", link, "", "", 200, NULL);
	delete_keys(f);
}

static void test_page_session(void **state)
{
	struct http_fixture *f = *state;
	struct made_key key = make_key(f, "read", "red"), other = make_key(f, "read", NULL);
	char body[256], cookie[600], target[128];
	struct http_reply reply;

	/* A browser is led to the sign-in and back. */
	reply = http_request(f, "GET", "/", "Accept: text/html\r\n", "");
	assert_int_equal(reply.status, 303);
	assert_string_equal(http_reply_header(&reply, "Location"), "/sign-in?next=/");
	http_reply_free(&reply);
	expect(f, "GET", "/sign-in?next=/p/x", "", "", 200, NULL);
	expect(f, "POST", "/sign-in", "", "{\"token\":\"wrong\"}", 401, "Unauthenticated");
	expect(f, "POST", "/sign-in", "Origin: https://evil.example\r\n", "{\"token\":\"wrong\"}", 403,
	       "Forbidden");
	(void)snprintf(body, sizeof(body), "{\"token\":\"%.*s\"}",
		       (int)strcspn(key.header + 22, "\r"), key.header + 22);
	reply = http_request(f, "POST", "/sign-in", "", body);
	assert_int_equal(reply.status, 200);
	assert_string_equal(http_text(&reply, "tenant"), "red");
	assert_non_null(strstr(http_reply_header(&reply, "Set-Cookie"), "HttpOnly; SameSite=Strict"));
	(void)snprintf(cookie, sizeof(cookie), "Cookie: a=b; other_profd_session=x; %.*s\r\n",
		       (int)strcspn(http_reply_header(&reply, "Set-Cookie"), ";"),
		       http_reply_header(&reply, "Set-Cookie"));
	http_reply_free(&reply);
	expect(f, "GET", "/", cookie, "", 200, NULL);
	expect(f, "GET", A "/history", cookie, "", 200, NULL);
	expect(f, "GET", "/api/v1/keys", cookie, "", 403, "Forbidden");
	cookie[strlen(cookie) - 4] ^= 1;
	expect(f, "GET", A "/history", cookie, "", 401, "Unauthenticated");
	cookie[strlen(cookie) - 4] ^= 1;
	/* The cookie ends with its key. */
	(void)snprintf(target, sizeof(target), "/api/v1/keys/%s", key.id);
	reply = http_request_local(f, "DELETE", target, "", "");
	assert_int_equal(reply.status, 204);
	http_reply_free(&reply);
	expect(f, "GET", A "/history", cookie, "", 401, "Unauthenticated");
	expect(f, "GET", A "/history", other.header, "", 200, NULL);
	delete_keys(f);
}

#define JWT_SECRET "0123456789abcdef0123456789abcdef"

/* HS256, for an hour. */
static void make_token(const char *subject, char out[512])
{
	static const char head[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
	char claims[128], part[256];
	uint8_t mac[32];

	(void)snprintf(claims, sizeof(claims), "{\"sub\":\"%s\",\"role\":\"read\",\"exp\":%llu}", subject,
		       (unsigned long long)(clock_realtime_ns() / NS_PER_S + 3600));
	assert_int_equal(base64url_encode(head, strlen(head), part, sizeof(part)), 0);
	(void)snprintf(out, 512, "%s.", part);
	assert_int_equal(base64url_encode(claims, strlen(claims), part, sizeof(part)), 0);
	strcat(out, part);
	assert_int_equal(gnutls_hmac_fast(GNUTLS_MAC_SHA256, JWT_SECRET, strlen(JWT_SECRET), out,
					  strlen(out), mac),
			 0);
	assert_int_equal(base64url_encode(mac, sizeof(mac), part, sizeof(part)), 0);
	strcat(strcat(out, "."), part);
}

struct sent_header {
	const char *name, *value;
};

static const char *find_sent(void *ctx, const char *name)
{
	const struct sent_header *sent = ctx;

	return strcmp(name, "Host") == 0       ? "localhost"
	       : strcmp(name, sent->name) == 0 ? sent->value
					       : NULL;
}

/* The caller that a request with this header is counted as. */
static uint64_t caller_of(struct http_fixture *f, const char *name, const char *value)
{
	struct sent_header sent = { name, value };
	struct http_request request = { .method = "GET",
					.target = A "/history",
					.body = "",
					.host_count = 1,
					.header = find_sent,
					.header_ctx = &sent };
	cleanup_http_answer struct http_answer answer = { 0 };

	api_dispatch(f->api, &request, &answer);
	http_request_deinit(&request);
	assert_int_equal(answer.status, 200);
	return request.caller;
}

static uint64_t caller_of_cookie(struct http_fixture *f, const char *token)
{
	char body[640], cookie[600];
	struct http_reply reply;

	(void)snprintf(body, sizeof(body), "{\"token\":\"%s\"}", token);
	reply = http_request(f, "POST", "/sign-in", "", body);
	assert_int_equal(reply.status, 200);
	(void)snprintf(cookie, sizeof(cookie), "%.*s",
		       (int)strcspn(http_reply_header(&reply, "Set-Cookie"), ";"),
		       http_reply_header(&reply, "Set-Cookie"));
	http_reply_free(&reply);
	return caller_of(f, "Cookie", cookie);
}

/* A cookie made from a token is worth no more than the token: it ends with the verifier, and with
 * its key. */
static void test_cookie_ends_with_verifier(void **state)
{
	struct http_fixture *f = *state;
	char token[512], body[640], cookie[640];
	struct http_reply reply;

	f->options.jwt = (struct api_jwt){ .algorithm = "HS256", .key = JWT_SECRET };
	http_fixture_restart(f);
	make_token("ann", token);
	(void)snprintf(body, sizeof(body), "{\"token\":\"%s\"}", token);
	reply = http_request(f, "POST", "/sign-in", "", body);
	assert_int_equal(reply.status, 200);
	(void)snprintf(cookie, sizeof(cookie), "Cookie: %.*s\r\n",
		       (int)strcspn(http_reply_header(&reply, "Set-Cookie"), ";"),
		       http_reply_header(&reply, "Set-Cookie"));
	http_reply_free(&reply);
	expect(f, "GET", A "/history", cookie, "", 200, NULL);
	http_fixture_restart(f); /* with the same verifier */
	expect(f, "GET", A "/history", cookie, "", 200, NULL);
	f->options.jwt.key = "another secret of thirty-two bytes.";
	http_fixture_restart(f);
	expect(f, "GET", A "/history", cookie, "", 401, "Unauthenticated");
	f->options.jwt = (struct api_jwt){ 0 };
	http_fixture_restart(f);
	(void)make_key(f, "read", NULL); /* the API stays closed */
	expect(f, "GET", A "/history", cookie, "", 401, "Unauthenticated");
	delete_keys(f);
}

static uint64_t cpu_of(struct http_fixture *f, const char *target)
{
	struct timespec before, after;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	for (unsigned i = 0; i < 50; i++)
		expect(f, "GET", target, "Accept-Encoding: gzip\r\n", "", 200, NULL);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	return (uint64_t)(after.tv_sec - before.tv_sec) * NS_PER_S + (uint64_t)after.tv_nsec -
	       (uint64_t)before.tv_nsec;
}

/* An image of another site's page starts no profile, also not as a pipeline's. */
static void test_image_starts_nothing(void **state)
{
	struct http_fixture *f = *state;

	expect(f, "GET", "/v0/pipelines/web/heap_profile", "Sec-Fetch-Site: cross-site\r\n", "", 403,
	       NULL);
}

/* A document that everybody may read costs a copy for each request, not a conversion and a
 * compression. */
static void test_strangers_cost_little(void **state)
{
	struct http_fixture *f = *state;
	uint64_t small, large;

	(void)cpu_of(f, "/openapi.json");
	small = cpu_of(f, "/healthz");
	large = cpu_of(f, "/openapi.json");
	if (large > 6 * small)
		fail_msg("/openapi.json: %llu us, /healthz: %llu us", (unsigned long long)large / 50000,
			 (unsigned long long)small / 50000);
}

/* People who sign in with tokens of their own have rates of their own: each the one of the token.
 */
static void test_cookies_count_apart(void **state)
{
	struct http_fixture *f = *state;
	char one[512], other[512], bearer[600];

	f->options.jwt = (struct api_jwt){ .algorithm = "HS256", .key = JWT_SECRET };
	http_fixture_restart(f);
	make_token("ann", one);
	make_token("ben", other);
	assert_true(caller_of_cookie(f, one) != caller_of_cookie(f, other));
	(void)snprintf(bearer, sizeof(bearer), "Bearer %s", one);
	assert_true(caller_of(f, "Authorization", bearer) == caller_of_cookie(f, one));
	f->options.jwt = (struct api_jwt){ 0 };
	http_fixture_restart(f);
}

static void test_metrics_open(void **state)
{
	struct http_fixture *f = *state;

	(void)make_key(f, "read", NULL);
	f->options.metrics_open = true;
	http_fixture_restart(f);
	expect(f, "GET", "/metrics", "", "", 200, NULL);
	f->options.metrics_open = false;
	delete_keys(f);
}

static void test_verifier_closes(void **state)
{
	struct http_fixture *f = *state;

	f->options.jwt = (struct api_jwt){ .algorithm = "HS256",
					   .key = "0123456789abcdef0123456789abcdef" };
	http_fixture_restart(f);
	expect(f, "GET", A "/history", "", "", 401, "Unauthenticated");
	expect(f, "GET", A "/history", "Authorization: Bearer a.b.c\r\n", "", 401, "Unauthenticated");
	f->options.jwt = (struct api_jwt){ 0 };
	http_fixture_restart(f);
	expect(f, "GET", A "/history", "", "", 200, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_until_the_first_key),
		cmocka_unit_test(test_roles),
		cmocka_unit_test(test_bad_keys),
		cmocka_unit_test(test_tenants),
		cmocka_unit_test(test_signed_links),
		cmocka_unit_test(test_comparison_link),
		cmocka_unit_test(test_page_session),
		cmocka_unit_test(test_cookies_count_apart),
		cmocka_unit_test(test_cookie_ends_with_verifier),
		cmocka_unit_test(test_strangers_cost_little),
		cmocka_unit_test(test_image_starts_nothing),
		cmocka_unit_test(test_metrics_open),
		cmocka_unit_test(test_verifier_closes),
	};

	return cmocka_run_group_tests(tests, http_fixture_setup, http_fixture_teardown);
}
