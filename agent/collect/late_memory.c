// SPDX-License-Identifier: Apache-2.0
/* Stacks of threads that sleep through a sweep (bpf/sweep.bpf.h): the kernel sent their registers,
 * and their memory is read from outside. A read may hang for ever (userfaultfd, FUSE, a process
 * that is stuck), so it is a child that reads and walks, with what the collector knew when it was
 * forked; it has as long as any late stack, and is killed then. What it does not answer stays what
 * the kernel could say. */
#include "agent/collect/late_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/pidfd.h"
#include "agent/collect/late.h"

#define PAGE	   4096u
#define STACK_VECS (PROF_LATE_STACK_BYTES / PAGE + 1)

/* ---- the child ------------------------------------------------------------------------------- */

/* @bytes from @va on, as far as they are there: a read ends between two vectors. */
static uint32_t read_stack(uint32_t tgid, uint64_t va, uint8_t *to)
{
	struct iovec local = { to, PROF_LATE_STACK_BYTES }, remote[STACK_VECS];
	uint64_t at = va, end = va + PROF_LATE_STACK_BYTES;
	unsigned count = 0;
	ssize_t len;

	while (at < end && count < STACK_VECS) {
		uint64_t next = (at / PAGE + 1) * PAGE;

		if (next > end)
			next = end;
		remote[count++] = (struct iovec){ (void *)(uintptr_t)at, next - at };
		at = next;
	}
	len = process_vm_readv((pid_t)tgid, &local, 1, remote, count, 0);
	return len > 0 ? (uint32_t)len : 0;
}

/* The thread still waits where it did, so what was read is its stack: the last two words of
 * /proc/PID/task/TID/syscall are its stack pointer and program counter (fs/proc/base.c). */
static bool still_sleeps(const struct prof_late_event *event)
{
	char path[64], text[256], due[64];
	size_t due_len;
	ssize_t len;

	(void)snprintf(path, sizeof(path), "/proc/%u/task/%u/syscall", event->tgid, event->tid);
	due_len = (size_t)snprintf(due, sizeof(due), " 0x%llx 0x%llx\n", (unsigned long long)event->sp,
				   (unsigned long long)event->ip);
	len = io_read_small(AT_FDCWD, path, text, sizeof(text));
	return len >= (ssize_t)due_len && strcmp(text + (size_t)len - due_len, due) == 0;
}

static void answer(struct collector *c, const struct late_stack *item,
		   struct prof_late_event *event, struct late_frames *frames, int fd)
{
	size_t bytes;

	*event = *item->event;
	event->stack_bytes = read_stack(event->tgid, event->sp - ARCH_BELOW_SP, event->stack);
	if (!event->stack_bytes || !still_sleeps(event) || late_walk_asleep(c, item, event, frames) < 0)
		return;
	frames->id = item->id;
	bytes = offsetof(struct late_frames, words) + frames->count * sizeof(frames->words[0]);
	if (io_write_all(fd, frames, bytes) < 0)
		_exit(1);
}

static _Noreturn void read_all(struct collector *c, int fd)
{
	struct prof_late_event *event = malloc(sizeof(*event) + PROF_LATE_STACK_BYTES);
	struct late_frames *frames = malloc(sizeof(*frames));

	(void)prctl(PR_SET_NAME, "profd-waits");
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (bpf_agent_keep_tables_only(c->bpf, fd) < 0)
		_exit(1);
	/* the last first: that is how they are found again */
	for (size_t i = c->late.count; event && frames && i-- > 0;)
		if (c->late.items[i].asked)
			answer(c, &c->late.items[i], event, frames, fd);
	_exit(0);
}

/* ---- the collector --------------------------------------------------------------------------- */

/* Marks what a new child shall read; false: nothing. */
static bool ask(struct collector *c, uint64_t now_ns)
{
	bool any = false;

	for (size_t i = 0; i < c->late.count; i++) {
		struct late_stack *item = &c->late.items[i];

		item->asked = item->id && !item->event->stack_bytes &&
			      !(item->event->head.flags & PROF_LATE_RETRIED) && item->until_ns > now_ns;
		any |= item->asked;
	}
	return any;
}

/* Stacks without an answer wait no longer. */
static void give_up(struct collector *c)
{
	for (size_t i = 0; i < c->late.count; i++)
		if (c->late.items[i].asked)
			c->late.items[i].until_ns = 0;
	c->late_seen = UINT64_MAX;
}

void late_memory_stop(struct collector *c)
{
	struct late_memory *memory = &c->late_memory;

	if (!memory->is_busy)
		return;
	pidfd_kill(memory->pidfd);
	cleanup_close_fn(&memory->pidfd);
	(void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, memory->fd, NULL);
	(void)close(memory->fd);
	memory->is_busy = false;
	give_up(c);
}

static void start(struct collector *c, uint64_t now_ns)
{
	struct late_memory *memory = &c->late_memory;
	struct epoll_event event = { .events = EPOLLIN };
	int fds[2];
	pid_t pid;

	if (memory->is_busy || !ask(c, now_ns))
		return;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	(void)signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
	pid = fork();
	if (pid == 0)
		read_all(c, fds[1]);
	(void)close(fds[1]);
	memory->is_busy = true;
	memory->pidfd = pid < 0 ? -1 : pidfd_of_child(pid);
	event.data.fd = memory->fd = fds[0];
	memory->used = 0;
	memory->until_ns = now_ns + LATE_WAIT_NS;
	memory->at_most_ns = now_ns + LATE_READ_NS;
	if (pid < 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ||
	    epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fds[0], &event) < 0) {
		log_debug("waits that have not ended have no user stacks: %s", strerror(errno));
		late_memory_stop(c);
	}
}

void late_memory_sweep(struct collector *c, uint64_t now_ns)
{
	start(c, now_ns);
	if (c->late_memory.is_busy && now_ns >= c->late_memory.until_ns)
		late_memory_stop(c);
}

/* Takes whole answers out of the buffer. */
static void take_answers(struct collector *c)
{
	struct late_memory *memory = &c->late_memory;
	const size_t head = offsetof(struct late_frames, words);

	while (memory->used >= head) {
		struct late_frames *frames = &memory->frames;
		size_t bytes = head + frames->count * sizeof(frames->words[0]);

		if (frames->count > ARRAY_SIZE(frames->words)) {
			memory->used = 0;
			return;
		}
		if (memory->used < bytes)
			return;
		late_answer(c, frames);
		memory->used -= bytes;
		memmove(frames, (const char *)frames + bytes, memory->used);
	}
}

void late_memory_receive(struct collector *c)
{
	struct late_memory *memory = &c->late_memory;
	ssize_t len;

	while (memory->is_busy) {
		len = read(memory->fd, (char *)&memory->frames + memory->used,
			   sizeof(memory->frames) - memory->used);
		if (len < 0 && (errno == EINTR || errno == EAGAIN))
			return;
		if (len <= 0) {
			late_memory_stop(c);
			return;
		}
		memory->used += (size_t)len;
		memory->until_ns = clock_monotonic_ns() + LATE_WAIT_NS;
		if (memory->until_ns > memory->at_most_ns)
			memory->until_ns = memory->at_most_ns;
		take_answers(c);
	}
}
