/* SPDX-License-Identifier: Apache-2.0 */
/* Output of profctl: tables aligned by column, values in human units, a progress line that
 * vanishes. */
#ifndef PROFCTL_OUTPUT_H
#define PROFCTL_OUTPUT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define TABLE_COLUMNS_MAX 11

/* Rows are collected, then printed with each column as wide as its widest cell. */
struct table {
	const char *headings[TABLE_COLUMNS_MAX];
	bool right[TABLE_COLUMNS_MAX]; /* aligned right */
	unsigned columns;
	const char *empty; /* said in place of a table without rows; NULL = its headings alone */
	char **cells; /* owned; rows * columns */
	size_t count, capacity;
	bool failed; /* out of memory: said once by table_print() */
};

void table_add(struct table *table, const char *cell);
void table_addf(struct table *table, const char *fmt, ...) printf_like(2, 3);
/* Prints and releases. The last column is cut at the width of a terminal. 0, or -1 without memory.
 */
int table_print(struct table *table);

/* Escape sequences on a terminal; "" elsewhere, with NO_COLOR set (no-color.org) or on a dumb
 * terminal. */
enum paint { PAINT_NONE, PAINT_BOLD, PAINT_GOOD, PAINT_WARNING, PAINT_BAD };
const char *output_paint(enum paint paint);
/* "1.23 s", "45.6 MiB", "1234" by unit (nanoseconds, bytes, count). */
void output_value(double value, const char *unit, char *out, size_t size);
/* The same in the unit that fits @largest, for columns that are read down. */
void output_value_as(double value, double largest, const char *unit, char *out, size_t size);
void output_json(const cJSON *json);
/* Prints the API's answer to a DELETE; an empty answer (204) becomes {"@member": "@id", "deleted":
 * true}. */
void output_deleted(const cJSON *answer, const char *member, const char *id);
/* The warnings of @answer, if there are any, to standard error. */
void output_warnings(const cJSON *answer);
/* Says on standard error that a list has more than the answer holds. */
void output_more(const cJSON *answer);
/* Text of a member, "" if absent; number of a member, 0 if absent. */
const char *output_text(const cJSON *object, const char *name);
double output_number(const cJSON *object, const char *name);

/* On a terminal: "label [#####     ] 12 s of 30 s" on standard error, rewritten in place. Elsewhere
 * nothing. progress_clear() removes it. */
void progress_show(const char *label, double done, double total);
void progress_bytes(const char *label, double done, double total);
void progress_clear(void);

#endif
