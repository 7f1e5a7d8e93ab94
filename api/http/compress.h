/* SPDX-License-Identifier: Apache-2.0 */
/* gzip (RFC 1952): of a whole buffer, or of what is being written. */
#ifndef PROFD_API_COMPRESS_H
#define PROFD_API_COMPRESS_H

#include <stddef.h>
#include <zlib.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"

/* Appends one gzip member with @level 1 to 9; the time is 0, so equal input gives equal output.
 * -ENOMEM, or the error of @out. */
int compress_gzip(const void *data, size_t len, int level, struct buf *out) must_use;
/* Appends what the gzip members @data hold. -EPROTO: not gzip, or cut; -EFBIG: more than @max
 * bytes; -ENOMEM. */
int compress_gunzip(const void *data, size_t len, size_t max, struct buf *out) must_use;
/* compress_gzip() of @text, which never changes and is never freed: compressed at the first call,
 * kept for the others, so that a stranger's request costs a copy. Thread-safe. */
int compress_literal(const char *text, struct buf *out) must_use;

/* Between begin and end, what is written to @plain is compressed into @out piece by piece. Not to
 * be moved meanwhile. */
struct gzip {
	struct buf_sink sink; /* private, first */
	struct buf plain;
	struct buf *out; /* borrowed */
	z_stream z;
};

int gzip_begin(struct gzip *gzip, int level, struct buf *out) must_use; /* -ENOMEM */
/* Completes the member and releases what begin took: the first error of @plain or @out, else 0. */
int gzip_end(struct gzip *gzip) must_use;

#endif
