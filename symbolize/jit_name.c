// SPDX-License-Identifier: Apache-2.0
#include "symbolize/jit_name.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/text.h"

static void put(char ret[JIT_NAME_SIZE], const char *text, size_t len)
{
	(void)snprintf(ret, JIT_NAME_SIZE, "%.*s", (int)(len < JIT_NAME_SIZE ? len : JIT_NAME_SIZE - 1),
		       text);
}

/* ":123" before *@end; moves @end to the colon. */
static bool take_number(const char *start, const char **end, uint32_t *ret)
{
	const char *at = *end;
	uint64_t value = 0;

	while (at > start && at[-1] >= '0' && at[-1] <= '9')
		at--;
	if (at == start || at[-1] != ':' || at == *end || *end - at > 9)
		return false;
	for (const char *digit = at; digit < *end; digit++)
		value = value * 10 + (uint64_t)(*digit - '0');
	*ret = (uint32_t)value;
	*end = at - 1;
	return true;
}

/* Finds the begin of the script's name. Names of functions and scripts may both contain spaces, but
 * scripts are mostly absolute paths or URLs. */
static const char *find_script(const char *start, const char *end)
{
	static const char *const begins[] = { " /", " node:", " file:", " http:", " https:", " [eval" };
	const char *last = NULL;

	for (const char *at = start; at < end; at++) {
		if (*at != ' ')
			continue;
		for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
			if ((size_t)(end - at) >= strlen(begins[i]) &&
			    memcmp(at, begins[i], strlen(begins[i])) == 0)
				return at;
		last = at;
	}
	return last;
}

/* ":line:column", of which V8 10 (Node 18) and older have the line alone. */
static bool take_place(const char *start, const char **end, uint32_t *ret_line,
		       uint32_t *ret_column)
{
	if (!take_number(start, end, ret_column))
		return false;
	if (take_number(start, end, ret_line))
		return true;
	*ret_line = *ret_column;
	*ret_column = 1;
	return *end > start && ((*end)[-1] < '0' || (*end)[-1] > '9');
}

/* "JS:*name /script.js:line:column": kind, tier, function, script. */
static bool parse_v8(const char *text, struct jit_name *ret)
{
	static const char *const kinds[] = { "JS:", "LazyCompile:", "Function:", "Script:", "Eval:" };
	const char *end = text + strlen(text), *start = NULL, *script;
	uint32_t line, column;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !start; i++)
		if (text_begins(text, kinds[i]))
			start = text + strlen(kinds[i]);
	if (!start)
		return false;
	if (*start && strchr("~^+*'", *start)) /* interpreted, baseline, mid-tier, optimized */
		start++;
	if (!take_place(start, &end, &line, &column))
		return false;
	script = find_script(start, end);
	if (!script)
		return false;
	if (script == start)
		put(ret->function, line == 1 && column == 1 ? "(top level)" : "(anonymous)", 11);
	else
		put(ret->function, start, (size_t)(script - start));
	put(ret->file, script + 1, (size_t)(end - script - 1));
	ret->start_line = line;
	return true;
}

static bool parse_python(const char *text, struct jit_name *ret)
{
	const char *file;

	if (!text_begins(text, "py::"))
		return false;
	text += 4;
	file = strchr(text, ':');
	if (!file || file == text)
		return false;
	put(ret->function, text, (size_t)(file - text));
	put(ret->file, file + 1, strlen(file + 1));
	ret->start_line = 0;
	return true;
}

/* "void [assembly] Name.Space.Type`1[System.__Canon]::Method(int32)[OptimizedTier1]": without the
 * tier. */
static bool parse_dotnet(const char *text, struct jit_name *ret)
{
	static const char *const tiers[] = { "[Unknown]",	    "[MinOptJitted]",	    "[Optimized]",
					     "[QuickJitted]",	    "[OptimizedTier1]",	    "[OptimizedTier1OSR]",
					     "[InstrumentedTier]",  "[InstrumentedTierOptimized]",
					     "[PreJIT]",	    "[PreJit-cold]" };
	const char *tier = strrchr(text, '[');

	for (size_t i = 0; tier && strstr(text, "::") && i < sizeof(tiers) / sizeof(tiers[0]); i++) {
		if (strcmp(tier, tiers[i]) != 0)
			continue;
		put(ret->function, text, (size_t)(tier - text));
		ret->file[0] = '\0';
		ret->start_line = 0;
		return true;
	}
	return false;
}

void jit_name_parse(const char *text, struct jit_name *ret)
{
	if (parse_v8(text, ret) || parse_python(text, ret) || parse_dotnet(text, ret))
		return;
	/* The JVM's map calls all of it one thing (jcmd Compiler.perfmap). */
	if (!strcmp(text, "Interpreter"))
		text = "[interpreter]";
	put(ret->function, text, strlen(text));
	ret->file[0] = '\0';
	ret->start_line = 0;
}
