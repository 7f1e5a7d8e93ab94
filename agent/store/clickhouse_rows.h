/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as ClickHouse's format RowBinary has them, both ways: little-endian numbers, texts behind
 * their length (LEB128). Rows that are read begin with a mark, so that the text of an exception is
 * no row. Their texts end in a zero byte, so they need no copy. A server's answer may be anything:
 * every length is checked, a text with a zero inside is refused. Pure. */
#ifndef PROFD_STORE_CLICKHOUSE_ROWS_H
#define PROFD_STORE_CLICKHOUSE_ROWS_H

#include "agent/base/buf.h"
#include "agent/base/bytes.h"
#include "agent/store/store.h"

/* In SQL: first column of every row, a text column, a number of a day's rows. */
#define ROW_MARK	   "toUInt32(2665590437)"
#define ROW_MARK_NUMBER	   2665590437u
#define ROW_TEXT(column)   "concat(" column ", '\\0')"
#define ROW_BLOB_MAX                                                                               \
	(STORE_CHUNK_MAX +                                                                         \
	 4096u) /* bytes; what packed_make() makes of the largest chunk is shorter */

static inline void row_add_u8(struct buf *out, uint8_t value)
{
	buf_add(out, &value, sizeof(value));
}

static inline void row_add_u32(struct buf *out, uint32_t value)
{
	buf_add(out, &value, sizeof(value));
}

static inline void row_add_u64(struct buf *out, uint64_t value)
{
	buf_add(out, &value, sizeof(value));
}

void row_add_blob(struct buf *out, const void *data, size_t len);
/* NULL is "". */
void row_add_text(struct buf *out, const char *text);

/* 1 and behind the mark, 0 at the end of the answer, -EPROTO: no row begins here. */
int row_begin(struct bytes *in) must_use;
/* In the answer, zero-terminated; "" and failed when it is none. */
const char *row_text(struct bytes *in);
/* In the answer; NULL and failed when it is too long. */
const void *row_blob(struct bytes *in, size_t max, size_t *ret_len);

/* ---- the rows of each question --------------------------------------------------------------- */

/* "SELECT mark, " and these columns, in this order. Each reader: 1 = a row, 0 = the end, -EPROTO;
 * texts and blobs lie in the answer. */

#define RECORD_COLUMNS                                                                             \
	ROW_TEXT("host")                                                                           \
	", " ROW_TEXT("tenant") ", " ROW_TEXT("id") ", " ROW_TEXT("service") ", " ROW_TEXT(        \
		"type") ", " ROW_TEXT("status") ", created, body"
int row_read_record(struct bytes *in, struct store_record *ret) must_use;

struct chunk_row {
	uint64_t op, identity, position;
	uint32_t seq, kind;
	const void *z;
	size_t len;
};
#define CHUNK_COLUMNS "op, seq, kind, identity, position, z"
int row_read_chunk(struct bytes *in, struct chunk_row *ret) must_use;

/* Rows of the history. */
enum history_row_kind {
	HISTORY_DROP = 1, /* what is older does not exist */
	HISTORY_SHARED,	  /* what the hours of a series share */
	HISTORY_ROLL,	  /* what is older of this hour does not exist; @kept: of the dictionary */
	HISTORY_PIECE,	  /* of the dictionary; @kept is its kind */
	HISTORY_HOUR,
	HISTORY_MINUTE,	  /* whole (@kept = 1) or a part of one */
	HISTORY_POSITION, /* how far the feed was read */
};

/* Sums over a minute, or over a part of one. */
struct row_numbers {
	uint64_t samples, lost;
	int64_t value;
	uint32_t profiled_ms; /* how long was looked */
	uint32_t size; /* bytes of the data on the server, also when the data is not asked for */
};

struct history_row {
	const char *host;
	uint8_t row;
	uint32_t ts;  /* seconds since 1970 */
	uint64_t op;
	uint32_t seq;
	uint32_t kept;
	const char *service, *type, *owners;
	struct row_numbers numbers;
	const void *minutes;
	size_t minutes_len;
	const void *z;
	size_t len;
};
#define HISTORY_COLUMNS                                                                            \
	ROW_TEXT("host")                                                                           \
	", row, ts, op, seq, kept, " ROW_TEXT("service") ", " ROW_TEXT("type") ", " ROW_TEXT(      \
		"owners") ", samples, lost, value, profiled, size, minutes"
int row_read_history(struct bytes *in, struct history_row *ret) must_use;

/* The history of many hosts: markers, hours, and the minutes of an hour that is not rolled up. */
struct totals_row {
	const char *host;
	uint8_t row;
	uint32_t ts; /* begin of the hour, seconds since 1970 */
	uint64_t op; /* of minutes 0 */
	uint32_t seq;
	const char *service, *type, *owners;
	uint32_t size; /* bytes, as in struct row_numbers */
	const void *minutes; /* of an hour */
	size_t minutes_len;
	const void *items; /* row_read_total_item() reads them */
	size_t items_len;
};
#define TOTALS_COLUMNS                                                                             \
	ROW_TEXT("host")                                                                           \
	", row, ts, op, seq, " ROW_TEXT("service") ", " ROW_TEXT("type") ", " ROW_TEXT("owners") ", " \
	"size, minutes, items"
int row_read_totals(struct bytes *in, struct totals_row *ret) must_use;

/* A minute of a series, or a part of one. */
struct total_item {
	uint32_t ts; /* seconds since 1970 */
	uint64_t op;
	uint32_t seq, kept; /* kept = 1: whole */
	struct row_numbers numbers;
};
/* The next one of a row's items; false at their end. */
bool row_read_total_item(struct bytes *in, struct total_item *ret) must_use;

struct day_row {
	const char *host;
	uint32_t day, retention_days;
	uint64_t bytes;
};
int row_read_day(struct bytes *in, struct day_row *ret) must_use;

/* A row of nothing but @count numbers. */
int row_read_numbers(struct bytes *in, uint64_t *ret, size_t count) must_use;

#endif
