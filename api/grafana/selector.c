// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "api/grafana/selector.h"

#include <ctype.h>
#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/u64map.h"

#define NESTING_MAX 32
#define STEPS_MAX   50000u /* of one match: some milliseconds */
#define HEAP_MAX_KB 1024u
#define SEEN_MAX    100000u
#define TIME_MAX_NS NS_PER_S /* of all matches of a selector */

struct seen {
	struct u64map verdicts; /* hash of a value -> 0 or 1 */
};

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
	const char *text, *at, *field;
	struct err *err;
};

static int refuse(const struct reader *r, const char *expected)
{
	return err_set(r->err, EINVAL, "InvalidParam", r->field,
		       "%s is no label selector: expected %s at byte %zu", r->field, expected,
		       (size_t)(r->at - r->text));
}

static void skip_blanks(struct reader *r)
{
	while (*r->at && isspace((unsigned char)*r->at))
		r->at++;
}

static int hex_of(const char *text, unsigned digits, uint32_t *ret)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < digits; i++) {
		unsigned char c = (unsigned char)text[i];

		if (!isxdigit(c))
			return -EINVAL;
		value = value << 4 | (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
	}
	*ret = value;
	return 0;
}

static int octal_of(const char *text, uint32_t *ret)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < 3; i++) {
		if (text[i] < '0' || text[i] > '7')
			return -EINVAL;
		value = value << 3 | (uint32_t)(text[i] - '0');
	}
	*ret = value;
	return value && value < 256 ? 0 : -EINVAL;
}

static int add_utf8(struct buf *out, uint32_t code)
{
	if (!code || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return -EINVAL;
	if (code < 0x80) {
		buf_add_char(out, (char)code);
		return 0;
	}
	if (code < 0x800) {
		buf_add_char(out, (char)(0xc0 | code >> 6));
	} else if (code < 0x10000) {
		buf_add_char(out, (char)(0xe0 | code >> 12));
		buf_add_char(out, (char)(0x80 | (code >> 6 & 0x3f)));
	} else {
		buf_add_char(out, (char)(0xf0 | code >> 18));
		buf_add_char(out, (char)(0x80 | (code >> 12 & 0x3f)));
		buf_add_char(out, (char)(0x80 | (code >> 6 & 0x3f)));
	}
	buf_add_char(out, (char)(0x80 | (code & 0x3f)));
	return 0;
}

/* An escape of Go's string literals (go.dev/ref/spec), behind its backslash. */
static int read_escape(struct reader *r, struct buf *out)
{
	static const char plain[] = "abfnrtv\\\"'", meaning[] = "\a\b\f\n\r\t\v\\\"'";
	const char *known = *r->at ? strchr(plain, *r->at) : NULL;
	uint32_t code = 0;
	unsigned digits = *r->at == 'x' ? 2 : *r->at == 'u' ? 4 : *r->at == 'U' ? 8 : 0;

	if (known) {
		buf_add_char(out, meaning[known - plain]);
		r->at++;
		return 0;
	}
	if (digits && hex_of(r->at + 1, digits, &code) == 0) {
		r->at += 1 + digits;
		if (digits > 2)
			return add_utf8(out, code);
		buf_add_char(out, (char)code);
		return code ? 0 : -EINVAL;
	}
	if (octal_of(r->at, &code) < 0)
		return -EINVAL;
	r->at += 3;
	buf_add_char(out, (char)code);
	return 0;
}

/* "…", '…' with escapes, or `…` without. @ret is the caller's. */
static int read_string(struct reader *r, char **ret)
{
	cleanup_buf struct buf text = { .max = 1u << 16 };
	char quote = *r->at;
	char *taken;

	if (quote != '"' && quote != '\'' && quote != '`')
		return refuse(r, "a quoted text");
	r->at++;
	buf_add_str(&text, "");
	while (*r->at && *r->at != quote) {
		char c = *r->at++;

		if (c != '\\' || quote == '`')
			buf_add_char(&text, c);
		else if (read_escape(r, &text) < 0)
			return refuse(r, "an escape such as \\n, \\\" or \\x41");
	}
	if (*r->at != quote)
		return refuse(r, "the end of a quoted text");
	r->at++;
	if (text.len && !parse_is_utf8(text.data, text.len))
		return refuse(r, "UTF-8 in a quoted text");
	taken = text.len ? buf_take(&text, NULL) : strdup("");
	if (!taken)
		return -ENOMEM;
	*ret = taken;
	return 0;
}

static int read_name(struct reader *r, char **ret)
{
	const char *begin = r->at;

	if (*begin == '"' || *begin == '\'' || *begin == '`')
		return read_string(r, ret);
	if (!isalpha((unsigned char)*begin) && *begin != '_')
		return refuse(r, "the name of a label");
	while (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '.')
		r->at++;
	*ret = strndup(begin, (size_t)(r->at - begin));
	return *ret ? 0 : -ENOMEM;
}

static int read_kind(struct reader *r, enum matcher_kind *ret)
{
	static const struct {
		const char *text;
		enum matcher_kind kind;
	} kinds[] = {
		{ "=~", MATCHER_REGEX },
		{ "!~", MATCHER_NOT_REGEX },
		{ "!=", MATCHER_NOT_EQUAL },
		{ "=", MATCHER_EQUAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t len = strlen(kinds[i].text);

		if (strncmp(r->at, kinds[i].text, len) != 0)
			continue;
		r->at += len;
		*ret = kinds[i].kind;
		return 0;
	}
	return refuse(r, "=, !=, =~ or !~");
}

/* RE2's syntax is a part of PCRE2's, as far as people write it. */
static int compile(struct reader *r, struct matcher *matcher)
{
	pcre2_compile_context *context;
	PCRE2_SIZE at = 0;
	int why = 0;

	if (strlen(matcher->value) > SELECTOR_PATTERN_MAX)
		return err_set(r->err, EINVAL, "InvalidParam", r->field,
			       "a regular expression of %s has more than %u bytes", r->field,
			       SELECTOR_PATTERN_MAX);
	context = pcre2_compile_context_create(NULL);
	matcher->seen = calloc(1, sizeof(*matcher->seen));
	if (!context || !matcher->seen) {
		pcre2_compile_context_free(context);
		return -ENOMEM;
	}
	(void)pcre2_set_parens_nest_limit(context, NESTING_MAX);
	matcher->pattern = pcre2_compile((PCRE2_SPTR)matcher->value, strlen(matcher->value),
					 PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF |
						 PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C |
						 PCRE2_NO_AUTO_CAPTURE,
					 &why, &at, context);
	pcre2_compile_context_free(context);
	if (!matcher->pattern) {
		PCRE2_UCHAR text[120] = "";

		(void)pcre2_get_error_message(why, text, sizeof(text));
		return err_set(
			r->err, EINVAL, "InvalidParam", r->field,
			"the regular expression '%.80s' of label %.64s is wrong at byte %zu: %s",
			matcher->value, matcher->name, (size_t)at, (char *)text);
	}
	u64map_init(&matcher->seen->verdicts, SEEN_MAX);
	return 0;
}

static int read_matcher(struct reader *r, struct matcher *ret)
{
	int rc = read_name(r, &ret->name);

	if (rc < 0)
		return rc;
	skip_blanks(r);
	rc = read_kind(r, &ret->kind);
	skip_blanks(r);
	if (rc == 0)
		rc = read_string(r, &ret->value);
	if (rc == 0 && (ret->kind == MATCHER_REGEX || ret->kind == MATCHER_NOT_REGEX))
		rc = compile(r, ret);
	return rc;
}

static int read_matchers(struct reader *r, struct label_selector *selector)
{
	skip_blanks(r);
	while (*r->at != '}') {
		int rc;

		if (selector->count == SELECTOR_MATCHERS_MAX)
			return err_set(r->err, EINVAL, "InvalidParam", r->field,
				       "%s has more than %u matchers", r->field,
				       SELECTOR_MATCHERS_MAX);
		rc = read_matcher(r, &selector->items[selector->count++]);
		if (rc < 0)
			return rc;
		skip_blanks(r);
		if (*r->at != ',' && *r->at != '}')
			return refuse(r, "a comma or }");
		r->at += *r->at == ',';
		skip_blanks(r);
	}
	r->at++;
	skip_blanks(r);
	return *r->at ? refuse(r, "nothing more") : 0;
}

int selector_read(const char *text, const char *field, struct label_selector *ret, struct err *err)
{
	struct reader r = { .text = text, .at = text, .field = field, .err = err };
	struct label_selector selector = { 0 };
	int rc = 0;

	skip_blanks(&r);
	if (*r.at) {
		if (*r.at != '{')
			return refuse(&r, "{");
		r.at++;
		rc = read_matchers(&r, &selector);
	}
	if (rc < 0) {
		label_selector_deinit(&selector);
		return rc;
	}
	*ret = selector;
	return 0;
}

void label_selector_deinit(struct label_selector *selector)
{
	for (size_t i = 0; i < selector->count; i++) {
		struct matcher *matcher = &selector->items[i];

		free(matcher->name);
		free(matcher->value);
		pcre2_code_free(matcher->pattern);
		if (matcher->seen)
			u64map_deinit(&matcher->seen->verdicts);
		free(matcher->seen);
	}
	*selector = (struct label_selector){ 0 };
}

/* ---- matching -------------------------------------------------------------------------------- */

static int too_slow(const struct matcher *matcher, struct err *err)
{
	return err_set(
		err, EINVAL, "InvalidParam", matcher->name,
		"the regular expression '%.80s' of label %.64s takes too long: make it simpler",
		matcher->value, matcher->name);
}

static int match(const struct matcher *matcher, const char *value, struct err *err)
{
	pcre2_match_data *data = pcre2_match_data_create(1, NULL);
	pcre2_match_context *context = pcre2_match_context_create(NULL);
	int rc = PCRE2_ERROR_NOMEMORY;

	if (data && context) {
		(void)pcre2_set_match_limit(context, STEPS_MAX);
		(void)pcre2_set_depth_limit(context, STEPS_MAX);
		(void)pcre2_set_heap_limit(context, HEAP_MAX_KB);
		rc = pcre2_match(matcher->pattern, (PCRE2_SPTR)value, strlen(value), 0, 0, data,
				 context);
	}
	pcre2_match_data_free(data);
	pcre2_match_context_free(context);
	if (rc == PCRE2_ERROR_NOMEMORY)
		return -ENOMEM;
	if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT ||
	    rc == PCRE2_ERROR_HEAPLIMIT)
		return too_slow(matcher, err);
	return rc >= 0; /* a value that is not UTF-8 matches nothing */
}

/* The same few values come again and again, such as the names of threads. */
static int match_once(struct label_selector *selector, struct matcher *matcher, const char *value,
		      struct err *err)
{
	uint64_t hash = hash_bytes(value, strlen(value), 0), known, begin_ns;
	int rc;

	if (u64map_get(&matcher->seen->verdicts, hash, &known))
		return (int)known;
	if (selector->spent_ns > TIME_MAX_NS)
		return too_slow(matcher, err);
	begin_ns = clock_monotonic_ns();
	rc = match(matcher, value, err);
	selector->spent_ns += clock_monotonic_ns() - begin_ns;
	if (rc >= 0 && u64map_put(&matcher->seen->verdicts, hash, (uint64_t)rc) == -ENOMEM)
		return -ENOMEM;
	return rc;
}

int matcher_test(struct label_selector *selector, struct matcher *matcher, const char *value,
		 struct err *err)
{
	int rc;

	switch (matcher->kind) {
	case MATCHER_EQUAL:
		return strcmp(matcher->value, value) == 0;
	case MATCHER_NOT_EQUAL:
		return strcmp(matcher->value, value) != 0;
	default:
		rc = match_once(selector, matcher, value, err);
		return rc < 0 ? rc : rc == (matcher->kind == MATCHER_REGEX);
	}
}
