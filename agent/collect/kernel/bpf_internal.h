/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct bpf_agent, for bpf_agent.c, bpf_load.c, bpf_costs.c and unwind_publish.c
 * only. */
#ifndef PROFD_COLLECT_BPF_INTERNAL_H
#define PROFD_COLLECT_BPF_INTERNAL_H

#include "agent/base/u64map.h"
#include "agent/collect/kernel/bpf_agent.h"
#include "agent/collect/kernel/bpf_ring.h"
#include "agent/collect/kernel/call_ends.h"
#include "agent/collect/kernel/kick_rings.h"
#include "agent/collect/kernel/perf_events.h"
#include "agent/collect/kernel/thread_events.h"

struct profiler_bpf;

#define TABLES_PENDING_MAX 64u

/* Where walk_due is attached. */
enum bpf_walk {
	BPF_WALK_INTERRUPT, /* that programs raise */
	BPF_WALK_WAKING,    /* behind off_waker */
	BPF_WALK_LOCK,	    /* behind lock_end */
	BPF_WALK_CALL,	    /* behind io_exit */
	BPF_WALK_MAX,
};

struct bpf_agent {
	struct profiler_bpf *skel;  /* owned */
	struct profiler_bpf *waits; /* owned: the programs of waits and bytes, sharing its maps;
				       NULL until wanted */
	struct features features;
	struct perf_events perf;
	struct perf_events minor_faults, major_faults;
	struct perf_events touches; /* page faults for alloc_probes.c, which owns the program */
	struct thread_events fast;
	struct bpf_ring ring;
	struct kick_rings kicks; /* empty until off-CPU programs are wanted */
	struct call_ends call_ends; /* of calls that move bytes */
	struct u64map tables;	 /* module id -> bytes charged for its table */
	struct u64map table_fds; /* module id -> descriptor of its table, owned; not of all */
	unsigned table_fds_max;
	uint64_t table_bytes;	 /* sum of them */
	uint64_t charged_bytes, charged_ns; /* of the object's maps, and when that was asked */
	uint32_t pending_count;	    /* tables filled but not in the array of maps yet */
	uint32_t pending_modules[TABLES_PENDING_MAX];
	int pending_fds[TABLES_PENDING_MAX]; /* owned */
	uint32_t lost_count;	    /* modules whose tables the array of maps did not take */
	uint32_t lost_modules[TABLES_PENDING_MAX];
	unsigned possible_cpus;
	struct bpf_link *walks[BPF_WALK_MAX]; /* owned; NULL = not attached there */
	uint32_t off_generation; /* of the last attachment of the off-CPU programs */
	bool with_wakers, with_waker_stacks; /* as bpf_agent_set_wakers() and _waker_stacks() left them */
};

/* Opens the object, sets sizes and features, loads it, leaving out what this kernel refuses and
 * halving the maps when memory is refused. What was left out is cleared in agent->features. The
 * programs of waits and bytes are not in it: they take the verifier longer than the rest, and most
 * hosts never ask. */
int bpf_load(struct bpf_agent *agent, struct err *err) must_use;
/* Those, unless they are loaded. */
int bpf_load_waits(struct bpf_agent *agent, struct err *err) must_use;

/* Can the programs of page faults be loaded with these features? */
bool bpf_load_has_faults(const struct features *features);
/* And those of bytes? */
bool bpf_load_has_io(const struct features *features);
/* And that of wakers' stacks? */
bool bpf_load_has_wakers(const struct features *features);
/* And those of the kernel's locks? */
bool bpf_load_has_locks(const struct features *features);
/* And those at the ends of the calls that move bytes? */
bool bpf_load_has_calls(const struct features *features);
/* Is it one of them? */
bool bpf_load_is_call(const struct bpf_program *program);

/* Attaches @program to the tracepoint of its own, unless it is, or takes it off. Negative errno. */
int bpf_set_link(struct bpf_program *program, struct bpf_link **link, bool on);

/* Closes the descriptors of all tables. */
void bpf_tables_close(struct bpf_agent *agent);

/* Makes the tables published so far visible to the programs. */
void bpf_tables_commit(struct bpf_agent *agent);

/* Bytes charged for the map @fd as the kernel counts them, 0 if it does not say. */
uint64_t bpf_map_charged_bytes(int fd);

#endif
