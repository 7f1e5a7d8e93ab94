/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite as this project uses it: pragmas, errors as errno, statements. Version traps and the
 * reason of each pragma: storage-ecosystem.md 1.3. */
#ifndef PROFD_STORE_SQLITE_DB_H
#define PROFD_STORE_SQLITE_DB_H

#include <sqlite3.h>
#include <stdbool.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

CLEANUP_DEFINE(stmt, sqlite3_stmt *, sqlite3_finalize);

/* The one writer: creates (in pages of @page_bytes, a power of two), WAL, synchronous=FULL, checked
 * with quick_check. -EUCLEAN: damaged. */
int sqlite_db_open_writer(const char *path, unsigned page_bytes, sqlite3 **ret, struct err *err)
	must_use;
/* Read-only, never checkpoints. */
int sqlite_db_open_reader(const char *path, sqlite3 **ret, struct err *err) must_use;
void sqlite_db_close(sqlite3 *db);
CLEANUP_DEFINE(db, sqlite3 *, sqlite_db_close);
/* The negative errno of @db's last failure (0 for OK, ROW and DONE), said in @err with @what was
 * tried. */
int sqlite_db_error(sqlite3 *db, int rc, const char *what, struct err *err);
/* Runs statements without results. */
int sqlite_db_exec(sqlite3 *db, const char *sql, struct err *err) must_use;
int sqlite_db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct err *err) must_use;
/* Steps once; 1 = a row, 0 = done. */
int sqlite_db_step(sqlite3 *db, sqlite3_stmt *stmt, const char *what, struct err *err) must_use;
/* First column of the first row as a number, or @fallback. */
int64_t sqlite_db_number(sqlite3 *db, const char *sql, int64_t fallback);

#endif
