// SPDX-License-Identifier: Apache-2.0
/* The table of all functions (RFC 4180): topFunctions' members as columns. A cell that a
 * spreadsheet would take for a formula is prefixed by an apostrophe. */
#include <errno.h>
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

static void details(const struct profile *p, const struct profile_frame *frame, struct buf *out)
{
	const struct profile_mapping *mapping = &p->mappings[frame->mapping];
	char build_id[RENDER_BUILD_ID_SIZE];

	buf_add_char(out, ',');
	cell(out, profile_string(p, mapping->path));
	buf_printf(out, ",%s,%s", render_build_id(mapping, build_id), render_kind_word(frame->kind));
}

int render_csv(const struct profile *p, const struct render_options *options, struct buf *out,
	       struct err *err)
{
	cleanup_free struct profile_function_row *rows = NULL;
	cleanup_free uint32_t *frames = options->details ? profile_function_frames(p) : NULL;
	int64_t total = p->totals[options->value_index];
	double percent = total ? 100.0 / (double)total : 0;
	size_t count = 0;
	int rc = profile_top_functions(p, options->value_index, &rows, &count);

	(void)err;
	if (rc < 0)
		return rc;
	if (options->details && !frames)
		return -ENOMEM;
	buf_add_str(out, "funcName,package,file,line,selfPct,cumulativePct,selfValue,"
			 "cumulativeValue,sampleCount");
	buf_add_str(out, frames ? ",module,buildId,kind\r\n" : "\r\n");
	for (size_t i = 0; i < count && !out->error; i++) {
		const struct profile_function *function = &p->functions[rows[i].function];

		cell(out, profile_string(p, function->name));
		buf_add_char(out, ',');
		cell(out, profile_string(p, function->package));
		buf_add_char(out, ',');
		cell(out, profile_string(p, function->file));
		buf_printf(out, ",%" PRIu32 ",%.4f,%.4f,%" PRId64 ",%" PRId64 ",%" PRIu64,
			   function->line, (double)rows[i].self * percent,
			   (double)rows[i].cumulative * percent, rows[i].self, rows[i].cumulative,
			   rows[i].count);
		if (frames)
			details(p, &p->frames[frames[rows[i].function]], out);
		buf_add_str(out, "\r\n");
	}
	return out->error;
}
