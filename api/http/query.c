// SPDX-License-Identifier: Apache-2.0
#include "api/http/query.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/profile/profile.h"

#define QUERY_NAME_MAX 64 /* bytes of a parameter's name, or of a word that it may have, and NUL */

void query_deinit(struct query *query)
{
	for (unsigned i = 0; i < query->count; i++)
		free(query->values[i].text);
	*query = (struct query){ 0 };
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int query_decode(const char *text, size_t len, bool plus_is_blank, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '%') {
			int high = i + 2 < len ? hex_digit(text[i + 1]) : -1;
			int low = i + 2 < len ? hex_digit(text[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -EINVAL;
			c = (unsigned char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && plus_is_blank) {
			c = ' ';
		}
		if (c < 0x20 || c == 0x7f)
			return -EINVAL;
		if (n + 1 >= size)
			return -E2BIG;
		out[n++] = (char)c;
	}
	if (!parse_is_utf8(out, n))
		return -EINVAL;
	out[n] = '\0';
	return 0;
}

/* `now`, `now-1h`, `-1h`, RFC 3339, Unix seconds. */
static int parse_time(const char *text, uint64_t now_ns, uint64_t *ret)
{
	uint64_t back_ns = 0;

	if (strcmp(text, "now") == 0) {
		*ret = now_ns;
		return 0;
	}
	if (text_begins(text, "now-") || text[0] == '-') {
		int rc = parse_duration_ns(text + (text[0] == '-' ? 1 : 4), &back_ns);

		if (rc < 0 || back_ns >= now_ns)
			return -EINVAL;
		*ret = now_ns - back_ns;
		return 0;
	}
	return clock_parse_rfc3339(text, ret);
}

bool query_word_in_list(const char *word, const char *list)
{
	size_t len = strlen(word);

	if (strchr(word, ' '))
		return false;
	for (const char *at = list; len > 0 && (at = strstr(at, word)) != NULL; at += len) {
		bool starts = at == list || at[-1] == ' ';

		if (starts && (at[len] == ' ' || at[len] == '\0'))
			return true;
	}
	return false;
}

static bool words_in_list(const char *words, const char *list)
{
	char word[QUERY_NAME_MAX];
	size_t len;

	for (;; words += len + 1) {
		len = strcspn(words, ",");
		if (len >= sizeof(word))
			return false;
		memcpy(word, words, len);
		word[len] = '\0';
		if (!query_word_in_list(word, list))
			return false;
		if (!words[len])
			return true;
	}
}

static int bad(struct err *err, const struct query_spec *spec, const char *expected)
{
	return err_set(err, EINVAL, "InvalidParam", spec->name, "query parameter %s must be %s",
		       spec->name, expected);
}

static int bad_type(struct err *err, const struct query_spec *spec)
{
	char words[PROFILE_WORDS_SIZE];

	return err_set(err, EINVAL, "InvalidParam", spec->name,
		       "query parameter %s must be a profile type (%s)", spec->name,
		       profile_type_words(0, words));
}

static int bad_range(struct err *err, const struct query_spec *spec, const char *what)
{
	return err_set(err, EINVAL, "InvalidParam", spec->name,
		       "query parameter %s must be %s from %llu to %llu", spec->name, what,
		       (unsigned long long)spec->min, (unsigned long long)spec->max);
}

static int check_value(struct query_value *value, uint64_t now_ns, struct err *err)
{
	const struct query_spec *spec = value->spec;
	enum profile_type type;
	bool flag;
	size_t max;

	switch (spec->type) {
	case QUERY_TEXT:
		max = spec->max ? spec->max : QUERY_VALUE_MAX;
		if (strlen(value->text) < spec->min || strlen(value->text) > max)
			return err_set(err, EINVAL, "InvalidParam", spec->name,
				       "query parameter %s must have %llu to %zu characters",
				       spec->name, (unsigned long long)spec->min, max);
		return 0;
	case QUERY_UINT:
		if (parse_u64(value->text, spec->min, spec->max, &value->number) < 0)
			return bad_range(err, spec, "a whole number");
		return 0;
	case QUERY_NUMBER:
		if (parse_double(value->text, (double)spec->min, (double)spec->max, &value->real) < 0)
			return bad_range(err, spec, "a number");
		return 0;
	case QUERY_BOOL:
		if (parse_bool(value->text, &flag) < 0)
			return bad(err, spec, "true or false");
		value->number = flag;
		return 0;
	case QUERY_TIME:
		if (parse_time(value->text, now_ns, &value->number) < 0)
			return bad(err, spec, "a time: RFC 3339, Unix seconds, or now-1h");
		return 0;
	case QUERY_DURATION:
		if (parse_duration_ns(value->text, &value->number) < 0 ||
		    value->number < spec->min * NS_PER_S || value->number > spec->max * NS_PER_S)
			return bad_range(err, spec, "a duration such as 5m, in seconds");
		return 0;
	case QUERY_WORD:
		if (!*value->text && (spec->flags & QUERY_EMPTY))
			return 0;
		if (!query_word_in_list(value->text, spec->words))
			return err_set(err, EINVAL, "InvalidParam", spec->name,
				       "query parameter %s must be one of: %s", spec->name,
				       spec->words);
		return 0;
	case QUERY_WORDS:
		if (!words_in_list(value->text, spec->words))
			return err_set(err, EINVAL, "InvalidParam", spec->name,
				       "query parameter %s must be some of these, separated by commas: %s", spec->name,
				       spec->words);
		return 0;
	case QUERY_PROFILE_TYPE:
		if (profile_type_parse(value->text, &type) < 0)
			return bad_type(err, spec);
		value->number = type;
		return 0;
	}
	return -EINVAL;
}

static const struct query_spec *find_spec(const struct query_spec *specs, const char *name)
{
	for (const struct query_spec *s = specs; s && s->name; s++)
		if (strcmp(s->name, name) == 0 || (s->alias && strcmp(s->alias, name) == 0))
			return s;
	return NULL;
}

static int add_pair(const char *pair, size_t len, const struct query_spec *specs, uint64_t now_ns,
		    struct query *query, struct err *err)
{
	const char *equals = memchr(pair, '=', len);
	size_t name_len = equals ? (size_t)(equals - pair) : len;
	const struct query_spec *spec;
	cleanup_free char *text = NULL;
	struct query_value value;
	char name[QUERY_NAME_MAX];
	int rc;

	if (query_decode(pair, name_len, true, name, sizeof(name)) < 0)
		return err_set(err, EINVAL, "InvalidParam", "query",
			       "the query holds a parameter name with bad encoding");
	spec = find_spec(specs, name);
	if (!spec)
		return err_set(err, EINVAL, "InvalidParam", name,
			       "unknown query parameter %s", name);
	if (!(spec->flags & QUERY_REPEATED) && query_has(query, spec->name))
		return err_set(err, EINVAL, "InvalidParam", spec->name,
			       "query parameter %s is given twice", spec->name);
	if (query->count == QUERY_PARAMS_MAX)
		return err_set(err, EINVAL, "InvalidParam", spec->name,
			       "more than %d query parameters", QUERY_PARAMS_MAX);
	text = malloc(QUERY_VALUE_MAX + 1);
	if (!text)
		return -ENOMEM;
	rc = query_decode(equals ? equals + 1 : "", equals ? len - name_len - 1 : 0, true, text,
			  QUERY_VALUE_MAX + 1);
	if (rc == -E2BIG)
		return err_set(err, EINVAL, "InvalidParam", spec->name,
			       "query parameter %s is longer than %d bytes", spec->name,
			       QUERY_VALUE_MAX);
	if (rc < 0)
		return bad(err, spec, "percent-encoded UTF-8 without control characters");
	value = (struct query_value){ .spec = spec, .text = text };
	rc = check_value(&value, now_ns, err);
	if (rc < 0)
		return rc;
	query->values[query->count++] = value;
	text = NULL;
	return 0;
}

int query_parse(const char *raw, const struct query_spec *specs, uint64_t now_ns, struct query *ret,
		struct err *err)
{
	struct query query = { .raw = raw ? raw : "" };
	int rc = 0;

	for (const char *at = query.raw; rc == 0 && *at != '\0';) {
		size_t len = strcspn(at, "&");

		if (len > 0)
			rc = add_pair(at, len, specs, now_ns, &query, err);
		at += len + (at[len] == '&');
	}
	for (const struct query_spec *s = specs; rc == 0 && s && s->name; s++)
		if ((s->flags & QUERY_REQUIRED) && !query_has(&query, s->name))
			rc = err_set(err, EINVAL, "InvalidParam", s->name,
				     "query parameter %s is required", s->name);
	if (rc < 0) {
		query_deinit(&query);
		return rc;
	}
	*ret = query;
	return 0;
}

static const struct query_value *find_value(const struct query *query, const char *name,
					    unsigned index)
{
	for (unsigned i = 0; i < query->count; i++)
		if (strcmp(query->values[i].spec->name, name) == 0 && index-- == 0)
			return &query->values[i];
	return NULL;
}

bool query_has(const struct query *query, const char *name)
{
	return find_value(query, name, 0) != NULL;
}

const char *query_text(const struct query *query, const char *name, const char *otherwise)
{
	const struct query_value *value = find_value(query, name, 0);

	return value ? value->text : otherwise;
}

uint64_t query_uint(const struct query *query, const char *name, uint64_t otherwise)
{
	const struct query_value *value = find_value(query, name, 0);

	return value ? value->number : otherwise;
}

double query_number(const struct query *query, const char *name, double otherwise)
{
	const struct query_value *value = find_value(query, name, 0);

	return value ? value->real : otherwise;
}

bool query_bool(const struct query *query, const char *name, bool otherwise)
{
	const struct query_value *value = find_value(query, name, 0);

	return value ? value->number != 0 : otherwise;
}

void query_replace(struct query *query, const char *name, const char *text)
{
	const struct query_value *value = find_value(query, name, 0);

	if (value)
		(void)snprintf(value->text, QUERY_VALUE_MAX + 1, "%s", text);
}

const char *query_nth(const struct query *query, const char *name, unsigned index)
{
	const struct query_value *value = find_value(query, name, index);

	return value ? value->text : NULL;
}
