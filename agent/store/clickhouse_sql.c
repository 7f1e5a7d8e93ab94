// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_sql.h"

#include <string.h>

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
#define HISTORY_INSERT                                                                             \
	" (host, day, retention, row, ts, service, type, owners, op, seq, turn, kept, samples, "   \
	"lost, value, profiled, identity, "                                                        \
	"position, size, minutes, z) FORMAT RowBinary"
	static const char *const inserts[CLICKHOUSE_TABLES_END] = {
		[CLICKHOUSE_RECORDS] = "INSERT INTO records (host, kind, tenant, id, service, "
				       "type, status, created, op, gone, size, body) "
				       "FORMAT RowBinary",
		[CLICKHOUSE_CHUNKS] = "INSERT INTO chunks (host, id, op, seq, kind, identity, "
				      "position, size, z) FORMAT RowBinary",
		[CLICKHOUSE_MINUTES] = "INSERT INTO minutes" HISTORY_INSERT,
		[CLICKHOUSE_HOURS] = "INSERT INTO hours" HISTORY_INSERT,
	};

	return table < CLICKHOUSE_TABLES_END ? inserts[table] : NULL;
}
