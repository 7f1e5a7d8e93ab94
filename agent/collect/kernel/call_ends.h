/* SPDX-License-Identifier: Apache-2.0 */
/* Attachments of BPF programs to the ends of kernel functions (fexit). To detach a program the
 * kernel waits until no thread is on its way through it: 0.15 s each (6.1,
 * unregister_ftrace_function() with CONFIG_PREEMPTION), one after the other under its own lock
 * (direct_mutex). A thread of its own does that. Meanwhile the programs return at once
 * (io_by_call). What it has not come to when they are wanted again stays. */
#ifndef PROFD_COLLECT_CALL_ENDS_H
#define PROFD_COLLECT_CALL_ENDS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define CALL_ENDS_MAX 64u

struct call_ends {
	int links[CALL_ENDS_MAX]; /* owned, -1 = none; the closer's while it runs */
	bool closing;
	atomic_bool enough; /* the closer is to stop */
	pthread_t closer;
	int programs[CALL_ENDS_MAX]; /* borrowed */
	unsigned program_count;	     /* 0 unless open */
	unsigned repeated_count;     /* the first of them, whose misses lose nothing */
	uint64_t missed;
};

void call_ends_init(struct call_ends *ends);
void call_ends_deinit(struct call_ends *ends); /* waits until all are off */
/* Attaches those of the @count programs (descriptors, the same at every call) that are not, in this
 * order: of two at one function the kernel runs the later one first. What the first @repeated of
 * them miss they do at the next call. The first error; others may be attached then. */
int call_ends_open(struct call_ends *ends, const int *programs, unsigned count, unsigned repeated)
	must_use;
/* Returns at once. */
void call_ends_close(struct call_ends *ends);
/* At how many ends of calls no program has counted so far. The kernel runs none where a thread was
 * preempted inside of the same program on the same CPU: struct bpf_prog_info of v5.12,
 * recursion_misses; __bpf_prog_enter_recur(). */
uint64_t call_ends_missed(struct call_ends *ends);

#endif
