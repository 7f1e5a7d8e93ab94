// SPDX-License-Identifier: Apache-2.0
#include "api/http/json_in.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "agent/base/parse.h"
#include "api/http/query.h"

/* ---- syntax (RFC 8259) -------------------------------------------------------------------------
 */

struct scan {
	const char *start, *at, *end;
	size_t values, values_max;
	const char *wrong; /* what, NULL = fine so far */
};

static bool fail(struct scan *s, const char *what)
{
	if (!s->wrong)
		s->wrong = what;
	return false;
}

static void skip_blank(struct scan *s)
{
	while (s->at < s->end && strchr(" \t\n\r", *s->at) && *s->at)
		s->at++;
}

static bool scan_escape(struct scan *s)
{
	unsigned code = 0;

	if (s->at >= s->end)
		return fail(s, "string does not end");
	if (*s->at != 'u') {
		if (!*s->at || !strchr("\"\\/bfnrt", *s->at))
			return fail(s, "bad escape in a string");
		s->at++;
		return true;
	}
	if (s->end - s->at < 5)
		return fail(s, "string does not end");
	for (int i = 1; i <= 4; i++) {
		char c = s->at[i];

		code <<= 4;
		if (c >= '0' && c <= '9')
			code |= (unsigned)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			code |= (unsigned)((c | 0x20) - 'a' + 10);
		else
			return fail(s, "bad \\u escape");
	}
	if (code == 0)
		return fail(s, "\\u0000 is not accepted");
	s->at += 5;
	return true;
}

static bool scan_string(struct scan *s)
{
	s->at++;
	while (s->at < s->end) {
		unsigned char c = (unsigned char)*s->at++;

		if (c == '"')
			return true;
		if (c < 0x20)
			return fail(s, "control character in a string");
		if (c == '\\' && !scan_escape(s))
			return false;
	}
	return fail(s, "string does not end");
}

static bool scan_digits(struct scan *s)
{
	const char *first = s->at;

	while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
		s->at++;
	return s->at > first ? true : fail(s, "bad number");
}

static bool scan_number(struct scan *s)
{
	if (*s->at == '-')
		s->at++;
	if (s->at < s->end && *s->at == '0')
		s->at++;
	else if (!scan_digits(s))
		return false;
	if (s->at < s->end && *s->at == '.') {
		s->at++;
		if (!scan_digits(s))
			return false;
	}
	if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
		s->at++;
		if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
			s->at++;
		if (!scan_digits(s))
			return false;
	}
	return true;
}

static bool scan_word(struct scan *s, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0)
		return fail(s, "unexpected text");
	s->at += len;
	return true;
}

static bool scan_scalar(struct scan *s)
{
	switch (*s->at) {
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		return scan_number(s);
	}
}

static bool scan_name(struct scan *s)
{
	skip_blank(s);
	if (s->at >= s->end || *s->at != '"')
		return fail(s, "a member name in quotes is missing");
	if (!scan_string(s))
		return false;
	skip_blank(s);
	if (s->at >= s->end || *s->at != ':')
		return fail(s, "`:` is missing");
	s->at++;
	return true;
}

/* A value, without recursion: @stack holds the closing bracket of each open level. */
static bool scan_value(struct scan *s)
{
	char stack[JSON_IN_DEPTH_MAX];
	unsigned depth = 0;

	for (;;) {
		skip_blank(s);
		if (s->at >= s->end)
			return fail(s, "the text ends too early");
		if (++s->values > s->values_max)
			return fail(s, "too many values");
		if (*s->at == '{' || *s->at == '[') {
			char close = *s->at == '{' ? '}' : ']';

			if (depth == JSON_IN_DEPTH_MAX)
				return fail(s, "nested too deeply");
			stack[depth++] = close;
			s->at++;
			skip_blank(s);
			if (s->at >= s->end)
				return fail(s, "the text ends too early");
			if (*s->at != close) {
				if (close == '}' && !scan_name(s))
					return false;
				continue;
			}
		} else if (!scan_scalar(s)) {
			return false;
		}
		for (; depth > 0; depth--) {
			skip_blank(s);
			if (s->at >= s->end)
				return fail(s, "the text ends too early");
			if (*s->at != stack[depth - 1])
				break;
			s->at++;
		}
		if (depth == 0)
			return true;
		if (*s->at != ',')
			return fail(s, "`,` or a closing bracket is missing");
		s->at++;
		if (stack[depth - 1] == '}' && !scan_name(s))
			return false;
	}
}

static int check_text(const char *text, size_t len, size_t values_max, struct err *err)
{
	struct scan s = { .start = text, .at = text, .end = text + len, .values_max = values_max };

	if (!parse_is_utf8(text, len))
		return err_set(err, EINVAL, "InvalidBody", "body", "the body is not valid UTF-8");
	if (scan_value(&s)) {
		skip_blank(&s);
		if (s.at != s.end)
			(void)fail(&s, "text after the end of the value");
	}
	if (s.wrong)
		return err_set(err, EINVAL, "InvalidBody", "body",
			       "the body is not acceptable JSON: %s, at byte %zu", s.wrong,
			       (size_t)(s.at - s.start));
	return 0;
}

int json_in_check(const char *text, size_t len, struct err *err)
{
	return check_text(text, len, JSON_IN_MEMBERS_MAX, err);
}

int json_in_check_large(const char *text, size_t len, struct err *err)
{
	return check_text(text, len, SIZE_MAX, err);
}

/* ---- tree ------------------------------------------------------------------------------------ */

static int check_object(const cJSON *object, struct err *err)
{
	unsigned count = 0;

	for (const cJSON *a = object->child; a; a = a->next) {
		if (++count > JSON_IN_OBJECT_MAX)
			return err_set(err, EINVAL, "InvalidBody", "body",
				       "an object has more than %d members", JSON_IN_OBJECT_MAX);
		for (const cJSON *b = object->child; b != a; b = b->next)
			if (strcmp(a->string, b->string) == 0)
				return err_set(err, EINVAL, "InvalidBody", a->string,
					       "member %.100s is given twice", a->string);
	}
	return 0;
}

static int check_tree(const cJSON *item, struct err *err)
{
	int rc = cJSON_IsObject(item) ? check_object(item, err) : 0;

	/* Depth is bounded by json_in_check(). */
	for (const cJSON *c = item->child; rc == 0 && c; c = c->next)
		if (c->child)
			rc = check_tree(c, err);
	return rc;
}

int json_in_object(const char *text, size_t len, cJSON **ret, struct err *err)
{
	cleanup(json) cJSON *root = NULL;
	int rc;

	if (len == 0)
		return err_set(err, EINVAL, "InvalidBody", "body", "a JSON object is expected");
	rc = json_in_check(text, len, err);
	if (rc < 0)
		return rc;
	root = cJSON_ParseWithLength(text, len);
	if (!root)
		return err_set(err, EINVAL, "InvalidBody", "body",
			       "the body is not acceptable JSON: unpaired surrogate or number");
	if (!cJSON_IsObject(root))
		return err_set(err, EINVAL, "InvalidBody", "body", "a JSON object is expected");
	rc = check_tree(root, err);
	if (rc < 0)
		return rc;
	*ret = take_ptr(root);
	return 0;
}

static const cJSON *member(const cJSON *object, const char *name)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

	return item && !cJSON_IsNull(item) ? item : NULL;
}

static int absent(const char *name, bool required, struct err *err)
{
	return required ? err_set(err, EINVAL, "InvalidParam", name, "member %s is required", name)
			: 0;
}

int json_in_text(const cJSON *object, const char *name, bool required, size_t max_bytes,
		 const char **ret, struct err *err)
{
	const cJSON *item = member(object, name);

	if (!item)
		return absent(name, required, err);
	if (!cJSON_IsString(item))
		return err_set(err, EINVAL, "InvalidParam", name, "member %s must be a string",
			       name);
	if (strlen(item->valuestring) > max_bytes || (required && !*item->valuestring))
		return err_set(err, EINVAL, "InvalidParam", name,
			       "member %s must have %s%zu bytes", name, required ? "1 to " : "at most ",
			       max_bytes);
	for (const char *c = item->valuestring; *c; c++)
		if ((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t')
			return err_set(err, EINVAL, "InvalidParam", name,
				       "member %s holds a control character", name);
	*ret = item->valuestring;
	return 0;
}

int json_in_uint(const cJSON *object, const char *name, bool required, uint64_t min, uint64_t max,
		 uint64_t *ret, struct err *err)
{
	const cJSON *item = member(object, name);

	if (!item)
		return absent(name, required, err);
	if (cJSON_IsNumber(item) && item->valuedouble >= (double)min && item->valuedouble <= (double)max &&
	    trunc(item->valuedouble) == item->valuedouble) {
		*ret = (uint64_t)item->valuedouble;
		return 0;
	}
	return err_set(err, EINVAL, "InvalidParam", name,
		       "member %s must be a whole number from %llu to %llu", name,
		       (unsigned long long)min, (unsigned long long)max);
}

int json_in_number(const cJSON *object, const char *name, bool required, double min, double max,
		   double *ret, struct err *err)
{
	const cJSON *item = member(object, name);

	if (!item)
		return absent(name, required, err);
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= min) || !(item->valuedouble <= max))
		return err_set(err, EINVAL, "InvalidParam", name,
			       "member %s must be a number from %g to %g", name, min, max);
	*ret = item->valuedouble;
	return 0;
}

int json_in_bool(const cJSON *object, const char *name, bool *ret, struct err *err)
{
	const cJSON *item = member(object, name);

	if (!item)
		return 0;
	if (!cJSON_IsBool(item))
		return err_set(err, EINVAL, "InvalidParam", name, "member %s must be true or false",
			       name);
	*ret = cJSON_IsTrue(item);
	return 0;
}

int json_in_type(const cJSON *object, const char *name, bool required, enum profile_type *ret,
		 struct err *err)
{
	char words[PROFILE_WORDS_SIZE];
	const char *word = NULL;
	int rc = json_in_text(object, name, required, 64, &word, err);

	if (rc < 0 || !word)
		return rc;
	if (profile_type_parse(word, ret) < 0)
		return err_set(err, EINVAL, "InvalidParam", name,
			       "member %s must be a profile type (%s)", name, profile_type_words(0, words));
	return 0;
}

/* ---- warnings -------------------------------------------------------------------------------- */

void json_warn(struct json_warnings *warnings, const char *fmt, ...)
{
	va_list args;

	if (warnings->count == JSON_IN_WARNINGS_MAX)
		return;
	va_start(args, fmt);
	(void)vsnprintf(warnings->text[warnings->count++], sizeof(warnings->text[0]), fmt, args);
	va_end(args);
}

void json_in_unknown(const cJSON *object, const char *known, struct json_warnings *warnings)
{
	for (const cJSON *c = object->child; c; c = c->next)
		if (!query_word_in_list(c->string, known))
			json_warn(warnings, "member %.100s is not known and was ignored", c->string);
}

void warnings_json(struct json_out *json, const struct json_warnings *warnings)
{
	if (!warnings || !warnings->count)
		return;
	json_out_open(json, "warnings", '[');
	for (unsigned i = 0; i < warnings->count; i++)
		json_out_text(json, NULL, warnings->text[i]);
	json_out_close(json, ']');
}
