// SPDX-License-Identifier: Apache-2.0
#include "symbolize/name_builder.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/base/io.h"
#include "symbolize/sandbox.h"

#define BUILDER_NICE 5

void name_builder_init(struct name_builder *builder)
{
	*builder = (struct name_builder){ .pidfd = -1, .image_fd = -1 };
}

static void reset(struct name_builder *builder)
{
	if (builder->pidfd >= 0)
		(void)close(builder->pidfd);
	if (builder->image_fd >= 0)
		(void)close(builder->image_fd);
	name_builder_init(builder);
}

void name_builder_deinit(struct name_builder *builder)
{
	reset(builder);
}

bool name_builder_is_idle(const struct name_builder *builder)
{
	return builder->pidfd < 0;
}

/* ---- the child ----------------------------------------------------------------------------------- */

static struct elf_file *open_debug(const struct name_builder_job *job)
{
	struct elf_file *debug = NULL;

	if (job->debug_fd < 0 || elf_file_map_take(job->debug_fd, &debug) < 0)
		return NULL;
	if (elf_file_debug_matches(job->identity, debug))
		return debug;
	elf_file_close(debug);
	return NULL;
}

static int build(const struct name_builder_job *job, int image_fd)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	cleanup(elf_file) struct elf_file *debug = open_debug(job);
	cleanup(symbol_index) struct symbol_index *index = NULL;
	const void *image;
	size_t bytes;
	Elf *elf;
	int rc;

	if (job->fd >= 0) {
		rc = elf_file_map_take(job->fd, &file);
		if (rc < 0)
			return rc;
		elf = file->elf;
	} else {
		/* The stub is this child's to read only: libelf takes no const. */
		elf = elf_memory((char *)(uintptr_t)job->stub, job->stub_len);
		if (!elf || !debug)
			return -ENOEXEC;
	}
	rc = symbol_index_build(elf, debug ? debug->elf : NULL, &index);
	if (rc < 0)
		return rc;
	image = symbol_index_image(index, &bytes);
	return io_write_all(image_fd, image, bytes);
}

static _Noreturn void child(const struct name_builder_job *job, int image_fd, const int *close_fds,
			    size_t close_count)
{
	static const struct sandbox_limits limits = { .cpu_s = NAME_BUILDER_CPU_S,
						      .wall_s = NAME_BUILDER_WALL_S };

	for (size_t i = 0; i < close_count; i++)
		if (close_fds[i] >= 0)
			(void)close(close_fds[i]);
	if (!job->urgent)
		(void)setpriority(PRIO_PROCESS, 0, BUILDER_NICE);
	if (sandbox_enter_builder(&limits) < 0)
		_exit(2);
	_exit(build(job, image_fd) < 0 ? 1 : 0);
}

/* ---- the parent ---------------------------------------------------------------------------------- */

int name_builder_start(struct name_builder *builder, const struct name_builder_job *job, const int *close_fds,
		       size_t close_count)
{
	cleanup_close int image_fd = io_memfd("symbols", 0);
	int pidfd;
	pid_t pid;

	if (image_fd < 0)
		return image_fd;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		child(job, image_fd, close_fds, close_count);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) {
		int rc = -errno;

		(void)waitpid(pid, NULL, 0);
		return rc;
	}
	builder->pid = pid;
	builder->pidfd = pidfd;
	builder->image_fd = take_fd(&image_fd);
	return 0;
}

int name_builder_finish(struct name_builder *builder, struct symbol_index **ret)
{
	int status = 0;
	int rc;

	if (waitpid(builder->pid, &status, WNOHANG) != builder->pid)
		return -EAGAIN;
	rc = WIFEXITED(status) && !WEXITSTATUS(status) ? symbol_index_open(builder->image_fd, ret) : -EIO;
	reset(builder);
	return rc;
}
