/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of the feed for tests: reads a ring and keeps what it said in plain arrays.
 * Every record is decoded strictly; a malformed one, or one that refers to something never sent,
 * fails the test. */
#ifndef PROFD_TESTS_FEED_VIEW_H
#define PROFD_TESTS_FEED_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/ring.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

struct view_module {
	struct feed_module fixed;
	char path[512];
};

struct view_proc {
	struct feed_proc fixed;
	char comm[64], exe[512], cmdline[600], cgroup[512], environment[600], ports[128];
	uint64_t exit_ns; /* 0 = no exit seen */
	unsigned times;	  /* how often it was sent */
};

struct view_stack {
	struct feed_stack fixed;
	uint64_t *frames;
};

struct feed_view {
	struct ring *ring;
	uint64_t cursor;
	struct feed_epoch epoch;
	unsigned epochs, clocks;
	struct feed_clock clock;     /* last */
	struct feed_costs costs;     /* that it sums up */
	struct feed_demand demand;   /* last */
	unsigned demands;
	struct feed_alloc alloc;     /* last */
	unsigned allocs;
	struct view_module *modules; /* newest of each id */
	size_t module_count;
	struct view_proc *procs;     /* newest of each id */
	size_t proc_count;
	struct view_stack *stacks;
	size_t stack_count;
	struct feed_sample *samples;
	size_t sample_count;
	uint64_t outcomes[PROF_OUTCOMES_MAX];
	uint64_t lives_told_ns; /* of the last FEED_PROC_CPU that ends a round */
};

void feed_view_init(struct feed_view *view, int feed_fd);
void feed_view_deinit(struct feed_view *view);
/* Takes what is in the ring. */
void feed_view_read(struct feed_view *view);
/* Reads for @ms milliseconds. */
void feed_view_run(struct feed_view *view, unsigned ms);

/* NULL if never sent. */
const struct view_module *feed_view_module(const struct feed_view *view, uint32_t module);
const struct view_proc *feed_view_proc(const struct feed_view *view, uint32_t proc);
const struct view_stack *feed_view_stack(const struct feed_view *view, uint64_t stack);
/* The newest life of @tgid. */
const struct view_proc *feed_view_tgid(const struct feed_view *view, uint32_t tgid);
/* Reads until the end of @pid is in the feed, and what was sampled of it; its last life. */
const struct view_proc *feed_view_await_exit(struct feed_view *view, pid_t pid);
/* The function of the file at @path in which @frame lies, "" if in none. */
const char *feed_view_function(const struct feed_view *view, uint64_t frame, const char *path);
bool feed_view_has_function(const struct feed_view *view, uint64_t stack_id, const char *path,
			    const char *name);
/* Fails the test if a sample refers to a process never sent, or to a stack or a module that is not
 * sent within 20 s. Their records may come after the samples that name them. */
void feed_view_check(struct feed_view *view);

#endif
