// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_sql.h"

#include <errno.h>
#include <string.h>

#include "agent/store/clickhouse_rows.h"

#define FORMAT_VERSION 1

/* Plain enough for the server of Debian 12 (18.16, of 2018) and for those of today. Rows that were sent twice have one key, of which
 * @op, the number of the operation, is a part; those with @turn 0 replace one another. Blobs are compressed already: few rows to a
 * granule, so that a small answer does not read much. */
#define HISTORY_TABLE                                                                                                                \
	"(host String, day UInt32, retention UInt32, row UInt8, ts UInt32, service String, type String, owners String, op UInt64, "    \
	"seq UInt32, turn UInt64, kept UInt32, samples UInt64, lost UInt64, value Int64, profiled UInt32, identity UInt64, "           \
	"position UInt64, size UInt32, minutes String, z String) ENGINE = ReplacingMergeTree(op) "

static const char *const tables[] = {
	"CREATE TABLE IF NOT EXISTS profd_format (version UInt32) ENGINE = ReplacingMergeTree ORDER BY version",
	"CREATE TABLE IF NOT EXISTS records (host String, kind String, tenant String, id String, service String, type String, "
	"status String, created UInt64, op UInt64, gone UInt8, size UInt32, body String) ENGINE = ReplacingMergeTree(op) "
	"ORDER BY (kind, tenant, id, host) SETTINGS index_granularity = 256",
	/* By the day of the operation: what deleting rewrites is small. */
	"CREATE TABLE IF NOT EXISTS chunks (host String, id String, op UInt64, seq UInt32, kind UInt32, identity UInt64, "
	"position UInt64, size UInt32, z String) ENGINE = ReplacingMergeTree PARTITION BY intDiv(op, 86400000000000) "
	"ORDER BY (id, host, op, seq) SETTINGS index_granularity = 64",
	"CREATE TABLE IF NOT EXISTS minutes " HISTORY_TABLE "PARTITION BY day "
	"ORDER BY (host, retention, row, ts, service, type, owners, turn, seq) SETTINGS index_granularity = 128",
	"CREATE TABLE IF NOT EXISTS hours " HISTORY_TABLE "PARTITION BY (day, retention) "
	"ORDER BY (host, row, ts, service, type, owners, turn, seq) SETTINGS index_granularity = 64",
};

void sql_bytes(struct buf *out, const char *text, size_t len)
{
	buf_add_char(out, '\'');
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\0') {
			buf_add_str(out, "\\0");
			continue;
		}
		if (text[i] == '\'' || text[i] == '\\')
			buf_add_char(out, '\\');
		buf_add_char(out, text[i]);
	}
	buf_add_char(out, '\'');
}

void sql_text(struct buf *out, const char *text)
{
	sql_bytes(out, text ? text : "", text ? strlen(text) : 0);
}

const char *clickhouse_insert(uint32_t table)
{
#define HISTORY_INSERT                                                                                                               \
	" (host, day, retention, row, ts, service, type, owners, op, seq, turn, kept, samples, lost, value, profiled, identity, "      \
	"position, size, minutes, z) FORMAT RowBinary"
	static const char *const inserts[CLICKHOUSE_TABLES_END] = {
		[CLICKHOUSE_RECORDS] = "INSERT INTO records (host, kind, tenant, id, service, type, status, created, op, gone, size, body) "
				       "FORMAT RowBinary",
		[CLICKHOUSE_CHUNKS] = "INSERT INTO chunks (host, id, op, seq, kind, identity, position, size, z) FORMAT RowBinary",
		[CLICKHOUSE_MINUTES] = "INSERT INTO minutes" HISTORY_INSERT,
		[CLICKHOUSE_HOURS] = "INSERT INTO hours" HISTORY_INSERT,
	};

	return table < CLICKHOUSE_TABLES_END ? inserts[table] : NULL;
}

static int run(struct clickhouse_http *http, const char *sql, bool outside, int *ret_code, struct err *err)
{
	const struct clickhouse_request request = { .sql = sql, .outside = outside, .whatever = true };

	return clickhouse_http_do(http, &request, NULL, ret_code, err);
}

static int check_version(struct clickhouse_http *http, int *ret_code, struct err *err)
{
	static const struct clickhouse_request request = { .sql = "SELECT " ROW_MARK ", toUInt64(max(version)) FROM profd_format FORMAT RowBinary",
							   .whatever = true };
	static const char insert[] = "INSERT INTO profd_format SELECT toUInt32(1)";
	cleanup_buf struct buf answer = { 0 };
	struct bytes in;
	uint64_t version = 0;
	int rc = clickhouse_http_do(http, &request, &answer, ret_code, err);

	_Static_assert(FORMAT_VERSION == 1, "as the INSERT says");
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	if (row_read_numbers(&in, &version, 1) != 1) {
		*ret_code = -1;
		return err_set(err, EIO, "StoreUnavailable", NULL, "%s is no ClickHouse: it answers something else",
			       clickhouse_http_name(http));
	}
	if (version > FORMAT_VERSION)
		return err_set(err, EPROTO, "StoreUnavailable", NULL,
			       "%s was written by a newer profd (format %llu, this one knows %d): install that version or use another database",
			       clickhouse_http_name(http), (unsigned long long)version, FORMAT_VERSION);
	return version ? 0 : run(http, insert, false, ret_code, err);
}

int clickhouse_make_tables(struct clickhouse_http *http, const char *database, int *ret_code, struct err *err)
{
	char create[128];
	int rc;

	(void)snprintf(create, sizeof(create), "CREATE DATABASE IF NOT EXISTS `%s`", database);
	rc = run(http, create, true, ret_code, err);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(tables); i++)
		rc = run(http, tables[i], false, ret_code, err);
	return rc < 0 ? rc : check_version(http, ret_code, err);
}
