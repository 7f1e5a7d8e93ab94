/* SPDX-License-Identifier: Apache-2.0 */
/* What writing and reading the history share. */
#ifndef PROFD_STORE_CLICKHOUSE_HISTORY_H
#define PROFD_STORE_CLICKHOUSE_HISTORY_H

#include <errno.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/store/store.h"

#define HISTORY_ROW_EXTRA 64u /* bytes of a row beside its blobs, as counted */

/* Its -ENOENT. */
static inline int clickhouse_no_day(struct err *err)
{
	return err_set(err, ENOENT, NULL, NULL, "nothing is stored for that day");
}

/* All of the day without data; what is rolled up comes hour by hour, with its minutes. */
int clickhouse_history_hours(void *ctx, const struct store_day *day, store_window_fn *visit, void *visit_ctx, unsigned *ret_damaged,
			     struct err *err) must_use;

#endif
