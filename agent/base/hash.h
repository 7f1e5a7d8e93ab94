/* SPDX-License-Identifier: Apache-2.0 */
/* 64-bit hashes for tables and identities; not for secrets. */
#ifndef PROFD_BASE_HASH_H
#define PROFD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Finalizer of MurmurHash3 (public domain, Austin Appleby): a bijection of 64 bits. */
static inline uint64_t hash_mix64(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 33;
	return x;
}

static inline uint64_t hash_combine(uint64_t seed, uint64_t value)
{
	return hash_mix64(seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2)));
}

/* Hash of @len bytes; equal on every host (bytes are read little-endian). */
uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);

#endif
