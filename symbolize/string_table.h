/* SPDX-License-Identifier: Apache-2.0 */
/* Interned strings in one block, known by their offset; offset 0 is "". What comes in was written
 * by others: it is cut at STRING_TABLE_TEXT_MAX, and every byte that is not printable UTF-8 becomes
 * '?'. Not thread-safe. */
#ifndef PROFD_SYMBOLIZE_STRING_TABLE_H
#define PROFD_SYMBOLIZE_STRING_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define STRING_TABLE_TEXT_MAX  32768u	  /* bytes of one string */
#define STRING_TABLE_BYTES_MAX (1u << 30) /* bytes of all */

struct string_table {
	char *data; /* owned; NUL after every string */
	size_t len;
	size_t capacity;
	uint32_t *slots; /* owned open-addressing hash of offsets, 0 = empty */
	size_t slot_count;
	size_t string_count;
};

/* A zero-initialized table is valid and empty; its data appears with the first add. */
void string_table_deinit(struct string_table *table);
/* Offset of @text (@len bytes, need not be terminated; cut at its first NUL).
 * -ENOMEM, -E2BIG above the bound. */
int string_table_add(struct string_table *table, const char *text, size_t len,
		     uint32_t *ret) must_use;
/* Replaces, in place, what is not printable UTF-8 by '?'. Pure. */
void string_sanitize(char *text, size_t len);

#endif
