// SPDX-License-Identifier: Apache-2.0
#include "agent/store/sqlite_db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY_TIMEOUT_MS                                                                            \
	2000 /* readers and the writer exclude each other only while a WAL is recovered */

#define READ_BYTES (64u << 10)

int sqlite_db_error(sqlite3 *db, int rc, const char *what, struct err *err)
{
	int code = EIO;

	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		code = ENOSPC;
		break;
	case SQLITE_NOMEM:
		code = ENOMEM;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		code = EBUSY;
		break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		code = EUCLEAN;
		break;
	case SQLITE_CANTOPEN:
	case SQLITE_IOERR:
		/* A full disk shows as a failed write of the -shm or -wal file, too. */
		if (db &&
		    (sqlite3_system_errno(db) == ENOSPC || sqlite3_system_errno(db) == EDQUOT))
			code = ENOSPC;
		break;
	}
	return err_set(err, code, "StoreUnavailable", NULL, "store: %s: %s", what,
		       db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

void sqlite_db_close(sqlite3 *db)
{
	(void)sqlite3_close_v2(db);
}

int sqlite_db_exec(sqlite3 *db, const char *sql, struct err *err)
{
	return sqlite_db_error(db, sqlite3_exec(db, sql, NULL, NULL, NULL), sql, err);
}

int sqlite_db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct err *err)
{
	return sqlite_db_error(db, sqlite3_prepare_v2(db, sql, -1, ret, NULL), "preparing a query",
			       err);
}

int sqlite_db_step(sqlite3 *db, sqlite3_stmt *stmt, const char *what, struct err *err)
{
	int rc = sqlite3_step(stmt);

	if (rc == SQLITE_ROW)
		return 1;
	return sqlite_db_error(db, rc, what, err);
}

int64_t sqlite_db_number(sqlite3 *db, const char *sql, int64_t fallback)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;

	if (sqlite_db_prepare(db, sql, &stmt, NULL) < 0 || sqlite3_step(stmt) != SQLITE_ROW)
		return fallback;
	return sqlite3_column_int64(stmt, 0);
}

static int open_db(const char *path, int flags, const char *pragmas, sqlite3 **ret, struct err *err)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX, NULL);

	rc = sqlite_db_error(db, rc, path, err);
	if (rc == 0) {
		(void)sqlite3_extended_result_codes(db, 1);
		(void)sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
		rc = sqlite_db_exec(db, pragmas, err);
	}
	if (rc < 0) {
		sqlite_db_close(db);
		return rc;
	}
	*ret = db;
	return 0;
}

/* The first line of what is wrong is also of a read that failed. */
static int check_once(sqlite3 *db, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(db, "PRAGMA quick_check(1)", &stmt, err);
	const char *text;

	if (rc == 0)
		rc = sqlite_db_step(db, stmt, "quick_check", err);
	if (rc <= 0)
		return rc;
	text = (const char *)sqlite3_column_text(stmt, 0);
	if (text && strcmp(text, "ok") == 0)
		return 0;
	return err_set(err, EUCLEAN, "StoreUnavailable", NULL, "store: %s",
		       text ? text : "damaged");
}

static int read_through(const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	cleanup_free char *piece = malloc(READ_BYTES);
	ssize_t got = 1;

	if (fd < 0 || !piece)
		return fd < 0 ? -errno : -ENOMEM;
	for (off_t at = 0; got > 0; at += got)
		got = pread(fd, piece, READ_BYTES, at);
	return got < 0 ? -errno : 0;
}

/* A damaged file is set aside. A file that cannot be read now, or could not be once, is not
 * damaged. */
static int quick_check(sqlite3 *db, const char *path, struct err *err)
{
	int rc = check_once(db, err);

	if (rc != -EUCLEAN)
		return rc;
	rc = read_through(path);
	return rc < 0 ? err_set(err, -rc, "StoreUnavailable", NULL, "store: %s: %s", path, strerror(-rc))
		      : check_once(db, err);
}

int sqlite_db_open_writer(const char *path, unsigned page_bytes, sqlite3 **ret, struct err *err)
{
	char pragmas[256];
	sqlite3 *db = NULL;
	int rc;

	(void)snprintf(pragmas, sizeof(pragmas),
		       "PRAGMA page_size=%u; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA mmap_size=0;"
		       "PRAGMA secure_delete=OFF; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
		       "PRAGMA journal_size_limit=4194304",
		       page_bytes);
	rc = open_db(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, pragmas, &db, err);

	if (rc == 0)
		rc = quick_check(db, path, err);
	if (rc < 0) {
		sqlite_db_close(db);
		return rc;
	}
	*ret = db;
	return 0;
}

int sqlite_db_open_reader(const char *path, sqlite3 **ret, struct err *err)
{
	int rc = open_db(path, SQLITE_OPEN_READONLY, "PRAGMA mmap_size=0; PRAGMA query_only=1", ret,
			 err);

	if (rc == 0)
		(void)sqlite3_db_config(*ret, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	return rc;
}
