// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/hotspot_names.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the UTF-8 character at @at; 0 = there is none that may be printed. */
static size_t char_bytes(const uint8_t *at, size_t left)
{
	size_t bytes = at[0] < 0x80		       ? 1
		       : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
		       : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
		       : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
						       : 0;

	if (!bytes || bytes > left || (bytes == 1 && (at[0] < 0x20 || at[0] == 0x7f)))
		return 0;
	for (size_t i = 1; i < bytes; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	/* overlong forms, surrogates (Java writes them so), beyond the last character, controls */
	if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
	    (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90) ||
	    (at[0] == 0xc2 && at[1] < 0xa0))
		return 0;
	return bytes;
}

struct out {
	char *at;
	size_t left; /* without the terminator */
};

static void add_text(struct out *out, const uint8_t *text, size_t len, char slash)
{
	while (len && out->left) {
		size_t bytes = char_bytes(text, len);

		if (bytes > out->left) {
			out->left = 0; /* nothing follows what is cut */
			break;
		}
		if (bytes)
			memcpy(out->at, text, bytes);
		else
			*out->at = '?';
		if (*out->at == '/')
			*out->at = slash;
		bytes = bytes ? bytes : 1;
		out->at += bytes;
		out->left -= bytes;
		text += bytes;
		len -= bytes;
	}
	*out->at = '\0';
}

static struct out out_of(char *ret, size_t max)
{
	*ret = '\0';
	return (struct out){ ret, max - 1 };
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* Hidden classes end in "+0x" or "/0x" and an address. */
static size_t without_address(const uint8_t *name, size_t len)
{
	for (size_t i = 1; i + 3 <= len; i++)
		if ((name[i] == '+' || name[i] == '/') && name[i + 1] == '0' && name[i + 2] == 'x')
			return i;
	return len;
}

/* Classes that are numbered as they are made. */
static size_t without_number(const uint8_t *name, size_t len)
{
	static const char *const numbered[] = { "$$Lambda$", "$Proxy", "MethodAccessor",
						"ConstructorAccessor" };
	size_t end = len;

	while (end && is_digit(name[end - 1]))
		end--;
	if (end == len)
		return len;
	for (size_t i = 0; i < sizeof(numbered) / sizeof(numbered[0]); i++) {
		size_t bytes = strlen(numbered[i]);

		if (end >= bytes && !memcmp(name + end - bytes, numbered[i], bytes))
			return end - (name[end - 1] == '$');
	}
	return len;
}

void hotspot_function_name(const void *class_name, size_t class_len, const void *method,
			   size_t method_len, char *ret, size_t max)
{
	struct out out = out_of(ret, max);

	class_len = without_number(class_name, without_address(class_name, class_len));
	add_text(&out, class_name, class_len, '.');
	add_text(&out, (const uint8_t *)".", class_len ? 1 : 0, '.');
	add_text(&out, method, method_len, '/');
}

void hotspot_file_name(const void *class_name, size_t class_len, const void *file, size_t file_len,
		       char *ret, size_t max)
{
	struct out out = out_of(ret, max);
	const uint8_t *name = class_name;

	class_len = without_address(name, class_len);
	while (class_len && name[class_len - 1] != '/')
		class_len--;
	if (!file_len)
		return;
	add_text(&out, name, class_len, '/');
	add_text(&out, file, file_len, '/');
}

void hotspot_plain_name(const void *text, size_t len, char *ret, size_t max)
{
	struct out out = out_of(ret, max);

	add_text(&out, text, len, '/');
}
