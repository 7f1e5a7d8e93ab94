// SPDX-License-Identifier: Apache-2.0
#include "symbolize/name_builder.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/base/io.h"
#include "agent/wire/control.h"
#include "symbolize/sandbox.h"

#define BUILDER_NICE 5

void name_builder_init(struct name_builder *builder)
{
	*builder = (struct name_builder){ .pidfd = -1, .files_fd = -1 };
}

static void reset(struct name_builder *builder)
{
	if (builder->pidfd >= 0)
		(void)close(builder->pidfd);
	while (builder->count)
		(void)close(builder->image_fds[--builder->count]);
	if (builder->files_fd >= 0)
		(void)close(builder->files_fd);
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

size_t name_builder_fds(const struct name_builder *builder, int ret[NAME_BUILDER_FDS_MAX])
{
	size_t count = 0;

	ret[count++] = builder->pidfd;
	ret[count++] = builder->files_fd;
	for (unsigned i = 0; i < builder->count; i++)
		ret[count++] = builder->image_fds[i];
	return count;
}

/* ---- the child ------------------------------------------------------------------------------- */

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

struct asker {
	struct debug_finder finder;
	int fd;
	struct channel_message message;
};

/* The answer may take as long as it likes: it is the parent that gives up. */
static int await_answer(struct asker *asker)
{
	const struct control_debug *answer = (const void *)asker->message.data;

	for (;;) {
		struct pollfd wait = { .fd = asker->fd, .events = POLLIN };
		int rc = channel_receive(asker->fd, &asker->message);

		if (rc == 1 && asker->message.len == sizeof(*answer) && answer->head.kind == CONTROL_DEBUG)
			return answer->status;
		channel_message_close(&asker->message);
		if (rc < 0)
			return rc;
		if (rc == 0)
			(void)poll(&wait, 1, -1);
	}
}

static int ask_for_file(void *ctx, enum control_debug_kind kind, const char *name,
			const uint8_t *build_id, uint8_t build_id_len, struct elf_file **ret)
{
	struct control_debug_want want = { .head = { .kind = CONTROL_DEBUG_WANT },
					   .kind = kind,
					   .build_id_len = build_id_len };
	struct asker *asker = ctx;
	size_t len = strlen(name);
	int rc;

	if (len >= sizeof(want.name) || build_id_len > sizeof(want.build_id))
		return -ENOENT;
	memcpy(want.name, name, len);
	if (build_id_len)
		memcpy(want.build_id, build_id, build_id_len);
	rc = channel_send(asker->fd, &want, sizeof(want), NULL, 0);
	if (rc == 0)
		rc = await_answer(asker);
	if (rc == 0)
		rc = asker->message.fd_count == 1 ? elf_file_map_take(asker->message.fds[0], ret) : -ENOENT;
	if (rc == 0)
		asker->message.fds[0] = -1;
	channel_message_close(&asker->message);
	return rc == -ENOMEM ? rc : rc < 0 ? -ENOENT : 0;
}

static int build(const struct name_builder_job *job, struct asker *asker, int image_fd)
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
		/* The skeleton is this child's to read only: libelf takes no const. */
		elf = elf_memory((char *)(uintptr_t)job->skeleton, job->skeleton_len);
		if (!elf || !debug)
			return -ENOEXEC;
	}
	rc = symbol_index_build_files(&(struct symbol_index_files){ .elf = elf,
								    .debug = debug ? debug->elf : NULL,
								    .finder = &asker->finder,
								    .former = job->former },
				      &index);
	if (rc < 0)
		return rc;
	image = symbol_index_image(index, &bytes);
	return io_write_all(image_fd, image, bytes);
}

/* An image that was not written is empty. */
static _Noreturn void child(const struct name_builder *builder, const struct name_builder_job *jobs,
			    const int *close_fds, size_t close_count)
{
	static const struct sandbox_limits whole = { NAME_BUILDER_CPU_S, NAME_BUILDER_WALL_S };
	static const struct sandbox_limits brief = { NAME_BUILDER_BRIEF_CPU_S, NAME_BUILDER_BRIEF_WALL_S };
	struct asker *asker = calloc(1, sizeof(*asker));

	for (size_t i = 0; i < close_count; i++)
		if (close_fds[i] >= 0)
			(void)close(close_fds[i]);
	if (!jobs[0].urgent)
		(void)setpriority(PRIO_PROCESS, 0, BUILDER_NICE);
	if (!asker || sandbox_enter_builder(builder->is_brief ? &brief : &whole) < 0)
		_exit(2);
	asker->fd = builder->files_fd;
	asker->finder = (struct debug_finder){ asker, ask_for_file };
	for (unsigned i = 0; i < builder->count; i++)
		if (build(&jobs[i], asker, builder->image_fds[i]) < 0)
			(void)!ftruncate(builder->image_fds[i], 0);
	_exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static int open_images(struct name_builder *builder, const struct name_builder_job *jobs,
		       unsigned count)
{
	while (builder->count < count) {
		int fd = io_memfd("symbols", 0);

		if (fd < 0)
			return fd;
		builder->keys[builder->count] = jobs[builder->count].key;
		builder->image_fds[builder->count++] = fd;
	}
	return 0;
}

static int start_child(struct name_builder *builder, const struct name_builder_job *jobs,
		       const int *close_fds, size_t close_count)
{
	cleanup_close int files_fd = -1;
	int pair[2], rc;
	pid_t pid;

	rc = channel_pair(pair);
	if (rc < 0)
		return rc;
	files_fd = pair[1];
	builder->files_fd = pair[1];
	pid = fork();
	if (!pid) {
		(void)close(pair[0]);
		child(builder, jobs, close_fds, close_count);
	}
	builder->files_fd = pair[0];
	if (pid < 0)
		return -errno;
	builder->pid = pid;
	builder->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (builder->pidfd >= 0)
		return 0;
	rc = -errno;
	(void)waitpid(pid, NULL, 0);
	return rc;
}

int name_builder_start(struct name_builder *builder, const struct name_builder_job *jobs,
		       unsigned count, bool is_brief, const int *close_fds, size_t close_count)
{
	int rc;

	if (!count || count > NAME_BUILDER_JOBS_MAX)
		return -EINVAL;
	builder->is_brief = is_brief;
	rc = open_images(builder, jobs, count);
	if (rc == 0)
		rc = start_child(builder, jobs, close_fds, close_count);
	if (rc < 0)
		reset(builder);
	return rc;
}

/* An image that a killed child had finished is whole and counts; the one it was working on is
 * unknown. */
static int read_image(int fd, bool killed, bool again, struct symbol_index **ret)
{
	int rc = symbol_index_open(fd, ret);
	struct stat st;

	if (rc < 0 && killed)
		return again ? -EAGAIN : -EIO;
	return rc == -EPROTO && fstat(fd, &st) == 0 && !st.st_size ? -EIO : rc;
}

int name_builder_finish(struct name_builder *builder,
			struct name_builder_result ret[NAME_BUILDER_JOBS_MAX])
{
	int count = (int)builder->count, status = 0;
	bool killed, again = count > 1 || builder->is_brief;

	if (waitpid(builder->pid, &status, WNOHANG) != builder->pid)
		return -EAGAIN;
	killed = !WIFEXITED(status) || WEXITSTATUS(status);
	for (int i = 0; i < count; i++) {
		ret[i] = (struct name_builder_result){ .key = builder->keys[i] };
		ret[i].error = read_image(builder->image_fds[i], killed, again, &ret[i].index);
	}
	reset(builder);
	return count;
}
