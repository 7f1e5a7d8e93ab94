// SPDX-License-Identifier: Apache-2.0
#include "api/auth/jwt.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>

#include "agent/base/buf.h"
#include "agent/base/parse.h"
#include "api/http/json_in.h"
#include "api/auth/secret.h"

#define MARKED_BYTES_MAX (4u << 20)

enum algorithm { JWT_HS256, JWT_RS256, JWT_ES256, JWT_EDDSA, JWT_ALGORITHMS };

static const struct {
	const char *name, *key_type, *curve; /* `alg`; `kty` and `crv` in a key set, NULL = has none */
	gnutls_pk_algorithm_t pk;
	gnutls_sign_algorithm_t sign;
} algorithms[JWT_ALGORITHMS] = {
	[JWT_HS256] = { "HS256", "oct", NULL, GNUTLS_PK_UNKNOWN, GNUTLS_SIGN_UNKNOWN },
	[JWT_RS256] = { "RS256", "RSA", NULL, GNUTLS_PK_RSA, GNUTLS_SIGN_RSA_SHA256 },
	[JWT_ES256] = { "ES256", "EC", "P-256", GNUTLS_PK_ECDSA, GNUTLS_SIGN_ECDSA_SHA256 },
	[JWT_EDDSA] = { "EdDSA", "OKP", "Ed25519", GNUTLS_PK_EDDSA_ED25519, GNUTLS_SIGN_EDDSA_ED25519 },
};

struct jwt_key {
	char id[128]; /* `kid`, "" = any */
	gnutls_pubkey_t public;
	uint8_t *secret; /* HS256, owned */
	size_t secret_len;
};

struct jwt_verifier {
	enum algorithm algorithm;
	const char *issuer, *audience, *tenant_claim, *role_claim; /* borrowed */
	struct jwt_key keys[JWT_KEYS_MAX];
	unsigned key_count;
	uint64_t mark;
};

/* ---- keys ------------------------------------------------------------------------------------ */

/* A base64url member of a JSON web key; the number of bytes or -EINVAL. */
static int key_bytes(const cJSON *jwk, const char *name, uint8_t *out, size_t size)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(jwk, name);

	if (!cJSON_IsString(item))
		return -EINVAL;
	return base64url_decode(item->valuestring, strlen(item->valuestring), out, size);
}

static int import_raw(enum algorithm algorithm, const cJSON *jwk, gnutls_pubkey_t public)
{
	uint8_t a[1024], b[64];
	int a_len = key_bytes(jwk, algorithm == JWT_RS256 ? "n" : "x", a, sizeof(a));
	gnutls_datum_t first = { a, a_len > 0 ? (unsigned)a_len : 0 }, second = { b, 0 };
	int b_len = 0;

	if (algorithm == JWT_EDDSA)
		return a_len == 32 && gnutls_pubkey_import_ecc_raw(public, GNUTLS_ECC_CURVE_ED25519,
								   &first, NULL) == 0
			       ? 0
			       : -EINVAL;
	b_len = key_bytes(jwk, algorithm == JWT_RS256 ? "e" : "y", b, sizeof(b));
	if (a_len <= 0 || b_len <= 0)
		return -EINVAL;
	second.size = (unsigned)b_len;
	if (algorithm == JWT_RS256)
		return a_len >= 256 && gnutls_pubkey_import_rsa_raw(public, &first, &second) == 0
			       ? 0
			       : -EINVAL;
	return gnutls_pubkey_import_ecc_raw(public, GNUTLS_ECC_CURVE_SECP256R1, &first, &second) == 0
		       ? 0
		       : -EINVAL;
}

/* Keys of another kind, curve or purpose may stand in the same set. */
static bool is_for(enum algorithm algorithm, const cJSON *jwk)
{
	const struct {
		const char *member, *wanted;
		bool required;
	} rows[] = {
		{ "kty", algorithms[algorithm].key_type, true },
		{ "crv", algorithms[algorithm].curve, true },
		{ "alg", algorithms[algorithm].name, false },
		{ "use", "sig", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const cJSON *item = cJSON_GetObjectItemCaseSensitive(jwk, rows[i].member);

		if (!rows[i].wanted || (!item && !rows[i].required))
			continue;
		if (!cJSON_IsString(item) || strcmp(item->valuestring, rows[i].wanted) != 0)
			return false;
	}
	return true;
}

static int add_web_key(struct jwt_verifier *v, const cJSON *jwk)
{
	struct jwt_key *key = &v->keys[v->key_count];
	const cJSON *id = cJSON_GetObjectItemCaseSensitive(jwk, "kid");
	uint8_t secret[512];
	int len;

	if (!is_for(v->algorithm, jwk))
		return 0;
	if (cJSON_IsString(id))
		(void)snprintf(key->id, sizeof(key->id), "%s", id->valuestring);
	if (v->algorithm == JWT_HS256) {
		len = key_bytes(jwk, "k", secret, sizeof(secret));
		if (len < SECRET_BYTES)
			return -EINVAL;
		key->secret = malloc((size_t)len);
		if (!key->secret)
			return -ENOMEM;
		memcpy(key->secret, secret, (size_t)len);
		key->secret_len = (size_t)len;
	} else {
		if (gnutls_pubkey_init(&key->public) != 0)
			return -ENOMEM;
		if (import_raw(v->algorithm, jwk, key->public) < 0) {
			gnutls_pubkey_deinit(key->public);
			key->public = NULL;
			return -EINVAL;
		}
	}
	v->key_count++;
	return 0;
}

static int add_key_set(struct jwt_verifier *v, const char *text, struct err *err)
{
	cleanup(json) cJSON *set = NULL;
	const cJSON *list;
	int rc = json_in_object(text, strlen(text), &set, err);

	if (rc < 0)
		return err_set(err, EINVAL, NULL, "jwt_jwks_file", "[auth] jwt_jwks_file: not JSON");
	list = cJSON_GetObjectItemCaseSensitive(set, "keys");
	for (const cJSON *jwk = list ? list->child : NULL; jwk; jwk = jwk->next) {
		if (v->key_count == JWT_KEYS_MAX)
			break;
		if (add_web_key(v, jwk) < 0)
			return err_set(err, EINVAL, NULL, "jwt_jwks_file",
				       "[auth] jwt_jwks_file: key %u is damaged or too short",
				       v->key_count + 1);
	}
	if (!v->key_count)
		return err_set(err, EINVAL, NULL, "jwt_jwks_file",
			       "[auth] jwt_jwks_file: no key for %s",
			       algorithms[v->algorithm].name);
	return 0;
}

static int import_pem(gnutls_pubkey_t public, const char *text)
{
	gnutls_datum_t pem = { (unsigned char *)text, (unsigned)strlen(text) };
	gnutls_x509_crt_t certificate;
	int rc = gnutls_pubkey_import(public, &pem, GNUTLS_X509_FMT_PEM);

	if (rc == 0)
		return 0;
	if (gnutls_x509_crt_init(&certificate) != 0)
		return -ENOMEM;
	rc = gnutls_x509_crt_import(certificate, &pem, GNUTLS_X509_FMT_PEM);
	if (rc == 0)
		rc = gnutls_pubkey_import_x509(public, certificate, 0);
	gnutls_x509_crt_deinit(certificate);
	return rc == 0 ? 0 : -EINVAL;
}

/* A public key must never serve as an HS256 secret: that is the classic confusion of algorithms. */
static int add_secret(struct jwt_verifier *v, const char *text, struct err *err)
{
	struct jwt_key *key = &v->keys[0];
	size_t len = strlen(text);

	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		len--;
	if (len < SECRET_BYTES || strstr(text, "-----BEGIN"))
		return err_set(err, EINVAL, NULL, "jwt_key_file",
			       "[auth] jwt_key_file: HS256 needs a secret of at least %d bytes, no "
			       "PEM file",
			       SECRET_BYTES);
	key->secret = malloc(len);
	if (!key->secret)
		return -ENOMEM;
	memcpy(key->secret, text, len);
	key->secret_len = len;
	v->key_count = 1;
	return 0;
}

static bool is_p256(gnutls_pubkey_t public)
{
	gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
	gnutls_datum_t x = { 0 }, y = { 0 };
	int rc = gnutls_pubkey_export_ecc_raw(public, &curve, &x, &y);

	gnutls_free(x.data);
	gnutls_free(y.data);
	return rc == 0 && curve == GNUTLS_ECC_CURVE_SECP256R1;
}

static int add_pem(struct jwt_verifier *v, const char *text, struct err *err)
{
	struct jwt_key *key = &v->keys[0];
	unsigned bits = 0;

	if (gnutls_pubkey_init(&key->public) != 0)
		return -ENOMEM;
	v->key_count = 1;
	if (import_pem(key->public, text) < 0)
		return err_set(err, EINVAL, NULL, "jwt_key_file",
			       "[auth] jwt_key_file: not a PEM public key or certificate");
	if (gnutls_pubkey_get_pk_algorithm(key->public, &bits) != (int)algorithms[v->algorithm].pk ||
	    (v->algorithm == JWT_ES256 && !is_p256(key->public)))
		return err_set(err, EINVAL, NULL, "jwt_key_file",
			       "[auth] jwt_key_file: the key is not of the kind %s needs",
			       algorithms[v->algorithm].name);
	if (v->algorithm == JWT_RS256 && bits < 2048)
		return err_set(err, EINVAL, NULL, "jwt_key_file",
			       "[auth] jwt_key_file: RSA keys under 2048 bits are refused");
	return 0;
}

/* A digest of everything that decides which tokens are good, so that a cookie tells nothing of a
 * secret. */
static int make_mark(const struct api_jwt *o, uint64_t *ret)
{
	const char *const parts[] = { o->algorithm, o->key, o->jwks, o->issuer, o->audience,
				      o->tenant_claim, o->role_claim };
	struct buf text = { .max = MARKED_BYTES_MAX };
	uint8_t digest[SECRET_BYTES];
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		buf_add_str(&text, parts[i] ? parts[i] : "");
		buf_add_char(&text, '\0');
	}
	rc = text.error ? text.error : secret_sha256(text.data, text.len, digest);
	buf_deinit(&text);
	if (rc == 0)
		memcpy(ret, digest, sizeof(*ret));
	return rc;
}

uint64_t jwt_verifier_mark(const struct jwt_verifier *v)
{
	return v->mark;
}

int jwt_verifier_create(const struct api_jwt *options, struct jwt_verifier **ret, struct err *err)
{
	cleanup(jwt_verifier) struct jwt_verifier *v = calloc(1, sizeof(*v));
	int rc;

	if (!v)
		return -ENOMEM;
	while (v->algorithm < JWT_ALGORITHMS &&
	       strcmp(algorithms[v->algorithm].name, options->algorithm) != 0)
		v->algorithm++;
	if (v->algorithm == JWT_ALGORITHMS)
		return err_set(err, EINVAL, NULL, "jwt_algorithm",
			       "[auth] jwt_algorithm must be HS256, RS256, ES256 or EdDSA");
	v->issuer = options->issuer;
	v->audience = options->audience;
	v->tenant_claim = options->tenant_claim ? options->tenant_claim : "tenant";
	v->role_claim = options->role_claim ? options->role_claim : "role";
	if (options->jwks)
		rc = add_key_set(v, options->jwks, err);
	else if (!options->key)
		rc = err_set(err, EINVAL, NULL, "jwt_key_file",
			     "[auth] jwt_algorithm needs jwt_key_file or jwt_jwks_file");
	else if (v->algorithm == JWT_HS256)
		rc = add_secret(v, options->key, err);
	else
		rc = add_pem(v, options->key, err);
	if (rc == 0)
		rc = make_mark(options, &v->mark);
	if (rc < 0)
		return rc;
	*ret = take_ptr(v);
	return 0;
}

void jwt_verifier_destroy(struct jwt_verifier *v)
{
	if (!v)
		return;
	for (unsigned i = 0; i < v->key_count; i++) {
		if (v->keys[i].public)
			gnutls_pubkey_deinit(v->keys[i].public);
		free(v->keys[i].secret);
	}
	free(v);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int refuse(struct err *err, const char *why)
{
	return err_set(err, EACCES, "Unauthenticated", "Authorization", "the token is refused: %s",
		       why);
}

static int check_mac(const struct jwt_key *key, const char *data, size_t len, const uint8_t *sig,
		     size_t sig_len)
{
	uint8_t mac[SECRET_BYTES];

	if (sig_len != SECRET_BYTES ||
	    gnutls_hmac_fast(GNUTLS_MAC_SHA256, key->secret, key->secret_len, data, len, mac) != 0)
		return -EACCES;
	return secret_equal(mac, sig) ? 0 : -EACCES;
}

/* RFC 7518 section 3.4: r and s side by side, 32 bytes each; GnuTLS wants them in DER. */
static int check_public(enum algorithm algorithm, const struct jwt_key *key, const char *data,
			size_t len, const uint8_t *sig, size_t sig_len)
{
	gnutls_datum_t text = { (unsigned char *)data, (unsigned)len };
	gnutls_datum_t raw = { (unsigned char *)sig, (unsigned)sig_len }, der = { 0 };
	gnutls_datum_t r = { (unsigned char *)sig, 32 }, s = { (unsigned char *)sig + 32, 32 };
	int rc;

	if (algorithm != JWT_ES256)
		return gnutls_pubkey_verify_data2(key->public, algorithms[algorithm].sign, 0, &text,
						  &raw) >= 0
			       ? 0
			       : -EACCES;
	if (sig_len != 64 || gnutls_encode_rs_value(&der, &r, &s) != 0)
		return -EACCES;
	rc = gnutls_pubkey_verify_data2(key->public, algorithms[algorithm].sign, 0, &text, &der);
	gnutls_free(der.data);
	return rc >= 0 ? 0 : -EACCES;
}

/* One part between dots as a JSON object. */
static int part_object(const char *text, size_t len, cJSON **ret)
{
	uint8_t json[JWT_TEXT_MAX];
	int n = base64url_decode(text, len, json, sizeof(json));

	return n < 0 ? n : json_in_object((const char *)json, (size_t)n, ret, NULL);
}

static int check_header(const struct jwt_verifier *v, const cJSON *header, const char **ret_id,
			struct err *err)
{
	const cJSON *alg = cJSON_GetObjectItemCaseSensitive(header, "alg");
	const cJSON *id = cJSON_GetObjectItemCaseSensitive(header, "kid");

	if (!cJSON_IsString(alg) || strcmp(alg->valuestring, algorithms[v->algorithm].name) != 0)
		return refuse(err, "its algorithm is not the configured one");
	if (cJSON_GetObjectItemCaseSensitive(header, "crit"))
		return refuse(err, "it needs extensions that are not known");
	if (id && !cJSON_IsString(id))
		return refuse(err, "its key id is no text");
	*ret_id = id ? id->valuestring : NULL;
	return 0;
}

static int check_signature(const struct jwt_verifier *v, const char *id, const char *data,
			   size_t len, const uint8_t *sig, size_t sig_len)
{
	for (unsigned i = 0; i < v->key_count; i++) {
		const struct jwt_key *key = &v->keys[i];
		int rc;

		if (id && key->id[0] && strcmp(id, key->id) != 0)
			continue;
		rc = v->algorithm == JWT_HS256
			     ? check_mac(key, data, len, sig, sig_len)
			     : check_public(v->algorithm, key, data, len, sig, sig_len);
		if (rc == 0)
			return 0;
	}
	return -EACCES;
}

static bool names(const cJSON *claim, const char *wanted)
{
	if (cJSON_IsString(claim))
		return strcmp(claim->valuestring, wanted) == 0;
	for (const cJSON *c = cJSON_IsArray(claim) ? claim->child : NULL; c; c = c->next)
		if (cJSON_IsString(c) && strcmp(c->valuestring, wanted) == 0)
			return true;
	return false;
}

static int check_times(const cJSON *claims, uint64_t now_s, struct err *err)
{
	const cJSON *exp = cJSON_GetObjectItemCaseSensitive(claims, "exp");
	const cJSON *nbf = cJSON_GetObjectItemCaseSensitive(claims, "nbf");

	if (!cJSON_IsNumber(exp) || !(exp->valuedouble > (double)now_s))
		return refuse(err, "it has expired or does not say when it will");
	if (nbf && (!cJSON_IsNumber(nbf) || !(nbf->valuedouble <= (double)now_s)))
		return refuse(err, "it is not valid yet");
	return 0;
}

static int take_claims(const struct jwt_verifier *v, const cJSON *claims, struct jwt_claims *ret,
		       struct err *err)
{
	static const char *const roles[] = { "none", "read", "profile", "admin" };
	const cJSON *subject = cJSON_GetObjectItemCaseSensitive(claims, "sub");
	const cJSON *tenant = cJSON_GetObjectItemCaseSensitive(claims, v->tenant_claim);
	const cJSON *role = cJSON_GetObjectItemCaseSensitive(claims, v->role_claim);

	const cJSON *exp = cJSON_GetObjectItemCaseSensitive(claims, "exp");

	*ret = (struct jwt_claims){ .role = HTTP_ROLE_READ };
	ret->exp_s = exp->valuedouble < 1e15 ? (uint64_t)exp->valuedouble : (uint64_t)1e15;
	if (cJSON_IsString(subject))
		(void)snprintf(ret->subject, sizeof(ret->subject), "%s", subject->valuestring);
	if (tenant && !cJSON_IsNull(tenant)) {
		if (!cJSON_IsString(tenant) || !parse_is_name(tenant->valuestring))
			return refuse(err, "its tenant is not a name");
		(void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", tenant->valuestring);
	}
	if (!role || cJSON_IsNull(role))
		return 0;
	for (unsigned i = HTTP_ROLE_READ; i < ARRAY_SIZE(roles); i++) {
		if (names(role, roles[i])) {
			ret->role = (enum http_role)i;
			if (cJSON_IsString(role))
				return 0;
		}
	}
	if (cJSON_IsString(role))
		return refuse(err, "its role is not read, profile or admin");
	return 0;
}

int jwt_verify(const struct jwt_verifier *v, const char *token, uint64_t now_s,
	       struct jwt_claims *ret, struct err *err)
{
	cleanup(json) cJSON *header = NULL, *claims = NULL;
	const char *first = strchr(token, '.'), *second = first ? strchr(first + 1, '.') : NULL;
	const char *id = NULL;
	uint8_t sig[1024];
	int sig_len, rc;

	if (!second || strlen(token) >= JWT_TEXT_MAX)
		return refuse(err, "it is not a JSON web token");
	if (part_object(token, (size_t)(first - token), &header) < 0)
		return refuse(err, "its header cannot be read");
	rc = check_header(v, header, &id, err);
	if (rc < 0)
		return rc;
	sig_len = base64url_decode(second + 1, strlen(second + 1), sig, sizeof(sig));
	if (sig_len < 0 ||
	    check_signature(v, id, token, (size_t)(second - token), sig, (size_t)sig_len) < 0)
		return refuse(err, "its signature is wrong");
	if (part_object(first + 1, (size_t)(second - first - 1), &claims) < 0)
		return refuse(err, "its claims cannot be read");
	rc = check_times(claims, now_s, err);
	if (rc == 0 && v->issuer && !names(cJSON_GetObjectItemCaseSensitive(claims, "iss"), v->issuer))
		rc = refuse(err, "its issuer is another one");
	if (rc == 0 && v->audience &&
	    !names(cJSON_GetObjectItemCaseSensitive(claims, "aud"), v->audience))
		rc = refuse(err, "it is for another audience");
	return rc == 0 ? take_claims(v, claims, ret, err) : rc;
}
