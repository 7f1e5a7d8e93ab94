// SPDX-License-Identifier: Apache-2.0
#include "agent/store/sqlite_history.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/vec.h"
#include "agent/store/packed.h"
#include "agent/store/sqlite_db.h"

#define NAME_SIZE      48
#define S_PER_DAY      86400
#define SCHEMA_VERSION 1

static const char schema[] =
	"BEGIN IMMEDIATE;"
	"CREATE TABLE meta (k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID;"
	"CREATE TABLE series (id INTEGER PRIMARY KEY, service TEXT NOT NULL, type TEXT NOT NULL,"
	"  owners TEXT NOT NULL, UNIQUE (service, type, owners));"
	"CREATE TABLE dict (seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, z BLOB NOT NULL);"
	/* part 0 is the whole minute, others are added to it */
	"CREATE TABLE win (series INTEGER, ts INTEGER, part INTEGER, samples INTEGER, lost INTEGER,"
	"  value INTEGER, z BLOB, PRIMARY KEY (series, ts, part)) WITHOUT ROWID;"
	"PRAGMA user_version = 1;"
	"COMMIT";

VEC_DEFINE(days, struct store_day);

/* ---- files -------------------------------------------------------------------------------------
 */

static void file_name(const struct store_day *day, char out[NAME_SIZE])
{
	time_t at = (time_t)day->day * S_PER_DAY;
	struct tm tm;

	(void)gmtime_r(&at, &tm);
	(void)snprintf(out, NAME_SIZE, "%04d-%02d-%02d-r%u.db", tm.tm_year + 1900, tm.tm_mon + 1,
		       tm.tm_mday, day->retention_days);
}

static bool parse_name(const char *name, struct store_day *ret)
{
	char again[NAME_SIZE];
	struct tm tm = { 0 };
	unsigned retention;
	time_t at;

	if (sscanf(name, "%4d-%2d-%2d-r%u.db", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &retention) !=
	    4)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	at = timegm(&tm);
	if (at < 0 || retention > 3650)
		return false;
	*ret = (struct store_day){ (uint32_t)(at / S_PER_DAY), retention };
	file_name(ret, again);
	return strcmp(again, name) == 0;
}

int sqlite_history_path(const struct sqlite_history *history, const struct store_day *day,
			char out[PATH_MAX])
{
	char name[NAME_SIZE];

	file_name(day, name);
	return snprintf(out, PATH_MAX, "%s/%s", history->path, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static uint64_t day_bytes(const struct sqlite_history *history, const struct store_day *day)
{
	static const char *const suffixes[] = { "", "-wal" };
	char name[NAME_SIZE], full[NAME_SIZE + 8];
	uint64_t bytes = 0;
	struct stat st;

	file_name(day, name);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		(void)snprintf(full, sizeof(full), "%s%s", name, suffixes[i]);
		if (fstatat(history->dir_fd, full, &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_size;
	}
	return bytes;
}

static int by_day(const void *a, const void *b)
{
	const struct store_day *x = a, *y = b;

	if (x->day != y->day)
		return x->day < y->day ? -1 : 1;
	return x->retention_days < y->retention_days ? -1 : x->retention_days > y->retention_days;
}

static int collect_days(const struct sqlite_history *history, struct days_vec *ret)
{
	int fd = openat(history->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	struct store_day day;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return -EIO;
	}
	while (rc == 0 && (entry = readdir(dir)))
		if (parse_name(entry->d_name, &day))
			rc = days_vec_push(ret, day);
	(void)closedir(dir);
	if (ret->count)
		qsort(ret->data, ret->count, sizeof(*ret->data), by_day);
	return rc;
}

int sqlite_history_days(struct sqlite_history *history, store_day_fn *visit, void *ctx,
			struct err *err)
{
	struct days_vec days = { 0 };
	int rc = collect_days(history, &days);

	if (rc < 0)
		(void)err_set(err, -rc, "StoreUnavailable", NULL, "%s cannot be listed",
			      history->path);
	for (size_t i = 0; rc == 0 && i < days.count; i++)
		rc = visit(ctx, &days.data[i], day_bytes(history, &days.data[i]));
	days_vec_deinit(&days);
	return rc;
}

uint64_t sqlite_history_bytes(const struct sqlite_history *history)
{
	struct days_vec days = { 0 };
	uint64_t bytes = 0;

	if (collect_days(history, &days) == 0)
		for (size_t i = 0; i < days.count; i++)
			bytes += day_bytes(history, &days.data[i]);
	days_vec_deinit(&days);
	return bytes;
}

/* ---- writers -----------------------------------------------------------------------------------
 */

static bool same_day(const struct store_day *a, const struct store_day *b)
{
	return a->day == b->day && a->retention_days == b->retention_days;
}

/* Out of WAL mode, so that a sealed day is one file. */
static void close_writer(struct history_writer *writer, bool seal)
{
	if (seal)
		(void)!sqlite_db_exec(writer->db, "PRAGMA journal_mode=DELETE", NULL);
	sqlite_db_close(writer->db);
	*writer = (struct history_writer){ 0 };
}

static void set_aside(const struct sqlite_history *history, const struct store_day *day,
		      const struct err *why)
{
	static const char *const suffixes[] = { "", "-wal", "-shm" };
	char name[NAME_SIZE], from[NAME_SIZE + 8], to[NAME_SIZE + 48];
	unsigned long long stamp = clock_realtime_ns() / NS_PER_MS;

	file_name(day, name);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		(void)snprintf(from, sizeof(from), "%s%s", name, suffixes[i]);
		(void)snprintf(to, sizeof(to), "%s.damaged-%llu%s", name, stamp, suffixes[i]);
		(void)renameat(history->dir_fd, from, history->dir_fd, to);
	}
	log_error("%s/%s is damaged (%s): kept as %s.damaged-%llu, the day begins anew",
		  history->path, name, why->text, name, stamp);
}

static int open_writer(struct sqlite_history *history, const struct store_day *day, sqlite3 **ret,
		       struct err *err)
{
	char path[PATH_MAX];
	struct err why = { 0 };
	sqlite3 *db = NULL;
	int rc = sqlite_history_path(history, day, path);

	if (rc == 0)
		rc = sqlite_db_open_writer(path, &db, &why);
	if (rc == -EUCLEAN) {
		set_aside(history, day, &why);
		rc = sqlite_db_open_writer(path, &db, &why);
	}
	if (rc == 0 && sqlite_db_number(db, "PRAGMA user_version", 0) < SCHEMA_VERSION)
		rc = sqlite_db_exec(db, schema, &why);
	if (rc < 0) {
		sqlite_db_close(db);
		if (err)
			*err = why;
		return rc;
	}
	*ret = db;
	return 0;
}

/* Lock held. */
static int find_writer(struct sqlite_history *history, const struct store_day *day, sqlite3 **ret,
		       struct err *err)
{
	struct history_writer *least = &history->writers[0];
	int rc;

	for (size_t i = 0; i < HISTORY_WRITERS_MAX; i++) {
		struct history_writer *writer = &history->writers[i];

		if (writer->db && same_day(&writer->day, day)) {
			writer->used = ++history->clock;
			*ret = writer->db;
			return 0;
		}
		if (writer->used < least->used)
			least = writer;
	}
	if (least->db)
		close_writer(least, false);
	rc = open_writer(history, day, &least->db, err);
	if (rc < 0)
		return rc;
	least->day = *day;
	least->used = ++history->clock;
	*ret = least->db;
	return 0;
}

/* ---- appending ---------------------------------------------------------------------------------
 */

static int put_meta(sqlite3 *db, const char *key, uint64_t value, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(db, "INSERT OR REPLACE INTO meta VALUES (?1, ?2)", &stmt, err);

	if (rc < 0)
		return rc;
	(void)sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 2, (sqlite3_int64)value);
	return sqlite_db_step(db, stmt, "writing the history", err);
}

static int put_dictionary(sqlite3 *db, const struct store_chunk *chunks, size_t count,
			  struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(db, "INSERT INTO dict (kind, z) VALUES (?1, ?2)", &stmt, err);

	for (size_t i = 0; rc == 0 && i < count; i++) {
		cleanup_free void *packed = NULL;
		size_t len;

		rc = packed_make(chunks[i].data, chunks[i].len, &packed, &len);
		if (rc < 0)
			return err_set(err, -rc, "StoreUnavailable", NULL,
				       "a piece of the history is too large");
		(void)sqlite3_bind_int(stmt, 1, chunks[i].kind);
		(void)sqlite3_bind_blob64(stmt, 2, packed, len, SQLITE_STATIC);
		rc = sqlite_db_step(db, stmt, "writing the history", err);
		(void)sqlite3_reset(stmt);
	}
	return rc;
}

static int find_series(sqlite3 *db, const struct store_window *window, int64_t *ret,
		       struct err *err)
{
	static const char *const texts[] = {
		"INSERT OR IGNORE INTO series (service, type, owners) VALUES (?1, ?2, ?3)",
		"SELECT id FROM series WHERE service = ?1 AND type = ?2 AND owners = ?3",
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(texts); i++) {
		cleanup(stmt) sqlite3_stmt *stmt = NULL;

		rc = sqlite_db_prepare(db, texts[i], &stmt, err);
		if (rc < 0)
			return rc;
		(void)sqlite3_bind_text(stmt, 1, window->service, -1, SQLITE_STATIC);
		(void)sqlite3_bind_text(stmt, 2, window->type, -1, SQLITE_STATIC);
		(void)sqlite3_bind_text(stmt, 3, window->owners, -1, SQLITE_STATIC);
		rc = sqlite_db_step(db, stmt, "writing the history", err);
		if (rc == 1)
			*ret = sqlite3_column_int64(stmt, 0);
	}
	return rc == 1 ? 0 : rc < 0 ? rc : -EIO;
}

static int drop_parts(sqlite3 *db, int64_t series, int64_t ts, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(db, "DELETE FROM win WHERE series = ?1 AND ts = ?2", &stmt, err);

	if (rc < 0)
		return rc;
	(void)sqlite3_bind_int64(stmt, 1, series);
	(void)sqlite3_bind_int64(stmt, 2, ts);
	return sqlite_db_step(db, stmt, "folding the history", err);
}

static int put_window(sqlite3 *db, const struct store_window *window, struct err *err)
{
	/* Parts are numbered from 1 in the order they come. */
	static const char insert[] =
		"INSERT INTO win VALUES (?1, ?2, CASE ?3 WHEN 1 THEN 0 ELSE (SELECT 1 + "
		"ifnull(max(part), 0) FROM win WHERE series = ?1 AND ts = ?2) END, ?4, ?5, ?6, ?7)";
	int64_t series = 0, ts = (int64_t)(window->from_ns / NS_PER_S);
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	cleanup_free void *packed = NULL;
	size_t len;
	int rc = find_series(db, window, &series, err);

	if (rc == 0 && window->whole)
		rc = drop_parts(db, series, ts, err);
	if (rc == 0)
		rc = sqlite_db_prepare(db, insert, &stmt, err);
	if (rc < 0)
		return rc;
	rc = packed_make(window->data, window->len, &packed, &len);
	if (rc < 0)
		return err_set(err, -rc, "StoreUnavailable", NULL,
			       "a window of the history is too large");
	(void)sqlite3_bind_int64(stmt, 1, series);
	(void)sqlite3_bind_int64(stmt, 2, ts);
	(void)sqlite3_bind_int(stmt, 3, window->whole);
	(void)sqlite3_bind_int64(stmt, 4, (sqlite3_int64)window->samples);
	(void)sqlite3_bind_int64(stmt, 5, (sqlite3_int64)window->lost);
	(void)sqlite3_bind_int64(stmt, 6, window->value);
	(void)sqlite3_bind_blob64(stmt, 7, packed, len, SQLITE_STATIC);
	return sqlite_db_step(db, stmt, "writing the history", err);
}

static int append(sqlite3 *db, const struct store_chunk *dictionary, size_t chunk_count,
		  const struct store_window *windows, size_t window_count, uint64_t feed_identity,
		  uint64_t feed_position, struct err *err)
{
	int rc = sqlite_db_exec(db, "BEGIN IMMEDIATE", err);

	if (rc < 0)
		return rc;
	rc = put_dictionary(db, dictionary, chunk_count, err);
	for (size_t i = 0; rc == 0 && i < window_count; i++)
		rc = put_window(db, &windows[i], err);
	if (rc == 0)
		rc = put_meta(db, "feed_identity", feed_identity, err);
	if (rc == 0)
		rc = put_meta(db, "feed_position", feed_position, err);
	if (rc == 0)
		rc = sqlite_db_exec(db, "COMMIT", err);
	if (rc < 0 && !sqlite3_get_autocommit(db))
		(void)!sqlite_db_exec(db, "ROLLBACK", NULL);
	return rc;
}

int sqlite_history_append(struct sqlite_history *history, const struct store_day *day,
			  const struct store_chunk *dictionary, size_t chunk_count,
			  const struct store_window *windows, size_t window_count,
			  uint64_t feed_identity, uint64_t feed_position, struct err *err)
{
	sqlite3 *db;
	int rc;

	(void)pthread_mutex_lock(&history->lock);
	rc = find_writer(history, day, &db, err);
	if (rc == 0)
		rc = append(db, dictionary, chunk_count, windows, window_count, feed_identity,
			    feed_position, err);
	(void)pthread_mutex_unlock(&history->lock);
	return rc;
}

void sqlite_history_seal(struct sqlite_history *history, const struct store_day *day)
{
	(void)pthread_mutex_lock(&history->lock);
	for (size_t i = 0; i < HISTORY_WRITERS_MAX; i++)
		if (history->writers[i].db && same_day(&history->writers[i].day, day))
			close_writer(&history->writers[i], true);
	(void)pthread_mutex_unlock(&history->lock);
}

int sqlite_history_drop(struct sqlite_history *history, const struct store_day *day,
			struct err *err)
{
	static const char *const suffixes[] = { "", "-wal", "-shm" };
	char name[NAME_SIZE], full[NAME_SIZE + 8];
	int rc = 0;

	(void)pthread_mutex_lock(&history->lock);
	for (size_t i = 0; i < HISTORY_WRITERS_MAX; i++)
		if (history->writers[i].db && same_day(&history->writers[i].day, day))
			close_writer(&history->writers[i], false);
	file_name(day, name);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		(void)snprintf(full, sizeof(full), "%s%s", name, suffixes[i]);
		if (unlinkat(history->dir_fd, full, 0) < 0 && errno != ENOENT)
			rc = err_set(err, errno, "StoreUnavailable", NULL, "%s/%s: %s",
				     history->path, full, strerror(errno));
	}
	(void)pthread_mutex_unlock(&history->lock);
	return rc;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static void close_reader(sqlite3 *db)
{
	sqlite_db_close(db);
}
CLEANUP_DEFINE(reader, sqlite3 *, close_reader);

static int open_reader(const struct sqlite_history *history, const struct store_day *day,
		       sqlite3 **ret, struct err *err)
{
	cleanup(reader) sqlite3 *db = NULL;
	char path[PATH_MAX];
	struct stat st;
	int64_t version;
	int rc = sqlite_history_path(history, day, path);

	if (rc == 0 && stat(path, &st) < 0)
		rc = -errno;
	if (rc == 0)
		rc = sqlite_db_open_reader(path, &db, err);
	else
		(void)err_set(err, -rc, rc == -ENOENT ? NULL : "StoreUnavailable", NULL,
			      "nothing is stored for that day");
	if (rc < 0)
		return rc;
	version = sqlite_db_number(db, "PRAGMA user_version", 0);
	if (version == 0) /* is being created */
		return err_set(err, ENOENT, NULL, NULL, "nothing is stored for that day");
	if (version > SCHEMA_VERSION)
		return err_set(err, EPROTO, "StoreUnavailable", NULL,
			       "%s was written by a newer profd: install that version again", path);
	*ret = take_ptr(db);
	return 0;
}

int sqlite_history_position(struct sqlite_history *history, const struct store_day *day,
			    uint64_t *ret_identity, uint64_t *ret_position, struct err *err)
{
	cleanup(reader) sqlite3 *db = NULL;
	int rc = open_reader(history, day, &db, err);

	if (rc < 0)
		return rc;
	*ret_identity =
		(uint64_t)sqlite_db_number(db, "SELECT v FROM meta WHERE k = 'feed_identity'", 0);
	*ret_position =
		(uint64_t)sqlite_db_number(db, "SELECT v FROM meta WHERE k = 'feed_position'", 0);
	return 0;
}

int sqlite_history_dictionary(struct sqlite_history *history, const struct store_day *day,
			      store_chunk_fn *visit, void *ctx, unsigned *ret_damaged,
			      struct err *err)
{
	cleanup(reader) sqlite3 *db = NULL;
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	unsigned damaged = 0;
	int rc = open_reader(history, day, &db, err);

	if (rc == 0)
		rc = sqlite_db_prepare(db, "SELECT kind, z FROM dict ORDER BY seq", &stmt, err);
	while (rc == 0 && (rc = sqlite_db_step(db, stmt, "reading the history", err)) == 1) {
		struct store_chunk chunk = { .kind = (enum store_chunk_kind)sqlite3_column_int(stmt,
											       0) };
		cleanup_free void *data = NULL;

		rc = packed_open(sqlite3_column_blob(stmt, 1),
				 (size_t)sqlite3_column_bytes(stmt, 1), &data, &chunk.len);
		if (rc == -EUCLEAN) {
			damaged++;
			rc = 0;
			continue;
		}
		chunk.data = data;
		if (rc == 0)
			rc = visit(ctx, &chunk);
	}
	if (rc == 0 && ret_damaged)
		*ret_damaged = damaged;
	return rc;
}

static void bind_text(sqlite3_stmt *stmt, const char *name, const char *text)
{
	(void)sqlite3_bind_text(stmt, sqlite3_bind_parameter_index(stmt, name), text, -1,
				SQLITE_TRANSIENT);
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
	(void)sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":from"),
				 (sqlite3_int64)(query->from_ns / NS_PER_S));
	(void)sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":to"),
				 query->to_ns
					 ? (sqlite3_int64)((query->to_ns + NS_PER_S - 1) / NS_PER_S)
					 : INT64_MAX);
}

#define CONDITIONS                                                                                 \
	" FROM series s JOIN win w ON w.series = s.id"                                             \
	" WHERE (:tenant IS NULL OR instr(s.owners, :tenant)) AND"                                 \
	" (:service IS NULL OR s.service = :service) AND (:type IS NULL OR s.type = :type) AND"    \
	" w.ts >= :from AND w.ts < :to"

static int visit_window(sqlite3_stmt *stmt, bool with_data, store_window_fn *visit, void *ctx,
			unsigned *damaged)
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
	int rc = 0;

	if (with_data)
		rc = packed_open(sqlite3_column_blob(stmt, 8),
				 (size_t)sqlite3_column_bytes(stmt, 8), &data, &window.len);
	if (rc == -EUCLEAN) {
		(*damaged)++;
		return 0;
	}
	window.data = data;
	return rc < 0 ? rc : visit(ctx, &window);
}

int sqlite_history_windows(struct sqlite_history *history, const struct store_day *day,
			   const struct store_window_query *query, store_window_fn *visit,
			   void *ctx, unsigned *ret_damaged, struct err *err)
{
	static const char *const texts[] = {
		"SELECT s.service, s.type, s.owners, w.ts, w.part, w.samples, w.lost, "
		"w.value" CONDITIONS " ORDER BY w.ts",
		"SELECT s.service, s.type, s.owners, w.ts, w.part, w.samples, w.lost, w.value, "
		"w.z" CONDITIONS " ORDER BY w.ts",
	};
	cleanup(reader) sqlite3 *db = NULL;
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	unsigned damaged = 0;
	int rc = open_reader(history, day, &db, err);

	if (rc == 0)
		rc = sqlite_db_prepare(db, texts[query->with_data], &stmt, err);
	if (rc == 0)
		bind_query(stmt, query);
	while (rc == 0 && (rc = sqlite_db_step(db, stmt, "reading the history", err)) == 1)
		rc = visit_window(stmt, query->with_data, visit, ctx, &damaged);
	if (rc == 0 && ret_damaged)
		*ret_damaged = damaged;
	return rc;
}

int sqlite_history_spans(struct sqlite_history *history, const struct store_day *day,
			 const struct store_window_query *query, uint64_t span_ns,
			 store_span_fn *visit, void *ctx, struct err *err)
{
	/* Stretches are counted from midnight, so that none lies in two files. */
	static const char text[] =
		"SELECT s.service, s.type, max(s.owners), (w.ts - :day) / :span AS n, min(w.ts), "
		"max(w.ts), sum(w.samples), sum(w.lost), sum(w.value), sum(length(w.z))" CONDITIONS
		" GROUP BY s.service, s.type, n ORDER BY n, s.service, s.type";
	uint64_t midnight_s = (uint64_t)day->day * S_PER_DAY, span_s = span_ns / NS_PER_S;
	cleanup(reader) sqlite3 *db = NULL;
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = open_reader(history, day, &db, err);

	if (rc == 0)
		rc = sqlite_db_prepare(db, text, &stmt, err);
	if (rc < 0)
		return rc;
	bind_query(stmt, query);
	(void)sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":day"),
				 (sqlite3_int64)midnight_s);
	(void)sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":span"),
				 (sqlite3_int64)span_s);
	while (rc == 0 && (rc = sqlite_db_step(db, stmt, "reading the history", err)) == 1) {
		struct store_span span = {
			.service = (const char *)sqlite3_column_text(stmt, 0),
			.type = (const char *)sqlite3_column_text(stmt, 1),
			.owners = (const char *)sqlite3_column_text(stmt, 2),
			.from_ns = (midnight_s + (uint64_t)sqlite3_column_int64(stmt, 3) * span_s) *
				   NS_PER_S,
			.first_ns = (uint64_t)sqlite3_column_int64(stmt, 4) * NS_PER_S,
			.last_ns = (uint64_t)sqlite3_column_int64(stmt, 5) * NS_PER_S,
			.samples = (uint64_t)sqlite3_column_int64(stmt, 6),
			.lost = (uint64_t)sqlite3_column_int64(stmt, 7),
			.value = sqlite3_column_int64(stmt, 8),
			.bytes = (uint64_t)sqlite3_column_int64(stmt, 9),
		};

		rc = visit(ctx, &span);
	}
	return rc;
}

/* ---- life --------------------------------------------------------------------------------------
 */

int sqlite_history_open(struct sqlite_history *history, const char *path, struct err *err)
{
	*history = (struct sqlite_history){ .dir_fd = -1 };
	(void)pthread_mutex_init(&history->lock, NULL);
	if (asprintf(&history->path, "%s/history", path) < 0) {
		history->path = NULL;
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	}
	if (mkdir(history->path, 0700) < 0 && errno != EEXIST)
		return err_set(err, errno, "StoreUnavailable", NULL, "%s: %s", history->path,
			       strerror(errno));
	history->dir_fd = open(history->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (history->dir_fd < 0)
		return err_set(err, errno, "StoreUnavailable", NULL, "%s: %s", history->path,
			       strerror(errno));
	return 0;
}

void sqlite_history_close(struct sqlite_history *history)
{
	if (!history->path)
		return;
	for (size_t i = 0; i < HISTORY_WRITERS_MAX; i++)
		if (history->writers[i].db)
			close_writer(&history->writers[i], false);
	cleanup_close_fn(&history->dir_fd);
	(void)pthread_mutex_destroy(&history->lock);
	free(history->path);
	history->path = NULL;
}
