/* SPDX-License-Identifier: Apache-2.0 */
/* How this folder's records of the store are written: JSON, integers as decimal text, because those
 * beyond 2^53 would lose digits as JSON numbers. Without memory a member is left out. */
#ifndef PROFD_SESSION_RECORD_JSON_H
#define PROFD_SESSION_RECORD_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

static inline void record_json_delete(cJSON *json)
{
	cJSON_Delete(json);
}
/* cleanup(json) cJSON *json: deleted at the end of the block. */
CLEANUP_DEFINE(json, cJSON *, record_json_delete);

void record_add_u64(cJSON *to, const char *name, uint64_t value);
/* Text of a member, borrowed from @from; "" when it is absent or no text. */
const char *record_text(const cJSON *from, const char *name);
/* The same into @out, cut to @size bytes with its NUL. */
void record_copy_text(const cJSON *from, const char *name, char *out, size_t size);
/* Integer of an item, text or a number; 0 when it is absent (NULL), neither or negative, the
 * largest when it is beyond. */
uint64_t record_integer(const cJSON *item);
/* The same of a member. */
uint64_t record_u64(const cJSON *from, const char *name);
uint32_t record_u32(const cJSON *from, const char *name);

#endif
