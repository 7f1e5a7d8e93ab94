/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages over agent/base/channel.h between the supervisor and its children, and between
 * server, collector, symbolizer and reader. Every message begins with struct channel_head. Fixed
 * layouts, host byte order; receivers check lengths and ranges. */
#ifndef PROFD_WIRE_CONTROL_H
#define PROFD_WIRE_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/channel.h"
#include "agent/wire/feed.h"
#include "bpf/script.h"

enum role { ROLE_SUPERVISOR, ROLE_COLLECTOR, ROLE_SYMBOLIZER, ROLE_SERVER, ROLE_READER, ROLE_MAX };

enum control_kind {
	/* supervisor -> child */
	CONTROL_PEER =
		1, /* struct control_peer + one descriptor: a new channel to a (re)started peer */
	CONTROL_STOP = 2, /* head only: finish, flush, exit 0 */
	CONTROL_LEAVE =
		5, /* head only, to the server: as STOP, but sessions go on in the next server */
	/* child -> supervisor */
	CONTROL_READY = 3,  /* head only: serving */
	CONTROL_FAILED = 4, /* struct control_failed: cannot start; not worth a restart */
	CONTROL_AGAIN =
		7, /* head only, of the server: it ends by itself, and another is needed at once */
	CONTROL_HUNG = 6,   /* head only, of the reader: it may not even end; another is needed */

	/* server -> collector */
	CONTROL_DEMAND = 16, /* struct control_demand: replaces the former demand */
	CONTROL_TARGET = 17, /* struct control_target */
	CONTROL_WANT = 18,   /* struct control_want: send these again */
	CONTROL_SWEEP =
		20, /* head only: what waits now becomes samples (a session begins or ends) */
	CONTROL_FLUSH = 21,    /* head only: what was sampled until now is delivered at once */
	CONTROL_FAMILIES = 22, /* struct control_families: replaces the former ones */
	/* collector -> server */
	CONTROL_STATUS = 19, /* struct control_status, after start and on change */

	/* collector -> symbolizer */
	CONTROL_INDEX = 32, /* struct control_index + file descriptor */
	CONTROL_DEBUG = 33, /* struct control_debug [+ descriptor]: answer to DEBUG_WANT */
	/* symbolizer -> collector */
	CONTROL_INDEXED = 34,	 /* struct control_indexed [+ memfd of the unwind table] */
	CONTROL_DEBUG_WANT = 35, /* struct control_debug_want */
	CONTROL_NAMES_WANT = 36, /* head with the request of a CONTROL_INDEX: again, with names;
				    they may have been lost */

	/* server -> symbolizer */
	CONTROL_NAMES = 48, /* struct control_names */
	CONTROL_FETCHER =
		50, /* head + one descriptor: a channel on which files are fetched from debuginfod,
		     * CONTROL_DEBUG_WANT answered by CONTROL_DEBUG; never sent where it is off */
	/* symbolizer -> server */
	CONTROL_NAMED = 49, /* struct control_named, possibly several per request */

	/* server -> reader */
	CONTROL_GOROUTINES = 64, /* struct control_read_target */
	CONTROL_GO_PROFILE = 65, /* struct control_read_target: heap, block, mutex buckets */
	CONTROL_THREADS = 66,	 /* struct control_read_target: threads of any program */
	CONTROL_HEAP = 67,	 /* struct control_read_target: glibc's heap, as a whole */
	/* reader -> server */
	CONTROL_READ_CHUNK = 68, /* struct control_read_chunk */

	/* collector -> reader */
	CONTROL_SCRIPT_CHECK = 80, /* struct control_script_check */
	CONTROL_SCRIPT_NAMES = 81, /* struct control_script_names */
	/* reader -> collector */
	CONTROL_SCRIPT_CHECKED = 82, /* struct control_script_checked */
	CONTROL_SCRIPT_NAMED = 83,   /* struct control_script_named, one or more per request */
};

struct control_peer {
	struct channel_head head;
	uint32_t role;	     /* enum role of the other end */
	uint32_t generation; /* of the process at the other end, from 1 */
};

struct control_failed {
	struct channel_head head;
	char text[480]; /* one line: what is missing and what to do */
};

/* Everything that the host must sample now. */
struct control_demand {
	struct channel_head head;
	uint32_t types;	    /* bits of enum prof_want over all sessions */
	uint32_t rate_hz;   /* of the host sampler, 0 = none */
	uint32_t fast_hz;   /* of the threads of processes with PROF_WANT_FAST, 0 = none */
	uint32_t sample_undecided; /* 1 = also processes without a decision yet */
	uint32_t on_demand; /* 1 = somebody asked for a profile: the larger CPU budget applies */
	uint32_t reserved;
	uint64_t off_threshold_ns;
};

/* Decision about one process instance; kept by the collector until exec or exit. */
struct control_target {
	struct channel_head head;
	uint32_t proc;	 /* id of FEED_PROC */
	uint32_t wanted; /* bits of enum prof_want, PROF_WANT_NONE */
};

/* A family: a process, its descendants that live (as far as their parents do), and whoever is born
 * to any of them from then on. Each says so in its FEED_PROC. */
struct control_family {
	uint64_t family; /* its name, not 0; never used for another, also by the next server */
	uint64_t start_boottime_ns; /* of its first process, as of FEED_PROC */
	uint32_t tgid;
	uint32_t reserved;
};

struct control_families {
	struct channel_head head;
	uint32_t count;
	uint32_t reserved;
	struct control_family items[FEED_FAMILIES_MAX];
};

#define CONTROL_WANT_MAX 512
enum control_want_kind {
	WANT_STACK = 1,
	WANT_MODULE = 2,
	WANT_PROC = 3,
	WANT_ALL = 4,
	WANT_LIVES = 5,
	WANT_ALLOC = 6,
	WANT_PORTS = 7
};
struct control_want {
	struct channel_head head;
	uint32_t what; /* enum control_want_kind; ALL: modules and processes, LIVES: processes that
			* began a moment ago, then FEED_PROC_CPU of all, PORTS: the same once it was
			* read where each of them listens; count 0. ALLOC: FEED_ALLOC of these
			* processes, whether they can be observed */
	uint32_t count;
	uint64_t ids[CONTROL_WANT_MAX];
};

struct control_status {
	struct channel_head head;
	uint32_t sampling;	 /* 1 = programs are attached */
	uint32_t hardware;	 /* 1 = hardware cycles, 0 = cpu-clock */
	uint32_t features_found; /* bits by index in agent/collect/kernel/features.h */
	uint32_t features_disabled;
	uint32_t types;		 /* bits of enum prof_want that this host can be sampled for */
	uint32_t loading;	 /* 1 = programs are being loaded, and until then it answers nothing else */
	uint32_t listed;	 /* 1 = every running process is in the feed: WANT_ALL has been done */
	uint32_t hung_readers;	 /* that do not end: agent/collect/modules/slow_files.h, isolation.h */
	char failure[480];	 /* "" or why this host cannot be profiled and the remedy */
};

/* ---- collector <-> symbolizer ------------------------------------------------------------------
 */

struct control_index {
	struct channel_head head; /* request id chosen by the collector */
	uint32_t kind;		  /* enum feed_module_kind: ELF, KERNEL (descriptor of kallsyms), VDSO, JIT
				   * (descriptor of the process's perf map or jitdump, which grows) */
	uint32_t want_rows;	  /* 1 = also compile unwind rows */
	uint32_t names_later;	  /* 1 = its names are not wanted yet; ELF only */
	uint8_t build_id_len;	  /* KERNEL: from /sys/kernel/notes; JIT: 8; else 0 */
	uint8_t build_id[FEED_BUILD_ID_MAX]; /* JIT: the module's key, whose offsets are the low 40 bits of
					      * addresses; the answer has INDEXED_SYMBOLS if it serves it */
	uint8_t reserved[7];
	uint64_t voucher;	  /* who could have written it (agent/wire/module_key.h); ELF only */
	char path[4096];	  /* as the process names it; only for messages */
};

enum control_index_flag {
	INDEXED_FP = 1,	  /* frame pointers proven for >= 95 % of the text */
	INDEXED_GO = 2,
	INDEXED_ROWS = 4, /* a table came along */
	INDEXED_SYMBOLS = 8,
	INDEXED_DEBUG = 16,
};

/* ---- allocators (symbolize/alloc_sites.h) -------------------------------------------------------
 */

enum alloc_kind {
	ALLOC_MALLOC = 1,	  /* (size) */
	ALLOC_CALLOC = 2,	  /* (count, size) */
	ALLOC_REALLOC = 3,	  /* (pointer, size) */
	ALLOC_ALIGNED = 4,	  /* (alignment, size) */
	ALLOC_POSIX_MEMALIGN = 5, /* (pointer to result, alignment, size) */
	ALLOC_FREE = 6,		  /* (pointer) */
	ALLOC_KIND_MAX,
};

enum alloc_family {
	ALLOC_FAMILY_NONE = 0, /* the file defines no allocator */
	ALLOC_FAMILY_OTHER = 1,
	ALLOC_FAMILY_GLIBC = 2,
	ALLOC_FAMILY_MUSL = 3,
	ALLOC_FAMILY_JEMALLOC = 4,
	ALLOC_FAMILY_TCMALLOC = 5,
	ALLOC_FAMILY_MIMALLOC = 6,
	ALLOC_FAMILY_MAX,
};

enum alloc_site_flag {
	ALLOC_SITE_STEPPED = 1, /* no instruction that the kernel emulates was found: a hit costs 10 us */
};

#define ALLOC_SITES_MAX	      16u
#define ALLOC_SITE_CODE_BYTES 16u
struct control_alloc_site {
	uint64_t fo;	     /* file offset of the instruction */
	uint8_t kind;	     /* enum alloc_kind */
	uint8_t flags;	     /* enum alloc_site_flag */
	uint8_t argument[3]; /* register that holds each argument, as instructions number them */
	uint8_t pushed;	     /* words pushed since the function was entered */
	uint8_t code_len;
	uint8_t reserved;
	uint8_t code[ALLOC_SITE_CODE_BYTES]; /* the file's bytes from fo on */
};

struct control_indexed {
	struct channel_head head; /* echoes the request */
	int32_t status;		  /* 0 or negative errno (-ENOEXEC not ELF, -E2BIG over a bound) */
	uint32_t flags;		  /* enum control_index_flag */
	uint64_t key;		  /* the module's stable identity */
	uint64_t table_bytes;
	uint32_t row_count;
	uint32_t runtime;	  /* enum feed_proc_flag bits of the runtime it is (GO, JVM, PYTHON, PHP,
				   * RUBY, PERL, NODE with V8_...) */
	uint8_t build_id_len;
	uint8_t build_id[FEED_BUILD_ID_MAX];
	uint8_t alloc_family; /* enum alloc_family */
	uint8_t alloc_count;
	uint8_t reserved[5];
	struct control_alloc_site alloc_sites[ALLOC_SITES_MAX];
	struct script_runtime script; /* kind SCRIPT_NONE: no interpreter, or one that is not supported */
};

/* Kinds of files beside a module. The symbolizer checks their contents. */
enum control_debug_kind {
	DEBUG_FILE = 1,	   /* its separate debug file: by build-id, else @name is the link's */
	DEBUG_ALT = 2,	   /* supplementary file of dwz: by build-id, else @name from .gnu_debugaltlink */
	DEBUG_PACKAGE = 3, /* .dwp: beside the module, or by its build-id */
	DEBUG_SPLIT = 4,   /* .dwo: @name, a path as the compiler saw it; else beside the module */
};

#define CONTROL_DEBUG_NAME_MAX 4096
struct control_debug_want {
	struct channel_head head; /* echoed by the answer */
	uint8_t build_id_len;
	uint8_t build_id[FEED_BUILD_ID_MAX];
	uint8_t reserved[3];
	uint32_t kind;		  /* enum control_debug_kind */
	uint32_t index_request;	  /* of the CONTROL_INDEX this is about: gives the module's path;
				   * 0 = one of the past, known by its build-id alone */
	char name[CONTROL_DEBUG_NAME_MAX]; /* NUL-terminated; "" = by build-id only */
};

struct control_debug {
	struct channel_head head;
	int32_t status; /* 0 with a descriptor, -ENOENT */
	uint32_t reserved;
	uint64_t voucher; /* who could have written the file (agent/wire/module_key.h) */
};

/* ---- server <-> symbolizer ---------------------------------------------------------------------
 */

#define CONTROL_NAMES_MAX 1024
struct control_names {
	struct channel_head head;
	uint64_t key;	/* module */
	uint32_t count;
	uint32_t reserved;
	uint64_t offsets[CONTROL_NAMES_MAX]; /* file offsets (kernel: from _text) already moved back by one
					      * for return addresses */
};

/* How long names hold. */
enum names_state {
	NAMES_FINAL = 0,
	NAMES_MAY_IMPROVE = 1, /* debug information for the module may appear */
	NAMES_CHANGE = 2,      /* of JIT code: tomorrow other code may be at the same address (see
				  NAMED_CHANGES, too) */
	NAMES_COMING =
		3, /* the module's file is being read: names, or better ones, within seconds */
};

/* Answers come in request order; each answer carries entries until it is full, the last has more =
 * 0.
 * Payload: for each offset, u16 frame count n (0 = unknown), then n frames innermost first:
 *   u32 line, u32 function start line (and NAMED_WRAPPER, NAMED_CHANGES), strings {u16 len,
 *   bytes}: function (demangled), file,
 *   the symbol that function was demangled from ("" = the same). A function that has no name is
 *   one frame, function "",
 *   with the number of bytes from its start to the offset as line. */
#define NAMED_WRAPPER                                                                              \
	(1u << 31) /* made by Go's compiler, which leaves such frames out of its own listings */
#define NAMED_CHANGES                                                                              \
	(1u << 30) /* of a kernel module or BPF program: after the next boot, or sooner, the place \
		      is another's */
struct control_named {
	struct channel_head head;
	int32_t status; /* 0; -ENOENT: module unknown to the symbolizer */
	uint32_t first; /* index of the first offset answered here */
	uint32_t count;
	uint32_t more;
	uint32_t state; /* enum names_state */
	uint32_t reserved;
	/* payload */
};

/* ---- server <-> reader ----------------------------------------------------------------------- */

/* CONTROL_GO_PROFILE: which list of the runtime. */
enum reader_profile { READER_MEMORY = 1, READER_BLOCK = 2, READER_MUTEX = 3 };

enum reader_flag {
	/* CONTROL_GOROUTINES, for sampling block and mutex from states: only those that wait for other
	 * goroutines (no IO wait, none of the runtime itself), or only for locks among them. */
	READER_BLOCKED_ONLY = 1,
	READER_LOCKS_ONLY = 2,
	/* CONTROL_HEAP: only how much of the process is resident, whatever its allocator. */
	READER_RESIDENT_ONLY = 4,
	/* CONTROL_THREADS: also the asyncio tasks of a CPython process, as READ_GOROUTINE records. */
	READER_TASKS = 8,
};

struct control_read_target {
	struct channel_head head;
	uint32_t tgid;
	uint32_t what;	  /* CONTROL_GO_PROFILE: enum reader_profile */
	uint64_t start_boottime_ns; /* identity, checked before and after */
	uint32_t deadline_ms;	    /* 1…60000, for the whole answer; goroutines are then sampled */
	uint32_t flags;		    /* bits of enum reader_flag */
};

/* Pieces of an answer, whole records of agent/wire/read_stream.h each. A failure ends the answer
 * (more = 0) and drops what came before: -ESRCH the process is gone or another one, -EPERM,
 * -ENOEXEC not a Go program, -EOPNOTSUPP a Go version or layout that cannot be read, -ENODATA the
 * profile is off in the target, -ETIMEDOUT the deadline passed, -EHOSTDOWN the reader hangs in the
 * target's memory and answers nobody any more, -EAGAIN too early in the target's life, -EIO memory
 * changed under every attempt. */
struct control_read_chunk {
	struct channel_head head;
	int32_t status; /* 0 or negative errno with one sentence as payload */
	uint32_t more;
	uint32_t len;
	uint32_t reserved;
	/* payload */
};

/* ---- collector <-> reader ----------------------------------------------------------------------
 */

/* Asks whether @runtime describes the process, by the chains of its live threads, and for the facts
 * that only the process knows: struct script_python tls_at and tss_at. Every address has its bias.
 */
struct control_script_check {
	struct channel_head head; /* request id chosen by the collector */
	uint32_t tgid;
	uint32_t reserved;
	uint64_t start_boottime_ns; /* identity of the process, checked before and after */
	struct script_runtime runtime;
};

/* The answer. @status 0: @runtime is complete and the layout was seen to fit. -EAGAIN: no thread
 * runs script code yet, ask again later. -EOPNOTSUPP: the layout does not fit; the version is not
 * supported, or the memory was made to look like a runtime. -ESRCH: the process is gone or another
 * one. -EPERM, -ETIMEDOUT: it could not be read. */
struct control_script_checked {
	struct channel_head head; /* echoes the request */
	int32_t status;
	uint32_t reserved;
	struct script_runtime runtime;
};

/* The two words of a script frame, see bpf/script.h. */
struct control_script_place {
	uint64_t a, b;
};

/* Asks for the names of script frames of one process. The reader keeps nothing that it needs for
 * the answer: @runtime is what CONTROL_SCRIPT_CHECKED said. */
#define CONTROL_SCRIPT_PLACES_MAX 256u
struct control_script_names {
	struct channel_head head;
	uint32_t tgid;
	uint32_t count;
	uint64_t start_boottime_ns;
	struct script_runtime runtime;
	struct control_script_place places[CONTROL_SCRIPT_PLACES_MAX]; /* @count of them are sent */
};

/* Answers come in the order of the places; each carries entries until it is full, the last one has
 * more = 0. @status is 0, or -ESRCH, -EPERM, -ETIMEDOUT as above: then no entries follow.
 * Payload: for each place u16 count of the functions there, innermost first, and for each of them
 *   u32 line, u32 first line of the function (0 = none) and, above it, enum feed_tier and
 *   FEED_APPROXIMATE, strings {u16 len, bytes}: function, file.
 * More than one: the others have it inlined. CPython's function is the qualified name (3.11+), else
 * the name; Java's is package.Class.method. UTF-8. No function: the cookie does not fit any more,
 * or the memory could not be read. file "" and line 0 alike. */
#define SCRIPT_NAME_MAX	       1024u /* bytes of a function or file; a longer file keeps its end */
#define SCRIPT_FUNCTIONS_MAX   16u   /* of one place */
#define SCRIPT_ENTRY_BYTES_MAX 32768u /* of one place */
struct control_script_named {
	struct channel_head head; /* echoes the request */
	int32_t status;
	uint32_t first; /* index of the first place answered here */
	uint32_t count;
	uint32_t more;
	/* payload */
};

#endif
