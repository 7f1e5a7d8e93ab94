/* SPDX-License-Identifier: Apache-2.0 */
/* The last hours of continuous profiling sample by sample, beside the windows that hold their sums:
 * what heat maps and times inside a minute are made of. They are kept as chunks
 * (STORE_CHUNK_DETAIL) of ten minutes, each a session file of its own in the store. So the oldest
 * goes as a whole when [store] detail_budget is exceeded. A stretch speaks of stacks and attributes
 * by the ids of its day's dictionary and is of no use without it.
 *
 * Nothing depends on it: it is written after the windows, and read only where it holds exactly what
 * they hold. */
#ifndef PROFD_SESSION_DETAIL_H
#define PROFD_SESSION_DETAIL_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/recording/session_chunks.h"
#include "agent/session/history.h"
#include "agent/store/store.h"

#define DETAIL_KIND	     "detail"	       /* records: one of each stretch */
#define DETAIL_STRETCH_NS    (600 * NS_PER_S)  /* counted from 1970 */
#define DETAIL_STRETCHES_MAX 4096u	       /* beyond it the oldest goes */
#define DETAIL_PENDING_MAX                                                                         \
	(1u << 20) /* samples between two flushes; more are not kept one by one */

struct sessions;
struct recording;

struct detail_stretch {
	uint32_t number; /* time / DETAIL_STRETCH_NS */
	uint32_t retention_days; /* of the day file it belongs to */
	uint64_t bytes;
};

struct detail {
	pthread_mutex_t lock; /* of all files and the list */
	struct detail_stretch *stretches; /* oldest first */
	size_t count, capacity;
	_Atomic uint64_t bytes; /* of all of them, on the disk */
};

/* The parts of one flush, stretch by stretch. Zero-initialized is empty. */
#define DETAIL_PARTS_MAX 4u /* one, or two where a stretch ends; more when the clock was set */
struct detail_batch {
	struct {
		uint32_t number;
		struct buf data;
	} parts[DETAIL_PARTS_MAX];
	unsigned count;
};

/* How a window's samples find it again. */
uint64_t detail_series(const char *service, const char *type, const char *owners);

/* Finds what is kept. */
int detail_load(struct sessions *s, struct err *err) must_use;
void detail_destroy(struct sessions *s);
/* Held while a flush writes its windows and then their samples, so that who reads sees both or
 * none. Taken during a build turn, never with `lock`. */
void detail_lock(struct sessions *s);
void detail_unlock(struct sessions *s);
/* Sorts @events (realtime, inside the minute). What does not fit is left out. */
void detail_batch_add(struct detail_batch *batch, uint64_t series, uint64_t minute_ns,
		      struct chunk_event *events, size_t count);
void detail_batch_deinit(struct detail_batch *batch);
/* Writes a batch of @day's samples, complete up to feed position @position, and makes room by the
 * budget. A failure costs only detail, and is logged. Lock held. */
void detail_append(struct sessions *s, const struct store_day *day,
		   const struct detail_batch *batch, uint64_t position);
/* Feed position of the last stretch that was written for @day. -ENOENT. */
int detail_position(struct sessions *s, const struct store_day *day, uint64_t *ret_identity,
		    uint64_t *ret_position) must_use;
/* Bytes on the disk. */
uint64_t detail_bytes(const struct sessions *s);
/* The oldest stretch goes: true if there was one. */
bool detail_drop_oldest(struct sessions *s);
/* All of a day whose file is gone. */
void detail_drop_day(struct sessions *s, const struct store_day *day);
/* All samples of @day that @window asks for, as a recording that still lacks the dictionary: 1, the
 * caller's *ret, and in *ret_lost what was lost meanwhile. 0: they are not all there. */
int detail_read(struct sessions *s, const struct store_day *day,
		const struct history_window *window, struct recording **ret, uint64_t *ret_lost,
		struct err *err) must_use;

#endif
