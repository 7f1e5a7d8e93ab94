/* SPDX-License-Identifier: Apache-2.0 */
/* The durable side: one interface (store_engine.h), behind which SQLite or ClickHouse stands. Knows
 * bytes and keys, not profiles' meaning. One thread writes; readers have their own connections.
 *
 * SQLite engine, below the data directory:
 *   state.db            records: sessions, baselines, settings, keys; never expires by itself
 *   sessions/ID.log     data of one session or baseline: dictionary and time-ordered chunks
 *   history/DAY.db      continuous profiling, one file per UTC day
 *   ballast, store.lock see README.md
 * ClickHouse engine: data_dir/clickhouse/ holds what the server does not have yet.
 * Every commit reaches the disk before the call returns; a crash at any moment leaves whole commits
 * only.
 *
 * Thread rule: every function may be called from any thread. Errors common to all: -ENOSPC disk or
 * budget full, -EUCLEAN damaged, -EIO. */
#ifndef PROFD_STORE_STORE_H
#define PROFD_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

struct store;

#define STORE_HOST_SIZE 65 /* bytes of a host's name, with the zero */

/* Opens or creates; repairs what a crash left. @url "sqlite:PATH", NULL for the default inside
 * @data_dir, or "clickhouse://[user[:password]@]host:port/database". @host: whose data is written;
 * "" where none is taken (a server of what others took). Errors: negative errno with one sentence
 * and remedy in @err. */
int store_open(const char *data_dir, const char *url, const char *host, struct store **ret,
	       struct err *err) must_use;
/* Whether a store, which another process may have open, holds a record of @kind: 1 or 0, also where
 * there is no store yet. Negative errno: it cannot be told (-EOPNOTSUPP: not of a shared store).
 * Nothing is created but what reading beside a writer takes. */
int store_peek(const char *data_dir, const char *url, const char *kind) must_use;
/* Opens the store of this host alone that stands in while a shared store cannot work: an embedded
 * one in @data_dir/standby. It counts as shared, so that what is written there has the ids and
 * records that the shared store will take (session/run/standby.c). Errors as store_open(). */
int store_open_standby(const char *data_dir, struct store **ret, struct err *err) must_use;
bool store_is_standby(const struct store *store);
/* From now on each call that reads or writes records, sessions or history fails with -EIO,
 * StoreUnavailable and @why. For a server whose store is away and that has no data of its own. Only
 * the first call counts. */
void store_refuse(struct store *store, const char *why);
/* Does the store answer? 0, or -EIO with reason and remedy. */
int store_try(struct store *store, struct err *err) must_use;
void store_close(struct store *store);
/* Do several hosts keep their data here? Then what is called "own" below is that of store_open()'s
 * @host; ids of sessions' data must differ among hosts. Of an embedded store everything is its own.
 */
bool store_is_shared(const struct store *store);
/* Bytes the engine may occupy, 0 = no bound (default): writes that would pass it are -ENOSPC,
 * deletions never. The session layer deletes the oldest data before it comes to that. */
void store_set_budget(struct store *store, uint64_t budget_bytes);
CLEANUP_DEFINE(store, struct store *, store_close);

/* ---- documents: small JSON or text records in state.db, keyed by (kind, tenant, id) ---------- */

struct store_record {
	const char *kind;   /* "session", "baseline", "continuous", "key", "report", … */
	const char *tenant;
	const char *id;
	const char *host;    /* when visited: who wrote it; when put: not looked at */
	const char *service; /* index columns; "" / 0 where they do not apply */
	const char *type;
	const char *status;
	uint64_t created_ns; /* realtime */
	const char *body;    /* JSON text */
	size_t body_len;
	bool urgent; /* says how something ended: may use the last room that is kept for this */
};
/* Insert or replace by (host, kind, tenant, id), durable on return. -ENOSPC when the disk or the
 * budget is full. */
int store_put(struct store *store, const struct store_record *record, struct err *err) must_use;
/* Its own, and that of any other host. Deleting what is not there is no error. */
int store_delete(struct store *store, const char *kind, const char *tenant, const char *id,
		 struct err *err) must_use;
/* Its own, else that of any other host. @ret_body is the caller's (free). -ENOENT. */
int store_get(struct store *store, const char *kind, const char *tenant, const char *id,
	      char **ret_body, size_t *ret_len, struct err *err) must_use;

struct store_query {
	const char *kind;    /* NULL = every kind, of an embedded store only */
	const char *tenant;  /* NULL = all (start-up only) */
	const char *service; /* NULL = all, likewise below */
	const char *type;
	const char *status;
	uint64_t from_ns, to_ns; /* of created_ns; 0 = open, to exclusive */
	const char *before_id;	 /* with before_ns: keyset cursor, newest first */
	uint64_t before_ns;
	uint32_t limit;		 /* 0 = all */
	bool every_host;	 /* not only its own */
	bool oldest_first;	 /* of no use with a cursor */
};
typedef int store_visit_fn(void *ctx,
			   const struct store_record *record); /* <0 stops with that error */
int store_list(struct store *store, const struct store_query *query, store_visit_fn *visit,
	       void *ctx, uint64_t *ret_total, struct err *err) must_use;

/* ---- session data: append-only chunks -------------------------------------------------------- */

enum store_chunk_kind {
	STORE_CHUNK_MODULES = 1, /* dictionary blocks: only new entries */
	STORE_CHUNK_PROCESSES = 2,
	STORE_CHUNK_STACKS = 3,
	STORE_CHUNK_SAMPLES = 4, /* time-ordered */
	STORE_CHUNK_NAMES = 5,	 /* side table, may be rebuilt */
	STORE_CHUNK_QUALITY = 6, /* counters so far; the last one counts */
	STORE_CHUNK_READINGS = 7, /* what was read of a process at one moment */
	STORE_CHUNK_SETTLED = 8, /* dictionary of a day's hours that are rolled up */
	STORE_CHUNK_DETAIL = 9,	 /* single samples of windows, by the dictionary of their day */
};

#define STORE_CHUNK_MAX (16u << 20) /* uncompressed bytes of one chunk */
#define STORE_ID_SIZE	64	    /* ids are [a-z0-9-], at most 63 characters */

struct store_chunk {
	enum store_chunk_kind kind;
	const void *data; /* uncompressed; the store compresses (zstd) and checks (crc32c) */
	size_t len;
};

/* Ends of parts of some data that differ in nature, ascending. Lasting data is compressed part by
 * part. */
struct store_ends {
	const uint32_t *at;
	uint32_t count;
};

/* Appends @count chunks and the feed position in one durable transaction. */
int store_session_append(struct store *store, const char *id, const struct store_chunk *chunks,
			 size_t count, uint64_t feed_identity, uint64_t feed_position,
			 struct err *err) must_use;
/* Visits a session's chunks in the order they were appended; data is valid during the call.
 * -ENOENT; damaged chunks are skipped and counted in *ret_damaged. */
typedef int store_chunk_fn(void *ctx, const struct store_chunk *chunk);
int store_session_read(struct store *store, const char *id, store_chunk_fn *visit, void *ctx,
		       unsigned *ret_damaged, struct err *err) must_use;
/* Position stored with its own last append; 0 and -ENOENT if there is none. */
int store_session_position(struct store *store, const char *id, uint64_t *ret_identity,
			   uint64_t *ret_position, struct err *err) must_use;
/* Whoever wrote it. Removing what is not there is no error. */
int store_session_remove(struct store *store, const char *id, struct err *err) must_use;
/* Copies all chunks of @from to the new id @to in one step (baselines). -EEXIST, -ENOENT. */
int store_session_copy(struct store *store, const char *from, const char *to,
		       struct err *err) must_use;
/* ---- history: continuous data ---------------------------------------------------------------- */

/* One file of the history: what was taken on a UTC day and is kept equally long. Files of one day
 * share nothing, so that a service that is kept for years does not pin the others' data. */
struct store_day {
	uint32_t day; /* since 1970-01-01 */
	uint32_t retention_days;
	char host[STORE_HOST_SIZE]; /* "" = its own, the only ones that are written to */
};

/* Totals of one minute of an hour. */
struct store_minute {
	uint32_t minute; /* of the hour, 0…59 */
	uint32_t profiled_ms; /* how long was looked */
	uint64_t samples, lost;
	int64_t value;
};

/* The data of one service and type in one minute, in a part of it, or in an hour that is rolled up.
 */
struct store_window {
	const char *host; /* when read of every host: who wrote it, "" = this one; else NULL */
	const char *service;
	const char *type;
	const char *owners;	/* ",tenant:rate,…,": who may see it, at how many samples per second */
	uint64_t from_ns;	/* realtime, begin of the minute or hour */
	bool whole;		/* replaces the parts of this minute that were stored before */
	uint32_t profiled_ms;	/* of the minute or part: how long was looked */
	uint64_t samples, lost;
	int64_t value;
	const void *data; /* uncompressed, as STORE_CHUNK_MAX */
	size_t len;
	struct store_ends ends; /* when written: of data, if somebody says */
	/* Kept once for all hours of the service, type, owners and day, whose data cannot be read
	 * without it. Rolling up replaces it (NULL = leaves it); read with the data. */
	const void *shared;
	size_t shared_len;
	uint64_t bytes; /* when read: on the disk, its share of an hour's */
	const struct store_minute *minutes; /* of an hour: those with data, ascending; NULL = of none */
	uint32_t minute_count;		    /* 0 = a minute or a part of one */
};

/* Appends dictionary chunks, windows and the feed position in one durable transaction. */
int store_history_append(struct store *store, const struct store_day *day,
			 const struct store_chunk *dictionary, size_t chunk_count,
			 const struct store_window *windows, size_t window_count,
			 uint64_t feed_identity, uint64_t feed_position, struct err *err) must_use;
/* Rolls up the hour that begins at @from_ns, in one durable transaction. @windows (hours) replace
 * its stored minutes and the hour itself. @dictionary (NULL = nothing), whose parts end at @ends
 * (may be NULL), replaces all parts of the dictionary behind the first @kept. */
int store_history_roll(struct store *store, const struct store_day *day, uint64_t from_ns,
		       size_t kept, const struct store_chunk *dictionary,
		       const struct store_ends *ends, const struct store_window *windows,
		       size_t window_count, struct err *err) must_use;
/* -ENOENT: nothing is stored for that day. */
int store_history_position(struct store *store, const struct store_day *day,
			   uint64_t *ret_identity, uint64_t *ret_position,
			   struct err *err) must_use;
/* Visits the days oldest first; of one day its own come before those of other hosts. @every_host:
 * not only its own; @bytes may then be 0 for "not measured". */
typedef int store_day_fn(void *ctx, const struct store_day *day, uint64_t bytes);
int store_history_days(struct store *store, bool every_host, store_day_fn *visit, void *ctx,
		       struct err *err) must_use;
/* The dictionary in the order it was written; damaged chunks are skipped and counted. -ENOENT. */
int store_history_dictionary(struct store *store, const struct store_day *day,
			     store_chunk_fn *visit, void *ctx, unsigned *ret_damaged,
			     struct err *err) must_use;

struct store_window_query {
	const char *tenant;  /* NULL = all */
	const char *service; /* NULL = all */
	const char *type;    /* NULL = all */
	uint64_t from_ns, to_ns; /* realtime of the minute's begin; 0 = open, to exclusive */
	bool with_data;
	/* Those of every host that has the day, one host after the other, in one question; of the day
	 * given its host does not count. Not with data. An hour may come as one window with its
	 * minutes between from and to. */
	bool every_host;
	/* The visitor needs only so many of the data's first bytes. Gets the visitor's context and
	 * the first @len bytes; the rest may be left out. NULL = all bytes are wanted. */
	size_t (*needs)(void *ctx, const struct store_window *window, const void *data, size_t len);
};
/* Hour by hour. With data as they are stored: hours (which may reach beyond from and to), whole
 * minutes, parts of minutes; without, an hour comes as its minutes. Texts and data are valid during
 * the call. */
typedef int store_window_fn(void *ctx, const struct store_window *window);
int store_history_windows(struct store *store, const struct store_day *day,
			  const struct store_window_query *query, store_window_fn *visit,
			  void *ctx, unsigned *ret_damaged, struct err *err) must_use;

/* Sums of a service and type over aligned stretches of a day. */
struct store_span {
	const char *service;
	const char *type;
	const char *owners;	  /* of the latest of its windows */
	uint64_t from_ns;	  /* begin of the stretch */
	uint64_t first_ns, last_ns; /* begin of its first and last minute with data */
	uint64_t samples, lost, bytes;
	int64_t value;
};
/* @query's from and to are of the stretch's begin, with_data says nothing. By time, then by service
 * and type; @visit must not come back to the store. */
typedef int store_span_fn(void *ctx, const struct store_span *span);
int store_history_spans(struct store *store, const struct store_day *day,
			const struct store_window_query *query, uint64_t span_ns,
			store_span_fn *visit, void *ctx, struct err *err) must_use;
/* Nobody writes to this day any more: what writing needs is given back. */
void store_history_seal(struct store *store, const struct store_day *day);
int store_history_drop(struct store *store, const struct store_day *day, struct err *err) must_use;

/* ---- sizes ----------------------------------------------------------------------------------- */

uint64_t store_session_bytes(struct store *store, const char *id); /* on disk, 0 = none */
/* A consistent copy of everything while it is being written, as a tar archive in a file without a
 * name (the caller's descriptor). Words: AgentBusy (one at a time), StoreUnavailable. */
int store_backup(struct store *store, int *ret_fd, uint64_t *ret_bytes, struct err *err) must_use;
uint64_t store_bytes(struct store *store); /* on disk now, everything that is its own */
/* Shared store: bytes that are acknowledged and durable on this host, but not yet there. */
uint64_t store_waiting_bytes(struct store *store);

#endif
