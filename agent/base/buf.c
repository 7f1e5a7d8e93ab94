// SPDX-License-Identifier: Apache-2.0
#include "agent/base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "agent/base/vec.h"

void buf_deinit(struct buf *buf)
{
	free(buf->data);
	*buf = (struct buf){ .max = buf->max };
}

/* Room for @len more bytes and a NUL. */
static int reserve(struct buf *buf, size_t len)
{
	void *data = buf->data;
	size_t need;
	int rc;

	if (buf->error)
		return buf->error;
	if (__builtin_add_overflow(buf->len, len, &need) ||
	    __builtin_add_overflow(need, 1u, &need) || (buf->max && need > buf->max + 1))
		return buf->error = -EFBIG;
	rc = vec_grow(&data, &buf->capacity, need, 1, 0);
	buf->data = data;
	return buf->error = rc;
}

void buf_flush(struct buf *buf)
{
	int rc;

	if (!buf->sink || buf->error || !buf->len)
		return;
	rc = buf->sink->take(buf->sink, buf->data, buf->len);
	buf->len = 0;
	if (rc < 0)
		buf->error = rc;
}

static void added(struct buf *buf, size_t len)
{
	buf->len += len;
	buf->data[buf->len] = '\0';
	if (buf->sink && buf->len >= buf->sink->hold)
		buf_flush(buf);
}

void buf_add(struct buf *buf, const void *data, size_t len)
{
	if (reserve(buf, len) < 0 || !len)
		return;
	memcpy(buf->data + buf->len, data, len);
	added(buf, len);
}

void buf_add_str(struct buf *buf, const char *text)
{
	buf_add(buf, text, strlen(text));
}

void buf_add_char(struct buf *buf, char c)
{
	buf_add(buf, &c, 1);
}

void buf_printf(struct buf *buf, const char *fmt, ...)
{
	va_list args, again;
	char small[256];
	int len;

	va_start(args, fmt);
	va_copy(again, args);
	len = vsnprintf(small, sizeof(small), fmt, args);
	va_end(args);
	if (len < 0) {
		buf->error = buf->error ? buf->error : -EINVAL;
	} else if ((size_t)len < sizeof(small)) {
		buf_add(buf, small, (size_t)len);
	} else if (reserve(buf, (size_t)len) == 0) {
		(void)vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, again);
		added(buf, (size_t)len);
	}
	va_end(again);
}

void buf_add_varint(struct buf *buf, uint64_t value)
{
	uint8_t bytes[10];
	size_t len = 0;

	do {
		bytes[len] = (uint8_t)(value & 0x7f) | (value > 0x7f ? 0x80 : 0);
		value >>= 7;
		len++;
	} while (value);
	buf_add(buf, bytes, len);
}

void buf_add_svarint(struct buf *buf, int64_t value)
{
	buf_add_varint(buf, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

char *buf_take(struct buf *buf, size_t *ret_len)
{
	char *data;

	if (reserve(buf, 0) < 0) {
		buf_deinit(buf);
		return NULL;
	}
	buf->data[buf->len] = '\0';
	data = buf->data;
	if (ret_len)
		*ret_len = buf->len;
	*buf = (struct buf){ .max = buf->max };
	return data;
}
