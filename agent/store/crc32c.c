// SPDX-License-Identifier: Apache-2.0
#include "agent/store/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL_REFLECTED 0x82f63b78u

static uint32_t table[4][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL_REFLECTED : 0);
		table[0][i] = crc;
	}
	for (int slice = 1; slice < 4; slice++) {
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t before = table[slice - 1][i];

			table[slice][i] = before >> 8 ^ table[0][before & 255];
		}
	}
}

static uint32_t by_table(uint32_t crc, const uint8_t *at, size_t len)
{
	for (; len >= 4; len -= 4, at += 4) {
		crc ^= at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
		crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^
		      table[0][crc >> 24];
	}
	for (; len; len--, at++)
		crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
	return crc;
}

#ifdef __x86_64__
/* Eight bytes at a time by the processor's own instruction; what is left stays to the table. */
__attribute__((target("sse4.2"))) static uint64_t by_instruction(uint64_t crc, const uint8_t *at,
								 size_t words)
{
	uint64_t word;

	for (; words; words--, at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		crc = __builtin_ia32_crc32di(crc, word);
	}
	return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *at = data;

	(void)pthread_once(&once, fill_table);
	crc = ~crc;
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2")) {
		crc = (uint32_t)by_instruction(crc, at, len / 8);
		at += len / 8 * 8;
		len %= 8;
	}
#endif
	return ~by_table(crc, at, len);
}
