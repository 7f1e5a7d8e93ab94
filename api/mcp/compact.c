// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/compact.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_FIRST 100
#define ITEMS_LEAST 3
#define TEXT_FIRST  400
#define TEXT_LEAST  60

static bool is_empty(const cJSON *json)
{
	return cJSON_IsNull(json) ||
	       ((cJSON_IsArray(json) || cJSON_IsObject(json)) && !json->child);
}

static void round_number(cJSON *json)
{
	char text[40];

	if (floor(json->valuedouble) == json->valuedouble)
		return;
	(void)snprintf(text, sizeof(text), "%.4g", json->valuedouble);
	cJSON_SetNumberValue(json, strtod(text, NULL));
}

/* Cuts a text at the begin of a character. */
static void cut_text(cJSON *json, size_t most)
{
	size_t len = strlen(json->valuestring);

	if (len <= most)
		return;
	while (most && ((unsigned char)json->valuestring[most] & 0xc0) == 0x80)
		most--;
	json->valuestring[most] = '\0';
}

static void cut_list(cJSON *json, int most)
{
	int count = cJSON_GetArraySize(json);
	char text[48];

	if (count <= most + 1)
		return;
	for (int i = count - 1; i >= most; i--)
		cJSON_DeleteItemFromArray(json, i);
	(void)snprintf(text, sizeof(text), "%d more", count - most);
	(void)cJSON_AddItemToArray(json, cJSON_CreateString(text));
}

/* The depth is that of the API's documents. */
static void shape(cJSON *json, int most, size_t text_most)
{
	if (cJSON_IsNumber(json))
		round_number(json);
	if (cJSON_IsString(json))
		cut_text(json, text_most);
	if (cJSON_IsArray(json))
		cut_list(json, most);
	for (cJSON *child = json->child, *next; child; child = next) {
		next = child->next;
		shape(child, most, text_most);
		if (is_empty(child) && !cJSON_IsArray(json))
			cJSON_Delete(cJSON_DetachItemViaPointer(json, child));
	}
}

void compact_write(cJSON *json, size_t max, struct buf *out)
{
	int most = ITEMS_FIRST;
	size_t text_most = TEXT_FIRST;
	char *text = NULL;

	for (;;) {
		shape(json, most, text_most);
		free(text);
		text = cJSON_PrintUnformatted(json);
		if (!text || strlen(text) <= max ||
		    (most <= ITEMS_LEAST && text_most <= TEXT_LEAST))
			break;
		most = most / 2 > ITEMS_LEAST ? most / 2 : ITEMS_LEAST;
		text_most = text_most / 2 > TEXT_LEAST ? text_most / 2 : TEXT_LEAST;
	}
	if (text)
		buf_add_str(out, text);
	else
		out->error = -ENOMEM;
	free(text);
}
