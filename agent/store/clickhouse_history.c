// SPDX-License-Identifier: Apache-2.0
/* Writing the history: one call is one operation is one INSERT into one partition of one table,
 * there as a whole or not at all. What is appended goes to `minutes`, what replaces it to `hours`:
 * a marker in `hours` says that what is older does not exist. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_history.h"
#include "agent/store/minutes.h"
#include "agent/store/packed.h"

struct rows {
	const struct clickhouse *ch;
	const struct store_day *day;
	uint64_t number;
	uint32_t seq; /* of the next */
	struct buf body;
};

/* The fields that differ between rows. */
struct put {
	enum history_row_kind row;
	uint32_t ts, kept;
	const struct store_window *window; /* texts and numbers; NULL = none */
	uint64_t identity, position;
	const struct buf *minutes;
	const void *z;
	size_t len;
};

static void add_row(struct rows *rows, const struct put *put)
{
	const struct store_window none = { 0 }, *window = put->window ? put->window : &none;
	size_t minutes_len = put->minutes ? put->minutes->len : 0;
	struct buf *out = &rows->body;
	/* Those replace one another, whatever their operation. */
	bool one = put->row == HISTORY_DROP || put->row == HISTORY_SHARED;

	row_add_text(out, rows->ch->host);
	row_add_u32(out, rows->day->day);
	row_add_u32(out, rows->day->retention_days);
	row_add_u8(out, (uint8_t)put->row);
	row_add_u32(out, put->ts);
	row_add_text(out, window->service);
	row_add_text(out, window->type);
	row_add_text(out, window->owners);
	row_add_u64(out, rows->number);
	row_add_u32(out, one ? 0 : rows->seq++);
	row_add_u64(out, one ? 0 : rows->number);
	row_add_u32(out, put->kept);
	row_add_u64(out, window->samples);
	row_add_u64(out, window->lost);
	row_add_u64(out, (uint64_t)window->value);
	row_add_u32(out, window->profiled_ms);
	row_add_u64(out, put->identity);
	row_add_u64(out, put->position);
	row_add_u32(out, (uint32_t)(put->len + minutes_len) + HISTORY_ROW_EXTRA);
	row_add_blob(out, put->minutes ? put->minutes->data : NULL, minutes_len);
	row_add_blob(out, put->z, put->len);
}

/* ---- what is compressed before anybody waits ------------------------------------------------- */

struct pack {
	void *z, *shared; /* owned */
	size_t len, shared_len;
};

struct packs {
	struct pack *data; /* of the windows */
	size_t count;
	struct pack *pieces; /* of the dictionary */
	size_t piece_count;
	uint64_t bytes;
};

static void free_pack_list(struct pack *list, size_t count)
{
	for (size_t i = 0; list && i < count; i++) {
		free(list[i].z);
		free(list[i].shared);
	}
	free(list);
}

static void packs_deinit(struct packs *packs)
{
	free_pack_list(packs->data, packs->count);
	free_pack_list(packs->pieces, packs->piece_count);
}
#define cleanup_packs __attribute__((__cleanup__(packs_deinit)))

static int pack_one(struct packs *packs, const void *data, size_t len,
		    const struct store_ends *ends, void **ret, size_t *ret_len, struct err *err)
{
	int rc = packed_make(data, len, ends, ret, ret_len);

	if (rc < 0)
		return err_set(err, -rc, "StoreUnavailable", NULL, "a piece of the history is too large");
	packs->bytes += *ret_len + HISTORY_ROW_EXTRA;
	return 0;
}

/* @lasting: hours, and a piece with @ends. */
static int make_packs(struct packs *packs, const struct store_chunk *pieces, size_t piece_count,
		      const struct store_window *windows, size_t window_count, bool lasting,
		      const struct store_ends *ends, struct err *err)
{
	static const struct store_ends none = { 0 };
	int rc = 0;

	packs->data = calloc(window_count + 1, sizeof(*packs->data));
	packs->pieces = calloc(piece_count + 1, sizeof(*packs->pieces));
	if (!packs->data || !packs->pieces)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to store the history");
	packs->count = window_count;
	packs->piece_count = piece_count;
	for (size_t i = 0; rc == 0 && i < piece_count; i++)
		rc = pack_one(packs, pieces[i].data, pieces[i].len,
			      !lasting ? NULL
			      : ends   ? ends
				       : &none,
			      &packs->pieces[i].z, &packs->pieces[i].len, err);
	for (size_t i = 0; rc == 0 && i < window_count; i++) {
		struct pack *pack = &packs->data[i];

		rc = pack_one(packs, windows[i].data, windows[i].len,
			      lasting ? &windows[i].ends : NULL, &pack->z, &pack->len, err);
		if (rc == 0 && lasting && windows[i].shared)
			rc = pack_one(packs, windows[i].shared, windows[i].shared_len, &none,
				      &pack->shared, &pack->shared_len, err);
	}
	return rc;
}

static void add_pieces(struct rows *rows, const struct store_chunk *pieces,
		       const struct packs *packs)
{
	for (size_t i = 0; i < packs->piece_count; i++) {
		const struct put put = { .row = HISTORY_PIECE,
					 .kept = pieces[i].kind,
					 .z = packs->pieces[i].z,
					 .len = packs->pieces[i].len };

		add_row(rows, &put);
	}
}

static int finish(struct clickhouse *ch, enum clickhouse_table table, struct rows *rows,
		  struct err *err)
{
	uint64_t partition = (uint64_t)rows->day->day << 32 |
			     (table == CLICKHOUSE_HOURS ? rows->day->retention_days : 0);
	int rc = clickhouse_write(ch, table, rows->number, partition, &rows->body, false, err);

	buf_deinit(&rows->body);
	return rc;
}

static uint32_t seconds(uint64_t ns)
{
	return (uint32_t)(ns / NS_PER_S);
}

/* ---- the calls ------------------------------------------------------------------------------- */

int clickhouse_history_append(void *ctx, const struct store_day *day,
			      const struct store_chunk *dictionary, size_t chunk_count,
			      const struct store_window *windows, size_t window_count,
			      uint64_t feed_identity, uint64_t feed_position, struct err *err)
{
	const struct put last = { .row = HISTORY_POSITION,
				  .identity = feed_identity,
				  .position = feed_position };
	struct clickhouse *ch = ctx;
	struct rows rows = { .ch = ch, .day = day };
	cleanup_packs struct packs packs = { 0 };
	int rc = make_packs(&packs, dictionary, chunk_count, windows, window_count, false, NULL, err);

	if (rc == 0)
		rc = clickhouse_check_room(ch, packs.bytes, err);
	if (rc < 0)
		return rc;
	rows.number = journal_begin(ch->journal);
	add_pieces(&rows, dictionary, &packs);
	for (size_t i = 0; i < window_count; i++) {
		const struct put put = { .row = HISTORY_MINUTE,
					 .ts = seconds(windows[i].from_ns),
					 .kept = windows[i].whole,
					 .window = &windows[i],
					 .z = packs.data[i].z,
					 .len = packs.data[i].len };

		add_row(&rows, &put);
	}
	add_row(&rows, &last);
	return finish(ch, CLICKHOUSE_MINUTES, &rows, err);
}

static int add_hour(struct rows *rows, const struct store_window *window, const struct pack *pack)
{
	cleanup_buf struct buf minutes = { 0 };
	const struct put hour = { .row = HISTORY_HOUR,
				  .ts = seconds(window->from_ns),
				  .window = window,
				  .minutes = &minutes,
				  .z = pack->z,
				  .len = pack->len };
	const struct store_window texts = { .service = window->service,
					    .type = window->type,
					    .owners = window->owners };
	const struct put shared = {
		.row = HISTORY_SHARED, .window = &texts, .z = pack->shared, .len = pack->shared_len
	};

	minutes_encode(&minutes, window->minutes, window->minute_count);
	if (minutes.error)
		return minutes.error;
	add_row(rows, &hour);
	if (pack->shared)
		add_row(rows, &shared);
	return 0;
}

int clickhouse_history_roll(void *ctx, const struct store_day *day, uint64_t from_ns, size_t kept,
			    const struct store_chunk *dictionary, const struct store_ends *ends,
			    const struct store_window *windows, size_t window_count,
			    struct err *err)
{
	struct clickhouse *ch = ctx;
	struct rows rows = { .ch = ch, .day = day };
	const struct put marker = { .row = HISTORY_ROLL,
				    .ts = seconds(from_ns),
				    .kept = kept < UINT32_MAX ? (uint32_t)kept : UINT32_MAX };
	cleanup_packs struct packs packs = { 0 };
	int rc = make_packs(&packs, dictionary, dictionary ? 1 : 0, windows, window_count, true,
			    ends, err);

	if (rc == 0)
		rc = clickhouse_check_room(ch, packs.bytes, err);
	if (rc < 0)
		return rc;
	rows.number = journal_begin(ch->journal);
	add_row(&rows, &marker);
	add_pieces(&rows, dictionary, &packs);
	for (size_t i = 0; i < window_count; i++) {
		rc = add_hour(&rows, &windows[i], &packs.data[i]);
		if (rc < 0)
			rows.body.error = rc;
	}
	return finish(ch, CLICKHOUSE_HOURS, &rows, err);
}

/* The day of another host, which does not write to it any more: the marker lies behind its last
 * row, by that host's own numbers. */
static int drop_of_other(struct clickhouse *ch, const struct store_day *day, struct err *err)
{
	static const char *const tables[] = { "hours", "minutes" };
	cleanup_buf struct buf sql = { 0 };
	uint64_t number = journal_begin(ch->journal);

	buf_add_str(&sql, "INSERT INTO hours (host, day, retention, row, ts, service, type, "
			  "owners, op, seq, turn, kept, samples, lost, "
			  "value, profiled, identity, position, size, minutes, z) SELECT host, "
			  "day, retention, toUInt8(1), toUInt32(0), '', '', "
			  "'', max(op) + 1, toUInt32(0), toUInt64(0), toUInt32(0), toUInt64(0), "
			  "toUInt64(0), toInt64(0), toUInt32(0), "
			  "toUInt64(0), toUInt64(0), toUInt32(0), '', '' FROM (");
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		buf_printf(&sql, "%sSELECT host, day, retention, row, op FROM %s WHERE host = ",
			   i ? " UNION ALL " : "", tables[i]);
		sql_text(&sql, day->host);
		buf_printf(&sql, " AND day = %u AND retention = %u", day->day, day->retention_days);
	}
	buf_add_str(&sql, ") GROUP BY host, day, retention HAVING argMax(row, op) != 1");
	atomic_store(&ch->shrunk, true);
	return clickhouse_write(ch, 0, number, 0, &sql, true, err);
}

int clickhouse_history_drop(void *ctx, const struct store_day *day, struct err *err)
{
	static const struct put marker = { .row = HISTORY_DROP };
	struct clickhouse *ch = ctx;
	struct rows rows = { .ch = ch, .day = day };
	uint64_t partition = (uint64_t)day->day << 32 | day->retention_days;
	int rc;

	if (day->host[0])
		return drop_of_other(ch, day, err);
	rows.number = journal_begin(ch->journal);
	add_row(&rows, &marker);
	atomic_store(&ch->shrunk, true);
	rc = clickhouse_write(ch, CLICKHOUSE_HOURS, rows.number, partition, &rows.body, true, err);
	buf_deinit(&rows.body);
	return rc;
}
