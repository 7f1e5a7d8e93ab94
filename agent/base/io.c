// SPDX-License-Identifier: Apache-2.0
#include "agent/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static ssize_t read_restart(int fd, void *buf, size_t len, off_t offset)
{
	ssize_t got;

	do {
		got = pread(fd, buf, len, offset);
	} while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

int io_read_fd(int fd, size_t max, char **ret, size_t *ret_len)
{
	size_t capacity = max < 4096 ? max + 1 : 4096, len = 0;
	cleanup_free char *data = malloc(capacity);

	if (!data)
		return -ENOMEM;
	for (;;) {
		ssize_t got = read_restart(fd, data + len, capacity - len, (off_t)len);

		if (got < 0)
			return (int)got;
		if (got == 0)
			break;
		len += (size_t)got;
		if (len > max)
			return -EFBIG;
		if (len == capacity) {
			size_t grown = capacity * 2 > max + 1 ? max + 1 : capacity * 2;
			char *more = realloc(data, grown);

			if (!more)
				return -ENOMEM;
			data = more;
			capacity = grown;
		}
	}
	data[len] = '\0'; /* len <= max < capacity */
	*ret = take_ptr(data);
	if (ret_len)
		*ret_len = len;
	return 0;
}

int io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len)
{
	cleanup_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return io_read_fd(fd, max, ret, ret_len);
}

ssize_t io_read_small(int dirfd, const char *path, char *buf, size_t size)
{
	cleanup_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	if (fd < 0)
		return -errno;
	while (len < size - 1) {
		ssize_t got = read_restart(fd, buf + len, size - 1 - len, (off_t)len);

		if (got < 0)
			return got;
		if (got == 0)
			break;
		len += (size_t)got;
	}
	buf[len] = '\0';
	return (ssize_t)len;
}

int io_pread_all(int fd, void *buf, size_t len, uint64_t offset)
{
	uint8_t *at = buf;

	while (len) {
		ssize_t got;

		if (offset > INT64_MAX)
			return -EOVERFLOW;
		got = read_restart(fd, at, len, (off_t)offset);
		if (got < 0)
			return (int)got;
		if (got == 0)
			return -ENODATA;
		at += got;
		offset += (uint64_t)got;
		len -= (size_t)got;
	}
	return 0;
}

int io_read_exact(int fd, void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t got = read(fd, (char *)buf + done, len - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		done += (size_t)got;
	}
	return 0;
}

int io_pwrite_all(int fd, const void *buf, size_t len, uint64_t at)
{
	const char *data = buf;

	while (len) {
		ssize_t put = pwrite(fd, data, len, (off_t)at);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno == EDQUOT ? -ENOSPC : -errno;
		data += put;
		at += (uint64_t)put;
		len -= (size_t)put;
	}
	return 0;
}

int io_write_all(int fd, const void *buf, size_t len)
{
	const uint8_t *at = buf;

	while (len) {
		ssize_t put = write(fd, at, len);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		at += put;
		len -= (size_t)put;
	}
	return 0;
}

static int write_and_sync(int dirfd, const char *name, const void *data, size_t len, unsigned mode)
{
	cleanup_close int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	int rc;

	if (fd < 0)
		return -errno;
	rc = io_write_all(fd, data, len);
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	return rc;
}

static int sync_folder_of(int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	cleanup_close int fd = -1;

	if (!folder)
		return -ENOMEM;
	fd = openat(dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

int io_write_file_atomic(int dirfd, const char *path, const void *data, size_t len, unsigned mode)
{
	char temporary[PATH_MAX];
	int rc;

	if (snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)gettid()) >=
	    (int)sizeof(temporary))
		return -ENAMETOOLONG;
	(void)unlinkat(dirfd, temporary, 0);
	rc = write_and_sync(dirfd, temporary, data, len, mode);
	if (rc == 0 && renameat(dirfd, temporary, dirfd, path) < 0)
		rc = -errno;
	if (rc < 0) {
		(void)unlinkat(dirfd, temporary, 0);
		return rc;
	}
	return sync_folder_of(dirfd, path);
}

static int by_number(const void *a, const void *b)
{
	int left = *(const int *)a, right = *(const int *)b;

	return left < right ? -1 : left > right;
}

void io_close_all_but(int *fds, size_t count)
{
	unsigned next = 0;

	qsort(fds, count, sizeof(*fds), by_number);
	for (size_t i = 0; i < count; i++) {
		unsigned fd = (unsigned)fds[i];

		if (fd > next)
			(void)close_range(next, fd - 1, 0);
		next = fd + 1;
	}
	(void)close_range(next, ~0u, 0);
}

void io_close_others(int fd, int other_fd)
{
	int fds[] = { fd, other_fd };

	io_close_all_but(fds, ARRAY_SIZE(fds));
}

int io_memfd(const char *name, uint64_t size)
{
	cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) < 0)
		return -errno;
	return take_fd(&fd);
}
