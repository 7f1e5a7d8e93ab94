// SPDX-License-Identifier: Apache-2.0
/* Reading day files: each call opens its own connection. Damage costs as little as it can: a row
 * whose checksum does not hold is left out and counted; where a page cannot be read, the hours on
 * other pages still are. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/store/minutes.h"
#include "agent/store/packed.h"
#include "agent/store/sqlite_checksum.h"
#include "agent/store/sqlite_db.h"
#include "agent/store/sqlite_history.h"

#define CACHE_KB   "256" /* of pages: each request has a reader of its own and reads a row once */
#define S_PER_DAY  86400
#define S_PER_HOUR 3600
#define SQL_SIZE   1024

struct reader {
	sqlite3 *db;
	struct packed_reader *packed; /* NULL: slower */
};

static void close_reader(struct reader *reader)
{
	sqlite_db_close(reader->db);
	packed_reader_destroy(reader->packed);
}
#define cleanup_reader __attribute__((__cleanup__(close_reader)))

/* A number that cannot be read is damaged, not absent. */
static int read_number(struct reader *reader, const char *sql, int64_t *ret, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(reader->db, sql, &stmt, err);

	if (rc == 0)
		rc = sqlite_db_step(reader->db, stmt, "reading the history", err);
	if (rc == 1)
		*ret = sqlite3_column_int64(stmt, 0);
	return rc < 0 ? rc : 0;
}

/* Is the file one whose writer was killed while it made it? Then a rollback journal is left, which
 * no reader may undo: in later life there is only a log. Its header has no version of ours yet
 * (https://www.sqlite.org/fileformat.html, 1.3, "user version"). */
static bool is_half_made(struct reader *reader, const char *path)
{
	static const uint8_t none[4];
	cleanup_close int fd = -1;
	uint8_t version[sizeof(none)];

	if (sqlite3_extended_errcode(reader->db) != SQLITE_READONLY_ROLLBACK)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && pread(fd, version, sizeof(version), 60) == sizeof(version) &&
	       !memcmp(version, none, sizeof(none));
}

static int check_version(struct reader *reader, const char *path, struct err *err)
{
	/* One statement sees one state of the file, which another connection may be creating. */
	static const char sql[] =
		"SELECT CASE WHEN user_version = 0 AND NOT EXISTS (SELECT 1 FROM sqlite_master) "
		"THEN -1 ELSE user_version END FROM pragma_user_version";
	int64_t version = 0;
	int rc = read_number(reader, sql, &version, err);

	if (rc < 0 && is_half_made(reader, path))
		version = -1;
	else if (rc < 0)
		return rc;
	/* It is being created; what has tables and no version is damaged. */
	if (version < 0)
		return err_set(err, ENOENT, NULL, NULL, "nothing is stored for that day");
	if (version < HISTORY_SCHEMA_VERSION)
		return err_set(err, EUCLEAN, "StoreUnavailable", NULL,
			       "%s is damaged or of another version", path);
	if (version > HISTORY_SCHEMA_VERSION)
		return err_set(err, EPROTO, "StoreUnavailable", NULL,
			       "%s was written by a newer profd: install that version again", path);
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
	rc = rc < 0 ? rc : check_version(ret, path, err);
	return rc < 0 ? rc : sqlite_db_exec(ret->db, "PRAGMA cache_size=-" CACHE_KB, err);
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
		rc = packed_open(reader->packed, sqlite3_column_blob(stmt, 2),
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
	int rc = sqlite_db_prepare(reader->db,
				   "SELECT seq, kind, z, sum = checksum(kind) FROM dict "
				   "WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
				   &stmt, err);

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
}

#define SERIES_WANTED                                                                              \
	" WHERE (:tenant IS NULL OR instr(s.owners, :tenant)) AND"                                 \
	" (:service IS NULL OR s.service = :service) AND (:type IS NULL OR s.type = :type)"
#define SERIES_VALID "s.sum = checksum(s.service, s.type, s.owners, length(s.shared))"

/* One hour: its row, and the rows of its minutes. %s: the data and what its series shares, or
 * nothing. */
static const char hour_rows[] =
	"SELECT s.service, s.type, s.owners, h.sum = checksum(h.id, h.minutes) AND " SERIES_VALID
	", length(h.z), %s, h.minutes"
	" FROM series s CROSS JOIN hour h ON h.id = :hour + s.id" SERIES_WANTED;
static const char minute_rows[] =
	"SELECT s.service, s.type, s.owners,"
	" w.sum = checksum(w.series, w.ts, w.part, w.samples, w.lost, w.value, w.profiled) "
	"AND " SERIES_VALID
	", length(w.z), %s, w.ts, w.part, w.samples, w.lost, w.value, w.profiled"
	" FROM series s CROSS JOIN win w ON w.series = s.id" SERIES_WANTED
	" AND w.ts >= :from AND w.ts < :to ORDER BY w.ts";
enum { COLUMN_VALID = 3, COLUMN_BYTES, COLUMN_DATA, COLUMN_SERIES, COLUMN_SHARED, COLUMN_OWN };

struct windows {
	const struct reader *reader;
	const struct store_window_query *query;
	sqlite3_stmt *hours, *minutes;
	bool by_hour;	  /* hours come as they are stored, also without data */
	bool any_minutes; /* something is not rolled up */
	int64_t from_s, to_s; /* of the query, inside the day */
	store_window_fn *visit;
	void *ctx;
	int64_t series; /* whose @shared is; 0 = of none */
	void *shared;
	size_t shared_len;
	unsigned damaged;
	bool refused; /* by the visitor, not by damage */
};

static void close_windows(struct windows *windows)
{
	(void)sqlite3_finalize(windows->hours);
	(void)sqlite3_finalize(windows->minutes);
	free(windows->shared);
}

static int prepare(struct windows *windows, const char *format, const char *data,
		   sqlite3_stmt **ret, struct err *err)
{
	char text[SQL_SIZE];
	int rc;

	(void)snprintf(text, sizeof(text), format, windows->query->with_data ? data : "NULL, NULL, NULL");
	rc = sqlite_db_prepare(windows->reader->db, text, ret, err);
	if (rc == 0)
		bind_query(*ret, windows->query);
	return rc;
}

static int open_windows(struct windows *windows, const struct store_day *day, struct err *err)
{
	const struct store_window_query *query = windows->query;
	int64_t begin = (int64_t)day->day * S_PER_DAY, from, to;
	int rc = prepare(windows, hour_rows, "h.z, s.id, s.shared", &windows->hours, err);

	if (rc == 0)
		rc = prepare(windows, minute_rows, "w.z, s.id, s.shared", &windows->minutes, err);
	windows->any_minutes =
		sqlite_db_number(windows->reader->db, "SELECT EXISTS (SELECT 1 FROM win)", 1);
	from = (int64_t)(query->from_ns / NS_PER_S);
	to = query->to_ns ? (int64_t)((query->to_ns + NS_PER_S - 1) / NS_PER_S) : INT64_MAX;
	windows->from_s = from > begin ? from : begin;
	windows->to_s = to < begin + S_PER_DAY ? to : begin + S_PER_DAY;
	return rc;
}

static int hand_out(void *ctx, const struct store_window *window)
{
	struct windows *windows = ctx;
	int rc = windows->visit(windows->ctx, window);

	windows->refused = rc < 0;
	return rc;
}

static void read_minute(sqlite3_stmt *stmt, struct store_window *ret)
{
	ret->from_ns = (uint64_t)sqlite3_column_int64(stmt, COLUMN_OWN) * NS_PER_S;
	ret->whole = sqlite3_column_int(stmt, COLUMN_OWN + 1) == 0;
	ret->samples = (uint64_t)sqlite3_column_int64(stmt, COLUMN_OWN + 2);
	ret->lost = (uint64_t)sqlite3_column_int64(stmt, COLUMN_OWN + 3);
	ret->value = sqlite3_column_int64(stmt, COLUMN_OWN + 4);
	ret->profiled_ms = (uint32_t)sqlite3_column_int64(stmt, COLUMN_OWN + 5);
}

static int read_hour(sqlite3_stmt *stmt, int64_t hour_s, struct store_minute minutes[HOUR_MINUTES],
		     struct store_window *ret)
{
	int count = minutes_decode(sqlite3_column_blob(stmt, COLUMN_OWN),
				   (size_t)sqlite3_column_bytes(stmt, COLUMN_OWN), minutes);

	if (count <= 0)
		return -EUCLEAN;
	ret->from_ns = (uint64_t)hour_s * NS_PER_S;
	ret->whole = true;
	minutes_sum(ret, minutes, (uint32_t)count);
	return 0;
}

/* The data that the hours of the row's series share: read again when the series is another. */
static int read_shared(struct windows *windows, sqlite3_stmt *stmt)
{
	int64_t series = sqlite3_column_int64(stmt, COLUMN_SERIES);
	int rc = 0;

	if (series == windows->series)
		return 0;
	free(windows->shared);
	windows->shared = NULL;
	windows->shared_len = 0;
	windows->series = 0;
	if (sqlite3_column_type(stmt, COLUMN_SHARED) != SQLITE_NULL)
		rc = packed_open(windows->reader->packed, sqlite3_column_blob(stmt, COLUMN_SHARED),
				 (size_t)sqlite3_column_bytes(stmt, COLUMN_SHARED), &windows->shared, &windows->shared_len);
	if (rc == 0)
		windows->series = series;
	return rc;
}

static int read_data(struct windows *windows, sqlite3_stmt *stmt, void **ret,
		     struct store_window *window)
{
	struct packed_window wanted = { windows->query, windows->ctx, window };
	int rc = read_shared(windows, stmt);

	/* Minutes can be read without it. */
	if (rc == -EUCLEAN && stmt == windows->minutes) {
		windows->damaged++;
		rc = 0;
	}
	if (rc == 0)
		rc = packed_open_part(windows->reader->packed, sqlite3_column_blob(stmt, COLUMN_DATA),
				      (size_t)sqlite3_column_bytes(stmt, COLUMN_DATA),
				      windows->query->needs ? packed_window_needs : NULL, &wanted, ret, &window->len);
	window->data = *ret;
	window->shared = windows->shared;
	window->shared_len = windows->shared_len;
	return rc;
}

static int visit_row(struct windows *windows, sqlite3_stmt *stmt, int64_t hour_s)
{
	struct store_minute minutes[HOUR_MINUTES];
	struct store_window window = {
		.service = (const char *)sqlite3_column_text(stmt, 0),
		.type = (const char *)sqlite3_column_text(stmt, 1),
		.owners = (const char *)sqlite3_column_text(stmt, 2),
		.bytes = (uint64_t)sqlite3_column_int64(stmt, COLUMN_BYTES),
	};
	cleanup_free void *data = NULL;
	int rc = sqlite3_column_int(stmt, COLUMN_VALID) ? 0 : -EUCLEAN;

	if (rc == 0 && stmt == windows->hours)
		rc = read_hour(stmt, hour_s, minutes, &window);
	else if (rc == 0)
		read_minute(stmt, &window);
	if (rc == 0 && windows->query->with_data)
		rc = read_data(windows, stmt, &data, &window);
	if (rc == -EUCLEAN) {
		windows->damaged++;
		return 0;
	}
	if (rc == 0)
		rc = window.minute_count && !windows->query->with_data && !windows->by_hour
			     ? minutes_hand_out(&window, (uint64_t)windows->from_s * NS_PER_S,
						(uint64_t)windows->to_s * NS_PER_S, hand_out,
						windows)
			     : hand_out(windows, &window);
	return rc;
}

static int read_rows(struct windows *windows, sqlite3_stmt *stmt, int64_t hour_s, struct err *err)
{
	int rc;

	while ((rc = sqlite_db_step(windows->reader->db, stmt, "reading the history", err)) == 1) {
		rc = visit_row(windows, stmt, hour_s);
		if (rc < 0)
			break;
	}
	(void)sqlite3_reset(stmt);
	/* A page is lost: what is on others is read. */
	if (rc != -EUCLEAN || windows->refused)
		return rc;
	windows->damaged++;
	return 0;
}

static int read_windows(struct windows *windows, struct err *err)
{
	int64_t begin = windows->from_s - windows->from_s % S_PER_HOUR;
	int rc = 0;

	for (int64_t hour = begin; hour < windows->to_s && rc == 0; hour += S_PER_HOUR) {
		int64_t end = hour + S_PER_HOUR;

		bind_number(windows->hours, ":hour",
			    sqlite_history_hour_id((uint64_t)hour * NS_PER_S, 0));
		rc = read_rows(windows, windows->hours, hour, err);
		bind_number(windows->minutes, ":from", hour > windows->from_s ? hour : windows->from_s);
		bind_number(windows->minutes, ":to", end < windows->to_s ? end : windows->to_s);
		if (rc == 0 && windows->any_minutes)
			rc = read_rows(windows, windows->minutes, hour, err);
	}
	return rc;
}

static int visit_windows(struct sqlite_history *history, const struct store_day *day, bool by_hour,
			 const struct store_window_query *query, store_window_fn *visit, void *ctx,
			 unsigned *ret_damaged, struct err *err)
{
	cleanup_reader struct reader reader = { 0 };
	__attribute__((__cleanup__(close_windows))) struct windows windows = {
		.reader = &reader, .query = query, .by_hour = by_hour, .visit = visit, .ctx = ctx
	};
	int rc = open_reader(history, day, &reader, err);

	/* One moment of the file for all hours: meanwhile one may be rolled up. */
	if (rc == 0)
		rc = sqlite_db_exec(reader.db, "BEGIN", err);
	if (rc == 0)
		rc = open_windows(&windows, day, err);
	if (rc == 0)
		rc = read_windows(&windows, err);
	if (rc == 0 && ret_damaged)
		*ret_damaged = windows.damaged;
	return rc;
}

int sqlite_history_windows(struct sqlite_history *history, const struct store_day *day,
			   const struct store_window_query *query, store_window_fn *visit,
			   void *ctx, unsigned *ret_damaged, struct err *err)
{
	return visit_windows(history, day, false, query, visit, ctx, ret_damaged, err);
}

int sqlite_history_hours(struct sqlite_history *history, const struct store_day *day,
			 store_window_fn *visit, void *ctx, unsigned *ret_damaged, struct err *err)
{
	const struct store_window_query all = { 0 };

	return visit_windows(history, day, true, &all, visit, ctx, ret_damaged, err);
}
