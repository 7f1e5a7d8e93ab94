/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes, digests, HMAC and base64url, by GnuTLS. */
#ifndef PROFD_API_SECRET_H
#define PROFD_API_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define SECRET_BYTES	  32 /* of SHA-256 digests, HMACs and keys */
#define SECRET_BASE64_SIZE 44 /* their base64url text, with NUL */

int secret_random(uint8_t out[SECRET_BYTES]) must_use;
int secret_sha256(const void *data, size_t len, uint8_t out[SECRET_BYTES]) must_use;
int secret_hmac(const uint8_t key[SECRET_BYTES], const void *data, size_t len,
		uint8_t out[SECRET_BYTES]) must_use;
/* Time does not depend on where they differ. */
bool secret_equal(const uint8_t a[SECRET_BYTES], const uint8_t b[SECRET_BYTES]);

/* RFC 4648 section 5, without padding. -ENOSPC when @size is too small. */
int base64url_encode(const void *data, size_t len, char *out, size_t size) must_use;
/* Decodes @len characters; the number of bytes, -EINVAL, -ENOSPC. Padding is refused. */
int base64url_decode(const char *text, size_t len, uint8_t *out, size_t size) must_use;

#endif
