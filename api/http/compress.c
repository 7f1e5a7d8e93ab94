// SPDX-License-Identifier: Apache-2.0
#include "api/http/compress.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define GZIP_WINDOW_BITS (15 + 16) /* zlib manual, deflateInit2: 16 added writes a gzip header */
#define PIECE_BYTES	 (64u << 10)
#define LITERALS_MAX	 64u /* more than the page has files */
#define LITERAL_BYTES_MAX (4u << 20)
#define LITERAL_LEVEL	 9

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

int compress_literal(const char *text, struct buf *out)
{
	static struct {
		const char *text;
		struct buf packed;
	} known[LITERALS_MAX];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	unsigned i = 0;
	int rc = 0;

	(void)pthread_mutex_lock(&lock);
	while (i < LITERALS_MAX && known[i].text && known[i].text != text)
		i++;
	if (i < LITERALS_MAX && !known[i].text) {
		known[i].packed.max = LITERAL_BYTES_MAX;
		rc = compress_gzip(text, strlen(text), LITERAL_LEVEL, &known[i].packed);
		if (rc < 0)
			buf_deinit(&known[i].packed);
		else
			known[i].text = text;
	}
	if (rc == 0 && i < LITERALS_MAX)
		buf_add(out, known[i].packed.data, known[i].packed.len);
	(void)pthread_mutex_unlock(&lock);
	if (i == LITERALS_MAX)
		rc = compress_gzip(text, strlen(text), 1, out);
	return rc < 0 ? rc : out->error;
}

/* Members may follow one another (RFC 1952, 2.2). */
static int inflate_all(z_stream *z, size_t max, struct buf *out)
{
	unsigned char chunk[1u << 14];
	size_t total = 0;
	int rc = Z_OK;

	while (z->avail_in || rc != Z_STREAM_END) {
		if (rc == Z_STREAM_END && inflateReset(z) != Z_OK)
			return -EPROTO;
		z->next_out = chunk;
		z->avail_out = sizeof(chunk);
		rc = inflate(z, Z_NO_FLUSH);
		if (rc == Z_MEM_ERROR)
			return -ENOMEM;
		if (rc != Z_OK && rc != Z_STREAM_END)
			return -EPROTO;
		total += sizeof(chunk) - z->avail_out;
		if (total > max)
			return -EFBIG;
		buf_add(out, chunk, sizeof(chunk) - z->avail_out);
	}
	return out->error;
}

int compress_gunzip(const void *data, size_t len, size_t max, struct buf *out)
{
	z_stream z = { .next_in = (unsigned char *)data, .avail_in = (uInt)len };
	int rc;

	if (len > UINT32_MAX || !len)
		return len ? -EFBIG : -EPROTO;
	if (inflateInit2(&z, GZIP_WINDOW_BITS) != Z_OK)
		return -ENOMEM;
	rc = inflate_all(&z, max, out);
	(void)inflateEnd(&z);
	return rc;
}
