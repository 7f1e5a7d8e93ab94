// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/proc_ports.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/u64map.h"

#define TCP_LISTEN     0x0a /* include/net/tcp_states.h */
#define NAMESPACES_MAX 64u
#define PORTS_MAX      64u /* of one process */

struct proc_ports {
	struct u64map namespaces; /* inode of the namespace -> 1: its listeners are in the map below */
	struct u64map listeners;  /* socket inode -> port; socket inodes are unique over namespaces */
};

struct proc_ports *proc_ports_create(void)
{
	struct proc_ports *ports = calloc(1, sizeof(*ports));

	if (!ports)
		return NULL;
	u64map_init(&ports->namespaces, NAMESPACES_MAX);
	u64map_init(&ports->listeners, PROC_PORTS_LISTENERS_MAX);
	return ports;
}

void proc_ports_destroy(struct proc_ports *ports)
{
	if (!ports)
		return;
	u64map_deinit(&ports->namespaces);
	u64map_deinit(&ports->listeners);
	free(ports);
}

void proc_ports_reset(struct proc_ports *ports)
{
	u64map_clear(&ports->namespaces);
	u64map_clear(&ports->listeners);
}

int proc_ports_parse_line(const char *line, uint64_t *ret_inode, uint16_t *ret_port)
{
	unsigned state, port;
	uint64_t inode;

	/* sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode (tcp4_seq_show()) */
	if (sscanf(line,
		   " %*u: %*[0-9A-Fa-f]:%4x %*[0-9A-Fa-f]:%*x %2x %*x:%*x %*x:%*x %*x %*u %*u %" SCNu64,
		   &port, &state, &inode) != 3)
		return -EINVAL;
	if (state != TCP_LISTEN)
		return 0;
	*ret_inode = inode;
	*ret_port = (uint16_t)port;
	return 1;
}

/* -ENOSPC: not all. What cannot be read has none. */
static int read_listeners(struct proc_ports *ports, int dir_fd, const char *name)
{
	cleanup_fclose FILE *file = NULL;
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	char line[512];

	file = fd < 0 ? NULL : fdopen(fd, "re");
	if (!file)
		return 0;
	(void)take_fd(&fd);
	if (!fgets(line, sizeof(line), file)) /* the heading */
		return 0;
	while (fgets(line, sizeof(line), file)) {
		uint64_t inode;
		uint16_t port;
		int rc;

		if (proc_ports_parse_line(line, &inode, &port) != 1)
			return 0;
		rc = u64map_put(&ports->listeners, inode, port);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_namespace(struct proc_ports *ports, uint64_t inode, int dir_fd)
{
	int rc = u64map_put(&ports->namespaces, inode, 1);

	if (rc == 0)
		rc = read_listeners(ports, dir_fd, "net/tcp");
	return rc < 0 ? rc : read_listeners(ports, dir_fd, "net/tcp6");
}

/* Reads the listeners of the process's network namespace unless they are known. */
static int know_namespace(struct proc_ports *ports, int dir_fd)
{
	uint64_t known;
	struct stat st;
	int rc;

	if (fstatat(dir_fd, "ns/net", &st, 0) < 0)
		return -errno;
	if (u64map_get(&ports->namespaces, st.st_ino, &known))
		return 0;
	rc = read_namespace(ports, st.st_ino, dir_fd);
	if (rc == -ENOSPC && ports->namespaces.count > 1) {
		/* Those of others are read again when they are asked for. */
		proc_ports_reset(ports);
		rc = read_namespace(ports, st.st_ino, dir_fd);
	}
	return rc == -ENOSPC ? 0 : rc; /* of the first so many of this one alone */
}

static int by_number(const void *a, const void *b)
{
	uint16_t left = *(const uint16_t *)a, right = *(const uint16_t *)b;

	return left < right ? -1 : left > right;
}

/* How many ports were found, or negative errno. The listeners are read at the first socket: behind
 * the last of them the kernel looks for connections in all of its table, which takes it
 * milliseconds where there are few (established_get_first()). */
static int collect(struct proc_ports *ports, int dir_fd, DIR *dir, uint16_t found[PORTS_MAX])
{
	unsigned looked = 0;
	struct dirent *entry;
	bool is_known = false;
	int count = 0, rc;

	while (count < (int)PORTS_MAX && looked++ < PROC_PORTS_FDS_MAX && (entry = readdir(dir))) {
		char target[64];
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		uint64_t inode, port;

		if (len < 0)
			continue;
		target[len] = '\0';
		if (sscanf(target, "socket:[%" SCNu64 "]", &inode) != 1)
			continue;
		rc = is_known ? 0 : know_namespace(ports, dir_fd);
		if (rc < 0)
			return rc;
		is_known = true;
		if (u64map_get(&ports->listeners, inode, &port))
			found[count++] = (uint16_t)port;
	}
	return count;
}

static void to_text(uint16_t *found, unsigned count, char ret[PROC_PORTS_TEXT_SIZE])
{
	size_t at = 0;

	qsort(found, count, sizeof(*found), by_number);
	ret[0] = '\0';
	for (unsigned i = 0; i < count; i++) {
		if (i > 0 && found[i] == found[i - 1])
			continue; /* one port on IPv4 and IPv6 */
		at += (size_t)snprintf(ret + at, PROC_PORTS_TEXT_SIZE - at, "%s%u", at ? "," : "",
				       found[i]);
	}
}
_Static_assert(PORTS_MAX * 6 < PROC_PORTS_TEXT_SIZE, "five digits and a comma each");

int proc_ports_read(struct proc_ports *ports, uint32_t tgid, char ret[PROC_PORTS_TEXT_SIZE])
{
	cleanup_close int dir_fd = -1;
	uint16_t found[PORTS_MAX];
	char path[32];
	int fd, count;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%u", tgid);
	dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return -errno;
	fd = openat(dir_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return -ENOMEM;
	}
	count = collect(ports, dir_fd, dir, found);
	(void)closedir(dir);
	if (count < 0)
		return count;
	to_text(found, (unsigned)count, ret);
	return 0;
}
