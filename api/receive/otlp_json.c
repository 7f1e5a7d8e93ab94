// SPDX-License-Identifier: Apache-2.0
/* The text is checked as a whole first (json_in_check_large()), so that what follows only has to
 * look at names and types. One pass writes the fields; a message gets its length when it ends. The
 * depth of calls is that of the tables below: unknown values are skipped without recursion. */
#include "api/receive/otlp_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/http/json_in.h"
#include "api/http/otlp_fields.h"
#include "api/http/proto_in.h"
#include "api/receive/message.h"

#define NAME_SIZE     64u /* longer names are unknown */
#define NUMBER_SIZE   40u /* characters of a number with its NUL */
#define LENGTH_BYTES  4u  /* of a message: up to 256 MiB */
#define EXACT_MOST    9007199254740992.0 /* 2^53: whole numbers in a double are exact up to here */
#define SURROGATE     0xd800u
#define LOW_SURROGATE 0xdc00u

/* ---- the schema ------------------------------------------------------------------------------ */

enum json_kind {
	JSON_MESSAGE,
	JSON_TEXT,
	JSON_SIGNED,
	JSON_UNSIGNED,
	JSON_FIXED64,
	JSON_BOOL,
	JSON_HEX, /* bytes */
};

struct json_field {
	const char *name;
	uint32_t number;
	enum json_kind kind;
	bool repeated;
	const struct json_field *fields; /* of a message, up to a name of NULL */
};

static const struct json_field any_value[] = {
	{ "stringValue", ANY_VALUE_STRING, JSON_TEXT, false, NULL },
	{ "boolValue", ANY_VALUE_BOOL, JSON_BOOL, false, NULL },
	{ "intValue", ANY_VALUE_INT, JSON_SIGNED, false, NULL },
	{ "stringValueStrindex", ANY_VALUE_STRING_INDEX, JSON_SIGNED, false, NULL },
	{ 0 },
};
static const struct json_field key_value[] = {
	{ "key", KEY_VALUE_KEY, JSON_TEXT, false, NULL },
	{ "value", KEY_VALUE_VALUE, JSON_MESSAGE, false, any_value },
	{ "keyStrindex", KEY_VALUE_KEY_INDEX, JSON_SIGNED, false, NULL },
	{ 0 },
};
static const struct json_field resource[] = {
	{ "attributes", RESOURCE_ATTRIBUTES, JSON_MESSAGE, true, key_value },
	{ 0 },
};
static const struct json_field value_type[] = {
	{ "typeStrindex", VALUE_TYPE_TYPE, JSON_SIGNED, false, NULL },
	{ "unitStrindex", VALUE_TYPE_UNIT, JSON_SIGNED, false, NULL },
	{ 0 },
};
static const struct json_field sample[] = {
	{ "stackIndex", SAMPLE_STACK, JSON_SIGNED, false, NULL },
	{ "values", SAMPLE_VALUES, JSON_SIGNED, true, NULL },
	{ "attributeIndices", SAMPLE_ATTRIBUTES, JSON_SIGNED, true, NULL },
	{ "linkIndex", SAMPLE_LINK, JSON_SIGNED, false, NULL },
	{ "timestampsUnixNano", SAMPLE_TIMESTAMPS, JSON_FIXED64, true, NULL },
	{ 0 },
};
static const struct json_field profile[] = {
	{ "sampleType", PROFILE_SAMPLE_TYPE, JSON_MESSAGE, false, value_type },
	{ "samples", PROFILE_SAMPLES, JSON_MESSAGE, true, sample },
	{ "timeUnixNano", PROFILE_TIME, JSON_FIXED64, false, NULL },
	{ "durationNano", PROFILE_DURATION, JSON_UNSIGNED, false, NULL },
	{ "periodType", PROFILE_PERIOD_TYPE, JSON_MESSAGE, false, value_type },
	{ "period", PROFILE_PERIOD, JSON_SIGNED, false, NULL },
	{ 0 },
};
static const struct json_field scope_profiles[] = {
	{ "profiles", SCOPE_PROFILES_PROFILES, JSON_MESSAGE, true, profile },
	{ 0 },
};
static const struct json_field resource_profiles[] = {
	{ "resource", RESOURCE_PROFILES_RESOURCE, JSON_MESSAGE, false, resource },
	{ "scopeProfiles", RESOURCE_PROFILES_SCOPE_PROFILES, JSON_MESSAGE, true, scope_profiles },
	{ 0 },
};
static const struct json_field mapping[] = {
	{ "filenameStrindex", MAPPING_FILENAME, JSON_SIGNED, false, NULL },
	{ "attributeIndices", MAPPING_ATTRIBUTES, JSON_SIGNED, true, NULL },
	{ 0 },
};
static const struct json_field stack[] = {
	{ "locationIndices", STACK_LOCATIONS, JSON_SIGNED, true, NULL },
	{ 0 },
};
static const struct json_field line[] = {
	{ "functionIndex", LINE_FUNCTION, JSON_SIGNED, false, NULL },
	{ "line", LINE_LINE, JSON_SIGNED, false, NULL },
	{ 0 },
};
static const struct json_field location[] = {
	{ "mappingIndex", LOCATION_MAPPING, JSON_SIGNED, false, NULL },
	{ "address", LOCATION_ADDRESS, JSON_UNSIGNED, false, NULL },
	{ "lines", LOCATION_LINES, JSON_MESSAGE, true, line },
	{ "attributeIndices", LOCATION_ATTRIBUTES, JSON_SIGNED, true, NULL },
	{ 0 },
};
static const struct json_field function[] = {
	{ "nameStrindex", FUNCTION_NAME, JSON_SIGNED, false, NULL },
	{ "systemNameStrindex", FUNCTION_SYSTEM_NAME, JSON_SIGNED, false, NULL },
	{ "filenameStrindex", FUNCTION_FILENAME, JSON_SIGNED, false, NULL },
	{ "startLine", FUNCTION_START_LINE, JSON_SIGNED, false, NULL },
	{ 0 },
};
static const struct json_field link_entry[] = {
	{ "traceId", LINK_TRACE_ID, JSON_HEX, false, NULL },
	{ "spanId", LINK_SPAN_ID, JSON_HEX, false, NULL },
	{ 0 },
};
static const struct json_field attribute[] = {
	{ "keyStrindex", ATTRIBUTE_KEY, JSON_SIGNED, false, NULL },
	{ "value", ATTRIBUTE_VALUE, JSON_MESSAGE, false, any_value },
	{ 0 },
};
static const struct json_field dictionary[] = {
	{ "mappingTable", DICTIONARY_MAPPINGS, JSON_MESSAGE, true, mapping },
	{ "locationTable", DICTIONARY_LOCATIONS, JSON_MESSAGE, true, location },
	{ "functionTable", DICTIONARY_FUNCTIONS, JSON_MESSAGE, true, function },
	{ "linkTable", DICTIONARY_LINKS, JSON_MESSAGE, true, link_entry },
	{ "stringTable", DICTIONARY_STRINGS, JSON_TEXT, true, NULL },
	{ "attributeTable", DICTIONARY_ATTRIBUTES, JSON_MESSAGE, true, attribute },
	{ "stackTable", DICTIONARY_STACKS, JSON_MESSAGE, true, stack },
	{ 0 },
};
static const struct json_field request[] = {
	{ "resourceProfiles", REQUEST_RESOURCE_PROFILES, JSON_MESSAGE, true, resource_profiles },
	{ "dictionary", REQUEST_DICTIONARY, JSON_MESSAGE, false, dictionary },
	{ 0 },
};

/* ---- the text -------------------------------------------------------------------------------- */

struct json {
	const char *at, *end; /* well-formed JSON */
	struct buf *out;
	struct err *err;
};

/* The character behind blanks; NUL at the end. */
static char peek(struct json *j)
{
	while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r'))
		j->at++;
	return j->at < j->end ? *j->at : '\0';
}

static bool take(struct json *j, char expected)
{
	if (peek(j) != expected)
		return false;
	j->at++;
	return true;
}

/* A string as it stands between its quotes. */
static struct json take_raw(struct json *j)
{
	struct json raw = *j;

	raw.at = ++j->at;
	while (j->at < j->end && *j->at != '"')
		j->at += *j->at == '\\' && j->end - j->at > 1 ? 2 : 1;
	raw.end = j->at;
	j->at += j->at < j->end;
	return raw;
}

/* Digits, signs, points, exponents and words alike. */
static struct json take_bare(struct json *j)
{
	struct json raw = *j;

	while (j->at < j->end && !strchr(" \t\n\r,]}", *j->at))
		j->at++;
	raw.end = j->at;
	return raw;
}

static void skip_value(struct json *j)
{
	size_t depth = 0;

	do {
		const char c = peek(j);

		if (c == '"') {
			(void)take_raw(j);
		} else if (c == '{' || c == '[') {
			depth++;
			j->at++;
		} else if (c == '}' || c == ']') {
			depth--;
			j->at++;
		} else if (c == ',' || c == ':') {
			j->at++;
		} else {
			(void)take_bare(j);
		}
	} while (depth && j->at < j->end);
}

static unsigned hex_digit(char c)
{
	return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}

/* The four digits behind \u, which json_in_check_large() has seen. */
static unsigned take_unit(struct json *raw)
{
	unsigned unit = 0;

	for (int i = 0; i < 4 && raw->at < raw->end; i++)
		unit = unit << 4 | hex_digit(*raw->at++);
	return unit;
}

static void add_utf8(struct buf *out, unsigned code)
{
	const unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	static const unsigned head[] = { 0, 0xc0, 0xe0, 0xf0 };

	buf_add_char(out, (char)(head[more] | code >> (6 * more)));
	for (unsigned i = more; i-- > 0;)
		buf_add_char(out, (char)(0x80 | (code >> (6 * i) & 0x3f)));
}

/* False: half of a pair of surrogates, which is no character. */
static bool add_unicode(struct json *raw, struct buf *out)
{
	unsigned code = take_unit(raw), low;

	if (code >= LOW_SURROGATE && code < LOW_SURROGATE + 0x400)
		return false;
	if (code >= SURROGATE && code < LOW_SURROGATE) {
		if (raw->end - raw->at < 6 || raw->at[0] != '\\' || raw->at[1] != 'u')
			return false;
		raw->at += 2;
		low = take_unit(raw);
		if (low < LOW_SURROGATE || low >= LOW_SURROGATE + 0x400)
			return false;
		code = 0x10000 + ((code - SURROGATE) << 10) + (low - LOW_SURROGATE);
	}
	add_utf8(out, code);
	return true;
}

/* Appends what the string @raw says. */
static bool add_unescaped(struct json raw, struct buf *out)
{
	static const char escapes[] = "bfnrt", meant[] = "\b\f\n\r\t";

	while (raw.at < raw.end) {
		const char *next = memchr(raw.at, '\\', (size_t)(raw.end - raw.at)), *known;

		buf_add(out, raw.at, (size_t)((next ? next : raw.end) - raw.at));
		if (!next || raw.end - next < 2)
			return !next;
		raw.at = next + 2;
		known = strchr(escapes, next[1]);
		if (next[1] == 'u' && !add_unicode(&raw, out))
			return false;
		if (next[1] != 'u')
			buf_add_char(out, known ? meant[known - escapes] : next[1]);
	}
	return true;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Digits alone are exact up to 64 bits. Other ways to write a whole number (1e3, 2.0) go through a
 * double. False: no whole number, or out of range. */
static bool read_whole(const struct json *raw, bool is_signed, uint64_t *ret)
{
	const size_t len = (size_t)(raw->end - raw->at);
	char text[NUMBER_SIZE], *end;
	uint64_t number;
	double real;

	if (!len || len >= sizeof(text))
		return false;
	memcpy(text, raw->at, len);
	text[len] = '\0';
	if (strspn(text, "0123456789+-.eE") != len || strchr("+eE", *text))
		return false;
	errno = 0;
	if (!is_signed && *text == '-')
		return false;
	if (strspn(text + 1, "0123456789") == len - 1) {
		number = is_signed ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
	} else {
		real = strtod(text, &end);
		if (!(fabs(real) <= EXACT_MOST) || trunc(real) != real)
			return false;
		number = (uint64_t)(int64_t)real;
	}
	if (errno || *end)
		return false;
	*ret = number;
	return true;
}

static int take_number(struct json *j, const struct json_field *field, uint64_t *ret)
{
	const bool is_signed = field->kind == JSON_SIGNED;
	struct json raw = peek(j) == '"' ? take_raw(j) : take_bare(j);

	return read_whole(&raw, is_signed, ret)
		       ? 0
		       : message_bad(j->err, field->name,
				     is_signed ? "expected a whole number of 64 bits"
					       : "expected a whole number of 64 bits, not negative");
}

static int take_bool(struct json *j, const struct json_field *field, uint64_t *ret)
{
	struct json raw = take_bare(j);

	*ret = (size_t)(raw.end - raw.at) == 4 && memcmp(raw.at, "true", 4) == 0;
	return *ret || ((size_t)(raw.end - raw.at) == 5 && memcmp(raw.at, "false", 5) == 0)
		       ? 0
		       : message_bad(j->err, field->name, "expected true or false");
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void add_tag(struct buf *out, const struct json_field *field, enum proto_wire wire)
{
	buf_add_varint(out, (uint64_t)field->number << 3 | wire);
}

/* A field of bytes begins: returns where its length has to stand. */
static size_t begin_bytes(struct buf *out, const struct json_field *field)
{
	static const char nothing[LENGTH_BYTES];

	add_tag(out, field, PROTO_WIRE_BYTES);
	buf_add(out, nothing, sizeof(nothing));
	return out->len;
}

/* The length as a varint of always four bytes. */
static void end_bytes(struct buf *out, size_t begin)
{
	size_t len = out->len - begin;

	for (unsigned i = 0; i < LENGTH_BYTES && !out->error; i++, len >>= 7)
		out->data[begin - LENGTH_BYTES + i] =
			(char)((len & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

static int take_text(struct json *j, const struct json_field *field)
{
	size_t begin;

	if (peek(j) != '"')
		return message_bad(j->err, field->name, "expected a text");
	begin = begin_bytes(j->out, field);
	if (!add_unescaped(take_raw(j), j->out))
		return message_bad(j->err, field->name, "it holds half of a surrogate pair");
	end_bytes(j->out, begin);
	return 0;
}

static int take_hex(struct json *j, const struct json_field *field)
{
	char text[2 * 32 + 1];
	uint8_t bytes[32];
	struct json raw;
	size_t len;

	if (peek(j) != '"')
		return message_bad(j->err, field->name, "expected hexadecimal digits");
	raw = take_raw(j);
	len = (size_t)(raw.end - raw.at);
	if (len >= sizeof(text))
		return message_bad(j->err, field->name, "expected at most 64 hexadecimal digits");
	memcpy(text, raw.at, len);
	text[len] = '\0';
	if (len && !message_build_id(text, bytes))
		return message_bad(j->err, field->name, "expected hexadecimal digits");
	add_tag(j->out, field, PROTO_WIRE_BYTES);
	buf_add_varint(j->out, len / 2);
	buf_add(j->out, bytes, len / 2);
	return 0;
}

static int write_number(struct json *j, const struct json_field *field)
{
	uint64_t number = 0;
	int rc = field->kind == JSON_BOOL ? take_bool(j, field, &number)
					  : take_number(j, field, &number);

	if (rc < 0)
		return rc;
	if (field->kind == JSON_FIXED64)
		buf_add(j->out, &number, sizeof(number));
	else
		buf_add_varint(j->out, number);
	return 0;
}

static int take_message(struct json *j, const struct json_field *fields, const char *what);

static int take_one(struct json *j, const struct json_field *field)
{
	size_t begin;
	int rc;

	switch (field->kind) {
	case JSON_MESSAGE:
		begin = begin_bytes(j->out, field);
		rc = take_message(j, field->fields, field->name);
		end_bytes(j->out, begin);
		return rc;
	case JSON_TEXT:
		return take_text(j, field);
	case JSON_HEX:
		return take_hex(j, field);
	default:
		add_tag(j->out, field,
			field->kind == JSON_FIXED64 ? PROTO_WIRE_FIXED64 : PROTO_WIRE_VARINT);
		return write_number(j, field);
	}
}

/* Numbers are packed. */
static int take_list(struct json *j, const struct json_field *field)
{
	const bool packed = field->kind == JSON_SIGNED || field->kind == JSON_FIXED64;
	size_t begin = 0;
	int rc = 0;

	if (!take(j, '['))
		return message_bad(j->err, field->name, "expected a list");
	if (take(j, ']'))
		return 0;
	if (packed)
		begin = begin_bytes(j->out, field);
	do
		rc = packed ? write_number(j, field) : take_one(j, field);
	while (rc == 0 && !j->out->error && take(j, ','));
	if (packed)
		end_bytes(j->out, begin);
	if (rc == 0)
		(void)take(j, ']');
	return rc < 0 ? rc : j->out->error;
}

static const struct json_field *find_field(const struct json_field *fields, struct json raw)
{
	cleanup_buf struct buf name = { .max = NAME_SIZE };
	const char *text = raw.at;
	size_t len = (size_t)(raw.end - raw.at);

	if (memchr(text, '\\', len)) {
		if (!add_unescaped(raw, &name) || name.error)
			return NULL;
		text = name.data;
		len = name.len;
	}
	for (; fields->name; fields++)
		if (strlen(fields->name) == len && memcmp(fields->name, text, len) == 0)
			return fields;
	return NULL;
}

static int take_member(struct json *j, const struct json_field *fields)
{
	const struct json_field *field;

	(void)peek(j);
	field = find_field(fields, take_raw(j));
	(void)take(j, ':');
	if (!field || peek(j) == 'n') {
		skip_value(j);
		return 0;
	}
	return field->repeated ? take_list(j, field) : take_one(j, field);
}

/* @what: the field that is the message. */
static int take_message(struct json *j, const struct json_field *fields, const char *what)
{
	int rc = 0;

	if (!take(j, '{'))
		return message_bad(j->err, what, "expected an object");
	if (take(j, '}'))
		return 0;
	do
		rc = take_member(j, fields);
	while (rc == 0 && !j->out->error && take(j, ','));
	if (rc == 0)
		(void)take(j, '}');
	return rc < 0 ? rc : j->out->error;
}

int otlp_json_read(const char *text, size_t len, struct buf *ret, struct err *err)
{
	struct json j = { .at = text, .end = text + len, .out = ret, .err = err };
	int rc = json_in_check_large(text, len, err);

	if (rc == 0)
		rc = take_message(&j, request, "body");
	if (rc == 0 || rc == -EFBIG)
		rc = ret->error;
	return rc == -EFBIG ? err_set(err, E2BIG, "BodyTooLarge", "body",
				      "the body has more than %zu bytes", ret->max)
			    : rc;
}
