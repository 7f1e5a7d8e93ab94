// SPDX-License-Identifier: Apache-2.0
/* openapi.yaml and the route table say the same, in both directions. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "api/http/assets.h"
#include "api/http/json_in.h"
#include "api/routes.h"

static cJSON *document(void)
{
	cJSON *doc = cJSON_Parse(asset_openapi_json);

	assert_non_null(doc);
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
	for (unsigned i = 0; i < route_table.count; i++)
		if (strcasecmp(route_table.routes[i].method, method) == 0 &&
		    strcmp(route_table.routes[i].pattern, pattern) == 0)
			return &route_table.routes[i];
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
			if (!!(route->flags & (ROUTE_JSON | ROUTE_BODY)) !=
			    !!cJSON_GetObjectItem(operation, "requestBody"))
				fail_msg("%s %s: body", route->method, route->pattern);
			described++;
		}
	}
	if (described != route_table.count)
		fail_msg("%u routes are served, %u described", route_table.count, described);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_routes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
