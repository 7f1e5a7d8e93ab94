/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the caller of a request and what the caller may do. In this order: the Unix socket's
 * peer, a bearer token (key, then JSON web token), the page's cookie, a signed link, and where
 * neither key nor verifier exists, everyone on this host, as role `profile`. */
#ifndef PROFD_API_AUTH_H
#define PROFD_API_AUTH_H

#include "api/http/router.h"

/* Sets request->role and, where the caller is bound to one, request->tenant; refuses what the
 * route's role does not allow. -EACCES with Unauthenticated, Forbidden or TenantMismatch. */
int auth_check(struct http_call *call) must_use;
/* No key, no verifier, and only this host reaches the listener: nobody needs a token. */
bool auth_is_open(struct api *api);
/* Root, or the agent's own user, on the Unix socket. */
bool auth_is_owner(const struct http_request *request);

/* The owner of a token: role, tenant ("" = all) and a word that names the key for the cookie. */
struct auth_identity {
	enum http_role role;
	char tenant[TENANT_NAME_SIZE];
	char key_id[64]; /* "" for JSON web tokens */
	uint64_t caller; /* hash of the key's id or the token's subject */
	uint64_t exp_s;	 /* Unix seconds when it ends, 0 = never */
};
/* -EACCES with Unauthenticated. */
int auth_token(struct api *api, const char *token, struct auth_identity *ret, struct err *err)
	must_use;

#define AUTH_COOKIE "profd_session"

#endif
