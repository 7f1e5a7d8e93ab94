// SPDX-License-Identifier: Apache-2.0
/* Parsers of HTTP requests. The first byte chooses between a query string, a JSON body, an Accept
 * header and a percent-encoded path segment. Properties: JSON that the checker accepts parses and
 * prints back to accepted JSON; decoded text is valid UTF-8 without control bytes; a chosen format
 * exists. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/parse.h"
#include "api/http/json_in.h"
#include "api/render/negotiate.h"
#include "api/http/query.h"

#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_query(const char *text)
{
	static const struct query_spec specs[] = {
		{ .name = "limit", .alias = "size", .type = QUERY_UINT, .min = 1, .max = 100 },
		{ .name = "from", .type = QUERY_TIME },
		{ .name = "wait", .type = QUERY_BOOL },
		{ .name = "step", .type = QUERY_DURATION, .min = 60, .max = 3600 },
		{ .name = "word", .type = QUERY_WORD, .words = "a b cc" },
		{ .name = "profileType", .type = QUERY_PROFILE_TYPE },
		{ .name = "number", .type = QUERY_NUMBER, .min = 0, .max = 100 },
		{ .name = "where", .type = QUERY_TEXT, .flags = QUERY_REPEATED },
		{ 0 },
	};
	struct query query;
	struct err err = { 0 };

	if (query_parse(text, specs, 1768464000000000000u, &query, &err) < 0)
		return;
	if (query_has(&query, "limit") && query_uint(&query, "limit", 0) - 1 >= 100)
		abort();
	query_deinit(&query);
}

static void try_json(const char *text, size_t len)
{
	cleanup(json) cJSON *body = NULL;
	struct json_warnings warnings = { 0 };
	struct err err = { 0 };
	char *again;

	if (json_in_object(text, len, &body, &err) < 0)
		return;
	json_in_unknown(body, "service profileType", &warnings);
	again = cJSON_PrintUnformatted(body);
	if (again && json_in_check(again, strlen(again), &err) < 0)
		abort();
	cJSON_free(again);
}

static void try_accept(const char *text)
{
	const struct render_format *format = NULL;
	struct err err = { 0 };

	if (negotiate_format(NULL, text, &format, &err) == 0 && !render_format_find(format->name))
		abort();
}

static void try_segment(const char *text, size_t len)
{
	char out[1024];

	if (query_decode(text, len, false, out, sizeof(out)) < 0)
		return;
	if (!parse_is_utf8(out, strlen(out)) || strlen(out) > len)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size < 1 || size > INPUT_MAX)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] & 3) {
	case 0:
		try_query(text);
		break;
	case 1:
		try_json(text, size - 1);
		break;
	case 2:
		try_accept(text);
		break;
	default:
		try_segment(text, size - 1);
	}
	free(text);
	return 0;
}
