// SPDX-License-Identifier: Apache-2.0
#include "api/compress.h"

#include <errno.h>

#define GZIP_WINDOW_BITS (15 + 16) /* zlib manual, deflateInit2: 16 added writes a gzip header */
#define PIECE_BYTES	 (64u << 10)

/* Z_NO_FLUSH takes the input, Z_FINISH writes what is left. */
static int feed(struct gzip *gzip, const void *data, size_t len, int flush)
{
	unsigned char chunk[1u << 14];
	int rc = Z_OK;

	do {
		size_t part = len < (1u << 30) ? len : (1u << 30);

		gzip->z.next_in = (unsigned char *)data;
		gzip->z.avail_in = (unsigned)part;
		data = (const char *)data + part;
		len -= part;
		do {
			gzip->z.next_out = chunk;
			gzip->z.avail_out = sizeof(chunk);
			rc = deflate(&gzip->z, len ? Z_NO_FLUSH : flush);
			buf_add(gzip->out, chunk, sizeof(chunk) - gzip->z.avail_out);
		} while (gzip->z.avail_out == 0 && rc == Z_OK && !gzip->out->error);
	} while (len && !gzip->out->error);
	if (gzip->out->error)
		return gzip->out->error;
	return rc == (flush == Z_FINISH ? Z_STREAM_END : Z_OK) || rc == Z_BUF_ERROR ? 0 : -EIO;
}

static int take(struct buf_sink *sink, const void *data, size_t len)
{
	return feed((struct gzip *)(void *)sink, data, len, Z_NO_FLUSH);
}

int gzip_begin(struct gzip *gzip, int level, struct buf *out)
{
	*gzip = (struct gzip){ .sink = { take, PIECE_BYTES }, .out = out };
	gzip->plain.sink = &gzip->sink;
	return deflateInit2(&gzip->z, level, Z_DEFLATED, GZIP_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY) == Z_OK
		       ? 0
		       : -ENOMEM;
}

int gzip_end(struct gzip *gzip)
{
	int rc;

	buf_flush(&gzip->plain);
	rc = gzip->plain.error ? gzip->plain.error : feed(gzip, "", 0, Z_FINISH);
	(void)deflateEnd(&gzip->z);
	buf_deinit(&gzip->plain);
	return rc;
}

int compress_gzip(const void *data, size_t len, int level, struct buf *out)
{
	struct gzip gzip;
	int rc = gzip_begin(&gzip, level, out), end;

	if (rc < 0)
		return rc;
	rc = feed(&gzip, data, len, Z_NO_FLUSH);
	end = gzip_end(&gzip);
	return rc < 0 ? rc : end;
}
