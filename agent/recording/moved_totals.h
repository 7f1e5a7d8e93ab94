/* SPDX-License-Identifier: Apache-2.0 */
/* Scales the samples of each thread to the bytes that it read and wrote (PROF_SAMPLE_MOVED). The
 * difference of two readings is exact, to the byte. Sums of calls that were all recorded stay as
 * they are; samples that stand for other calls are scaled to the remainder. If a thread has no such
 * samples, the remainder is a rest of its own (some milliseconds of it lie between the readings and
 * the session's ends). Pure. */
#ifndef PROFD_RECORDING_MOVED_TOTALS_H
#define PROFD_RECORDING_MOVED_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/recording/thread_lives.h"

struct moved_totals;

struct moved_totals *moved_totals_create(void); /* NULL: no memory */
void moved_totals_destroy(struct moved_totals *totals);
CLEANUP_DEFINE(moved_totals, struct moved_totals *, moved_totals_destroy);

/* As thread_totals_until(). */
void moved_totals_until(struct moved_totals *totals, uint64_t to_ns);
/* In order of time, counts[0] = bytes. Of a thread that began before the span the first reading is
 * where its count begins. -ENOMEM. */
int moved_totals_read(struct moved_totals *totals, uint32_t pid, uint32_t tid,
		      const struct thread_reading *reading) must_use;
/* A sample that stands for so many bytes, or a sum (@exact). Threads without a reading are ignored.
 */
void moved_totals_add(struct moved_totals *totals, uint32_t pid, uint32_t tid, int64_t bytes,
		      bool exact);
/* After all readings and samples. */
void moved_totals_settle(struct moved_totals *totals, uint64_t from_ns, uint64_t to_ns);
/* The bytes that the next sample of the thread counts. Over all its samples, and the rest, the sum
 * is exact. */
int64_t moved_totals_scale(struct moved_totals *totals, uint32_t pid, uint32_t tid, int64_t bytes,
			   bool exact);
/* The bytes that no sample of the thread stands for. They are given once; 0 = nothing, not known,
 * or taken. */
int64_t moved_totals_take_rest(struct moved_totals *totals, uint32_t pid, uint32_t tid);

#endif
