/* SPDX-License-Identifier: Apache-2.0 */
/* Support for tests of the kernel side. It compiles a C program, runs it, publishes its mappings
 * and unwind tables as the collector would, and names the frames of its stacks. */
#ifndef PROFD_TESTS_BPF_TARGET_H
#define PROFD_TESTS_BPF_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/collect/kernel/bpf_agent.h"

/* Prints the reason and returns true if this machine cannot run the tests. */
bool bpf_target_skip(void);

/* Features as probed, the named one (NULL: none) disabled. */
struct features bpf_target_features(const char *disable);

/* Compiles @source with gcc @flags into a temporary folder. The path is the caller's (free); the
 * folder is removed by bpf_target_cleanup(). With PROFD_TEST_PROGRAMS=FOLDER programs are kept
 * there and not compiled again, for machines without a compiler (tests/vm). Fails the test on any
 * error. */
char *bpf_target_compile(const char *name, const char *source, const char *flags);
void bpf_target_cleanup(void);

/* Starts @path with @argument (may be NULL) and waits until it wrote a line. */
pid_t bpf_target_start(const char *path, const char *argument);
void bpf_target_stop(pid_t pid);
uint64_t bpf_target_start_boottime_ns(pid_t pid); /* from /proc, whole clock ticks */

/* Time of all CPUs that a hypervisor has taken since boot. A thread's CPU time leaves it out, but
 * the clock that samples the thread runs on: samples beyond the CPU time are right up to this. */
uint64_t bpf_target_stolen_ns(void);

enum publish {
	PUBLISH_MAPPINGS = 1, /* and PROF_WANT_MAPPED */
	PUBLISH_FILES = 2,
	PUBLISH_TABLES = 4,
};

/* Publishes what of @pid is asked for. Tables are built from the files; @mapping_flags are
 * those of the program's own file. Events that came before are lost. Fails the test on error. */
void bpf_target_publish(struct bpf_agent *agent, pid_t pid, unsigned what, uint32_t mapping_flags);
void bpf_target_want(struct bpf_agent *agent, pid_t pid, uint32_t wanted);
void bpf_target_forget_modules(void); /* before another agent is created */
/* Every perf event of this process is as if its CPU had been offline: it counts no more. */
void bpf_target_kill_events(void);

/* Name of the function of a MODULE frame of @path's own symbol table, "" if it is in another file
 * or has none, valid until the next call. */
const char *bpf_target_function(const char *path, uint64_t frame);

/* One sample that an agent delivered, joined with its stacks. */
struct bpf_record {
	struct prof_sample_event sample;
	const struct prof_stack_event *user; /* NULL: none, or never delivered */
	const struct prof_stack_event *kernel;
};

struct bpf_recording {
	struct bpf_record *records;
	size_t record_count;
	struct prof_stack_event **stacks;
	size_t stack_count;
	struct prof_task_event *tasks;
	size_t task_count;
	size_t retried_count; /* samples whose user stack came after them */
};

/* Polls @agent for @ms milliseconds; appends. Records' stacks are joined at the end. */
void bpf_recording_poll(struct bpf_recording *recording, struct bpf_agent *agent, unsigned ms);
void bpf_recording_deinit(struct bpf_recording *recording);

#endif
