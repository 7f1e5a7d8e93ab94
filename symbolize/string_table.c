// SPDX-License-Identifier: Apache-2.0
#include "symbolize/string_table.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/vec.h"

void string_table_deinit(struct string_table *table)
{
	free(table->data);
	free(table->slots);
	*table = (struct string_table){ 0 };
}

static bool is_plain(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
			return false;
	return true;
}

void string_sanitize(char *text, size_t len)
{
	size_t at = 0;

	if (is_plain(text, len))
		return;
	while (at < len) {
		unsigned char c = (unsigned char)text[at];
		size_t want = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

		if (want == 1 ? c >= 0x20 && c != 0x7f
			      : want <= len - at && parse_is_utf8(text + at, want)) {
			at += want;
			continue;
		}
		text[at++] = '?';
	}
}

static uint32_t *find_slot(const struct string_table *table, const char *text, size_t len,
			   uint64_t hash)
{
	size_t mask = table->slot_count - 1, at = hash & mask;

	for (; table->slots[at]; at = (at + 1) & mask) {
		const char *have = table->data + table->slots[at];

		/* Every string is followed by a NUL, so the comparison ends inside the data. */
		if (!strncmp(have, text, len) && !have[len])
			break;
	}
	return &table->slots[at];
}

static int grow_slots(struct string_table *table)
{
	size_t want = table->slot_count ? table->slot_count * 2 : 1024;
	struct string_table grown = *table;

	if (table->slot_count && table->string_count * 3 < table->slot_count * 2)
		return 0;
	grown.slots = calloc(want, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	grown.slot_count = want;
	for (size_t i = 0; i < table->slot_count; i++) {
		const char *text = table->data + table->slots[i];

		if (table->slots[i])
			*find_slot(&grown, text, strlen(text),
				   hash_bytes(text, strlen(text), 0)) = table->slots[i];
	}
	free(table->slots);
	*table = grown;
	return 0;
}

static int append(struct string_table *table, const char *text, size_t len)
{
	void *data = table->data;
	int rc = vec_grow(&data, &table->capacity, table->len + len + 1, 1, 0);

	table->data = data;
	if (rc < 0)
		return rc;
	memcpy(table->data + table->len, text, len);
	table->data[table->len + len] = '\0';
	table->len += len + 1;
	return 0;
}

int string_table_add(struct string_table *table, const char *text, size_t len, uint32_t *ret)
{
	cleanup_free char *clean = NULL;
	uint32_t *slot;
	int rc;

	if (!table->len) {
		rc = append(table, "", 0);
		if (rc < 0)
			return rc;
	}
	len = strnlen(text, len < STRING_TABLE_TEXT_MAX ? len : STRING_TABLE_TEXT_MAX);
	if (!len) {
		*ret = 0;
		return 0;
	}
	if (!is_plain(text, len)) {
		clean = strndup(text, len);
		if (!clean)
			return -ENOMEM;
		string_sanitize(clean, len);
		text = clean;
	}
	rc = grow_slots(table);
	if (rc < 0)
		return rc;
	slot = find_slot(table, text, len, hash_bytes(text, len, 0));
	if (*slot) {
		*ret = *slot;
		return 0;
	}
	if (table->len + len >= STRING_TABLE_BYTES_MAX)
		return -E2BIG;
	*slot = (uint32_t)table->len;
	rc = append(table, text, len);
	if (rc < 0) {
		*slot = 0;
		return rc;
	}
	table->string_count++;
	*ret = *slot;
	return 0;
}
