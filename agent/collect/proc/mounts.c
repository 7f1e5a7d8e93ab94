// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

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
	static const char *const types[] = { "btrfs", "tmpfs",	  "ramfs",    "rootfs",
					     "zfs",   "bcachefs", "devtmpfs", "hugetlbfs" };

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

/* /proc/@tgid, 0 = ours; it never becomes a successor's. */
static int open_process(uint32_t tgid)
{
	char path[24] = "/proc/self";

	if (tgid)
		(void)snprintf(path, sizeof(path), "/proc/%u", tgid);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Finds the mount that @is_it in the table of a process. */
static bool find(int process_fd, bool (*is_it)(const struct mount *, const struct mount *),
		 struct mount *mount)
{
	cleanup_close int fd = openat(process_fd, "mountinfo", O_RDONLY | O_CLOEXEC);
	cleanup_fclose FILE *table = fd < 0 ? NULL : fdopen(fd, "re");
	cleanup_free char *line = NULL;
	struct mount found;
	size_t capacity = 0;

	if (table)
		(void)take_fd(&fd);
	while (table && getline(&line, &capacity, table) > 0) {
		if (!mounts_parse(line, &found) || !is_it(&found, mount))
			continue;
		*mount = found;
		return true;
	}
	return false;
}

/* The user namespace that the mounts of a process belong to: its inode (ioctl_ns(2)), 0 = not
 * known. */
static ino_t owner_of_mounts(int process_fd)
{
	cleanup_close int mounts_fd = openat(process_fd, "ns/mnt", O_RDONLY | O_CLOEXEC);
	cleanup_close int owner_fd = mounts_fd < 0 ? -1 : ioctl(mounts_fd, NS_GET_USERNS);
	struct stat st;

	return owner_fd >= 0 && fstat(owner_fd, &st) == 0 ? st.st_ino : 0;
}

/* An overlay is as local as what lies below, which nothing tells: since 5.11 anybody may mount one
 * over a FUSE of his own, in a user namespace of his own. Believed are those of who may mount
 * anything here: in mounts that belong to our own user namespace, or seen among ours. */
static bool is_trusted(int process_fd, const struct mount *mount)
{
	cleanup_close int own_fd = open_process(0);
	struct mount same = *mount;
	ino_t owner = own_fd < 0 ? 0 : owner_of_mounts(own_fd);

	return owner && (owner_of_mounts(process_fd) == owner || find(own_fd, has_device, &same));
}

static bool is_local_in(uint32_t tgid, bool (*is_it)(const struct mount *, const struct mount *),
			struct mount mount, bool *ret_found)
{
	cleanup_close int fd = open_process(tgid);

	*ret_found = fd >= 0 && find(fd, is_it, &mount);
	return *ret_found && (is_local(mount.type) ||
			      (strcmp(mount.type, "overlay") == 0 && is_trusted(fd, &mount)));
}

static int look(int fd, struct statx *ret)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, ret);
}

/* A file that has only a descriptor (memfd_create, shared memory) is on a file system that is
 * mounted nowhere. */
static bool is_memory(uint32_t dev_major, uint32_t dev_minor)
{
	cleanup_close int fd = io_memfd("device", 0);
	struct statx st;

	return fd >= 0 && look(fd, &st) == 0 && st.stx_dev_major == dev_major &&
	       st.stx_dev_minor == dev_minor;
}

bool mounts_device_is_local(uint32_t tgid, uint32_t dev_major, uint32_t dev_minor)
{
	const struct mount mount = { .dev_major = dev_major, .dev_minor = dev_minor };
	bool found;

	return dev_major || is_memory(dev_major, dev_minor) ||
	       is_local_in(tgid, has_device, mount, &found);
}

/* By the mount, which lives as long as the descriptor: nobody can put another in its place
 * meanwhile. */
bool mounts_file_is_local(uint32_t tgid, int fd)
{
	struct mount mount = { 0 };
	bool found = false, local;
	struct statx st;

	if (look(fd, &st) < 0)
		return false;
	if (st.stx_dev_major)
		return true;
	mount.id = st.stx_mnt_id;
	if (st.stx_mask & STATX_MNT_ID) {
		local = is_local_in(tgid, has_id, mount, &found);
		if (!found && tgid)
			local = is_local_in(0, has_id, mount, &found);
		if (found)
			return local;
	}
	return is_memory(st.stx_dev_major, st.stx_dev_minor);
}

int mounts_stat(const char *path, struct stat *ret)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st) < 0)
		return -errno;
	*ret = (struct stat){ .st_dev = makedev(st.stx_dev_major, st.stx_dev_minor),
			      .st_ino = st.stx_ino,
			      .st_mode = st.stx_mode,
			      .st_size = (off_t)st.stx_size,
			      .st_nlink = st.stx_nlink,
			      .st_ctim = { .tv_sec = st.stx_ctime.tv_sec, .tv_nsec = st.stx_ctime.tv_nsec } };
	return 0;
}
