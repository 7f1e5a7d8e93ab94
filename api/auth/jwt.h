/* SPDX-License-Identifier: Apache-2.0 */
/* JSON web tokens (RFC 7519, 7515, 7518, 8037), verification only. The algorithm is fixed by the
 * configuration: a token that names another one, or none, is refused before its signature is looked
 * at. */
#ifndef PROFD_API_JWT_H
#define PROFD_API_JWT_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "api/http/http.h"

#define JWT_TEXT_MAX 8192
#define JWT_KEYS_MAX 32

/* Verifier of JSON web tokens; algorithm NULL = none. Contents of files, not paths. */
struct api_jwt {
	const char *algorithm;	  /* HS256, RS256, ES256 or EdDSA */
	const char *key;	  /* HS256: the secret; else a PEM public key or certificate; NULL = @jwks */
	const char *jwks;	  /* JSON web key set, NULL = @key */
	const char *issuer, *audience; /* that `iss` and `aud` must name, NULL = not checked */
	const char *tenant_claim; /* NULL = "tenant" */
	const char *role_claim;	  /* NULL = "role" */
};

struct jwt_verifier;

struct jwt_claims {
	char subject[128];
	char tenant[TENANT_NAME_SIZE]; /* "" = for all tenants */
	enum http_role role;
	uint64_t exp_s; /* Unix seconds */
};

/* Reads the key or key set. -EINVAL with what is wrong in the configuration. */
int jwt_verifier_create(const struct api_jwt *options, struct jwt_verifier **ret, struct err *err)
	must_use;
void jwt_verifier_destroy(struct jwt_verifier *v);
CLEANUP_DEFINE(jwt_verifier, struct jwt_verifier *, jwt_verifier_destroy);

/* Differs between verifiers that do not accept the same tokens: of its algorithm, keys, issuer,
 * audience and claims. Signed with cookies; gives nothing of a key away that can be used. */
uint64_t jwt_verifier_mark(const struct jwt_verifier *v);

/* -EACCES with a sentence that does not help a forger. @now_s: Unix seconds. Thread-safe. */
int jwt_verify(const struct jwt_verifier *v, const char *token, uint64_t now_s,
	       struct jwt_claims *ret, struct err *err) must_use;

#endif
