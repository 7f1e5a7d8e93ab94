// SPDX-License-Identifier: Apache-2.0
#include "agent/store/space.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define BALLAST_NAME "ballast"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* fallocate() really takes the blocks; a file system without it simply has no ballast. */
static void lay_ballast(struct space *space, uint64_t len)
{
	cleanup_close int fd = openat(space->dir_fd, BALLAST_NAME,
				      O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	space->has_ballast = fd >= 0 && fallocate(fd, 0, 0, (off_t)len) == 0;
	if (fd >= 0 && !space->has_ballast)
		(void)unlinkat(space->dir_fd, BALLAST_NAME, 0);
}

void space_init(struct space *space, int dir_fd)
{
	struct stat st;

	*space = (struct space){ .dir_fd = dir_fd };
	(void)pthread_mutex_init(&space->lock, NULL);
	space->has_ballast =
		fstatat(dir_fd, BALLAST_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0;
}

void space_deinit(struct space *space)
{
	(void)pthread_mutex_destroy(&space->lock);
}

int space_check(struct space *space, uint64_t used, uint64_t len, bool urgent)
{
	struct statvfs fs;
	uint64_t total, free_bytes, floor, ballast;
	int rc = 0;

	if (fstatvfs(space->dir_fd, &fs) < 0)
		return -errno;
	total = (uint64_t)fs.f_blocks * fs.f_frsize;
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	floor = min_u64(SPACE_FLOOR_BYTES, total / 50);
	ballast = min_u64(SPACE_BALLAST_BYTES, total / 100);
	(void)pthread_mutex_lock(&space->lock);
	if (!space->has_ballast && free_bytes > floor + 2 * ballast)
		lay_ballast(space, ballast);
	/* These must get through when data does not: half the floor, and a budget with 1 % of
	 * slack. */
	if (urgent) {
		floor /= 2;
		used -= min_u64(used, space->budget_bytes / 100);
	}
	if ((space->budget_bytes && used != SPACE_NO_BUDGET && used + len > space->budget_bytes) ||
	    free_bytes < floor + len)
		rc = -ENOSPC;
	(void)pthread_mutex_unlock(&space->lock);
	return rc;
}

bool space_release_ballast(struct space *space)
{
	bool had;

	(void)pthread_mutex_lock(&space->lock);
	had = space->has_ballast && unlinkat(space->dir_fd, BALLAST_NAME, 0) == 0;
	space->has_ballast = false;
	(void)pthread_mutex_unlock(&space->lock);
	return had;
}
