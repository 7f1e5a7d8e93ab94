/* SPDX-License-Identifier: Apache-2.0 */
/* Tells local file systems, which answer from this host alone, from others. Network file systems
 * and FUSE may never answer. A thread that waits for one cannot always be killed: fs/fuse/dev.c
 * waits for a request that a FUSE server has read. So nothing here asks them: descriptors are
 * looked at without synchronization (AT_STATX_DONT_SYNC), types are read from mountinfo files
 * (proc(5)). */
#ifndef PROFD_COLLECT_MOUNTS_H
#define PROFD_COLLECT_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "agent/base/cleanup.h"

#define MOUNT_TYPE_SIZE 16

struct mount {
	uint64_t id;
	uint32_t dev_major, dev_minor;
	char type[MOUNT_TYPE_SIZE]; /* shortened if need be */
};

/* One line of a mountinfo file; false: it is none. Pure. */
bool mounts_parse(const char *line, struct mount *ret);
/* Whether a file of this device is local, by the mount table of @tgid, a process that has it
 * mapped: with a device of its own, of a local kind, or memory. What is not known is not. */
bool mounts_device_is_local(uint32_t tgid, uint32_t dev_major, uint32_t dev_minor);
/* The same of an open descriptor, O_PATH included, which @tgid (0 = nobody but us) sees, too. */
bool mounts_file_is_local(uint32_t tgid, int fd);
/* Device, inode, type, size, links and change time of the file at @path, a link of /proc, without
 * asking its file system. */
int mounts_stat(const char *path, struct stat *ret) must_use;

#endif
