// SPDX-License-Identifier: Apache-2.0
/* Removes rows that nobody sees any more from the server's disk. Marking them as gone was one row.
 * Removing rewrites the rows beside them, so it is done seldom, for all hosts in one statement, and
 * only where the gone rows are a good part of the table or of the day. Each statement names hosts
 * and the numbers up to which rows were seen to be gone: rows that arrive meanwhile are never hit.
 * Partitions of days that are over for every host are dropped as a whole. Each hour one of the
 * hosts that write is elected to do all of this. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_history.h"

#define EVERY_NS      (3600 * NS_PER_S)
#define CONDITIONS    1000 /* of one statement: ClickHouse allows 50,000 AST elements */
#define IDS	      3000 /* likewise, of sessions */
#define SHARE	      5	   /* chunks and hours: a fifth is gone */
#define SETTLED_NS    (3 * 3600 * NS_PER_S) /* after midnight: most hosts have rolled up by then */
#define DAY_NS	      (86400 * NS_PER_S)
#define KEPT_NS                                                                                    \
	(30 * DAY_NS) /* what says that something is gone: what an older journal sends again stays \
			 gone */
#define MARKERS_MIN   50

struct condition {
	const char *host, *id; /* in the answer */
	uint64_t day, retention, op;
	uint64_t gone, all; /* bytes */
	bool pieces; /* of the dictionary, too */
};

/* "host = 'a' AND op <= 5" */
static void add_host(struct buf *sql, const char *host, uint64_t op)
{
	buf_add_str(sql, "host = ");
	sql_text(sql, host);
	buf_printf(sql, " AND op <= %llu", (unsigned long long)op);
}

static int ask(struct clickhouse *ch, const char *text, struct buf *answer)
{
	const struct clickhouse_request request = { .sql = text };

	return clickhouse_http_do(ch->http, &request, answer, NULL, NULL);
}

static int ask_number(struct clickhouse *ch, const char *text, uint64_t *ret)
{
	cleanup_buf struct buf answer = { 0 };
	struct bytes in;
	int rc = ask(ch, text, &answer);

	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	return row_read_numbers(&in, ret, 1) == 1 ? 0 : -EIO;
}

/* Is the table being rewritten already? */
static bool is_busy(struct clickhouse *ch, const char *table)
{
	uint64_t running = 1;
	char sql[256];

	(void)snprintf(sql, sizeof(sql),
		       "SELECT " ROW_MARK ", toUInt64(count()) FROM system.mutations WHERE "
					  "database = currentDatabase() AND table = '%s' AND "
		       "is_done = 0 FORMAT RowBinary",
		       table);
	return ask_number(ch, sql, &running) < 0 || running;
}

static void rewrite(struct clickhouse *ch, struct buf *sql)
{
	struct clickhouse_request request = { 0 };
	struct err why = { 0 };

	if (sql->error)
		return;
	request.sql = sql->data;
	if (clickhouse_http_do(ch->http, &request, NULL, NULL, &why) < 0)
		log_warn("old rows stay where they are: %s", why.text);
}

typedef int read_fn(struct bytes *in, struct condition *ret);

/* Whether the rows that are gone, of all hosts together, are a good part of @day. */
static bool is_worth_it(const struct buf *answer, uint64_t day, read_fn *read)
{
	struct bytes in = bytes_of(answer->data, answer->len);
	struct condition one = { 0 };
	uint64_t gone = 0, all = 0;

	while (read(&in, &one) > 0) {
		if (one.day != day)
			continue;
		gone += one.gone;
		all = one.all;
	}
	return gone && gone * SHARE >= all;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static int read_gone(struct bytes *in, struct condition *ret)
{
	int rc = row_begin(in);

	if (rc <= 0)
		return rc;
	ret->host = row_text(in);
	ret->id = row_text(in);
	ret->day = bytes_u64(in);
	ret->op = bytes_u64(in);
	ret->gone = bytes_u64(in);
	ret->all = bytes_u64(in); /* of the day, of all hosts */
	return in->failed ? -EPROTO : 1;
}

/* The rows of deleted sessions go where they are a good part of their day, which is a partition: a
 * day whose sessions have all expired goes without anything being rewritten. The row that says that
 * a session is gone stays for a month. */
static void clean_chunks(struct clickhouse *ch)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 }, found = { 0 };
	uint64_t old = clock_realtime_ns() - KEPT_NS;
	struct condition one = { 0 };
	struct bytes in;
	uint64_t day = UINT64_MAX;
	unsigned count = 0, seen = 0;
	bool worth = false;

	buf_printf(
		&sql,
		"SELECT " ROW_MARK ", " ROW_TEXT("host") ", " ROW_TEXT(
			"id") ", toUInt64(day), toUInt64(last), toUInt64(n), toUInt64(total) FROM "
			      "(SELECT host, id, intDiv(op, %llu) AS day, max(op) AS last, sum(size) AS n "
			      "FROM (SELECT host, id, op, size FROM chunks) AS rows ANY LEFT JOIN "
			      "(SELECT host, id, max(op) AS gone FROM chunks WHERE kind = 0 GROUP BY host, "
			      "id) AS marks USING (host, id) WHERE op < gone GROUP BY host, id, day) AS "
			      "gones ALL INNER JOIN (SELECT intDiv(op, %llu) AS day, sum(size) AS total "
			      "FROM chunks GROUP BY day) AS totals USING (day) ORDER BY day, n DESC "
			      "LIMIT %d FORMAT RowBinary",
		(unsigned long long)DAY_NS, (unsigned long long)DAY_NS, IDS);
	if (is_busy(ch, "chunks") || sql.error || ask(ch, sql.data, &answer) < 0)
		return;
	buf_add_str(&found, "ALTER TABLE chunks DELETE WHERE ");
	for (in = bytes_of(answer.data, answer.len); read_gone(&in, &one) > 0; seen++) {
		if (one.day != day)
			worth = is_worth_it(&answer, one.day, read_gone);
		day = one.day;
		if (!worth)
			continue;
		buf_add_str(&found, count++ ? " OR (id = " : "(id = ");
		sql_text(&found, one.id);
		buf_printf(&found, " AND op >= %llu AND ", (unsigned long long)(one.day * DAY_NS));
		add_host(&found, one.host, one.op);
		buf_add_char(&found, ')');
	}
	/* Without it the rows of other days would be seen again. */
	if (count == seen && seen < IDS)
		buf_printf(&found, " OR (kind = 0 AND op < %llu)", (unsigned long long)old);
	if (count)
		rewrite(ch, &found);
}

/* ---- days that are over ---------------------------------------------------------------------- */

/* By the server's clock. */
#define OVER "day + retention + 1 < intDiv(toUnixTimestamp(now()), 86400)"

/* Asks for days with @rest and drops their partitions of @table. A day is over when its retention
 * has ended the day before yesterday and every host that wrote to it has dropped it. Rows that
 * arrive later are of a day that their own host drops again. @by_retention: partitions are those of
 * a day and a retention. */
static void drop_partitions(struct clickhouse *ch, const char *table, bool by_retention,
			    const char *rest)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	uint64_t row[2];
	struct bytes in;

	buf_printf(&sql,
		   "SELECT " ROW_MARK ", toUInt64(day), toUInt64(%s) FROM "
		   "(" CLICKHOUSE_NEWEST(" ") ") AS newest %s LIMIT %d FORMAT RowBinary",
		   by_retention ? "retention" : "0", rest, CONDITIONS);
	if (sql.error || ask(ch, sql.data, &answer) < 0)
		return;
	for (in = bytes_of(answer.data, answer.len); row_read_numbers(&in, row, 2) > 0;) {
		cleanup_buf struct buf drop = { 0 };

		buf_printf(&drop, "ALTER TABLE %s DROP PARTITION ", table);
		buf_printf(&drop, by_retention ? "(%llu, %llu)" : "%llu", (unsigned long long)row[0],
			   (unsigned long long)row[1]);
		rewrite(ch, &drop);
	}
}

/* Hours last: their markers say that minutes are gone. */
static void drop_days(struct clickhouse *ch)
{
	drop_partitions(ch, "minutes", false,
			"WHERE day IN (SELECT DISTINCT day FROM minutes) GROUP BY day "
			"HAVING countIf(g < l) = 0 AND countIf(NOT (" OVER ")) = 0");
	drop_partitions(ch, "hours", true,
			"WHERE (day, retention) IN (SELECT DISTINCT day, retention FROM hours) AND "
			"(day, retention) NOT IN (SELECT DISTINCT day, retention FROM minutes) "
			"GROUP BY day, retention HAVING countIf(g < l) = 0 AND " OVER);
}

/* ---- days that were dropped ------------------------------------------------------------------ */

static int read_day(struct bytes *in, struct condition *ret)
{
	int rc = row_begin(in);

	if (rc <= 0)
		return rc;
	ret->host = row_text(in);
	ret->day = bytes_u32(in);
	ret->retention = bytes_u32(in);
	ret->op = bytes_u64(in);
	ret->gone = bytes_u64(in);
	ret->all = bytes_u64(in); /* of the day, of all hosts */
	return in->failed ? -EPROTO : 1;
}

static void add_day(struct buf *sql, const struct condition *one, bool first)
{
	buf_printf(sql, "%s(day = %llu AND retention = %llu AND ", first ? "" : " OR ",
		   (unsigned long long)one->day, (unsigned long long)one->retention);
	add_host(sql, one->host, one->op);
}

/* @table: `hours`, whose marker stays, or `minutes`. */
static void clean_dropped(struct clickhouse *ch, const char *table)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 }, found = { 0 };
	struct condition one = { 0 };
	struct bytes in;
	unsigned count = 0;

	buf_printf(&sql,
		   "SELECT " ROW_MARK ", " ROW_TEXT(
			   "host") ", day, retention, toUInt64(o), toUInt64(n), toUInt64(total) "
				   "FROM (SELECT host, day, "
				   "retention, max(gone) AS o, sum(size) AS n FROM (SELECT host, "
				   "day, retention, op, size FROM %s WHERE row != 1) "
				   "AS rows ALL INNER JOIN (SELECT host, day, retention, max(op) AS gone "
				   "FROM hours WHERE row = 1 GROUP BY host, day, retention) "
				   "AS marks USING (host, day, retention) WHERE op <= gone GROUP BY host, "
				   "day, retention) AS gones "
				   "ALL INNER JOIN (SELECT day, sum(size) AS total FROM %s GROUP "
				   "BY day) AS totals USING (day) "
				   "ORDER BY n DESC LIMIT %d FORMAT RowBinary",
		   table, table, CONDITIONS);
	if (is_busy(ch, table) || sql.error || ask(ch, sql.data, &answer) < 0)
		return;
	buf_printf(&found, "ALTER TABLE %s DELETE WHERE ", table);
	for (in = bytes_of(answer.data, answer.len); read_day(&in, &one) > 0;) {
		if (!is_worth_it(&answer, one.day, read_day))
			continue;
		add_day(&found, &one, count == 0);
		buf_add_str(&found, " AND row != 1)");
		count++;
	}
	if (count)
		rewrite(ch, &found);
}

/* Markers under which nothing lies any more. */
static void clean_markers(struct clickhouse *ch)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 }, found = { 0 };
	uint64_t old = clock_realtime_ns() - KEPT_NS;
	struct condition one = { 0 };
	struct bytes in;
	unsigned count = 0;

	buf_printf(
		&sql,
		"SELECT " ROW_MARK ", " ROW_TEXT(
			"host") ", day, retention, toUInt64(gone), toUInt64(0), toUInt64(0) FROM "
				"(SELECT host, day, "
				"retention, max(op) AS gone FROM hours WHERE row = 1 AND op < %llu "
				"GROUP BY host, day, retention) AS marks ANY LEFT JOIN (SELECT host, "
				"day, retention, toUInt64(count()) AS beside FROM (SELECT host, "
				"day, retention FROM hours WHERE row != 1 UNION ALL SELECT host, "
				"day, retention FROM minutes) GROUP BY host, day, retention) AS others USING "
				"(host, day, retention) WHERE beside = 0 LIMIT %d "
				"FORMAT RowBinary",
		(unsigned long long)old, CONDITIONS);
	if (is_busy(ch, "hours") || sql.error || ask(ch, sql.data, &answer) < 0)
		return;
	buf_add_str(&found, "ALTER TABLE hours DELETE WHERE ");
	for (in = bytes_of(answer.data, answer.len); read_day(&in, &one) > 0; count++) {
		add_day(&found, &one, count == 0);
		buf_add_str(&found, " AND row = 1)");
	}
	/* Some at a time: each rewrites little, but a table. */
	if (count >= MARKERS_MIN)
		rewrite(ch, &found);
}

/* ---- minutes that were rolled up ------------------------------------------------------------- */

/* For a host's day: the number before which no appended piece of the dictionary is alive. It is
 * that of the last roll that kept only pieces made by rolls, as long as all rolls did so or kept
 * everything. */
static uint64_t dead_pieces_end(struct clickhouse *ch, const struct condition *one)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	uint64_t live = 0, end = 0, row[3]; /* kind, kept, number */
	struct bytes in;

	buf_add_str(
		&sql,
		"SELECT " ROW_MARK
		", toUInt64(row), toUInt64(kept), op FROM hours WHERE row IN (3, 4) AND host = ");
	sql_text(&sql, one->host);
	buf_printf(
		&sql,
		" AND day = %llu AND retention = %llu ORDER BY op, seq LIMIT 1 BY op, seq FORMAT RowBinary",
		(unsigned long long)one->day, (unsigned long long)one->retention);
	if (sql.error || ask(ch, sql.data, &answer) < 0)
		return 0;
	in = bytes_of(answer.data, answer.len);
	while (row_read_numbers(&in, row, ARRAY_SIZE(row)) > 0) {
		if (row[0] == HISTORY_PIECE)
			live++;
		else if (row[1] <= live)
			live = row[1], end = row[2];
		else if (row[1] != UINT32_MAX)
			return end;
	}
	return end;
}

/* Removes the minutes of hosts' days of which every minute is rolled up; the last position stays.
 */
static void clean_minutes(struct clickhouse *ch)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 }, found = { 0 };
	uint64_t today = (clock_realtime_ns() - SETTLED_NS) / DAY_NS;
	struct condition one = { 0 };
	struct bytes in;
	unsigned count = 0;

	buf_printf(&sql,
		   "SELECT " ROW_MARK ", " ROW_TEXT(
			   "host") ", day, retention, toUInt64(last), toUInt64(n), toUInt64(total) "
				   "FROM (SELECT host, day, "
				   "retention, max(op) AS last, sum(size) AS n, countIf(op > "
				   "rolled) AS others FROM (SELECT host, day, "
				   "retention, intDiv(ts, 3600) AS h, op, size FROM minutes WHERE "
				   "row = 6 AND day < %llu) AS rows ANY LEFT JOIN (SELECT host, day, "
				   "retention, intDiv(ts, 3600) AS h, max(op) AS rolled FROM hours "
				   "WHERE row = 3 AND day < %llu GROUP BY host, day, retention, h) "
				   "AS rolls USING (host, day, retention, h) GROUP BY host, day, retention) "
				   "AS rolled_days ALL INNER JOIN (SELECT day, sum(size) AS total FROM minutes "
				   "GROUP BY day) AS totals USING (day) WHERE others = 0 FORMAT RowBinary",
		   (unsigned long long)today, (unsigned long long)today);
	if (is_busy(ch, "minutes") || sql.error || ask(ch, sql.data, &answer) < 0)
		return;
	buf_add_str(&found, "ALTER TABLE minutes DELETE WHERE ");
	for (in = bytes_of(answer.data, answer.len); count < CONDITIONS && read_day(&in, &one) > 0;) {
		if (!is_worth_it(&answer, one.day, read_day))
			continue;
		add_day(&found, &one, count == 0);
		buf_printf(&found,
			   " AND (row = 6 OR (row = 7 AND op < %llu) OR (row = 4 AND op < %llu)))",
			   (unsigned long long)one.op,
			   (unsigned long long)dead_pieces_end(ch, &one));
		count++;
	}
	if (count)
		rewrite(ch, &found);
}

/* ---- when ------------------------------------------------------------------------------------ */

void clickhouse_clean_now(struct clickhouse *ch)
{
	drop_days(ch);
	clean_minutes(ch);
	clean_dropped(ch, "minutes");
	clean_dropped(ch, "hours");
	clean_markers(ch);
	clean_chunks(ch);
}

/* Hosts that wrote yesterday or today take part. The hour chooses, so that a host which has ended
 * meanwhile costs one hour. Servers without data of their own clean only where nobody writes. */
bool clickhouse_clean_is_elected(struct clickhouse *ch, uint64_t hour)
{
	static const char sql[] = "SELECT " ROW_MARK ", " ROW_TEXT("host") " FROM days WHERE day + 1 >= "
				  "intDiv(toUnixTimestamp(now()), 86400) AND dropped = 0 GROUP BY host "
				  "FORMAT RowBinary";
	cleanup_buf struct buf answer = { 0 };
	uint64_t best = 0;
	bool any = false, own = false;
	struct bytes in;

	if (ask(ch, sql, &answer) < 0)
		return false;
	for (in = bytes_of(answer.data, answer.len); row_begin(&in) > 0 && !in.failed;) {
		const char *host = row_text(&in);
		const uint64_t rank = in.failed ? 0
						: hash_combine(hash_bytes(host, strlen(host), 2), hour);

		if (in.failed)
			return false;
		if (any && rank < best)
			continue;
		any = true;
		best = rank;
		own = strcmp(host, ch->host) == 0;
	}
	return own || !any;
}

void clickhouse_clean(void *ctx)
{
	struct clickhouse *ch = ctx;
	uint64_t now = clock_monotonic_ns();

	/* Not all hosts at one time. */
	if (!ch->clean_next_ns)
		ch->clean_next_ns = now + hash_mix64(now ^ hash_bytes(ch->host, strlen(ch->host), 1)) % EVERY_NS;
	if (now < ch->clean_next_ns)
		return;
	ch->clean_next_ns = now + EVERY_NS;
	if (clickhouse_clean_is_elected(ch, clock_realtime_ns() / EVERY_NS))
		clickhouse_clean_now(ch);
}
