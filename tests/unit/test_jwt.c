// SPDX-License-Identifier: Apache-2.0
/* Tokens made by GnuTLS with fresh keys, in every algorithm, and what must not pass. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "agent/base/buf.h"
#include "api/http/http_error.h"
#include "api/auth/jwt.h"
#include "api/auth/secret.h"

#define NOW_S  1768464000u
#define SECRET "0123456789abcdef0123456789abcdef"

enum { RSA, P256, ED25519, P384, OTHER_RSA, KINDS };
static gnutls_privkey_t private_keys[KINDS];
static char *public_pems[KINDS];

static const struct {
	const char *name;
	gnutls_pk_algorithm_t pk;
	unsigned bits;
	gnutls_digest_algorithm_t digest;
} kinds[KINDS] = {
	{ "RS256", GNUTLS_PK_RSA, 2048, GNUTLS_DIG_SHA256 },
	{ "ES256", GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), GNUTLS_DIG_SHA256 },
	{ "EdDSA", GNUTLS_PK_EDDSA_ED25519, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_ED25519),
	  GNUTLS_DIG_SHA512 },
	{ "ES384", GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP384R1), GNUTLS_DIG_SHA256 },
	{ "RS256", GNUTLS_PK_RSA, 2048, GNUTLS_DIG_SHA256 },
};

static int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		gnutls_pubkey_t public;
		gnutls_datum_t pem;

		assert_int_equal(gnutls_privkey_init(&private_keys[i]), 0);
		assert_int_equal(gnutls_privkey_generate(private_keys[i], kinds[i].pk, kinds[i].bits, 0),
				 0);
		assert_int_equal(gnutls_pubkey_init(&public), 0);
		assert_int_equal(gnutls_pubkey_import_privkey(public, private_keys[i], 0, 0), 0);
		assert_int_equal(gnutls_pubkey_export2(public, GNUTLS_X509_FMT_PEM, &pem), 0);
		public_pems[i] = strndup((char *)pem.data, pem.size);
		gnutls_free(pem.data);
		gnutls_pubkey_deinit(public);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		gnutls_privkey_deinit(private_keys[i]);
		free(public_pems[i]);
	}
	return 0;
}

static void add_encoded(struct buf *out, const void *data, size_t len)
{
	cleanup_free char *text = malloc(len * 2 + 8);

	assert_int_equal(base64url_encode(data, len, text, len * 2 + 8), 0);
	buf_add_str(out, text);
}

/* @kind: -1 = HMAC with @secret, -2 = no signature, else index of kinds. */
static char *make_token(const char *header, const char *claims, int kind, const char *secret)
{
	struct buf token = { 0 };

	add_encoded(&token, header, strlen(header));
	buf_add_char(&token, '.');
	add_encoded(&token, claims, strlen(claims));
	if (kind == -1) {
		uint8_t mac[32];

		assert_int_equal(gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret, strlen(secret), token.data,
						  token.len, mac), 0);
		buf_add_char(&token, '.');
		add_encoded(&token, mac, sizeof(mac));
	} else if (kind == -2) {
		buf_add_char(&token, '.');
	} else {
		gnutls_datum_t data = { (unsigned char *)token.data, (unsigned)token.len }, sig, r, s;
		uint8_t raw[64] = { 0 };

		assert_int_equal(gnutls_privkey_sign_data(private_keys[kind], kinds[kind].digest, 0,
							  &data, &sig), 0);
		buf_add_char(&token, '.');
		if (kind == P256) {
			assert_int_equal(gnutls_decode_rs_value(&sig, &r, &s), 0);
			/* Both numbers as 32 bytes: leading zeros dropped or added by DER. */
			memcpy(raw + (r.size < 32 ? 32 - r.size : 0), r.data + (r.size > 32), r.size > 32 ? 32 : r.size);
			memcpy(raw + 32 + (s.size < 32 ? 32 - s.size : 0), s.data + (s.size > 32),
			       s.size > 32 ? 32 : s.size);
			add_encoded(&token, raw, sizeof(raw));
			gnutls_free(r.data);
			gnutls_free(s.data);
		} else {
			add_encoded(&token, sig.data, sig.size);
		}
		gnutls_free(sig.data);
	}
	return buf_take(&token, NULL);
}

static struct jwt_verifier *verifier(const struct api_jwt *options)
{
	struct jwt_verifier *v = NULL;
	struct err err = { 0 };

	if (jwt_verifier_create(options, &v, &err) < 0)
		fail_msg("%s", err.text);
	return v;
}

static void test_algorithms(void **state)
{
	(void)state;
	for (int kind = -1; kind <= ED25519; kind++) {
		const char *name = kind < 0 ? "HS256" : kinds[kind].name;
		struct api_jwt options = { .algorithm = name,
					   .key = kind < 0 ? SECRET "\n" : public_pems[kind] };
		cleanup(jwt_verifier) struct jwt_verifier *v = verifier(&options);
		cleanup_free char *token = NULL;
		struct jwt_claims claims;
		struct err err = { 0 };
		char header[64];

		(void)snprintf(header, sizeof(header), "{\"alg\":\"%s\",\"typ\":\"JWT\"}", name);
		token = make_token(header, "{\"exp\":1768464001,\"sub\":\"me\",\"role\":\"admin\","
					   "\"tenant\":\"red\"}", kind, SECRET);
		if (jwt_verify(v, token, NOW_S, &claims, &err) < 0)
			fail_msg("%s: %s", name, err.text);
		assert_int_equal(claims.role, HTTP_ROLE_ADMIN);
		assert_string_equal(claims.tenant, "red");
		assert_string_equal(claims.subject, "me");
		/* One bit anywhere in the signed part breaks it. */
		for (size_t i = 0; i < strlen(token); i += 7) {
			if (token[i] == '.')
				continue;
			token[i] ^= 1;
			assert_int_equal(jwt_verify(v, token, NOW_S, &claims, &err), -EACCES);
			token[i] ^= 1;
		}
	}
}

static void test_claims(void **state)
{
	static const struct {
		const char *claims;
		bool passes;
		enum http_role role;
	} rows[] = {
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":\"a\"}", true, HTTP_ROLE_READ },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":[\"b\",\"a\"],\"role\":\"profile\"}", true,
		  HTTP_ROLE_PROFILE },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":\"a\",\"role\":[\"x\",\"admin\"]}", true,
		  HTTP_ROLE_ADMIN },
		{ "{\"exp\":1768464000,\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":\"1768464001\",\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":1768464001,\"nbf\":1768464001,\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":1768464001,\"nbf\":1768464000,\"iss\":\"i\",\"aud\":\"a\"}", true, HTTP_ROLE_READ },
		{ "{\"exp\":1768464001,\"iss\":\"j\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":1768464001,\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":\"b\"}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":\"i\"}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":\"a\",\"role\":\"god\"}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":\"a\",\"tenant\":\"a/b\"}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":\"a\",\"tenant\":7}", false, 0 },
		{ "{\"exp\":-1,\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":null,\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":1e999,\"iss\":\"i\",\"aud\":\"a\",\"nbf\":1e999}", false, 0 },
		{ "{\"exp\":1768464001,\"nbf\":\"0\",\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":0,\"exp\":1768464001,\"iss\":\"i\",\"aud\":\"a\"}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":[]}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":\"i\",\"aud\":{\"a\":\"a\"}}", false, 0 },
		{ "{\"exp\":1768464001,\"iss\":[\"j\"],\"aud\":\"a\"}", false, 0 },
		{ "[]", false, 0 },
		{ "{", false, 0 },
	};
	const struct api_jwt options = { .algorithm = "HS256", .key = SECRET, .issuer = "i",
					 .audience = "a" };
	cleanup(jwt_verifier) struct jwt_verifier *v = verifier(&options);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *token =
			make_token("{\"alg\":\"HS256\"}", rows[i].claims, -1, SECRET);
		struct jwt_claims claims;
		struct err err = { 0 };
		int rc = jwt_verify(v, token, NOW_S, &claims, &err);

		if ((rc == 0) != rows[i].passes)
			fail_msg("%s: %d %s", rows[i].claims, rc, err.text);
		if (rc == 0)
			assert_int_equal(claims.role, rows[i].role);
		else
			assert_string_equal(err.word, "Unauthenticated");
	}
}

static void refused(const struct jwt_verifier *v, const char *what, char *token)
{
	struct jwt_claims claims;
	struct err err = { 0 };
	int rc = jwt_verify(v, token, NOW_S, &claims, &err);

	if (rc != -EACCES || http_error_of(&err, rc)->status != 401)
		fail_msg("%s: %d, %s", what, rc, err.text);
	/* Nothing of a token or a key is said. */
	if (strlen(token) > 20 && strstr(err.text, token + strlen(token) - 10))
		fail_msg("%s: %s", what, err.text);
	free(token);
}

#define ADMIN "{\"exp\":1768464001,\"role\":\"admin\"}"

/* Tokens are refused that nobody signed, that another algorithm signed, or that were signed with
 * the public key, which everybody has. */
static void test_algorithm_confusion(void **state)
{
	static const char *const words[] = { "none", "None", "nOnE", "NONE", "", "HS256", "HS384", "ES384",
					     "PS256", "RS512", "ES256K", "dir" };

	(void)state;
	for (int kind = RSA; kind <= ED25519; kind++) {
		const struct api_jwt options = { .algorithm = kinds[kind].name, .key = public_pems[kind] };
		cleanup(jwt_verifier) struct jwt_verifier *v = verifier(&options);
		char header[64];

		for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
			(void)snprintf(header, sizeof(header), "{\"alg\":\"%s\"}", words[i]);
			refused(v, words[i], make_token(header, ADMIN, -2, NULL));
			refused(v, words[i], make_token(header, ADMIN, -1, public_pems[kind]));
			refused(v, words[i], make_token(header, ADMIN, kind, NULL));
		}
		(void)snprintf(header, sizeof(header), "{\"alg\":\"%s\"}", kinds[kind].name);
		refused(v, "no signature", make_token(header, ADMIN, -2, NULL));
		refused(v, "HMAC by the public key", make_token(header, ADMIN, -1, public_pems[kind]));
		for (int other = RSA; other < KINDS; other++)
			if (other != kind)
				refused(v, "another key", make_token(header, ADMIN, other, NULL));
		(void)snprintf(header, sizeof(header), "{\"alg\":\"%s\",\"crit\":[\"x\"]}", kinds[kind].name);
		refused(v, "an extension", make_token(header, ADMIN, kind, NULL));
		(void)snprintf(header, sizeof(header), "{\"alg\":[\"%s\"]}", kinds[kind].name);
		refused(v, "a list of algorithms", make_token(header, ADMIN, kind, NULL));
		(void)snprintf(header, sizeof(header), "{\"alg\":\"none\",\"alg\":\"%s\"}", kinds[kind].name);
		refused(v, "two algorithms", make_token(header, ADMIN, kind, NULL));
		refused(v, "no algorithm", make_token("{}", ADMIN, kind, NULL));
	}
}

/* The key is chosen from the configured ones and by nothing else that a header says. */
static void test_kid_tricks(void **state)
{
	static const char *const headers[] = {
		"{\"alg\":\"HS256\",\"kid\":\"one\"}", /* another one's */
		"{\"alg\":\"HS256\",\"kid\":\"three\"}",
		"{\"alg\":\"HS256\",\"kid\":\"\"}",
		"{\"alg\":\"HS256\",\"kid\":\"../../../../dev/null\"}",
		"{\"alg\":\"HS256\",\"kid\":\"/etc/passwd\"}",
		"{\"alg\":\"HS256\",\"kid\":\"x' UNION SELECT '" SECRET "\"}",
		"{\"alg\":\"HS256\",\"kid\":\"two|/usr/bin/id\"}",
		"{\"alg\":\"HS256\",\"kid\":\"two\\u0000\"}",
		"{\"alg\":\"HS256\",\"kid\":\"TWO\"}",
		"{\"alg\":\"HS256\",\"kid\":\"two \"}",
		"{\"alg\":\"HS256\",\"kid\":\"one\",\"kid\":\"two\"}",
		"{\"alg\":\"HS256\",\"kid\":\"two\",\"kid\":\"two\"}",
		"{\"alg\":\"HS256\",\"kid\":2}",
		"{\"alg\":\"HS256\",\"kid\":[\"two\"]}",
		"{\"alg\":\"HS256\",\"kid\":null}",
		"{\"alg\":\"HS256\",\"kid\":{\"two\":1}}",
	};
	static const char *const secrets[] = { "", "\0", "AAAA", "other-0123456789abcdef0123456789abc" };
	char text[64], set[512], header[4300];
	struct api_jwt options = { .algorithm = "HS256", .jwks = set };
	cleanup(jwt_verifier) struct jwt_verifier *v = NULL;
	struct jwt_claims claims;
	struct err err = { 0 };
	char *token;

	(void)state;
	assert_int_equal(base64url_encode(SECRET, strlen(SECRET), text, sizeof(text)), 0);
	(void)snprintf(set, sizeof(set),
		       "{\"keys\":[{\"kty\":\"oct\",\"kid\":\"one\",\"k\":\"%s\"},"
		       "{\"kty\":\"oct\",\"kid\":\"two\",\"k\":\"%s\"}]}",
		       "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE", text);
	v = verifier(&options);
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		refused(v, headers[i], make_token(headers[i], ADMIN, -1, SECRET));
	for (size_t i = 0; i < ARRAY_SIZE(secrets); i++) {
		refused(v, "/dev/null",
			make_token("{\"alg\":\"HS256\",\"kid\":\"/dev/null\"}", ADMIN, -1,
				   secrets[i]));
		refused(v, "a wrong secret",
			make_token("{\"alg\":\"HS256\",\"kid\":\"two\"}", ADMIN, -1, secrets[i]));
		refused(v, "no kid", make_token("{\"alg\":\"HS256\"}", ADMIN, -1, secrets[i]));
	}
	(void)snprintf(header, sizeof(header), "{\"alg\":\"HS256\",\"kid\":\"%0*d\"}", 4200, 2);
	refused(v, "a long kid", make_token(header, ADMIN, -1, SECRET));
	/* A key or its address in the header: what it brings along is not looked at. */
	(void)snprintf(header, sizeof(header),
		       "{\"alg\":\"HS256\",\"kid\":\"x\",\"jwk\":{\"kty\":\"oct\",\"kid\":\"x\",\"k\":\"%s\"},"
		       "\"jku\":\"http://127.0.0.1/keys\",\"x5u\":\"file:///etc/passwd\"}", text);
	refused(v, "a key in the header", make_token(header, ADMIN, -1, SECRET));
	/* Without a kid every configured key may be the one. */
	token = make_token("{\"alg\":\"HS256\"}", ADMIN, -1, SECRET);
	assert_int_equal(jwt_verify(v, token, NOW_S, &claims, &err), 0);
	free(token);
}

/* Signatures that broken verifiers took, shapes that are no token, tokens without end. */
static void test_odd_tokens(void **state)
{
	const struct api_jwt options = { .algorithm = "ES256", .key = public_pems[P256] };
	cleanup(jwt_verifier) struct jwt_verifier *v = verifier(&options);
	static const char *const shapes[] = { "",
					      ".",
					      "..",
					      "...",
					      "a.b.c",
					      "e30.e30.e30",
					      "e30.e30.",
					      ".e30.e30",
					      "e30..e30",
					      "=.=.=",
					      "bnVsbA.bnVsbA.bnVsbA",
					      "W10.W10.W10" };
	static const char head[] = "{\"alg\":\"ES256\"}";
	uint8_t zeros[64] = { 0 }, ones[64];
	struct buf token = { 0 };
	char *good;

	(void)state;
	memset(ones, 0xff, sizeof(ones));
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		refused(v, shapes[i], strdup(shapes[i]));
	for (unsigned i = 0; i < 2; i++) {
		token.len = 0;
		add_encoded(&token, head, strlen(head));
		buf_add_char(&token, '.');
		add_encoded(&token, ADMIN, strlen(ADMIN));
		buf_add_char(&token, '.');
		add_encoded(&token, i ? ones : zeros, 64);
		refused(v, "numbers off the curve", strdup(token.data));
	}
	good = make_token(head, ADMIN, P256, NULL);
	for (const char *const *tail =
		     (const char *const[]){ "A", "=", "==", ".", ".e30", " ", "AAAA", NULL };
	     *tail; tail++) {
		token.len = 0;
		buf_add_str(&token, good);
		buf_add_str(&token, *tail);
		refused(v, *tail, strdup(token.data));
	}
	/* 1 MiB in each part, and lists in lists */
	for (unsigned part = 0; part < 3; part++) {
		token.len = 0;
		for (unsigned i = 0; i < 3; i++) {
			for (size_t n = 0; n < (i == part ? 1u << 20 : 4); n++)
				buf_add_char(&token, 'A');
			if (i < 2)
				buf_add_char(&token, '.');
		}
		refused(v, "1 MiB", strdup(token.data));
	}
	token.len = 0;
	for (unsigned i = 0; i < 2000; i++)
		buf_add_char(&token, '[');
	buf_add_char(&token, '\0');
	refused(v, "nested", make_token(head, token.data, P256, NULL));
	free(good);
	buf_deinit(&token);
}

static void test_bad_configurations(void **state)
{
	const struct api_jwt rows[] = {
		{ .algorithm = "none", .key = SECRET },
		{ .algorithm = "HS512", .key = SECRET },
		{ .algorithm = "HS256", .key = "short" },
		{ .algorithm = "HS256", .key = public_pems[RSA] },
		{ .algorithm = "RS256", .key = SECRET },
		{ .algorithm = "RS256", .key = public_pems[P256] },
		{ .algorithm = "ES256", .key = public_pems[ED25519] },
		{ .algorithm = "ES256", .key = public_pems[P384] },
		{ .algorithm = "EdDSA", .key = public_pems[P256] },
		{ .algorithm = "RS256" },
		{ .algorithm = "RS256", .jwks = "{\"keys\":[]}" },
		{ .algorithm = "RS256",
		  .jwks = "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQ\",\"e\":\"AQAB\"}]}" },
		{ .algorithm = "ES256",
		  .jwks = "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"AQ\",\"y\":\"AQ\"}]}" },
		{ .algorithm = "EdDSA",
		  .jwks = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"AQ\"}]}" },
		{ .algorithm = "HS256",
		  .jwks = "{\"keys\":[{\"kty\":\"oct\",\"alg\":\"HS512\",\"k\":\"AQ\"}]}" },
		{ .algorithm = "RS256", .jwks = "not json" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct jwt_verifier *v = NULL;
		struct err err = { 0 };

		if (jwt_verifier_create(&rows[i], &v, &err) >= 0)
			fail_msg("row %zu was accepted", i);
		assert_null(v);
		assert_true(strlen(err.text) > 10);
	}
}

static void test_key_set(void **state)
{
	char secret[64], set[512];
	struct api_jwt options = { .algorithm = "HS256", .jwks = set };
	cleanup(jwt_verifier) struct jwt_verifier *v = NULL;
	cleanup_free char *right = make_token("{\"alg\":\"HS256\",\"kid\":\"two\"}",
					      "{\"exp\":1768464001}", -1, SECRET);
	cleanup_free char *wrong = make_token("{\"alg\":\"HS256\",\"kid\":\"one\"}",
					      "{\"exp\":1768464001}", -1, SECRET);
	struct jwt_claims claims;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(base64url_encode(SECRET, strlen(SECRET), secret, sizeof(secret)), 0);
	(void)snprintf(set, sizeof(set),
		       "{\"keys\":[{\"kty\":\"RSA\"},{\"kty\":\"oct\",\"kid\":\"one\",\"k\":\"%s\"},"
		       "{\"kty\":\"oct\",\"kid\":\"two\",\"k\":\"%s\"}]}",
		       "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", secret);
	v = verifier(&options);
	assert_int_equal(jwt_verify(v, right, NOW_S, &claims, &err), 0);
	assert_int_equal(jwt_verify(v, wrong, NOW_S, &claims, &err), -EACCES);
}

static void test_base64url(void **state)
{
	static const char *const bad[] = { "A", "AB=", "AB==", "A+B/", "AB C", "AC", "AAB" };
	uint8_t data[64], back[64];
	char text[128];

	(void)state;
	for (size_t len = 0; len <= sizeof(data); len++) {
		for (size_t i = 0; i < len; i++)
			data[i] = (uint8_t)(i * 37 + len);
		assert_int_equal(base64url_encode(data, len, text, sizeof(text)), 0);
		assert_int_equal(base64url_decode(text, strlen(text), back, sizeof(back)), (int)len);
		assert_memory_equal(data, back, len);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (base64url_decode(bad[i], strlen(bad[i]), back, sizeof(back)) >= 0)
			fail_msg("%s was accepted", bad[i]);
	assert_int_equal(base64url_encode(data, 32, text, 43), -ENOSPC);
	assert_int_equal(base64url_decode("AAAA", 4, back, 2), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_algorithms), cmocka_unit_test(test_claims),
		cmocka_unit_test(test_algorithm_confusion), cmocka_unit_test(test_kid_tricks),
		cmocka_unit_test(test_odd_tokens), cmocka_unit_test(test_bad_configurations),
		cmocka_unit_test(test_key_set),	   cmocka_unit_test(test_base64url),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
