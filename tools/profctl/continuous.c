// SPDX-License-Identifier: Apache-2.0
/* Commands about continuous profiling: continuous start, stop, status; findings. */
#include <string.h>

#include "agent/base/buf.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

#define CONTINUOUS SESSIONS_PATH "/continuous"
#define FINDINGS   SESSIONS_PATH "/findings"

/* "cpu,offcpu" as the array the API takes. */
static void add_types(cJSON *body, const char *words)
{
	cJSON *types = cJSON_AddArrayToObject(body, "profileTypes");
	cleanup_free char *copy = strdup(words);
	char *rest = NULL;

	for (char *word = copy ? strtok_r(copy, ", ", &rest) : NULL; word;
	     word = strtok_r(NULL, ", ", &rest))
		(void)cJSON_AddItemToArray(types, cJSON_CreateString(word));
}

static void add_row(struct table *table, const cJSON *item)
{
	const cJSON *status = cJSON_GetObjectItem(item, "status");
	const cJSON *overhead = cJSON_GetObjectItem(status, "overheadPct"), *type;
	cleanup_buf struct buf types = { 0 };
	char stored[64];

	cJSON_ArrayForEach(type, cJSON_GetObjectItem(item, "profileTypes"))
		buf_printf(&types, "%s%s", types.len ? "," : "", cJSON_GetStringValue(type));
	output_value(output_number(status, "bytes"), "bytes", stored, sizeof(stored));
	table_add(table, output_text(item, "service"));
	table_add(table, cJSON_IsTrue(cJSON_GetObjectItem(item, "enabled")) ? "on" : "off");
	table_add(table, types.len ? types.data : "");
	table_addf(table, "%.0f Hz", output_number(item, "sampleRate"));
	table_addf(table, "%.0f d", output_number(item, "retentionDays"));
	table_addf(table, "%.0f", output_number(status, "sessions"));
	table_add(table, stored);
	if (cJSON_IsNumber(overhead))
		table_addf(table, "%.3f %%", overhead->valuedouble);
	else
		table_add(table, "not known");
	table_add(table, output_text(status, "activeSince"));
	table_add(table, output_text(status, "lastSessionId"));
}

static int print_settings(const cJSON *one, const cJSON *items)
{
	struct table table = { .headings = { "service", "is", "types", "rate", "kept", "spans",
					     "stored", "overhead", "since", "newest profile" },
			       .right = { false, false, false, true, true, true, true, true },
			       .columns = 10,
			       .empty = "nothing is profiled all the time; profctl continuous start SERVICE begins" };
	const cJSON *item;

	if (one)
		add_row(&table, one);
	cJSON_ArrayForEach(item, items)
		add_row(&table, item);
	return table_print(&table) < 0;
}

int command_continuous_start(const struct arguments *args)
{
	cleanup(json) cJSON *body = cJSON_CreateObject();
	cleanup(json) cJSON *answer = NULL;

	(void)cJSON_AddStringToObject(body, "service", args->argv[0]);
	add_types(body, args->type);
	if (args->rate_given)
		(void)cJSON_AddNumberToObject(body, "sampleRate", args->rate_hz);
	if (args->retention_days)
		(void)cJSON_AddNumberToObject(body, "retentionDays", args->retention_days);
	if (args->watch) {
		cJSON *watch = cJSON_AddObjectToObject(body, "watch");

		(void)cJSON_AddStringToObject(watch, "against", args->watch);
		if (args->webhook)
			(void)cJSON_AddStringToObject(watch, "webhook", args->webhook);
		if (args->webhook_format)
			(void)cJSON_AddStringToObject(watch, "format", args->webhook_format);
	} else if (args->webhook || args->webhook_format) {
		(void)fprintf(stderr, "profctl: --webhook and --webhook-format need --watch\n");
		return EXIT_USAGE;
	}
	if (client_json(args->client, "POST", CONTINUOUS, body, &answer) < 0)
		return 1;
	if (args->format != OUTPUT_JSON) {
		output_warnings(answer);
		return print_settings(answer, NULL);
	}
	output_json(answer);
	return 0;
}

int command_continuous_stop(const struct arguments *args)
{
	cleanup(json) cJSON *answer = NULL;

	if (client_item(args->client, "DELETE", CONTINUOUS, args->argv[0], &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON)
		output_deleted(answer, "service", args->argv[0]);
	return 0;
}

int command_continuous_status(const struct arguments *args)
{
	cleanup(json) cJSON *answer = NULL;
	int rc;

	if (args->argc)
		rc = client_item(args->client, "GET", CONTINUOUS, args->argv[0], &answer);
	else
		rc = client_json(args->client, "GET", CONTINUOUS, NULL, &answer);
	if (rc < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	return print_settings(args->argc ? answer : NULL, cJSON_GetObjectItem(answer, "items"));
}

/* ---- findings -------------------------------------------------------------------------------- */

static int print_findings(const cJSON *answer)
{
	struct table table = { .headings = { "at", "state", "service", "host", "type", "against",
					     "verdict", "summary" },
			       .columns = 8,
			       .empty = "nothing found" };
	const cJSON *item;

	cJSON_ArrayForEach(item, cJSON_GetObjectItem(answer, "items")) {
		const cJSON *comparison = cJSON_GetObjectItem(item, "comparison");

		table_add(&table, output_text(item, "at"));
		table_add(&table, output_text(item, "state"));
		table_add(&table, output_text(item, "service"));
		table_add(&table, output_text(item, "host"));
		table_add(&table, output_text(item, "profileType"));
		table_add(&table, output_text(item, "against"));
		table_add(&table, output_text(comparison, "verdict"));
		table_add(&table, output_text(comparison, "summary"));
	}
	output_more(answer);
	return table_print(&table) < 0;
}

int command_findings(const struct arguments *args)
{
	cleanup(json) cJSON *answer = NULL;
	cleanup_buf struct buf path = { 0 };

	buf_printf(&path, FINDINGS "?limit=%u", args->limit);
	client_add_parameter(args->client, &path, "service", args->service);
	client_add_parameter(args->client, &path, "from", args->from);
	client_add_parameter(args->client, &path, "to", args->to);
	if (path.error || client_json(args->client, "GET", path.data, NULL, &answer) < 0)
		return 1;
	if (args->format != OUTPUT_JSON)
		return print_findings(answer);
	output_json(answer);
	return 0;
}
