// SPDX-License-Identifier: Apache-2.0
#include "api/yaml_json.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "api/json_out.h"

#define DEPTH_MAX 48
#define LINE_MAX_BYTES 2048

struct line {
	const char *at; /* first byte behind the indentation */
	size_t len;	/* without comment and trailing blanks */
	unsigned indent;
	unsigned number;
};

struct yaml {
	const char *next;   /* text behind the current line */
	struct line line;   /* current; at NULL = end */
	unsigned number;
	unsigned depth;
	struct json_out json;
	struct err *err;
};

static int wrong(struct yaml *y, const char *what)
{
	return err_set(y->err, EINVAL, NULL, NULL, "line %u: %s", y->line.number, what);
}

/* Length of @text up to a comment: `#` at the start or after a blank, outside quotes. */
static size_t without_comment(const char *text, size_t len)
{
	char quote = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (quote) {
			if (c == '\\' && quote == '"')
				i++;
			else if (c == quote)
				quote = 0;
		} else if ((c == '"' || c == '\'') && (i == 0 || strchr(" [{,:", text[i - 1]))) {
			quote = c;
		} else if (c == '#' && (i == 0 || text[i - 1] == ' ')) {
			len = i;
		}
	}
	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\r'))
		len--;
	return len;
}

/* The next line that holds something. */
static void advance(struct yaml *y)
{
	while (*y->next) {
		const char *start = y->next;
		size_t len = strcspn(start, "\n"), indent = strspn(start, " ");

		y->next += len + (start[len] == '\n');
		y->number++;
		if (indent > len)
			continue;
		len = without_comment(start + indent, len - indent);
		if (len == 0 || (indent == 0 && len == 3 && memcmp(start, "---", 3) == 0))
			continue;
		y->line = (struct line){ start + indent, len, (unsigned)indent, y->number };
		return;
	}
	y->line.at = NULL;
}

/* ---- scalars -------------------------------------------------------------------------------------- */

static bool is_number(const char *text)
{
	const char *at = text + (*text == '-');

	if (!isdigit((unsigned char)*at) || (at[0] == '0' && isdigit((unsigned char)at[1])))
		return false;
	while (isdigit((unsigned char)*at))
		at++;
	if (*at == '.' && isdigit((unsigned char)at[1])) {
		at++;
		while (isdigit((unsigned char)*at))
			at++;
	}
	return *at == '\0';
}

static void put_plain(struct yaml *y, const char *text)
{
	static const char *const words[] = { "true", "false", "null" };
	bool bare = is_number(text);

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		bare |= strcmp(text, words[i]) == 0;
	if (!bare) {
		json_out_text(&y->json, NULL, text);
		return;
	}
	if (y->json.comma)
		buf_add_char(y->json.buf, ',');
	buf_add_str(y->json.buf, text);
	y->json.comma = true;
}

/* Reads a quoted text at *@at into @out. */
static int take_quoted(struct yaml *y, const char **at, const char *end, char *out, size_t size)
{
	char quote = **at;
	const char *c = *at + 1;
	size_t n = 0;

	for (; c < end; c++) {
		char value = *c;

		if (value == quote) {
			if (quote == '\'' && c + 1 < end && c[1] == '\'') {
				c++;
			} else {
				out[n] = '\0';
				*at = c + 1;
				return 0;
			}
		} else if (value == '\\' && quote == '"' && c + 1 < end) {
			c++;
			value = *c == 'n' ? '\n' : *c == 't' ? '\t' : *c;
		}
		if (n + 1 >= size)
			return wrong(y, "text too long");
		out[n++] = value;
	}
	return wrong(y, "quote is not closed");
}

/* A scalar that ends at @end or, inside a flow list, at one of @stops. */
static int take_scalar(struct yaml *y, const char **at, const char *end, const char *stops,
		       bool as_key)
{
	char text[LINE_MAX_BYTES];
	size_t n = 0;
	int rc;

	if (*at < end && (**at == '"' || **at == '\'')) {
		rc = take_quoted(y, at, end, text, sizeof(text));
		if (rc < 0)
			return rc;
		if (as_key)
			json_out_key(&y->json, text);
		else
			json_out_text(&y->json, NULL, text);
		return 0;
	}
	while (*at < end && !strchr(stops, **at)) {
		if (as_key && **at == ':')
			break;
		if (n + 1 >= sizeof(text))
			return wrong(y, "text too long");
		text[n++] = *(*at)++;
	}
	while (n > 0 && text[n - 1] == ' ')
		n--;
	text[n] = '\0';
	if (as_key)
		json_out_key(&y->json, text);
	else
		put_plain(y, text);
	return 0;
}

static void skip_blank(const char **at, const char *end)
{
	while (*at < end && **at == ' ')
		(*at)++;
}

/* [a, b] or {a: b}, nested, on one line. */
static int take_flow(struct yaml *y, const char **at, const char *end)
{
	char open = **at, close = open == '[' ? ']' : '}';
	int rc = 0;

	if (++y->depth > DEPTH_MAX)
		return wrong(y, "nested too deeply");
	(*at)++;
	json_out_open(&y->json, NULL, open);
	for (;;) {
		skip_blank(at, end);
		if (*at < end && **at == close)
			break;
		if (open == '{') {
			rc = take_scalar(y, at, end, ",]}", true);
			skip_blank(at, end);
			if (rc < 0 || *at >= end || **at != ':')
				return rc < 0 ? rc : wrong(y, "`:` is missing");
			(*at)++;
			skip_blank(at, end);
		}
		if (*at < end && (**at == '[' || **at == '{'))
			rc = take_flow(y, at, end);
		else
			rc = take_scalar(y, at, end, ",]}", false);
		if (rc < 0)
			return rc;
		skip_blank(at, end);
		if (*at < end && **at == ',')
			(*at)++;
		else if (*at >= end || **at != close)
			return wrong(y, "a flow list must end on its line");
	}
	(*at)++;
	json_out_close(&y->json, close);
	y->depth--;
	return 0;
}

/* | keeps line ends, > joins lines with blanks; deeper indentation than @parent belongs to it. */
static void take_block_text(struct yaml *y, bool folded, int parent)
{
	struct buf text = { .max = 1u << 16 };
	size_t indent = 0;

	while (*y->next) {
		const char *start = y->next;
		size_t len = strcspn(start, "\n"), blank = strspn(start, " ");

		if (blank >= len) {
			if (text.len)
				buf_add_char(&text, '\n');
		} else {
			if ((int)blank <= parent)
				break;
			if (!indent)
				indent = blank;
			if (folded && text.len && text.data[text.len - 1] != '\n')
				buf_add_char(&text, ' ');
			blank = blank < indent ? blank : indent;
			buf_add(&text, start + blank, len - blank);
			if (!folded)
				buf_add_char(&text, '\n');
		}
		y->next += len + (start[len] == '\n');
		y->number++;
	}
	while (text.len > 0 && text.data[text.len - 1] == '\n')
		text.data[--text.len] = '\0';
	json_out_text(&y->json, NULL, text.data ? text.data : "");
	buf_deinit(&text);
	advance(y);
}

/* ---- blocks --------------------------------------------------------------------------------------- */

static int take_node(struct yaml *y, unsigned indent);

/* The value behind `key:` or `- `, on the same line or below. */
static int take_value(struct yaml *y, const char *at, const char *end, unsigned parent, bool in_map)
{
	int rc;

	skip_blank(&at, end);
	if (at >= end) {
		advance(y);
		/* A list may stand at the indentation of its key. */
		if (y->line.at && (y->line.indent > parent ||
				   (in_map && y->line.indent == parent && y->line.at[0] == '-')))
			return take_node(y, y->line.indent);
		json_out_null(&y->json, NULL);
		return 0;
	}
	if ((*at == '|' || *at == '>') && end - at <= 2) {
		take_block_text(y, *at == '>', (int)parent);
		return 0;
	}
	rc = *at == '[' || *at == '{' ? take_flow(y, &at, end) : take_scalar(y, &at, end, "", false);
	skip_blank(&at, end);
	if (rc == 0 && at != end)
		return wrong(y, "text behind the value");
	advance(y);
	return rc;
}

/* Position of the `:` that ends a key, NULL if the line is no mapping entry. */
static const char *key_end(const struct line *line)
{
	const char *at = line->at, *end = line->at + line->len;

	if (*at == '"' || *at == '\'') {
		char quote = *at++;

		while (at < end && *at != quote)
			at++;
		at++;
		return at < end && *at == ':' ? at : NULL;
	}
	for (; at < end; at++)
		if (*at == ':' && (at + 1 == end || at[1] == ' '))
			return at;
	return NULL;
}

static int take_map(struct yaml *y, unsigned indent)
{
	int rc = 0;

	json_out_open(&y->json, NULL, '{');
	while (rc == 0 && y->line.at && y->line.indent == indent && y->line.at[0] != '-') {
		const char *colon = key_end(&y->line), *at = y->line.at;
		const char *end = y->line.at + y->line.len;

		if (!colon)
			return wrong(y, "a `key: value` is expected");
		rc = take_scalar(y, &at, colon, "", true);
		if (rc == 0)
			rc = take_value(y, colon + 1, end, indent, true);
	}
	json_out_close(&y->json, '}');
	return rc;
}

static int take_list(struct yaml *y, unsigned indent)
{
	int rc = 0;

	json_out_open(&y->json, NULL, '[');
	while (rc == 0 && y->line.at && y->line.indent == indent && y->line.at[0] == '-' &&
	       (y->line.len == 1 || y->line.at[1] == ' ')) {
		const char *end = y->line.at + y->line.len;
		size_t skip = 1;

		while (skip < y->line.len && y->line.at[skip] == ' ')
			skip++;
		if (skip < y->line.len && strchr("\"'[{", y->line.at[skip]) == NULL) {
			/* `- key: value`: the rest of the line is the first line of a block. */
			struct line whole = y->line;

			y->line.at += skip;
			y->line.len -= skip;
			y->line.indent += (unsigned)skip;
			if (key_end(&y->line) || y->line.at[0] == '-') {
				rc = take_node(y, y->line.indent);
				continue;
			}
			y->line = whole;
		}
		rc = take_value(y, y->line.at + 1, end, indent, false);
	}
	json_out_close(&y->json, ']');
	return rc;
}

static int take_node(struct yaml *y, unsigned indent)
{
	const char *at = y->line.at, *end = y->line.at + y->line.len;
	bool list = at[0] == '-' && (y->line.len == 1 || at[1] == ' ');
	int rc;

	if (++y->depth > DEPTH_MAX)
		return wrong(y, "nested too deeply");
	if (list)
		rc = take_list(y, indent);
	else if (key_end(&y->line))
		rc = take_map(y, indent);
	else
		rc = take_value(y, at, end, indent, false);
	y->depth--;
	if (rc == 0 && y->line.at && y->line.indent > indent)
		return wrong(y, "unexpected indentation");
	return rc;
}

int yaml_to_json(const char *text, struct buf *out, struct err *err)
{
	struct yaml y = { .next = text, .json = json_out_to(out), .err = err };
	int rc;

	advance(&y);
	if (!y.line.at)
		return wrong(&y, "nothing there");
	rc = take_node(&y, y.line.indent);
	if (rc == 0 && y.line.at)
		rc = wrong(&y, "unexpected indentation");
	return rc < 0 ? rc : out->error;
}
