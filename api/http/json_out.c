// SPDX-License-Identifier: Apache-2.0
#include "api/http/json_out.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "agent/base/clock.h"

/* Length of the valid UTF-8 sequence at @at (1…4), 0 if it is not one. RFC 3629. */
static unsigned utf8_length(const unsigned char *at)
{
	static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned len = at[0] < 0x80	      ? 1
		       : (at[0] & 0xe0) == 0xc0 ? 2
		       : (at[0] & 0xf0) == 0xe0 ? 3
		       : (at[0] & 0xf8) == 0xf0 ? 4
						: 0;
	uint32_t code;

	if (len <= 1)
		return len;
	code = at[0] & (0x7fu >> len);
	for (unsigned i = 1; i < len; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	if (code < least[len] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return len;
}

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
}

static void escape(struct buf *buf, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	while (*at) {
		const unsigned char *run = at;
		unsigned len;

		while (is_plain(*at))
			at++;
		buf_add(buf, run, (size_t)(at - run));
		if (!*at)
			break;
		len = utf8_length(at);
		if (len == 0) {
			buf_add_str(buf, "\\ufffd");
			at++;
		} else if (len > 1 && !(at[0] == 0xe2 && at[1] == 0x80 && (at[2] & 0xfe) == 0xa8)) {
			buf_add(buf, at, len);
			at += len;
		} else if (len > 1) {
			buf_add_str(buf, at[2] == 0xa8 ? "\\u2028" : "\\u2029");
			at += len;
		} else {
			if (*at == '"' || *at == '\\')
				buf_printf(buf, "\\%c", *at);
			else
				buf_printf(buf, "\\u%04x", *at);
			at++;
		}
	}
}

void json_out_quote(struct buf *buf, const char *text)
{
	buf_add_char(buf, '"');
	escape(buf, text);
	buf_add_char(buf, '"');
}

/* Bytes of @text before a character whose end is still to come. */
static size_t whole_length(const char *text, size_t len)
{
	for (size_t back = 1; back < 4 && back <= len; back++) {
		unsigned char c = (unsigned char)text[len - back];

		if ((c & 0xc0) == 0x80)
			continue;
		if (c >= 0xc0 && back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u))
			return len - back;
		break;
	}
	return len;
}

static int take_piece(struct buf_sink *sink, const void *data, size_t len)
{
	struct json_stream *stream = (struct json_stream *)(void *)sink;
	const char *from = data;
	char piece[512];

	while (len > 0 && !stream->out->error) {
		size_t held = stream->rest_len, more = sizeof(piece) - 1 - held, whole;

		more = more < len ? more : len;
		memcpy(piece, stream->rest, held);
		memcpy(piece + held, from, more);
		from += more;
		len -= more;
		whole = whole_length(piece, held + more);
		stream->rest_len = held + more - whole;
		memcpy(stream->rest, piece + whole, stream->rest_len);
		piece[whole] = '\0';
		escape(stream->out, piece);
	}
	return stream->out->error;
}

static void begin(struct json_out *out, const char *name)
{
	if (out->comma)
		buf_add_char(out->buf, ',');
	out->comma = true;
	if (name) {
		buf_add_char(out->buf, '"');
		buf_add_str(out->buf, name);
		buf_add(out->buf, "\":", 2);
	}
}

void json_out_open(struct json_out *out, const char *name, char bracket)
{
	begin(out, name);
	buf_add_char(out->buf, bracket);
	out->comma = false;
}

void json_out_close(struct json_out *out, char bracket)
{
	buf_add_char(out->buf, bracket);
	out->comma = true;
}

void json_out_text(struct json_out *out, const char *name, const char *text)
{
	begin(out, name);
	if (text)
		json_out_quote(out->buf, text);
	else
		buf_add_str(out->buf, "null");
}

void json_out_stream_begin(struct json_out *out, const char *name, struct json_stream *stream)
{
	begin(out, name);
	buf_add_char(out->buf, '"');
	*stream = (struct json_stream){ .sink = { take_piece, 1u << 12 }, .out = out->buf };
	stream->plain.sink = &stream->sink;
}

int json_out_stream_end(struct json_stream *stream)
{
	int rc;

	buf_flush(&stream->plain);
	rc = stream->plain.error;
	buf_deinit(&stream->plain);
	stream->rest[stream->rest_len] = '\0';
	escape(stream->out, stream->rest);
	buf_add_char(stream->out, '"');
	return rc < 0 ? rc : stream->out->error;
}

void json_out_uint(struct json_out *out, const char *name, uint64_t value)
{
	char digits[20];
	size_t at = sizeof(digits);

	begin(out, name);
	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	buf_add(out->buf, digits + at, sizeof(digits) - at);
}

void json_out_int(struct json_out *out, const char *name, int64_t value)
{
	if (value >= 0) {
		json_out_uint(out, name, (uint64_t)value);
		return;
	}
	begin(out, name);
	buf_printf(out->buf, "%" PRId64, value);
}

void json_out_real(struct json_out *out, const char *name, double value, int decimals)
{
	char text[400];
	size_t len;

	begin(out, name);
	if (!isfinite(value) || fabs(value) > 1e300) {
		buf_add_str(out->buf, "null");
		return;
	}
	len = (size_t)snprintf(text, sizeof(text), "%.*f", decimals, value);
	if (decimals > 0) {
		while (text[len - 1] == '0')
			len--;
		if (text[len - 1] == '.')
			len--;
	}
	if (len == 2 && text[0] == '-' && text[1] == '0')
		buf_add_char(out->buf, '0');
	else
		buf_add(out->buf, text, len);
}

void json_out_bool(struct json_out *out, const char *name, bool value)
{
	begin(out, name);
	buf_add_str(out->buf, value ? "true" : "false");
}

void json_out_null(struct json_out *out, const char *name)
{
	begin(out, name);
	buf_add_str(out->buf, "null");
}

void json_out_time(struct json_out *out, const char *name, uint64_t realtime_ns)
{
	char text[CLOCK_RFC3339_SIZE];

	if (!realtime_ns) {
		json_out_null(out, name);
		return;
	}
	clock_format_rfc3339(realtime_ns, text);
	json_out_text(out, name, text);
}

void json_out_raw(struct json_out *out, const char *json)
{
	begin(out, NULL);
	buf_add_str(out->buf, json);
}

void json_out_key(struct json_out *out, const char *name)
{
	if (out->comma)
		buf_add_char(out->buf, ',');
	json_out_quote(out->buf, name);
	buf_add_char(out->buf, ':');
	out->comma = false;
}
