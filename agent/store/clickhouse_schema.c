// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_schema.h"

#include <errno.h>
#include <string.h>

#include "agent/base/log.h"
#include "agent/store/clickhouse_rows.h"
#include "agent/store/clickhouse_sql.h"

#define MODERN 21000u /* from this version on columns have codecs, dictionaries, sizes of blocks */

/* ---- the statements -------------------------------------------------------------------------- */

/* For a database that no agent writes any more: agents drop days themselves, and those of absent
 * hosts a day later. The number of an operation is the time at which it was written, in ns; a
 * DateTime is 32 bits. */
#define EXPIRY                                                                                     \
	" TTL toDateTime(least(intDiv(op, 1000000000) + (retention + 8) * 86400, 4294967295))"

/* Rows that were sent twice have one key, of which @op, the number of the operation, is a part;
 * rows with @turn 0 replace one another. In the columns, $ begins what depends on the version:
 *   $L  text of few values        $D  numbers that ascend
 *   $N  bytes that are compressed already (zstd)        $Z  text that is read seldom */
#define HISTORY_COLUMNS_SQL                                                                        \
	"host $L, day UInt32, retention UInt32, row UInt8, ts UInt32$D, service $L, type $L, "     \
	"owners $L, op UInt64$D, seq UInt32, turn UInt64$D, kept UInt32, samples UInt64, "         \
	"lost UInt64, value Int64, profiled UInt32, identity UInt64, position UInt64$D, "          \
	"size UInt32, minutes String, z String$N"
static const struct object {
	const char *name;
	const char *columns; /* NULL: a view */
	const char *engine, *version_column; /* "" = none */
	const char *partition; /* NULL = one */
	const char *order;
	/* Few rows to a granule where they are large: a small answer does not read much. */
	unsigned granularity;
	/* Small blocks: a question about many hosts reads few rows of each. They cost 2 % of disk. */
	bool has_small_blocks;
	bool is_of_days; /* a row says its day and for how long it is kept */
	const char *view; /* target table, and the SELECT over a block of new rows */
} objects[CLICKHOUSE_OBJECTS] = {
	{ .name = "records",
	  .columns = "host $L, kind $L, tenant $L, id String, service $L, type $L, status $L, "
		     "created UInt64$D, op UInt64$D, gone UInt8, size UInt32, body String$Z",
	  .engine = "ReplacingMergeTree",
	  .version_column = "op",
	  .order = "kind, tenant, id, host",
	  .granularity = 256 },
	/* By the day of the operation: what cleaning rewrites is small. */
	{ .name = "chunks",
	  .columns = "host $L, id String, op UInt64$D, seq UInt32, kind UInt32, identity UInt64, "
		     "position UInt64$D, size UInt32, z String$N",
	  .engine = "ReplacingMergeTree",
	  .version_column = "",
	  .partition = "intDiv(op, 86400000000000)",
	  .order = "id, host, op, seq",
	  .granularity = 64 },
	{ .name = "minutes",
	  .columns = HISTORY_COLUMNS_SQL,
	  .engine = "ReplacingMergeTree",
	  .version_column = "op",
	  .partition = "day",
	  .order = "host, retention, row, ts, service, type, owners, turn, seq",
	  .granularity = 128,
	  .has_small_blocks = true,
	  .is_of_days = true },
	{ .name = "hours",
	  .columns = HISTORY_COLUMNS_SQL,
	  .engine = "ReplacingMergeTree",
	  .version_column = "op",
	  .partition = "(day, retention)",
	  .order = "host, row, ts, service, type, owners, turn, seq",
	  .granularity = 64,
	  .is_of_days = true },
	/* The views' rows hold what a host's bookkeeping asks for, by host, without the data. A
	 * block that is sent again gives the same rows again. */
	{ .name = "record_sizes",
	  .columns = "host $L, kind $L, tenant $L, id String, op UInt64$D, gone UInt8, size UInt32",
	  .engine = "ReplacingMergeTree",
	  .version_column = "op",
	  .order = "host, kind, tenant, id",
	  .granularity = 1024 },
	{ .name = "chunk_sizes",
	  .columns = "host $L, id String, op UInt64$D, first UInt32, what UInt32, bytes UInt64",
	  .engine = "ReplacingMergeTree",
	  .version_column = "",
	  .partition = "intDiv(op, 86400000000000)",
	  .order = "host, id, op, first",
	  .granularity = 1024 },
	{ .name = "days",
	  .columns = "day UInt32, retention UInt32, host $L, dropped UInt8, "
		     "last AggregateFunction(max, UInt64)",
	  .engine = "AggregatingMergeTree",
	  .version_column = "",
	  .order = "day, retention, host, dropped",
	  .granularity = 1024 },
	{ .name = "record_sizes_of_records",
	  .view = "record_sizes AS SELECT host, kind, tenant, id, op, gone, size FROM %s.records" },
	{ .name = "chunk_sizes_of_chunks",
	  .view = "chunk_sizes AS SELECT host, id, op, min(seq) AS first, min(kind) AS what, "
		  "sum(size) AS bytes FROM %s.chunks GROUP BY host, id, op" },
	{ .name = "days_of_minutes",
	  .view = "days AS SELECT day, retention, host, toUInt8(row = 1) AS dropped, "
		  "maxState(op) AS last FROM %s.minutes GROUP BY day, retention, host, dropped" },
	{ .name = "days_of_hours",
	  .view = "days AS SELECT day, retention, host, toUInt8(row = 1) AS dropped, "
		  "maxState(op) AS last FROM %s.hours GROUP BY day, retention, host, dropped" },
	/* Last: what is there when it says so. */
	{ .name = "profd_format",
	  .columns = "version UInt32",
	  .engine = "ReplacingMergeTree",
	  .version_column = "",
	  .order = "version",
	  .granularity = 8192 },
};

const char *clickhouse_schema_name(size_t i)
{
	return objects[i].name;
}

static void add_columns(struct buf *sql, const char *columns, bool modern)
{
	for (const char *at = columns; *at; at++) {
		if (*at != '$') {
			buf_add_char(sql, *at);
			continue;
		}
		switch (*++at) {
		case 'L':
			buf_add_str(sql, modern ? "LowCardinality(String)" : "String");
			break;
		case 'D':
			buf_add_str(sql, modern ? " CODEC(Delta, ZSTD(1))" : "");
			break;
		case 'N':
			buf_add_str(sql, modern ? " CODEC(NONE)" : "");
			break;
		default:
			buf_add_str(sql, modern ? " CODEC(ZSTD(3))" : "");
			break;
		}
	}
}

static void add_engine(struct buf *sql, const struct object *object,
		       const struct clickhouse_url *url)
{
	bool replicated = url->cluster[0] != '\0';

	buf_printf(sql, " ENGINE = %s%s(", replicated ? "Replicated" : "", object->engine);
	if (replicated)
		buf_printf(sql, "'/clickhouse/tables/{shard}/%s/%s', '{replica}'%s", url->database,
			   object->name, object->version_column[0] ? ", " : "");
	buf_printf(sql, "%s)", object->version_column);
}

static void add_on_cluster(struct buf *sql, const struct clickhouse_url *url)
{
	if (url->cluster[0])
		buf_printf(sql, " ON CLUSTER `%s`", url->cluster);
}

void clickhouse_schema_create(struct buf *sql, size_t i, unsigned version,
			      const struct clickhouse_url *url)
{
	const struct object *object = &objects[i];
	bool modern = version >= MODERN;

	buf_printf(sql, "CREATE %s IF NOT EXISTS `%s`.%s", object->view ? "MATERIALIZED VIEW" : "TABLE",
		   url->database, object->name);
	add_on_cluster(sql, url);
	if (object->view) {
		char database[CLICKHOUSE_WORD_SIZE + 2];

		(void)snprintf(database, sizeof(database), "`%s`", url->database);
		buf_printf(sql, " TO %s.", database);
		buf_printf(sql, object->view, database);
		return;
	}
	buf_add_str(sql, " (");
	add_columns(sql, object->columns, modern);
	buf_add_char(sql, ')');
	add_engine(sql, object, url);
	if (object->partition)
		buf_printf(sql, " PARTITION BY %s", object->partition);
	buf_printf(sql, " ORDER BY (%s)", object->order);
	if (modern && object->is_of_days)
		buf_add_str(sql, EXPIRY);
	buf_printf(sql, " SETTINGS index_granularity = %u", object->granularity);
	if (modern && object->is_of_days)
		buf_add_str(sql, ", ttl_only_drop_parts = 1");
	if (modern && object->has_small_blocks)
		buf_add_str(sql, ", min_compress_block_size = 8192, max_compress_block_size = 32768");
}

/* ---- making them ----------------------------------------------------------------------------- */

static int run(struct clickhouse_http *http, struct buf *sql, bool outside, int *ret_code,
	       struct err *err)
{
	struct clickhouse_request request = { .outside = outside, .whatever = true };

	buf_add_char(sql, '\0');
	if (sql->error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	request.sql = sql->data;
	return clickhouse_http_do(http, &request, NULL, ret_code, err);
}

static int no_clickhouse(struct clickhouse_http *http, int *ret_code, struct err *err)
{
	*ret_code = -1;
	return err_set(err, EIO, "StoreUnavailable", NULL,
		       "%s is no ClickHouse: it answers something else", clickhouse_http_name(http));
}

/* Sets @ret to the objects that exist, as bits by their index. */
static int find_objects(struct clickhouse_http *http, unsigned *ret, int *ret_code, struct err *err)
{
	struct clickhouse_request request = { .outside = true, .whatever = true };
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct bytes in;
	int rc;

	buf_printf(&sql, "SELECT " ROW_MARK ", " ROW_TEXT("name") " FROM system.tables WHERE database = ");
	sql_text(&sql, clickhouse_http_url(http)->database);
	buf_add_str(&sql, " FORMAT RowBinary");
	buf_add_char(&sql, '\0');
	if (sql.error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	request.sql = sql.data;
	rc = clickhouse_http_do(http, &request, &answer, ret_code, err);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	for (*ret = 0; (rc = row_begin(&in)) == 1;) {
		const char *name = row_text(&in);

		for (unsigned i = 0; i < CLICKHOUSE_OBJECTS; i++)
			if (strcmp(name, objects[i].name) == 0)
				*ret |= 1u << i;
	}
	return rc < 0 ? no_clickhouse(http, ret_code, err) : 0;
}

static int make_missing(struct clickhouse_http *http, unsigned found, int *ret_code,
			struct err *err)
{
	const struct clickhouse_url *url = clickhouse_http_url(http);
	int rc = 0;

	if (!found) {
		cleanup_buf struct buf sql = { 0 };

		buf_printf(&sql, "CREATE DATABASE IF NOT EXISTS `%s`", url->database);
		add_on_cluster(&sql, url);
		rc = run(http, &sql, true, ret_code, err);
	}
	for (size_t i = 0; rc == 0 && i < CLICKHOUSE_OBJECTS; i++) {
		cleanup_buf struct buf sql = { 0 };

		if (found & 1u << i)
			continue;
		clickhouse_schema_create(&sql, i, clickhouse_http_version(http), url);
		rc = run(http, &sql, false, ret_code, err);
	}
	return rc;
}

/* The rows that the views would have made of what was stored before there were views. */
static int fill_derived(struct clickhouse_http *http, int *ret_code, struct err *err)
{
	static const char *const columns[] = {
		"record_sizes (host, kind, tenant, id, op, gone, size)",
		"chunk_sizes (host, id, op, first, what, bytes)",
		"days (day, retention, host, dropped, last)",
		"days (day, retention, host, dropped, last)",
	};
	const struct clickhouse_url *url = clickhouse_http_url(http);
	size_t view = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < CLICKHOUSE_OBJECTS; i++) {
		cleanup_buf struct buf sql = { 0 };

		if (!objects[i].view)
			continue;
		buf_printf(&sql, "INSERT INTO %s ", columns[view++]);
		buf_printf(&sql, strstr(objects[i].view, "SELECT"), url->database);
		rc = run(http, &sql, false, ret_code, err);
	}
	return rc;
}

static int settle_format(struct clickhouse_http *http, int *ret_code, struct err *err)
{
	static const struct clickhouse_request request = {
		.sql = "SELECT " ROW_MARK
		       ", toUInt64(max(version)) FROM profd_format FORMAT RowBinary",
		.whatever = true
	};
	cleanup_buf struct buf answer = { 0 }, sql = { 0 };
	uint64_t version = 0;
	int rc = clickhouse_http_do(http, &request, &answer, ret_code, err);
	struct bytes in;

	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	if (row_read_numbers(&in, &version, 1) != 1)
		return no_clickhouse(http, ret_code, err);
	if (version > CLICKHOUSE_FORMAT)
		return err_set(err, EPROTO, "StoreUnavailable", NULL,
			       "%s was written by a newer profd (format %llu, this one knows %d): "
			       "install that version or use another database",
			       clickhouse_http_name(http), (unsigned long long)version,
			       CLICKHOUSE_FORMAT);
	if (version == CLICKHOUSE_FORMAT)
		return 0;
	if (version) {
		log_info("%s is of format %llu: its sizes and days are counted once",
			 clickhouse_http_name(http), (unsigned long long)version);
		rc = fill_derived(http, ret_code, err);
	}
	buf_printf(&sql, "INSERT INTO profd_format SELECT toUInt32(%d)", CLICKHOUSE_FORMAT);
	return rc < 0 ? rc : run(http, &sql, false, ret_code, err);
}

int clickhouse_schema_make(struct clickhouse_http *http, int *ret_code, struct err *err)
{
	unsigned found = 0;
	int rc = find_objects(http, &found, ret_code, err);

	if (rc == 0 && found != (1u << CLICKHOUSE_OBJECTS) - 1)
		rc = make_missing(http, found, ret_code, err);
	return rc < 0 ? rc : settle_format(http, ret_code, err);
}
