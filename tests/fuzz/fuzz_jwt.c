// SPDX-License-Identifier: Apache-2.0
/* Tokens: the first byte chooses between any text, which must never pass, and a header and claims
 * (two lines) that get a true signature, so that what lies behind it is reached. Passing claims are
 * what RFC 7519 asks for. */
#include <stdlib.h>
#include <string.h>

#include "api/auth/jwt.h"
#include "api/auth/secret.h"

#define SECRET	"0123456789abcdef0123456789abcdef"
#define NOW_S	1768464000u
#define PART_MAX 2048

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct jwt_verifier *verifier(void)
{
	static struct jwt_verifier *kept;
	const struct api_jwt options = { .algorithm = "HS256", .key = SECRET, .issuer = "i",
					 .audience = "a" };
	struct err err = { 0 };

	if (!kept && jwt_verifier_create(&options, &kept, &err) < 0)
		abort();
	return kept;
}

static void check_claims(const struct jwt_claims *claims)
{
	if (claims->exp_s < NOW_S || claims->role < HTTP_ROLE_READ || claims->role > HTTP_ROLE_ADMIN)
		abort();
	for (const char *c = claims->tenant; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == '/')
			abort();
}

static int sign(const char *header, size_t header_len, const char *claims, size_t claims_len,
		char token[3 * PART_MAX])
{
	uint8_t mac[SECRET_BYTES];
	size_t len;

	if (base64url_encode(header, header_len, token, PART_MAX * 3 / 2) < 0)
		return -1;
	len = strlen(token);
	token[len++] = '.';
	if (base64url_encode(claims, claims_len, token + len, PART_MAX * 3 / 2) < 0)
		return -1;
	len += strlen(token + len);
	if (secret_hmac((const uint8_t *)SECRET, token, len, mac) < 0)
		return -1;
	token[len++] = '.';
	return base64url_encode(mac, sizeof(mac), token + len, 3 * PART_MAX - len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[PART_MAX], token[3 * PART_MAX];
	struct jwt_claims claims;
	struct err err = { 0 };
	const char *line;

	if (!size || size > sizeof(text) / 2)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] & 1) {
		if (jwt_verify(verifier(), text, NOW_S, &claims, &err) == 0)
			abort();
		return 0;
	}
	line = strchr(text, '\n');
	if (line && sign(text, (size_t)(line - text), line + 1, strlen(line + 1), token) == 0 &&
	    jwt_verify(verifier(), token, NOW_S, &claims, &err) == 0)
		check_claims(&claims);
	return 0;
}
