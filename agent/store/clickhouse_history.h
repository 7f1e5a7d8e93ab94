/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by writing and reading the history. */
#ifndef PROFD_STORE_CLICKHOUSE_HISTORY_H
#define PROFD_STORE_CLICKHOUSE_HISTORY_H

#include <errno.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/store/store.h"

#define HISTORY_ROW_EXTRA 64u /* bytes of a row beside its blobs, as counted */

/* SELECT of every day that was ever written and is not cleaned away: @l is the number of its newest
 * row, @g of the newest marker that drops it. @where: " " or " WHERE ... ". */
#define CLICKHOUSE_NEWEST(where)                                                                   \
	"SELECT host, day, retention, max(if(dropped = 0, m, toUInt64(0))) AS l, "                 \
	"max(if(dropped = 1, m, toUInt64(0))) AS g FROM (SELECT host, day, retention, dropped, "   \
	"maxMerge(last) AS m FROM days" where                                                      \
	"GROUP BY host, day, retention, dropped) GROUP BY host, day, retention"

/* Its -ENOENT. */
static inline int clickhouse_no_day(struct err *err)
{
	return err_set(err, ENOENT, NULL, NULL, "nothing is stored for that day");
}

/* All of the day without data; what is rolled up comes hour by hour, with its minutes. */
int clickhouse_history_hours(void *ctx, const struct store_day *day, store_window_fn *visit,
			     void *visit_ctx, unsigned *ret_damaged, struct err *err) must_use;
/* Totals of the day of all hosts from day->host to @last_host (NULL = of every host) in the order
 * of their names, one after the other; window->host says whose. What is rolled up comes hour by
 * hour, with those of its minutes that @query asks for; other minutes come one by one. What cannot
 * be read is left out and counted in *ret_damaged (may be NULL). -EIO with reason and remedy,
 * -ENOMEM, or what the visitor returns. Asks the server: may block for its limit of time. */
int clickhouse_history_totals(struct clickhouse *ch, const struct store_day *day,
			      const char *last_host, const struct store_window_query *query,
			      store_window_fn *visit, void *ctx, unsigned *ret_damaged,
			      struct err *err) must_use;
/* Appends to @sql that rows are of the service, type and tenant of @query. */
void clickhouse_history_add_series(struct buf *sql, const struct store_window_query *query);

#endif
