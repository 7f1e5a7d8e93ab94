// SPDX-License-Identifier: Apache-2.0
#include "agent/base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static int parse_digits(const char **text, uint64_t *ret)
{
	const char *at = *text;
	uint64_t value = 0;

	if (!isdigit((unsigned char)*at))
		return -EINVAL;
	for (; isdigit((unsigned char)*at); at++)
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return -ERANGE;
	*text = at;
	*ret = value;
	return 0;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t value;
	int rc = parse_digits(&text, &value);

	if (rc < 0)
		return rc;
	if (*text)
		return -EINVAL;
	if (value < min || value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

int parse_double(const char *text, double min, double max, double *ret)
{
	char *end;
	double value;

	if (!isdigit((unsigned char)*text) && *text != '-' && *text != '.')
		return -EINVAL;
	value = strtod(text, &end);
	if (end == text || *end || !isfinite(value))
		return -EINVAL;
	if (value < min || value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

int parse_bool(const char *text, bool *ret)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = { { "true", true }, { "false", false }, { "yes", true }, { "no", false },
		      { "on", true },	{ "off", false },   { "1", true },   { "0", false } };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(text, words[i].word)) {
			*ret = words[i].value;
			return 0;
		}
	return -EINVAL;
}

int parse_size_bytes(const char *text, uint64_t *ret)
{
	static const struct {
		char suffix;
		unsigned shift;
	} units[] = { { 'K', 10 }, { 'M', 20 }, { 'G', 30 }, { 'T', 40 } };
	uint64_t value;
	unsigned shift = 0;
	int rc = parse_digits(&text, &value);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(units) && *text; i++)
		if (toupper((unsigned char)*text) == units[i].suffix) {
			shift = units[i].shift;
			text++;
			break;
		}
	if (*text)
		return -EINVAL;
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = value << shift;
	return 0;
}

int parse_duration_ns(const char *text, uint64_t *ret)
{
	static const struct {
		const char *suffix;
		uint64_t ns;
	} units[] = { { "ms", 1000000ull },	    { "s", 1000000000ull },
		      { "m", 60000000000ull },	    { "h", 3600000000000ull },
		      { "d", 86400000000000ull } };
	uint64_t value;
	int rc = parse_digits(&text, &value);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(text, units[i].suffix)) {
			if (__builtin_mul_overflow(value, units[i].ns, &value))
				return -ERANGE;
			*ret = value;
			return 0;
		}
	return -EINVAL;
}

bool parse_is_name(const char *text)
{
	size_t len = strlen(text);

	return len >= 1 && len <= 64 &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
		       len;
}

/* Length of the well-formed UTF-8 sequence at @at, 0 if none (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *at, size_t left)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t len;

	if (at[0] < 0x80)
		return at[0] != 0;
	if (at[0] < 0xc2 || at[0] > 0xf4)
		return 0;
	len = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
	if (len > left)
		return 0;
	if (at[0] == 0xe0)
		low = 0xa0;
	else if (at[0] == 0xed)
		high = 0x9f;
	else if (at[0] == 0xf0)
		low = 0x90;
	else if (at[0] == 0xf4)
		high = 0x8f;
	if (at[1] < low || at[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if (at[i] < 0x80 || at[i] > 0xbf)
			return 0;
	return len;
}

bool parse_is_utf8(const char *text, size_t len)
{
	const unsigned char *at = (const unsigned char *)text;

	while (len) {
		size_t step = utf8_length(at, len);

		if (!step)
			return false;
		at += step;
		len -= step;
	}
	return true;
}
