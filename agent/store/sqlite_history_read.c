// SPDX-License-Identifier: Apache-2.0
/* Reading day files: each call opens its own connection. Damage costs as little as it can: a row whose checksum
 * does not hold is left out and counted; where a page cannot be read, the hours on other pages still are. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/store/packed.h"
#include "agent/store/sqlite_checksum.h"
#include "agent/store/sqlite_db.h"
#include "agent/store/sqlite_history.h"

#define S_PER_DAY  86400
#define S_PER_HOUR 3600
#define SQL_SIZE   1024

struct reader {
	sqlite3 *db;
	bool sums; /* rows have checksums */
	struct packed_reader *packed; /* NULL: slower */
};

static void close_reader(struct reader *reader)
{
	sqlite_db_close(reader->db);
	packed_reader_destroy(reader->packed);
}
#define cleanup_reader __attribute__((__cleanup__(close_reader)))

static int check_version(struct reader *reader, const char *path, struct err *err)
{
	int64_t version = sqlite_db_number(reader->db, "PRAGMA user_version", 0);

	/* It is being created; what has tables and no version is damaged. */
	if (version == 0 && sqlite_db_number(reader->db, "SELECT count(*) FROM sqlite_master", 0) == 0)
		return err_set(err, ENOENT, NULL, NULL, "nothing is stored for that day");
	if (version < 1)
		return err_set(err, EUCLEAN, "StoreUnavailable", NULL, "%s is damaged", path);
	if (version > HISTORY_SCHEMA_VERSION)
		return err_set(err, EPROTO, "StoreUnavailable", NULL,
			       "%s was written by a newer profd: install that version again", path);
	reader->sums = version >= 2;
	return sqlite_checksum_add(reader->db, err);
}

static int open_reader(const struct sqlite_history *history, const struct store_day *day,
		       struct reader *ret, struct err *err)
{
	char path[PATH_MAX];
	struct stat st;
	int rc = sqlite_history_path(history, day, path);

	if (rc == 0 && stat(path, &st) < 0)
		rc = -errno;
	if (rc == 0)
		rc = sqlite_db_open_reader(path, &ret->db, err);
	else
		(void)err_set(err, -rc, rc == -ENOENT ? NULL : "StoreUnavailable", NULL,
			      "nothing is stored for that day");
	ret->packed = packed_reader_create();
	return rc < 0 ? rc : check_version(ret, path, err);
}

int sqlite_history_position(struct sqlite_history *history, const struct store_day *day,
			    uint64_t *ret_identity, uint64_t *ret_position, struct err *err)
{
	cleanup_reader struct reader reader = { 0 };
	int rc = open_reader(history, day, &reader, err);

	if (rc < 0)
		return rc;
	*ret_identity = (uint64_t)sqlite_db_number(
		reader.db, "SELECT v FROM meta WHERE k = 'feed_identity'", 0);
	*ret_position = (uint64_t)sqlite_db_number(
		reader.db, "SELECT v FROM meta WHERE k = 'feed_position'", 0);
	return 0;
}

/* ---- the dictionary -------------------------------------------------------------------------- */

struct pieces {
	store_chunk_fn *visit;
	void *ctx;
	int64_t last; /* seq that was read last */
	unsigned damaged;
};

static int visit_piece(const struct reader *reader, sqlite3_stmt *stmt, struct pieces *pieces)
{
	struct store_chunk chunk = { .kind = (enum store_chunk_kind)sqlite3_column_int(stmt, 1) };
	cleanup_free void *data = NULL;
	int rc = -EUCLEAN;

	pieces->last = sqlite3_column_int64(stmt, 0);
	if (sqlite3_column_int(stmt, 3))
		rc = packed_open_with(reader->packed, sqlite3_column_blob(stmt, 2),
				      (size_t)sqlite3_column_bytes(stmt, 2), &data, &chunk.len);
	if (rc == -EUCLEAN) {
		pieces->damaged++;
		return 0;
	}
	chunk.data = data;
	return rc < 0 ? rc : pieces->visit(pieces->ctx, &chunk);
}

/* Pieces with from <= seq <= to, in order. */
static int read_pieces(const struct reader *reader, int64_t from, int64_t to,
		       struct pieces *pieces, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	char text[SQL_SIZE];
	int rc;

	(void)snprintf(text, sizeof(text),
		       "SELECT seq, kind, z, %s FROM dict WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
		       reader->sums ? "sum IS NULL OR sum = checksum(kind)" : "1");
	rc = sqlite_db_prepare(reader->db, text, &stmt, err);
	if (rc < 0)
		return rc;
	(void)sqlite3_bind_int64(stmt, 1, from);
	(void)sqlite3_bind_int64(stmt, 2, to);
	while ((rc = sqlite_db_step(reader->db, stmt, "reading the history", err)) == 1) {
		rc = visit_piece(reader, stmt, pieces);
		if (rc < 0)
			break;
	}
	return rc;
}

int sqlite_history_dictionary(struct sqlite_history *history, const struct store_day *day,
			      store_chunk_fn *visit, void *ctx, unsigned *ret_damaged,
			      struct err *err)
{
	struct pieces pieces = { .visit = visit, .ctx = ctx };
	cleanup_reader struct reader reader = { 0 };
	int rc = open_reader(history, day, &reader, err);

	if (rc == 0)
		rc = read_pieces(&reader, 0, INT64_MAX, &pieces, err);
	/* A page is lost: the pieces on others are found one by one. */
	if (rc == -EUCLEAN) {
		int64_t end = sqlite_db_number(reader.db, "SELECT max(seq) FROM dict", pieces.last);

		for (int64_t seq = pieces.last + 1; seq <= end && rc == -EUCLEAN; seq++) {
			pieces.damaged++;
			if (read_pieces(&reader, seq, seq, &pieces, NULL) == 0)
				pieces.damaged--;
		}
		rc = 0;
		pieces.damaged += pieces.damaged == 0;
	}
	if (rc == 0 && ret_damaged)
		*ret_damaged = pieces.damaged;
	return rc;
}

/* ---- windows --------------------------------------------------------------------------------- */

static void bind_text(sqlite3_stmt *stmt, const char *name, const char *text)
{
	(void)sqlite3_bind_text(stmt, sqlite3_bind_parameter_index(stmt, name), text, -1,
				SQLITE_TRANSIENT);
}

static void bind_number(sqlite3_stmt *stmt, const char *name, int64_t number)
{
	(void)sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, name), number);
}

/* NULL stays unbound, which the condition `(:x IS NULL OR …)` lets pass. */
static void bind_query(sqlite3_stmt *stmt, const struct store_window_query *query)
{
	char owner[80];

	if (query->tenant) {
		(void)snprintf(owner, sizeof(owner), ",%s:", query->tenant);
		bind_text(stmt, ":tenant", owner);
	}
	if (query->service)
		bind_text(stmt, ":service", query->service);
	if (query->type)
		bind_text(stmt, ":type", query->type);
	bind_number(stmt, ":from", (int64_t)(query->from_ns / NS_PER_S));
	bind_number(stmt, ":to",
		    query->to_ns ? (int64_t)((query->to_ns + NS_PER_S - 1) / NS_PER_S) : INT64_MAX);
}

#define CONDITIONS                                                                                 \
	" FROM series s JOIN win w ON w.series = s.id"                                             \
	" WHERE (:tenant IS NULL OR instr(s.owners, :tenant)) AND"                                 \
	" (:service IS NULL OR s.service = :service) AND (:type IS NULL OR s.type = :type) AND"    \
	" w.ts >= :from AND w.ts < :to"
#define WINDOW_VALID                                                                               \
	"(w.sum IS NULL OR"                                                                        \
	" w.sum = checksum(w.series, w.ts, w.part, w.samples, w.lost, w.value)) AND"               \
	" (s.sum IS NULL OR s.sum = checksum(s.service, s.type, s.owners))"

struct windows {
	const struct store_window_query *query;
	store_window_fn *visit;
	void *ctx;
	int64_t next_s; /* everything before this time has been visited */
	unsigned damaged;
	bool refused; /* by the visitor, not by damage */
};

static int visit_window(const struct reader *reader, sqlite3_stmt *stmt, struct windows *windows)
{
	struct store_window window = {
		.service = (const char *)sqlite3_column_text(stmt, 0),
		.type = (const char *)sqlite3_column_text(stmt, 1),
		.owners = (const char *)sqlite3_column_text(stmt, 2),
		.from_ns = (uint64_t)sqlite3_column_int64(stmt, 3) * NS_PER_S,
		.whole = sqlite3_column_int(stmt, 4) == 0,
		.samples = (uint64_t)sqlite3_column_int64(stmt, 5),
		.lost = (uint64_t)sqlite3_column_int64(stmt, 6),
		.value = sqlite3_column_int64(stmt, 7),
	};
	cleanup_free void *data = NULL;
	int rc = sqlite3_column_int(stmt, 8) ? 0 : -EUCLEAN;

	if (rc == 0 && windows->query->with_data)
		rc = packed_open_with(reader->packed, sqlite3_column_blob(stmt, 9),
				      (size_t)sqlite3_column_bytes(stmt, 9), &data, &window.len);
	if (rc == -EUCLEAN) {
		windows->damaged++;
		return 0;
	}
	window.data = data;
	if (rc == 0)
		rc = windows->visit(windows->ctx, &window);
	windows->refused = rc < 0;
	windows->next_s = sqlite3_column_int64(stmt, 3) + 1;
	return rc;
}

/* @from_s, @to_s: narrower than the query's own, 0 = not. */
static int read_windows(const struct reader *reader, struct windows *windows, int64_t from_s,
			int64_t to_s, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	char text[SQL_SIZE];
	int rc;

	(void)snprintf(text, sizeof(text),
		       "SELECT s.service, s.type, s.owners, w.ts, w.part, w.samples, w.lost, "
		       "w.value, %s%s" CONDITIONS " ORDER BY w.ts",
		       reader->sums ? WINDOW_VALID : "1", windows->query->with_data ? ", w.z" : "");
	rc = sqlite_db_prepare(reader->db, text, &stmt, err);
	if (rc < 0)
		return rc;
	bind_query(stmt, windows->query);
	if (to_s) {
		bind_number(stmt, ":from", from_s);
		bind_number(stmt, ":to", to_s);
	}
	while ((rc = sqlite_db_step(reader->db, stmt, "reading the history", err)) == 1) {
		rc = visit_window(reader, stmt, windows);
		if (rc < 0)
			break;
	}
	return rc;
}

/* A page is lost: hour by hour, those on other pages are read. */
static int read_hours(const struct reader *reader, const struct store_day *day,
		      struct windows *windows, struct err *err)
{
	int64_t begin = (int64_t)day->day * S_PER_DAY, end = begin + S_PER_DAY, at;
	int64_t from = (int64_t)(windows->query->from_ns / NS_PER_S);
	int64_t to = windows->query->to_ns
			     ? (int64_t)((windows->query->to_ns + NS_PER_S - 1) / NS_PER_S)
			     : end;
	int rc = 0;

	at = from > begin ? from : begin;
	at = windows->next_s > at ? windows->next_s : at;
	end = to < end ? to : end;
	while (at < end && rc == 0) {
		int64_t next = (at / S_PER_HOUR + 1) * S_PER_HOUR;

		rc = read_windows(reader, windows, at, next < end ? next : end, err);
		if (rc == -EUCLEAN && !windows->refused) {
			windows->damaged++;
			rc = 0;
		}
		at = next;
	}
	return rc;
}

int sqlite_history_windows(struct sqlite_history *history, const struct store_day *day,
			   const struct store_window_query *query, store_window_fn *visit,
			   void *ctx, unsigned *ret_damaged, struct err *err)
{
	struct windows windows = { .query = query, .visit = visit, .ctx = ctx };
	cleanup_reader struct reader reader = { 0 };
	int rc = open_reader(history, day, &reader, err);

	if (rc == 0)
		rc = read_windows(&reader, &windows, 0, 0, err);
	if (rc == -EUCLEAN && reader.db && !windows.refused)
		rc = read_hours(&reader, day, &windows, err);
	if (rc == 0 && ret_damaged)
		*ret_damaged = windows.damaged;
	return rc;
}

/* ---- spans ----------------------------------------------------------------------------------- */

static int visit_span(sqlite3_stmt *stmt, uint64_t midnight_s, uint64_t span_s,
		      store_span_fn *visit, void *ctx)
{
	const struct store_span span = {
		.service = (const char *)sqlite3_column_text(stmt, 0),
		.type = (const char *)sqlite3_column_text(stmt, 1),
		.owners = (const char *)sqlite3_column_text(stmt, 2),
		.from_ns = (midnight_s + (uint64_t)sqlite3_column_int64(stmt, 3) * span_s) * NS_PER_S,
		.first_ns = (uint64_t)sqlite3_column_int64(stmt, 4) * NS_PER_S,
		.last_ns = (uint64_t)sqlite3_column_int64(stmt, 5) * NS_PER_S,
		.samples = (uint64_t)sqlite3_column_int64(stmt, 6),
		.lost = (uint64_t)sqlite3_column_int64(stmt, 7),
		.value = sqlite3_column_int64(stmt, 8),
		.bytes = (uint64_t)sqlite3_column_int64(stmt, 9),
	};

	return visit(ctx, &span);
}

int sqlite_history_spans(struct sqlite_history *history, const struct store_day *day,
			 const struct store_window_query *query, uint64_t span_ns,
			 store_span_fn *visit, void *ctx, struct err *err)
{
	uint64_t midnight_s = (uint64_t)day->day * S_PER_DAY, span_s = span_ns / NS_PER_S;
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	cleanup_reader struct reader reader = { 0 };
	char text[SQL_SIZE];
	int rc = open_reader(history, day, &reader, err);

	/* Stretches are counted from midnight, so that none lies in two files. */
	(void)snprintf(text, sizeof(text),
		       "SELECT s.service, s.type, max(s.owners), (w.ts - :day) / :span AS n, "
		       "min(w.ts), max(w.ts), sum(w.samples), sum(w.lost), sum(w.value), "
		       "sum(length(w.z))" CONDITIONS " AND %s"
		       " GROUP BY s.service, s.type, n ORDER BY n, s.service, s.type",
		       reader.sums ? WINDOW_VALID : "1");
	if (rc == 0)
		rc = sqlite_db_prepare(reader.db, text, &stmt, err);
	if (rc < 0)
		return rc;
	bind_query(stmt, query);
	bind_number(stmt, ":day", (int64_t)midnight_s);
	bind_number(stmt, ":span", (int64_t)span_s);
	while (rc == 0 && (rc = sqlite_db_step(reader.db, stmt, "reading the history", err)) == 1)
		rc = visit_span(stmt, midnight_s, span_s, visit, ctx);
	return rc;
}
