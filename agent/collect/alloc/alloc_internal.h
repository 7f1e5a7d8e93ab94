/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by alloc.c and alloc_sweep.c. An observed process goes through
 *
 *   NEW (its files are being indexed) -> SETTLING (its code is compared) -> IDLE
 *   -> LOOKING (headers and code are read, once the last probes are gone) -> OPEN -> CLOSED ->
 *   IDLE …, or REFUSED
 *
 * once a period. If probes are cheap enough to stay, it remains OPEN and its periods only divide
 * time. */
#ifndef PROFD_COLLECT_ALLOC_INTERNAL_H
#define PROFD_COLLECT_ALLOC_INTERNAL_H

#include <time.h>

#include "agent/base/vec.h"
#include "agent/collect/alloc/alloc.h"
#include "agent/collect/alloc/alloc_check.h"
#include "agent/collect/alloc/alloc_headers.h"
#include "agent/collect/alloc/alloc_heap.h"
#include "agent/collect/alloc/alloc_large.h"
#include "agent/collect/alloc/alloc_look.h"
#include "agent/collect/alloc/alloc_pace.h"
#include "agent/collect/alloc/alloc_probes.h"

enum state {
	STATE_NONE,
	STATE_NEW,
	STATE_SETTLING,
	STATE_IDLE,
	STATE_LOOKING,
	STATE_OPEN,
	STATE_CLOSED,
	STATE_REFUSED
};

VEC_DEFINE(events, struct prof_sample_event);

struct target {
	enum state state;
	uint32_t slot;
	uint32_t proc, tgid;
	uint64_t since_ns;
	bool track; /* what stays in use is wanted as well */
	bool told_late; /* that it has to wait */
	bool light; /* the window under way: only what allocates is probed (alloc_pace.h) */
	uint64_t begin_faults; /* page faults when the period began */
	struct alloc_place place;
	struct module_file file;
	struct alloc_pace pace;
	struct alloc_heap *heap; /* owned */
	struct alloc_headers headers;
	struct alloc_look look;	  /* its memory is being read */
	bool fresh;		  /* what its last window saw being allocated has not been looked at */
	bool busy;		  /* the window under way costs more than was foreseen */
	bool cut;		  /* its period is to end now, for a sweep */
	struct alloc_large large; /* large blocks, one by one */
	bool has_large; /* the collector reports those with mappings of their own */
	bool certain;	/* the probes stay open, and every large block is sampled */
	clockid_t clock;	 /* CPU time of the process */
	int link_fd;		 /* -1 = detached */
	uint32_t window;	 /* number of the last one */
	/* The period under way. */
	uint64_t begin_ns, begin_cpu_ns;
	uint64_t open_ns, open_cpu_ns;
	uint64_t close_ns, close_cpu_ns;
	uint64_t open_delay_ns, close_delay_ns; /* its threads had no CPU; UINT64_MAX = not known */
	uint64_t next_ns; /* when its state is to change */
	struct alloc_counts counts;
	uint64_t hits_outside; /* before its window was open and after it was closed, as far as that
				  is known by now */
	struct events_vec births; /* of its window */
	uint64_t dropped;
};

struct alloc_watch {
	struct alloc_host host;
	bool is_open; /* somebody has asked for allocations: @probes or @failure is set */
	struct alloc_probes *probes; /* owned; NULL = not to be had */
	char failure[200];
	struct alloc_costs costs;
	struct target targets[ALLOC_SLOTS_MAX];
	uint32_t sweeps;
	uint64_t sweep_until_ns; /* 0 = no sweep is under way */
	pid_t stuck[ALLOC_SLOTS_MAX]; /* children that were killed and may not have ended; 0 = none */
};

/* Writes into the feed what became of observing process @proc, 0 = of a sweep. */
void alloc_tell(struct alloc_watch *watch, uint32_t proc, enum feed_alloc_what what,
		const char *reason);
/* Begins to read the memory of @target. False: it is refused by now, or cannot be read just now. */
bool alloc_look_at(struct alloc_watch *watch, struct target *target, bool code);
/* Takes the probes of its window away. */
void alloc_detach(struct alloc_watch *watch, struct target *target);
/* Large blocks of @target that have mappings of their own are reported from now on. */
void alloc_blocks_follow(struct alloc_watch *watch, struct target *target);
/* A period begins: as many stacks may be walked again. */
void alloc_blocks_refill(struct alloc_watch *watch, const struct target *target);
/* Blocks have been seen, and no header has told yet which instruction writes headers. */
bool alloc_blocks_are_unread(const struct target *target);
/* Follows large blocks to where realloc() has moved them. */
void alloc_blocks_move(struct alloc_watch *watch, struct target *target);
/* Takes over a large block whose end will be seen. False: it is none. */
bool alloc_blocks_certain(struct target *target, const struct alloc_birth *birth);
/* Has large blocks estimated where their ends may have been missed, or will be. */
void alloc_blocks_hand_over(struct target *target, const struct alloc_period *seen);
/* Once a turn while a sweep is under way: ends it when nothing is left to wait for. */
void alloc_sweep_go_on(struct alloc_watch *watch);

#endif
