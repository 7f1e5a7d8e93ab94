/* SPDX-License-Identifier: Apache-2.0 */
/* What writing and reading the history share. */
#ifndef PROFD_STORE_CLICKHOUSE_HISTORY_H
#define PROFD_STORE_CLICKHOUSE_HISTORY_H

#define HISTORY_ROW_EXTRA 64u /* bytes of a row beside its blobs, as counted */

#endif
