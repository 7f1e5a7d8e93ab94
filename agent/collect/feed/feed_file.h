/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of the feed: what the collector wrote, in a file that replay.c plays in its place, for
 * tests, bug reports and benches. A header, then records of {u32 length, u32 kind}, payload,
 * padding to 8 bytes:
 *
 *   char magic[8] "profdfd" and NUL; u32 version; u32 byte order 0x01020304
 *
 * Payloads are those of agent/wire/feed.h in the byte order of the host that recorded; a file of
 * the other
 * order or of another version is refused. A file that ends inside a record (the recorder was
 * killed) is
 * good up to there. Reading is bounded and takes nothing in the file for granted. */
#ifndef PROFD_COLLECT_FEED_FILE_H
#define PROFD_COLLECT_FEED_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define FEED_FILE_VERSION    3u
#define FEED_FILE_BYTE_ORDER 0x01020304u
#define FEED_FILE_RECORD_MAX (1u << 20) /* bytes of one payload */

struct feed_file;

/* Writes a new file at @fd, which is taken over on success. */
int feed_file_create(int fd, struct feed_file **ret) must_use;
/* Reads the file at @fd, taken over on success. -EPROTO with the reason in @err. */
int feed_file_open(int fd, struct feed_file **ret, struct err *err) must_use;
/* Flushes and closes; the first write error since feed_file_create(), or 0. */
int feed_file_close(struct feed_file *file);
static inline void feed_file_destroy(struct feed_file *file)
{
	(void)feed_file_close(file);
}
CLEANUP_DEFINE(feed_file, struct feed_file *, feed_file_destroy);

/* Appends a record; errors are kept for feed_file_close(). */
void feed_file_add(struct feed_file *file, uint32_t kind, const struct iovec *parts,
		   int part_count);
/* The next record, its payload borrowed until the next call. 1 = got one, 0 = end of the file,
 * -EPROTO. */
int feed_file_next(struct feed_file *file, uint32_t *ret_kind, void **ret_data,
		   size_t *ret_len) must_use;

#endif
