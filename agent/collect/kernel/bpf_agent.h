/* SPDX-License-Identifier: Apache-2.0 */
/* The loaded BPF object seen from the collector: load, attach, filters, unwind tables, events. The
 * only file pair that talks to libbpf. Single-threaded: all calls from the collector's loop. */
#ifndef PROFD_COLLECT_BPF_AGENT_H
#define PROFD_COLLECT_BPF_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/collect/kernel/features.h"
#include "bpf/profiler.h"
#include "bpf/script.h"

struct bpf_agent;
struct bpf_object;

/* Opens, sizes, loads and attaches what is always on (exec, fork, exit). No sampling yet.
 * -EPERM, -EOPNOTSUPP, … with one line in @err: what is missing and the remedy. */
int bpf_agent_create(const struct features *features, struct bpf_agent **ret, struct err *err)
	must_use;
void bpf_agent_destroy(struct bpf_agent *agent);
CLEANUP_DEFINE(bpf_agent, struct bpf_agent *, bpf_agent_destroy);

/* Starts, changes or stops (rate 0) the host sampler: one perf event per online CPU. */
int bpf_agent_set_cpu_rate(struct bpf_agent *agent, uint32_t rate_hz, struct err *err) must_use;
/* Starts, changes or stops (@period 0) the sampling of page faults: one minor fault in @period, and
 * every major one, each sample with what it stands for. -EOPNOTSUPP without the feature. */
int bpf_agent_set_faults(struct bpf_agent *agent, uint32_t period, struct err *err) must_use;
/* The rate of the events that bpf_agent_fast_open() opens; those that are open are closed. */
void bpf_agent_set_fast_rate(struct bpf_agent *agent, uint32_t rate_hz);
/* Samples the threads of a process, and those that they start, by events of their own instead of
 * the host sampler's. The host sampler must run all the same: it finds threads in their first
 * moments. Takes effect with PROF_WANT_FAST in the process's target. Errors as of
 * thread_events_open(). */
int bpf_agent_fast_open(struct bpf_agent *agent, uint32_t tgid) must_use;
void bpf_agent_fast_close(struct bpf_agent *agent, uint32_t tgid);
/* Attaches, changes the threshold (1 ns … 4 s, as in struct prof_config) of, or detaches the
 * off-CPU programs. A thread yields at most one sample per threshold of time. -EOPNOTSUPP on old
 * kernels. */
int bpf_agent_set_offcpu(struct bpf_agent *agent, bool on, uint64_t threshold_ns, struct err *err)
	must_use;
/* Turns on the notes of which thread wakes another, and the stacks of wakers. The notes cost a
 * program run at every wakeup of the host, the stacks two. Once a runtime with a GIL was set, the
 * notes take the stacks of those who release it. -EOPNOTSUPP while the off-CPU programs are not
 * attached and, for stacks, on old kernels. */
int bpf_agent_set_wakers(struct bpf_agent *agent, bool on) must_use;
int bpf_agent_set_waker_stacks(struct bpf_agent *agent, bool on) must_use;
/* Whether waits for the kernel's own locks are recorded, at the cost of three programs at each of
 * them. -EOPNOTSUPP on old kernels and while the off-CPU programs are not attached. */
int bpf_agent_set_kernel_locks(struct bpf_agent *agent, bool on) must_use;
/* Whether calls that move bytes are recorded: every one while that takes at most @budget_ns of a
 * CPU's time in PROF_IO_WINDOW_NS, beyond that a sample. Their user stacks take
 * bpf_agent_set_offcpu(). -EOPNOTSUPP on kernels without off-CPU types. On failure none of the
 * programs stays attached that was not before. */
int bpf_agent_set_io(struct bpf_agent *agent, bool on, uint64_t budget_ns) must_use;
/* Whether the programs are at the ends of the calls themselves, instead of at the end of every
 * system call, which makes all of them slower. */
bool bpf_agent_io_is_by_call(const struct bpf_agent *agent);
/* Turns the time that every thread of wanted processes is off the CPU so far into samples; with
 * @all that of every thread begins. @poll is called whenever BPF_AGENT_SWEEP_THREADS have left
 * theirs in the ring, and is to take them out; NULL: nobody does, and what has no room is lost.
 * -EOPNOTSUPP while the off-CPU programs are not attached. */
#define BPF_AGENT_SWEEP_THREADS 256u
int bpf_agent_sweep(struct bpf_agent *agent, bool all, void (*poll)(void *ctx), void *ctx) must_use;
void bpf_agent_set_undecided(struct bpf_agent *agent, bool sample);
/* Looks for CPUs that came online or went; call every second. @anew as for perf_events_follow(). */
int bpf_agent_follow_cpus(struct bpf_agent *agent, bool anew) must_use;
/* Loads the programs of waits and bytes ahead of the first session that needs them. -EOPNOTSUPP,
 * -EPERM, …, with one line in @err. */
int bpf_agent_load_waits(struct bpf_agent *agent, struct err *err) must_use;
/* Those given to bpf_agent_create() less those that loading had to leave out, so far; borrowed. */
const struct features *bpf_agent_features(const struct bpf_agent *agent);
bool bpf_agent_uses_hardware(const struct bpf_agent *agent);

int bpf_agent_set_target(struct bpf_agent *agent, uint32_t tgid, const struct prof_target *target)
	must_use;
/* false: there is none. */
bool bpf_agent_get_target(const struct bpf_agent *agent, uint32_t tgid, struct prof_target *ret);
/* The programs do so themselves where a process executes or ends, but what is set behind that
 * stays. */
void bpf_agent_drop_target(struct bpf_agent *agent, uint32_t tgid);

/* The runtime of a process, for its script frames. The programs copy the entry at a fork, and drop
 * it where a process executes or ends. */
int bpf_agent_set_runtime(struct bpf_agent *agent, uint32_t tgid,
			  const struct script_runtime *runtime) must_use;
void bpf_agent_drop_runtime(struct bpf_agent *agent, uint32_t tgid);
/* The runtime of the file @module, with addresses as in the file: for processes that have mapped it
 * and have no runtime of their own here yet. Stays for good. */
int bpf_agent_set_file_runtime(struct bpf_agent *agent, uint32_t module,
			       const struct script_runtime *runtime) must_use;

/* Mappings. @start and @end are page-aligned addresses; @bias: address - bias = file offset. A
 * range is removed as it was added, not in parts. -ENOSPC when the table is full (counted by the
 * caller; the young-process path still works as long as PROF_WANT_MAPPED is not set). */
int bpf_agent_map_add(struct bpf_agent *agent, uint32_t tgid, uint64_t start, uint64_t end,
		      const struct prof_mapping *mapping) must_use;
void bpf_agent_map_remove(struct bpf_agent *agent, uint32_t tgid, uint64_t start, uint64_t end);

/* Files for young processes. */
int bpf_agent_file_add(struct bpf_agent *agent, const struct prof_file_key *key,
		       const struct prof_file *file) must_use;
void bpf_agent_file_remove(struct bpf_agent *agent, const struct prof_file_key *key);

/* Publishes a module's unwind table image (bpf/unwind_table.h), copied from the first @bytes of
 * @memfd and checked in the copy before any program sees it. Replaces the module's former table.
 * The programs see it from the next bpf_agent_poll() on, or when 64 tables wait: making tables
 * visible costs an RCU grace period, 5 to 20 ms, which they share. Dropping one costs the same.
 * Charged bytes are returned. -EPROTO, -ENOSPC, -ENOMEM. */
int bpf_agent_table_publish(struct bpf_agent *agent, uint32_t module, int memfd, uint64_t bytes,
			    uint64_t *ret_charged_bytes) must_use;
void bpf_agent_table_drop(struct bpf_agent *agent, uint32_t module);
/* A module whose table was published but could not be made visible after all: it has none, and is
 * told once. */
bool bpf_agent_table_lost(struct bpf_agent *agent, uint32_t *ret_module);
/* Many at once, in one grace period (where the kernel has batches, since v5.16). */
void bpf_agent_tables_drop(struct bpf_agent *agent, const uint32_t *modules, uint32_t count);
/* The published table of a module as the programs see it, for reading: mapped into this process
 * until bpf_agent_table_unmap(). NULL: it has none, or there were no descriptors to keep it by. */
const void *bpf_agent_table_map(const struct bpf_agent *agent, uint32_t module, size_t *ret_bytes);
void bpf_agent_table_unmap(const void *image, size_t bytes);
/* In a forked child, which is to read published tables and nothing else: closes every descriptor
 * but theirs and @fd. Those of events and links would keep the programs running that the parent has
 * done with. -ENOMEM, and nothing is closed. */
int bpf_agent_keep_tables_only(const struct bpf_agent *agent, int fd) must_use;

struct bpf_sink {
	void *ctx;
	/* Borrowed during the call; size already checked against the event. */
	void (*on_stack)(void *ctx, const struct prof_stack_event *event);
	void (*on_sample)(void *ctx, const struct prof_sample_event *event);
	void (*on_task)(void *ctx, const struct prof_task_event *event);
	/* May be NULL: then samples have what could be guessed. */
	void (*on_late)(void *ctx, const struct prof_late_event *event);
	void (*on_retried)(void *ctx, const struct prof_retried_event *event);
};
/* Consumes what is in the ring buffer now (bounded by its size at entry); returns events or -errno.
 */
int bpf_agent_poll(struct bpf_agent *agent, const struct bpf_sink *sink) must_use;
/* Owned by @agent. Edge-triggered (EPOLLET), as what is in the ring does not wait for it: a program
 * wants to be heard at once. */
int bpf_agent_wakeup_fd(const struct bpf_agent *agent);
/* Fraction of the ring buffer in use, 0…1, to poll sooner when it fills. */
double bpf_agent_fill(const struct bpf_agent *agent);
/* Makes the kernel send this stack in full again. */
void bpf_agent_forget_stack(struct bpf_agent *agent, uint64_t stack_hash);

struct bpf_costs {
	uint64_t run_ns; /* estimated run time of all programs since load (timed runs scaled up) */
	uint64_t program_ns[PROF_PROGRAM_MAX]; /* of it */
	uint64_t runs;
	uint64_t map_bytes;    /* memory charged for maps, tables included */
	uint64_t outcomes[PROF_OUTCOMES_MAX]; /* totals by outcome id */
};
int bpf_agent_costs(struct bpf_agent *agent, struct bpf_costs *ret) must_use;

/* Instructions that the kernel's verifier walked for the programs of @object that are loaded; 0
 * before v5.16, which does not say. */
uint64_t bpf_object_verified(const struct bpf_object *object);
/* The sum over the objects of @agent. */
uint64_t bpf_agent_verified(const struct bpf_agent *agent);

#endif
