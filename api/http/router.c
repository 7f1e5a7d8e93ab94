// SPDX-License-Identifier: Apache-2.0
#include "api/http/router.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct segment {
	const char *at;
	size_t len;
};

/* The next segment of @at, moved behind it; false at the end. "/a/" has the segments "a" and "". */
static bool next_segment(const char **at, const char *end, struct segment *ret)
{
	const char *stop;

	if (*at >= end || **at != '/')
		return false;
	stop = memchr(*at + 1, '/', (size_t)(end - *at - 1));
	if (!stop)
		stop = end;
	*ret = (struct segment){ *at + 1, (size_t)(stop - *at - 1) };
	*at = stop;
	return true;
}

static int decode_param(const struct segment *text, const struct segment *name, char *out,
			struct err *err)
{
	int rc = query_decode(text->at, text->len, false, out, HTTP_SEGMENT_MAX);
	char field[64];

	(void)snprintf(field, sizeof(field), "%.*s", (int)(name->len - 2), name->at + 1);
	if (rc == -E2BIG)
		return err_set(err, EINVAL, "InvalidParam", field,
			       "path parameter %s is longer than %d bytes", field,
			       HTTP_SEGMENT_MAX - 1);
	if (rc < 0)
		return err_set(err, EINVAL, "InvalidParam", field,
			       "path parameter %s is not percent-encoded UTF-8", field);
	return 0;
}

/* 1 = matches, 0 = does not, negative = matches with a bad parameter. */
static int match(const char *pattern, const char *path, const char *path_end,
		 char params[HTTP_PATH_PARAMS_MAX][HTTP_SEGMENT_MAX], struct err *err)
{
	const char *pattern_end = pattern + strlen(pattern);
	struct segment names[HTTP_PATH_PARAMS_MAX], texts[HTTP_PATH_PARAMS_MAX];
	unsigned count = 0;

	for (;;) {
		struct segment want, have;
		bool more = next_segment(&pattern, pattern_end, &want);

		if (more != next_segment(&path, path_end, &have))
			return 0;
		if (!more)
			break;
		if (want.len > 2 && want.at[0] == '{') {
			if (have.len == 0 || count == HTTP_PATH_PARAMS_MAX)
				return 0;
			names[count] = want;
			texts[count++] = have;
		} else if (want.len != have.len || memcmp(want.at, have.at, want.len) != 0) {
			return 0;
		}
	}
	if (path != path_end)
		return 0;
	for (unsigned i = 0; i < count; i++) {
		int rc = decode_param(&texts[i], &names[i], params[i], err);

		if (rc < 0)
			return rc;
	}
	return 1;
}

static void add_method(char allow[64], const char *method)
{
	size_t len = strlen(allow);

	if (!strstr(allow, method))
		(void)snprintf(allow + len, 64 - len, "%s%s", len ? ", " : "", method);
}

int router_find(const struct route_table *table, const char *method, const char *path, size_t len,
		const struct route **ret, char params[HTTP_PATH_PARAMS_MAX][HTTP_SEGMENT_MAX],
		char allow[64], struct err *err)
{
	const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
	const char *literal = NULL;

	allow[0] = '\0';
	for (unsigned i = 0; i < table->count; i++) {
		const struct route *route = &table->routes[i];
		int rc;

		/* Once a path of literals matched, a `{name}` pattern is another resource. */
		if (literal && strcmp(literal, route->pattern) != 0)
			continue;
		rc = match(route->pattern, path, path + len, params, err);
		if (rc < 0)
			return rc;
		if (rc == 0)
			continue;
		if (strcmp(route->method, wanted) == 0) {
			*ret = route;
			return 0;
		}
		literal = route->pattern;
		add_method(allow, route->method);
		if (strcmp(route->method, "GET") == 0)
			add_method(allow, "HEAD");
	}
	return allow[0] ? -EPERM : -ENOENT;
}
