// SPDX-License-Identifier: Apache-2.0
/* format=lines: where inside functions the value was, a row per source line, topFunctions' members
 * in JSON. A line of a frame with callees is where it calls them; of an inlined function, its own.
 */
#include <errno.h>

#include "api/http/json_out.h"
#include "api/render/quality_json.h"
#include "api/render/render.h"

static void row_json(struct json_out *json, const struct profile *p,
		     const struct profile_function_row *row, double percent)
{
	const struct profile_function *function = &p->functions[row->function];

	json_out_open(json, NULL, '{');
	json_out_text(json, "funcName", profile_string(p, function->name));
	json_out_text(json, "package", profile_string(p, function->package));
	json_out_text(json, "file", profile_string(p, function->file));
	json_out_uint(json, "line", row->line);
	json_out_real(json, "selfPct", (double)row->self * percent, 4);
	json_out_real(json, "cumulativePct", (double)row->cumulative * percent, 4);
	json_out_int(json, "selfValue", row->self);
	json_out_int(json, "cumulativeValue", row->cumulative);
	json_out_uint(json, "sampleCount", row->count);
	json_out_close(json, '}');
}

int render_lines(const struct profile *p, const struct render_options *options, struct buf *out,
		 struct err *err)
{
	const struct profile_type_info *info = profile_type_info(p->meta.type);
	cleanup_free struct profile_function_row *rows = NULL;
	int64_t total = p->totals[options->value_index];
	struct json_out json = json_out_to(out);
	size_t count = 0;
	int rc = profile_top_lines(p, options->value_index, options->function, &rows, &count);

	(void)err;
	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "profileType", info->word);
	json_out_text(&json, "unit", info->values[options->value_index].unit);
	json_out_int(&json, "totalValue", total);
	json_out_open(&json, "lines", '[');
	for (size_t i = 0; i < count && !out->error; i++)
		row_json(&json, p, &rows[i], total ? 100.0 / (double)total : 0);
	json_out_close(&json, ']');
	quality_json(&json, "quality", &p->quality);
	json_out_close(&json, '}');
	buf_add_char(out, '\n');
	return out->error;
}
