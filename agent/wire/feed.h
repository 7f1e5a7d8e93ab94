/* SPDX-License-Identifier: Apache-2.0 */
/* The feed: records that the collector writes into the shared ring (agent/base/ring.h) and the
 * server reads; also the format of recorded event files (the replay source). The record kind is
 * enum feed_kind. Fixed-size part first, then strings as {u16 length, bytes} in the order listed,
 * so that a decoder can check everything against the record's length. Host byte order (both ends
 * are one host; a recording states its byte order in FEED_EPOCH). Pure encode and decode, fuzzed.
 *
 * Order: a record may refer to a module, process or stack whose record comes later; the server
 * joins them when it renders. Every record that is referred to is sent. A server that misses one
 * asks with CONTROL_WANT and gets it again. Ids (module, proc) are dense and restart with every new
 * epoch. A process's is never reused by one collector; a module's is after FEED_MODULE_FREED: in a
 * stack that came before, it is the former one. Stack ids are hashes over (module key, offset,
 * flags) and stay the same across restarts and hosts. */
#ifndef PROFD_WIRE_FEED_H
#define PROFD_WIRE_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

enum feed_kind {
	FEED_EPOCH = 1,	    /* first record of a collector process */
	FEED_CLOCK = 2,	    /* every 10 s */
	FEED_MODULE = 3,
	FEED_PROC = 4,
	FEED_PROC_EXIT = 5,
	FEED_STACK = 6,
	FEED_SAMPLE = 7,
	FEED_OUTCOMES = 8,  /* every second in which a counter moved */
	FEED_DEMAND = 9,    /* what is sampled has changed */
	FEED_GAP = 10,	    /* the collector was away */
	FEED_PROC_CPU = 12,	/* CPU time of every process: at start and when asked (WANT_LIVES) */
	FEED_ALLOC = 13,	/* allocations of a process: a period, or why they are not observed */
	FEED_COSTS = 14,	/* before every FEED_CLOCK */
	FEED_SCRIPT = 15,	/* the name of a script frame */
};

struct feed_epoch {
	struct clock_triple clock;
	uint64_t epoch;	       /* random, identifies this collector process */
	uint8_t boot_id[16];
	uint32_t cpu_count;    /* online */
	uint32_t byte_order;   /* 0x01020304 */
};

struct feed_clock {
	struct clock_triple clock;
	uint64_t collector_cpu_ns; /* user + system time of the collector so far */
	uint64_t bpf_run_ns;	   /* estimated run time of the BPF programs so far */
	uint64_t map_bytes;	   /* memory charged for BPF maps */
};

#define FEED_PROGRAMS_MAX 16

/* The estimated run time of feed_clock.bpf_run_ns by program. */
struct feed_costs {
	uint64_t time_ns; /* monotonic */
	uint64_t run_ns[FEED_PROGRAMS_MAX]; /* by enum prof_program */
};

enum feed_module_kind {
	FEED_MODULE_ELF = 1,
	FEED_MODULE_KERNEL = 2, /* offsets are relative to _text; key from the kernel's build-id */
	FEED_MODULE_VDSO = 3,
	FEED_MODULE_JIT =
		4, /* one per process: offsets are addresses; key from (host, pid, start) */
	FEED_MODULE_UNREADABLE = 5, /* the file could not be opened or is not ELF */
	FEED_MODULE_GONE = 6, /* ELF, known by its key, but gone before its names could be read */
	FEED_MODULE_FREED =
		7, /* none: nothing maps it any more, its id will be another's. No key, no path */
	FEED_MODULE_SCRIPT = 8, /* script frames of one process instance: offsets number them; path is
				 * the runtime's word, as "[python]" */
};

#define FEED_BUILD_ID_MAX 32

struct feed_module {
	uint64_t key;	 /* hash of the build-id, else of the content: the module's stable identity */
	uint32_t module; /* id used in frames */
	uint8_t kind;	 /* enum feed_module_kind */
	uint8_t build_id_len;
	uint8_t build_id[FEED_BUILD_ID_MAX];
	uint8_t reserved[2];
	uint64_t file; /* module_file_number() of its mapped file, 0 = none */
	/* strings: path (as the process names it) */
};

/* One process instance under one executable. Sent when first seen and again when a fact changed.
 */
struct feed_proc {
	uint64_t start_boottime_ns;
	uint64_t seen_monotonic_ns;
	uint32_t proc; /* id used in samples */
	uint32_t tgid;
	uint32_t parent_tgid;
	uint32_t uid;
	uint32_t exec_generation;
	uint32_t flags; /* enum feed_proc_flag */
	/* strings: comm, exe (path as the process sees it, "" for kernel threads), cmdline
	 * (arguments separated by spaces, at most 512 bytes), cgroup (innermost path, v2 or the
	 * named v1 hierarchy), environment (only OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
	 * DD_SERVICE: NAME=value lines; behind them, of a container's process, what its runtime says
	 * of it: container.runtime, .name, .image.name, k8s.namespace.name, k8s.pod.name,
	 * k8s.container.name, k8s.workload.name, compose.project, compose.service), ports
	 * (listening TCP ports, decimal, separated by commas), program (the inferred name of
	 * agent/collect/proc/program_name.h, "" = none better than the executable's)
	 * families: uint64_t each, to the end of the record (struct control_families of
	 * agent/wire/control.h) */
};

#define FEED_FAMILIES_MAX 64u

enum feed_proc_flag {
	FEED_PROC_KTHREAD = 1,
	FEED_PROC_COMPAT32 = 2,
	FEED_PROC_GO = 4,	/* the executable has .gopclntab or a Go build id */
	FEED_PROC_JVM = 8,
	FEED_PROC_PYTHON = 16,
	FEED_PROC_NODE = 32,
	FEED_PROC_EXCLUDED = 64,
	FEED_PROC_PROFD = 128, /* one of profd's own processes */
	/* With NODE: its V8 has no script frames, because it compresses pointers, or does not describe
	 * itself as it should (enum script_v8_refusal). */
	FEED_PROC_V8_COMPRESSED = 256,
	FEED_PROC_V8_UNDESCRIBED = 512,
	/* Runtimes whose functions have no names. */
	FEED_PROC_PHP = 1024,
	FEED_PROC_RUBY = 2048,
	FEED_PROC_PERL = 4096,
};

struct feed_proc_exit {
	uint64_t time_ns; /* monotonic */
	uint32_t proc;
	uint32_t reserved;
};

struct feed_proc_cpu {
	uint64_t time_ns; /* monotonic */
	uint64_t cpu_ns; /* user and system time of the process so far, at USER_HZ; of 0: when ports
			    were last asked for, monotonic */
	uint32_t proc;	  /* 0 = the end of a round: every process that lived at time_ns came before */
	uint32_t reserved;
};

enum feed_alloc_what {
	FEED_ALLOC_PERIOD = 1,	/* a period is over; its samples came before */
	FEED_ALLOC_READY = 2,	/* it can be observed; with a reason: but not what stays in use */
	FEED_ALLOC_REFUSED = 3, /* it cannot: the reason follows */
	FEED_ALLOC_SWEPT = 4,	/* proc 0: the answer to CONTROL_SWEEP is complete */
};

/* feed_sample.state of PROF_SAMPLE_ALLOC. BIRTH: value bytes allocated, value2 objects in 1/1024,
 * object their period's number. LIVE: bytes in use, stamped with the time they were allocated;
 * source numbers the sweep, holder the deaths seen of the site, object what feed_alloc_site()
 * makes, detail how many of its addresses are in use after ALLOC_OLD_NS, with FEED_ALLOC_FEW if
 * they are too few to tell by themselves that they stay. EXACT: the same of one block that is not
 * an estimate. */
enum feed_alloc_state { FEED_ALLOC_BIRTH = 1, FEED_ALLOC_LIVE = 2, FEED_ALLOC_EXACT = 3 };
#define FEED_ALLOC_FEW 0x80u

/* The standard error of a site's estimate in 1/1000 (less than 2^20), the sizes that its
 * allocations asked for; most 0 = not known. Sizes of 64 KB and more count as that. @unsure: none
 * was seen to end, but some may have. */
static inline uint64_t feed_alloc_site(uint64_t error, uint32_t least_bytes, uint32_t most_bytes,
				       bool unsure)
{
	return error | (uint64_t)unsure << 52 |
	       (uint64_t)(least_bytes < UINT16_MAX ? least_bytes : UINT16_MAX) << 20 |
	       (uint64_t)(most_bytes < UINT16_MAX ? most_bytes : UINT16_MAX) << 36;
}

static inline uint32_t feed_alloc_error(uint64_t site)
{
	return site & 0xfffff;
}

static inline uint16_t feed_alloc_least(uint64_t site)
{
	return (uint16_t)(site >> 20);
}

static inline uint16_t feed_alloc_most(uint64_t site)
{
	return (uint16_t)(site >> 36);
}

static inline bool feed_alloc_unsure(uint64_t site)
{
	return site >> 52 & 1;
}

struct feed_alloc {
	uint64_t time_ns;   /* monotonic */
	uint64_t since_ns;  /* observed since */
	uint64_t period_ns, window_ns; /* of this period, and how much of it the probes were open */
	uint64_t cpu_ns;    /* of the process in the period */
	uint64_t cost_ns;   /* of it the probes' */
	uint64_t window_cpu_ns; /* of the process while the probes were open */
	uint64_t hits, sampled, lost;
	uint64_t gap_bytes; /* mean distance of two samples */
	uint64_t faulted_bytes; /* pages that the process touched for the first time in the period */
	uint32_t proc;
	uint8_t what;	    /* enum feed_alloc_what */
	uint8_t full;	    /* 1 = the probes stayed all the time */
	uint8_t dilation;   /* percent, see agent/collect/alloc/alloc_pace.h */
	uint8_t family;	    /* enum alloc_family of agent/wire/control.h */
	/* string: the reason, "" = none */
};

#define FEED_FRAMES_MAX 640u /* 512 user + 127 kernel + marker */

/* A user or a kernel stack, leaf first; frames as in bpf/profiler.h (MODULE frames with the ids of
 * FEED_MODULE, KERNEL frames are MODULE frames of the kernel module here). */
struct feed_stack {
	uint64_t stack; /* id */
	uint16_t frame_count;
	uint8_t outcome; /* bpf/outcome.def below 32 */
	uint8_t reserved[5];
	/* uint64_t frames[frame_count] */
};

struct feed_sample {
	uint64_t time_ns;      /* monotonic */
	uint64_t user_stack;   /* 0 = none */
	uint64_t kernel_stack; /* 0 = none */
	uint64_t value;	       /* as in struct prof_sample_event */
	uint64_t value2;
	uint32_t proc;
	uint32_t tid;
	uint32_t source;
	uint16_t cpu;
	uint8_t type;	       /* enum prof_sample_type */
	uint8_t state;
	char comm[16];	       /* thread name, NUL-padded */
	uint64_t object;       /* these as in struct prof_sample_event */
	uint32_t holder;
	uint8_t detail;
	uint8_t reserved[3];
};

/* How the code of a script frame came to be. Two bits of a name's first line: bits 31 and 30. */
enum feed_tier {
	FEED_TIER_UNKNOWN,
	FEED_TIER_INTERPRETED,
	FEED_TIER_BASELINE, /* compiled fast: HotSpot's C1, V8's Sparkplug */
	FEED_TIER_OPTIMIZED, /* HotSpot's C2, V8's Maglev and Turbofan */
};
#define FEED_TIER_SHIFT 30
/* Bit 29: the compiler did not record where in its code the frame is. Its line, and what is inlined
 * there, are those of the next place that it recorded. */
#define FEED_APPROXIMATE (1u << 29)
#define FEED_LINE_MAX	 (FEED_APPROXIMATE - 1)

/* The name of one frame of a FEED_MODULE_SCRIPT. A frame without a record has no name yet, or none
 * that can be known: the program ended or reused the memory first. */
struct feed_script {
	uint64_t key;	     /* of the module */
	uint64_t offset;     /* as in frames */
	uint32_t line;	     /* that is executed, 0 = unknown */
	uint32_t first_line; /* of the function, 0 = unknown; enum feed_tier, FEED_APPROXIMATE */
	/* strings: function, file; then, for each function that the one before it is inlined in:
	 * u32 line, u32 first line and tier, strings: function, file */
};

/* Increments since the last record; index = outcome id. */
struct feed_outcomes {
	uint64_t time_ns;
	uint32_t count; /* of {u32 outcome, u32 reserved, u64 increment} entries that follow */
	uint32_t reserved;
};

struct feed_outcome {
	uint32_t outcome;
	uint32_t reserved;
	uint64_t increment;
};

struct feed_demand {
	uint64_t time_ns;
	uint32_t rate_hz;  /* of the host sampler from now on, 0 = off */
	uint32_t fast_hz;  /* of the threads of processes with PROF_WANT_FAST, 0 = as of others */
	uint32_t types;	   /* bits of enum prof_want */
	uint32_t by_call; /* 1: bytes are taken at the ends of the calls that move them, 0: of every
			     system call */
	uint64_t off_threshold_ns; /* of waits, in force while types has OFFCPU */
};

struct feed_gap {
	uint64_t from_ns; /* monotonic: last sign of the collector before, and of this one */
	uint64_t to_ns;
};

/* ---- decoding: fixed part is copied, strings are borrowed from the record ------------------- */

struct feed_string {
	const char *text; /* not NUL-terminated */
	uint16_t len;
};

#define FEED_STRINGS_MAX 7

/* Splits a record of @kind. @ret_fixed must hold @fixed_size bytes (the struct of that kind).
 * @ret_tail points at what follows the fixed part (frames, outcomes, strings).
 * -EPROTO if the record is shorter than its contents claim; outputs untouched then. */
int feed_decode(const void *data, size_t len, void *ret_fixed, size_t fixed_size,
		const void **ret_tail, size_t *ret_tail_len) must_use;
#define FEED_FUNCTIONS_MAX 16 /* of a FEED_SCRIPT */
struct feed_function {
	uint32_t line, first_line;
	uint8_t tier; /* enum feed_tier */
	bool is_approximate;
	struct feed_string function, file; /* borrowed from the record */
};

/* Decodes a FEED_SCRIPT: its functions, innermost first. Returns their number, at least 1; -EPROTO.
 */
int feed_decode_script(const void *data, size_t len, struct feed_script *ret,
		       struct feed_function functions[FEED_FUNCTIONS_MAX]) must_use;
/* Splits @count strings from a tail. -EPROTO. */
int feed_decode_strings(const void *tail, size_t len, struct feed_string *ret, int count) must_use;
/* The families of a process record, whose last string is @last; how many there are, -EPROTO. */
int feed_decode_families(const void *tail, size_t len, const struct feed_string *last,
			 uint64_t ret[FEED_FAMILIES_MAX]) must_use;
/* Frames of a stack record, copied out (the tail need not be aligned). -EPROTO if counts disagree.
 */
int feed_decode_frames(const struct feed_stack *stack, const void *tail, size_t tail_len,
		       uint64_t *ret_frames) must_use;
/* Appends a {u16 length, bytes} string to @out at *@at (capacity @size); cuts at 65535 and at room.
 */
void feed_encode_string(void *out, size_t size, size_t *at, const char *text, size_t len);

#endif
