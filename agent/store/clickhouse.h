/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for ClickHouse, inside: what its files share. Writing goes to the journal, reading
 * asks the server once it has what was written. */
#ifndef PROFD_STORE_CLICKHOUSE_H
#define PROFD_STORE_CLICKHOUSE_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/base/buf.h"
#include "agent/base/bytes.h"
#include "agent/store/clickhouse_http.h"
#include "agent/store/clickhouse_journal.h"
#include "agent/store/clickhouse_rows.h"
#include "agent/store/clickhouse_sender.h"
#include "agent/store/clickhouse_sql.h"
#include "agent/store/store.h"

struct day_version;
struct history_spans;

struct clickhouse {
	struct clickhouse_url url;
	char host[STORE_HOST_SIZE]; /* whose data is written */
	char *path; /* data directory */
	int dir_fd, lock_fd;
	atomic_bool stop;
	struct clickhouse_http *http;
	struct journal *journal;
	struct clickhouse_sender sender;
	pthread_mutex_t bytes_lock; /* who asks for the next two; only tried */
	uint64_t measured_ns; /* monotonic */
	_Atomic uint64_t measured_bytes; /* its own on the server then */
	_Atomic uint64_t added_bytes; /* since then */
	_Atomic bool shrunk; /* something went since then */
	_Atomic uint64_t budget_bytes; /* 0 = none */
	pthread_mutex_t spans_lock; /* what follows; no question is asked while it is held */
	struct versions {
		struct day_version *list; /* owned; of days that exist */
		size_t count;
		uint64_t asked_ns, written; /* monotonic; the journal's number then */
	} versions[2]; /* of its own days, of all hosts' */
	struct history_spans *spans; /* sums of days as of a version */
	size_t span_rows;
	pthread_mutex_t days_lock; /* of the next; no question is asked while it is held */
	struct own_days {
		struct buf answer; /* the list of its own days, as the server gave it */
		uint64_t asked_ns, written; /* monotonic, 0 = never; the journal's number then */
	} own_days;
	uint64_t clean_next_ns; /* of the sender's thread: monotonic, when it looks for what is not
				   needed any more */
};

/* ---- clickhouse_link.c ----------------------------------------------------------------------- */

/* Asks once what was written before is there. @sql ends with the statement's last character. -EIO
 * with reason and remedy. */
int clickhouse_ask(struct clickhouse *ch, struct buf *sql, struct buf *answer, struct err *err)
	must_use;
/* -EIO: what a server answered is not what was asked for. */
int clickhouse_no_answer(struct clickhouse *ch, struct err *err) must_use;
/* Bytes of this host on the server, measured at most @max_age_ns ago or when something was removed
 * since, plus what was written since. While one thread asks the server, other threads take the last
 * known figure; so does a thread whose question fails. */
uint64_t clickhouse_bytes(struct clickhouse *ch, uint64_t max_age_ns);
/* -ENOSPC when @len more bytes would pass the budget. */
int clickhouse_check_room(struct clickhouse *ch, uint64_t len, struct err *err) must_use;
/* Ends journal_begin(): one operation, durable. @body may have failed. */
int clickhouse_write(struct clickhouse *ch, uint32_t table, uint64_t number, uint64_t partition,
		     const struct buf *body, bool urgent, struct err *err) must_use;

/* ---- as their namesakes in store.h, @ctx a struct clickhouse --------------------------------- */

int clickhouse_put(void *ctx, const struct store_record *record, struct err *err) must_use;
int clickhouse_remove(void *ctx, const char *kind, const char *tenant, const char *id,
		      struct err *err) must_use;
int clickhouse_get(void *ctx, const char *kind, const char *tenant, const char *id, char **ret_body,
		   size_t *ret_len, struct err *err) must_use;
int clickhouse_list(void *ctx, const struct store_query *query, store_visit_fn *visit,
		    void *visit_ctx, uint64_t *ret_total, struct err *err) must_use;

int clickhouse_session_append(void *ctx, const char *id, const struct store_chunk *chunks,
			      size_t count, uint64_t feed_identity, uint64_t feed_position,
			      struct err *err) must_use;
int clickhouse_session_read(void *ctx, const char *id, store_chunk_fn *visit, void *visit_ctx,
			    unsigned *ret_damaged, struct err *err) must_use;
int clickhouse_session_position(void *ctx, const char *id, uint64_t *ret_identity,
				uint64_t *ret_position, struct err *err) must_use;
int clickhouse_session_remove(void *ctx, const char *id, struct err *err) must_use;
int clickhouse_session_copy(void *ctx, const char *from, const char *to, struct err *err) must_use;
uint64_t clickhouse_session_bytes(void *ctx, const char *id);

int clickhouse_history_append(void *ctx, const struct store_day *day,
			      const struct store_chunk *dictionary, size_t chunk_count,
			      const struct store_window *windows, size_t window_count,
			      uint64_t feed_identity, uint64_t feed_position, struct err *err)
	must_use;
int clickhouse_history_roll(void *ctx, const struct store_day *day, uint64_t from_ns, size_t kept,
			    const struct store_chunk *dictionary, const struct store_ends *ends,
			    const struct store_window *windows, size_t window_count,
			    struct err *err) must_use;
int clickhouse_history_drop(void *ctx, const struct store_day *day, struct err *err) must_use;
int clickhouse_history_position(void *ctx, const struct store_day *day, uint64_t *ret_identity,
				uint64_t *ret_position, struct err *err) must_use;
int clickhouse_history_days(void *ctx, bool every_host, store_day_fn *visit, void *visit_ctx,
			    struct err *err) must_use;
int clickhouse_history_dictionary(void *ctx, const struct store_day *day, store_chunk_fn *visit,
				  void *visit_ctx, unsigned *ret_damaged, struct err *err) must_use;
int clickhouse_history_windows(void *ctx, const struct store_day *day,
			       const struct store_window_query *query, store_window_fn *visit,
			       void *visit_ctx, unsigned *ret_damaged, struct err *err) must_use;
int clickhouse_history_spans(void *ctx, const struct store_day *day,
			     const struct store_window_query *query, uint64_t span_ns,
			     store_span_fn *visit, void *visit_ctx, struct err *err) must_use;

void clickhouse_spans_deinit(struct clickhouse *ch);

/* ---- clickhouse_clean.c ---------------------------------------------------------------------- */

/* Removes rows that nobody sees any more, at most once an hour; called by the sender when nothing
 * waits. */
void clickhouse_clean(void *ctx);
void clickhouse_clean_now(struct clickhouse *ch);
/* Whether this host is the one that cleans in @hour (since 1970). */
bool clickhouse_clean_is_elected(struct clickhouse *ch, uint64_t hour);

#endif
