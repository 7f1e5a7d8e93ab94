/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps, configuration and per-CPU scratch of all programs. The sizes here are the smallest that
 * make sense; agent/collect/kernel/bpf_load.c sets those that depend on the host before loading
 * (bpf/PROGRAMS.md has the table). */
#ifndef PROFD_BPF_MAPS_BPF_H
#define PROFD_BPF_MAPS_BPF_H

#include "bpf/bpf_types.h"

#include <bpf/bpf_helpers.h>

#include "bpf/profiler.h"

#define UNWIND_READ(dst, bytes, address)                                                           \
	bpf_probe_read_user((dst), (bytes), (const void *)(address))
#define UNWIND_ELEMENT(table, index)                                                               \
	__extension__({                                                                            \
		uint32_t index_ = (index);                                                         \
		(const uint32_t *)bpf_map_lookup_elem((void *)(table), &index_);                   \
	})

#include "bpf/arch.bpf.h"
#include "bpf/hotspot.bpf.h"
#include "bpf/python.bpf.h"
#include "bpf/v8.bpf.h"

#define YOUNG_VMAS_MAX	 64u /* executable mappings of a process without published ones */
#define SECOND_NS	 1000000000ull
#define UNKNOWN_PCS_MAX	 1024u
#define SCRIPT_CHAINS_MAX 4096u
#define WALK_WINDOW_WORDS 64u
#define STACK_FRAMES_MAX (PROF_WORDS_MAX + 1) /* and the marker of a cut stack */

/* Set before loading. */
const volatile bool have_task_btf = false;
const volatile bool have_task_pt_regs = false;
const volatile bool have_task_storage = false;
const volatile bool have_vma_walk = false;
const volatile bool have_irq_work = false;
const volatile bool have_stolen = false;
const volatile bool have_file_names = false;
const volatile bool have_ring_shots =
	false; /* requests of io_uring are known before they are issued */
const volatile bool ring_tells_cqe = false;  /* completions have the ring's form */

/* Written by the collector at any time through the mapping of .bss. */
struct prof_config config = {};

/* An unwind table. The inner maps that the collector creates have any number of elements. */
struct unwind_table_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(uint32_t));
	__uint(value_size, UNWIND_ELEMENT_BYTES);
};

/* Unwind tables by module id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PROF_MODULES_MAX);
	__type(key, uint32_t);
	__array(values, struct unwind_table_map);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct prof_mapping_key);
	__type(value, struct prof_mapping_range);
} mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct prof_file_key);
	__type(value, struct prof_file);
} files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct prof_target);
} targets SEC(".maps");

/* Runtimes of processes by tgid. An entry dies at exit and at exec; a fork copies it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROF_RUNTIMES_MAX);
	__type(key, uint32_t);
	__type(value, struct script_runtime);
} runtimes SEC(".maps");

/* Runtimes of files by module id, with addresses as in the file: of processes that are not in
 * `runtimes` yet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROF_FILE_RUNTIMES_MAX);
	__type(key, uint32_t);
	__type(value, struct script_runtime);
} file_runtimes SEC(".maps");

/* Hashes of stacks whose frames have reached the ring buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, uint64_t);
	__type(value, uint32_t);
} sent_stacks SEC(".maps");

/* Chains of script functions of which the collector was woken to ask for the names. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SCRIPT_CHAINS_MAX);
	__type(key, uint64_t);
	__type(value, uint32_t);
} script_chains SEC(".maps");

/* When a process last reported an unknown pc, ns. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, UNKNOWN_PCS_MAX);
	__type(key, uint32_t);
	__type(value, uint64_t);
} unknown_pcs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct prof_counters);
} counters SEC(".maps");

/* One executable mapping of a young process. */
struct young_vma {
	uint64_t start;
	uint64_t end;
	uint64_t file_offset; /* of start, bytes */
	struct prof_file_key file;
};

/* A holder gives up a GIL, see gil.bpf.h. */
struct gil_release {
	uint64_t time_ns;
	uint64_t tenure_ns; /* for how long it was seen to have it */
	uint32_t number;    /* of the holder, gil_thread_number() */
	uint32_t reserved;
};

/* The part of a thread's wait that its own requests to a block device were, see disk.bpf.h. */
struct disk_part {
	uint64_t device_ns; /* at the device */
	uint64_t queue_ns;
	uint64_t disk; /* as in struct prof_sample_event */
};

/* The script side of a walk, see script.bpf.h. */
struct walk_script {
	uint32_t looked;	/* the process's runtime was looked up */
	uint32_t is_there;	/* it has an interpreter: what follows is valid */
	uint32_t is_hotspot;	/* scratch.hotspot is valid */
	uint32_t is_v8;		/* scratch.v8 is valid */
	uint32_t outcome;	/* why script frames are missing, 0 = they are not */
	uint32_t saved_count, saved_limit; /* of the walk, when the entry at hand began */
	uint64_t saved_hash;
	uint64_t bare_at; /* module and offset of the last pc that no row tells of, 0 = none */
	uint64_t chain; /* hash of the functions without their positions, 0 = there are none */
	uint32_t wakeups; /* since wakeups_ns */
	uint64_t wakeups_ns;
	struct script_range ranges[SCRIPT_RANGES_MAX];
	struct script_walk walk;
};

/* Everything about the stack being taken. One per CPU and kind of program: a sampler may interrupt
 * a scheduler hook in the middle of its walk. At 99 Hz all of it is cold each time, so what every
 * walk touches lies together in front, on one page. */
struct scratch {
	uint32_t busy;
	uint32_t frame_limit;

	/* the walk */
	struct unwind_state at;
	struct prof_mapping_range map; /* of the last frame; end = 0: none */
	struct unwind_table_head head; /* of table_module's table */
	uint32_t table_module;	       /* PROF_MODULES_MAX = none */
	uint32_t gap; /* enum prof_outcome: why the last step was a guess, 0 = it was not */
	uint32_t guessed_any;
	uint32_t code_is_listed; /* an address in no known mapping is not code */
	uint32_t mappings_are_published; /* the trie is asked: what it has is of this image */
	uint32_t going;			 /* there is a further frame */
	uint32_t one_by_one; /* a turn of the walk is one frame, not many by frame pointer */
	/* The frame at hand. The verifier goes on once from what is read here; it would go on from each
	 * value that a register may have. */
	volatile uint32_t found;    /* enum mapping_found */
	volatile int result;	    /* enum unwind_result */
	volatile uint64_t words[2]; /* script frame; 0, 0 = it is none */
	uint64_t unknown_pc;
	uint64_t window[WALK_WINDOW_WORDS + 1]; /* of the stack; the last is there for the verifier */
	struct walk_script script;

	struct prof_sample_event sample;
	struct arch_regs regs;
	struct {		       /* a thread back on the CPU, see offcpu.bpf.h */
		uint64_t off_ns;       /* all of the time off the CPU */
		uint64_t run_delay_ns; /* its total before */
		struct disk_part disk; /* of a wait for a disk */
		struct gil_release release; /* that the wait follows; number 0 = none */
		uint32_t owed;	       /* its user stack is still to be walked */
	} resume;

	/* the event of the stack; frames follow it without a gap */
	struct prof_stack_event stack;
	uint64_t frames[STACK_FRAMES_MAX];

	uint32_t vma_count;
	struct young_vma vmas[YOUNG_VMAS_MAX];
	struct { /* reading them, see young.bpf.h */
		uint64_t vdso;
		uint64_t root;
		uint64_t node;	   /* or the next mapping of the list */
		uint64_t node_end; /* last address of the node */
		uint64_t cursor;   /* mappings below are done */
		uint32_t slot; /* next of the leaf in words; past the last: there is none */
		uint32_t begun;
		uint32_t whole;
		uint32_t overflow;
		uint64_t words[32]; /* the node */
	} young;

	struct { /* of the file that is read or written, see file_name.bpf.h */
		uint64_t dentry;
		uint64_t mount;
		uint32_t words;
		uint16_t whole; /* nothing is above */
		uint16_t cut;
		char text[80];
	} name;

	struct hotspot_walk hotspot;
	struct v8_walk v8;

	struct { /* where rows are awaited, see late.bpf.h */
		struct unwind_state at;
		uint32_t wanted;
		uint32_t frame_count; /* before this frame */
	} late;
};

_Static_assert(sizeof(struct scratch) <= 32768, "PCPU_MIN_UNIT_SIZE");

enum cpu_scratch_of {
	CPU_SCRATCH_SAMPLER,
	CPU_SCRATCH_RETRY, /* see retry.bpf.h */
	CPU_SCRATCH_FAULT, /* a tick may interrupt the sample of a fault */
	CPU_SCRATCH_MAX,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CPU_SCRATCH_MAX);
	__type(key, uint32_t);
	__type(value, struct scratch);
} cpu_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct scratch);
} switch_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct scratch);
} sweep_scratch SEC(".maps");

struct late_rate {
	uint32_t used; /* since since_ns */
	uint64_t since_ns;
};

/* An event of late.bpf.h in the making. The last page is never filled: it is there for the
 * verifier, which knows the place of a copy by its mask only. */
struct late {
	uint32_t busy;
	struct late_rate copies, retries;
	struct prof_late_event event;
	uint8_t stack[PROF_LATE_STACK_BYTES + PAGE_BYTES];
};

_Static_assert(sizeof(struct late) <= 32768, "PCPU_MIN_UNIT_SIZE");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct late);
} late_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct scratch);
} io_scratch SEC(".maps");

/* How densely a CPU records calls that move bytes, see io.bpf.h. */
struct io_rate {
	uint64_t since_ns; /* of the window */
	uint64_t bytes;	   /* moved in it */
	uint64_t calls;	   /* that moved them */
	uint64_t threshold; /* 0: every call */
	uint64_t count; /* recorded since the threshold was set */
};

struct io_pace {
	struct io_rate wanted,
		undecided;  /* processes that nobody has decided on yet have one of their own */
	uint64_t chosen_ns; /* when it was last decided to record a call */
	uint64_t cost_ns;   /* of recording one, in the mean; 0 = not known yet */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct io_pace);
} io_paces SEC(".maps");

/* A call that is to be recorded, and what was made of the events of one, see io.bpf.h. */
struct io_owed {
	uint64_t moved; /* bytes */
	uint64_t value; /* to record it with */
	uint64_t file;	/* kernel address; 0: the call's first argument names it */
	uint32_t detail; /* enum prof_detail; FILE where the kind depends on the file */
	uint32_t tid;	/* 0 = none */
	uint32_t unread; /* not 0: of some events it is not known what they moved */
	uint32_t reserved;
	uint64_t collected; /* bytes */
	uint64_t descriptor; /* of the file of all of them; else more than 32 bits */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct io_owed);
} io_owed SEC(".maps");

/* Bytes that a thread has moved, all of them, since this was first wanted of its process. */
struct io_moved {
	uint64_t bytes;
	uint64_t unrecorded;  /* of them, not yet offered for a record: see io_tally() */
	uint64_t is_counted; /* the call at hand, by the program that records it */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct io_moved);
} io_moved SEC(".maps");

/* A request of io_uring that posts many completions, by what they say of it, see io_ring.bpf.h. */
struct io_ring_key {
	uint64_t ring, user_data;
};

struct io_ring_shot {
	struct io_kiocb *request;
	uint64_t beside; /* bytes that a completion counts beside the payload */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct io_ring_key);
	__type(value, struct io_ring_shot);
} io_ring_shots SEC(".maps");

enum off_how {
	OFF_RUNS = 0, /* preempted */
	OFF_WAITS = 1,
	OFF_HALTED = 2, /* stopped, traced, frozen */
};

/* A thread off the CPU. Lives and dies with the thread. */
struct off_state {
	uint64_t since_ns;     /* 0 = on the CPU */
	uint64_t run_delay_ns; /* sched_info.run_delay then */
	uint32_t generation; /* config.off_generation then: an older one is of another attachment */
	uint16_t blocked;    /* enum off_how */
	uint16_t waits_for_gil; /* this wait is one for CPython's global lock, see gil.bpf.h */
	uint32_t holder; /* of the lock it waits for, as it says; 0 = unknown */
	uint32_t waker;	 /* thread of its process that woke it, while locks are wanted; 0 = none */
	uint32_t wanted; /* decision, as it was found: config.target_generation << 1, bit 0: locks too */
	uint32_t came;	 /* config.off_generation when it was seen to come onto a CPU last */
	uint64_t came_stolen_ns; /* of that CPU until then, see off_cpu_stolen() */
	uint64_t stolen_ns; /* of its own times on CPUs, those that have ended; only grows */
	struct arch_call call; /* how it had entered the kernel; cs = 0: it has no user stack */
	uint64_t gil_since_ns; /* when its wait for the GIL began, in several parts; 0 = there is none */
	uint32_t gil_switches; /* how often the GIL had changed hands, as the last part began */
	uint32_t gil_draw;     /* decides which parts are recorded, as off_value() */
	struct gil_release gil_release; /* that this wait follows; number 0 = none */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct off_state);
} off_states SEC(".maps");

/* A thread's wait for a lock of the kernel, see locks.bpf.h. */
struct lock_wait {
	uint64_t since_ns; /* 0 = none */
	uint64_t lock;
	uint32_t generation; /* config.lock_generation then */
	uint32_t reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct lock_wait);
} lock_waits SEC(".maps");

/* Nothing travels through these rings, one per CPU: a discarded record with a forced wakeup is the
 * one way for a program to raise an interrupt on its own CPU (offcpu.bpf.h). */
struct kick_ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, PROF_KICK_RING_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__array(values, struct kick_ring_map);
} kick_rings SEC(".maps");

/* @index where it is used, kept below @size (a power of two). A bound that was checked earlier is
 * forgotten by older verifiers (6.1) when the value was spilled in between; clang would drop a
 * plain mask as redundant. */
static __always_inline uint32_t index_within(uint32_t index, uint32_t size)
{
	asm volatile("" : "+r"(index));
	return index & (size - 1);
}

/* The scratch @at of this CPU in @map, or NULL if a program of the same kind was interrupted in it
 * (counted by the caller). Nesting on a CPU is strictly last in, first out, so a plain flag is
 * enough. */
static __always_inline struct scratch *scratch_enter_at(void *map, uint32_t at)
{
	struct scratch *scratch = bpf_map_lookup_elem(map, &at);

	if (!scratch || scratch->busy)
		return NULL;
	scratch->busy = 1;
	return scratch;
}

static __always_inline struct scratch *scratch_enter(void *map)
{
	return scratch_enter_at(map, 0);
}

static __always_inline void scratch_leave(struct scratch *scratch)
{
	scratch->busy = 0;
}

#endif
