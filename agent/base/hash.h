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

/* One hash of @seed and @value, in this order: for each of them a bijection of the other. Both may
 * be anything, also small numbers that grow together: what is identified by this alone (a process
 * by pid and start) is not to meet another. */
static inline uint64_t hash_combine(uint64_t seed, uint64_t value)
{
	return hash_mix64(hash_mix64(seed) + value + 0x9e3779b97f4a7c15ull);
}

/* Hash of @len bytes; equal on every host (bytes are read little-endian). */
uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);

#endif
