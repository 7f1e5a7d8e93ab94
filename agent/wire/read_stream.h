/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's answers: a stream of records carried in the payloads of CONTROL_READ_CHUNK. A record
 * never spans two chunks, is 8-aligned and padded to 8, and refers only to modules, strings, stacks
 * and label sets that came before it in the same answer. Ids are dense from 1 (0 = none) and valid
 * in one answer. The last record of a complete answer is READ_END; an answer that failed has a
 * negative status and its reason as text in the chunk instead.
 *
 * Frames are words of bpf/profiler.h. MODULE frames carry the READ_MODULE id and the file offset of
 * the pc as it is in memory. With PROF_FRAME_RETURN the call lies before it, so names are looked up
 * at offset - 1. ADDRESS frames lie in no mapped file. Pure encode and decode. */
#ifndef PROFD_WIRE_READ_STREAM_H
#define PROFD_WIRE_READ_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/channel.h"
#include "agent/base/cleanup.h"
#include "agent/wire/control.h"

#define READ_CHUNK_MAX	  (CHANNEL_MESSAGE_MAX - sizeof(struct control_read_chunk)) /* bytes */
#define READ_FRAMES_MAX	  512u /* of one stack; a cut stack ends in PROF_FRAME_TRUNCATED */
#define READ_LABELS_MAX	  32u  /* labels of one goroutine */
#define READ_STRING_MAX	  8192u /* bytes; longer text is cut */
#define READ_BUILD_ID_MAX 32u
#define READ_GO_ID_MAX	  128u /* bytes; 83 in 1.26 */

enum read_kind {
	READ_TARGET = 1,    /* struct read_target: always the first record */
	READ_MODULE = 2,    /* struct read_module + path */
	READ_STRING = 3,    /* struct read_string + text */
	READ_STACK = 4,	    /* struct read_stack + frames + frame flags */
	READ_LABELS = 5,    /* struct read_labels + pairs of string ids */
	READ_GOROUTINE = 6, /* struct read_goroutine */
	READ_THREAD = 7,    /* struct read_thread */
	READ_PROFILE = 8,   /* struct read_profile: before the first bucket */
	READ_BUCKET = 9,    /* struct read_bucket */
	READ_END = 10,	    /* struct read_end */
	READ_HEAP = 11,	    /* struct read_heap */
	READ_SCRIPT = 12,   /* struct read_script */
	READ_NOTE = 13,	    /* struct read_note */
};

struct read_head {
	uint32_t kind; /* enum read_kind */
	uint32_t len;  /* bytes of the whole record, this head and padding included */
};

enum read_runtime { READ_RUNTIME_NATIVE = 0, READ_RUNTIME_GO = 1 };

struct read_target {
	struct read_head head;
	uint64_t start_boottime_ns; /* identity as checked */
	uint64_t monotonic_ns;	    /* when the reading began */
	uint64_t realtime_ns;
	uint32_t tgid;
	uint32_t runtime;  /* enum read_runtime */
	uint32_t go_minor; /* 26 of go1.26.8, 0 = unknown */
	uint32_t version_len;
	char version[32]; /* "go1.26.8", "" if unknown; not NUL-terminated when full */
};

enum read_module_kind {
	READ_MODULE_ELF = 1,
	READ_MODULE_VDSO = 2,
	READ_MODULE_SCRIPT = 3, /* offsets in it are ids of READ_SCRIPT, 0 = a frame without a name */
};

/* A mapped file, by every identity the reader could see. The collector's module keys follow from
 * the build-id (module_key_of_build_id()), without one from Go's build id (module_key_of_go_id());
 * without either the path joins them. */
struct read_module {
	struct read_head head;
	uint64_t inode;
	uint32_t dev_major; /* as /proc/PID/maps prints it */
	uint32_t dev_minor;
	uint32_t id;
	uint16_t path_len;
	uint8_t kind;	      /* enum read_module_kind */
	uint8_t build_id_len; /* GNU build-id, 0 = none */
	uint8_t build_id[READ_BUILD_ID_MAX];
	uint16_t go_id_len; /* text of the Go build id, 0 = none */
	uint16_t reserved[3];
	/* char path[path_len]: as the process names it, " (deleted)" removed; char go_id[go_id_len]
	 */
};

struct read_string {
	struct read_head head;
	uint32_t id;
	uint32_t len;
	/* char text[len] */
};

/* One script frame, as its module's frames refer to it. */
struct read_script {
	struct read_head head;
	uint32_t id;
	uint32_t function, file;   /* strings */
	uint32_t line, first_line; /* 0 = unknown */
	uint32_t reserved;
};

/* A sentence about what the answer leaves out, for the notes of the profile's quality. */
struct read_note {
	struct read_head head;
	uint32_t text; /* string */
	uint32_t reserved;
};

enum read_frame_flag {
	/* The function at this pc is a wrapper that the compiler made: Go's own listings leave it
	 * out (what is inlined into it stays). */
	READ_FRAME_WRAPPER = 1,
};

struct read_stack {
	struct read_head head;
	uint32_t id;
	uint16_t frame_count;
	uint8_t outcome; /* bpf/outcome.def below 32 */
	uint8_t reserved;
	/* uint64_t frames[frame_count], innermost first; uint8_t flags[frame_count]
	 * (read_frame_flag) */
};

struct read_labels {
	struct read_head head;
	uint32_t id;
	uint32_t count; /* of pairs */
	/* struct { uint32_t name, value; } string ids, ascending by name as the program keeps them
	 */
};

enum read_goroutine_flag {
	READ_GOROUTINE_SYSTEM = 1,	 /* the runtime's own; Go's dump does not list it */
	READ_GOROUTINE_LOCKED = 2,	 /* locked to its thread */
	READ_GOROUTINE_RUNNING = 4,	 /* on a CPU: has no stack in memory */
	READ_GOROUTINE_INCONSISTENT = 8, /* ran during both attempts to read it: state only */
	READ_GOROUTINE_LEAKED = 16,	 /* found unreachable by the runtime (1.26) */
	READ_GOROUTINE_ON_CHANNEL = 32,	 /* wait_object is the address of a channel */
	READ_GOROUTINE_ON_LOCK = 64,	 /* wait_object is the address of a sync.Mutex */
	READ_GOROUTINE_ON_SEMAPHORE =
		128, /* wait_object is the address of a runtime semaphore word */
	READ_GOROUTINE_BLOCKED =
		256, /* waits for another goroutine, a lock or a peer */
	READ_GOROUTINE_LOCK_WAIT = 512, /* for a sync.Mutex or sync.RWMutex */
};

struct read_goroutine {
	struct read_head head;
	uint64_t goid;
	uint64_t parent_goid;	/* 0 = unknown (before 1.21) */
	uint64_t created_frame; /* the go statement: a frame with PROF_FRAME_RETURN, 0 = unknown */
	uint64_t start_frame;	/* entry of the goroutine's function, 0 = unknown */
	uint64_t wait_ns;	/* it waits at least this long; 0 = not known */
	uint64_t wait_object;	/* see the flags; 0 = unknown */
	uint32_t stack;
	uint32_t state;	 /* string: running, runnable, waiting, syscall, … */
	uint32_t reason; /* string: Go's wait reason, 0 unless waiting */
	uint32_t labels;
	uint32_t tid;	/* thread that runs it or that it is locked to (profd's pid namespace); 0 */
	uint32_t flags; /* enum read_goroutine_flag */
};

struct read_thread {
	struct read_head head;
	uint64_t wait_object; /* futex address, 0 = none */
	uint32_t tid;
	uint32_t stack; /* user stack */
	uint32_t state; /* string: running, runnable, sleeping, blocked, stopped */
	uint32_t wait;	/* string: futex, epoll, pipe read, …; 0 unless sleeping or blocked */
	uint32_t name;	/* string: comm */
	uint32_t kernel_stack; /* string: lines "function+0x…", innermost first; 0 = not readable */
	int32_t syscall;       /* number, -1 = not in a system call or unknown */
	uint32_t flags;	       /* 0 */
};

/* The meaning of the buckets' values. */
struct read_profile {
	struct read_head head;
	uint32_t what;	       /* enum reader_profile */
	uint32_t rate_assumed; /* 1 = the target's rate could not be found: Go's default is used */
	uint64_t rate;	       /* MEMORY: MemProfileRate in bytes; BLOCK, MUTEX: 0 */
	double ticks_per_ns;   /* BLOCK, MUTEX: by which delays were divided */
	uint32_t before_gc; /* MEMORY: no GC has finished yet, the numbers are of allocations so far
			     */
	uint32_t reserved;
};

/* One stack (and size) of the runtime's own profile; several buckets may share a stack. Values are
 * unsampled. MEMORY: alloc objects, alloc bytes, in-use objects, in-use bytes as of the end of the
 * last mark but one (equal to runtime/pprof), then alloc objects and bytes up to now, for
 * differences. BLOCK, MUTEX: contentions, delay in ns. */
#define READ_BUCKET_VALUES 6
struct read_bucket {
	struct read_head head;
	uint64_t bucket;       /* its address: identity over the life of the process */
	uint64_t object_bytes; /* MEMORY: size of one object */
	int64_t values[READ_BUCKET_VALUES];
	uint32_t stack;
	uint32_t reserved;
};

#define READ_HEAP_SIZES                                                                            \
	64u /* chunks of 32, 48, … 1,040 bytes: those that glibc keeps by their size */

/* glibc's heap as a whole. Bytes are what blocks can hold, without the allocator's own headers. All
 * but resident_bytes is 0 with READER_RESIDENT_ONLY. */
struct read_heap {
	struct read_head head;
	uint64_t resident_bytes; /* the process's own memory (RssAnon, VmSwap), 0 = not known */
	uint64_t in_use_bytes; /* in the arenas */
	uint64_t in_use_blocks;
	uint64_t mapped_bytes; /* blocks with a mapping of their own (128 KB and more) */
	uint64_t mapped_blocks;
	uint64_t held_bytes;   /* by the arenas, from the kernel */
	uint64_t walked_bytes; /* of them chunks, free ones included */
	uint32_t arenas;
	uint32_t mapped_known; /* 0: what is said of mapped ones means nothing */
	uint32_t blocks_of[READ_HEAP_SIZES]; /* of the blocks in use, by the size of their chunks */
};

/* The place of chunks of @bytes (32 and more, a multiple of 16) among blocks_of; READ_HEAP_SIZES
 * and more: not counted. */
static inline uint64_t read_heap_size_of(uint64_t bytes)
{
	return (bytes - 32) / 16;
}

enum read_end_flag {
	READ_END_SAMPLED = 1, /* the deadline came first: read of listed, chosen without bias */
};

struct read_end {
	struct read_head head;
	uint64_t listed;       /* goroutines, threads or buckets that exist */
	uint64_t read;	       /* of them looked at (dead goroutines included) */
	uint64_t dead;	       /* goroutines: entries without a live goroutine */
	uint64_t inconsistent; /* goroutines without a stack because they ran meanwhile */
	uint64_t incomplete;   /* stacks that did not reach their end */
	uint64_t duration_ns;
	uint64_t cpu_ns; /* of the reader for this answer */
	uint32_t flags;	 /* enum read_end_flag */
	uint32_t reserved;
};

/* ---- writing --------------------------------------------------------------------------------- */

/* Collects records and hands full chunks to @flush; errors are sticky in @error. */
struct read_writer {
	int (*flush)(void *ctx, const void *data, size_t len); /* 0 or negative errno */
	void *ctx;
	size_t len;
	int error;
	_Alignas(8) uint8_t data[READ_CHUNK_MAX & ~(size_t)7];
};

void read_writer_init(struct read_writer *w, int (*flush)(void *, const void *, size_t), void *ctx);
/* Room for a record of @len bytes (head set, rest zero), NULL on error; valid until the next call.
 */
void *read_writer_record(struct read_writer *w, enum read_kind kind, size_t len);
/* @go_id has module->go_id_len bytes. */
void read_writer_module(struct read_writer *w, const struct read_module *module, const char *path,
			const char *go_id);
void read_writer_string(struct read_writer *w, uint32_t id, const char *text, size_t len);
void read_writer_stack(struct read_writer *w, uint32_t id, uint8_t outcome, const uint64_t *frames,
		       const uint8_t *flags, unsigned count);
void read_writer_labels(struct read_writer *w, uint32_t id, const uint32_t *pairs, unsigned count);
/* Records of fixed size: @record is one of the structs above with its head unset. */
void read_writer_fixed(struct read_writer *w, enum read_kind kind, const void *record, size_t size);
/* Flushes what is left. 0 or the first error. */
int read_writer_finish(struct read_writer *w) must_use;

/* ---- reading --------------------------------------------------------------------------------- */

/* One record, borrowed from the chunk. Variable parts are checked against the record's length. */
struct read_record {
	uint32_t kind; /* enum read_kind; unknown kinds are skipped by read_stream_next() */
	union {
		const void *any;
		const struct read_target *target;
		const struct read_module *module;
		const struct read_string *string;
		const struct read_stack *stack;
		const struct read_labels *labels;
		const struct read_goroutine *goroutine;
		const struct read_thread *thread;
		const struct read_profile *profile;
		const struct read_bucket *bucket;
		const struct read_heap *heap;
		const struct read_script *script;
		const struct read_note *note;
		const struct read_end *end;
	};
	const char *text;	/* MODULE: path, STRING: text; not NUL-terminated */
	const char *go_id;	/* MODULE; not NUL-terminated */
	const uint64_t *frames; /* STACK */
	const uint8_t *frame_flags;
	const uint32_t *pairs; /* LABELS */
};

/* The record at *@at of a chunk's payload (8-aligned memory), then *@at is behind it. 1 = got one,
 * 0 = at the end, -EPROTO = malformed: the whole answer is to be dropped. */
int read_stream_next(const void *payload, size_t len, size_t *at, struct read_record *ret) must_use;

#endif
