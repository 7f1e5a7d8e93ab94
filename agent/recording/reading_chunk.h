/* SPDX-License-Identifier: Apache-2.0 */
/* STORE_CHUNK_READINGS: what was read of one process at one moment (agent/session/snapshot).
 * Integers are LEB128 varints unless said otherwise.
 *
 *   seq u32, process u32, round, phase u8, last u8
 *   wrappers n, n * frame u64
 *   strings n, n * str                             used by what follows as index + 1, 0 = ""
 *   label sets n, n * {m, m * {name, value}}       likewise
 *   kinds n, n * {stack, created, start: stack ids; bucket u64, value zz, value zz, state, wait,
 *   name,
 *                 kernel: strings; labels, flags}
 *   items n, n * {kind, goid, wait ns, tid, object if the kind's flags say so: zz, less those of
 *   the
 *                 item before}
 *
 * Most of many goroutines differ from others of their kind in little but their number. Stacks, and
 * the single frames of `created` and `start`, are in STACKS chunks. The first three numbers have
 * fixed places because they are known only when the chunk is handed over. Pure. */
#ifndef PROFD_RECORDING_READING_CHUNK_H
#define PROFD_RECORDING_READING_CHUNK_H

#include "agent/recording/reading.h"
#include "agent/recording/session_chunks.h"

/* The bucket of an item that says: this process was read at the beginning, even if it had none. */
#define READING_STARTED 1u

#define READING_HAS_OBJECT (1u << 16) /* beside the bits of enum read_goroutine_flag */

enum reading_phase {
	READING_START = 1, /* only buckets and their values: what is subtracted at the end */
	READING_END = 2,
	READING_STATES = 3, /* sums of goroutine states: all rounds count */
};

struct chunk_reading {
	uint32_t seq;
	uint32_t process;
	uint32_t round; /* of READING_END only the highest counts: an earlier one was cut short */
	uint8_t phase;	/* enum reading_phase */
	bool last;	/* of its phase and round */
};

struct chunk_label {
	struct chunk_text name, value;
};

struct chunk_item {
	uint64_t stack, created, start; /* stack ids, 0 = none */
	uint64_t goid, bucket, wait_ns, object;
	int64_t values[2];
	struct chunk_text state, wait, name, kernel;
	const struct chunk_label *labels;
	uint32_t label_count;
	uint32_t tid, flags;
};

struct reading_encoding {
	uint8_t phase;
	uint32_t round;
	uint64_t stack_base; /* + the reading's stack id is the id in the session */
};

/* Items [@from, @to) of @reading into a chunk; seq, process and last are set later. */
int reading_chunk_encode(struct buf *out, const struct reading *reading,
			 const struct reading_encoding *encoding, size_t from, size_t to) must_use;
void reading_chunk_place(struct buf *chunk, uint32_t seq, uint32_t process, bool last);
/* Stack id of a frame that stands alone (created, start); the base is the encoding's. */
uint64_t reading_frame_stack(const struct reading_encoding *encoding, uint64_t frame);

/* Each may be NULL; <0 stops with that error. */
struct reading_sink {
	void *ctx;
	int (*reading)(void *ctx, const struct chunk_reading *head); /* 1 = skip the chunk */
	int (*wrapper)(void *ctx, uint64_t frame);
	int (*item)(void *ctx, const struct chunk_reading *head, const struct chunk_item *item);
};
/* -EPROTO: hostile or damaged; the sink has seen a part. */
int reading_chunk_decode(const void *data, size_t len, const struct reading_sink *sink) must_use;

#endif
