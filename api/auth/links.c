// SPDX-License-Identifier: Apache-2.0
#include "api/auth/links.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "agent/session/history.h"
#include "agent/store/store.h"
#include "api/api_internal.h"
#include "api/auth/auth.h"
#include "api/auth/secret.h"

#define KIND	  "secret"
#define RECORD_ID "links"
#define NO_TENANT "-"
#define PROFILING "/api/v1/observability/profiling"
/* Expiry moves in steps, so that the same answer has the same link (and ETag) for a while. */
#define LINK_STEP_S 60

#define RELOAD_NS NS_PER_S	  /* when a link does not open */
#define SHARED_NS (10 * NS_PER_S) /* of a store that others write to */

static int save(struct store *store, const uint8_t secret[SECRET_BYTES], uint64_t made_ns,
		struct err *err)
{
	char text[SECRET_BASE64_SIZE];
	struct store_record record = { .kind = KIND, .tenant = NO_TENANT, .id = RECORD_ID,
				       .service = "", .type = "", .status = "",
				       .created_ns = made_ns };
	int rc = base64url_encode(secret, SECRET_BYTES, text, sizeof(text));

	record.body = text;
	record.body_len = strlen(text);
	return rc < 0 ? rc : store_put(store, &record, err);
}

struct newest {
	uint8_t secret[SECRET_BYTES];
	uint64_t made_ns; /* 0 = there is none */
};

static int note_newest(void *ctx, const struct store_record *record)
{
	struct newest *newest = ctx;
	uint8_t secret[SECRET_BYTES];

	if (newest->made_ns ||
	    base64url_decode(record->body, record->body_len, secret, SECRET_BYTES) != SECRET_BYTES)
		return 0;
	memcpy(newest->secret, secret, sizeof(secret));
	newest->made_ns = record->created_ns;
	return 0;
}

static void take(struct links *links, const uint8_t secret[SECRET_BYTES], uint64_t made_ns)
{
	(void)pthread_rwlock_wrlock(&links->lock);
	memcpy(links->secret, secret, SECRET_BYTES);
	links->made_ns = made_ns;
	(void)pthread_rwlock_unlock(&links->lock);
}

/* With load_lock held. -ENOENT: there is no secret. */
static int load(struct links *links, struct err *err)
{
	const struct store_query query = { .kind = KIND, .tenant = NO_TENANT, .every_host = true };
	struct newest newest = { 0 };
	int rc = store_list(links->store, &query, note_newest, &newest, NULL, err);

	atomic_store(&links->tried_ns, clock_monotonic_ns());
	if (rc == 0 && !newest.made_ns)
		rc = -ENOENT;
	if (rc == 0)
		take(links, newest.secret, newest.made_ns);
	return rc;
}

/* Looks what another host has made, if the last look was @age_ns ago. */
static void refresh(struct links *links, uint64_t age_ns)
{
	if (!links->store || !store_is_shared(links->store) ||
	    clock_monotonic_ns() - atomic_load(&links->tried_ns) < age_ns ||
	    pthread_mutex_trylock(&links->load_lock) != 0)
		return;
	if (clock_monotonic_ns() - atomic_load(&links->tried_ns) >= age_ns)
		(void)!load(links, NULL);
	(void)pthread_mutex_unlock(&links->load_lock);
}

int links_init(struct links *links, struct store *store, struct err *err)
{
	int rc;

	(void)pthread_rwlock_init(&links->lock, NULL);
	(void)pthread_mutex_init(&links->load_lock, NULL);
	links->store = store;
	rc = store ? load(links, err) : -ENOENT;
	if (rc != -ENOENT)
		return rc;
	*err = (struct err){ 0 };
	links->made_ns = clock_realtime_ns();
	rc = secret_random(links->secret);
	/* A full disk must not keep the agent from serving; the links then end with the process. */
	if (rc == 0 && store && save(store, links->secret, links->made_ns, err) < 0)
		*err = (struct err){ 0 };
	return rc;
}

void links_deinit(struct links *links)
{
	(void)pthread_rwlock_destroy(&links->lock);
	(void)pthread_mutex_destroy(&links->load_lock);
}

int handle_rotate_links(struct http_call *call)
{
	struct links *links = &call->api->links;
	uint64_t made_ns = clock_realtime_ns();
	uint8_t secret[SECRET_BYTES];
	int rc = secret_random(secret);

	(void)pthread_mutex_lock(&links->load_lock);
	/* Newer than what it replaces, also where another host's clock is ahead. */
	if (made_ns <= links->made_ns)
		made_ns = links->made_ns + 1;
	if (rc == 0 && links->store)
		rc = save(links->store, secret, made_ns, call->err);
	if (rc == 0)
		take(links, secret, made_ns);
	(void)pthread_mutex_unlock(&links->load_lock);
	if (rc < 0)
		return rc;
	call->answer->status = 204;
	call->answer->no_store = true;
	return 0;
}

static int sign(struct api *api, const char *text, size_t len, char out[SECRET_BASE64_SIZE])
{
	uint8_t mac[SECRET_BYTES];
	int rc;

	refresh(&api->links, SHARED_NS);
	(void)pthread_rwlock_rdlock(&api->links.lock);
	rc = secret_hmac(api->links.secret, text, len, mac);
	(void)pthread_rwlock_unlock(&api->links.lock);
	return rc < 0 ? rc : base64url_encode(mac, sizeof(mac), out, SECRET_BASE64_SIZE);
}

static bool same_text(const char *a, const char *b)
{
	size_t len = strlen(a);
	unsigned char differs = 0;

	if (strlen(b) != len)
		return false;
	for (size_t i = 0; i < len; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return differs == 0;
}

/* Is @sig that of @text? One that is not may be by a secret that another host has just made. */
static bool is_signed(struct api *api, const char *text, size_t len, const char *sig)
{
	char expected[SECRET_BASE64_SIZE];

	if (sign(api, text, len, expected) == 0 && same_text(expected, sig))
		return true;
	refresh(&api->links, RELOAD_NS);
	return sign(api, text, len, expected) == 0 && same_text(expected, sig);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Fields end in newlines, which no field can contain. */
static void link_text(const char *path, const char *tenant, uint64_t exp_s, const char *bound,
		      struct buf *out)
{
	*out = (struct buf){ .max = 16384 };
	buf_printf(out, "link\n%s\n%s\n%" PRIu64 "\n%s", path, tenant, exp_s, bound);
}

static int sign_link(struct api *api, const char *path, const char *tenant, uint64_t exp_s,
		     const char *bound, char out[SECRET_BASE64_SIZE])
{
	struct buf text;
	int rc;

	link_text(path, tenant, exp_s, bound, &text);
	rc = text.error ? text.error : sign(api, text.data, text.len, out);
	buf_deinit(&text);
	return rc;
}

/* Writes base address, path, query and what opens it. @query is encoded, "" or ends in '&'; @bound
 * is what bound_text() makes of it. */
static const char *write_link(struct api *api, const char *path, const char *query,
			      const char *bound, const char *tenant, char out[LINK_SIZE])
{
	const char *base = api->options.public_url ? api->options.public_url : "";
	uint64_t now_s = clock_realtime_ns() / NS_PER_S;
	uint64_t exp_s = now_s / LINK_STEP_S * LINK_STEP_S + LINK_LIFE_S;
	char sig[SECRET_BASE64_SIZE] = "";
	struct buf link = { .max = LINK_SIZE - 1 };
	size_t len = strlen(base);

	while (len > 0 && base[len - 1] == '/')
		len--;
	buf_add(&link, base, len);
	buf_add_str(&link, path);
	buf_add_char(&link, '?');
	buf_add_str(&link, query);
	if (!auth_is_open(api)) {
		if (sign_link(api, path, tenant, exp_s, bound, sig) == 0)
			buf_printf(&link, "tenant=%s&exp=%" PRIu64 "&sig=%s&", tenant, exp_s, sig);
	} else if (strcmp(tenant, "default") != 0) {
		buf_printf(&link, "tenant=%s&", tenant);
	}
	/* The last character joins nothing. */
	(void)snprintf(out, LINK_SIZE, "%.*s", link.error ? 0 : (int)link.len - 1,
		       link.data ? link.data : "");
	buf_deinit(&link);
	return out;
}

const char *link_flame_graph(struct api *api, const struct session_info *info, char out[LINK_SIZE])
{
	char path[128];

	(void)snprintf(path, sizeof(path), PROFILING "/%s/flamegraph", info->id);
	return write_link(api, path, "", "", info->tenant, out);
}

static void add_encoded(struct buf *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (isalnum(c) || strchr("-._~", c))
			buf_add_char(out, (char)c);
		else
			buf_printf(out, "%%%02X", c);
	}
}

/* A link under construction: its query, and the same parameters as they are signed. */
struct bound_query {
	struct buf query, bound;
};

static void add_bound(struct bound_query *q, const char *name, const char *value)
{
	buf_printf(&q->query, "%s=", name);
	add_encoded(&q->query, value);
	buf_add_char(&q->query, '&');
	buf_printf(&q->bound, "%s=%s\n", name, value);
}

static const char *write_bound(struct api *api, const char *path, struct bound_query *q,
			       const char *tenant, char out[LINK_SIZE])
{
	out[0] = '\0';
	if (!q->query.error && !q->bound.error && q->query.data)
		(void)write_link(api, path, q->query.data, q->bound.data, tenant, out);
	buf_deinit(&q->query);
	buf_deinit(&q->bound);
	return out;
}

const char *link_window(struct api *api, const struct history_window *window, char out[LINK_SIZE])
{
	struct bound_query q = { { .max = LINK_SIZE }, { .max = LINK_SIZE } };
	char from[CLOCK_RFC3339_SIZE], to[CLOCK_RFC3339_SIZE];

	clock_format_rfc3339(window->from_ns, from);
	clock_format_rfc3339(window->to_ns, to);
	add_bound(&q, "service", window->service);
	add_bound(&q, "profileType", profile_type_info(window->type)->word);
	add_bound(&q, "start", from);
	add_bound(&q, "end", to);
	return write_bound(api, PROFILING "/window/flamegraph", &q, window->tenant, out);
}

/* Times become moments: `now-1h` would mean something else when the link is opened. */
const char *link_comparison(struct api *api, const struct http_request *request,
			    char out[LINK_SIZE])
{
	struct bound_query q = { { .max = LINK_SIZE }, { .max = LINK_SIZE } };

	for (const struct query_spec *spec = request->route->params; spec->name; spec++) {
		const char *value = query_text(&request->query, spec->name, NULL);
		char time[CLOCK_RFC3339_SIZE];

		if (!(spec->flags & QUERY_BOUND) || !value)
			continue;
		if (spec->type == QUERY_TIME)
			clock_format_rfc3339(query_uint(&request->query, spec->name, 0), time);
		add_bound(&q, spec->name, spec->type == QUERY_TIME ? time : value);
	}
	return write_bound(api, PROFILING "/compare/flamegraph", &q, request->tenant, out);
}

/* The parameters that say which data is meant, in the order of the route's list. */
static int bound_text(const struct http_request *request, struct buf *out)
{
	const struct query_spec *spec = request->route->params;

	for (; spec && spec->name; spec++) {
		const char *value;

		for (unsigned i = 0; (spec->flags & QUERY_BOUND) &&
				     (value = query_nth(&request->query, spec->name, i));
		     i++)
			buf_printf(out, "%s=%s\n", spec->name, value);
	}
	return out->error;
}

bool link_opens(struct api *api, struct http_request *request)
{
	const char *tenant = query_text(&request->query, "tenant", NULL);
	const char *sig = query_text(&request->query, "sig", NULL);
	uint64_t exp_s = query_uint(&request->query, "exp", 0);
	struct buf bound = { .max = 8192 }, text = { 0 };
	char path[LINK_SIZE];
	bool opens;

	if (!(request->route->flags & ROUTE_SIGNED) || !tenant || !sig || !parse_is_name(tenant) ||
	    exp_s <= clock_realtime_ns() / NS_PER_S)
		return false;
	(void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(request->target, "?"),
		       request->target);
	opens = bound_text(request, &bound) == 0;
	if (opens)
		link_text(path, tenant, exp_s, bound.data ? bound.data : "", &text);
	opens = opens && !text.error && is_signed(api, text.data, text.len, sig);
	buf_deinit(&bound);
	buf_deinit(&text);
	if (opens)
		(void)snprintf(request->tenant, sizeof(request->tenant), "%s", tenant);
	return opens;
}

/* ---- tickets --------------------------------------------------------------------------------- */

int ticket_make(struct api *api, const char *text, char out[TICKET_SIZE])
{
	char sig[SECRET_BASE64_SIZE], signed_text[TICKET_SIZE];
	int n = snprintf(signed_text, sizeof(signed_text), "ticket\n%s", text);
	int rc;

	if (n < 0 || (size_t)n >= sizeof(signed_text))
		return -E2BIG;
	rc = sign(api, signed_text, (size_t)n, sig);
	if (rc == 0)
		rc = base64url_encode(text, strlen(text), out, TICKET_SIZE - SECRET_BASE64_SIZE - 1);
	if (rc == 0)
		(void)snprintf(out + strlen(out), TICKET_SIZE - strlen(out), ".%s", sig);
	return rc;
}

int ticket_read(struct api *api, const char *ticket, char *ret, size_t size)
{
	const char *dot = strchr(ticket, '.');
	char signed_text[TICKET_SIZE] = "ticket\n";
	uint8_t *text = (uint8_t *)signed_text + 7;
	int len;

	if (!dot)
		return -EINVAL;
	len = base64url_decode(ticket, (size_t)(dot - ticket), text, sizeof(signed_text) - 8);
	if (len < 0 || (size_t)len >= size)
		return -EINVAL;
	if (!is_signed(api, signed_text, (size_t)len + 7, dot + 1))
		return -EACCES;
	memcpy(ret, text, (size_t)len);
	ret[len] = '\0';
	return 0;
}
