// SPDX-License-Identifier: Apache-2.0
/* Totals of a day for many hosts, without data. A fleet has a million minutes an hour. So the
 * server sends one row for each hour of a series: a rolled-up hour as it is stored, minutes of an
 * hour that is not rolled up as one array. Rows come host by host. In each the marker that drops
 * the day comes first, then hour by hour the markers of rolls, hours and minutes. The agent leaves
 * out what markers hide; most minutes that are rolled up do not come. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/vec.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_history.h"
#include "agent/store/minutes.h"

#define S_PER_DAY  86400
#define S_PER_HOUR 3600
#define SETTLED_NS (600 * NS_PER_S) /* so long after its end an hour gets no more minutes */

/* ---- the statement --------------------------------------------------------------------------- */

struct question {
	const struct store_day *day;
	const char *last_host; /* from day->host on; NULL = every host */
	const struct store_window_query *query;
	int64_t begin_s, from_s, to_s; /* of the hour, of the query inside the day; seconds */
};

/* " FROM table WHERE …" */
static void add_from(struct buf *sql, const char *table, const struct question *of)
{
	buf_printf(sql, " FROM %s WHERE day = %u AND retention = %u", table, of->day->day,
		   of->day->retention_days);
	if (!of->last_host)
		return;
	buf_add_str(sql, " AND host BETWEEN ");
	sql_text(sql, of->day->host);
	buf_add_str(sql, " AND ");
	sql_text(sql, of->last_host);
}

/* Passes over minutes of hours that their host has rolled up long ago. The table is ordered by host
 * and time, so the index finds the others. A host that lacks such an hour is read as a whole. */
static void add_recent(struct buf *sql, const struct question *of)
{
	int64_t recent = (int64_t)((clock_realtime_ns() - SETTLED_NS) / NS_PER_S);

	recent = recent < of->to_s ? recent : of->to_s + S_PER_HOUR - 1;
	recent -= recent % S_PER_HOUR;
	if (recent <= of->begin_s)
		return;
	buf_printf(sql, " AND (ts >= %lld OR host IN (SELECT host", (long long)recent);
	add_from(sql, "days", of);
	buf_add_str(sql, " AND host NOT IN (SELECT host");
	add_from(sql, "hours", of);
	buf_printf(sql,
		   " AND row = 3 AND ts >= %lld AND ts < %lld GROUP BY host HAVING "
		   "uniqExact(ts) = %lld)))",
		   (long long)of->begin_s, (long long)recent,
		   (long long)(recent - of->begin_s) / S_PER_HOUR);
}

static void add_hours(struct buf *sql, const struct question *of)
{
	buf_add_str(sql, "SELECT host, row, ts, op, seq, service, type, owners, size, minutes, "
			 "CAST([] AS Array(Tuple(UInt32, UInt64, UInt32, UInt32, UInt64, UInt64, Int64, "
			 "UInt32, UInt32))) AS items");
	add_from(sql, "hours", of);
	buf_printf(sql, " AND (row = 1 OR (ts >= %lld AND ts < %lld AND (row = 3 OR (row = 5",
		   (long long)of->begin_s, (long long)of->to_s);
	clickhouse_history_add_series(sql, of->query);
	buf_add_str(sql, "))))");
}

/* Minutes that no roll replaced. */
static void add_minutes(struct buf *sql, const struct question *of)
{
	buf_add_str(sql,
		    "SELECT host, toUInt8(6) AS row, toUInt32(h * 3600) AS ts, toUInt64(0) AS op, "
		    "toUInt32(0) AS seq, service, type, owners, toUInt32(0) AS size, '' AS minutes, items "
		    "FROM (SELECT host, service, type, owners, h, groupArray((ts, op, seq, kept, samples, "
		    "lost, value, profiled, size)) AS items FROM (SELECT host, ts, service, type, owners, "
		    "op, seq, kept, samples, lost, value, profiled, size, toUInt32(intDiv(ts, 3600)) AS h");
	add_from(sql, "minutes", of);
	buf_printf(sql, " AND row = 6 AND ts >= %lld AND ts < %lld", (long long)of->from_s,
		   (long long)of->to_s);
	add_recent(sql, of);
	clickhouse_history_add_series(sql, of->query);
	buf_add_str(sql, ") AS rows ANY LEFT JOIN (SELECT host, toUInt32(intDiv(ts, 3600)) AS h, max(op) "
			 "AS rolled");
	add_from(sql, "hours", of);
	buf_add_str(sql, " AND row = 3 GROUP BY host, h) AS rolls USING (host, h) WHERE op > rolled "
			 "GROUP BY host, service, type, owners, h)");
}

static void add_statement(struct buf *sql, const struct question *of)
{
	buf_add_str(sql, "SELECT " ROW_MARK ", " TOTALS_COLUMNS " FROM (");
	add_hours(sql, of);
	buf_add_str(sql, " UNION ALL ");
	add_minutes(sql, of);
	buf_add_str(sql, ") ORDER BY host, if(row = 1, toUInt32(0), ts), row, service, type, owners, op, "
			 "seq FORMAT RowBinary");
}

/* ---- the answer ------------------------------------------------------------------------------ */

VEC_DEFINE(total_items, struct total_item);

struct totals {
	const struct question *question;
	const char *own; /* the name of this host */
	const char *host; /* of the rows under way; NULL = none yet */
	uint64_t dropped, rolled; /* numbers: of the host's day, of the hour under way */
	uint32_t hour; /* its begin */
	struct totals_row last; /* hour that was visited */
	struct total_items_vec items; /* of the row under way */
	store_window_fn *visit;
	void *ctx;
	unsigned damaged;
};

static struct store_window make_window(const struct totals *totals, const struct totals_row *row)
{
	return (struct store_window){
		.host = strcmp(row->host, totals->own) ? row->host : "",
		.service = row->service,
		.type = row->type,
		.owners = row->owners,
		.from_ns = row->ts * NS_PER_S,
		.whole = true,
	};
}

/* Leaves the minutes of @hour that lie in the time asked for; how many. */
static uint32_t cut_minutes(const struct question *question, uint32_t hour_s,
			    struct store_minute *minutes, uint32_t count)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < count; i++) {
		int64_t at_s = hour_s + 60ll * minutes[i].minute;

		if (at_s >= question->from_s && at_s < question->to_s)
			minutes[kept++] = minutes[i];
	}
	return kept;
}

static int visit_hour(struct totals *totals, const struct totals_row *row)
{
	uint64_t beside = row->minutes_len + HISTORY_ROW_EXTRA;
	struct store_window window = make_window(totals, row);
	struct store_minute minutes[HOUR_MINUTES];
	int count = minutes_decode(row->minutes, row->minutes_len, minutes);

	if (count <= 0) {
		totals->damaged++;
		return 0;
	}
	window.bytes = row->size > beside ? row->size - beside : 0;
	minutes_sum(&window, minutes, (uint32_t)count);
	window.minute_count = cut_minutes(totals->question, row->ts, minutes, (uint32_t)count);
	return window.minute_count ? totals->visit(totals->ctx, &window) : 0;
}

static int by_operation(const void *a, const void *b)
{
	const struct total_item *x = a, *y = b;

	if (x->ts != y->ts)
		return x->ts < y->ts ? -1 : 1;
	if (x->op != y->op)
		return x->op < y->op ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static int read_items(struct totals *totals, const struct totals_row *row)
{
	struct bytes in = bytes_of(row->items, row->items_len);
	struct total_item item;
	int rc = 0;

	totals->items.count = 0;
	while (rc == 0 && row_read_total_item(&in, &item))
		if (item.op > totals->dropped && item.op > totals->rolled &&
		    item.ts >= totals->question->from_s && item.ts < totals->question->to_s)
			rc = total_items_vec_push(&totals->items, item);
	if (rc == 0 && totals->items.count)
		qsort(totals->items.data, totals->items.count, sizeof(item), by_operation);
	return rc;
}

static uint64_t bytes_of_data(uint32_t size)
{
	return size > HISTORY_ROW_EXTRA ? size - HISTORY_ROW_EXTRA : 0;
}

/* One window for each minute. A whole minute replaces what came before it; an operation that was
 * sent twice has two equal rows. */
static int visit_minutes(struct totals *totals, const struct totals_row *row)
{
	struct store_window window = make_window(totals, row), minute = window;
	const struct total_item *last = NULL;
	int rc = read_items(totals, row);

	for (size_t i = 0; rc == 0 && i < totals->items.count; i++) {
		const struct total_item *item = &totals->items.data[i];

		if (last && last->ts != item->ts)
			rc = totals->visit(totals->ctx, &minute);
		if (!last || last->ts != item->ts || item->kept)
			minute = window;
		if (!last || by_operation(last, item) != 0) {
			minute.from_ns = item->ts * NS_PER_S;
			minute.samples += item->numbers.samples;
			minute.lost += item->numbers.lost;
			minute.value += item->numbers.value;
			minute.profiled_ms += item->numbers.profiled_ms;
			minute.bytes += bytes_of_data(item->numbers.size);
		}
		last = item;
	}
	return rc == 0 && last ? totals->visit(totals->ctx, &minute) : rc;
}

static int take_row(struct totals *totals, const struct totals_row *row)
{
	bool again = totals->last.op == row->op && totals->last.seq == row->seq &&
		     totals->last.ts == row->ts;

	if (!totals->host || strcmp(totals->host, row->host) != 0) {
		totals->host = row->host;
		totals->dropped = 0;
		totals->hour = 0;
		again = false;
	}
	if (row->row == HISTORY_DROP) {
		totals->dropped = row->op > totals->dropped ? row->op : totals->dropped;
		return 0;
	}
	if (row->ts != totals->hour)
		totals->rolled = 0;
	totals->hour = row->ts;
	if (row->row == HISTORY_MINUTE)
		return visit_minutes(totals, row);
	if (row->op <= totals->dropped || row->op < totals->rolled)
		return 0;
	if (row->row == HISTORY_ROLL) {
		totals->rolled = row->op;
		return 0;
	}
	totals->last = *row;
	return again ? 0 : visit_hour(totals, row);
}

static int read_rows(struct clickhouse *ch, struct buf *answer, struct totals *totals,
		     struct err *err)
{
	struct bytes in = bytes_of(answer->data, answer->len);
	int rc = 0;

	while (rc == 0) {
		struct totals_row row = { 0 };

		rc = row_read_totals(&in, &row);
		if (rc <= 0)
			return rc < 0 ? clickhouse_no_answer(ch, err) : 0;
		rc = take_row(totals, &row);
	}
	return rc;
}

int clickhouse_history_totals(struct clickhouse *ch, const struct store_day *day,
			      const char *last_host, const struct store_window_query *query,
			      store_window_fn *visit, void *ctx, unsigned *ret_damaged,
			      struct err *err)
{
	int64_t midnight = (int64_t)day->day * S_PER_DAY, from = (int64_t)(query->from_ns / NS_PER_S);
	int64_t to = query->to_ns ? (int64_t)((query->to_ns + NS_PER_S - 1) / NS_PER_S) : INT64_MAX;
	struct question question = {
		.day = day,
		.last_host = last_host,
		.query = query,
		.from_s = from > midnight ? from : midnight,
		.to_s = to < midnight + S_PER_DAY ? to : midnight + S_PER_DAY,
	};
	struct totals totals = { .question = &question, .own = ch->host, .visit = visit, .ctx = ctx };
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	int rc;

	question.begin_s = question.from_s - question.from_s % S_PER_HOUR;
	add_statement(&sql, &question);
	rc = clickhouse_ask(ch, &sql, &answer, err);
	rc = rc < 0 ? rc : read_rows(ch, &answer, &totals, err);
	total_items_vec_deinit(&totals.items);
	if (rc == 0 && ret_damaged)
		*ret_damaged = totals.damaged;
	return rc;
}
