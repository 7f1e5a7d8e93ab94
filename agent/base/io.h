/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded file reading and full writes. Every function restarts after EINTR. */
#ifndef PROFD_BASE_IO_H
#define PROFD_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/base/cleanup.h"

/* Reads a whole small file below directory @dirfd (AT_FDCWD allowed) into a new NUL-terminated
 * buffer.
 * @max   largest accepted size in bytes; more is -EFBIG
 * @ret   owned by the caller (free)
 * Works for /proc files, whose size reads as 0. Errors: negative errno of open and read. */
int io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len) must_use;
/* The same from an open descriptor, from offset 0 by pread. */
int io_read_fd(int fd, size_t max, char **ret, size_t *ret_len) must_use;
/* Reads at most @size-1 bytes of a file into @buf, NUL-terminates; returns the length or -errno. */
ssize_t io_read_small(int dirfd, const char *path, char *buf, size_t size) must_use;
/* Exactly @len bytes at @offset, else -ENODATA at end of file, or -errno. */
int io_pread_all(int fd, void *buf, size_t len, uint64_t offset) must_use;
/* Exactly @len bytes at the descriptor's position, likewise. */
int io_read_exact(int fd, void *buf, size_t len) must_use;
/* All @len bytes at @at. A quota that is used up is -ENOSPC, as a full disk. */
int io_pwrite_all(int fd, const void *buf, size_t len, uint64_t at) must_use;
int io_write_all(int fd, const void *buf, size_t len) must_use;
/* Writes @data to @path by temporary name, fsync, rename, fsync of the folder: old or new, never
 * half. */
int io_write_file_atomic(int dirfd, const char *path, const void *data, size_t len,
			 unsigned mode) must_use;
/* Closes every descriptor but these two, in a forked child that may stay for ever. The parent's
 * descriptors would keep things alive, and a reader of the parent's output would wait for the
 * child's end. */
void io_close_others(int fd, int other_fd);
/* The same with @count >= 1 descriptors, which are put into order. */
void io_close_all_but(int *fds, size_t count);
/* memfd with @name, close-on-exec, @size bytes. Returns the descriptor or -errno. */
int io_memfd(const char *name, uint64_t size) must_use;

#endif
