// SPDX-License-Identifier: Apache-2.0
#include "api/push/push_message.h"

#include <string.h>

#include "agent/base/hash.h"
#include "api/http/compress.h"
#include "api/http/json_out.h"
#include "api/render/render.h"

static int write_otlp(const struct profile *p, const struct session_info *info, struct buf *out)
{
	const struct render_options options = { .value_index = profile_value_index(p),
						.title = info->id };
	struct gzip gzip;
	int rc = gzip_begin(&gzip, 6, out), end;

	if (rc < 0)
		return rc;
	rc = render_otlp(p, &options, &gzip.plain, NULL);
	end = gzip_end(&gzip);
	return rc < 0 ? rc : end;
}

/* RFC 4648, with padding: what protobuf's JSON form of bytes is. */
static void add_base64(struct buf *out, const uint8_t *data, size_t len)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < len; i += 3) {
		uint32_t group = (uint32_t)data[i] << 16;
		char text[4];

		if (i + 1 < len)
			group |= (uint32_t)data[i + 1] << 8;
		if (i + 2 < len)
			group |= data[i + 2];
		for (unsigned k = 0; k < 4; k++)
			text[k] = letters[group >> (18 - 6 * k) & 63];
		if (i + 2 >= len)
			text[3] = '=';
		if (i + 1 >= len)
			text[2] = '=';
		buf_add(out, text, sizeof(text));
	}
}

/* A UUID (RFC 9562, version 8) of the session's id. */
static void sample_id(const char *id, char out[37])
{
	uint64_t high = hash_bytes(id, strlen(id), 21), low = hash_bytes(id, strlen(id), 22);

	high = (high & ~0xf000ull) | 0x8000;
	low = (low & ~(3ull << 62)) | 1ull << 63;
	(void)snprintf(out, 37, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32),
		       (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff),
		       (unsigned)(low >> 48), (unsigned long long)(low & 0xffffffffffffull));
}

/* Pyroscope derives its profile types from this name and pprof's sample types. */
static const char *metric_name(enum profile_type type)
{
	return profile_type_info(type)->metric;
}

static void label(struct json_out *json, const char *name, const char *value)
{
	if (!*value)
		return;
	json_out_open(json, NULL, '{');
	json_out_text(json, "name", name);
	json_out_text(json, "value", value);
	json_out_close(json, '}');
}

/* push.v1.PusherService/Push in its JSON form. */
static int write_pyroscope(const struct profile *p, const struct session_info *info,
			   struct buf *out)
{
	const struct render_options options = { .value_index = profile_value_index(p) };
	struct json_out json = json_out_to(out);
	struct buf pprof = { .max = out->max };
	char id[37];
	int rc = render_pprof(p, &options, &pprof, NULL);

	sample_id(info->id, id);
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "series", '[');
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "labels", '[');
	label(&json, "__name__", metric_name(info->type));
	label(&json, "service_name", info->service);
	label(&json, "hostname", info->host);
	label(&json, "tenant", info->tenant);
	label(&json, "session", info->continuous ? "" : info->id);
	json_out_close(&json, ']');
	json_out_open(&json, "samples", '[');
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "ID", id);
	json_out_key(&json, "rawProfile");
	json_out_raw(&json, "\"");
	add_base64(out, (const uint8_t *)pprof.data, pprof.len);
	buf_add_char(out, '"');
	json_out_close(&json, '}');
	json_out_close(&json, ']');
	json_out_close(&json, '}');
	json_out_close(&json, ']');
	json_out_close(&json, '}');
	buf_deinit(&pprof);
	return rc < 0 ? rc : out->error;
}

static const struct push_kind kinds[] = {
	{ "otlp", "/v1development/profiles", "application/x-protobuf", true, true, write_otlp },
	{ "pyroscope", "/push.v1.PusherService/Push", "application/json", false, false,
	  write_pyroscope },
};

const struct push_kind *push_kind_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}
