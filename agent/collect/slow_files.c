// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/slow_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/vec.h"
#include "agent/collect/module_files.h"

#define SILENT_MAX 16u
#define TYPE_MAX   16u
#define COPY_BYTES 65536u

VEC_DEFINE(waiting, uint32_t);

struct child {
	pid_t pid; /* 0 = free */
	uint32_t module;
	uint64_t device;
	uint64_t until_ns;
	int answer_fd; /* one int32_t comes: 0 or a negative errno */
	int copy_fd;
};

struct slow_files {
	struct waiting_vec waiting; /* module ids */
	struct child children[SLOW_FILES_CHILDREN_MAX];
	struct {
		uint64_t device, until_ns;
	} silent[SILENT_MAX]; /* ring */
	size_t silent_at;
};

/* ---- which files --------------------------------------------------------------------------------- */

bool slow_files_parse_mount(const char *line, uint32_t dev_major, uint32_t dev_minor, char *ret, size_t size)
{
	const char *type = strstr(line, " - ");
	unsigned major, minor;
	size_t len;

	if (!type || sscanf(line, "%*u %*u %u:%u ", &major, &minor) != 2 || major != dev_major || minor != dev_minor)
		return false;
	type += strlen(" - ");
	len = strcspn(type, " \n");
	if (len >= size)
		len = size - 1;
	memcpy(ret, type, len);
	ret[len] = '\0';
	return true;
}

static bool is_local(const char *type)
{
	static const char *const types[] = { "overlay", "btrfs", "tmpfs", "ramfs", "rootfs", "zfs", "bcachefs",
					     "devtmpfs", "hugetlbfs" };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

/* Memory that has only a descriptor (memfd_create, shared memory) is on a file system that is mounted nowhere. */
static bool is_memory(const struct module_file *file)
{
	cleanup_close int fd = io_memfd("device", 0);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && major(st.st_dev) == file->dev_major &&
	       minor(st.st_dev) == file->dev_minor;
}

bool slow_files_is_slow(const struct module *module)
{
	const struct module_file *file = &module->file;
	cleanup_fclose FILE *mounts = NULL;
	cleanup_free char *line = NULL;
	char path[40], type[TYPE_MAX];
	size_t capacity = 0;

	if (module->kind != FEED_MODULE_ELF || file->dev_major || !file->inode || is_memory(file))
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%u/mountinfo", module->origin.tgid);
	mounts = fopen(path, "re");
	while (mounts && getline(&line, &capacity, mounts) > 0)
		if (slow_files_parse_mount(line, file->dev_major, file->dev_minor, type, sizeof(type)))
			return !is_local(type);
	return true;
}

static uint64_t device_of(const struct module *module)
{
	return (uint64_t)module->file.dev_major << 32 | module->file.dev_minor;
}

/* ---- the child ----------------------------------------------------------------------------------- */

static int copy(const struct module *module, int to)
{
	cleanup_close int from = module_files_open(module);
	uint64_t copied = 0;
	char *buffer;

	if (from < 0)
		return from;
	buffer = malloc(COPY_BYTES); /* ends with the process */
	if (!buffer)
		return -ENOMEM;
	for (;;) {
		ssize_t len = read(from, buffer, COPY_BYTES);

		if (len <= 0)
			return len < 0 ? -errno : 0;
		copied += (size_t)len;
		if (copied > SLOW_FILES_BYTES_MAX)
			return -EFBIG;
		if (io_write_all(to, buffer, (size_t)len) < 0)
			return -EIO;
	}
}

static _Noreturn void run_child(const struct module *module, int answer_fd, int copy_fd)
{
	int32_t status;

	(void)prctl(PR_SET_NAME, "profd-files");
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	io_close_others(answer_fd, copy_fd);
	status = copy(module, copy_fd);
	_exit(io_write_all(answer_fd, &status, sizeof(status)) < 0);
}

/* ---- the collector ------------------------------------------------------------------------------- */

struct slow_files *slow_files_create(void)
{
	return calloc(1, sizeof(struct slow_files));
}

static void end_child(struct child *child)
{
	(void)kill(child->pid, SIGKILL); /* nobody waits for it: SIGCHLD is ignored */
	(void)close(child->answer_fd);
	if (child->copy_fd >= 0)
		(void)close(child->copy_fd);
	*child = (struct child){ 0 };
}

void slow_files_destroy(struct slow_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < SLOW_FILES_CHILDREN_MAX; i++)
		if (files->children[i].pid)
			end_child(&files->children[i]);
	waiting_vec_deinit(&files->waiting);
	free(files);
}

static bool is_silent(const struct slow_files *files, uint64_t device, uint64_t now_ns)
{
	for (size_t i = 0; i < SILENT_MAX; i++)
		if (files->silent[i].device == device && now_ns < files->silent[i].until_ns)
			return true;
	return false;
}

int slow_files_ask(struct slow_files *files, const struct module *module, uint64_t now_ns)
{
	if (is_silent(files, device_of(module), now_ns))
		return -ETIMEDOUT;
	if (files->waiting.count >= SLOW_FILES_WAITING_MAX)
		return -ENOSPC;
	return waiting_vec_push(&files->waiting, module->id);
}

static int start_child(struct child *child, const struct module *module, uint64_t now_ns)
{
	cleanup_close int copy_fd = io_memfd("profd-file", 0);
	int fds[2];
	pid_t pid;

	if (copy_fd < 0)
		return copy_fd;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	(void)signal(SIGCHLD, SIG_IGN);
	pid = fork();
	if (pid == 0)
		run_child(module, fds[1], copy_fd);
	(void)close(fds[1]);
	if (pid < 0) {
		(void)close(fds[0]);
		return -EAGAIN;
	}
	*child = (struct child){ .pid = pid,
				 .module = module->id,
				 .device = device_of(module),
				 .until_ns = now_ns + SLOW_FILES_WAIT_S * NS_PER_S,
				 .answer_fd = fds[0],
				 .copy_fd = take_fd(&copy_fd) };
	return 0;
}

/* A free child for @device, NULL: all are at work, or one is at this device. */
static struct child *child_for(struct slow_files *files, uint64_t device)
{
	struct child *found = NULL;

	for (size_t i = 0; i < SLOW_FILES_CHILDREN_MAX; i++) {
		if (!files->children[i].pid)
			found = &files->children[i];
		else if (files->children[i].device == device)
			return NULL;
	}
	return found;
}

static uint32_t take_waiting(struct slow_files *files, size_t at)
{
	uint32_t id = files->waiting.data[at];

	files->waiting.count--;
	memmove(&files->waiting.data[at], &files->waiting.data[at + 1],
		(files->waiting.count - at) * sizeof(*files->waiting.data));
	return id;
}

/* The first one that cannot be asked for any more, and why; 0: each is on its way or waits. */
static uint32_t start_waiting(struct slow_files *files, struct module_table *modules, uint64_t now_ns, int *ret)
{
	for (size_t i = 0; i < files->waiting.count;) {
		const struct module *module = module_table_get(modules, files->waiting.data[i]);
		struct child *child = child_for(files, device_of(module));
		int rc = is_silent(files, device_of(module), now_ns) ? -ETIMEDOUT
			 : child ? start_child(child, module, now_ns)
				 : 1;

		if (rc < 0) {
			*ret = rc;
			return take_waiting(files, i);
		}
		if (rc)
			i++;
		else
			(void)take_waiting(files, i);
	}
	return 0;
}

/* 1 = @ret is the outcome, 0 = none yet. */
static int outcome_of(struct slow_files *files, struct child *child, uint64_t now_ns, int *ret)
{
	int32_t status;
	ssize_t len = read(child->answer_fd, &status, sizeof(status));

	if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (now_ns < child->until_ns)
			return 0;
		log_warn("a file system does not answer (device %u:%u): what runs from it stays without names",
			 (unsigned)(child->device >> 32), (unsigned)child->device);
		files->silent[files->silent_at].device = child->device;
		files->silent[files->silent_at].until_ns = now_ns + SLOW_FILES_SILENCE_S * NS_PER_S;
		files->silent_at = (files->silent_at + 1) % SILENT_MAX;
		*ret = -ETIMEDOUT;
	} else {
		*ret = len != sizeof(status) ? -EIO : status < 0 ? status : take_fd(&child->copy_fd);
	}
	return 1;
}

uint32_t slow_files_take(struct slow_files *files, struct module_table *modules, uint64_t now_ns, int *ret)
{
	for (size_t i = 0; i < SLOW_FILES_CHILDREN_MAX; i++) {
		struct child *child = &files->children[i];
		uint32_t id = child->module;

		if (!child->pid || !outcome_of(files, child, now_ns, ret))
			continue;
		end_child(child);
		return id;
	}
	return start_waiting(files, modules, now_ns, ret);
}
