/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer for output, with a sticky error: writers append without checking and the
 * owner looks at buf->error once at the end. Not thread-safe. */
#ifndef PROFD_BASE_BUF_H
#define PROFD_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

/* The receiver of a buffer's bytes piece by piece, so that the output need not fit in memory. */
struct buf_sink {
	/* Takes all that is held, in order; a negative errno becomes the buffer's error. */
	int (*take)(struct buf_sink *sink, const void *data, size_t len);
	size_t hold; /* bytes held before a piece is handed on */
};

struct buf {
	char *data;
	size_t len;
	size_t capacity;
	size_t max; /* bytes, 0 = no bound; reaching it sets error -EFBIG */
	int error;  /* first failure (-ENOMEM, -EFBIG), 0 = none; later writes are no-ops */
	struct buf_sink *sink; /* borrowed; NULL = everything is held, as whoever reads @data expects */
};

/* Also forgets the sink. */
void buf_deinit(struct buf *buf);
void buf_add(struct buf *buf, const void *data, size_t len);
void buf_add_str(struct buf *buf, const char *text);
void buf_add_char(struct buf *buf, char c);
void buf_printf(struct buf *buf, const char *fmt, ...) printf_like(2, 3);
/* LEB128, unsigned and zig-zag signed (protobuf "varint", "sint64"). */
void buf_add_varint(struct buf *buf, uint64_t value);
void buf_add_svarint(struct buf *buf, int64_t value);
/* Hands on to the sink what is held; without one it does nothing. */
void buf_flush(struct buf *buf);
/* Hands the bytes over (NUL-terminated, free them) and leaves the buffer empty; NULL on error. */
char *buf_take(struct buf *buf, size_t *ret_len);

static inline void cleanup_buf_fn(struct buf *buf)
{
	buf_deinit(buf);
}
#define cleanup_buf __attribute__((__cleanup__(cleanup_buf_fn)))

#endif
