/* SPDX-License-Identifier: Apache-2.0 */
/* What alloc.c and alloc_sweep.c share. A process under observation goes through
 *
 *   NEW (its files are being indexed) -> SETTLING (its code is compared) -> IDLE
 *   -> LOOKING (headers and code are read, once the last probes are gone) -> OPEN -> CLOSED -> IDLE …, or REFUSED
 *
 * once a period. Where probes are cheap enough to stay it remains OPEN and its periods only divide time. */
#ifndef PROFD_COLLECT_ALLOC_INTERNAL_H
#define PROFD_COLLECT_ALLOC_INTERNAL_H

#include <time.h>

#include "agent/base/vec.h"
#include "agent/collect/alloc.h"
#include "agent/collect/alloc_check.h"
#include "agent/collect/alloc_headers.h"
#include "agent/collect/alloc_heap.h"
#include "agent/collect/alloc_large.h"
#include "agent/collect/alloc_look.h"
#include "agent/collect/alloc_pace.h"
#include "agent/collect/alloc_probes.h"
#include "agent/collect/collector_internal.h"

enum state { STATE_NONE, STATE_NEW, STATE_SETTLING, STATE_IDLE, STATE_LOOKING, STATE_OPEN, STATE_CLOSED, STATE_REFUSED };

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
	struct alloc_large large; /* blocks with mappings of their own */
	bool has_large;		  /* they are told */
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
	uint64_t hits_outside; /* before its window was open and after it was closed, as far as that is known by now */
	struct events_vec births; /* of its window */
	uint64_t dropped;
};

struct alloc_watch {
	struct alloc_probes *probes; /* owned; NULL = not to be had */
	char failure[200];
	struct alloc_costs costs;
	struct target targets[ALLOC_SLOTS_MAX];
	uint32_t sweeps;
	uint64_t sweep_until_ns; /* 0 = no sweep is under way */
	pid_t stuck[ALLOC_SLOTS_MAX]; /* children that were killed and may not have ended; 0 = none */
};

/* Writes into the feed what became of observing process @proc, 0 = of a sweep. */
void alloc_tell(struct collector *c, uint32_t proc, enum feed_alloc_what what, const char *reason);
/* Begins to read the memory of @target. False: it is refused by now, or cannot be read just now. */
bool alloc_look_at(struct collector *c, struct target *target, bool code);
/* Takes the probes of its window away. */
void alloc_detach(struct alloc_watch *watch, struct target *target);
/* Once a turn while a sweep is under way: ends it when nothing is left to wait for. */
void alloc_sweep_go_on(struct collector *c);

#endif
