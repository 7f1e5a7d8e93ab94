/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the BPF programs and the collector: events of the ring buffer, map keys and values,
 * frame encoding. Fixed-width fields, units in names, layouts asserted. Compiles for BPF and for
 * the host. */
#ifndef PROFD_BPF_PROFILER_H
#define PROFD_BPF_PROFILER_H

#include "bpf/arch.h"

/* ---- limits ------------------------------------------------------------------------------- */

#define PROF_FRAMES_MAX		    512u /* user frames of one stack */
#define PROF_WORDS_MAX		    (2 * PROF_FRAMES_MAX) /* when all are script frames */
#define PROF_FILE_RUNTIMES_MAX	    256u
#define PROF_RUNTIMES_MAX	    4096u		  /* processes with a runtime that is known */
#define PROF_KERNEL_FRAMES_MAX	    127u /* kernel.perf_event_max_stack default */
#define PROF_COMM_SIZE		    16u	 /* TASK_COMM_LEN */
#define PROF_MODULES_MAX	    (1u << 18)
#define PROF_OUTCOMES_MAX	    64u
#define PROF_KICK_RING_BYTES	    65536u /* 8,192 interrupts of a CPU between two polls */
#define PROF_UNKNOWN_PC_INTERVAL_NS 250000000ull
#define PROF_LATE_STACK_BYTES	    16384u /* of the user stack in one event; a power of two */
#define PROF_LATE_PER_SECOND	    256u   /* such events of one CPU */
#define PROF_RETRIES_PER_SECOND	    256u /* stacks of one CPU that are walked again */
#define PROF_IO_WINDOW_NS                                                                          \
	100000000ull /* in which a CPU bounds what it records of calls that move bytes */
#define PROF_REGS		    ARCH_REG_COUNT

/* ---- frames ------------------------------------------------------------------------------- */

/* A frame is one 64-bit word, in BPF, on the wire and in stored stacks alike:
 *   bits 63..60 kind, bit 59 return address (the call is before it), bit 58 guessed,
 *   MODULE: bits 57..40 module id, bits 39..0 file offset in bytes
 *   other kinds: bits 57..0 the address (kernel addresses lose their leading ones). */
enum prof_frame_kind {
	PROF_FRAME_NONE = 0,
	PROF_FRAME_MODULE = 1,	  /* offset in a mapped file; module id as below */
	PROF_FRAME_ADDRESS = 2,	  /* user address in no published mapping (young process, JIT) */
	PROF_FRAME_KERNEL = 3,	  /* kernel address, bits 57..0 */
	PROF_FRAME_TRUNCATED = 4, /* marker, always the outermost frame */
	PROF_FRAME_MARKER = 5,	  /* bits 39..0: enum prof_marker, e.g. [on cpu, not sampled] */
	PROF_FRAME_NAME = 6,	  /* no code: behind a kernel stack the name of the file, as below */
	PROF_FRAME_SCRIPT = 7,	  /* word A of a script frame (bpf/script.h); B follows */
	PROF_FRAME_SCRIPT_AT = 8, /* word B */
};

enum prof_marker {
	PROF_MARKER_ON_CPU = 0,	 /* [on cpu, not sampled] */
	PROF_MARKER_BLOCKED = 1, /* [blocked, not sampled]: a wait that did not end inside */
};

/* A name is words of seven bytes each, and last one that says what it is. */
enum prof_name_form { /* bits 57..56 */
	PROF_NAME_MORE = 0,  /* text that goes on, up to a NUL; of TCP6 and UDP6 the address */
	PROF_NAME_BEGIN = 1, /* text: a component begins, innermost first */
	PROF_NAME_KIND = 2,  /* bits 7..0: enum prof_name_kind */
};

enum prof_name_kind {
	PROF_NAME_PATH = 1,
	PROF_NAME_CUT_PATH = 2, /* its outermost directories are missing */
	PROF_NAME_PIPE = 3,	/* bits 55..8: inode number */
	PROF_NAME_TCP = 4,	/* bits 23..8: the peer's port, 55..24: its address, network byte order */
	PROF_NAME_UDP = 5,
	PROF_NAME_TCP6 = 6,	/* bits 23..8: the peer's port */
	PROF_NAME_UDP6 = 7,
	PROF_NAME_UNIX = 8,	/* one component: the path, if it is bound */
	PROF_NAME_UNIX_ABSTRACT = 9,
};

#define PROF_NAME_WORDS_MAX  64u
#define PROF_NAME_FORM_SHIFT 56
#define PROF_NAME_BITS	     ((1ull << 56) - 1)

#define PROF_FRAME_KIND_SHIFT	60
#define PROF_FRAME_RETURN	(1ull << 59)
#define PROF_FRAME_GUESSED	(1ull << 58)
#define PROF_FRAME_MODULE_SHIFT 40
#define PROF_FRAME_OFFSET_MASK	((1ull << 40) - 1)
#define PROF_FRAME_ADDRESS_MASK ((1ull << 58) - 1)

static inline uint64_t prof_frame_module(uint32_t module, uint64_t offset, uint64_t flags)
{
	return (uint64_t)PROF_FRAME_MODULE << PROF_FRAME_KIND_SHIFT | flags |
	       (uint64_t)(module & (PROF_MODULES_MAX - 1)) << PROF_FRAME_MODULE_SHIFT |
	       (offset & PROF_FRAME_OFFSET_MASK);
}

static inline uint64_t prof_frame_address(enum prof_frame_kind kind, uint64_t address,
					  uint64_t flags)
{
	return (uint64_t)kind << PROF_FRAME_KIND_SHIFT | flags |
	       (address & PROF_FRAME_ADDRESS_MASK);
}

static inline uint32_t prof_frame_kind(uint64_t frame)
{
	return (uint32_t)(frame >> PROF_FRAME_KIND_SHIFT);
}

static inline uint32_t prof_frame_module_id(uint64_t frame)
{
	return (uint32_t)(frame >> PROF_FRAME_MODULE_SHIFT) & (PROF_MODULES_MAX - 1);
}

static inline uint64_t prof_frame_offset(uint64_t frame)
{
	return frame & PROF_FRAME_OFFSET_MASK;
}

/* ---- events: BPF ring buffer -> collector --------------------------------------------------- */

enum prof_event_kind {
	PROF_EVENT_STACK = 1,  /* struct prof_stack_event */
	PROF_EVENT_SAMPLE = 2, /* struct prof_sample_event */
	PROF_EVENT_EXEC = 3,   /* struct prof_task_event */
	PROF_EVENT_FORK = 4,
	PROF_EVENT_EXIT = 5,
	PROF_EVENT_UNKNOWN_PC = 6, /* a pc in no published mapping, rate-limited per process */
	PROF_EVENT_LATE = 7,	   /* struct prof_late_event, before its sample */
	PROF_EVENT_RETRIED = 8,	   /* struct prof_retried_event */
};

/* prof_event_head.flags of a sample */
#define PROF_SAMPLE_LATE 1u /* a prof_late_event of the same time and thread came before it */

/* And of a prof_late_event. */
enum prof_late_flag {
	PROF_LATE_RETRIED = 1, /* without any stack: the kernel walks again, see prof_retried_event */
};

enum prof_sample_type {
	PROF_SAMPLE_CPU = 0,
	PROF_SAMPLE_OFFCPU = 1,
	PROF_SAMPLE_ALLOC = 2,
	PROF_SAMPLE_IO = 3,
	PROF_SAMPLE_THREAD = 4, /* what the kernel has counted for a thread since it began */
	PROF_SAMPLE_WAKER =
		5, /* who wakes a thread: stacks, comm, holder (tid), object (tgid) and value (start
		    * of the process) are the waker's, all else the woken thread's. A release of the
		    * GIL has the state of a wait for it, in value2 for how long the waker was seen to
		    * have it, ns, and in waker the number that such waits have as holder */
	PROF_SAMPLE_MOVED = 6, /* what a thread has read and written since it began to be counted */
	PROF_SAMPLE_STOLEN =
		7, /* how much of its times on CPUs the kernel has not counted for a thread, of
		    * those that were seen, and how often it was blocked since it began */
	PROF_SAMPLE_FAULT = 8, /* a page fault; value: the faults that it stands for */
	PROF_SAMPLE_MAX,
};

/* true: the sample reads a thread's counters at one moment, and is nothing that the thread did. */
static inline int prof_sample_is_reading(uint8_t type)
{
	return type == PROF_SAMPLE_THREAD || type == PROF_SAMPLE_MOVED || type == PROF_SAMPLE_STOLEN;
}

/* prof_sample_event.state of a fault. */
enum prof_fault {
	PROF_FAULT_MINOR = 1, /* without I/O */
	PROF_FAULT_MAJOR = 2, /* the page was read from a disk, or the fault was tried again */
};

/* One minor fault in so many is a sample, and every major one. A sample costs about 3 us and a
 * minor fault at least 0.3 us: sampling takes at most a sixth of the time of the faults. */
#define PROF_FAULT_PERIOD 64u

/* Why a thread was off the CPU. One time off the CPU yields a sample of each state that lasted. */
enum prof_off_state {
	PROF_OFF_BLOCKED = 1,	/* waiting for something */
	PROF_OFF_RUNQUEUE = 2,	/* woken, waiting for a CPU */
	PROF_OFF_PREEMPTED = 3, /* runnable all the time, another thread had the CPU */
};

/* The wait of a blocked thread, from its system call. */
enum prof_wait {
	PROF_WAIT_NONE = 0, /* not blocked */
	PROF_WAIT_FUTEX = 1,
	PROF_WAIT_SLEEP = 2,
	PROF_WAIT_SOCKET = 3,
	PROF_WAIT_PIPE = 4,
	PROF_WAIT_EPOLL = 5, /* epoll, poll, select */
	PROF_WAIT_DISK = 6,
	PROF_WAIT_FAULT = 7, /* page fault or other exception */
	PROF_WAIT_CHILD = 8,
	PROF_WAIT_OTHER = 9,
	PROF_WAIT_GIL = 10, /* a futex of CPython's global lock; the collector tells it by its address */
};

/* Further facts about a blocked system call. */
enum prof_detail {
	PROF_DETAIL_NONE = 0,
	PROF_DETAIL_LOCK = 1,	   /* futex: by its operation and value, a wait for a lock */
	PROF_DETAIL_SEMAPHORE = 2, /* System V semaphores and queues, eventfd, file locks */
	PROF_DETAIL_FILE = 3,	   /* reads and writes, by what they read or write */
	PROF_DETAIL_SOCKET = 4,
	PROF_DETAIL_PIPE = 5,
	PROF_DETAIL_SYNC = 6, /* fsync and the like */
	PROF_DETAIL_KERNEL_LOCK = 7, /* not a time off the CPU of its own: bpf/locks.bpf.h */
};

/* Is @state that of a wait for a disk, whose object and holder say what block devices had to do
 * with it? */
#define PROF_DISK_WHOLE 0xffffu
static inline int prof_state_is_disk(uint8_t state)
{
	return state == (PROF_OFF_BLOCKED << 4 | PROF_WAIT_DISK);
}

struct prof_event_head {
	uint16_t kind; /* enum prof_event_kind */
	uint16_t flags;
	uint32_t size_bytes; /* of the whole event */
};

/* Sent before the first sample that uses it. Frames leaf first. */
struct prof_stack_event {
	struct prof_event_head head;
	uint64_t stack_hash;
	uint32_t tgid; /* whose ADDRESS frames these are */
	uint16_t frame_count;
	uint8_t outcome; /* bpf/outcome.def, below 32 */
	uint8_t reserved;
#ifndef __bpf__
	uint64_t frames[];
#endif
};

/* A deferred walk: the place where it came to code whose unwind rows are not published yet, and the
 * stack from there on. The collector goes on with it when the rows are there. The earlier frames
 * are the first of the sample's user stack, whose rest was guessed. Without any stack: the thread
 * sleeps, and its memory must still be read. */
struct prof_late_event {
	struct prof_event_head head;
	uint64_t time_ns; /* the sample's */
	uint64_t ip, sp, fp;
	uint64_t context_at; /* these as in struct unwind_state */
	uint64_t regs[PROF_REGS];
	uint64_t thread_pointer; /* of a thread that sleeps: its thread-local storage; else 0 */
	uint32_t tgid;
	uint32_t tid;
	uint16_t frame_count; /* frames before this one */
	uint8_t is_return;
	uint8_t regs_known;
	uint32_t stack_bytes; /* from ARCH_BELOW_SP below sp on */
#ifndef __bpf__
	uint8_t stack[];
#endif
};

/* A stack of which a word was not resident was walked again before its thread went back to user
 * mode. */
struct prof_retried_event {
	struct prof_event_head head;
	uint64_t time_ns; /* the sample's */
	uint64_t stack_hash; /* its user stack now */
	uint32_t tid;
	uint32_t reserved;
};

struct prof_sample_event {
	struct prof_event_head head;
	uint64_t time_ns;	    /* CLOCK_MONOTONIC */
	uint64_t start_boottime_ns; /* of the process (group leader) */
	uint64_t user_stack_hash;   /* 0 = none */
	uint64_t kernel_stack_hash; /* 0 = none */
	uint64_t value;		    /* cpu: the sampling period in ns; offcpu: weighted ns; io: weighted
				     * bytes; thread: ns on a CPU, up to a scheduler tick old;
				     * moved: bytes; stolen: ns that interrupts and a hypervisor took */
	uint64_t value2;	    /* offcpu, io, fault: events represented in 1/1024; thread: ns on run
				     * queues; stolen: twice the times that it was blocked, less 1 while it is */
	uint32_t tgid;
	uint32_t tid;
	uint32_t source; /* cpu: 1 = an event of the thread, 0 = the host sampler */
	uint16_t cpu;
	uint8_t type;  /* enum prof_sample_type */
	uint8_t state; /* offcpu: enum prof_off_state << 4 | enum prof_wait; readings: 1 = it ends;
			* fault: enum prof_fault */
	char comm[PROF_COMM_SIZE];
	uint64_t object; /* offcpu, futex: its address; kernel lock: a number of it; disk: the first
			  * eight bytes of the device's name, 0 = it had no request of the thread;
			  * readings: when the thread began, CLOCK_MONOTONIC ns */
	uint32_t holder; /* LOCK: the word where glibc keeps the owner's tid, as the wait began; a
			  * claim of the program's memory. 0 = unknown. Disk with an object: how much of the value
			  * the thread's requests were at the device << 16 | in its queue, in 1/PROF_DISK_WHOLE */
	uint8_t detail;	 /* offcpu, io: enum prof_detail */
	uint8_t reserved[3];
	uint32_t waker; /* LOCK, but not the GIL: the thread of its process that woke it; 0 = unknown */
	uint32_t reserved2;
};

/* Exec, fork and exit of processes (thread creation is not reported). An exit is reported when the
 * last thread ends; in a rare race it is reported twice. UNKNOWN_PC comes at most every
 * PROF_UNKNOWN_PC_INTERVAL_NS per process. */
struct prof_task_event {
	struct prof_event_head head;
	uint64_t time_ns;
	uint64_t start_boottime_ns;
	uint64_t address; /* UNKNOWN_PC: the pc */
	uint32_t tgid;
	uint32_t parent_tgid;
	uint32_t exec_generation; /* task->self_exec_id: differs after every exec, inherited at fork
				   */
	uint32_t reserved;
	char comm[PROF_COMM_SIZE];
};

/* ---- maps ----------------------------------------------------------------------------------- */

/* Mappings: LPM trie over (tgid, address); both big-endian, prefix of 32 + n bits. */
struct prof_mapping_key {
	uint32_t prefix_bits; /* 32 + significant bits of the address */
	uint32_t tgid_be;
	uint64_t address_be;
};

enum prof_mapping_flag {
	PROF_MAPPING_FP = 1,   /* the file keeps frame pointers: CFA = rbp for >= 99 % of what calls
				  return to */
	PROF_MAPPING_JIT = 2,  /* anonymous executable memory */
	PROF_MAPPING_ROWS = 4, /* unwind rows are published */
	PROF_MAPPING_AWAITED = 8, /* the symbolizer has been asked for them */
	PROF_MAPPING_RUNTIME = 16, /* code of an interpreter may be in it: map `runtimes` is asked */
};

struct prof_mapping {
	uint64_t bias;	 /* address - bias = file offset */
	uint32_t module; /* id; index in the outer map of unwind tables */
	uint32_t flags;	 /* enum prof_mapping_flag */
};

/* Value of the trie: the mapping with its extent, so that the frames that follow in the same
 * mapping need no lookup. */
struct prof_mapping_range {
	uint64_t start; /* address of the first byte */
	uint64_t end;	/* one past the last */
	struct prof_mapping mapping;
};

/* Files known by identity, for processes too young for the mapping table. Device as the kernel
 * prints it in /proc/PID/maps (s_dev of the inode), not st_dev. All zero = the vDSO. */
struct prof_file_key {
	uint64_t inode;
	uint32_t dev_major;
	uint32_t dev_minor;
};

struct prof_file {
	uint32_t module;
	uint32_t flags; /* enum prof_mapping_flag */
};

/* The samples wanted of a process. Absent = not decided yet, sampled so that short-lived processes
 * are not missed. */
enum prof_want {
	PROF_WANT_CPU = 1,
	PROF_WANT_OFFCPU = 2,
	PROF_WANT_ALLOC = 4,
	PROF_WANT_IO = 8,
	PROF_WANT_LOCKS = 16, /* with OFFCPU: who holds what is waited for */
	PROF_WANT_LIVE = 32,  /* with ALLOC: what stays in use */
	PROF_WANT_FAST = 64, /* with CPU: at the rate of events of its own threads; in the map, they
				are open */
	PROF_WANT_KERNEL_LOCKS = 128, /* with OFFCPU: waits for the kernel's own locks too */
	PROF_WANT_WAKERS = 256,	      /* with OFFCPU: stacks of those who end waits */
	PROF_WANT_PATHS = 512,	      /* with IO: names of files and peers */
	PROF_WANT_FAULTS = 1024,
	PROF_WANT_MAPPED =
		0x20000000, /* no demand: all its mappings are published, it is not young */
	PROF_WANT_NONE = 0x80000000, /* decided: nothing */
	PROF_WANT_EXCLUDED = 0x40000000,
};

/* Key: tgid. An entry dies at exit and at exec. Forked children start with their parent's, without
 * PROF_WANT_MAPPED (mappings are published per tgid) and PROF_WANT_FAST (events are a process's
 * own). */
struct prof_target {
	uint64_t start_boottime_ns;
	uint32_t wanted; /* bits of enum prof_want */
	uint32_t exec_generation;
};

/* One element, written by user space. */
struct prof_config {
	uint64_t off_threshold_ns; /* blocks shorter are sampled, longer always recorded */
	uint64_t io_budget_ns;	   /* of a CPU's time in PROF_IO_WINDOW_NS, for recording calls that
				      move bytes */
	uint64_t io_calls_max;	   /* so many of a CPU in that time, whatever they cost */
	uint64_t cpu_period_ns;	   /* value of one cpu sample of the host sampler */
	uint64_t fast_period_ns;   /* the same of threads' own events; 0 = there are none */
	uint64_t fast_from_ns;	   /* CPU time of a thread from which on its own events count */
	uint32_t cpu_active;	   /* 0: the host sampler returns at once */
	uint32_t sweep_all;	   /* the next sweep begins the time of every thread */
	uint64_t sweep_clock_ns; /* CLOCK_MONOTONIC less the scheduler's clock, set by the sweep; 0
				    = not yet */
	uint32_t off_generation;   /* 0 = off; another number after every start */
	uint32_t target_generation; /* from 1; another number after every decision on a process */
	uint32_t lock_generation; /* another number after every start */
	uint32_t disk_generation; /* likewise */
	uint64_t lock_secret;	  /* distinguishes locks without revealing their addresses */
	uint32_t
		sample_undecided; /* 1 while a session could want a process nobody has decided on */
	uint32_t io_by_call; /* calls that move bytes are taken at their own ends */
	uint32_t gils; /* processes with a GIL are known: bpf/gil.bpf.h */
	uint32_t
		self_tgid[4]; /* profd's own processes are sampled like any other; for accounting */
};

/* The program that a cost belongs to. */
enum prof_program {
	PROF_PROGRAM_CPU = 0,
	PROF_PROGRAM_SWITCH = 1, /* every context switch of the host */
	PROF_PROGRAM_LIFE = 2,	 /* exec, fork, exit */
	PROF_PROGRAM_RESUME = 3, /* user stacks of threads that come back to the CPU, wake another one,
				  * end a wait for a lock of the kernel, or a call that moves bytes */
	PROF_PROGRAM_IO = 4,   /* every call that moves bytes, or every system call of the host that
				  returns a number */
	PROF_PROGRAM_LOCK = 5, /* every wait for a lock of the kernel */
	PROF_PROGRAM_DISK = 6, /* every request of a block device */
	PROF_PROGRAM_FAULT = 7,
	PROF_PROGRAM_MAX,
};

/* Every PROF_COST_INTERVALth run of a program is timed. */
#define PROF_COST_INTERVAL 16u

struct prof_cost {
	uint64_t runs;
	uint64_t timed_runs;
	uint64_t timed_ns;
};

/* One per CPU, since loading. */
struct prof_counters {
	struct prof_cost costs[PROF_PROGRAM_MAX];
	uint64_t outcomes[PROF_OUTCOMES_MAX]; /* by outcome id */
};

#ifndef __bpf__
_Static_assert(sizeof(struct prof_event_head) == 8, "layout");
_Static_assert(sizeof(struct prof_stack_event) == 24, "layout");
_Static_assert(sizeof(struct prof_late_event) == 72 + 8 * PROF_REGS, "layout");
_Static_assert(sizeof(struct prof_retried_event) == 32, "layout");
_Static_assert(sizeof(struct prof_sample_event) == 112, "layout");
_Static_assert(sizeof(struct prof_task_event) == 64, "layout");
_Static_assert(sizeof(struct prof_mapping_key) == 16, "layout");
_Static_assert(sizeof(struct prof_mapping) == 16, "layout");
_Static_assert(sizeof(struct prof_mapping_range) == 32, "layout");
_Static_assert(sizeof(struct prof_file_key) == 16, "layout");
_Static_assert(sizeof(struct prof_target) == 16, "layout");
#endif

#endif
