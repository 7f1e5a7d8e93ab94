// SPDX-License-Identifier: Apache-2.0
#include "agent/store/sqlite_records.h"

#include <errno.h>
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/hash.h"
#include "agent/store/sqlite_db.h"

#define SCHEMA_VERSION 2
#define PAGE_BYTES     4096u

/* A rowid table: bodies may be large, and WITHOUT ROWID would drag them through the index. */
static const char schema[] =
	"BEGIN IMMEDIATE;"
	"CREATE TABLE IF NOT EXISTS records ("
	"  kind TEXT NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL,"
	"  service TEXT NOT NULL, type TEXT NOT NULL, status TEXT NOT NULL,"
	"  created_ns INTEGER NOT NULL, body BLOB NOT NULL);"
	"CREATE UNIQUE INDEX IF NOT EXISTS records_id ON records (kind, tenant, id);"
	/* Counting and filtering never touch the rows, whose bodies are large. */
	"DROP INDEX IF EXISTS records_time;"
	"CREATE INDEX IF NOT EXISTS records_list ON records (kind, tenant, created_ns, id, service,"
	"  type, status);"
	"CREATE INDEX IF NOT EXISTS records_service ON records (kind, tenant, service, created_ns, "
	"id);"
	"PRAGMA user_version = 2;"
	"COMMIT";

/* ---- connections ----------------------------------------------------------------------------- */

static int prepare_schema(struct sqlite_records *records, struct err *err)
{
	int64_t version = sqlite_db_number(records->writer, "PRAGMA user_version", 0);
	int rc;

	if (version > SCHEMA_VERSION)
		return err_set(err, EPROTO, "StoreUnavailable", NULL,
			       "%s was written by a newer profd (format %lld, this one knows %d): "
			       "install that version again or use another data_dir",
			       records->path, (long long)version, SCHEMA_VERSION);
	if (version == SCHEMA_VERSION)
		return 0;
	rc = sqlite_db_exec(records->writer, schema, err);
	if (rc < 0)
		(void)!sqlite_db_exec(records->writer, "ROLLBACK", NULL);
	return rc;
}

int sqlite_records_open(struct sqlite_records *records, const char *path, struct err *err)
{
	int rc;

	(void)pthread_mutex_init(&records->write_lock, NULL);
	(void)pthread_mutex_init(&records->read_lock, NULL);
	records->path = strdup(path);
	if (!records->path)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	rc = sqlite_db_open_writer(path, PAGE_BYTES, &records->writer, err);
	if (rc == 0)
		rc = prepare_schema(records, err);
	if (rc == 0)
		rc = sqlite_db_prepare(
			records->writer,
			"INSERT INTO records (kind, tenant, id, service, type, status,"
			" created_ns, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) "
			"ON CONFLICT (kind, tenant, id) DO UPDATE SET service = ?4,"
			" type = ?5, status = ?6, created_ns = ?7, body = ?8",
			&records->put_stmt, err);
	if (rc == 0)
		rc = sqlite_db_prepare(
			records->writer,
			"DELETE FROM records WHERE kind = ?1 AND tenant = ?2 AND id = ?3",
			&records->remove_stmt, err);
	return rc;
}

void sqlite_records_close(struct sqlite_records *records)
{
	/* Readers first: the last connection to close is the writer, which checkpoints. */
	for (unsigned i = 0; i < records->idle_count; i++)
		sqlite_db_close(records->idle[i]);
	(void)sqlite3_finalize(records->put_stmt);
	(void)sqlite3_finalize(records->remove_stmt);
	sqlite_db_close(records->writer);
	(void)pthread_mutex_destroy(&records->write_lock);
	(void)pthread_mutex_destroy(&records->read_lock);
	free(records->path);
	*records = (struct sqlite_records){ 0 };
}

static int take_reader(struct sqlite_records *records, sqlite3 **ret, struct err *err)
{
	sqlite3 *db = NULL;

	(void)pthread_mutex_lock(&records->read_lock);
	if (records->idle_count)
		db = records->idle[--records->idle_count];
	(void)pthread_mutex_unlock(&records->read_lock);
	if (!db)
		return sqlite_db_open_reader(records->path, ret, err);
	*ret = db;
	return 0;
}

static void give_reader(struct sqlite_records *records, sqlite3 *db)
{
	(void)pthread_mutex_lock(&records->read_lock);
	if (records->idle_count < SQLITE_READERS_MAX) {
		records->idle[records->idle_count++] = db;
		db = NULL;
	}
	(void)pthread_mutex_unlock(&records->read_lock);
	sqlite_db_close(db);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
	(void)sqlite3_bind_text(stmt, at, text ? text : "", -1, SQLITE_STATIC);
}

static int run_write(struct sqlite_records *records, sqlite3_stmt *stmt, const char *what,
		     struct err *err)
{
	int rc;

	/* Before and after: no total that was counted meanwhile is taken for the new one. */
	atomic_fetch_add(&records->changes, 1);
	rc = sqlite_db_step(records->writer, stmt, what, err);
	atomic_fetch_add(&records->changes, 1);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return rc;
}

int sqlite_records_put(struct sqlite_records *records, const struct store_record *record,
		       struct err *err)
{
	sqlite3_stmt *stmt = records->put_stmt;
	int rc;

	(void)pthread_mutex_lock(&records->write_lock);
	bind_text(stmt, 1, record->kind);
	bind_text(stmt, 2, record->tenant);
	bind_text(stmt, 3, record->id);
	bind_text(stmt, 4, record->service);
	bind_text(stmt, 5, record->type);
	bind_text(stmt, 6, record->status);
	(void)sqlite3_bind_int64(stmt, 7, (sqlite3_int64)record->created_ns);
	(void)sqlite3_bind_blob64(stmt, 8, record->body ? record->body : "", record->body_len,
				  SQLITE_STATIC);
	rc = run_write(records, stmt, "writing a record", err);
	(void)pthread_mutex_unlock(&records->write_lock);
	return rc;
}

int sqlite_records_remove(struct sqlite_records *records, const char *kind, const char *tenant,
			  const char *id, struct err *err)
{
	sqlite3_stmt *stmt = records->remove_stmt;
	int rc;

	(void)pthread_mutex_lock(&records->write_lock);
	bind_text(stmt, 1, kind);
	bind_text(stmt, 2, tenant);
	bind_text(stmt, 3, id);
	rc = run_write(records, stmt, "deleting a record", err);
	(void)pthread_mutex_unlock(&records->write_lock);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int get_body(sqlite3 *db, const char *kind, const char *tenant, const char *id,
		    char **ret_body, size_t *ret_len, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	int rc = sqlite_db_prepare(
		db, "SELECT body FROM records WHERE kind = ?1 AND tenant = ?2 AND id = ?3", &stmt,
		err);
	size_t len;
	char *body;

	if (rc < 0)
		return rc;
	bind_text(stmt, 1, kind);
	bind_text(stmt, 2, tenant);
	bind_text(stmt, 3, id);
	rc = sqlite_db_step(db, stmt, "reading a record", err);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(err, ENOENT, NULL, NULL, "no %s '%.64s'", kind, id);
	len = (size_t)sqlite3_column_bytes(stmt, 0);
	body = malloc(len + 1);
	if (!body)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a record of %zu bytes", len);
	if (len)
		memcpy(body, sqlite3_column_blob(stmt, 0), len);
	body[len] = '\0';
	*ret_body = body;
	if (ret_len)
		*ret_len = len;
	return 0;
}

int sqlite_records_get(struct sqlite_records *records, const char *kind, const char *tenant,
		       const char *id, char **ret_body, size_t *ret_len, struct err *err)
{
	sqlite3 *db = NULL;
	int rc = take_reader(records, &db, err);

	if (rc < 0)
		return rc;
	rc = get_body(db, kind, tenant, id, ret_body, ret_len, err);
	give_reader(records, db);
	return rc;
}

/* The conditions of @query; named parameters, so that absent ones are simply not bound. */
static void add_conditions(struct buf *sql, const struct store_query *query, bool with_cursor)
{
	buf_add_str(sql, query->kind ? " FROM records WHERE kind = :kind" : " FROM records WHERE 1");
	if (query->tenant)
		buf_add_str(sql, " AND tenant = :tenant");
	if (query->service)
		buf_add_str(sql, " AND service = :service");
	if (query->type)
		buf_add_str(sql, " AND type = :type");
	if (query->status)
		buf_add_str(sql, " AND status = :status");
	if (query->from_ns)
		buf_add_str(sql, " AND created_ns >= :from");
	if (query->to_ns)
		buf_add_str(sql, " AND created_ns < :to");
	if (with_cursor && query->before_id)
		buf_add_str(sql, " AND (created_ns, id) < (:before_ns, :before_id)");
}

static void bind_named_text(sqlite3_stmt *stmt, const char *name, const char *text)
{
	int at = sqlite3_bind_parameter_index(stmt, name);

	if (at && text)
		bind_text(stmt, at, text);
}

static void bind_named_number(sqlite3_stmt *stmt, const char *name, uint64_t value)
{
	int at = sqlite3_bind_parameter_index(stmt, name);

	if (at)
		(void)sqlite3_bind_int64(stmt, at, (sqlite3_int64)value);
}

static int prepare_query(sqlite3 *db, struct buf *sql, const struct store_query *query,
			 sqlite3_stmt **ret, struct err *err)
{
	cleanup_free char *text = buf_take(sql, NULL);
	int rc;

	if (!text)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a query");
	rc = sqlite_db_prepare(db, text, ret, err);
	if (rc < 0)
		return rc;
	bind_named_text(*ret, ":kind", query->kind);
	bind_named_text(*ret, ":tenant", query->tenant);
	bind_named_text(*ret, ":service", query->service);
	bind_named_text(*ret, ":type", query->type);
	bind_named_text(*ret, ":status", query->status);
	bind_named_text(*ret, ":before_id", query->before_id);
	bind_named_number(*ret, ":from", query->from_ns);
	bind_named_number(*ret, ":to", query->to_ns);
	bind_named_number(*ret, ":before_ns", query->before_ns);
	bind_named_number(*ret, ":limit", query->limit);
	return 0;
}

static int count_rows(sqlite3 *db, const struct store_query *query, uint64_t *ret, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	cleanup_buf struct buf sql = { 0 };
	int rc;

	buf_add_str(&sql, "SELECT count(*)");
	add_conditions(&sql, query, false);
	rc = prepare_query(db, &sql, query, &stmt, err);
	if (rc == 0)
		rc = sqlite_db_step(db, stmt, "counting records", err);
	if (rc < 0)
		return rc;
	*ret = (uint64_t)sqlite3_column_int64(stmt, 0);
	return 0;
}

/* Everything that a total depends on. */
static uint64_t total_key(const struct store_query *query)
{
	const char *const texts[] = { query->kind, query->tenant, query->service, query->type,
				      query->status };
	uint64_t hash = hash_combine(query->from_ns, query->to_ns);

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		hash = texts[i] ? hash_bytes(texts[i], strlen(texts[i]) + 1, hash)
				: hash_combine(hash, i);
	return hash;
}

static bool known_total(struct sqlite_records *records, uint64_t key, uint64_t *ret)
{
	uint64_t now = atomic_load(&records->changes);
	bool found = false;

	(void)pthread_mutex_lock(&records->read_lock);
	for (unsigned i = 0; i < SQLITE_TOTALS_MAX && !found; i++) {
		const struct sqlite_total *total = &records->totals[i];

		found = total->valid && total->key == key && total->changes == now;
		if (found)
			*ret = total->count;
	}
	(void)pthread_mutex_unlock(&records->read_lock);
	return found;
}

static void keep_total(struct sqlite_records *records, uint64_t key, uint64_t changes,
		       uint64_t count)
{
	(void)pthread_mutex_lock(&records->read_lock);
	records->totals[records->next_total++ % SQLITE_TOTALS_MAX] =
		(struct sqlite_total){ true, key, changes, count };
	(void)pthread_mutex_unlock(&records->read_lock);
}

/* The pages of one list have one total: it is counted once while nothing is written. */
static int find_total(struct sqlite_records *records, sqlite3 *db, const struct store_query *query,
		      uint64_t changes, uint64_t *ret, struct err *err)
{
	uint64_t key = total_key(query);
	int rc;

	if (known_total(records, key, ret))
		return 0;
	rc = count_rows(db, query, ret, err);
	if (rc == 0)
		keep_total(records, key, changes, *ret);
	return rc;
}

static int visit_rows(sqlite3 *db, const struct store_query *query, store_visit_fn *visit,
		      void *ctx, struct err *err)
{
	cleanup(stmt) sqlite3_stmt *stmt = NULL;
	cleanup_buf struct buf sql = { 0 };
	int rc;

	buf_add_str(&sql, "SELECT tenant, id, service, type, status, created_ns, body, kind");
	add_conditions(&sql, query, true);
	buf_add_str(&sql, query->oldest_first ? " ORDER BY created_ns, id"
					      : " ORDER BY created_ns DESC, id DESC");
	if (query->limit)
		buf_add_str(&sql, " LIMIT :limit");
	rc = prepare_query(db, &sql, query, &stmt, err);
	while (rc == 0) {
		struct store_record record = { 0 };

		rc = sqlite_db_step(db, stmt, "listing records", err);
		if (rc <= 0)
			break;
		record.tenant = (const char *)sqlite3_column_text(stmt, 0);
		record.id = (const char *)sqlite3_column_text(stmt, 1);
		record.service = (const char *)sqlite3_column_text(stmt, 2);
		record.type = (const char *)sqlite3_column_text(stmt, 3);
		record.status = (const char *)sqlite3_column_text(stmt, 4);
		record.created_ns = (uint64_t)sqlite3_column_int64(stmt, 5);
		record.body = sqlite3_column_blob(stmt, 6);
		record.body_len = (size_t)sqlite3_column_bytes(stmt, 6);
		record.kind = (const char *)sqlite3_column_text(stmt, 7);
		rc = visit(ctx, &record);
	}
	return rc;
}

int sqlite_records_list(struct sqlite_records *records, const struct store_query *query,
			store_visit_fn *visit, void *ctx, uint64_t *ret_total, struct err *err)
{
	uint64_t total = 0, changes = atomic_load(&records->changes);
	sqlite3 *db = NULL;
	int rc = take_reader(records, &db, err);

	if (rc < 0)
		return rc;
	/* One snapshot for the total and the page. */
	rc = sqlite_db_exec(db, "BEGIN", err);
	if (rc == 0 && ret_total)
		rc = find_total(records, db, query, changes, &total, err);
	if (rc == 0 && visit)
		rc = visit_rows(db, query, visit, ctx, err);
	if (sqlite3_get_autocommit(db) == 0)
		(void)!sqlite_db_exec(db, "COMMIT", NULL);
	give_reader(records, db);
	if (rc == 0 && ret_total)
		*ret_total = total;
	return rc;
}
