// SPDX-License-Identifier: Apache-2.0
/* Questions to ClickHouse, and operations into the journal. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/store/clickhouse.h"

int clickhouse_ask(struct clickhouse *ch, struct buf *sql, struct buf *answer, struct err *err)
{
	struct clickhouse_request request = { 0 };
	int rc = clickhouse_sender_wait(&ch->sender, err);

	if (rc < 0)
		return rc;
	buf_add_char(sql, '\0');
	if (sql->error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to ask the store");
	request.sql = sql->data;
	return clickhouse_http_do(ch->http, &request, answer, NULL, err);
}

int clickhouse_no_answer(struct clickhouse *ch, struct err *err)
{
	return err_set(
		err, EIO, "StoreUnavailable", NULL,
		"ClickHouse at %s gave an unexpected answer: check which server listens there",
		ch->url.where);
}

int clickhouse_write(struct clickhouse *ch, uint32_t table, uint64_t number, uint64_t partition,
		     const struct buf *body, bool urgent, struct err *err)
{
	const struct journal_op op = { table, number, partition, body->data, body->len };
	int rc;

	if (body->error || body->len > CLICKHOUSE_BODY_MAX) {
		journal_give_up(ch->journal);
		return body->error ? err_set(err, -body->error, NULL, NULL, "no memory to store")
				   : err_set(err, E2BIG, "StoreUnavailable", NULL, "too much to be stored in one step");
	}
	rc = journal_write(ch->journal, &op, urgent, err);
	if (rc == 0)
		atomic_fetch_add(&ch->added_bytes, body->len);
	return rc;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Rows written since do not count twice: they are on the server when it answers. */
static int measure(struct clickhouse *ch, uint64_t *ret)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 }, host = { 0 };
	struct bytes in;
	int rc;

	sql_text(&host, ch->host);
	if (host.error)
		return host.error;
	buf_printf(&sql,
		   "SELECT " ROW_MARK ", toUInt64(sum(n)) FROM (SELECT sum(size) AS n FROM "
		   "record_sizes FINAL WHERE host = %s AND gone = 0 UNION ALL ",
		   host.data);
	buf_printf(&sql,
		   "SELECT sum(bytes) AS n FROM (SELECT id, op, bytes FROM chunk_sizes WHERE "
		   "host = %s) AS rows ANY LEFT JOIN (SELECT id, max(op) AS gone FROM chunk_sizes "
		   "WHERE host = %s AND what = 0 GROUP BY id) AS marks USING (id) WHERE op > gone",
		   host.data, host.data);
	buf_printf(&sql,
		   " UNION ALL SELECT sum(size) AS n FROM (SELECT day, retention, op, size FROM "
		   "minutes WHERE host = %s UNION ALL "
		   "SELECT day, retention, op, size FROM hours WHERE host = %s) AS rows ANY LEFT JOIN "
		   "(SELECT day, retention, max(op) AS gone FROM "
		   "hours WHERE host = %s AND row = 1 GROUP BY day, retention) AS marks USING (day, "
		   "retention) WHERE op > gone) FORMAT RowBinary",
		   host.data, host.data, host.data);
	rc = clickhouse_ask(ch, &sql, &answer, NULL);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	return row_read_numbers(&in, ret, 1) == 1 ? 0 : -EIO;
}

static uint64_t known_bytes(struct clickhouse *ch)
{
	return atomic_load(&ch->measured_bytes) + atomic_load(&ch->added_bytes);
}

uint64_t clickhouse_bytes(struct clickhouse *ch, uint64_t max_age_ns)
{
	uint64_t added, measured;

	if (pthread_mutex_trylock(&ch->bytes_lock) != 0)
		return known_bytes(ch);
	added = atomic_load(&ch->added_bytes);
	if (clock_monotonic_ns() - ch->measured_ns >= max_age_ns || atomic_load(&ch->shrunk)) {
		bool shrunk = atomic_exchange(&ch->shrunk, false);

		if (measure(ch, &measured) == 0) {
			atomic_store(&ch->measured_bytes, measured);
			atomic_fetch_sub(&ch->added_bytes, added);
		} else if (shrunk) {
			atomic_store(&ch->shrunk, true);
		}
		ch->measured_ns = clock_monotonic_ns();
	}
	(void)pthread_mutex_unlock(&ch->bytes_lock);
	return known_bytes(ch);
}

int clickhouse_check_room(struct clickhouse *ch, uint64_t len, struct err *err)
{
	uint64_t budget = atomic_load(&ch->budget_bytes);

	/* The server is only asked when something went and the room is needed. */
	if (!budget || known_bytes(ch) + len <= budget || clickhouse_bytes(ch, UINT64_MAX) + len <= budget)
		return 0;
	return err_set(err, ENOSPC, "StoreUnavailable", NULL,
		       "the store's budget is full: delete something of this host or raise [store] disk_budget");
}
