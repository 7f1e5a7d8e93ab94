// SPDX-License-Identifier: Apache-2.0
/* The way of every request: request id, size of the address, Host, route, caller, query, handler,
 * error document, common headers. Order matters: what a stranger may learn grows step by step, and
 * nothing of agent/ is called before the request is known to be well formed and allowed. */
#include <ctype.h>
#include <errno.h>
#include <strings.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "api/api_internal.h"
#include "api/auth/auth.h"
#include "api/http/http_error.h"
#include "api/http/request_body.h"
#include "api/routes.h"

void http_request_deinit(struct http_request *request)
{
	query_deinit(&request->query);
}

/* "host", "host:port", "[v6]:port" -> length of the host part. */
static size_t host_length(const char *text)
{
	const char *end;

	if (text[0] == '[') {
		end = strchr(text, ']');
		return end ? (size_t)(end - text + 1) : strlen(text);
	}
	return strcspn(text, ":");
}

static bool host_is(const char *host, size_t len, const char *name)
{
	return strlen(name) == len && strncasecmp(host, name, len) == 0;
}

/* Names that a page on another site cannot have: DNS rebinding reaches us with the attacker's name.
 */
static bool host_allowed(const struct api *api, const char *host)
{
	size_t len = host_length(host);

	if (host_is(host, len, "localhost") || host_is(host, len, "[::1]"))
		return true;
	if (text_begins(host, "127.")) {
		size_t i = 4;

		while (i < len && (isdigit((unsigned char)host[i]) || host[i] == '.'))
			i++;
		if (i == len)
			return true;
	}
	return api->public_host && host_is(host, len, api->public_host);
}

static bool is_change(const char *method)
{
	return strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0;
}

/* A target in absolute form names the host itself, and the Host header does not count (RFC
 * 9112 3.2.2). What does not fit or names a user stays as it is, and is refused. */
static void take_host(struct http_request *request)
{
	const char *header = http_header(request, "Host");
	const char *at = request->target;
	size_t len;

	(void)snprintf(request->host, sizeof(request->host), "%s", header ? header : "");
	at += strncasecmp(at, "http://", 7) == 0 ? 7 : strncasecmp(at, "https://", 8) == 0 ? 8 : 0;
	len = strcspn(at, "/?");
	if (at == request->target || len == 0 || len >= sizeof(request->host) || memchr(at, '@', len))
		return;
	memcpy(request->host, at, len);
	request->host[len] = '\0';
	request->target = at[len] ? at + len : "/";
}

/* A browser says where a request comes from: only our own pages may change something. A page of
 * another site that only loads an image sends no Origin but Sec-Fetch-Site (W3C "Fetch Metadata"),
 * which is "none" for what a person typed. */
static int check_origin(const struct api *api, const struct http_request *request, struct err *err)
{
	const char *origin = http_header(request, "Origin");
	const char *site = http_header(request, "Sec-Fetch-Site");
	const char *at;

	if (request->over_unix_socket ||
	    (!is_change(request->method) && !(request->route->flags & ROUTE_STARTS)))
		return 0;
	if (!origin && (!site || !strcmp(site, "same-origin") || !strcmp(site, "none")))
		return 0;
	at = origin ? strstr(origin, "://") : NULL;
	if (at && request->host[0] && strcasecmp(at + 3, request->host) == 0)
		return 0;
	if (at && api->public_host && host_is(at + 3, host_length(at + 3), api->public_host))
		return 0;
	return err_set(err, EACCES, "Forbidden", "Origin",
		       "requests that change something are refused from pages of another site");
}

static int check_envelope(const struct api *api, const struct http_request *request,
			  struct err *err)
{
	size_t len = strlen(request->target);

	if (len > api->options.url_bytes)
		return err_set(err, E2BIG, "UriTooLong", "url",
			       "the address has %zu bytes, at most %llu are accepted", len,
			       (unsigned long long)api->options.url_bytes);
	if (request->header_bytes > api->options.header_bytes)
		return err_set(err, E2BIG, "HeadersTooLarge", "headers",
			       "the header block has more than %llu bytes",
			       (unsigned long long)api->options.header_bytes);
	if (request->target[0] != '/')
		return err_set(err, EINVAL, "InvalidParam", "path",
			       "the request target must be an absolute path");
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)request->target[i] <= 0x20 || request->target[i] == 0x7f)
			return err_set(err, EINVAL, "InvalidParam", "path",
				       "the address holds a control character or a blank");
	if (request->over_unix_socket)
		return 0;
	if (!request->host_count && request->may_lack_host)
		return 0;
	if (!request->host_count || !request->host[0])
		return err_set(err, EINVAL, "InvalidParam", "Host", "the Host header is required");
	if (request->host_count > 1)
		return err_set(err, EINVAL, "InvalidParam", "Host", "more than one Host header");
	if (!host_allowed(api, request->host))
		return err_set(err, EACCES, "Forbidden", "Host",
			       "this Host is not served; use localhost or set [server] public_url");
	return 0;
}

static bool media_is_json(const char *type)
{
	size_t len = strcspn(type, "; \t");

	return (len == 16 && strncasecmp(type, "application/json", 16) == 0) ||
	       (len > 5 && strncasecmp(type, "application/", 12) == 0 &&
		strncasecmp(type + len - 5, "+json", 5) == 0);
}

static int check_body(const struct api *api, const struct http_request *request, struct err *err)
{
	const char *type = http_header(request, "Content-Type");
	const char *encoding = http_header(request, "Content-Encoding");

	if (request->body_len > api->options.body_bytes)
		return err_set(err, E2BIG, "BodyTooLarge", "body",
			       "the body has more than %llu bytes",
			       (unsigned long long)api->options.body_bytes);
	if (!(request->route->flags & ROUTE_JSON))
		return 0;
	if (encoding && strcasecmp(encoding, "identity") != 0)
		return err_set(err, EINVAL, "UnsupportedMediaType", "Content-Encoding",
			       "compressed bodies are not accepted");
	if (!type || !media_is_json(type))
		return err_set(err, EINVAL, "UnsupportedMediaType", "Content-Type",
			       "the body must be application/json");
	return 0;
}

static int take_tenant(struct http_request *request, struct err *err)
{
	const char *field, *tenant = http_tenant_header(request, &field);

	if (tenant && !parse_is_name(tenant))
		return err_set(err, EINVAL, "InvalidParam", field,
			       "%s must be 1 to 64 of A-Z a-z 0-9 . _ -", field);
	(void)snprintf(request->tenant, sizeof(request->tenant), "%s", tenant ? tenant : "default");
	return 0;
}

static int take_token(struct rate_limit *limit, uint64_t who, struct err *err)
{
	unsigned wait_s = who ? rate_limit_take(limit, who, clock_monotonic_ns()) : 0;

	if (!wait_s)
		return 0;
	(void)err_set(err, EBUSY, "RateLimited", NULL, "more requests than [limits] allows; come back");
	err->retry_after_s = wait_s;
	return -EBUSY;
}

static int find_route(struct http_call *call, size_t path_len)
{
	struct http_request *request = call->request;
	char allow[64];
	int rc = router_find(&route_table, request->method, request->target, path_len, &request->route,
			     request->path, allow, call->err);

	if (rc == -EPERM) {
		http_answer_header(call->answer, "Allow", "%s", allow);
		return err_set(call->err, EPERM, "MethodNotAllowed", "method",
			       "%.16s is not possible here, only %s", request->method, allow);
	}
	if (rc == -ENOENT)
		return err_set(call->err, ENOENT, "NotFound", NULL, "there is nothing at this path");
	return rc;
}

static int run(struct http_call *call)
{
	struct http_request *request = call->request;
	size_t path_len = strcspn(request->target, "?");
	const char *query = request->target[path_len] ? request->target + path_len + 1 : NULL;
	int rc = take_token(call->api->addresses, request->peer, call->err);

	if (rc == 0)
		rc = check_envelope(call->api, request, call->err);
	if (rc == 0)
		rc = find_route(call, path_len);
	if (rc == 0)
		rc = check_origin(call->api, request, call->err);
	if (rc == 0)
		rc = take_tenant(request, call->err);
	if (rc == 0 && !(request->route->flags & ROUTE_HTML))
		rc = query_parse(query, request->route->params, clock_realtime_ns(),
				 &request->query, call->err);
	if (rc == 0)
		rc = auth_check(call);
	if (rc == 0)
		rc = take_token(call->api->callers, request->caller, call->err);
	if (rc == 0)
		rc = check_body(call->api, request, call->err);
	if (rc < 0)
		return rc;
	rc = request->route->handler(call);
	if (rc == 0 && call->answer->body.error)
		rc = call->answer->body.error == -EFBIG
			     ? err_set(call->err, EFBIG, "LimitReached", NULL,
				       "the answer would be too large; ask for fewer nodes")
			     : call->answer->body.error;
	return rc;
}

static const char *no_header(void *ctx, const char *name)
{
	return NULL;
}

/* The role of the route decides; what concerns all tenants is nothing for callers of one. */
static int check_role(const struct http_request *request, struct err *err)
{
	const struct route *route = request->route;

	if (request->role >= route->role && !(request->bound && route->flags & ROUTE_HOST))
		return 0;
	return err_set(err, EACCES, "Forbidden", NULL, "this needs a key of a higher role");
}

/* struct http_call: ask */
static int ask(const struct http_call *call, const char *method, const char *target,
	       const char *body, struct buf *ret, struct err *err)
{
	size_t path_len = strcspn(target, "?");
	struct http_request request = { .method = method,
					.target = target,
					.body = body ? body : "",
					.body_len = body ? strlen(body) : 0,
					.header = no_header,
					.bound = call->request->bound,
					.role = call->request->role,
					.caller = call->request->caller };
	cleanup_http_answer struct http_answer answer = { .body = { .max = HTTP_ANSWER_MAX } };
	struct http_call inner = { .api = call->api, .request = &request, .answer = &answer, .err = err };
	int rc;

	memcpy(request.tenant, call->request->tenant, sizeof(request.tenant));
	rc = find_route(&inner, path_len);
	if (rc == 0)
		rc = check_role(&request, err);
	if (rc == 0)
		rc = query_parse(target[path_len] ? target + path_len + 1 : NULL, request.route->params,
				 clock_realtime_ns(), &request.query, err);
	if (rc == 0)
		rc = request.route->handler(&inner);
	if (rc == 0 && answer.has_file)
		rc = err_set(err, EFBIG, "LimitReached", NULL, "the answer would be too large");
	if (rc == 0)
		rc = answer.body.error;
	if (rc == 0)
		buf_add(ret, answer.body.data, answer.body.len);
	query_deinit(&request.query);
	buf_deinit(&inner.details);
	return rc < 0 ? rc : ret->error;
}

/* A route that has other forms, too, answers with a page only if the request asks for HTML. */
static bool wants_page(const struct http_request *request)
{
	const char *accept = http_header(request, "Accept");
	unsigned flags = request->route ? request->route->flags : 0;

	if (flags & ROUTE_HTML)
		return !accept || strstr(accept, "text/html") || strstr(accept, "*/*");
	return (flags & ROUTE_SIGNED) && accept && strstr(accept, "text/html");
}

/* A person who opens a page without a token is led to the sign-in and back. */
static bool lead_to_sign_in(struct http_call *call)
{
	const struct http_request *request = call->request;
	struct buf next = { .max = 400 };

	if (!wants_page(request))
		return false;
	for (const char *c = request->target; *c; c++) {
		if (isalnum((unsigned char)*c) || strchr("/._-", *c))
			buf_add_char(&next, *c);
		else
			buf_printf(&next, "%%%02X", (unsigned char)*c);
	}
	call->answer->status = 303;
	http_answer_header(call->answer, "Location", "/sign-in?next=%s",
			   next.error || !next.data ? "/" : next.data);
	buf_deinit(&next);
	return true;
}

static void write_error(struct http_call *call, int rc)
{
	const struct http_error *error = http_error_of(call->err, rc);
	struct http_answer *answer = call->answer;
	bool family_c = http_error_is_family_c(call->request->target);
	bool json = request_is_json(call->request);

	http_answer_drop(answer);
	answer->body.max = HTTP_ANSWER_MAX;
	api_count_refusal(call->api, error->code);
	if (error->status == 401 && lead_to_sign_in(call)) {
		answer->no_store = true;
		return;
	}
	answer->status = error->status;
	answer->no_store = true;
	if (http_is_connect(call->request->target)) {
		answer->content_type = "application/json";
		http_error_connect(error, call->err, &answer->body);
	} else if (http_is_otlp(call->request->target)) {
		answer->content_type = json ? "application/json" : "application/x-protobuf";
		http_error_otlp(error, call->err, json, &answer->body);
	} else {
		answer->content_type = http_error_content_type(family_c);
		http_error_body(error, call->err, family_c, call->request->request_id,
				call->details.len ? call->details.data : NULL, &answer->body);
	}
	if (error->status == 401)
		http_answer_header(answer, "WWW-Authenticate", "Bearer");
	if (call->err->retry_after_s || error->status == 429 || error->status == 503)
		http_answer_header(answer, "Retry-After", "%u",
				   call->err->retry_after_s ? call->err->retry_after_s : 5);
	if (error->status >= 500 && error->status != 503)
		log_warn("%.16s %.200s answered %u: %s", call->request->method,
			 call->request->route ? call->request->route->pattern : "?", error->status,
			 call->err->text);
}

/* Over the bytes before they are compressed, so a weak validator; 304 when the client has them. */
static void revalidate(const struct http_request *request, struct http_answer *answer)
{
	const char *known = http_header(request, "If-None-Match");
	char tag[40];

	if (answer->status != 200 || is_change(request->method) || answer->no_store)
		return;
	(void)snprintf(tag, sizeof(tag), "\"%016llx%08llx\"",
		       (unsigned long long)(answer->has_file
						    ? answer->file_hash
						    : hash_bytes(answer->body.data, answer->body.len, 7)),
		       (unsigned long long)(answer->has_file ? answer->file_bytes : answer->body.len));
	http_answer_header(answer, "ETag", "W/%s", tag);
	if (known && strstr(known, tag)) {
		http_answer_drop(answer);
		answer->status = 304;
		answer->content_type = NULL;
	}
}

static void finish(const struct http_request *request, struct http_answer *answer)
{
	struct buf *body = &answer->body;

	/* A line for people at a terminal. */
	if (body->len && body->data[body->len - 1] == '}' && !answer->no_compress &&
	    answer->content_type && strstr(answer->content_type, "json"))
		buf_add_char(body, '\n');
	http_answer_header(answer, "X-Request-ID", "%s", request->request_id);
	http_answer_header(answer, "X-Content-Type-Options", "nosniff");
	revalidate(request, answer);
	http_answer_header(answer, "Cache-Control", "%s",
			   answer->no_store ? "no-store" : "private, no-cache");
}

void api_dispatch(struct api *api, struct http_request *request, struct http_answer *answer)
{
	struct err err = { 0 };
	struct http_call call = {
		.api = api, .request = request, .answer = answer, .err = &err, .ask = ask
	};
	uint64_t begin_ns = clock_monotonic_ns();
	unsigned index;
	int rc;

	answer->body.max = HTTP_ANSWER_MAX;
	call.details.max = 1u << 16;
	http_request_id(http_header(request, "X-Request-ID"), request->request_id);
	take_host(request);
	rc = run(&call);
	if (rc < 0)
		write_error(&call, rc);
	if (!answer->status)
		answer->status = 200;
	finish(request, answer);
	buf_deinit(&call.details);
	index = request->route ? (unsigned)(request->route - route_table.routes) : API_ROUTES_MAX;
	atomic_fetch_add(&api->counters.requests[index][http_status_slot(answer->status)], 1);
	atomic_fetch_add(&api->counters.handler_ns[index], clock_monotonic_ns() - begin_ns);
}
