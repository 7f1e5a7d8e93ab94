/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the stack of a parked goroutine, copied out of the target, by the frame sizes of the
 * function table (the pcsp rows of Go's own traceback). The walk is exact for every function, with
 * or without frame pointers. Source of the rules: src/runtime/traceback.go. */
#ifndef PROFD_READER_GO_UNWIND_H
#define PROFD_READER_GO_UNWIND_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/go_layout.h"
#include "agent/wire/read_stream.h"

/* Properties of the function of a pc that the walkers need, found by name. */
enum go_pc_flag {
	GO_PC_IN_TABLE = 1,
	GO_PC_ENTRY = 2,       /* the first instruction */
	GO_PC_TOP = 4,	       /* a stack ends here */
	GO_PC_SP_WRITE = 8,    /* switches stacks: nothing outside can be found from here */
	GO_PC_INTERRUPTS = 16, /* the frame outside was interrupted, it did not call */
	GO_PC_PANIC = 32,      /* a wrapper outside it is shown */
	GO_PC_WRAPPER = 64,
	GO_PC_LOCK_SLOW = 128, /* sync.(*Mutex).lockSlow: its first argument is the lock */
	GO_PC_RUNTIME = 256,   /* as a start function: a goroutine of the runtime itself */
	GO_PC_FINALIZER = 512, /* as a start function: the runtime's while it waits for work */
	GO_PC_GOEXIT = 1024,   /* below every goroutine */
	GO_PC_LOCK_WAIT = 2048, /* only locks wait in it */
	GO_PC_PARKING = 4096,	/* how the runtime waits, not what for: not in its block profile */
};

struct go_pc {
	uint64_t pc;
	int32_t delta;	/* sp + delta = where the return address is (amd64) */
	uint32_t flags; /* enum go_pc_flag; 0 = empty entry of the cache */
};

struct go_unwinder {
	struct go_layout *layout; /* borrowed */
	uint32_t wrapper_id;	  /* abi.FuncIDWrapper of this version, 0 = unknown */
	struct go_pc *cache;
};

struct go_stack_view {
	uint64_t sp;
	uint64_t high_va;    /* end of the goroutine's stack */
	const uint8_t *data; /* copy of [sp, sp + len) */
	uint32_t len;
};

enum go_walk_end {
	GO_WALK_COMPLETE,
	GO_WALK_TRUNCATED, /* more frames than READ_FRAMES_MAX */
	GO_WALK_SHORT,	   /* the copy ends before the stack does */
	GO_WALK_BROKEN,	   /* torn or not understood */
};

struct go_walk {
	enum go_walk_end end;
	unsigned count;
	uint64_t lock_va; /* of the sync.Mutex that is waited for, 0 = none seen */
	bool lock_wait;	  /* a function among them in which only locks wait */
	uint64_t pcs[READ_FRAMES_MAX];
	uint8_t exact[READ_FRAMES_MAX]; /* 1: pc is where it stands, not behind a call */
	uint8_t flags[READ_FRAMES_MAX]; /* enum read_frame_flag */
};

/* -ENOMEM; @layout is borrowed. */
int go_unwinder_init(struct go_unwinder *u, struct go_layout *layout) must_use;
void go_unwinder_deinit(struct go_unwinder *u);
/* Facts about @pc, cached. Outside the table: flags = 0. -ESRCH, -EPERM only. */
int go_unwinder_pc(struct go_unwinder *u, uint64_t pc, struct go_pc *ret) must_use;
/* Walks from @pc. 0 with @ret filled, or as go_unwinder_pc(). */
int go_unwinder_walk(struct go_unwinder *u, uint64_t pc, const struct go_stack_view *stack,
		     struct go_walk *ret) must_use;

#endif
