/* SPDX-License-Identifier: Apache-2.0 */
/* The host sampler's perf events: one per online CPU, each running one BPF program.
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

struct perf_events {
	struct bpf_program *program; /* borrowed, loaded */
	struct perf_event_vec open;
	uint32_t rate_hz; /* 0 = stopped */
	bool hardware;	  /* cycles, else the cpu-clock timer */
};

void perf_events_init(struct perf_events *events, struct bpf_program *program, bool hardware);
void perf_events_deinit(struct perf_events *events);

/* Starts, changes the rate of, or (0) stops all events. On failure those that run go on as before,
 * or all are stopped if none ran. -EPERM, -ENODEV, … with one line in @err. */
int perf_events_set_rate(struct perf_events *events, uint32_t rate_hz, struct err *err) must_use;
/* Opens events on CPUs that came online and closes those of CPUs that went; with @anew those of all: the events of a CPU
 * that went and came back unseen are dead. Returns the number of changes, or -errno. */
int perf_events_follow(struct perf_events *events, bool anew) must_use;

/* What samples at @rate_hz: cycles if @hardware, else the cpu-clock timer. */
struct perf_event_attr;
void perf_events_attr(bool hardware, uint32_t rate_hz, struct perf_event_attr *ret);

/* Parses a kernel CPU list ("0-3,7"): sets @set[cpu] for each, ignores CPUs from @max on. -EINVAL.
 */
int cpu_list_parse(const char *text, bool *set, unsigned max) must_use;

#endif
