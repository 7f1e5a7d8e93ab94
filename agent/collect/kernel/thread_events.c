// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/thread_events.h"

#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/parse.h"
#include "agent/collect/kernel/perf_events.h"

#define TRIES_MAX 10u

void thread_events_init(struct thread_events *events, const struct bpf_program *program,
			enum perf_event_kind kind)
{
	*events = (struct thread_events){ .program = program, .kind = kind };
}

void thread_events_deinit(struct thread_events *events)
{
	while (events->open.count)
		thread_events_close(events, events->open.data[0].tgid);
	thread_event_vec_deinit(&events->open);
}

void thread_events_close(struct thread_events *events, uint32_t tgid)
{
	for (size_t i = events->open.count; i-- > 0;) {
		if (events->open.data[i].tgid != tgid)
			continue;
		if (events->open.data[i].fd >= 0)
			(void)close(events->open.data[i].fd);
		events->open.data[i] = events->open.data[--events->open.count];
	}
}

/* The number of a thread that has ended may belong to a thread of another process now. */
static bool is_known(const struct thread_events *events, uint32_t tgid, uint32_t tid)
{
	for (size_t i = events->open.count; i-- > 0;)
		if (events->open.data[i].tid == tid && events->open.data[i].tgid == tgid)
			return true;
	return false;
}

static int open_on(struct thread_events *events, uint32_t tgid, uint32_t tid)
{
	struct thread_event event = { .tgid = tgid, .tid = tid };
	struct perf_event_attr attr;
	int rc;

	if (events->open.count >= THREAD_EVENTS_MAX)
		return -ENOSPC;
	rc = thread_event_vec_reserve(&events->open, events->open.count + 1);
	if (rc < 0)
		return rc;
	perf_events_attr(events->kind, events->rate_hz, &attr);
	attr.inherit = 1;
	attr.inherit_thread = 1; /* not by processes that it forks: those are decided on by themselves */
	event.fd = (int)syscall(SYS_perf_event_open, &attr, (pid_t)tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (event.fd < 0 && errno != ESRCH)
		return -errno;
	if (event.fd >= 0 &&
	    ioctl(event.fd, PERF_EVENT_IOC_SET_BPF, bpf_program__fd(events->program)) < 0) {
		rc = -errno;
		(void)close(event.fd);
		return rc;
	}
	events->open.data[events->open.count++] = event;
	return 0;
}

/* Opens events on threads that are not known; with @only_look -EAGAIN if there are any. */
static int visit(struct thread_events *events, uint32_t tgid, bool only_look)
{
	struct dirent *entry;
	char path[32];
	DIR *dir;
	int rc = 0;

	(void)snprintf(path, sizeof(path), "/proc/%u/task", tgid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	while (rc == 0 && (entry = readdir(dir))) {
		uint64_t tid;

		if (parse_u64(entry->d_name, 1, UINT32_MAX, &tid) < 0 || is_known(events, tgid, (uint32_t)tid))
			continue;
		rc = only_look ? -EAGAIN : open_on(events, tgid, (uint32_t)tid);
	}
	(void)closedir(dir);
	return rc;
}

int thread_events_open(struct thread_events *events, uint32_t tgid)
{
	int rc = -EAGAIN;

	/* A thread that began meanwhile has inherited an event if the one that began it had its own
	 * by then, which nobody can tell. So it counts only if none has: the second look finds
	 * those of the first. */
	for (unsigned i = 0; i < TRIES_MAX && rc == -EAGAIN; i++) {
		rc = visit(events, tgid, false);
		if (rc == 0)
			rc = visit(events, tgid, true);
		if (rc < 0)
			thread_events_close(events, tgid);
	}
	return rc;
}
