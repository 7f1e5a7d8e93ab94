/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes inside the chunks of a session (agent/store/store.h), both directions. Integers are
 * LEB128 varints unless said otherwise, "zz" is zig-zag, str is {varint length, bytes}. A session
 * numbers its own modules, processes, pairs and attrs from 0, so its file does not depend on the
 * collector that ran.
 *
 *   MODULES    n, n * {id, key u64, kind u8, build-id str, path str}
 *   PROCESSES  n, n * {id, tgid, parent tgid, uid, exec generation, flags, start boottime ns u64,
 *              start realtime ns u64, comm, exe, cmdline, service, unit, container: str};
 *              container = NAME=value lines of struct feed_proc
 *   STACKS     n, n * {id u64, outcome u8, frames shared with the stack before, further frames m, m
 *              * frame}; frames root first, stacks sorted, so that each prefix is written once.
 *              frame = module id << 6 | kind << 2 | return << 1 | guessed, then offset or address
 *   SAMPLES    seq, base time ns u64, first pair id, n, n * {user u64, kernel u64}, first attr id,
 *              n, n * {process, tid, type u8, state u8, comm str, detail u8, object, holder},
 *              events n, then by column: n * time step zz, n * pair, n * attr, n * value zz, n *
 *              value2
 *   NAMES      strings n, n * {str, NUL}, places n, n * {module key u64, offset, m, m * {function,
 *              package, file (indices of strings), line, start line (bit 31: a wrapper), kind u8}}
 *   QUALITY    struct chunk_quality, field by field
 *   window     (data of struct store_window) n; then by column, ascending by (pair, attr): n * pair
 *              step, n * attr, n * value zz, n * value2; the ids are the day's
 *   hour       (data of an hour) flags, value of a sample zz, key k, bytes of each column; then by
 *              column, ascending by (pair, attr), n keys of m sums, each pair given by its place
 *              (pair_places.h): n * pair step, n * sums (ones), m * value2 (/ 1024 if flag 1;
 *              ones), m * value zz (absent if flag 2: value2 / 1024 * value of a sample); attrs of
 *              the hour (step zz), last the attrs of one minute only, by that minute; the minutes
 *              of these (step); place of the attr (of those of one minute: number of the others +
 *              place among those of the key's first minute): of the first key of a pair, of others
 *              as a step zz from the key before; the first k keys' first minute, the other keys' as
 *              a step zz from that of the key before; (m - n) * steps from one minute of a key to
 *              the next - 1: of keys of fewer than 8 minutes, of others. "ones" lists each number
 *              that is not 1: ones before it << 1 | (it is not 2), then it - 2 if so, 0 for 0
 *   SETTLED    settled.h
 *   DETAIL     (single samples of continuous profiling, while they are kept) to its end: series
 *              u64, minute since 1970, bytes of the rest: flags, value of all zz (if flag 2), keys
 *              n, samples m, then by column: n * pair step, n * attr, both ascending, m * time step
 *              in ticks since the minute's begin, m * key, m * value2 (absent if flag 1: 1024
 *              each), m * value zz (absent if flag 2); the ids are the day's
 *
 * Dictionary entries may come twice; the first counts. SAMPLES chunks are numbered from 0 by seq.
 * Decoders take hostile bytes: -EPROTO, and the sink has then seen a part. Pure. */
#ifndef PROFD_RECORDING_SESSION_CHUNKS_H
#define PROFD_RECORDING_SESSION_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "agent/profile/function_sums.h"
#include "agent/profile/names.h"
#include "agent/profile/profile.h"
#include "agent/wire/feed.h"
#include "agent/wire/read_stream.h"
#include "bpf/profiler.h"

/* Ends of the columns of a chunk. Columns differ in nature, so each is compressed on its own
 * (struct store_chunk). */
#define CHUNK_PARTS_MAX 48u
struct chunk_parts {
	uint32_t ends[CHUNK_PARTS_MAX];
	uint32_t count;
};

struct chunk_text {
	const char *text; /* not NUL-terminated when decoded */
	size_t len;
};
static inline struct chunk_text chunk_text_of(const char *text)
{
	return (struct chunk_text){ text, strlen(text) };
}

struct chunk_module {
	uint32_t id;
	uint64_t key;
	uint8_t kind; /* enum feed_module_kind */
	uint8_t build_id_len;
	const uint8_t *build_id;
	struct chunk_text path;
};

struct chunk_process {
	uint32_t id;
	uint32_t tgid, parent_tgid, uid, exec_generation, flags;
	uint64_t start_boottime_ns;
	uint64_t started_at_ns; /* realtime */
	struct chunk_text comm, exe, cmdline, service, unit, container;
};

struct chunk_stack {
	uint64_t id;
	uint8_t outcome;
	uint16_t frame_count;
	const uint64_t *frames; /* leaf first; modules by the session's ids */
};

/* Pair 0 of every session is the overflow bucket: stacks beyond the limit. */
#define CHUNK_PAIR_OVERFLOW 0u
struct chunk_pair {
	uint64_t user, kernel; /* stack ids, 0 = none */
};

/* State of PROF_SAMPLE_IO: such an event is the sum of calls within a second, none of which chance
 * has left out. */
#define CHUNK_IO_SUM 1u

struct chunk_attr {
	uint32_t process;
	uint32_t tid;
	uint8_t type;  /* enum prof_sample_type */
	uint8_t state; /* as in struct feed_sample, but for CHUNK_IO_SUM */
	char comm[16]; /* NUL-padded */
	/* As in struct feed_sample; 0 in sessions whose type has no use for them. */
	uint8_t detail;
	uint32_t holder;
	uint64_t object;
};

/* state of a CPU sample that only says where a thread ran: of a view of threads. */
#define CHUNK_CPU_SEEN 1u
static inline bool chunk_attr_is_seen(const struct chunk_attr *attr)
{
	return attr->type == PROF_SAMPLE_CPU && attr->state == CHUNK_CPU_SEEN;
}

struct chunk_event {
	uint64_t time_ns; /* monotonic */
	uint32_t pair, attr;
	int64_t value;
	uint64_t value2;
};

/* Sum over a minute. value2: for cpu events * 1024, else as in the events. */
struct chunk_sum {
	uint32_t pair, attr;
	int64_t value;
	uint64_t value2;
};

struct chunk_hour_sum {
	struct chunk_sum sum;
	uint32_t minute; /* 0…59 */
};

/* Samples of one series in one minute, or in a part of it, as they are stored. */
struct chunk_detail {
	uint64_t series;    /* detail_series() */
	uint64_t minute_ns; /* realtime of its begin */
	const void *data;
	size_t len;
};
#define CHUNK_DETAIL_TICK_NS (100000ull) /* to which times of single samples are kept */

struct chunk_samples {
	uint32_t seq;
	uint32_t first_pair, pair_count;
	const struct chunk_pair *pairs;
	uint32_t first_attr, attr_count;
	const struct chunk_attr *attrs;
	uint32_t event_count;
	const struct chunk_event *events; /* ascending time */
};

/* Bytes that glibc's heaps had in use at the end, whenever they were allocated; bytes 0 = not
 * known. With other allocators only the processes' memory as a whole is known. */
struct chunk_heap {
	uint64_t resident_bytes; /* at the end, of all that were observed; 0 = not known */
	uint64_t bytes, blocks;
	uint64_t mapped_bytes; /* of them in blocks with a mapping of their own */
	uint64_t walked_bytes; /* read for it, free chunks included */
	uint64_t before_bytes; /* without those mappings, soon after the session began; 0 = not known */
};

/* How allocations were observed, summed over periods and processes (struct feed_alloc). */
struct chunk_alloc {
	uint64_t since_ns; /* monotonic */
	uint64_t windows, full;
	uint64_t period_ns, window_ns, cpu_ns, cost_ns;
	uint64_t hits, sampled, lost;
	uint64_t gap_bytes;
	uint64_t dilation_sum; /* percent */
	uint32_t families;     /* bits of enum alloc_family */
	uint32_t pooled;       /* processes that divide up larger blocks by themselves: 1 = some */
	uint64_t window_cpu_ns; /* of cpu_ns while the probes were open */
	uint64_t faulted_bytes; /* of memory that was touched for the first time */
	struct chunk_heap heap;
	uint32_t grown_count;
	struct profile_grown grown[PROFILE_GROWN_MAX];
	uint32_t blocks_of[READ_HEAP_SIZES]; /* of heap.blocks, by size; all 0 = not known */
};

/* Counters since the session began; the last chunk counts. */
struct chunk_quality {
	uint64_t last_ns;	 /* monotonic: everything before is in the file */
	uint64_t samples;
	uint64_t host_samples;	 /* of the same type, all processes, while the session ran */
	uint64_t host_lost;	 /* events lost on the host meanwhile */
	int64_t value, value2;
	struct clock_triple clock; /* at the session's start */
	uint64_t cost_ns;	   /* collector and BPF, since cost_from_ns */
	uint64_t cost_from_ns, cost_to_ns; /* monotonic */
	uint32_t note_count;
	char notes[8][160];
	uint32_t skipped_count;
	struct profile_skipped skipped[PROFILE_SKIPPED_MAX];
	struct chunk_alloc alloc; /* behind all others, absent in files of earlier versions */
	uint64_t type_cost_ns; /* of cost_ns: the BPF programs that the type is taken by; likewise */
	uint64_t on_cpu_samples, on_cpu_ns; /* of samples and value: taken of running threads; likewise */
};

struct chunk_name {
	uint64_t key, offset;
	unsigned frame_count;
	const struct name_frame *frames; /* texts NUL-terminated */
};

/* ---- encoding: appends to @out, whose sticky error the caller looks at ----------------------- */

void chunk_encode_modules(struct buf *out, const struct chunk_module *modules, size_t count);
/* Columns one after the other, after the length of each; @parts (NULL = nobody asks) learns where
 * they end. They are spent. */
void chunk_encode_columns(struct buf *out, struct buf *columns, unsigned count,
			  struct chunk_parts *parts);
/* One entry; the chunk is their count as a varint and the entries. */
void chunk_encode_process(struct buf *out, const struct chunk_process *process);
/* For qsort(): by frames, from the root. */
int chunk_compare_stacks(const void *a, const void *b);
/* Sorts @stacks. */
void chunk_encode_stacks(struct buf *out, struct chunk_stack *stacks, size_t count);
void chunk_encode_samples(struct buf *out, const struct chunk_samples *samples);
/* Sorts @sums; those with value 0 and value2 0 are left out. */
void chunk_encode_window(struct buf *out, struct chunk_sum *sums, size_t count);
/* Sorts @sums and adds up those of one minute, pair and attr. @parts as above. */
void chunk_encode_hour(struct buf *out, struct chunk_hour_sum *sums, size_t count,
		       struct chunk_parts *parts);
/* Sorts @events, whose times are realtime and lie in the minute. */
void chunk_encode_detail(struct buf *out, uint64_t series, uint64_t minute_ns,
			 struct chunk_event *events, size_t count);
void chunk_encode_quality(struct buf *out, const struct chunk_quality *quality);

/* ---- decoding -------------------------------------------------------------------------------- */

/* The stacks of a settled chunk's pairs as one tree. Pairs are in the order of their user stacks,
 * each once. A code is 0 for none, CHUNK_CODE_MISSING where the frames never came, else node +
 * CHUNK_CODE_NODE. */
#define CHUNK_CODE_MISSING 1u
#define CHUNK_CODE_NODE	   2u
struct chunk_tree {
	struct stack_tree stacks;
	uint32_t first_pair, pair_count;
	const uint32_t *pairs;	       /* their numbers from first_pair on */
	const uint32_t *user, *kernel; /* codes */
};

/* Each may be NULL. Pointers are valid during the call. <0 stops with that error. */
struct chunk_sink {
	void *ctx;
	int (*module)(void *ctx, const struct chunk_module *module);
	int (*process)(void *ctx, const struct chunk_process *process);
	int (*stack)(void *ctx, const struct chunk_stack *stack);
	/* Before a stack of a settled chunk is put together; NULL = all are wanted. */
	bool (*wants_stack)(void *ctx, uint64_t id);
	/* A settled chunk has this instead of pairs and stacks. */
	int (*tree)(void *ctx, const struct chunk_tree *tree);
	/* Once before its pairs, attrs and events; return 1 to skip the chunk. */
	int (*samples)(void *ctx, uint32_t seq);
	int (*pair)(void *ctx, uint32_t id, const struct chunk_pair *pair);
	int (*attr)(void *ctx, uint32_t id, const struct chunk_attr *attr);
	int (*event)(void *ctx, const struct chunk_event *event);
	int (*quality)(void *ctx, const struct chunk_quality *quality);
	int (*name)(void *ctx, const struct chunk_name *name);
};
/* The content of a chunk of one kind to its callbacks. chunk_decode() chooses by the kind. -EPROTO,
 * or what a callback returned. */
int chunk_decode_modules(struct bytes *in, const struct chunk_sink *sink) must_use;
int chunk_decode_processes(struct bytes *in, const struct chunk_sink *sink) must_use;
int chunk_decode_stacks(struct bytes *in, const struct chunk_sink *sink) must_use;
int chunk_decode_samples(struct bytes *in, const struct chunk_sink *sink) must_use;
int chunk_decode_quality(struct bytes *in, const struct chunk_sink *sink) must_use;

/* The other way round: the first @needed of @count columns; the others need not be there. -EPROTO.
 */
int chunk_decode_columns(struct bytes *in, struct bytes *columns, unsigned count, unsigned needed)
	must_use;

typedef int chunk_sum_fn(void *ctx, const struct chunk_sum *sum);
int chunk_decode_window(const void *data, size_t len, chunk_sum_fn *visit, void *ctx) must_use;

/* Sums of the minutes in [@from, @to). */
typedef int chunk_hour_fn(void *ctx, const struct chunk_hour_sum *sum);
int chunk_decode_hour(const void *data, size_t len, uint32_t from, uint32_t to,
		      chunk_hour_fn *visit, void *ctx) must_use;
/* All minutes and attributes of a pair as one: added to those of its place among @count. */
struct chunk_pair_sum { /* as of struct chunk_sum */
	int64_t value;
	uint64_t value2;
};
int chunk_add_hour_pairs(const void *data, size_t len, struct chunk_pair_sum *sums, size_t count)
	must_use;
/* For that so many of the hour's first bytes are enough, told by its first @len; SIZE_MAX: these
 * are too few to tell. */
size_t chunk_hour_pairs_need(const void *data, size_t len);

/* A DETAIL chunk piece by piece, and the samples of a piece by time (realtime). */
typedef int chunk_detail_fn(void *ctx, const struct chunk_detail *detail);
int chunk_decode_details(const void *data, size_t len, chunk_detail_fn *visit, void *ctx) must_use;
typedef int chunk_event_fn(void *ctx, const struct chunk_event *event);
int chunk_decode_detail(const struct chunk_detail *detail, chunk_event_fn *visit, void *ctx)
	must_use;

/* ---- names ----------------------------------------------------------------------------------- */

/* Collects names and encodes them into one chunk. */
struct name_chunk;
struct name_chunk *name_chunk_create(void);
void name_chunk_destroy(struct name_chunk *chunk);
CLEANUP_DEFINE(name_chunk, struct name_chunk *, name_chunk_destroy);
int name_chunk_add(struct name_chunk *chunk, const struct chunk_name *name) must_use;
size_t name_chunk_count(const struct name_chunk *chunk);
void name_chunk_encode(const struct name_chunk *chunk, struct buf *out);
int name_chunk_decode(struct bytes *in, const struct chunk_sink *sink) must_use;

#endif
