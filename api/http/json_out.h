/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON into a struct buf. Commas are added automatically. Strings are escaped, also <, > and
 * & (so that the text may stand inside HTML) and U+2028/2029. Bytes that are not UTF-8 become
 * U+FFFD. Errors are the buffer's. No tree is built: answers of any size cost their own bytes
 * only. */
#ifndef PROFD_API_JSON_OUT_H
#define PROFD_API_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buf.h"

struct json_out {
	struct buf *buf;
	bool comma; /* private: the next value needs a comma before it */
};

static inline struct json_out json_out_to(struct buf *buf)
{
	return (struct json_out){ .buf = buf };
}

/* @name NULL inside arrays and for the outermost value. Names are literals and not escaped. */
void json_out_open(struct json_out *out, const char *name, char bracket);
void json_out_close(struct json_out *out, char bracket);
void json_out_text(struct json_out *out, const char *name, const char *text); /* NULL: null */
void json_out_int(struct json_out *out, const char *name, int64_t value);
void json_out_uint(struct json_out *out, const char *name, uint64_t value);
/* At most @decimals digits after the point, trailing zeros dropped; not finite: null. */
void json_out_real(struct json_out *out, const char *name, double value, int decimals);
void json_out_bool(struct json_out *out, const char *name, bool value);
void json_out_null(struct json_out *out, const char *name);
/* RFC 3339 with milliseconds; 0: null. */
void json_out_time(struct json_out *out, const char *name, uint64_t realtime_ns);
/* A member whose name comes from outside: escaped. Followed by a value with name NULL. */
void json_out_key(struct json_out *out, const char *name);
/* An element that is JSON already. */
void json_out_raw(struct json_out *out, const char *json);
/* A text too large to be held: between begin and end, what is written to @stream->plain becomes its
 * characters. No NUL in it; not to be moved meanwhile. End releases what begin took: the first
 * error of @plain or of @out, else 0. */
struct json_stream {
	struct buf_sink sink; /* private, first */
	struct buf plain;
	struct buf *out; /* borrowed */
	char rest[4];	 /* private: begin of a character */
	size_t rest_len;
};
void json_out_stream_begin(struct json_out *out, const char *name, struct json_stream *stream);
int json_out_stream_end(struct json_stream *stream) must_use;
/* The escaped text with its quotes, nothing else. */
void json_out_quote(struct buf *buf, const char *text);

#endif
