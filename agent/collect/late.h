/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred stacks: stacks through code whose unwind table was not there when they were taken. Their
 * samples go out at once, under a promised id. The frames follow as soon as the table is known; a
 * server joins them when it stores. Loop thread only. */
#ifndef PROFD_COLLECT_LATE_H
#define PROFD_COLLECT_LATE_H

#include "agent/collect/collector_internal.h"

/* Callbacks of struct bpf_sink; @ctx is the struct collector. The second one brings the whole stack
 * of a sample that lacked memory, under the id that was promised. */
void late_event(void *ctx, const struct prof_late_event *event);
void late_retried(void *ctx, const struct prof_retried_event *event);
/* For a sample with PROF_SAMPLE_LATE. True: its stack follows under *@ret_id. False: *@ret_hash is
 * the hash of its stack. */
bool late_sample(struct collector *c, struct proc *proc, const struct prof_sample_event *event,
		 uint64_t *ret_id, uint64_t *ret_hash);
/* Writes the stacks that can be walked by now, and those that have waited long enough. */
void late_sweep(struct collector *c, uint64_t now_ns);
/* Walks the stack of a sleeping thread; @event carries its memory. Negative errno: no frame. */
int late_walk_asleep(struct collector *c, const struct late_stack *item,
		     const struct prof_late_event *event, struct late_frames *ret) must_use;
/* Writes the stack that late_memory.c has walked. */
void late_answer(struct collector *c, const struct late_frames *frames);

#endif
