/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of regular files in the ustar format (POSIX.1-2017, pax, "ustar Interchange Format"), as
 * `tar` reads and writes them: what a backup is. Names without a prefix field (at most 99 bytes),
 * files below 8 GiB. */
#ifndef PROFD_BASE_TAR_H
#define PROFD_BASE_TAR_H

#include <stdint.h>

#include "agent/base/cleanup.h"

#define TAR_BLOCK      512u
#define TAR_NAME_SIZE  100
#define TAR_BYTES_MAX  ((1ull << 33) - 1) /* eleven octal digits */
#define TAR_END_BLOCKS 2u		  /* of zeros */

struct tar_entry {
	char name[TAR_NAME_SIZE];
	uint64_t bytes;
	uint64_t modified_s; /* realtime */
};

/* The header of @entry. -ENAMETOOLONG, -EFBIG. */
int tar_encode(const struct tar_entry *entry, char out[TAR_BLOCK]) must_use;
/* 1 = a regular file, 0 = a block of zeros (the end). -EBADMSG: not a header with a right checksum;
 * -EOPNOTSUPP: not a regular file. */
int tar_decode(const char block[TAR_BLOCK], struct tar_entry *ret) must_use;
/* Bytes of zeros after @bytes of content. */
static inline unsigned tar_padding(uint64_t bytes)
{
	return (unsigned)(-bytes % TAR_BLOCK);
}

/* Appends @bytes of @in from its begin, under @entry's name; a file that has become shorter is
 * filled with zeros. Writes to @out's position. Negative errno. */
int tar_append(int out, const struct tar_entry *entry, int in) must_use;
int tar_finish(int out) must_use;

#endif
