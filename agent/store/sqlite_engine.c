// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/store/folder.h"
#include "agent/store/session_log.h"
#include "agent/store/space.h"
#include "agent/store/sqlite_backup.h"
#include "agent/store/sqlite_db.h"
#include "agent/store/sqlite_history.h"
#include "agent/store/sqlite_records.h"
#include "agent/store/store_engine.h"

#define LOG_SUFFIX   ".log"

struct sqlite_engine {
	char *path;
	int dir_fd, sessions_fd, lock_fd;
	struct space space;
	_Atomic bool is_full; /* the last data did not fit, as the log says if it was not too often */
	_Atomic bool full_told;
	struct sqlite_records records;
	struct sqlite_history history;
	_Atomic uint64_t history_bytes; /* of history/, as of the last write or drop */
	_Atomic uint64_t log_bytes;	/* of all files below sessions/ */
};

static uint64_t file_bytes(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t engine_bytes(void *ctx)
{
	struct sqlite_engine *engine = ctx;

	return atomic_load(&engine->log_bytes) + atomic_load(&engine->history_bytes) +
	       file_bytes(engine->dir_fd, "state.db") + file_bytes(engine->dir_fd, "state.db-wal");
}

static void log_name(char out[STORE_ID_SIZE + 8], const char *id)
{
	(void)snprintf(out, STORE_ID_SIZE + 8, "%s" LOG_SUFFIX, id);
}

/* ---- records --------------------------------------------------------------------------------- */

static int no_space(struct err *err)
{
	return err_set(
		err, ENOSPC, "StoreUnavailable", NULL,
		"the disk or the store's budget is full: free space on the file system of data_dir "
		"or raise [store] disk_budget");
}

/* Logs one line when data begins not to fit, and one when it fits again. */
static int note_room(struct sqlite_engine *engine, int rc)
{
	static struct log_limit limit = { .burst = 2 };

	if (rc == -ENOSPC && !atomic_exchange(&engine->is_full, true)) {
		atomic_store(&engine->full_told, log_allowed(&limit));
		if (atomic_load(&engine->full_told))
			log_error(
				"the disk or the store's budget is full: nothing is recorded until there is room in %s",
				engine->path);
	} else if (rc == 0 && atomic_exchange(&engine->is_full, false) &&
		   atomic_load(&engine->full_told)) {
		log_info("there is room in %s again: sessions are recorded", engine->path);
	}
	return rc;
}

static int engine_put(void *ctx, const struct store_record *record, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	int rc =
		space_check(&engine->space, engine_bytes(engine), record->body_len, record->urgent);

	if (rc == 0)
		rc = sqlite_records_put(&engine->records, record, err);
	if (rc == -ENOSPC && record->urgent && space_release_ballast(&engine->space))
		rc = sqlite_records_put(&engine->records, record, err);
	return rc == -ENOSPC ? no_space(err) : rc;
}

static int engine_remove(void *ctx, const char *kind, const char *tenant, const char *id,
			 struct err *err)
{
	struct sqlite_engine *engine = ctx;
	int rc = sqlite_records_remove(&engine->records, kind, tenant, id, err);

	if (rc == -ENOSPC && space_release_ballast(&engine->space))
		rc = sqlite_records_remove(&engine->records, kind, tenant, id, err);
	return rc == -ENOSPC ? no_space(err) : rc;
}

static int engine_get(void *ctx, const char *kind, const char *tenant, const char *id,
		      char **ret_body, size_t *ret_len, struct err *err)
{
	struct sqlite_engine *engine = ctx;

	return sqlite_records_get(&engine->records, kind, tenant, id, ret_body, ret_len, err);
}

static int engine_list(void *ctx, const struct store_query *query, store_visit_fn *visit,
		       void *visit_ctx, uint64_t *ret_total, struct err *err)
{
	struct sqlite_engine *engine = ctx;

	return sqlite_records_list(&engine->records, query, visit, visit_ctx, ret_total, err);
}

/* ---- session data ---------------------------------------------------------------------------- */

static int log_error_text(int rc, const char *id, const char *what, struct err *err)
{
	if (rc == -ENOSPC)
		return no_space(err);
	if (rc < 0)
		return err_set(err, -rc, rc == -ENOENT ? NULL : "StoreUnavailable", NULL,
			       "store: %s %s: %s", what, id, strerror(-rc));
	return rc;
}

static int engine_session_append(void *ctx, const char *id, const struct store_chunk *chunks,
				 size_t count, uint64_t feed_identity, uint64_t feed_position,
				 struct err *err)
{
	struct sqlite_engine *engine = ctx;
	char name[STORE_ID_SIZE + 8];
	uint64_t raw = 0;
	int64_t grown = 0;
	int rc;

	for (size_t i = 0; i < count; i++)
		raw += chunks[i].len;
	log_name(name, id);
	/* Compressed to a third or less; the exact size is only known afterwards. */
	rc = space_check(&engine->space, engine_bytes(engine), raw / 3, false);
	if (rc == 0)
		rc = session_log_append(engine->sessions_fd, name, chunks, count, feed_identity,
					feed_position, &grown);
	atomic_fetch_add(&engine->log_bytes, (uint64_t)grown);
	return log_error_text(note_room(engine, rc), id, "writing the data of", err);
}

static int engine_session_read(void *ctx, const char *id, store_chunk_fn *visit, void *visit_ctx,
			       unsigned *ret_damaged, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	char name[STORE_ID_SIZE + 8];

	log_name(name, id);
	return log_error_text(
		session_log_read(engine->sessions_fd, name, visit, visit_ctx, ret_damaged), id,
		"reading the data of", err);
}

static int engine_session_position(void *ctx, const char *id, uint64_t *ret_identity,
				   uint64_t *ret_position, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	char name[STORE_ID_SIZE + 8];

	log_name(name, id);
	return log_error_text(
		session_log_position(engine->sessions_fd, name, ret_identity, ret_position), id,
		"reading the position of", err);
}

static int engine_session_remove(void *ctx, const char *id, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	char name[STORE_ID_SIZE + 8];
	uint64_t bytes;

	log_name(name, id);
	bytes = file_bytes(engine->sessions_fd, name);
	if (unlinkat(engine->sessions_fd, name, 0) < 0)
		return errno == ENOENT ? 0
				       : log_error_text(-errno, id, "deleting the data of", err);
	atomic_fetch_sub(&engine->log_bytes, bytes);
	return 0;
}

static int engine_session_copy(void *ctx, const char *from, const char *to, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	char from_name[STORE_ID_SIZE + 8], to_name[STORE_ID_SIZE + 8];
	uint64_t bytes = 0;
	int rc;

	log_name(from_name, from);
	log_name(to_name, to);
	rc = space_check(&engine->space, engine_bytes(engine),
			 file_bytes(engine->sessions_fd, from_name), false);
	if (rc == 0)
		rc = session_log_copy(engine->sessions_fd, from_name, to_name, &bytes);
	atomic_fetch_add(&engine->log_bytes, bytes);
	return log_error_text(rc, from, "copying the data of", err);
}

static uint64_t engine_session_bytes(void *ctx, const char *id)
{
	struct sqlite_engine *engine = ctx;
	char name[STORE_ID_SIZE + 8];

	log_name(name, id);
	return file_bytes(engine->sessions_fd, name);
}

static void engine_set_budget(void *ctx, uint64_t budget_bytes)
{
	struct sqlite_engine *engine = ctx;

	(void)pthread_mutex_lock(&engine->space.lock);
	engine->space.budget_bytes = budget_bytes;
	(void)pthread_mutex_unlock(&engine->space.lock);
}

/* ---- history -----------------------------------------------------------------------------------
 */

static int check_room(struct sqlite_engine *engine, const struct store_chunk *dictionary,
		      size_t chunk_count, const struct store_window *windows, size_t window_count)
{
	uint64_t raw = 0;

	for (size_t i = 0; i < chunk_count; i++)
		raw += dictionary[i].len;
	for (size_t i = 0; i < window_count; i++)
		raw += windows[i].len;
	return space_check(&engine->space, engine_bytes(engine), raw / 3, false);
}

static int engine_history_append(void *ctx, const struct store_day *day,
				 const struct store_chunk *dictionary, size_t chunk_count,
				 const struct store_window *windows, size_t window_count,
				 uint64_t feed_identity, uint64_t feed_position, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	int rc = check_room(engine, dictionary, chunk_count, windows, window_count);

	if (rc == 0)
		rc = sqlite_history_append(&engine->history, day, dictionary, chunk_count, windows,
					   window_count, feed_identity, feed_position, err);
	atomic_store(&engine->history_bytes, sqlite_history_bytes(&engine->history));
	return note_room(engine, rc) == -ENOSPC ? no_space(err) : rc;
}

static int engine_history_roll(void *ctx, const struct store_day *day, uint64_t from_ns,
			       size_t kept, const struct store_chunk *dictionary,
			       const struct store_ends *ends, const struct store_window *windows,
			       size_t window_count, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	int rc = check_room(engine, dictionary, dictionary ? 1 : 0, windows, window_count);

	if (rc == 0)
		rc = sqlite_history_roll(&engine->history, day, from_ns, kept, dictionary, ends, windows,
					 window_count, err);
	atomic_store(&engine->history_bytes, sqlite_history_bytes(&engine->history));
	return rc == -ENOSPC ? no_space(err) : rc;
}

static int engine_history_position(void *ctx, const struct store_day *day, uint64_t *ret_identity,
				   uint64_t *ret_position, struct err *err)
{
	struct sqlite_engine *engine = ctx;

	return sqlite_history_position(&engine->history, day, ret_identity, ret_position, err);
}

static int engine_history_days(void *ctx, bool every_host, store_day_fn *visit, void *visit_ctx,
			       struct err *err)
{
	struct sqlite_engine *engine = ctx;

	return sqlite_history_days(&engine->history, visit, visit_ctx, err);
}

static int engine_history_dictionary(void *ctx, const struct store_day *day, store_chunk_fn *visit,
				     void *visit_ctx, unsigned *ret_damaged, struct err *err)
{
	struct sqlite_engine *engine = ctx;

	return sqlite_history_dictionary(&engine->history, day, visit, visit_ctx, ret_damaged, err);
}

static int engine_history_windows(void *ctx, const struct store_day *day,
				  const struct store_window_query *query, store_window_fn *visit,
				  void *visit_ctx, unsigned *ret_damaged, struct err *err)
{
	struct sqlite_engine *engine = ctx;

	return sqlite_history_windows(&engine->history, day, query, visit, visit_ctx, ret_damaged,
				      err);
}

static int engine_history_spans(void *ctx, const struct store_day *day,
				const struct store_window_query *query, uint64_t span_ns,
				store_span_fn *visit, void *visit_ctx, struct err *err)
{
	struct sqlite_engine *engine = ctx;

	return sqlite_history_spans(&engine->history, day, query, span_ns, visit, visit_ctx, err);
}

static void engine_history_seal(void *ctx, const struct store_day *day)
{
	struct sqlite_engine *engine = ctx;

	sqlite_history_seal(&engine->history, day);
}

static int engine_history_drop(void *ctx, const struct store_day *day, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	int rc = sqlite_history_drop(&engine->history, day, err);

	atomic_store(&engine->history_bytes, sqlite_history_bytes(&engine->history));
	return rc;
}

/* ---- backup ---------------------------------------------------------------------------------- */

static int engine_backup(void *ctx, int *ret_fd, uint64_t *ret_bytes, struct err *err)
{
	struct sqlite_engine *engine = ctx;
	const struct sqlite_backup_source source = { engine->path, engine->dir_fd, engine->sessions_fd,
						     &engine->history, &engine->space };

	return sqlite_backup(&source, ret_fd, ret_bytes, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void engine_close(void *ctx)
{
	struct sqlite_engine *engine = ctx;

	if (engine->records.path)
		sqlite_records_close(&engine->records);
	sqlite_history_close(&engine->history);
	space_deinit(&engine->space);
	cleanup_close_fn(&engine->sessions_fd);
	cleanup_close_fn(&engine->lock_fd);
	cleanup_close_fn(&engine->dir_fd);
	free(engine->path);
	free(engine);
}

static int open_folders(struct sqlite_engine *engine, struct err *err)
{
	int rc = folder_open(engine->path, &engine->dir_fd, err);

	if (rc < 0)
		return rc;
	if (mkdirat(engine->dir_fd, "sessions", 0700) < 0 && errno != EEXIST)
		return err_set(err, errno, "StoreUnavailable", NULL, "%s/sessions: %s",
			       engine->path, strerror(errno));
	engine->sessions_fd =
		openat(engine->dir_fd, "sessions", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (engine->sessions_fd < 0)
		return err_set(err, errno, "StoreUnavailable", NULL, "%s/sessions: %s",
			       engine->path, strerror(errno));
	return 0;
}

/* Counts what is there and removes copies that a crash left half done. */
static int scan_sessions(struct sqlite_engine *engine, struct err *err)
{
	int fd = openat(engine->sessions_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	uint64_t total = 0;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return err_set(err, EIO, "StoreUnavailable", NULL, "%s/sessions cannot be listed",
			       engine->path);
	}
	while ((entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);

		if (entry->d_name[0] == '.')
			continue;
		if (len > 4 && strcmp(entry->d_name + len - 4, ".tmp") == 0)
			(void)unlinkat(engine->sessions_fd, entry->d_name, 0);
		else
			total += file_bytes(engine->sessions_fd, entry->d_name);
	}
	(void)closedir(dir);
	atomic_store(&engine->log_bytes, total);
	atomic_store(&engine->history_bytes, sqlite_history_bytes(&engine->history));
	return 0;
}

/* A damaged state.db is moved away with its companions, never deleted: it may be repaired by hand.
 */
static void set_aside(const struct sqlite_engine *engine, const struct err *why)
{
	static const char *const suffixes[] = { "", "-wal", "-shm" };
	unsigned long long stamp = clock_realtime_ns() / NS_PER_MS;

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		char from[32], to[64];

		(void)snprintf(from, sizeof(from), "state.db%s", suffixes[i]);
		(void)snprintf(to, sizeof(to), "state.db.damaged-%llu%s", stamp, suffixes[i]);
		(void)renameat(engine->dir_fd, from, engine->dir_fd, to);
	}
	log_error("%s/state.db is damaged (%s): kept as state.db.damaged-%llu, starting with an "
		  "empty one; "
		  "session data below sessions/ is untouched",
		  engine->path, why->text, stamp);
}

static int open_records(struct sqlite_engine *engine, struct err *err)
{
	char path[PATH_MAX];
	struct err why = { 0 };
	int rc;

	if (snprintf(path, sizeof(path), "%s/state.db", engine->path) >= (int)sizeof(path))
		return err_set(err, ENAMETOOLONG, "StoreUnavailable", NULL, "data_dir is too long");
	rc = sqlite_records_open(&engine->records, path, &why);
	if (rc == -EUCLEAN) {
		sqlite_records_close(&engine->records);
		set_aside(engine, &why);
		rc = sqlite_records_open(&engine->records, path, &why);
	}
	if (rc < 0 && err)
		*err = why;
	return rc;
}

int sqlite_engine_peek(const char *path, const char *kind)
{
	cleanup(db) sqlite3 *db = NULL;
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	char file[PATH_MAX];
	int rc;

	if (snprintf(file, sizeof(file), "%s/state.db", path) >= (int)sizeof(file))
		return -ENAMETOOLONG;
	if (access(file, F_OK) < 0)
		return errno == ENOENT ? 0 : -errno;
	rc = sqlite_db_open_reader(file, &db, NULL);
	if (rc == 0)
		rc = sqlite_db_prepare(db, "SELECT 1 FROM records WHERE kind = ?1 LIMIT 1", &stmt, NULL);
	if (rc < 0)
		return rc;
	(void)sqlite3_bind_text(stmt, 1, kind, -1, SQLITE_STATIC);
	return sqlite_db_step(db, stmt, "looking for a record", NULL);
}

int sqlite_engine_open(const char *path, const struct store_ops **ret_ops, void **ret_engine,
		       struct err *err)
{
	static const struct store_ops ops = {
		.close = engine_close,
		.set_budget = engine_set_budget,
		.put = engine_put,
		.remove = engine_remove,
		.get = engine_get,
		.list = engine_list,
		.session_append = engine_session_append,
		.session_read = engine_session_read,
		.session_position = engine_session_position,
		.session_remove = engine_session_remove,
		.session_copy = engine_session_copy,
		.history_append = engine_history_append,
		.history_roll = engine_history_roll,
		.history_position = engine_history_position,
		.history_days = engine_history_days,
		.history_dictionary = engine_history_dictionary,
		.history_windows = engine_history_windows,
		.history_spans = engine_history_spans,
		.history_seal = engine_history_seal,
		.history_drop = engine_history_drop,
		.session_bytes = engine_session_bytes,
		.bytes = engine_bytes,
		.backup = engine_backup,
	};
	struct sqlite_engine *engine = calloc(1, sizeof(*engine));
	int rc;

	if (!engine || !(engine->path = strdup(path))) {
		free(engine);
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	}
	engine->dir_fd = engine->sessions_fd = engine->lock_fd = -1;
	rc = open_folders(engine, err);
	space_init(&engine->space, engine->dir_fd);
	if (rc == 0)
		rc = folder_lock(engine->dir_fd, engine->path, &engine->lock_fd, err);
	if (rc == 0)
		rc = open_records(engine, err);
	if (rc == 0)
		rc = sqlite_history_open(&engine->history, engine->path, err);
	if (rc == 0) {
		sqlite_backup_clean(engine->dir_fd);
		rc = scan_sessions(engine, err);
	}
	if (rc < 0) {
		engine_close(engine);
		return rc;
	}
	*ret_ops = &ops;
	*ret_engine = engine;
	return 0;
}
