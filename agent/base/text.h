/* SPDX-License-Identifier: Apache-2.0 */
/* Beginnings and ends of texts. Pure. */
#ifndef PROFD_BASE_TEXT_H
#define PROFD_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool text_begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* With one of the first @count texts of @with. */
static inline bool text_begins_any(const char *text, const char *const *with, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (text_begins(text, with[i]))
			return true;
	return false;
}

/* The last part of @path, inside of it. */
static inline const char *text_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

#endif
