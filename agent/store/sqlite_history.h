/* SPDX-License-Identifier: Apache-2.0 */
/* Day files below history/: each is a SQLite database with everything needed to show its windows.
 * Retention is an unlink. Few writers are kept open (today's); each reading call opens its own
 * connection. */
#ifndef PROFD_STORE_SQLITE_HISTORY_H
#define PROFD_STORE_SQLITE_HISTORY_H

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>

#include "agent/store/store.h"

#define HISTORY_WRITERS_MAX    8u
#define HISTORY_SCHEMA_VERSION 5
#define HISTORY_HOURS	       24

struct history_writer {
	struct store_day day;
	sqlite3 *db; /* NULL = free */
	uint64_t used;
};

struct sqlite_history {
	char *path;
	int dir_fd; /* owned */
	pthread_mutex_t lock; /* writers */
	struct history_writer writers[HISTORY_WRITERS_MAX];
	uint64_t clock;
	pthread_mutex_t spans_lock; /* what follows; taken last */
	uint64_t spans_generation; /* changes whenever a file does */
	struct history_spans *spans; /* of files that have not changed since they were added up */
	size_t span_rows;
};

/* The row of an hour: hours lie behind one another, so that the file grows at its end. */
static inline int64_t sqlite_history_hour_id(uint64_t from_ns, int64_t series)
{
	return (int64_t)(from_ns / (3600 * 1000000000ull) % HISTORY_HOURS) << 32 | series;
}

/* @path: of the store; history/ below it is created. */
int sqlite_history_open(struct sqlite_history *history, const char *path, struct err *err) must_use;
void sqlite_history_close(struct sqlite_history *history);
uint64_t sqlite_history_bytes(const struct sqlite_history *history);

/* As their namesakes in store.h. */
int sqlite_history_append(struct sqlite_history *history, const struct store_day *day,
			  const struct store_chunk *dictionary, size_t chunk_count,
			  const struct store_window *windows, size_t window_count,
			  uint64_t feed_identity, uint64_t feed_position, struct err *err) must_use;
int sqlite_history_roll(struct sqlite_history *history, const struct store_day *day,
			uint64_t from_ns, size_t kept, const struct store_chunk *dictionary,
			const struct store_ends *ends, const struct store_window *windows,
			size_t window_count, struct err *err) must_use;
int sqlite_history_position(struct sqlite_history *history, const struct store_day *day,
			    uint64_t *ret_identity, uint64_t *ret_position,
			    struct err *err) must_use;
int sqlite_history_days(struct sqlite_history *history, store_day_fn *visit, void *ctx,
			struct err *err) must_use;
int sqlite_history_dictionary(struct sqlite_history *history, const struct store_day *day,
			      store_chunk_fn *visit, void *ctx, unsigned *ret_damaged,
			      struct err *err) must_use;
int sqlite_history_windows(struct sqlite_history *history, const struct store_day *day,
			   const struct store_window_query *query, store_window_fn *visit,
			   void *ctx, unsigned *ret_damaged, struct err *err) must_use;
/* All of the day without data; what is rolled up comes hour by hour, with its minutes. */
int sqlite_history_hours(struct sqlite_history *history, const struct store_day *day,
			 store_window_fn *visit, void *ctx, unsigned *ret_damaged, struct err *err)
	must_use;
int sqlite_history_spans(struct sqlite_history *history, const struct store_day *day,
			 const struct store_window_query *query, uint64_t span_ns,
			 store_span_fn *visit, void *ctx, struct err *err) must_use;
/* The file of @day is another one now; NULL = all are. */
void sqlite_history_spans_forget(struct sqlite_history *history, const struct store_day *day);
/* The file of @day; it may be gone. */
int sqlite_history_path(const struct sqlite_history *history, const struct store_day *day,
			char out[PATH_MAX]) must_use;
void sqlite_history_seal(struct sqlite_history *history, const struct store_day *day);
int sqlite_history_drop(struct sqlite_history *history, const struct store_day *day,
			struct err *err) must_use;

#endif
