/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and views on the server: their statements for each version and for replicas, and who makes
 * them. Pure but for clickhouse_schema_make(). */
#ifndef PROFD_STORE_CLICKHOUSE_SCHEMA_H
#define PROFD_STORE_CLICKHOUSE_SCHEMA_H

#include "agent/base/buf.h"
#include "agent/store/clickhouse_http.h"
#include "agent/store/clickhouse_url.h"

/* 1: records, chunks, minutes, hours. 2: the tables derived from them as well. */
#define CLICKHOUSE_FORMAT 2

#define CLICKHOUSE_OBJECTS 12 /* tables and views, in the order in which they are made */

/* Name of the object @i. */
const char *clickhouse_schema_name(size_t i);
/* Appends the statement that creates the object @i. @version as of clickhouse_http_version(). */
void clickhouse_schema_create(struct buf *sql, size_t i, unsigned version,
			      const struct clickhouse_url *url);

/* Makes the database and each table and view that is absent. Needs no right to create where all
 * exist. Brings a database of format 1 to format 2: fills the derived tables from what is stored.
 * May run on several hosts at once and again at any time: each step gives the same rows. Blocks for
 * the server. *ret_code as of clickhouse_http_do(); -1: no ClickHouse answers. -EIO with the
 * reason, -EPROTO: a newer profd made the database. */
int clickhouse_schema_make(struct clickhouse_http *http, int *ret_code, struct err *err) must_use;

#endif
