// SPDX-License-Identifier: Apache-2.0
#include "agent/store/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "agent/base/clock.h"

#define LOCK_WAIT_NS (3 * NS_PER_S) /* a predecessor that was just told to stop */

int folder_open(const char *path, int *ret_fd, struct err *err)
{
	int fd;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set(err, errno, "StoreUnavailable", NULL,
			       "%s: %s (create it, or set data_dir)", path, strerror(errno));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, errno, "StoreUnavailable", NULL, "%s: %s", path, strerror(errno));
	*ret_fd = fd;
	return 0;
}

int folder_lock(int dir_fd, const char *path, int *ret_fd, struct err *err)
{
	uint64_t give_up_ns = clock_monotonic_ns() + LOCK_WAIT_NS;
	cleanup_close int fd =
		openat(dir_fd, "store.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_set(err, errno, "StoreUnavailable", NULL, "%s/store.lock: %s", path, strerror(errno));
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK || clock_monotonic_ns() > give_up_ns)
			return err_set(err, EBUSY, "StoreUnavailable", NULL,
				       "%s is in use by another profd: stop it or choose another data_dir", path);
		clock_sleep_ns(50 * NS_PER_MS);
	}
	*ret_fd = take_fd(&fd);
	return 0;
}
