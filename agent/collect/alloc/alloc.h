/* SPDX-License-Identifier: Apache-2.0 */
/* Observes the allocations of processes: which processes are probed, when their probe windows are
 * open, and what the results are.
 *
 * Results in the feed: samples of PROF_SAMPLE_ALLOC with weighted bytes and objects, stamped with
 * the beginning of their period, so that the samples of one window share a time. One FEED_ALLOC
 * record per period says what the period cost. After alloc_sweep(), samples in the state
 * FEED_ALLOC_LIVE say what is in use; FEED_ALLOC_SWEPT ends them.
 *
 * Not thread-safe: the collector's loop calls every function. alloc_tick() attaches probes and so
 * blocks for the kernel's grace period, about 10 ms, for one process at a time. */
#ifndef PROFD_COLLECT_ALLOC_H
#define PROFD_COLLECT_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/wire/feed.h"
#include "bpf/profiler.h"

struct alloc_watch;
struct bpf_agent;
struct features;
struct module_index;
struct module_table;
struct proc;
struct proc_table;

/* The part of the collector that the observation uses. Pointers are borrowed until
 * alloc_destroy(). */
struct alloc_host {
	struct bpf_agent *bpf; /* NULL = this host cannot be profiled */
	const struct features *features;
	struct proc_table *procs;
	struct module_table *modules;
	struct module_index *index;
	void *ctx; /* of the calls below */
	/* Reads facts and mappings of a process from /proc. */
	void (*engage)(void *ctx, struct proc *proc);
	/* Asks for the modules of a process and for their unwind tables, before other modules. */
	void (*ask_files)(void *ctx, const struct proc *proc);
	/* Writes a sample into the feed. May end processes, and so call alloc_end(). */
	void (*sample)(void *ctx, const struct prof_sample_event *event);
	/* Writes a record about a period, a process or a sweep into the feed. */
	void (*record)(void *ctx, const struct feed_alloc *record, const char *reason);
	/* Tells the server that programs are being loaded, @on, and that they no longer are. The call that
	 * loads them blocks meanwhile. */
	void (*loading)(void *ctx, bool on);
};

/* Copies @host. The caller owns the result: alloc_destroy(). NULL = out of memory. The BPF programs
 * are loaded when somebody first asks for allocations. */
struct alloc_watch *alloc_create(const struct alloc_host *host);
/* Ends all observations and frees @watch; NULL is allowed. */
void alloc_destroy(struct alloc_watch *watch);
/* Whether programs of this host can be probed at all. */
bool alloc_is_possible(const struct alloc_watch *watch);
/* Begins or ends observing @proc after proc->wanted has changed. */
void alloc_follow(struct alloc_watch *watch, struct proc *proc);
/* @proc has ended: frees everything that is known about its allocations. */
void alloc_end(struct alloc_watch *watch, const struct proc *proc);
/* Writes into the feed whether @proc can be observed, and if not, why (FEED_ALLOC). Writes nothing
 * while its files are being indexed: the caller asks again. */
void alloc_ask(struct alloc_watch *watch, struct proc *proc);
/* Takes the steps that are due at @now_ns (monotonic). Call it after the BPF ring was read. */
void alloc_tick(struct alloc_watch *watch, uint64_t now_ns);
/* Milliseconds until the next step is due, at most @max_ms. */
int alloc_wait_ms(const struct alloc_watch *watch, int max_ms);
/* An event of the allocation programs. */
void alloc_event(struct alloc_watch *watch, const struct prof_sample_event *event);
/* Ends all periods early and writes what is in use. Does not wait: alloc_tick() takes the steps.
 * A call while a sweep is under way joins that sweep. */
void alloc_sweep(struct alloc_watch *watch);

#endif
