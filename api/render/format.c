// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "api/render/render.h"

const struct render_format render_formats[] = {
	{ "html", "text/html; charset=utf-8", "html", render_html, false, false },
	{ "svg", "image/svg+xml", "svg", render_svg, false, false },
	{ "json", "application/json", "json", render_json, false, false },
	{ "flame", "application/json", "flame.json", render_flame, false, false },
	{ "folded", "text/plain; charset=utf-8", "folded.txt", render_folded, false, false },
	{ "pprof", "application/octet-stream", "pb.gz", render_pprof, true, true },
	{ "speedscope", "application/json", "speedscope.json", render_speedscope, true, false },
	{ "csv", "text/csv; charset=utf-8", "csv", render_csv, true, false },
	{ 0 },
};

const struct render_format *render_format_find(const char *name)
{
	for (const struct render_format *f = render_formats; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}

void render_title(const struct profile *p, const struct render_options *options, char *out,
		  size_t size)
{
	if (options->title)
		(void)snprintf(out, size, "%s", options->title);
	else
		(void)snprintf(out, size, "%s %s",
			       p->meta.service[0] ? p->meta.service : "profile",
			       profile_type_info(p->meta.type)->word);
}
