// SPDX-License-Identifier: Apache-2.0
#include "agent/base/ulid.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "agent/base/clock.h"

static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz"; /* Crockford, lower case */

void ulid_make_from(uint64_t realtime_ns, const uint8_t bits[10], char out[ULID_TEXT_SIZE])
{
	uint64_t ms = realtime_ns / NS_PER_MS;
	unsigned __int128 value = ms & 0xffffffffffffull;

	for (int i = 0; i < 10; i++)
		value = value << 8 | bits[i];
	for (int i = 25; i >= 0; i--) {
		out[i] = alphabet[(unsigned)(value & 31)];
		value >>= 5;
	}
	out[26] = '\0';
}

void ulid_make(uint64_t realtime_ns, char out[ULID_TEXT_SIZE])
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t last_ms;
	static uint8_t last_bits[10];
	uint64_t ms = realtime_ns / NS_PER_MS;

	(void)pthread_mutex_lock(&lock);
	if (ms == last_ms) {
		for (int i = 9; i >= 0 && ++last_bits[i] == 0; i--)
			continue;
	} else {
		last_ms = ms;
		/* 10 bytes are never interrupted once the pool is ready: getrandom(2). */
		(void)!getrandom(last_bits, sizeof(last_bits), 0);
		last_bits[0] &= 0x7f; /* room for the increments of one millisecond */
	}
	ulid_make_from(realtime_ns, last_bits, out);
	(void)pthread_mutex_unlock(&lock);
}

bool ulid_is_valid(const char *text)
{
	return strlen(text) == 26 && strspn(text, alphabet) == 26 && text[0] <= '7';
}
