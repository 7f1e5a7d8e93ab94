/* SPDX-License-Identifier: Apache-2.0 */
/* Makes JSON short enough for an assistant. Pure. */
#ifndef PROFD_API_MCP_COMPACT_H
#define PROFD_API_MCP_COMPACT_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"

/* Appends @json as text of at most about @max bytes: without nulls and empty members, with four
 * digits of fractions; lists and texts are cut until it fits, and a cut list says how much is
 * missing. Changes @json. */
void compact_write(cJSON *json, size_t max, struct buf *out);

#endif
