// SPDX-License-Identifier: Apache-2.0
#include "api/auth/auth.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "api/api_internal.h"
#include "api/auth/links.h"

static int unauthenticated(struct err *err, const char *why)
{
	return err_set(err, EACCES, "Unauthenticated", "Authorization", "%s", why);
}

bool auth_is_open(struct api *api)
{
	return !api->is_public && !api->jwt && !keys_any(api->keys);
}

int auth_token(struct api *api, const char *token, struct auth_identity *ret, struct err *err)
{
	struct jwt_claims claims;
	struct key key;
	int rc, found;

	*ret = (struct auth_identity){ 0 };
	if (text_begins(token, "apikey:"))
		token += 7;
	found = keys_find(api->keys, token, &key);
	if (found > 0) {
		ret->role = key.role;
		memcpy(ret->tenant, key.tenant, sizeof(ret->tenant));
		(void)snprintf(ret->key_id, sizeof(ret->key_id), "%s", key.id);
		ret->caller = hash_bytes(key.id, strlen(key.id), 1);
		return 0;
	}
	if ((!api->jwt || !strchr(token, '.')) && found < 0)
		return err_set(err, -found, "StoreUnavailable", NULL,
			       "whether this key is good cannot be told: the store cannot be read");
	if (!api->jwt || !strchr(token, '.'))
		return unauthenticated(err, "this key is not known");
	rc = jwt_verify(api->jwt, token, clock_realtime_ns() / NS_PER_S, &claims, err);
	if (rc < 0)
		return rc;
	ret->role = claims.role;
	memcpy(ret->tenant, claims.tenant, sizeof(ret->tenant));
	ret->exp_s = claims.exp_s;
	ret->caller = hash_bytes(claims.subject, strlen(claims.subject), 2);
	return 0;
}

/* `Bearer <token>`; 1 = found, 0 = no Authorization header. */
static int bearer_token(const struct http_request *request, const char **ret, struct err *err)
{
	const char *header = http_header(request, "Authorization");

	if (!header)
		return 0;
	if (strncasecmp(header, "Bearer ", 7) != 0)
		return unauthenticated(err, "the Authorization header must be `Bearer <token>`");
	header += 7;
	while (*header == ' ')
		header++;
	*ret = header;
	return 1;
}

/* Its value. Cookies know no ports: others of this host, with names that end like ours, may stand
 * before it. */
static const char *find_cookie(const char *header)
{
	const char *at = header;

	while ((at = strstr(at, AUTH_COOKIE "=")) && at != header && at[-1] != ' ' && at[-1] != ';')
		at++;
	return at ? at + strlen(AUTH_COOKIE) + 1 : NULL;
}

/* The page's cookie: "exp role key tenant", signed. A key that was deleted takes its cookies along.
 * A cookie made from a JSON web token has a dash, the caller and the mark of the verifier in
 * hexadecimal instead: a verifier that is gone, or has other keys, takes its cookies along. */
static int read_cookie(struct api *api, const struct http_request *request,
		       struct auth_identity *ret)
{
	const char *header = http_header(request, "Cookie");
	const char *at = header ? find_cookie(header) : NULL;
	char ticket[TICKET_SIZE], text[TICKET_SIZE];
	struct auth_identity identity = { 0 };
	uint64_t exp_s, mark;
	unsigned role;
	int n = 0;

	if (!at)
		return -ENOENT;
	(void)snprintf(ticket, sizeof(ticket), "%.*s", (int)strcspn(at, "; "), at);
	if (ticket_read(api, ticket, text, sizeof(text)) < 0 ||
	    sscanf(text, "%" SCNu64 " %u %63s %n", &exp_s, &role, identity.key_id, &n) != 3 || !n)
		return -EACCES;
	if (exp_s <= clock_realtime_ns() / NS_PER_S || role > HTTP_ROLE_ADMIN)
		return -EACCES;
	if (identity.key_id[0] == '-') {
		if (sscanf(identity.key_id, "-%" SCNx64 ".%" SCNx64, &identity.caller, &mark) != 2 ||
		    !api->jwt || mark != jwt_verifier_mark(api->jwt))
			return -EACCES;
	} else {
		if (!keys_has(api->keys, identity.key_id))
			return -EACCES;
		identity.caller = hash_bytes(identity.key_id, strlen(identity.key_id), 1);
	}
	identity.role = (enum http_role)role;
	(void)snprintf(identity.tenant, sizeof(identity.tenant), "%s", text + n);
	*ret = identity;
	return 0;
}

/* A caller that belongs to one tenant may name only that one. */
static int bind_tenant(struct http_request *request, const struct auth_identity *identity,
		       struct err *err)
{
	const char *field, *asked = http_tenant_header(request, &field);

	if (!identity->tenant[0])
		return 0;
	if (asked && strcmp(asked, identity->tenant) != 0)
		return err_set(err, EACCES, "TenantMismatch", field,
			       "this token is for another tenant");
	memcpy(request->tenant, identity->tenant, sizeof(request->tenant));
	request->bound = true;
	return 0;
}

/* A link that was made for a tenant names it: browsers send no header. */
static int take_query_tenant(struct http_request *request, struct err *err)
{
	const char *tenant = query_text(&request->query, "tenant", NULL);

	if (!(request->route->flags & ROUTE_SIGNED) || !tenant || http_header(request, "X-Tenant-ID"))
		return 0;
	if (!parse_is_name(tenant))
		return err_set(err, EINVAL, "InvalidParam", "tenant",
			       "tenant must be 1 to 64 of A-Z a-z 0-9 . _ -");
	(void)snprintf(request->tenant, sizeof(request->tenant), "%s", tenant);
	return 0;
}

/* Callers whose identity is their token or cookie. */
static int check_identity(struct http_call *call)
{
	struct http_request *request = call->request;
	struct auth_identity identity = { 0 };
	const char *token = NULL;
	int rc = bearer_token(request, &token, call->err);

	if (rc > 0)
		rc = auth_token(call->api, token, &identity, call->err);
	else if (rc == 0 && read_cookie(call->api, request, &identity) < 0)
		return 0;
	if (rc < 0)
		return rc;
	request->role = identity.role;
	request->caller = identity.caller;
	rc = take_query_tenant(request, call->err);
	return rc < 0 ? rc : bind_tenant(request, &identity, call->err);
}

bool auth_is_owner(const struct http_request *request)
{
	return request->over_unix_socket &&
	       (request->peer_uid == 0 || request->peer_uid == geteuid());
}

static int find_role(struct http_call *call)
{
	struct http_request *request = call->request;
	int rc;

	if (request->over_unix_socket) {
		request->role = auth_is_owner(request) ? HTTP_ROLE_ADMIN : HTTP_ROLE_PROFILE;
		return take_query_tenant(request, call->err);
	}
	if (http_header(request, "Authorization") && auth_is_open(call->api))
		keys_look(call->api->keys);
	if (auth_is_open(call->api)) {
		request->role = HTTP_ROLE_PROFILE;
		return take_query_tenant(request, call->err);
	}
	rc = check_identity(call);
	if (rc < 0 || request->role != HTTP_ROLE_NONE)
		return rc;
	if (link_opens(call->api, request))
		request->role = HTTP_ROLE_READ;
	return 0;
}

int auth_check(struct http_call *call)
{
	const struct route *route = call->request->route;
	int rc;

	if (route->flags & ROUTE_OPEN)
		return 0;
	if ((route->flags & ROUTE_METRICS) && call->api->options.metrics_open)
		return 0;
	rc = find_role(call);
	if (rc < 0)
		return rc;
	if (call->request->role == HTTP_ROLE_NONE)
		return unauthenticated(call->err,
				       query_has(&call->request->query, "sig")
					       ? "this link has expired or was changed; sign in or ask "
						 "for a new one"
					       : "a key or token is needed: Authorization: Bearer …");
	if (call->request->role < route->role)
		return err_set(
			call->err, EACCES, "Forbidden", NULL,
			"this call needs the role %s, the caller has %s: use a key of that role, or the Unix socket "
			"as root",
			keys_role_word(route->role), keys_role_word(call->request->role));
	if ((route->flags & ROUTE_HOST) && call->request->bound)
		return err_set(call->err, EACCES, "Forbidden", NULL,
			       "this call concerns all tenants: a token of none is needed");
	return 0;
}
