// SPDX-License-Identifier: Apache-2.0
#include "agent/base/bytes.h"

uint64_t bytes_long_varint(struct bytes *b)
{
	const uint8_t *at = b->at;
	uint64_t value = 0;

	for (unsigned shift = 0; !b->failed && at < b->end && shift < 64; shift += 7) {
		uint8_t byte = *at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			b->at = at;
			return value;
		}
	}
	b->failed = true;
	b->at = b->end;
	return 0;
}

int64_t bytes_sleb128(struct bytes *b)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte = bytes_u8(b);

		if (b->failed)
			return 0;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			if ((byte & 0x40) && shift + 7 < 64)
				value |= ~0ull << (shift + 7);
			return (int64_t)value;
		}
	}
	b->failed = true;
	return 0;
}

const char *bytes_cstr(struct bytes *b)
{
	const uint8_t *start = b->at;
	const uint8_t *nul = b->failed ? NULL : memchr(start, 0, bytes_left(b));

	if (!nul) {
		b->failed = true;
		b->at = b->end;
		return NULL;
	}
	b->at = nul + 1;
	return (const char *)start;
}
