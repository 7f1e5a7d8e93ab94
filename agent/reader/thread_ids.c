// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/thread_ids.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/io.h"
#include "agent/base/parse.h"

#define THREADS_MAX 65536u

uint32_t thread_ids_inner(const char *status)
{
	const char *line = strstr(status, "\nNSpid:"), *end, *last;
	unsigned id;

	if (!line)
		return 0;
	line += strlen("\nNSpid:");
	end = line + strcspn(line, "\n");
	for (last = end; last > line && last[-1] != '\t'; last--)
		;
	/* One field: its own namespace is the one that is looked from. */
	if (!memchr(line + strspn(line, "\t "), '\t', (size_t)(end - line) - strspn(line, "\t ")) ||
	    sscanf(last, "%9u", &id) != 1)
		return 0;
	return id;
}

static int add_thread(int dir_fd, const char *name, struct thread_ids *ids)
{
	char path[32], status[4096];
	uint64_t outer;
	uint32_t inner;
	int rc;

	if (parse_u64(name, 1, INT32_MAX, &outer) < 0)
		return 0;
	(void)snprintf(path, sizeof(path), "%.20s/status", name);
	if (io_read_small(dir_fd, path, status, sizeof(status)) < 0)
		return 0;
	inner = thread_ids_inner(status);
	rc = inner ? u64map_put(&ids->by_inner, inner, outer) : 0;
	return rc == -ENOSPC ? 0 : rc;
}

int thread_ids_load(const struct target *target, struct thread_ids *ret)
{
	struct thread_ids ids = { 0 };
	char status[4096];
	struct dirent *entry;
	int rc = 0, fd;
	DIR *dir;

	if (io_read_small(target->proc_fd, "status", status, sizeof(status)) < 0)
		return -ESRCH;
	ids.nested = thread_ids_inner(status) != 0;
	u64map_init(&ids.by_inner, THREADS_MAX);
	if (!ids.nested) {
		*ret = ids;
		return 0;
	}
	fd = openat(target->proc_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return fd < 0 ? -ESRCH : -ENOMEM;
	}
	while (rc == 0 && (entry = readdir(dir)))
		rc = add_thread(fd, entry->d_name, &ids);
	(void)closedir(dir);
	if (rc < 0)
		thread_ids_deinit(&ids);
	else
		*ret = ids;
	return rc;
}

void thread_ids_deinit(struct thread_ids *ids)
{
	u64map_deinit(&ids->by_inner);
}

uint32_t thread_ids_outer(const struct thread_ids *ids, uint32_t inner)
{
	uint64_t outer = 0;

	if (!ids->nested)
		return inner;
	return u64map_get(&ids->by_inner, inner, &outer) ? (uint32_t)outer : 0;
}
