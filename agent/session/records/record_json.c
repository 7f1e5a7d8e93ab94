// SPDX-License-Identifier: Apache-2.0
#include "agent/session/records/record_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void record_add_u64(cJSON *to, const char *name, uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	(void)cJSON_AddStringToObject(to, name, text);
}

const char *record_text(const cJSON *from, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(from, name));

	return text ? text : "";
}

void record_copy_text(const cJSON *from, const char *name, char *out, size_t size)
{
	(void)snprintf(out, size, "%s", record_text(from, name));
}

uint64_t record_integer(const cJSON *item)
{
	if (cJSON_IsString(item))
		return strtoull(item->valuestring, NULL, 10);
	if (!cJSON_IsNumber(item) || item->valuedouble <= 0)
		return 0;
	return item->valuedouble < 0x1p64 ? (uint64_t)item->valuedouble : UINT64_MAX;
}

uint64_t record_u64(const cJSON *from, const char *name)
{
	return record_integer(cJSON_GetObjectItemCaseSensitive(from, name));
}

uint32_t record_u32(const cJSON *from, const char *name)
{
	uint64_t value = record_u64(from, name);

	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}
