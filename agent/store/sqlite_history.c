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
#include "agent/store/minutes.h"
#include "agent/store/packed.h"
#include "agent/store/sqlite_checksum.h"
#include "agent/store/sqlite_db.h"

#define NAME_SIZE      48
#define PAGE_BYTES                                                                                 \
	1024u /* a row's last page and a table's first are half empty: many rows, few tables,      \
		 small ones */
#define S_PER_DAY      86400
#define S_PER_HOUR     3600

/* `sum` is the checksum of the columns that no blob's own checksum covers. */
static const char schema[] =
	"BEGIN IMMEDIATE;"
	"CREATE TABLE meta (k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID;"
	"CREATE TABLE series (id INTEGER PRIMARY KEY, service TEXT NOT NULL, type TEXT NOT NULL,"
	"  owners TEXT NOT NULL, sum INTEGER NOT NULL, shared BLOB, UNIQUE (service, type, owners));"
	"CREATE TABLE dict (seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, z BLOB NOT NULL,"
	"  sum INTEGER NOT NULL);"
	/* part 0 is the whole minute, others are added to it */
	"CREATE TABLE win (series INTEGER, ts INTEGER, part INTEGER, samples INTEGER, lost INTEGER,"
	"  value INTEGER, profiled INTEGER, z BLOB, sum INTEGER NOT NULL,"
	"  PRIMARY KEY (series, ts, part)) WITHOUT ROWID;"
	/* id = hour of the day << 32 | series; whole rows, because a tree of keys keeps large ones
	   badly */
	"CREATE TABLE hour (id INTEGER PRIMARY KEY, minutes BLOB NOT NULL, z BLOB NOT NULL,"
	"  sum INTEGER NOT NULL);"
	"PRAGMA user_version = 5;"
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
	*ret = (struct store_day){ .day = (uint32_t)(at / S_PER_DAY), .retention_days = retention };
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

/* Files of earlier versions were never released: they are kept, but not written on. */
static int make_schema(sqlite3 *db, struct err *err)
{
	int64_t version = sqlite_db_number(db, "PRAGMA user_version", 0);

	if (version == 0)
		return sqlite_db_exec(db, schema, err);
	return version == HISTORY_SCHEMA_VERSION
		       ? 0
		       : err_set(err, EUCLEAN, "StoreUnavailable", NULL, "written by another version");
}

static int open_and_check(const char *path, sqlite3 **ret, struct err *err)
{
	sqlite3 *db = NULL;
	int rc = sqlite_db_open_writer(path, PAGE_BYTES, &db, err);

	if (rc == 0)
		rc = sqlite_checksum_add(db, err);
	if (rc == 0)
		rc = make_schema(db, err);
	if (rc < 0) {
		sqlite_db_close(db);
		return rc;
	}
	*ret = db;
	return 0;
}

static int open_writer(struct sqlite_history *history, const struct store_day *day, sqlite3 **ret,
		       struct err *err)
{
	char path[PATH_MAX];
	struct err why = { 0 };
	int rc = sqlite_history_path(history, day, path);

	if (rc == 0)
		rc = open_and_check(path, ret, &why);
	if (rc == -EUCLEAN) {
		set_aside(history, day, &why);
		rc = open_and_check(path, ret, &why);
	}
	if (rc < 0 && err)
		*err = why;
	return rc;
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

/* @ends: NULL, or of what lasts. */
static int put_dictionary(sqlite3 *db, const struct store_chunk *chunks, size_t count,
			  const struct store_ends *ends, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(
		db, "INSERT INTO dict (kind, z, sum) VALUES (?1, ?2, checksum(?1))", &stmt, err);

	for (size_t i = 0; rc == 0 && i < count; i++) {
		cleanup_free void *packed = NULL;
		size_t len;

		rc = packed_make(chunks[i].data, chunks[i].len, ends, &packed, &len);
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
		"INSERT OR IGNORE INTO series (service, type, owners, sum) VALUES (?1, ?2, ?3, "
		"checksum(?1, ?2, ?3, NULL))",
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

static int drop_where(sqlite3 *db, const char *text, int64_t a, int64_t b, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(db, text, &stmt, err);

	if (rc < 0)
		return rc;
	(void)sqlite3_bind_int64(stmt, 1, a);
	(void)sqlite3_bind_int64(stmt, 2, b);
	return sqlite_db_step(db, stmt, "clearing the history", err);
}

static int pack_window(const struct store_window *window, const struct store_ends *ends, void **ret,
		       size_t *ret_len, struct err *err)
{
	int rc = packed_make(window->data, window->len, ends, ret, ret_len);

	return rc < 0 ? err_set(err, -rc, "StoreUnavailable", NULL, "a window of the history is too large")
		      : 0;
}

static int put_window(sqlite3 *db, const struct store_window *window, struct err *err)
{
	/* Parts are numbered from 1 in the order they come. */
	static const char insert[] =
		"INSERT INTO win SELECT ?1, ?2, n, ?4, ?5, ?6, ?7, ?8, checksum(?1, ?2, n, ?4, ?5, ?6, ?7) "
		"FROM (SELECT CASE ?3 WHEN 1 THEN 0 ELSE (SELECT 1 + ifnull(max(part), 0) FROM win "
		"WHERE series = ?1 AND ts = ?2) END AS n)";
	int64_t series = 0, ts = (int64_t)(window->from_ns / NS_PER_S);
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	cleanup_free void *packed = NULL;
	size_t len;
	int rc = find_series(db, window, &series, err);

	if (rc == 0 && window->whole)
		rc = drop_where(db, "DELETE FROM win WHERE series = ?1 AND ts = ?2", series, ts, err);
	if (rc == 0)
		rc = sqlite_db_prepare(db, insert, &stmt, err);
	if (rc == 0)
		rc = pack_window(window, NULL, &packed, &len, err);
	if (rc < 0)
		return rc;
	(void)sqlite3_bind_int64(stmt, 1, series);
	(void)sqlite3_bind_int64(stmt, 2, ts);
	(void)sqlite3_bind_int(stmt, 3, window->whole);
	(void)sqlite3_bind_int64(stmt, 4, (sqlite3_int64)window->samples);
	(void)sqlite3_bind_int64(stmt, 5, (sqlite3_int64)window->lost);
	(void)sqlite3_bind_int64(stmt, 6, window->value);
	(void)sqlite3_bind_int64(stmt, 7, window->profiled_ms);
	(void)sqlite3_bind_blob64(stmt, 8, packed, len, SQLITE_STATIC);
	return sqlite_db_step(db, stmt, "writing the history", err);
}

static int append(sqlite3 *db, const struct store_chunk *dictionary, size_t chunk_count,
		  const struct store_window *windows, size_t window_count, uint64_t feed_identity,
		  uint64_t feed_position, struct err *err)
{
	int rc = put_dictionary(db, dictionary, chunk_count, NULL, err);

	for (size_t i = 0; rc == 0 && i < window_count; i++)
		rc = put_window(db, &windows[i], err);
	if (rc == 0)
		rc = put_meta(db, "feed_identity", feed_identity, err);
	return rc == 0 ? put_meta(db, "feed_position", feed_position, err) : rc;
}

/* Makes everything since "BEGIN" durable, or takes it back. */
static int finish(sqlite3 *db, int rc, struct err *err)
{
	if (rc == 0)
		rc = sqlite_db_exec(db, "COMMIT", err);
	if (rc < 0 && !sqlite3_get_autocommit(db))
		(void)!sqlite_db_exec(db, "ROLLBACK", NULL);
	return rc;
}

/* Begins what finish() ends. */
static int begin(struct sqlite_history *history, const struct store_day *day, sqlite3 **ret_db,
		 struct err *err)
{
	int rc = find_writer(history, day, ret_db, err);

	return rc < 0 ? rc : sqlite_db_exec(*ret_db, "BEGIN IMMEDIATE", err);
}

int sqlite_history_append(struct sqlite_history *history, const struct store_day *day,
			  const struct store_chunk *dictionary, size_t chunk_count,
			  const struct store_window *windows, size_t window_count,
			  uint64_t feed_identity, uint64_t feed_position, struct err *err)
{
	sqlite3 *db;
	int rc;

	(void)pthread_mutex_lock(&history->lock);
	rc = begin(history, day, &db, err);
	if (rc == 0)
		rc = finish(db,
			    append(db, dictionary, chunk_count, windows, window_count,
				   feed_identity, feed_position, err),
			    err);
	sqlite_history_spans_forget(history, day);
	(void)pthread_mutex_unlock(&history->lock);
	return rc;
}

/* ---- rolling up --------------------------------------------------------------------------------
 */

static int put_shared(sqlite3 *db, int64_t series, const struct store_window *window,
		      struct err *err)
{
	static const struct store_ends none = { 0 };
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	cleanup_free void *packed = NULL;
	size_t len;
	int rc = sqlite_db_prepare(db,
				   "UPDATE series SET shared = ?2, sum = checksum(service, type, owners, length(?2)) "
				   "WHERE id = ?1",
				   &stmt, err);

	if (rc == 0)
		rc = packed_make(window->shared, window->shared_len, &none, &packed, &len);
	if (rc < 0)
		return err_set(err, -rc, "StoreUnavailable", NULL,
			       "the shared data of the history's hours is too large");
	(void)sqlite3_bind_int64(stmt, 1, series);
	(void)sqlite3_bind_blob64(stmt, 2, packed, len, SQLITE_STATIC);
	return sqlite_db_step(db, stmt, "rolling up the history", err);
}

static int put_hour(sqlite3 *db, const struct store_window *window, struct err *err)
{
	static const char insert[] = "INSERT INTO hour VALUES (?1, ?2, ?3, checksum(?1, ?2))";
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	cleanup_free void *packed = NULL;
	cleanup_buf struct buf minutes = { 0 };
	int64_t series = 0;
	size_t len;
	int rc = find_series(db, window, &series, err);

	minutes_encode(&minutes, window->minutes, window->minute_count);
	if (rc == 0 && minutes.error)
		rc = err_set(err, -minutes.error, NULL, NULL, "no memory to roll up the history");
	if (rc == 0 && window->shared)
		rc = put_shared(db, series, window, err);
	if (rc == 0)
		rc = sqlite_db_prepare(db, insert, &stmt, err);
	if (rc == 0)
		rc = pack_window(window, &window->ends, &packed, &len, err);
	if (rc < 0)
		return rc;
	(void)sqlite3_bind_int64(stmt, 1, sqlite_history_hour_id(window->from_ns, series));
	(void)sqlite3_bind_blob64(stmt, 2, minutes.data, minutes.len, SQLITE_STATIC);
	(void)sqlite3_bind_blob64(stmt, 3, packed, len, SQLITE_STATIC);
	return sqlite_db_step(db, stmt, "rolling up the history", err);
}

static int roll(sqlite3 *db, uint64_t from_ns, size_t kept, const struct store_chunk *dictionary,
		const struct store_ends *ends, const struct store_window *windows, size_t window_count,
		struct err *err)
{
	static const struct store_ends none = { 0 };
	int64_t from_s = (int64_t)(from_ns / NS_PER_S);
	int rc = drop_where(db,
			    "DELETE FROM dict WHERE seq NOT IN (SELECT seq FROM dict ORDER BY seq LIMIT ?1)",
			    (int64_t)kept, 0, err);

	if (rc == 0)
		rc = drop_where(db, "DELETE FROM win WHERE ts >= ?1 AND ts < ?2", from_s,
				from_s + S_PER_HOUR, err);
	if (rc == 0)
		rc = drop_where(db, "DELETE FROM hour WHERE id BETWEEN ?1 AND ?2",
				sqlite_history_hour_id(from_ns, 0),
				sqlite_history_hour_id(from_ns, UINT32_MAX), err);
	if (rc == 0)
		rc = put_dictionary(db, dictionary, dictionary ? 1 : 0, ends ? ends : &none, err);
	for (size_t i = 0; rc == 0 && i < window_count; i++)
		rc = put_hour(db, &windows[i], err);
	return rc;
}

int sqlite_history_roll(struct sqlite_history *history, const struct store_day *day,
			uint64_t from_ns, size_t kept, const struct store_chunk *dictionary,
			const struct store_ends *ends, const struct store_window *windows,
			size_t window_count, struct err *err)
{
	sqlite3 *db;
	int rc;

	(void)pthread_mutex_lock(&history->lock);
	rc = begin(history, day, &db, err);
	if (rc == 0)
		rc = finish(db,
			    roll(db, from_ns, kept, dictionary, ends, windows, window_count, err),
			    err);
	sqlite_history_spans_forget(history, day);
	/* The room of the minutes; should it fail, the next hour uses it. */
	if (rc == 0)
		(void)!sqlite_db_exec(db, "PRAGMA incremental_vacuum", NULL);
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
	sqlite_history_spans_forget(history, day);
	(void)pthread_mutex_unlock(&history->lock);
	return rc;
}

/* ---- life --------------------------------------------------------------------------------------
 */

int sqlite_history_open(struct sqlite_history *history, const char *path, struct err *err)
{
	*history = (struct sqlite_history){ .dir_fd = -1 };
	(void)pthread_mutex_init(&history->lock, NULL);
	(void)pthread_mutex_init(&history->spans_lock, NULL);
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
	sqlite_history_spans_forget(history, NULL);
	(void)pthread_mutex_destroy(&history->spans_lock);
	(void)pthread_mutex_destroy(&history->lock);
	free(history->path);
	history->path = NULL;
}
