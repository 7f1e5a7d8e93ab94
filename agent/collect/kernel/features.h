/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel features, found by trying and never by version. `profd --features` prints the table; a
 * feature named in --disable-feature=NAME counts as absent, which forces its fallback on any
 * kernel. */
#ifndef PROFD_COLLECT_FEATURES_H
#define PROFD_COLLECT_FEATURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define FEATURES_UPROBE_TYPE "/sys/bus/event_source/devices/uprobe/type"

enum feature {
	FEATURE_BTF,		 /* required */
	FEATURE_PERF_EVENT,	 /* required for cpu */
	FEATURE_RINGBUF,	 /* required */
	FEATURE_TP_BTF,		 /* required */
	FEATURE_HARDWARE_CYCLES, /* of use with cpu_event = cycles; else cpu-clock */
	FEATURE_TASK_BTF,	 /* else task fields by bpf_probe_read_kernel() */
	FEATURE_TASK_PT_REGS,	 /* else they are found by the layout of kernel stacks */
	FEATURE_BPF_LOOP,	 /* else plain loops, which the verifier follows turn by turn */
	FEATURE_TASK_STORAGE,	 /* else a map of threads */
	FEATURE_VMA_WALK,	 /* young processes unwound at their first sample */
	FEATURE_IRQ_WORK,	 /* user stacks of off-CPU samples */
	FEATURE_UPROBE_EVENTS,	 /* allocations of native programs, by whatever probes */
	FEATURE_UPROBE_MULTI,	 /* all probes of a process in one link */
	FEATURE_UPROBE_SESSION,	 /* only the returns that are wanted are probed */
	FEATURE_PAGE_FAULT_USER, /* large blocks of native programs by a tracepoint, else by an event */
	FEATURE_THREAD_EVENTS,	 /* high rates for single services */
	FEATURE_LOCK_CONTENTION, /* the kernel's own locks in mutex profiles */
	FEATURE_TASK_WORK,	 /* stacks that are paged out are walked again */
	FEATURE_FEXIT,		 /* bytes at the ends of the calls that move them, not of every system call */
	FEATURE_HOST_PIDS,	 /* required */
	FEATURE_WAKERS,		 /* who ends a wait */
	FEATURE_BLOCK_REQUESTS,	 /* which part of a wait a disk is */
	FEATURE_IO_URING,	 /* bytes of io_uring */
	FEATURE_STOLEN,		 /* time that interrupts and hypervisors take */
	FEATURE_FILE_NAMES,	 /* files and peers in io profiles */
	FEATURE_PAGE_FAULTS,	 /* the type faults */
	FEATURE_WAITS,		 /* the types of waits and bytes */
	FEATURE_IO_CALLS,	 /* the type io: the ends of system calls */
	FEATURE_MAX,
};

/* Facts that the tracepoints of io_uring tell (bpf/io_ring.bpf.h). */
struct io_ring_facts {
	bool tells_requests; /* before they are issued */
	bool submits_req;    /* they are submitted at io_uring_submit_req, else at io_uring_submit_sqe */
	bool tells_cqe;	     /* completions have the ring's form */
};

struct features {
	bool found[FEATURE_MAX];       /* by probe */
	bool disabled[FEATURE_MAX];    /* by the user */
	char reason[FEATURE_MAX][160]; /* why not found, with the remedy */
	bool sample_cycles;	       /* [collect] cpu_event = cycles; else the cpu-clock timer */
	bool implicit_arguments; /* kernel functions get their own last argument by themselves (v7.0) */
	struct io_ring_facts ring;
};

/* Probes everything; never fails (an unprobeable feature is not found, with the reason). */
void features_probe(struct features *features);
/* As --disable-feature takes it. */
const char *features_name(enum feature feature);
static inline bool features_has(const struct features *features, enum feature feature)
{
	return features->found[feature] && !features->disabled[feature];
}
/* Counts as absent from now on, with @by (an option, a key) in its reason. -EINVAL: no feature of
 * this name (the names are listed in @err). */
int features_disable(struct features *features, const char *name, const char *by, struct err *err)
	must_use;
/* Loading showed that @feature is not to be had after all, which @complaint says why. */
void features_lose(struct features *features, enum feature feature, const char *complaint);
/* One line per profile type ("type:NAME"), yes or no and what is missing; then one line per
 * feature: name, found or not, reason, what falls back. */
void features_print(const struct features *features, FILE *out);
/* 0, or the first required feature that is missing, as -EOPNOTSUPP/-EPERM with one line in @err. */
int features_require(const struct features *features, struct err *err) must_use;

#endif
