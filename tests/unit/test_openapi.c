// SPDX-License-Identifier: Apache-2.0
/* openapi.yaml and the route table say the same, in both directions; the YAML reader itself. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "api/assets.h"
#include "api/json_in.h"
#include "api/router.h"
#include "api/yaml_json.h"

static cJSON *document(void)
{
	struct buf out = { 0 };
	struct err err = { 0 };
	cJSON *doc;

	if (yaml_to_json(asset_openapi_yaml, &out, &err) < 0)
		fail_msg("openapi.yaml: %s", err.text);
	doc = cJSON_Parse(out.data);
	assert_non_null(doc);
	buf_deinit(&out);
	return doc;
}

/* "#/components/a/b" */
static const cJSON *resolve(const cJSON *doc, const cJSON *item)
{
	const cJSON *ref = cJSON_GetObjectItem(item, "$ref");
	char path[256], *save = NULL;

	if (!ref)
		return item;
	(void)snprintf(path, sizeof(path), "%s", ref->valuestring + 2);
	for (char *part = strtok_r(path, "/", &save); part && doc; part = strtok_r(NULL, "/", &save))
		doc = cJSON_GetObjectItemCaseSensitive(doc, part);
	if (!doc)
		fail_msg("%s leads nowhere", ref->valuestring);
	return doc;
}

static const struct route *find_route(const char *method, const char *pattern)
{
	for (unsigned i = 0; i < route_count; i++)
		if (strcasecmp(routes[i].method, method) == 0 &&
		    strcmp(routes[i].pattern, pattern) == 0)
			return &routes[i];
	return NULL;
}

static bool has_spec(const struct route *route, const char *name)
{
	for (const struct query_spec *s = route->params; s && s->name; s++)
		if (strcmp(s->name, name) == 0)
			return true;
	return false;
}

static void check_parameters(const cJSON *doc, const struct route *route, const cJSON *operation)
{
	const cJSON *list = cJSON_GetObjectItem(operation, "parameters");
	unsigned in_query = 0, in_path = 0, in_pattern = 0, in_table = 0;

	for (const cJSON *p = list ? list->child : NULL; p; p = p->next) {
		const cJSON *param = resolve(doc, p);
		const char *name = cJSON_GetObjectItem(param, "name")->valuestring;
		const char *in = cJSON_GetObjectItem(param, "in")->valuestring;
		char slot[64];

		(void)snprintf(slot, sizeof(slot), "{%s}", name);
		if (strcmp(in, "query") == 0) {
			in_query++;
			if (!has_spec(route, name))
				fail_msg("%s: parameter %s is not in the route table",
					 route->pattern, name);
		} else if (strcmp(in, "path") == 0) {
			in_path++;
			if (!strstr(route->pattern, slot))
				fail_msg("%s has no %s", route->pattern, slot);
		}
	}
	for (const struct query_spec *s = route->params; s && s->name; s++)
		in_table++;
	for (const char *at = route->pattern; (at = strchr(at, '{')); at++)
		in_pattern++;
	if (in_query != in_table || in_path != in_pattern)
		fail_msg("%s %s: %u of %u query and %u of %u path parameters are described",
			 route->method, route->pattern, in_query, in_table, in_path, in_pattern);
}

static void test_routes(void **state)
{
	cleanup(json) cJSON *doc = document();
	const cJSON *paths = cJSON_GetObjectItem(doc, "paths");
	unsigned described = 0;

	(void)state;
	for (const cJSON *path = paths->child; path; path = path->next) {
		for (const cJSON *operation = path->child; operation; operation = operation->next) {
			const struct route *route = find_route(operation->string, path->string);

			if (!route)
				fail_msg("%s %s is described but not served", operation->string,
					 path->string);
			check_parameters(doc, route, operation);
			assert_non_null(cJSON_GetObjectItem(operation, "operationId"));
			assert_non_null(cJSON_GetObjectItem(operation, "summary"));
			assert_non_null(cJSON_GetObjectItem(operation, "responses"));
			if (!!(route->flags & ROUTE_JSON) !=
			    !!cJSON_GetObjectItem(operation, "requestBody"))
				fail_msg("%s %s: body", route->method, route->pattern);
			described++;
		}
	}
	if (described != route_count)
		fail_msg("%u routes are served, %u described", route_count, described);
}

static void check_references(const cJSON *doc, const cJSON *item)
{
	(void)resolve(doc, item);
	for (const cJSON *c = item->child; c; c = c->next)
		if (c->child)
			check_references(doc, c);
}

static void test_references(void **state)
{
	cleanup(json) cJSON *doc = document();

	(void)state;
	check_references(doc, doc);
}

static void test_yaml(void **state)
{
	static const struct {
		const char *yaml, *json; /* NULL = refused */
	} rows[] = {
		{ "a: 1\nb: two words\n", "{\"a\":1,\"b\":\"two words\"}" },
		{ "a:\n  b: true\n  c: null\nd: -1.5\n", "{\"a\":{\"b\":true,\"c\":null},\"d\":-1.5}" },
		{ "- 1\n- x\n-\n  - y\n", "[1,\"x\",[\"y\"]]" },
		{ "a:\n- b: 1\n  c: 2\n- d\n", "{\"a\":[{\"b\":1,\"c\":2},\"d\"]}" },
		{ "a: [1, 'x, y', {b: c}]\n", "{\"a\":[1,\"x, y\",{\"b\":\"c\"}]}" },
		{ "a: |\n  one\n   two\n\n  three\nb: 1\n", "{\"a\":\"one\\u000a two\\u000a\\u000athree\",\"b\":1}" },
		{ "a: >\n  one\n  two\n", "{\"a\":\"one two\"}" },
		{ "'200': x # why\n", "{\"200\":\"x\"}" },
		{ "a: 'it''s'\n", "{\"a\":\"it's\"}" },
		{ "a: \"x\\\"y\"\n", "{\"a\":\"x\\\"y\"}" },
		{ "a: http://x#y\n", "{\"a\":\"http://x#y\"}" },
		{ "a: '007'\nb: 007\n", "{\"a\":\"007\",\"b\":\"007\"}" },
		{ "a:\nb: {}\n", "{\"a\":null,\"b\":{}}" },
		{ "a: [1, 2\n", NULL },
		{ "a: \"x\n", NULL },
		{ "a: 1\n   b: 2\n", NULL },
		{ "", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf out = { 0 };
		struct err err = { 0 };
		int rc = yaml_to_json(rows[i].yaml, &out, &err);

		if ((rc == 0) != (rows[i].json != NULL))
			fail_msg("row %zu: rc %d %s", i, rc, err.text);
		if (rc == 0)
			assert_string_equal(out.data, rows[i].json);
		buf_deinit(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_yaml),
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_routes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
