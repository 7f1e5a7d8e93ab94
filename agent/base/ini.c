// SPDX-License-Identifier: Apache-2.0
#include "agent/base/ini.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "agent/base/text.h"

static char *trim(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

static void cut_comment(char *text)
{
	for (char *at = text; (at = strchr(at, ';')); at++) {
		if (at > text && isspace((unsigned char)at[-1])) {
			*at = '\0';
			return;
		}
	}
}

/* "[section]" -> "section"; NULL: not closed, empty, or followed by something. */
static const char *read_section(char *line)
{
	char *end = strchr(line, ']');

	if (!end)
		return NULL;
	*end = '\0';
	cut_comment(end + 1);
	line = trim(line + 1);
	return *line && !*trim(end + 1) ? line : NULL;
}

/* false: no key, or refused. */
static bool read_key(char *line, const char *section, ini_visit_fn visit, void *ctx)
{
	char *equals = line + strcspn(line, "=:"), *key;

	if (!*equals)
		return false;
	*equals = '\0';
	cut_comment(equals + 1);
	key = trim(line);
	return *key && visit(ctx, section, key, trim(equals + 1)) == 0;
}

unsigned ini_visit(char *text, ini_visit_fn visit, void *ctx)
{
	const char *section = "";
	unsigned number = 0;

	if (text_begins(text, "\xef\xbb\xbf"))
		text += 3;
	for (char *line; (line = strsep(&text, "\n"));) {
		number++;
		line = trim(line);
		if (!*line || *line == ';' || *line == '#')
			continue;
		if (*line != '[') {
			if (!read_key(line, section, visit, ctx))
				return number;
			continue;
		}
		section = read_section(line);
		if (!section || visit(ctx, section, NULL, NULL) != 0)
			return number;
	}
	return 0;
}
