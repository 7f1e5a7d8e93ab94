/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred stacks: their walk in the kernel came to code that was not indexed yet (bpf/late.bpf.h).
 * They are kept with the memory that they need until the rows are there, then walked on here by the
 * same step. Pure: knows neither files nor BPF. Bounded by number and bytes. */
#ifndef PROFD_COLLECT_LATE_STACKS_H
#define PROFD_COLLECT_LATE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "bpf/profiler.h"
#include "bpf/script.h"

#define LATE_STACKS_MAX	      16384u
#define LATE_STACKS_BYTES_MAX (8u << 20)

struct late_stack {
	struct prof_late_event
		*event; /* owned; no stack: its memory is to be read, or it is walked again */
	uint64_t start_boottime_ns;    /* these from its sample; 0 = that has not come yet */
	uint64_t hash;		       /* of the stack that was guessed */
	uint64_t id;		       /* under which its frames were promised */
	uint64_t until_ns;	       /* when to stop waiting */
	uint32_t proc;		       /* id */
	bool asked;		       /* its memory is being read */
};

struct late_stacks {
	struct late_stack *items; /* in the order they came */
	size_t count, capacity;
	size_t bytes;
};

void late_stacks_deinit(struct late_stacks *late);
/* Copies @event; it is given up at @until_ns. -ENOSPC, -ENOMEM. */
int late_stacks_put(struct late_stacks *late, const struct prof_late_event *event,
		    uint64_t until_ns) must_use;
/* The one that belongs to a sample, NULL = none. Borrowed until the next put or remove. */
struct late_stack *late_stacks_find(struct late_stacks *late, uint64_t time_ns, uint32_t tid);
void late_stacks_remove(struct late_stacks *late, size_t at);

/* ---- walking -----------------------------------------------------------------------------------
 */

struct late_place {
	uint32_t module;
	uint64_t bias;	   /* address - bias = file offset */
	const void *table; /* checked image of bpf/unwind_table.h */
	size_t table_bytes;
};

struct late_code {
	void *ctx;
	/* The code at @va. -EAGAIN: it will be known; -ENOENT: it will not. The place is borrowed
	 * until the walk ends. */
	int (*find)(void *ctx, uint64_t va, struct late_place *ret);
	/* The process's HotSpot or CPython, whose frames are read from its memory; NULL = it has
	 * none, or its memory may not be read now. Then @read copies memory beyond the event's
	 * stack: 0, or negative errno. */
	const struct script_runtime *runtime;
	int (*read)(void *ctx, void *dst, size_t bytes, uint64_t va);
};

/* The frames from where the kernel stopped. Appends to @frames, which has room for @max and one
 * marker, behind the *@count that are there. 0 with the outcome in *@ret_outcome: complete,
 * truncated, or why script frames are missing. -EAGAIN: wait, @count is untouched; -ENOENT: rows
 * lead no further, -EFAULT: the memory does not; *@count says how far it came. */
int late_stack_walk(const struct prof_late_event *event, const struct late_code *code,
		    uint64_t *frames, uint16_t max, uint16_t *count, uint8_t *ret_outcome) must_use;

#endif
