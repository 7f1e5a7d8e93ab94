// SPDX-License-Identifier: Apache-2.0
#include "api/compress.h"

#include <errno.h>
#include <zlib.h>

#define GZIP_WINDOW_BITS (15 + 16) /* zlib manual, deflateInit2: 16 added writes a gzip header */

int compress_gzip(const void *data, size_t len, int level, struct buf *out)
{
	z_stream z = { 0 };
	unsigned char chunk[1u << 14];
	size_t fed = 0;
	int rc;

	if (deflateInit2(&z, level, Z_DEFLATED, GZIP_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	do {
		if (z.avail_in == 0 && fed < len) {
			size_t part = len - fed < (1u << 30) ? len - fed : (1u << 30);

			z.next_in = (unsigned char *)data + fed;
			z.avail_in = (unsigned)part;
			fed += part;
		}
		z.next_out = chunk;
		z.avail_out = sizeof(chunk);
		rc = deflate(&z, fed == len ? Z_FINISH : Z_NO_FLUSH);
		buf_add(out, chunk, sizeof(chunk) - z.avail_out);
	} while (rc == Z_OK && !out->error);
	(void)deflateEnd(&z);
	if (out->error)
		return out->error;
	return rc == Z_STREAM_END ? 0 : -EIO;
}
