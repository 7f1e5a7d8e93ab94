/* SPDX-License-Identifier: Apache-2.0 */
/* The perf events of one sampler: one per online CPU, each running one BPF program.
 * Single-threaded. */
#ifndef PROFD_COLLECT_PERF_EVENTS_H
#define PROFD_COLLECT_PERF_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/base/vec.h"

struct bpf_program;
struct bpf_link;

struct perf_event {
	struct bpf_link *link; /* owned; owns the descriptor */
	int fd;		       /* borrowed from the link */
	int cpu;
};
VEC_DEFINE(perf_event, struct perf_event);

enum perf_event_kind {
	PERF_EVENT_CLOCK,  /* the cpu-clock timer */
	PERF_EVENT_CYCLES, /* of the CPU's counters */
	PERF_EVENT_MINOR_FAULT,
	PERF_EVENT_MAJOR_FAULT,
	PERF_EVENT_ANY_FAULT, /* before the kernel handles it */
};

struct perf_events {
	struct bpf_program *program; /* borrowed, loaded */
	struct perf_event_vec open;
	uint32_t rate; /* per second; of faults the number of them to a sample; 0 = stopped */
	enum perf_event_kind kind;
};

void perf_events_init(struct perf_events *events, struct bpf_program *program,
		      enum perf_event_kind kind);
void perf_events_deinit(struct perf_events *events);

/* Starts, changes the rate of, or (0) stops all events. On failure those that run go on as before,
 * or all are stopped if none ran. -EPERM, -ENODEV, … with one line in @err. */
int perf_events_set_rate(struct perf_events *events, uint32_t rate, struct err *err) must_use;
/* Opens events on CPUs that came online and closes those of CPUs that went. @anew does so for all
 * CPUs: the events of a CPU that went and came back unseen are dead. Returns the number of changes,
 * or -errno. */
int perf_events_follow(struct perf_events *events, bool anew) must_use;

/* The event of @kind that samples at @rate (as in struct perf_events). */
struct perf_event_attr;
void perf_events_attr(enum perf_event_kind kind, uint32_t rate, struct perf_event_attr *ret);

/* Parses a kernel CPU list ("0-3,7"): sets @set[cpu] for each, ignores CPUs from @max on. -EINVAL.
 */
int cpu_list_parse(const char *text, bool *set, unsigned max) must_use;

#endif
