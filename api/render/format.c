// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "agent/base/cleanup.h"
#include "api/render/render.h"

const struct render_format render_formats[] = {
	{ "html", "text/html; charset=utf-8", "html", render_html, false, false },
	{ "svg", "image/svg+xml", "svg", render_svg, false, false },
	{ "json", "application/json", "json", render_json, false, false },
	{ "flame", "application/json", "flame.json", render_flame, false, false },
	{ "folded", "text/plain; charset=utf-8", "folded.txt", render_folded, false, false },
	{ "pprof", "application/octet-stream", "pb.gz", render_pprof, true, true },
	{ "firefox", "application/json", "firefox.json", render_firefox, true, false },
	{ "speedscope", "application/json", "speedscope.json", render_speedscope, true, false },
	{ "otlp", "application/x-protobuf", "otlp.pb", render_otlp, true, false },
	{ "perfscript", "text/plain; charset=utf-8", "perf.txt", render_perfscript, true, false },
	{ "callgrind", "text/plain; charset=utf-8", "callgrind.out", render_callgrind, true, false },
	{ "autofdo", "text/plain; charset=utf-8", "afdo.txt", render_autofdo, true, false },
	{ "pgo", "application/octet-stream", "pgo", render_pgo, true, true },
	{ "csv", "text/csv; charset=utf-8", "csv", render_csv, true, false },
	{ "lines", "application/json", "lines.json", render_lines, false, false },
	{ 0 },
};

const struct render_format *render_format_find(const char *name)
{
	for (const struct render_format *f = render_formats; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}
