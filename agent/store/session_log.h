/* SPDX-License-Identifier: Apache-2.0 */
/* One append-only file of chunks: the data of one session or baseline. A group of chunks and a
 * commit record go out in one write and one fdatasync. Bytes after the last whole commit record do
 * not exist; the next append cuts them off.
 *
 *   file    = head, group*            group = block*, commit
 *   head    = "PROFLOG1"
 *   block   = {magic u32, kind u16, flags u16, stored length u32, raw length u32, crc32c of the
 *           stored
 *             bytes u32, crc32c of this head u32}, stored bytes, zeros to 8
 *   commit  = a block of kind COMMIT: {feed identity u64, feed position u64}
 *
 * Little-endian. Damage inside (a bit flip) costs the block it lies in: readers go on at the next
 * valid head. Thread rule: one appender per file at a time; readers any time. */
#ifndef PROFD_STORE_SESSION_LOG_H
#define PROFD_STORE_SESSION_LOG_H

#include "agent/store/store.h"

/* Appends to @name below @dirfd, creating it. *ret_grown: bytes by which the file grew (may be
 * negative when a torn tail was cut off). -ENOSPC leaves the file as it was. */
int session_log_append(int dirfd, const char *name, const struct store_chunk *chunks, size_t count,
		       uint64_t feed_identity, uint64_t feed_position, int64_t *ret_grown) must_use;
int session_log_read(int dirfd, const char *name, store_chunk_fn *visit, void *ctx,
		     unsigned *ret_damaged) must_use;
/* The position of the last commit. -ENOENT also for a file without any. */
int session_log_position(int dirfd, const char *name, uint64_t *ret_identity,
			 uint64_t *ret_position) must_use;
/* -EEXIST; whole or nothing. */
int session_log_copy(int dirfd, const char *from, const char *to, uint64_t *ret_bytes) must_use;

#endif
