// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/io.h"

bool mounts_parse(const char *line, struct mount *ret)
{
	const char *type = strstr(line, " - ");
	struct mount mount = { 0 };
	unsigned long long id;
	size_t len;

	if (!type || sscanf(line, "%llu %*u %u:%u ", &id, &mount.dev_major, &mount.dev_minor) != 3)
		return false;
	type += strlen(" - ");
	len = strcspn(type, " \n");
	if (len >= sizeof(mount.type))
		len = sizeof(mount.type) - 1;
	memcpy(mount.type, type, len);
	mount.id = id;
	*ret = mount;
	return true;
}

static bool is_local(const char *type)
{
	static const char *const types[] = { "overlay", "btrfs", "tmpfs", "ramfs", "rootfs", "zfs", "bcachefs",
					     "devtmpfs", "hugetlbfs" };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

static bool has_id(const struct mount *mount, const struct mount *wanted)
{
	return mount->id == wanted->id;
}

static bool has_device(const struct mount *mount, const struct mount *wanted)
{
	return mount->dev_major == wanted->dev_major && mount->dev_minor == wanted->dev_minor;
}

/* Finds the mount that @is_it in the table of @tgid, 0 = ours. */
static bool find(uint32_t tgid, bool (*is_it)(const struct mount *, const struct mount *), struct mount *mount)
{
	char path[40] = "/proc/self/mountinfo";
	cleanup_fclose FILE *table = NULL;
	cleanup_free char *line = NULL;
	struct mount found;
	size_t capacity = 0;

	if (tgid)
		(void)snprintf(path, sizeof(path), "/proc/%u/mountinfo", tgid);
	table = fopen(path, "re");
	while (table && getline(&line, &capacity, table) > 0) {
		if (!mounts_parse(line, &found) || !is_it(&found, mount))
			continue;
		*mount = found;
		return true;
	}
	return false;
}

static int look(int fd, struct statx *ret)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, ret);
}

/* What has only a descriptor (memfd_create, shared memory) is on a file system that is mounted nowhere. */
static bool is_memory(uint32_t dev_major, uint32_t dev_minor)
{
	cleanup_close int fd = io_memfd("device", 0);
	struct statx st;

	return fd >= 0 && look(fd, &st) == 0 && st.stx_dev_major == dev_major && st.stx_dev_minor == dev_minor;
}

bool mounts_device_is_local(uint32_t tgid, uint32_t dev_major, uint32_t dev_minor)
{
	struct mount mount = { .dev_major = dev_major, .dev_minor = dev_minor };

	if (dev_major || is_memory(dev_major, dev_minor))
		return true;
	return find(tgid, has_device, &mount) && is_local(mount.type);
}

/* By the mount, which lives as long as the descriptor: nobody can put another in its place meanwhile. */
bool mounts_file_is_local(uint32_t tgid, int fd)
{
	struct mount mount = { 0 };
	struct statx st;

	if (look(fd, &st) < 0)
		return false;
	if (st.stx_dev_major)
		return true;
	mount.id = st.stx_mnt_id;
	if ((st.stx_mask & STATX_MNT_ID) && ((tgid && find(tgid, has_id, &mount)) || find(0, has_id, &mount)))
		return is_local(mount.type);
	return is_memory(st.stx_dev_major, st.stx_dev_minor);
}

int mounts_stat(const char *path, struct stat *ret)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st) < 0)
		return -errno;
	*ret = (struct stat){ .st_mode = st.stx_mode,
			      .st_size = (off_t)st.stx_size,
			      .st_nlink = st.stx_nlink,
			      .st_ctim = { .tv_sec = st.stx_ctime.tv_sec, .tv_nsec = st.stx_ctime.tv_nsec } };
	return 0;
}
