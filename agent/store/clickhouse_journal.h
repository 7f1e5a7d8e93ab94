/* SPDX-License-Identifier: Apache-2.0 */
/* Operations for the server, durable on this host until the server has done them: one after the
 * other, in files below clickhouse/ of the data directory.
 *
 *   file  = head "PROFCHJ1", frame*          names: 16 hexadecimal digits, ascending, ".journal"
 *   frame = {magic u32, table u32, length u32, crc32c of the bytes u32, number u64,
 *            partition u64, crc32c of the head before u32, zeros u32}, bytes, zeros to 8
 *
 * Table 0: the bytes are a statement; others: rows of that table (clickhouse_sql.h). Little-endian.
 * Numbers ascend for ever. A number is the time in ns where that is larger than the last number.
 * It is even, so that a marker of deletion has a number between. A tail that is no whole frame does
 * not exist: it is cut off at open. Damage inside costs the frame it lies in.
 *
 * Thread rule: any thread writes, one thread sends. No lock is held for longer than a write. */
#ifndef PROFD_STORE_CLICKHOUSE_JOURNAL_H
#define PROFD_STORE_CLICKHOUSE_JOURNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/vec.h"

#define JOURNAL_MAX_BYTES     (256ull << 20) /* on the disk; beyond it nothing is taken */
#define JOURNAL_URGENT_BYTES  (1u << 20)     /* beyond that, for how something ended */
#define JOURNAL_SEGMENT_BYTES (8u << 20)     /* a file that is larger is followed by another */

/* ---- frames: pure ---------------------------------------------------------------------------- */

struct journal_op {
	uint32_t table; /* 0 = a statement */
	uint64_t number, partition; /* operations of one table and partition may go as one */
	const void *data; /* in the file's bytes */
	size_t len;
};

/* The next whole frame at or after @at (8-aligned, 8 for the first) in the bytes of a file. 1:
 * @ret, and @ret_end is behind it; 0: there is none, *ret_end is where the last one ended at best
 * (@at). @ret_skipped: bytes before it that are none. */
int journal_next_frame(const void *data, size_t len, size_t at, struct journal_op *ret,
		       size_t *ret_end, size_t *ret_skipped) must_use;
void journal_add_frame(struct buf *out, const struct journal_op *op);

/* ---- the files ------------------------------------------------------------------------------- */

struct journal_segment {
	uint64_t name;
	uint64_t size; /* durable */
};
VEC_DEFINE(segments, struct journal_segment);

struct journal {
	char *path; /* of the folder */
	int dir_fd, fd; /* fd: of the last segment; -1 = none yet */
	uint64_t max_bytes; /* JOURNAL_MAX_BYTES */
	pthread_mutex_t write_lock; /* writers; taken first */
	uint64_t given; /* last number */

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed; /* something was written, done, or failed; monotonic clock */
	struct segments_vec segments; /* the first is being sent */
	uint64_t at; /* in the first: what is before was done */
	uint64_t bytes; /* of all */
	uint64_t written, done; /* numbers: all up to them are */
	uint64_t damaged; /* frames that could not be read */
	uint64_t emptied_ns; /* of whoever sends: monotonic, when the last file was */
};

/* @dir_fd: the data directory, @path: its name. What a crash left is repaired. */
int journal_open(int dir_fd, const char *path, struct journal **ret, struct err *err) must_use;
/* A journal whose operations are all done leaves no file. */
void journal_close(struct journal *journal);
CLEANUP_DEFINE(journal, struct journal *, journal_close);

/* Numbers given from now on are larger. */
void journal_raise(struct journal *journal, uint64_t number);
/* Begins an operation: nobody else can write until it is written or given up. Returns its number.
 */
uint64_t journal_begin(struct journal *journal);
/* Durable on return; ends journal_begin() also on failure. -ENOSPC, -EIO. */
int journal_write(struct journal *journal, const struct journal_op *op, bool urgent,
		  struct err *err) must_use;
void journal_give_up(struct journal *journal);

/* The bytes of the first file from @ret_at on, of which nothing is done yet; an empty buffer:
 * nothing waits. */
int journal_load(struct journal *journal, struct buf *ret, uint64_t *ret_at) must_use;
/* All before @at of the first file is done, @number the last of it (0: none). The file goes when
 * that was all. */
void journal_done(struct journal *journal, uint64_t at, uint64_t number);
/* The sender calls it when nothing waits: operations done a while ago are not sent again after a
 * crash. */
void journal_tidy(struct journal *journal);
/* The number of the last operation that was written; another one says that something was. */
uint64_t journal_written(struct journal *journal);
/* Bytes that are not done. */
uint64_t journal_waiting(struct journal *journal);

#endif
