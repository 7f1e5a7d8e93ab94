// SPDX-License-Identifier: Apache-2.0
#include "tools/profctl/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/base/vec.h"

#define PROGRESS_WIDTH 30

void table_add(struct table *table, const char *cell)
{
	void *cells = table->cells;
	char *copy = strdup(cell);

	if (!copy || vec_grow(&cells, &table->capacity, table->count + 1, sizeof(char *), 0) < 0) {
		free(copy);
		table->failed = true;
		return;
	}
	table->cells = cells;
	table->cells[table->count++] = copy;
}

void table_addf(struct table *table, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	table_add(table, text);
}

/* Columns a terminal shows for UTF-8 text: code points; wide characters are rare in symbol names.
 */
static int text_width(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

/* Bytes of the first @columns of them. */
static int text_bytes(const char *text, int columns)
{
	int at = 0;

	while (text[at] && (((unsigned char)text[at] & 0xc0) == 0x80 || columns-- > 0))
		at++;
	return at;
}

static int terminal_width(void)
{
	struct winsize size;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
		return size.ws_col;
	return 0;
}

static void print_cell(const char *text, int width, bool right, bool last, int room)
{
	int pad = width - text_width(text);

	if (last && !right) {
		if (room > 8 && text_width(text) > room)
			(void)printf("%.*s…\n", text_bytes(text, room - 1), text);
		else
			(void)printf("%s\n", text);
		return;
	}
	if (right)
		(void)printf("%*s%s", pad > 0 ? pad : 0, "", text);
	else
		(void)printf("%s%*s", text, pad > 0 ? pad : 0, "");
	(void)printf(last ? "\n" : "  ");
}

static void print_row(const struct table *t, const char *const *cells, const int *widths,
		      int terminal)
{
	int used = 0;

	for (unsigned c = 0; c < t->columns; c++) {
		print_cell(cells[c], widths[c], t->right[c], c + 1 == t->columns,
			   terminal ? terminal - used : 0);
		used += widths[c] + 2;
	}
}

int table_print(struct table *table)
{
	int widths[TABLE_COLUMNS_MAX] = { 0 }, terminal = terminal_width();

	if (table->empty && !table->count && !table->failed) {
		(void)printf("%s\n", table->empty);
		return 0;
	}
	for (unsigned c = 0; c < table->columns; c++)
		widths[c] = text_width(table->headings[c]);
	for (size_t i = 0; i < table->count; i++)
		if (text_width(table->cells[i]) > widths[i % table->columns])
			widths[i % table->columns] = text_width(table->cells[i]);
	(void)fputs(output_paint(PAINT_BOLD), stdout);
	print_row(table, table->headings, widths, terminal);
	(void)fputs(output_paint(PAINT_NONE), stdout);
	for (size_t i = 0; i + table->columns <= table->count; i += table->columns)
		print_row(table, (const char *const *)(table->cells + i), widths, terminal);
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	table->cells = NULL;
	if (table->failed)
		(void)fprintf(stderr, "profctl: out of memory, the table is incomplete\n");
	return table->failed ? -1 : 0;
}

const char *output_paint(enum paint paint)
{
	static const char *const codes[] = { "\033[0m", "\033[1m", "\033[32m", "\033[33m", "\033[31m" };
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	if (!isatty(STDOUT_FILENO) || (no_color && *no_color) || !term || !strcmp(term, "dumb"))
		return "";
	return codes[paint];
}

void output_value_as(double value, double largest, const char *unit, char *out, size_t size)
{
	static const struct {
		const char *unit;
		double scale;
		const char *suffix;
	} steps[] = {
		{ "nanoseconds", 60e9, "min" },	  { "nanoseconds", 1e9, "s" },
		{ "nanoseconds", 1e6, "ms" },	  { "nanoseconds", 1e3, "us" },
		{ "bytes", 1073741824.0, "GiB" }, { "bytes", 1048576.0, "MiB" },
		{ "bytes", 1024.0, "KiB" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (!strcmp(steps[i].unit, unit) &&
		    (largest >= steps[i].scale || largest <= -steps[i].scale)) {
			(void)snprintf(out, size, "%.2f %s", value / steps[i].scale,
				       steps[i].suffix);
			return;
		}
	(void)snprintf(out, size, "%.0f%s", value,
		       !strcmp(unit, "nanoseconds") ? " ns"
		       : !strcmp(unit, "bytes")	    ? " B"
						    : "");
}

void output_value(double value, const char *unit, char *out, size_t size)
{
	output_value_as(value, value, unit, out, size);
}

void output_warnings(const cJSON *answer)
{
	const cJSON *warning;

	cJSON_ArrayForEach(warning, cJSON_GetObjectItem(answer, "warnings"))
		(void)fprintf(stderr, "profctl: warning: %s\n", cJSON_GetStringValue(warning));
}

void output_more(const cJSON *answer)
{
	int shown = cJSON_GetArraySize(cJSON_GetObjectItem(answer, "items"));
	double total = output_number(answer, "total");

	if (total > shown)
		(void)fprintf(
			stderr,
			"profctl: the newest %d of %.0f; --limit N shows up to 100, the other options choose\n",
			shown, total);
}

void output_json(const cJSON *json)
{
	cleanup_free char *text = cJSON_Print(json);

	(void)printf("%s\n", text ? text : "null");
}

void output_deleted(const cJSON *answer, const char *member, const char *id)
{
	cJSON *made = answer ? NULL : cJSON_CreateObject();

	(void)cJSON_AddStringToObject(made, member, id);
	(void)cJSON_AddBoolToObject(made, "deleted", true);
	output_json(answer ? answer : made);
	cJSON_Delete(made);
}

const char *output_text(const cJSON *object, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

	return text ? text : "";
}

double output_number(const cJSON *object, const char *name)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

	return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* @so_far and @in_all as text; @share beyond [0, 1] is cut, < 0 = no bar. */
static void show(const char *label, double share, const char *so_far, const char *in_all)
{
	char bar[PROGRESS_WIDTH + 1];

	if (!isatty(STDERR_FILENO))
		return;
	share = share > 1 ? 1 : share;
	memset(bar, ' ', PROGRESS_WIDTH);
	memset(bar, '#', share > 0 ? (size_t)(share * PROGRESS_WIDTH) : 0);
	bar[PROGRESS_WIDTH] = '\0';
	if (share >= 0)
		(void)fprintf(stderr, "\r\033[K%s [%s] %s of %s", label, bar, so_far, in_all);
	else
		(void)fprintf(stderr, "\r\033[K%s %s", label, so_far);
	(void)fflush(stderr);
}

void progress_show(const char *label, double done, double total)
{
	char so_far[32], in_all[32];

	(void)snprintf(so_far, sizeof(so_far), "%.0f s", done);
	(void)snprintf(in_all, sizeof(in_all), "%.0f s", total);
	show(label, total > 0 ? done / total : -1, so_far, in_all);
}

void progress_bytes(const char *label, double done, double total)
{
	char so_far[32], in_all[32];

	output_value(done, "bytes", so_far, sizeof(so_far));
	output_value(total, "bytes", in_all, sizeof(in_all));
	show(label, total > 0 ? done / total : -1, so_far, in_all);
}

void progress_clear(void)
{
	if (isatty(STDERR_FILENO))
		(void)fprintf(stderr, "\r\033[K");
}
