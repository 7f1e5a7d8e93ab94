// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/callers.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/profile/own_functions.h"

/* The caller of the innermost function of @node: the nearest frame of another function; 0 = none,
 * else function + 1. */
static uint32_t caller_of(const struct profile *p, uint32_t node, uint32_t function)
{
	for (uint32_t at = p->nodes[node].parent; at; at = p->nodes[at].parent)
		if (p->frames[p->nodes[at].frame].function != function)
			return p->frames[p->nodes[at].frame].function + 1;
	return 0;
}

/* Adds the largest of @values, which are taken away, as name and percent of @whole. */
static void add_callers(cJSON *row, const struct profile *p, int64_t *values, int64_t whole,
			unsigned count)
{
	cJSON *list = cJSON_AddObjectToObject(row, "callersPctOfSelf");

	for (unsigned n = 0; n < count; n++) {
		uint32_t best = 1;

		for (uint32_t f = 2; f <= p->function_count; f++)
			if (values[f] > values[best])
				best = f;
		if (values[best] <= 0)
			return;
		(void)cJSON_AddNumberToObject(list, profile_string(p, p->functions[best - 1].name),
					      100.0 * (double)values[best] / (double)whole);
		values[best] = 0;
	}
}

static int add_row(cJSON *list, const struct profile *p, const struct profile_function_row *row,
		   unsigned callers)
{
	cleanup_free int64_t *values = calloc((size_t)p->function_count + 2, sizeof(*values));
	unsigned index = profile_value_index(p);
	const struct profile_function *function = &p->functions[row->function];
	double percent = p->totals[index] > 0 ? 100.0 / (double)p->totals[index] : 0;
	cJSON *object = cJSON_CreateObject();

	if (!values || !object || !cJSON_AddItemToArray(list, object)) {
		cJSON_Delete(object);
		return -ENOMEM;
	}
	(void)cJSON_AddStringToObject(object, "function", profile_string(p, function->name));
	if (function->file)
		(void)cJSON_AddStringToObject(object, "file", profile_string(p, function->file));
	(void)cJSON_AddNumberToObject(object, "selfPct", percent * (double)row->self);
	(void)cJSON_AddNumberToObject(object, "cumulativePct", percent * (double)row->cumulative);
	for (uint32_t i = 0; row->self > 0 && i < p->sample_count; i++) {
		uint32_t node = p->samples[i].node;

		if (node && p->frames[p->nodes[node].frame].function == row->function)
			values[caller_of(p, node, row->function)] += p->samples[i].values[index];
	}
	if (row->self > 0)
		add_callers(object, p, values, row->self, callers);
	return 0;
}

int callers_add(cJSON *to, const char *name, const struct profile *p, unsigned functions,
		unsigned callers)
{
	cleanup_free struct profile_function_row *rows = NULL;
	cJSON *list = cJSON_AddArrayToObject(to, name);
	size_t count = 0;
	int rc = list ? profile_top_functions(p, profile_value_index(p), &rows, &count) : -ENOMEM;

	for (size_t i = 0; rc == 0 && i < count && i < functions; i++)
		rc = add_row(list, p, &rows[i], callers);
	return rc;
}

/* Adds the ways in which an own function is called, if there are several. */
static int add_ways(cJSON *row, const struct profile *p, const struct own_ways *ways,
		    double percent)
{
	cJSON *list = ways->count > 1 ? cJSON_AddArrayToObject(row, "calledBy") : NULL;

	for (uint32_t i = 0; list && i < ways->count; i++) {
		const struct own_way *way = &ways->ways[i];
		cJSON *object = cJSON_CreateObject(), *path;

		if (!object || !cJSON_AddItemToArray(list, object)) {
			cJSON_Delete(object);
			return -ENOMEM;
		}
		(void)cJSON_AddNumberToObject(object, "pct", percent * (double)way->value);
		path = cJSON_AddArrayToObject(object, "callers");
		for (uint32_t n = 0; path && n < way->callers_count; n++)
			(void)cJSON_AddItemToArray(
				path, cJSON_CreateString(profile_string(
					      p, p->functions[way->callers[n]].name)));
	}
	return 0;
}

int callers_add_own(cJSON *to, const struct profile *p, unsigned limit)
{
	const unsigned index = profile_value_index(p);
	const double percent = p->totals[index] ? 100.0 / (double)p->totals[index] : 0;
	cleanup_free struct own_function *rows = NULL;
	cleanup_free struct own_ways *ways = NULL;
	cJSON *list = cJSON_AddArrayToObject(to, "ownFunctions");
	size_t count = 0;
	int rc = list ? own_functions(p, index, &rows, &count) : -ENOMEM;

	count = count < limit ? count : limit;
	rc = rc < 0 ? rc : own_ways(p, index, rows, count, &ways);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		const struct profile_function *function = &p->functions[rows[i].function];
		cJSON *object = cJSON_CreateObject();

		if (!object || !cJSON_AddItemToArray(list, object)) {
			cJSON_Delete(object);
			return -ENOMEM;
		}
		(void)cJSON_AddStringToObject(object, "function", profile_string(p, function->name));
		if (function->file)
			(void)cJSON_AddStringToObject(object, "file", profile_string(p, function->file));
		(void)cJSON_AddNumberToObject(object, "pct", percent * (double)rows[i].value);
		if (rows[i].wait)
			(void)cJSON_AddStringToObject(object, "wait", profile_string(p, rows[i].wait));
		rc = add_ways(object, p, &ways[i], percent);
	}
	return rc;
}
