/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the allocation programs and the collector, beside bpf/profiler.h. */
#ifndef PROFD_BPF_ALLOC_H
#define PROFD_BPF_ALLOC_H

#include "bpf/profiler.h"

#define ALLOC_SLOTS_MAX	  16u	/* processes observed at once */
#define ALLOC_GAPS	  4096u /* draws of the exponential distribution, scaled by ALLOC_GAP_ONE */
#define ALLOC_GAP_ONE	  4096u
#define ALLOC_TRACKED_MAX 65536u /* of all slots */
#define ALLOC_CALLERS	  4096u /* of all slots, by a hash: two that meet are one */

/* The subject of a probe's hit, from the attach cookie. The registers are arch_numbered_of()'s. */
#define ALLOC_COOKIE(kind, first, second, third, pushed, slot, flags)                              \
	((uint64_t)(kind) | (uint64_t)(first) << 8 | (uint64_t)(second) << 12 |                    \
	 (uint64_t)(third) << 16 | (uint64_t)(pushed) << 20 | (uint64_t)(slot) << 32 |             \
	 (uint64_t)(flags) << 40)
#define ALLOC_PUSHED_MAX 15u

enum alloc_cookie_flag {
	ALLOC_COOKIE_RELAYS = 1, /* realloc of nothing and small alignments reach malloc's own site */
	ALLOC_COOKIE_SESSION = 2, /* the return can be looked at: asked for, or probed anyway */
	ALLOC_COOKIE_RETURNS = 4, /* every return is probed, by a program of its own */
};

/* The kind of a probed call: prof_sample_event.detail of PROF_SAMPLE_ALLOC from BPF. */
enum alloc_event {
	ALLOC_BIRTH = 0,  /* object = address (0 = not known), value = bytes asked for */
	ALLOC_DEATH = 1,  /* a tracked one was freed */
	ALLOC_UNSEEN = 2, /* the address of a tracked one was handed out again */
	ALLOC_MAPPED = 3, /* the header of what may be a block with a mapping of its own was
			     touched: object, by value */
	ALLOC_BUSY = 4, /* so many hits in window source by now (hits_alarm); the reader is woken */
};

/* The addresses that are recorded. */
enum alloc_track {
	ALLOC_TRACK_NONE = 0,
	ALLOC_TRACK_ALL = 1, /* of sampled allocations, and what becomes of them: every call returns
				to a probe */
	ALLOC_TRACK_SAMPLED = 2, /* of sampled allocations */
};

/* One of ALLOC_SLOTS_MAX, written by user space. */
struct alloc_slot {
	uint64_t mean_gap_bytes; /* 0 = closed */
	uint64_t hits_max;	 /* of a window, per CPU; beyond it hits do nothing */
	uint64_t hits_alarm;	 /* every so many, per CPU, ALLOC_BUSY is sent; 0 = never */
	uint32_t window;	 /* its number */
	uint32_t track;		 /* enum alloc_track */
	uint32_t tgid; /* single events of returns are also told of other processes' */
	uint32_t certain_bytes; /* every allocation of so many bytes is sampled; 0 = none is */
};

#define ALLOC_PLACES_MAX 17u /* sites of an allocator, and one for all returns */

/* The probes of a slot's process, for kernels that tell a program only where it was hit. */
struct alloc_places {
	uint64_t address[ALLOC_PLACES_MAX]; /* 0 = returns */
	uint64_t cookie[ALLOC_PLACES_MAX];  /* 0 = none */
};

/* One per CPU and slot; user space begins it anew where a window opens and where it closes. */
struct alloc_counts {
	uint64_t hits; /* all that is counted while the slot is closed: the kernel takes its time to
			  put probes in and away */
	uint64_t allocations; /* of them: not frees */
	uint64_t returns; /* hits that took the return probe as well */
	uint64_t sampled;
	uint64_t lost; /* sampled, but the ring, the scratch or the map had no room */
	uint64_t capped;
	/* Sums over the allocating threads: n^2 of the numbers n of their hits, and the time they
	 * were runnable but had no CPU, between their first and last hit. */
	uint64_t squares;
	uint64_t delay_ns;
	uint64_t walk_ns; /* what the sampled ones took on top of their hits */
	uint64_t closer; /* of the sampled ones: at a smaller gap than the slot's */
};

/* A caller of the allocator (a return address and the depth of its stack), and what it has
 * allocated in the probe window. */
struct alloc_caller {
	uint64_t bytes;
	uint32_t window; /* and slot */
	uint32_t reserved;
};

/* A process whose blocks with mappings of their own are wanted. */
struct alloc_owner {
	uint64_t code_va, code_end_va; /* of the allocator: left out of their stacks */
	uint64_t header_ip; /* of the instruction that writes headers; 0 = not known yet */
	uint64_t first_ip;  /* of the allocator's last first touch of a mapping; 0 = none yet */
	uint32_t slot;
	uint32_t left; /* stacks that may still be walked; user space fills it up */
};

struct alloc_key {
	uint64_t address;
	uint32_t slot;
	uint32_t reserved;
};

/* A mapping that mremap() has moved or resized, by its address now. */
struct alloc_moved {
	uint64_t from_va;  /* its address before the first move that user space has not read */
	uint64_t first_ns; /* time of that move */
	uint64_t last_ns;
	uint64_t bytes;	 /* its length now */
	uint64_t stack; /* of the newest call whose stack was walked; 0 = none was */
};
#define ALLOC_MOVED_MAX 16384u /* of all slots, between two readings */

#ifndef __bpf__
_Static_assert(sizeof(struct alloc_slot) == 40, "layout");
_Static_assert(sizeof(struct alloc_counts) == 80, "layout");
_Static_assert(sizeof(struct alloc_key) == 16, "layout");
_Static_assert(sizeof(struct alloc_owner) == 40, "layout");
_Static_assert(sizeof(struct alloc_moved) == 40, "layout");
#endif

#endif
