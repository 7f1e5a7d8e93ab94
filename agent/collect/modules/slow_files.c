// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/modules/slow_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/pidfd.h"
#include "agent/base/vec.h"
#include "agent/collect/modules/module_files.h"
#include "agent/collect/proc/mounts.h"

#define SILENT_MAX  16u
#define COPY_BYTES  65536u
#define OF_A_VIEW   (1ull << 63) /* instead of a device: of what a process sees */

struct job {
	uint32_t module;		 /* id; 0 = the debug file of one of the past */
	uint64_t device;		 /* what may hang it */
	struct control_debug_want *want; /* owned; NULL = the module's own file is wanted */
};

VEC_DEFINE(job, struct job);

struct child {
	bool is_busy;
	int pidfd;
	struct job job;
	uint64_t until_ns;
	int answer_fd; /* struct answer comes, and a descriptor with it */
};

struct answer {
	struct channel_head head;
	int32_t status; /* 0 or a negative errno */
	uint32_t is_copy;
};

struct slow_files {
	struct job_vec waiting;
	struct child children[SLOW_FILES_CHILDREN_MAX];
	struct {
		uint64_t device, until_ns;
	} silent[SILENT_MAX]; /* ring */
	size_t silent_at;
	struct {
		uint64_t device;
		int answer_fd; /* of a child that was killed; closed by its end */
	} hung[SLOW_FILES_HUNG_MAX];
	unsigned hung_count;
	struct channel_message message;
};

/* ---- what is wanted -------------------------------------------------------------------------- */

static uint64_t device_of(const struct module *module)
{
	return (uint64_t)module->file.dev_major << 32 | module->file.dev_minor;
}

static struct statx look(uint32_t tgid, const char *what)
{
	struct statx st = { 0 };
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/%u/%s", tgid, what);
	(void)!statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st); /* zeros if it is gone */
	return st;
}

/* A hash of user, mounts and root of a process. One user's actions on what the user sees delay
 * nobody else. */
static uint64_t view_of(uint32_t tgid)
{
	const uint32_t pid = tgid ? tgid : (uint32_t)getpid();
	const struct statx root = look(pid, "root");
	uint64_t view = hash_combine(look(pid, "").stx_uid, look(pid, "ns/mnt").stx_ino);

	view = hash_combine(hash_combine(view, root.stx_ino),
			    (uint64_t)root.stx_dev_major << 32 | root.stx_dev_minor);
	return OF_A_VIEW | view;
}

/* ---- the child ------------------------------------------------------------------------------- */

static int copy(int from, int to)
{
	char *buffer = malloc(COPY_BYTES); /* ends with the process */
	uint64_t copied = 0;

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

/* The file itself where nobody can hang who reads it, else its copy. Descriptors end with the
 * process: to close one may hang, too. */
static int open_job(const struct job *job, const struct module *module, uint32_t *ret_is_copy)
{
	struct debug_request wanted;
	int fd, copy_fd, rc;

	if (job->want) {
		wanted = module_files_debug_request(job->want, module);
		fd = module_files_open_debug(&wanted, true);
	} else {
		fd = module_files_open(module, true, NULL);
	}
	*ret_is_copy = fd >= 0 && !mounts_file_is_local(module ? module->origin.tgid : 0, fd);
	if (!*ret_is_copy)
		return fd;
	copy_fd = io_memfd("profd-file", 0);
	if (copy_fd < 0)
		return copy_fd;
	rc = copy(fd, copy_fd);
	return rc < 0 ? rc : copy_fd;
}

static _Noreturn void run_child(const struct job *job, const struct module *module, int answer_fd)
{
	struct answer answer = { .status = 0 };
	int fd;

	(void)prctl(PR_SET_NAME, "profd-files");
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	io_close_others(answer_fd, answer_fd);
	fd = open_job(job, module, &answer.is_copy);
	if (fd < 0)
		answer.status = fd;
	_exit(channel_send(answer_fd, &answer, sizeof(answer), &fd, fd >= 0) < 0);
}

/* ---- the collector --------------------------------------------------------------------------- */

struct slow_files *slow_files_create(void)
{
	return calloc(1, sizeof(struct slow_files));
}

static void end_child(struct child *child)
{
	pidfd_kill(child->pidfd); /* nobody waits for it: SIGCHLD is ignored */
	cleanup_close_fn(&child->pidfd);
	if (child->answer_fd >= 0)
		(void)close(child->answer_fd);
	free(child->job.want);
	*child = (struct child){ 0 };
}

void slow_files_destroy(struct slow_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < SLOW_FILES_CHILDREN_MAX; i++)
		if (files->children[i].is_busy)
			end_child(&files->children[i]);
	for (size_t i = 0; i < files->hung_count; i++)
		(void)close(files->hung[i].answer_fd);
	for (size_t i = 0; i < files->waiting.count; i++)
		free(files->waiting.data[i].want);
	job_vec_deinit(&files->waiting);
	free(files);
}

static bool is_silent(const struct slow_files *files, uint64_t device, uint64_t now_ns)
{
	if (files->hung_count == SLOW_FILES_HUNG_MAX)
		return true; /* who knows which is the next */
	for (size_t i = 0; i < files->hung_count; i++)
		if (files->hung[i].device == device)
			return true;
	for (size_t i = 0; i < SILENT_MAX; i++)
		if (files->silent[i].device == device && now_ns < files->silent[i].until_ns)
			return true;
	return false;
}

/* Takes what is wanted. */
static int put_job(struct slow_files *files, struct job job, uint64_t now_ns)
{
	int rc = is_silent(files, job.device, now_ns)		 ? -ETIMEDOUT
		 : files->waiting.count >= SLOW_FILES_WAITING_MAX ? -ENOSPC
								  : job_vec_push(&files->waiting, job);

	if (rc < 0)
		free(job.want);
	return rc;
}

int slow_files_ask(struct slow_files *files, const struct module *module, uint64_t now_ns)
{
	const struct job job = { .module = module->id,
				 .device = module->slow ? device_of(module) : view_of(module->origin.tgid) };

	return put_job(files, job, now_ns);
}

int slow_files_ask_debug(struct slow_files *files, const struct control_debug_want *want,
			 const struct module *module, uint64_t now_ns)
{
	struct job job = { .module = module ? module->id : 0,
			   .device = view_of(module_files_debug_request(want, module).tgid),
			   .want = malloc(sizeof(*want)) };

	if (!job.want)
		return -ENOMEM;
	*job.want = *want;
	return put_job(files, job, now_ns);
}

static int start_child(struct child *child, const struct job *job, const struct module *module,
		       uint64_t now_ns)
{
	int fds[2], rc = channel_pair(fds);
	pid_t pid;

	if (rc < 0)
		return rc;
	(void)signal(SIGCHLD, SIG_IGN);
	pid = fork();
	if (pid == 0)
		run_child(job, module, fds[1]);
	(void)close(fds[1]);
	if (pid < 0) {
		(void)close(fds[0]);
		return -EAGAIN;
	}
	*child = (struct child){ .is_busy = true,
				 .pidfd = pidfd_of_child(pid),
				 .job = *job,
				 .until_ns = now_ns + SLOW_FILES_WAIT_S * NS_PER_S,
				 .answer_fd = fds[0] };
	return 0;
}

/* A free child for @device, NULL: all that there may be are at work, or one is at this device. */
static struct child *child_for(struct slow_files *files, uint64_t device)
{
	struct child *found = NULL;
	unsigned may_hang = files->hung_count;

	for (size_t i = 0; i < SLOW_FILES_CHILDREN_MAX; i++) {
		if (!files->children[i].is_busy)
			found = &files->children[i];
		else if (files->children[i].job.device == device)
			return NULL;
		else
			may_hang++;
	}
	return may_hang < SLOW_FILES_HUNG_MAX ? found : NULL;
}

static void drop_waiting(struct slow_files *files, size_t at)
{
	files->waiting.count--;
	memmove(&files->waiting.data[at], &files->waiting.data[at + 1],
		(files->waiting.count - at) * sizeof(*files->waiting.data));
}

static void tell(const struct job *job, int fd, bool is_copy, struct slow_file *ret)
{
	*ret = (struct slow_file){ .module = job->module,
				   .request = job->want ? job->want->head.request : 0,
				   .is_debug = job->want != NULL,
				   .is_copy = is_copy,
				   .fd = fd };
}

/* True: @ret is one that cannot be asked for any more. False: each is on its way or waits. */
static bool start_waiting(struct slow_files *files, struct module_table *modules, uint64_t now_ns,
			  struct slow_file *ret)
{
	for (size_t i = 0; i < files->waiting.count;) {
		const struct job job = files->waiting.data[i];
		struct child *child = child_for(files, job.device);
		int rc = is_silent(files, job.device, now_ns) ? -ETIMEDOUT
			 : child ? start_child(child, &job, module_table_get(modules, job.module), now_ns)
				 : 1;

		if (rc > 0) {
			i++;
			continue;
		}
		drop_waiting(files, i);
		if (rc < 0) {
			tell(&job, rc, false, ret);
			free(job.want);
			return true;
		}
	}
	return false;
}

/* @child was killed, which may be of no use: it counts until it has ended. */
static void leave_behind(struct slow_files *files, struct child *child)
{
	pidfd_kill(child->pidfd);
	files->hung[files->hung_count].device = child->job.device;
	files->hung[files->hung_count++].answer_fd = child->answer_fd;
	child->answer_fd = -1;
	if (files->hung_count == SLOW_FILES_HUNG_MAX)
		log_warn("%u children hang at files that do not answer: until one ends, none is "
			 "opened that might not either",
			 files->hung_count);
}

static void forget_ended(struct slow_files *files)
{
	for (size_t i = files->hung_count; i-- > 0;) {
		int rc = channel_receive(files->hung[i].answer_fd, &files->message);

		channel_message_close(&files->message);
		if (rc != -EPIPE)
			continue;
		(void)close(files->hung[i].answer_fd);
		files->hung[i] = files->hung[--files->hung_count];
	}
}

static void note_silence(struct slow_files *files, uint64_t device, uint64_t now_ns)
{
	if (device & OF_A_VIEW)
		log_warn(
			"a file system that a process sees does not answer: its debug files and maps of JIT code are "
			"not looked for");
	else
		log_warn("a file system does not answer (device %u:%u): what runs from it stays without names",
			 (unsigned)(device >> 32), (unsigned)device);
	files->silent[files->silent_at].device = device;
	files->silent[files->silent_at].until_ns = now_ns + SLOW_FILES_SILENCE_S * NS_PER_S;
	files->silent_at = (files->silent_at + 1) % SILENT_MAX;
}

/* False: none yet. */
static bool take_answer(struct slow_files *files, struct child *child, uint64_t now_ns,
			struct slow_file *ret)
{
	struct channel_message *message = &files->message;
	const struct answer *answer = (const void *)message->data;
	int rc = channel_receive(child->answer_fd, message);

	if (rc == 0 && now_ns < child->until_ns)
		return false;
	if (rc == 0) {
		note_silence(files, child->job.device, now_ns);
		leave_behind(files, child);
		tell(&child->job, -ETIMEDOUT, false, ret);
	} else if (rc < 0 || message->len != sizeof(*answer) || (!answer->status && message->fds[0] < 0)) {
		tell(&child->job, -EIO, false, ret);
	} else {
		tell(&child->job, answer->status ? answer->status : take_fd(&message->fds[0]),
		     answer->is_copy, ret);
	}
	channel_message_close(message);
	return true;
}

bool slow_files_take(struct slow_files *files, struct module_table *modules, uint64_t now_ns,
		     struct slow_file *ret)
{
	forget_ended(files);
	for (size_t i = 0; i < SLOW_FILES_CHILDREN_MAX; i++) {
		struct child *child = &files->children[i];

		if (!child->is_busy || !take_answer(files, child, now_ns, ret))
			continue;
		end_child(child);
		return true;
	}
	return start_waiting(files, modules, now_ns, ret);
}

bool slow_files_are_due(const struct slow_files *files, uint64_t now_ns)
{
	const uint64_t patience_ns = (SLOW_FILES_WAIT_S - 1) * NS_PER_S;

	for (size_t i = 0; i < SLOW_FILES_CHILDREN_MAX; i++)
		if (files->children[i].is_busy && files->children[i].until_ns - now_ns > patience_ns)
			return true;
	return false;
}

unsigned slow_files_hung(const struct slow_files *files)
{
	return files->hung_count;
}
