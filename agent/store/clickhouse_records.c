// SPDX-License-Identifier: Apache-2.0
/* Records: one row each, the newest of a key counts. What is gone is a row that says so, with the
 * number behind that of the row it replaces, whoever wrote that one: no clocks are compared. */
#include <errno.h>
#include <string.h>

#include "agent/store/clickhouse.h"

#define ROW_EXTRA 64 /* bytes of a row beside its texts */

static uint64_t record_bytes(const struct store_record *record)
{
	return record->body_len + strlen(record->id) + ROW_EXTRA;
}

int clickhouse_put(void *ctx, const struct store_record *record, struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf body = { 0 };
	uint64_t bytes = record_bytes(record), number;
	int rc = record->urgent ? 0 : clickhouse_check_room(ch, bytes, err);

	if (rc < 0)
		return rc;
	number = journal_begin(ch->journal);
	row_add_text(&body, ch->host);
	row_add_text(&body, record->kind);
	row_add_text(&body, record->tenant);
	row_add_text(&body, record->id);
	row_add_text(&body, record->service);
	row_add_text(&body, record->type);
	row_add_text(&body, record->status);
	row_add_u64(&body, record->created_ns);
	row_add_u64(&body, number);
	row_add_u8(&body, 0);
	row_add_u32(&body, (uint32_t)bytes);
	row_add_blob(&body, record->body, record->body_len);
	return clickhouse_write(ch, CLICKHOUSE_RECORDS, number, 0, &body, record->urgent, err);
}

/* " AND column = 'text'", nothing for NULL. */
static void add_equal(struct buf *sql, const char *column, const char *text)
{
	if (!text)
		return;
	buf_printf(sql, " AND %s = ", column);
	sql_text(sql, text);
}

static void add_key(struct buf *sql, const char *kind, const char *tenant, const char *id)
{
	buf_add_str(sql, " WHERE kind = ");
	sql_text(sql, kind);
	add_equal(sql, "tenant", tenant);
	add_equal(sql, "id", id);
	buf_add_str(sql, " AND gone = 0");
}

int clickhouse_remove(void *ctx, const char *kind, const char *tenant, const char *id,
		      struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf sql = { 0 };
	uint64_t number = journal_begin(ch->journal);

	buf_add_str(&sql, "INSERT INTO records (host, kind, tenant, id, service, type, status, "
			  "created, op, gone, size, body) "
			  "SELECT host, kind, tenant, id, '', '', '', created, op + 1, toUInt8(1), "
			  "toUInt32(0), '' FROM records FINAL");
	add_key(&sql, kind, tenant, id);
	/* Sent again, it leaves alone what came later. */
	buf_add_str(&sql, " AND (host != ");
	sql_text(&sql, ch->host);
	buf_printf(&sql, " OR op < %llu)", (unsigned long long)number);
	atomic_store(&ch->shrunk, true);
	return clickhouse_write(ch, 0, number, 0, &sql, true, err);
}

int clickhouse_get(void *ctx, const char *kind, const char *tenant, const char *id, char **ret_body,
		   size_t *ret_len, struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct store_record record = { 0 };
	struct bytes in;
	char *body;
	int rc;

	buf_add_str(&sql, "SELECT " ROW_MARK ", " RECORD_COLUMNS " FROM records FINAL");
	add_key(&sql, kind, tenant, id);
	buf_add_str(&sql, " ORDER BY host = ");
	sql_text(&sql, ch->host);
	buf_add_str(&sql, " DESC, op DESC LIMIT 1 FORMAT RowBinary");
	rc = clickhouse_ask(ch, &sql, &answer, err);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	rc = row_read_record(&in, &record);
	if (rc < 0)
		return clickhouse_no_answer(ch, err);
	if (rc == 0)
		return err_set(err, ENOENT, NULL, NULL, "no %s '%.64s'", kind, id);
	body = malloc(record.body_len + 1);
	if (!body)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a record of %zu bytes", record.body_len);
	if (record.body_len)
		memcpy(body, record.body, record.body_len);
	body[record.body_len] = '\0';
	*ret_body = body;
	if (ret_len)
		*ret_len = record.body_len;
	return 0;
}

static void add_conditions(const struct clickhouse *ch, struct buf *sql,
			   const struct store_query *query, bool with_cursor)
{
	add_key(sql, query->kind, query->tenant, NULL);
	if (!query->every_host)
		add_equal(sql, "host", ch->host);
	add_equal(sql, "service", query->service);
	add_equal(sql, "type", query->type);
	add_equal(sql, "status", query->status);
	if (query->from_ns)
		buf_printf(sql, " AND created >= %llu", (unsigned long long)query->from_ns);
	if (query->to_ns)
		buf_printf(sql, " AND created < %llu", (unsigned long long)query->to_ns);
	if (!with_cursor || !query->before_id)
		return;
	buf_printf(sql, " AND (created < %llu OR (created = %llu AND id < ",
		   (unsigned long long)query->before_ns, (unsigned long long)query->before_ns);
	sql_text(sql, query->before_id);
	buf_add_str(sql, "))");
}

static int count_rows(struct clickhouse *ch, const struct store_query *query, uint64_t *ret,
		      struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct bytes in;
	int rc;

	buf_add_str(&sql, "SELECT " ROW_MARK ", toUInt64(count()) FROM records FINAL");
	add_conditions(ch, &sql, query, false);
	buf_add_str(&sql, " FORMAT RowBinary");
	rc = clickhouse_ask(ch, &sql, &answer, err);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	return row_read_numbers(&in, ret, 1) == 1 ? 0 : clickhouse_no_answer(ch, err);
}

static void add_order(struct buf *sql, const struct store_query *query)
{
	buf_add_str(sql, query->oldest_first ? " ORDER BY created, id, host"
					     : " ORDER BY created DESC, id DESC, host");
}

static int visit_rows(struct clickhouse *ch, const struct store_query *query, store_visit_fn *visit,
		      void *visit_ctx, struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct store_record record = { .kind = query->kind };
	struct bytes in;
	int rc;

	buf_add_str(&sql, "SELECT " ROW_MARK ", " RECORD_COLUMNS " FROM records FINAL");
	if (query->limit) {
		/* The page is found without bodies. */
		add_key(&sql, query->kind, query->tenant, NULL);
		buf_add_str(&sql, " AND (tenant, id, host) IN (SELECT tenant, id, host FROM records FINAL");
		add_conditions(ch, &sql, query, true);
		add_order(&sql, query);
		buf_printf(&sql, " LIMIT %u)", query->limit);
	} else {
		add_conditions(ch, &sql, query, true);
	}
	add_order(&sql, query);
	buf_add_str(&sql, " FORMAT RowBinary");
	rc = clickhouse_ask(ch, &sql, &answer, err);
	in = bytes_of(answer.data, answer.len);
	while (rc == 0) {
		rc = row_read_record(&in, &record);
		if (rc == 0)
			break;
		rc = rc < 0 ? clickhouse_no_answer(ch, err) : visit(visit_ctx, &record);
	}
	return rc;
}

int clickhouse_list(void *ctx, const struct store_query *query, store_visit_fn *visit,
		    void *visit_ctx, uint64_t *ret_total, struct err *err)
{
	struct clickhouse *ch = ctx;
	uint64_t total = 0;
	int rc = ret_total ? count_rows(ch, query, &total, err) : 0;

	if (rc == 0 && visit)
		rc = visit_rows(ch, query, visit, visit_ctx, err);
	if (rc == 0 && ret_total)
		*ret_total = total;
	return rc;
}
