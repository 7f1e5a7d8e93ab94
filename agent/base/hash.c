// SPDX-License-Identifier: Apache-2.0
#include "agent/base/hash.h"

#include <endian.h>
#include <string.h>

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
	const uint8_t *at = data;
	uint64_t hash = hash_mix64(seed ^ (uint64_t)len), word;

	for (; len >= 8; at += 8, len -= 8) {
		memcpy(&word, at, 8);
		hash = hash_combine(hash, le64toh(word));
	}
	if (len) {
		word = 0;
		memcpy(&word, at, len);
		hash = hash_combine(hash, le64toh(word));
	}
	return hash;
}
