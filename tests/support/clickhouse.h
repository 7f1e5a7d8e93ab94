/* SPDX-License-Identifier: Apache-2.0 */
/* A real ClickHouse of one test process: in a temporary folder, on free ports, killed with the
 * process. No server of the host is touched. Failures of these functions fail the test. The working
 * directory is the tree's. */
#ifndef TESTS_SUPPORT_CLICKHOUSE_H
#define TESTS_SUPPORT_CLICKHOUSE_H

#include "agent/base/buf.h"

enum clickhouse_engine {
	CLICKHOUSE_DEBIANS, /* clickhouse-server 18.16 */
	CLICKHOUSE_CURRENT, /* chdb-core behind clickhouse_current.py */
};
/* Ends the server and removes its data. The next start is of @engine, with an empty profile. */
void clickhouse_use(enum clickhouse_engine engine);
/* Kills the server. From the next start on its users have these settings, as XML elements. */
void clickhouse_set_profile(const char *settings);

/* Starts it if it does not run; it ends with the process. */
void clickhouse_start(void);
/* SIGKILL; what it had stays for the next start. */
void clickhouse_kill(void);
/* SIGSTOP and SIGCONT: it is there and says nothing. */
void clickhouse_freeze(void);
void clickhouse_thaw(void);
unsigned clickhouse_port(void);
/* URL of a database that no other call of this process was given; valid until the next call. */
const char *clickhouse_fresh_url(void);
/* Sends a query. @ret becomes the answer, zero-terminated, without the last line feed. */
void clickhouse_query(const char *sql, struct buf *ret);
/* clickhouse_query() to any server of this host. */
void clickhouse_query_at(unsigned port, const char *sql, struct buf *ret);

#endif
