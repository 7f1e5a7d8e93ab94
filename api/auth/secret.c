// SPDX-License-Identifier: Apache-2.0
#include "api/auth/secret.h"

#include <errno.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

int secret_random(uint8_t out[SECRET_BYTES])
{
	return gnutls_rnd(GNUTLS_RND_KEY, out, SECRET_BYTES) == 0 ? 0 : -EIO;
}

int secret_sha256(const void *data, size_t len, uint8_t out[SECRET_BYTES])
{
	return gnutls_hash_fast(GNUTLS_DIG_SHA256, data, len, out) == 0 ? 0 : -EIO;
}

int secret_hmac(const uint8_t key[SECRET_BYTES], const void *data, size_t len,
		uint8_t out[SECRET_BYTES])
{
	return gnutls_hmac_fast(GNUTLS_MAC_SHA256, key, SECRET_BYTES, data, len, out) == 0 ? 0
											  : -EIO;
}

bool secret_equal(const uint8_t a[SECRET_BYTES], const uint8_t b[SECRET_BYTES])
{
	return gnutls_memcmp(a, b, SECRET_BYTES) == 0;
}

int base64url_encode(const void *data, size_t len, char *out, size_t size)
{
	const uint8_t *at = data;
	size_t n = 0;

	if ((len * 4 + 2) / 3 + 1 > size)
		return -ENOSPC;
	for (; len > 0; at += 3, len = len > 3 ? len - 3 : 0) {
		uint32_t bits = (uint32_t)at[0] << 16 | (len > 1 ? (uint32_t)at[1] << 8 : 0) |
				(len > 2 ? at[2] : 0);

		out[n++] = letters[bits >> 18];
		out[n++] = letters[bits >> 12 & 63];
		if (len > 1)
			out[n++] = letters[bits >> 6 & 63];
		if (len > 2)
			out[n++] = letters[bits & 63];
	}
	out[n] = '\0';
	return 0;
}

int base64url_decode(const char *text, size_t len, uint8_t *out, size_t size)
{
	uint32_t bits = 0;
	unsigned held = 0;
	size_t n = 0;

	if (len % 4 == 1)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		const char *at = text[i] ? strchr(letters, text[i]) : NULL;

		if (!at)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)(at - letters);
		held += 6;
		if (held < 8)
			continue;
		held -= 8;
		if (n == size)
			return -ENOSPC;
		out[n++] = (uint8_t)(bits >> held);
	}
	/* Bits behind the last byte must be 0, so that a text has one meaning only. */
	if (bits & ((1u << held) - 1))
		return -EINVAL;
	return (int)n;
}
