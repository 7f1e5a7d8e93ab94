// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
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

const char *render_kind_word(uint8_t kind)
{
	static const char *const words[] = {
		[PROFILE_FRAME_NATIVE] = "native",	   [PROFILE_FRAME_KERNEL] = "kernel",
		[PROFILE_FRAME_GO] = "go",		   [PROFILE_FRAME_JIT] = "jit",
		[PROFILE_FRAME_INTERPRETED] = "interpreted", [PROFILE_FRAME_UNKNOWN] = "unknown",
		[PROFILE_FRAME_MARKER] = "marker",
	};

	return kind < ARRAY_SIZE(words) ? words[kind] : "unknown";
}

const char *render_build_id(const struct profile_mapping *mapping, char ret[RENDER_BUILD_ID_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	unsigned len = mapping->build_id_len <= 32 ? mapping->build_id_len : 32;

	for (unsigned i = 0; i < len; i++) {
		ret[2 * i] = digits[mapping->build_id[i] >> 4];
		ret[2 * i + 1] = digits[mapping->build_id[i] & 15];
	}
	ret[2 * len] = '\0';
	return ret;
}
