/* SPDX-License-Identifier: Apache-2.0 */
/* gzip (RFC 1952) of a whole buffer. */
#ifndef PROFD_API_COMPRESS_H
#define PROFD_API_COMPRESS_H

#include <stddef.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"

/* Appends one gzip member with @level 1…9; the time stamp is 0, so equal input gives equal output. -ENOMEM,
 * -EFBIG. */
int compress_gzip(const void *data, size_t len, int level, struct buf *out) must_use;

#endif
