// SPDX-License-Identifier: Apache-2.0
#include "tools/profctl/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/cleanup.h"

static int complain(const struct output_file *file, int error)
{
	(void)fprintf(stderr, "profctl: cannot write %s: %s\n",
		      file->path ? file->path : "the file", strerror(error));
	return -1;
}

static void release(struct output_file *file)
{
	cleanup_close_fn(&file->fd);
	buf_deinit(&file->part);
	free(file->path);
	*file = (struct output_file){ .fd = -1 };
}

int output_file_open(struct output_file *file, const char *path, mode_t mode)
{
	struct stat st;
	bool there = stat(path, &st) == 0, special = there && !S_ISREG(st.st_mode);

	*file = (struct output_file){ .fd = -1 };
	file->path = there && !special ? realpath(path, NULL) : strdup(path);
	if (file->path && !special)
		buf_printf(&file->part, "%s.part", file->path);
	if (!file->path || file->part.error)
		errno = ENOMEM;
	else if (special)
		file->fd = open(path, O_WRONLY | O_CLOEXEC);
	else
		file->fd = open(file->part.data, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
	if (file->fd >= 0)
		return 0;
	(void)complain(file, errno);
	release(file);
	return -1;
}

int output_file_end(struct output_file *file, bool keep)
{
	int rc = 0;

	if (file->part.len && keep && (fsync(file->fd) < 0 || rename(file->part.data, file->path) < 0))
		rc = complain(file, errno);
	if (file->part.len && (!keep || rc < 0))
		(void)unlink(file->part.data);
	release(file);
	return rc;
}
