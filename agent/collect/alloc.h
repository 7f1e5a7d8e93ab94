/* SPDX-License-Identifier: Apache-2.0 */
/* Following the allocations of processes: which are observed, when their probes are open, and what comes
 * of it in the feed. Works inside the collector's loop: alloc_tick() does what is due, attaching
 * included (10 ms of waiting for the kernel's grace period), one process at a time.
 *
 * In the feed: samples of PROF_SAMPLE_ALLOC with weighted bytes and objects, stamped with the beginning of
 * their period so that those of one window share a time; FEED_ALLOC for every period with what it cost; and
 * after CONTROL_SWEEP what is in use, as samples with the state FEED_ALLOC_LIVE, ended by
 * FEED_ALLOC_SWEPT. */
#ifndef PROFD_COLLECT_ALLOC_H
#define PROFD_COLLECT_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/err.h"
#include "bpf/profiler.h"

struct collector;
struct proc;
struct alloc_watch;

/* Somebody wants (or no longer wants) the allocations of @proc: proc->wanted says which. */
void alloc_follow(struct collector *c, struct proc *proc);
/* Its life is over. */
void alloc_end(struct collector *c, const struct proc *proc);
/* Writes what is known about probing @proc into the feed (FEED_ALLOC). */
void alloc_ask(struct collector *c, struct proc *proc);
/* Does what is due; call after the BPF ring was read. */
void alloc_tick(struct collector *c, uint64_t now_ns);
/* Milliseconds until something is due, at most @max_ms. */
int alloc_wait_ms(const struct collector *c, int max_ms);
/* An event of the allocation programs. */
void alloc_event(struct collector *c, const struct prof_sample_event *event);
/* Ends all periods now and writes what is in use. */
void alloc_sweep(struct collector *c);
/* Whether this host's programs can be probed at all. */
bool alloc_is_possible(const struct collector *c);
void alloc_destroy(struct alloc_watch *watch);

#endif
