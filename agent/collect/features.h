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

enum feature {
	FEATURE_BTF,		 /* required */
	FEATURE_PERF_EVENT,	 /* required for cpu */
	FEATURE_RINGBUF,	 /* required */
	FEATURE_TP_BTF,		 /* required */
	FEATURE_HARDWARE_CYCLES, /* else cpu-clock */
	FEATURE_TASK_BTF,	 /* else task fields by bpf_probe_read_kernel() */
	FEATURE_TASK_PT_REGS,	 /* else no user stack when sampled in the kernel */
	FEATURE_BPF_LOOP,	 /* else a plain loop, 128 frames */
	FEATURE_TASK_STORAGE,	 /* off-CPU */
	FEATURE_VMA_WALK,	 /* young processes unwound at their first sample */
	FEATURE_IRQ_WORK,	 /* user stacks of off-CPU samples */
	FEATURE_UPROBE_MULTI,	 /* allocations of native programs */
	FEATURE_UPROBE_SESSION,	 /* and what becomes of them */
	FEATURE_THREAD_EVENTS,	 /* high rates for single services */
	FEATURE_LOCK_CONTENTION, /* the kernel's own locks in mutex profiles */
	FEATURE_TASK_WORK,	 /* stacks that are paged out are walked again */
	FEATURE_FEXIT,		 /* bytes at the ends of the calls that move them, not of every system call */
	FEATURE_HOST_PIDS,	 /* required */
	FEATURE_MAX,
};

struct features {
	bool found[FEATURE_MAX];       /* by probe */
	bool disabled[FEATURE_MAX];    /* by the user */
	char reason[FEATURE_MAX][160]; /* why not found, with the remedy */
};

/* Probes everything; never fails (an unprobeable feature is not found, with the reason). */
void features_probe(struct features *features);
static inline bool features_has(const struct features *features, enum feature feature)
{
	return features->found[feature] && !features->disabled[feature];
}
/* Counts as absent from now on, with @by (an option, a key) in its reason. -EINVAL: no feature of this name (the
 * names are listed in @err). */
int features_disable(struct features *features, const char *name, const char *by, struct err *err)
	must_use;
/* One line per feature: name, found or not, reason, what falls back. */
void features_print(const struct features *features, FILE *out);
/* 0, or the first required feature that is missing, as -EOPNOTSUPP/-EPERM with one line in @err. */
int features_require(const struct features *features, struct err *err) must_use;

#endif
