/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol buffers, encoding only. Wire format: protobuf.dev/programming-guides/encoding: a field
 * is the varint (number << 3 | type) and its value; type 0 varint, 1 eight bytes, 2 length and
 * bytes. */
#ifndef PROFD_API_RENDER_PROTO_H
#define PROFD_API_RENDER_PROTO_H

#include <stdint.h>
#include <string.h>

#include "agent/base/buf.h"

/* Zero is the default of proto3 and not written. */
static inline void proto_uint(struct buf *out, unsigned field, uint64_t value)
{
	if (!value)
		return;
	buf_add_varint(out, (uint64_t)field << 3);
	buf_add_varint(out, value);
}

static inline void proto_int(struct buf *out, unsigned field, int64_t value)
{
	proto_uint(out, field, (uint64_t)value);
}

static inline void proto_fixed64(struct buf *out, unsigned field, uint64_t value)
{
	uint8_t bytes[8];

	for (unsigned i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	buf_add_varint(out, (uint64_t)field << 3 | 1);
	buf_add(out, bytes, sizeof(bytes));
}

/* The head of a message of @len bytes, which follow. */
static inline void proto_head(struct buf *out, unsigned field, uint64_t len)
{
	buf_add_varint(out, (uint64_t)field << 3 | 2);
	buf_add_varint(out, len);
}

/* Bytes of a message of @len bytes with its head, in a field below 16. */
static inline uint64_t proto_message_size(uint64_t len)
{
	uint64_t bytes = 2 + len;

	for (uint64_t rest = len >> 7; rest; rest >>= 7)
		bytes++;
	return bytes;
}

static inline void proto_bytes(struct buf *out, unsigned field, const void *data, size_t len)
{
	proto_head(out, field, len);
	buf_add(out, data, len);
}

static inline void proto_text(struct buf *out, unsigned field, const char *text)
{
	proto_bytes(out, field, text, strlen(text));
}

/* Writes @part as a message (or packed list) and empties it for the next one. */
static inline void proto_message(struct buf *out, unsigned field, struct buf *part)
{
	proto_bytes(out, field, part->data, part->len);
	if (part->error && !out->error)
		out->error = part->error;
	part->len = 0;
}

#endif
