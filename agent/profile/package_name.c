// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/package_name.h"

#include <string.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

size_t package_of_go(const char *symbol, char *out, size_t size)
{
	size_t end = strcspn(symbol, "[(:"), slash = 0, i, len = 0;
	const char *dot;

	for (i = 0; i < end; i++)
		if (symbol[i] == '/')
			slash = i + 1;
	dot = memchr(symbol + slash, '.', strlen(symbol + slash));
	if (!dot || dot == symbol + slash || dot > symbol + end)
		return 0;
	end = (size_t)(dot - symbol);
	for (i = 0; i < end && len + 1 < size; i++) {
		int high = -1, low = -1;

		if (symbol[i] == '%' && end - i > 2) {
			high = hex_digit(symbol[i + 1]);
			low = hex_digit(symbol[i + 2]);
		}
		if (high >= 0 && low >= 0 && (high || low)) {
			out[len++] = (char)(high << 4 | low);
			i += 2;
		} else {
			out[len++] = symbol[i];
		}
	}
	out[len] = 0;
	return len;
}

const char *package_of_path(const char *path, size_t *ret_len)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), tail = sizeof(deleted) - 1;
	const char *slash;

	if (len > tail && !strcmp(path + len - tail, deleted))
		len -= tail;
	slash = memrchr(path, '/', len);
	if (slash) {
		len -= (size_t)(slash + 1 - path);
		path = slash + 1;
	}
	*ret_len = len;
	return path;
}
