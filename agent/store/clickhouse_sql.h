/* SPDX-License-Identifier: Apache-2.0 */
/* SQL for ClickHouse: texts that cannot end early, and the INSERT of each table. Pure. */
#ifndef PROFD_STORE_CLICKHOUSE_SQL_H
#define PROFD_STORE_CLICKHOUSE_SQL_H

#include "agent/base/buf.h"

/* Appends @text as a literal in quotes. All texts that come from outside go through here; any
 * bytes. */
void sql_text(struct buf *out, const char *text);
void sql_bytes(struct buf *out, const char *text, size_t len);

/* Tables that operations go to, by the numbers that the journal keeps. */
enum clickhouse_table {
	CLICKHOUSE_RECORDS = 1,
	CLICKHOUSE_CHUNKS,
	CLICKHOUSE_MINUTES,
	CLICKHOUSE_HOURS,
	CLICKHOUSE_TABLES_END
};
/* The INSERT whose rows are in the body. NULL: no such table. */
const char *clickhouse_insert(uint32_t table);

#endif
