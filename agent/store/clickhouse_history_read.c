// SPDX-License-Identifier: Apache-2.0
/* Reading the history. One statement reads both tables, so that what a roll replaced and what it
 * put there are never both seen: rows come hour by hour, the markers first, and what is older than
 * its marker is left out here. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/vec.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_history.h"
#include "agent/store/minutes.h"
#include "agent/store/packed.h"

#define S_PER_DAY  86400
#define S_PER_HOUR 3600
#define OWN_DAYS_NS (600 * NS_PER_S) /* how long the list of days is kept at most */

VEC_DEFINE(history_rows, struct history_row);

/* " FROM table WHERE …" */
static void add_day(const struct clickhouse *ch, struct buf *sql, const char *table,
		    const struct store_day *day)
{
	buf_printf(sql, " FROM %s WHERE host = ", table);
	sql_text(sql, day->host[0] ? day->host : ch->host);
	buf_printf(sql, " AND day = %u AND retention = %u", day->day, day->retention_days);
}

/* ---- what there is of a day ------------------------------------------------------------------ */

struct day_state {
	uint64_t dropped, last; /* numbers: of the marker, of the newest row */
	uint64_t appended; /* of the newest position */
	uint64_t identity, position;
};

static int read_state(struct clickhouse *ch, const struct store_day *day, struct day_state *ret,
		      struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	uint64_t found[5];
	struct bytes in;
	int rc;

	buf_add_str(
		&sql,
		"SELECT " ROW_MARK
		", toUInt64(max(g)), toUInt64(max(l)), toUInt64(max(p)), toUInt64(argMax(i, p)), "
		"toUInt64(argMax(o, p)) FROM (SELECT maxIf(op, row = 1) AS g, maxIf(op, row != 1) "
		"AS l, toUInt64(0) AS p, "
		"toUInt64(0) AS i, toUInt64(0) AS o");
	add_day(ch, &sql, "hours", day);
	buf_add_str(&sql, " UNION ALL SELECT toUInt64(0) AS g, max(op) AS l, maxIf(op, row = 7) AS "
			  "p, argMaxIf(identity, op, row = 7) AS i, "
			  "argMaxIf(position, op, row = 7) AS o");
	add_day(ch, &sql, "minutes", day);
	buf_add_str(&sql, ") FORMAT RowBinary");
	rc = clickhouse_ask(ch, &sql, &answer, err);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	if (row_read_numbers(&in, found, ARRAY_SIZE(found)) != 1)
		return clickhouse_no_answer(ch, err);
	*ret = (struct day_state){ found[0], found[1], found[2], found[3], found[4] };
	return ret->last > ret->dropped ? 0 : clickhouse_no_day(err);
}

int clickhouse_history_position(void *ctx, const struct store_day *day, uint64_t *ret_identity,
				uint64_t *ret_position, struct err *err)
{
	struct day_state state;
	int rc = read_state(ctx, day, &state, err);
	bool any = rc == 0 && state.appended > state.dropped;

	if (rc < 0)
		return rc;
	*ret_identity = any ? state.identity : 0;
	*ret_position = any ? state.position : 0;
	return 0;
}

/* Days of all hosts come from the table of days, without their bytes: the rows of a fleet are not
 * read for a list. */
static void add_days(struct buf *sql, const char *host, bool every_host)
{
	if (every_host) {
		buf_printf(sql, "SELECT " ROW_MARK ", " ROW_TEXT("host") ", day, retention, toUInt64(0) FROM ");
		buf_add_str(sql, "(" CLICKHOUSE_NEWEST(" ") ") WHERE l > g ");
	} else {
		buf_printf(sql,
			   "SELECT " ROW_MARK ", " ROW_TEXT("%s") ", day, retention, toUInt64(sum(size)) "
			   "FROM (SELECT day, retention, op, size FROM hours WHERE row != 1 AND host = %s "
			   "UNION ALL SELECT day, retention, op, size FROM minutes WHERE row != 1 AND "
			   "host = %s) AS rows ANY LEFT JOIN (SELECT day, retention, max(op) AS gone FROM "
			   "hours WHERE row = 1 AND host = %s GROUP BY day, retention) AS marks USING (day, "
			   "retention) WHERE op > gone GROUP BY day, retention ",
			   host, host, host, host);
	}
	buf_printf(sql, "ORDER BY day, retention%s%s%s FORMAT RowBinary", every_host ? ", host != " : "",
		   every_host ? host : "", every_host ? ", host" : "");
}

/* Nobody else writes days of this host: while it writes nothing, the list stays as it is. */
static bool copy_own_days(struct clickhouse *ch, struct buf *ret)
{
	const struct own_days *days = &ch->own_days;
	bool is_fresh;

	(void)pthread_mutex_lock(&ch->days_lock);
	is_fresh = days->asked_ns && days->written == journal_written(ch->journal) &&
		   clock_monotonic_ns() - days->asked_ns < OWN_DAYS_NS;
	if (is_fresh)
		buf_add(ret, days->answer.data, days->answer.len);
	(void)pthread_mutex_unlock(&ch->days_lock);
	return is_fresh && !ret->error;
}

static void keep_own_days(struct clickhouse *ch, const struct buf *answer, uint64_t written)
{
	struct own_days *days = &ch->own_days;

	(void)pthread_mutex_lock(&ch->days_lock);
	buf_deinit(&days->answer);
	buf_add(&days->answer, answer->data, answer->len);
	days->written = written;
	days->asked_ns = days->answer.error ? 0 : clock_monotonic_ns();
	(void)pthread_mutex_unlock(&ch->days_lock);
}

static int ask_days(struct clickhouse *ch, bool every_host, struct buf *answer, struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, host = { 0 };

	sql_text(&host, ch->host);
	if (host.error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to ask the store");
	add_days(&sql, host.data, every_host);
	return clickhouse_ask(ch, &sql, answer, err);
}

int clickhouse_history_days(void *ctx, bool every_host, store_day_fn *visit, void *visit_ctx,
			    struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf answer = { 0 };
	uint64_t written = journal_written(ch->journal);
	bool is_kept = !every_host && copy_own_days(ch, &answer);
	int rc = is_kept ? 0 : ask_days(ch, every_host, &answer, err);
	struct bytes in;

	in = bytes_of(answer.data, answer.len);
	while (rc == 0) {
		struct store_day day = { 0 };
		struct day_row row;

		rc = row_read_day(&in, &row);
		if (rc < 0)
			return clickhouse_no_answer(ch, err);
		if (rc == 0) {
			if (!every_host && !is_kept)
				keep_own_days(ch, &answer, written);
			return 0;
		}
		day.day = row.day;
		day.retention_days = row.retention_days;
		if (strcmp(row.host, ch->host) != 0)
			strcpy(day.host, row.host);
		rc = visit(visit_ctx, &day, row.bytes);
	}
	return rc;
}

/* ---- the dictionary -------------------------------------------------------------------------- */

#define INNER_COLUMNS                                                                              \
	"host, row, ts, op, seq, kept, service, type, owners, samples, lost, value, profiled, "    \
	"size, minutes"

static int visit_pieces(const struct history_rows_vec *pieces, store_chunk_fn *visit, void *ctx,
			unsigned *ret_damaged)
{
	struct packed_reader *packed = packed_reader_create();
	int rc = 0;

	for (size_t i = 0; i < pieces->count && rc == 0; i++) {
		const struct history_row *row = &pieces->data[i];
		struct store_chunk chunk = { .kind = (enum store_chunk_kind)row->kept };
		cleanup_free void *data = NULL;

		rc = packed_open(packed, row->z, row->len, &data, &chunk.len);
		if (rc == -EUCLEAN) {
			(*ret_damaged)++;
			rc = 0;
			continue;
		}
		chunk.data = data;
		if (rc == 0)
			rc = visit(ctx, &chunk);
	}
	packed_reader_destroy(packed);
	return rc;
}

/* In the order of their operations: what a roll did not keep goes, and so does what comes twice. */
static int take_piece(struct history_rows_vec *pieces, const struct history_row *row)
{
	const struct history_row *last = pieces->count ? &pieces->data[pieces->count - 1] : NULL;

	if (row->row == HISTORY_DROP)
		pieces->count = 0;
	if (row->row == HISTORY_ROLL && row->kept < pieces->count)
		pieces->count = row->kept;
	if (row->row != HISTORY_PIECE || (last && last->op == row->op && last->seq == row->seq))
		return 0;
	return history_rows_vec_push(pieces, *row);
}

static int read_pieces(struct clickhouse *ch, struct buf *answer, struct history_rows_vec *pieces,
		       struct err *err)
{
	struct bytes in = bytes_of(answer->data, answer->len);
	int rc;

	for (;;) {
		struct history_row row = { 0 };

		rc = row_read_history(&in, &row);
		if (rc <= 0)
			return rc < 0 ? clickhouse_no_answer(ch, err) : 0;
		rc = take_piece(pieces, &row);
		if (rc < 0)
			return err_set(err, -rc, NULL, NULL, "no memory for the dictionary of a day");
	}
}

int clickhouse_history_dictionary(void *ctx, const struct store_day *day, store_chunk_fn *visit,
				  void *visit_ctx, unsigned *ret_damaged, struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct history_rows_vec pieces = { 0 };
	unsigned damaged = 0;
	struct day_state state;
	int rc;

	buf_add_str(&sql, "SELECT " ROW_MARK ", " HISTORY_COLUMNS ", z FROM (SELECT " INNER_COLUMNS ", z");
	add_day(ch, &sql, "hours", day);
	buf_add_str(&sql, " AND row IN (1, 3, 4) UNION ALL SELECT " INNER_COLUMNS ", z");
	add_day(ch, &sql, "minutes", day);
	buf_add_str(&sql, " AND row = 4) ORDER BY op, seq FORMAT RowBinary");
	rc = clickhouse_ask(ch, &sql, &answer, err);
	if (rc == 0)
		rc = read_pieces(ch, &answer, &pieces, err);
	if (rc == 0)
		rc = pieces.count ? visit_pieces(&pieces, visit, visit_ctx, &damaged)
				  : read_state(ch, day, &state, err);
	history_rows_vec_deinit(&pieces);
	if (rc == 0 && ret_damaged)
		*ret_damaged = damaged;
	return rc;
}

/* ---- windows --------------------------------------------------------------------------------- */

struct shared {
	struct history_row row;
	void *data; /* owned; NULL: not read yet, or none */
	size_t len;
	int rc; /* of reading it */
};
VEC_DEFINE(shared, struct shared);

struct windows {
	const struct store_window_query *query;
	bool by_hour; /* hours come as they are stored, also without data */
	int64_t from_s, to_s; /* of the query, inside the day */
	store_window_fn *visit;
	void *ctx;
	struct packed_reader *packed;
	uint64_t dropped; /* number */
	uint64_t rolled; /* of @hour */
	int64_t hour; /* since 1970 */
	struct shared_vec shared;
	struct history_rows_vec held; /* parts of one minute and series */
	struct history_row last; /* hour that was visited */
	bool any;
	unsigned damaged;
};

static void close_windows(struct windows *windows)
{
	for (size_t i = 0; i < windows->shared.count; i++)
		free(windows->shared.data[i].data);
	shared_vec_deinit(&windows->shared);
	history_rows_vec_deinit(&windows->held);
	packed_reader_destroy(windows->packed);
}

static bool same_series(const struct history_row *a, const struct history_row *b)
{
	return strcmp(a->service, b->service) == 0 && strcmp(a->type, b->type) == 0 &&
	       strcmp(a->owners, b->owners) == 0;
}

/* The shared data of the row's series, read once; NULL: there is none. */
static struct shared *find_shared(struct windows *windows, const struct history_row *row)
{
	for (size_t i = 0; i < windows->shared.count; i++) {
		struct shared *shared = &windows->shared.data[i];

		if (!same_series(&shared->row, row))
			continue;
		if (!shared->data && shared->rc == 0)
			shared->rc = packed_open(windows->packed, shared->row.z, shared->row.len,
						 &shared->data, &shared->len);
		return shared;
	}
	return NULL;
}

static int read_data(struct windows *windows, const struct history_row *row, void **ret,
		     struct store_window *window)
{
	const struct shared *shared = find_shared(windows, row);
	struct packed_window wanted = { windows->query, windows->ctx, window };
	int rc = shared ? shared->rc : 0;

	/* Minutes can be read without it. */
	if (rc == -EUCLEAN && row->row == HISTORY_MINUTE) {
		windows->damaged++;
		rc = 0;
	}
	if (rc == 0)
		rc = packed_open_part(windows->packed, row->z, row->len,
				      windows->query->needs ? packed_window_needs : NULL, &wanted,
				      ret, &window->len);
	window->data = *ret;
	window->shared = shared ? shared->data : NULL;
	window->shared_len = shared ? shared->len : 0;
	return rc;
}

static int read_totals(const struct history_row *row, struct store_minute minutes[HOUR_MINUTES],
		       struct store_window *window)
{
	int count;

	if (row->row == HISTORY_HOUR) {
		count = minutes_decode(row->minutes, row->minutes_len, minutes);
		window->whole = true;
		minutes_sum(window, minutes, count < 0 ? 0 : (uint32_t)count);
		return count > 0 ? 0 : -EUCLEAN;
	}
	window->whole = row->kept != 0;
	window->samples = row->numbers.samples;
	window->lost = row->numbers.lost;
	window->value = row->numbers.value;
	window->profiled_ms = row->numbers.profiled_ms;
	return 0;
}

static int visit_row(struct windows *windows, const struct history_row *row)
{
	uint64_t beside = row->minutes_len + HISTORY_ROW_EXTRA;
	struct store_minute minutes[HOUR_MINUTES];
	struct store_window window = {
		.service = row->service,
		.type = row->type,
		.owners = row->owners,
		.from_ns = row->ts * NS_PER_S,
		.bytes = row->numbers.size > beside ? row->numbers.size - beside : 0,
	};
	cleanup_free void *data = NULL;
	int rc = read_totals(row, minutes, &window);

	if (rc == 0 && windows->query->with_data)
		rc = read_data(windows, row, &data, &window);
	if (rc == -EUCLEAN) {
		windows->damaged++;
		return 0;
	}
	if (rc < 0)
		return rc;
	return window.minute_count && !windows->query->with_data && !windows->by_hour
		       ? minutes_hand_out(&window, (uint64_t)windows->from_s * NS_PER_S,
					  (uint64_t)windows->to_s * NS_PER_S, windows->visit,
					  windows->ctx)
		       : windows->visit(windows->ctx, &window);
}

static int let_go(struct windows *windows)
{
	int rc = 0;

	for (size_t i = 0; i < windows->held.count && rc == 0; i++)
		rc = visit_row(windows, &windows->held.data[i]);
	windows->held.count = 0;
	return rc;
}

/* A minute that is whole replaces what came before. */
static int take_minute(struct windows *windows, const struct history_row *row)
{
	struct history_rows_vec *held = &windows->held;
	const struct history_row *last = held->count ? &held->data[held->count - 1] : NULL;
	int rc = 0;

	if (last && last->op == row->op && last->seq == row->seq)
		return 0;
	if (last && (last->ts != row->ts || !same_series(last, row)))
		rc = let_go(windows);
	if (row->kept)
		held->count = 0;
	return rc < 0 ? rc : history_rows_vec_push(held, *row);
}

static int take_shared(struct windows *windows, const struct history_row *row)
{
	struct shared_vec *list = &windows->shared;

	if (list->count && same_series(&list->data[list->count - 1].row, row)) {
		list->data[list->count - 1].row = *row;
		return 0;
	}
	return shared_vec_push(list, (struct shared){ .row = *row });
}

static int take_hour(struct windows *windows, const struct history_row *row)
{
	bool again = windows->last.op == row->op && windows->last.seq == row->seq;

	windows->last = *row;
	return again ? 0 : visit_row(windows, row);
}

/* First what was dropped and what is shared. Then rows come by hour; in it: the markers, hours,
 * minutes; each by its operation. */
static int take_row(struct windows *windows, const struct history_row *row)
{
	int64_t hour = row->row <= HISTORY_SHARED ? -1 : (int64_t)row->ts / S_PER_HOUR;
	int rc = 0;

	if (row->row == HISTORY_DROP) {
		windows->dropped = row->op > windows->dropped ? row->op : windows->dropped;
		return 0;
	}
	if (hour != windows->hour || row->row != HISTORY_MINUTE)
		rc = let_go(windows);
	if (hour != windows->hour)
		windows->rolled = 0;
	windows->hour = hour;
	if (rc < 0 || row->op <= windows->dropped || row->op < windows->rolled)
		return rc;
	windows->any = true;
	switch (row->row) {
	case HISTORY_SHARED:
		return take_shared(windows, row);
	case HISTORY_ROLL:
		windows->rolled = row->op;
		return 0;
	case HISTORY_HOUR:
		return take_hour(windows, row);
	case HISTORY_MINUTE:
		return take_minute(windows, row);
	default:
		return 0;
	}
}

void clickhouse_history_add_series(struct buf *sql, const struct store_window_query *query)
{
	char owner[80];

	if (query->service) {
		buf_add_str(sql, " AND service = ");
		sql_text(sql, query->service);
	}
	if (query->type) {
		buf_add_str(sql, " AND type = ");
		sql_text(sql, query->type);
	}
	if (!query->tenant)
		return;
	(void)snprintf(owner, sizeof(owner), ",%s:", query->tenant);
	buf_add_str(sql, " AND position(owners, ");
	sql_text(sql, owner);
	buf_add_str(sql, ") > 0");
}

static void add_windows(struct clickhouse *ch, struct buf *sql, const struct store_day *day,
			const struct windows *windows)
{
	const char *z = windows->query->with_data ? ", z" : "";
	int64_t begin = windows->from_s - windows->from_s % S_PER_HOUR;

	buf_printf(sql,
		   "SELECT " ROW_MARK ", " HISTORY_COLUMNS "%s FROM (SELECT " INNER_COLUMNS "%s",
		   *z ? z : ", ''", z);
	add_day(ch, sql, "hours", day);
	buf_printf(
		sql,
		" AND (row <= 2 OR (ts >= %lld AND ts < %lld)) AND (row IN (1, 3) OR (row IN (%s5)",
		(long long)begin, (long long)windows->to_s, windows->query->with_data ? "2, " : "");
	clickhouse_history_add_series(sql, windows->query);
	/* Most minutes that are rolled up need not come: they are left out here. */
	buf_printf(sql,
		   ")) UNION ALL SELECT " INNER_COLUMNS "%s FROM (SELECT " INNER_COLUMNS
		   "%s, intDiv(ts, 3600) AS h",
		   z, z);
	add_day(ch, sql, "minutes", day);
	buf_printf(sql, " AND row = 6 AND ts >= %lld AND ts < %lld", (long long)windows->from_s,
		   (long long)windows->to_s);
	clickhouse_history_add_series(sql, windows->query);
	buf_add_str(sql, ") AS rows ANY LEFT JOIN (SELECT host, intDiv(ts, 3600) AS h, max(op) AS rolled");
	add_day(ch, sql, "hours", day);
	buf_add_str(sql, " AND row = 3 GROUP BY host, h) AS rolls USING (host, h) WHERE op > rolled) "
			 "ORDER BY if(row <= 2, toUInt32(0), toUInt32(intDiv(ts, 3600) + 1)), row, ts, "
			 "service, type, owners, op, seq FORMAT RowBinary");
}

static int read_windows(struct clickhouse *ch, const struct store_day *day, struct windows *windows,
			struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct day_state state;
	struct bytes in;
	int rc;

	add_windows(ch, &sql, day, windows);
	rc = clickhouse_ask(ch, &sql, &answer, err);
	in = bytes_of(answer.data, answer.len);
	while (rc == 0) {
		struct history_row row = { 0 };

		rc = row_read_history(&in, &row);
		if (rc < 0)
			return clickhouse_no_answer(ch, err);
		if (rc == 0)
			break;
		rc = take_row(windows, &row);
	}
	if (rc == 0)
		rc = let_go(windows);
	if (rc < 0 || windows->any)
		return rc;
	return read_state(ch, day, &state, err);
}

static int visit_windows(struct clickhouse *ch, const struct store_day *day, bool by_hour,
			 const struct store_window_query *query, store_window_fn *visit,
			 void *visit_ctx, unsigned *ret_damaged, struct err *err)
{
	int64_t midnight = (int64_t)day->day * S_PER_DAY, from = (int64_t)(query->from_ns / NS_PER_S);
	int64_t to = query->to_ns ? (int64_t)((query->to_ns + NS_PER_S - 1) / NS_PER_S) : INT64_MAX;
	__attribute__((__cleanup__(close_windows))) struct windows windows = {
		.query = query,
		.by_hour = by_hour,
		.from_s = from > midnight ? from : midnight,
		.to_s = to < midnight + S_PER_DAY ? to : midnight + S_PER_DAY,
		.visit = visit,
		.ctx = visit_ctx,
		.hour = -1,
		.packed = packed_reader_create(),
	};
	int rc = read_windows(ch, day, &windows, err);

	if (rc == 0 && ret_damaged)
		*ret_damaged = windows.damaged;
	return rc;
}

int clickhouse_history_windows(void *ctx, const struct store_day *day,
			       const struct store_window_query *query, store_window_fn *visit,
			       void *visit_ctx, unsigned *ret_damaged, struct err *err)
{
	return query->every_host
		       ? clickhouse_history_totals(ctx, day, NULL, query, visit, visit_ctx, ret_damaged, err)
		       : visit_windows(ctx, day, false, query, visit, visit_ctx, ret_damaged, err);
}

int clickhouse_history_hours(void *ctx, const struct store_day *day, store_window_fn *visit,
			     void *visit_ctx, unsigned *ret_damaged, struct err *err)
{
	static const struct store_window_query all = { 0 };

	return visit_windows(ctx, day, true, &all, visit, visit_ctx, ret_damaged, err);
}
