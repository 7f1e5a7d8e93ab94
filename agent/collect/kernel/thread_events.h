/* SPDX-License-Identifier: Apache-2.0 */
/* Perf events of single processes' threads, for sessions with a high rate, which would cost the
 * whole host too much. There is one event per thread, inherited by the threads that it starts. It
 * runs the same BPF program as the host sampler's. Never two on one thread. Single-threaded. */
#ifndef PROFD_COLLECT_THREAD_EVENTS_H
#define PROFD_COLLECT_THREAD_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/vec.h"
#include "agent/collect/kernel/perf_events.h"

#define THREAD_EVENTS_MAX 1024u /* of all processes; inherited ones do not count */

struct bpf_program;

struct thread_event {
	uint32_t tgid, tid;
	int fd; /* owned; -1: the thread was ending */
};
VEC_DEFINE(thread_event, struct thread_event);

struct thread_events {
	const struct bpf_program *program; /* borrowed, loaded */
	struct thread_event_vec open;
	uint32_t rate_hz; /* of the events that are opened from now on */
	enum perf_event_kind kind;
};

void thread_events_init(struct thread_events *events, const struct bpf_program *program,
			enum perf_event_kind kind);
void thread_events_deinit(struct thread_events *events);

/* Opens events at rate_hz on every thread of a process that has none. On failure none stays.
 * -ESRCH: it is gone; -EAGAIN: it starts threads faster than they can be listed; -ENOSPC:
 * THREAD_EVENTS_MAX; -EMFILE, -EINVAL (before v5.13), … */
int thread_events_open(struct thread_events *events, uint32_t tgid) must_use;
/* Closes them, and what its threads inherited. */
void thread_events_close(struct thread_events *events, uint32_t tgid);

#endif
