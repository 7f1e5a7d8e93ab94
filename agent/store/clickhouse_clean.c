// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse.h"

void clickhouse_clean(void *ctx)
{
	(void)ctx;
}
