/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds-checked cursor over untrusted bytes. A read beyond the end sets @failed, returns zero and
 * leaves the cursor at the end: parsers read a group of fields and test once. Little-endian. Pure.
 */
#ifndef PROFD_BASE_BYTES_H
#define PROFD_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
	const uint8_t *at;
	const uint8_t *end;
	bool failed;
};

static inline struct bytes bytes_of(const void *data, size_t len)
{
	return (struct bytes){ data, (const uint8_t *)data + len, false };
}

static inline size_t bytes_left(const struct bytes *b)
{
	return (size_t)(b->end - b->at);
}

/* The next @len bytes (borrowed from the input), NULL if there are fewer. */
static inline const void *bytes_take(struct bytes *b, uint64_t len)
{
	const uint8_t *at = b->at;

	if (b->failed || len > bytes_left(b)) {
		b->failed = true;
		b->at = b->end;
		return NULL;
	}
	b->at += len;
	return at;
}

#define BYTES_DEFINE(name, type)                                                                   \
	static inline type bytes_##name(struct bytes *b)                                           \
	{                                                                                          \
		type value = 0;                                                                    \
		const void *at = bytes_take(b, sizeof(value));                                     \
		if (at)                                                                            \
			memcpy(&value, at, sizeof(value));                                         \
		return value;                                                                      \
	}                                                                                          \
	struct bytes_##name##_semicolon
BYTES_DEFINE(u8, uint8_t);
BYTES_DEFINE(u16, uint16_t);
BYTES_DEFINE(u32, uint32_t);
BYTES_DEFINE(u64, uint64_t);

/* A number at @offset of @data, which the caller has checked to reach so far. */
static inline uint64_t bytes_u64_at(const void *data, size_t offset)
{
	uint64_t value;

	memcpy(&value, (const uint8_t *)data + offset, sizeof(value));
	return value;
}

static inline uint32_t bytes_u32_at(const void *data, size_t offset)
{
	uint32_t value;

	memcpy(&value, (const uint8_t *)data + offset, sizeof(value));
	return value;
}

uint64_t bytes_long_varint(struct bytes *b); /* for bytes_varint() alone */
/* LEB128, at most 10 bytes; most are of one. */
static inline uint64_t bytes_varint(struct bytes *b)
{
	struct bytes copy = *b; /* so that a caller's cursor can stay in registers */
	uint64_t value;

	if (!b->failed && b->at < b->end && *b->at < 0x80)
		return *b->at++;
	value = bytes_long_varint(&copy);
	*b = copy;
	return value;
}
/* A number of things of at least @min_bytes each that follow; 0 and failed where so many cannot be
 * there, so that nothing is allocated for them. */
static inline uint32_t bytes_count(struct bytes *b, size_t min_bytes)
{
	uint64_t count = bytes_varint(b);

	if (count > bytes_left(b) / min_bytes || count > UINT32_MAX) {
		b->failed = true;
		return 0;
	}
	return (uint32_t)count;
}
/* zig-zag */
static inline int64_t bytes_svarint(struct bytes *b)
{
	uint64_t value = bytes_varint(b);

	return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}
int64_t bytes_sleb128(struct bytes *b);  /* DWARF sign-extended LEB128 */
const char *bytes_cstr(struct bytes *b); /* NUL-terminated inside the input, else NULL and failed */

#endif
