// SPDX-License-Identifier: Apache-2.0
/* The table of all functions (RFC 4180): topFunctions' members as columns. A cell that a spreadsheet would take
 * for a formula is prefixed by an apostrophe. */
#include <inttypes.h>
#include <string.h>

#include "api/render/render.h"

static void cell(struct buf *out, const char *text)
{
	buf_add_char(out, '"');
	if (*text && strchr("=+-@\t\r", *text))
		buf_add_char(out, '\'');
	for (; *text; text++) {
		if (*text == '"')
			buf_add_char(out, '"');
		buf_add_char(out, *text);
	}
	buf_add_char(out, '"');
}

int render_csv(const struct profile *p, const struct render_options *options, struct buf *out,
	       struct err *err)
{
	cleanup_free struct profile_function_row *rows = NULL;
	int64_t total = p->totals[profile_value_index(p)];
	double percent = total ? 100.0 / (double)total : 0;
	size_t count = 0;
	int rc = profile_top_functions(p, &rows, &count);

	(void)options;
	(void)err;
	if (rc < 0)
		return rc;
	buf_add_str(out, "funcName,package,file,line,selfPct,cumulativePct,selfValue,"
			 "cumulativeValue,sampleCount\r\n");
	for (size_t i = 0; i < count && !out->error; i++) {
		const struct profile_function *function = &p->functions[rows[i].function];

		cell(out, profile_string(p, function->name));
		buf_add_char(out, ',');
		cell(out, profile_string(p, function->package));
		buf_add_char(out, ',');
		cell(out, profile_string(p, function->file));
		buf_printf(out, ",%" PRIu32 ",%.4f,%.4f,%" PRId64 ",%" PRId64 ",%" PRIu64 "\r\n",
			   function->line, (double)rows[i].self * percent,
			   (double)rows[i].cumulative * percent, rows[i].self, rows[i].cumulative,
			   rows[i].count);
	}
	return out->error;
}
