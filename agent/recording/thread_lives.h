/* SPDX-License-Identifier: Apache-2.0 */
/* Readings of what the kernel counts for each thread, and what they say of a span of time. A
 * thread's number may be given to another thread that comes later: each has a life of its own, told
 * apart by when it began. Pure. */
#ifndef PROFD_RECORDING_THREAD_LIVES_H
#define PROFD_RECORDING_THREAD_LIVES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"

#define THREAD_COUNTS_MAX 2u

/* Counters of a thread at one moment; all times of one clock. */
struct thread_reading {
	uint64_t time_ns;
	uint64_t start_ns; /* when the thread began */
	uint64_t counts[THREAD_COUNTS_MAX]; /* they never fall */
	bool ends; /* it exits */
};

struct thread_life {
	uint32_t next; /* of the same thread, index + 1, 0 = none */
	uint64_t taken_ns; /* another thread has its number since then, by exec, with counts of its
			      own; 0 = none has */
	struct thread_reading first, last;
};
VEC_DEFINE(thread_life, struct thread_life);
VEC_DEFINE(thread_newest, uint32_t);

/* Zero-initialized is empty. */
struct thread_lives {
	struct thread_life_vec lives;
	struct thread_newest_vec newest; /* of each thread, index + 1 of lives */
	struct u64map at;		 /* pid << 32 | tid -> index of newest */
	uint64_t until_ns; /* of each life no reading is taken behind the first one from then on; 0
			      = all are */
};

void thread_lives_deinit(struct thread_lives *lives);
/* A thread is known by its process's pid and its own: an exec in between does not end it. Where
 * another thread than the first calls exec, the first exits, and the caller has its number and, for
 * the kernel, its begin: a life after the end of one with the same begin. In order of time.
 * @ret_thread: threads count from 0 up. -ENOMEM. */
int thread_lives_read(struct thread_lives *lives, uint32_t pid, uint32_t tid,
		      const struct thread_reading *reading, size_t *ret_thread) must_use;
/* false: it was never read. */
bool thread_lives_find(const struct thread_lives *lives, uint32_t pid, uint32_t tid,
		       size_t *ret_thread);

/* The difference of two readings of one thread. */
struct thread_part {
	uint64_t span_ns;		    /* it lived so long of the span */
	uint64_t between_ns;		    /* the readings; 0.9 of span_ns at least */
	uint64_t counts[THREAD_COUNTS_MAX]; /* by how much they rose between them */
	bool has_run;			    /* it begins or ends inside the span */
};
typedef void thread_part_fn(void *ctx, const struct thread_part *part);

/* Calls @add for every life of the thread inside the span. A thread that begins inside has counted
 * nothing by then. false: its readings do not cover enough of some life to tell. */
bool thread_lives_span(const struct thread_lives *lives, size_t thread, uint64_t from_ns,
		       uint64_t to_ns, thread_part_fn *add, void *ctx);

#endif
