/* SPDX-License-Identifier: Apache-2.0 */
/* A real ClickHouse server of one test process: in a temporary folder, on free ports, killed with the process. No server of the
 * host is touched. Failures of these functions fail the test. */
#ifndef TESTS_SUPPORT_CLICKHOUSE_H
#define TESTS_SUPPORT_CLICKHOUSE_H

#include "agent/base/buf.h"

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
/* What it answers, zero-terminated, without the last line feed. */
void clickhouse_query(const char *sql, struct buf *ret);

#endif
