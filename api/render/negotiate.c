// SPDX-License-Identifier: Apache-2.0
#include "api/render/negotiate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/base/text.h"

/* In order of preference where a range matches several. */
static const struct {
	const char *media, *format;
} media_types[] = {
	{ "text/html", "html" },
	{ "image/svg+xml", "svg" },
	{ "application/json", "json" },
	{ "text/plain", "folded" },
	{ "application/octet-stream", "pprof" },
	{ "application/x-protobuf", "pprof" },
	{ "application/protobuf", "pprof" },
	{ "application/vnd.google.protobuf", "pprof" },
	{ "text/csv", "csv" },
};

/* "text/html" against "text/html", a "text/" range or the range of everything: 3, 2, 1, or 0 = no
 * match. */
static int specificity(const char *range, size_t len, const char *media)
{
	size_t slash = strcspn(media, "/") + 1;

	if (len == 3 && text_begins(range, "*/*"))
		return 1;
	if (len == slash + 1 && range[slash] == '*' && strncasecmp(range, media, slash) == 0)
		return 2;
	return len == strlen(media) && strncasecmp(range, media, len) == 0 ? 3 : 0;
}

/* The q parameter of one element in thousandths; 1000 when absent, 0 when malformed. */
static int quality_of(const char *params, const char *end)
{
	for (const char *at = params; at < end; at++) {
		int whole, value = 0, scale = 100;

		if (at[0] != ';')
			continue;
		at += 1 + strspn(at + 1, " \t");
		if (at + 2 > end || (at[0] != 'q' && at[0] != 'Q') || at[1] != '=')
			continue;
		whole = at[2] - '0';
		if (whole != 0 && whole != 1)
			return 0;
		for (at += 3; at < end && scale > 0 && (*at == '.' || (*at >= '0' && *at <= '9')); at++)
			if (*at != '.') {
				value += (*at - '0') * scale;
				scale /= 10;
			}
		return whole ? 1000 : value;
	}
	return 1000;
}

/* Quality that @accept gives to @media: that of the most specific range that matches. */
static int accepted(const char *accept, const char *media)
{
	int best = 0, quality = 0;

	for (const char *at = accept; *at;) {
		const char *end, *stop;
		int match;

		at += strspn(at, " \t,");
		end = at + strcspn(at, ",");
		stop = at + strcspn(at, ";, \t");
		match = specificity(at, (size_t)(stop - at), media);
		if (match > best) {
			best = match;
			quality = quality_of(stop, end);
		}
		at = end;
	}
	return quality;
}

int negotiate_format(const char *format, const char *accept, const struct render_format **ret,
		     struct err *err)
{
	const struct render_format *chosen = NULL;
	char known[256] = "";
	int best = 0;

	if (format) {
		chosen = render_format_find(format);
		if (chosen) {
			*ret = chosen;
			return 0;
		}
		for (const struct render_format *f = render_formats; f->name; f++)
			(void)snprintf(known + strlen(known), sizeof(known) - strlen(known), " %s",
				       f->name);
		return err_set(err, EINVAL, "InvalidParam", "format",
			       "query parameter format must be one of:%s", known);
	}
	if (!accept || !*accept) {
		*ret = &render_formats[0];
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(media_types); i++) {
		int quality = accepted(accept, media_types[i].media);

		if (quality > best) {
			best = quality;
			chosen = render_format_find(media_types[i].format);
		}
	}
	if (!chosen)
		return err_set(err, EINVAL, "NotAcceptable", "Accept",
			       "none of the accepted media types can be made; try text/html, "
			       "application/json or application/octet-stream");
	*ret = chosen;
	return 0;
}

bool negotiate_gzip(const char *accept_encoding)
{
	return accept_encoding &&
	       (accepted(accept_encoding, "gzip") > 0 || accepted(accept_encoding, "x-gzip") > 0);
}
