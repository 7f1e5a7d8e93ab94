/* SPDX-License-Identifier: Apache-2.0 */
/* checksum(a, b, …): CRC-32C over the texts and numbers of its arguments, as a function for
 * statements. */
#ifndef PROFD_STORE_SQLITE_CHECKSUM_H
#define PROFD_STORE_SQLITE_CHECKSUM_H

#include <sqlite3.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

/* Makes it known to @db. */
int sqlite_checksum_add(sqlite3 *db, struct err *err) must_use;

#endif
