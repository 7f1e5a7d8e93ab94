// SPDX-License-Identifier: Apache-2.0
/* Commands around what is kept: baselines and API keys. */
#include <string.h>

#include "agent/base/buf.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

#define BASELINES "/api/v1/profiling/baselines"
#define KEYS	  "/api/v1/keys"

/* @member: what the API calls its id. */
static int delete_item(const struct arguments *args, const char *collection, const char *member)
{
	cleanup(json) cJSON *answer = NULL;

	if (client_item(args->client, "DELETE", collection, args->argv[0], &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON)
		output_deleted(answer, member, args->argv[0]);
	return 0;
}

/* ---- baselines ------------------------------------------------------------------------------- */

int command_baseline_create(const struct arguments *args)
{
	cleanup(json) cJSON *body = cJSON_CreateObject();
	cleanup(json) cJSON *session = NULL;
	cleanup(json) cJSON *answer = NULL;

	if (session_get(args, args->argv[0], &session) < 0)
		return 1;
	(void)cJSON_AddStringToObject(body, "label", args->label ? args->label : args->argv[0]);
	(void)cJSON_AddStringToObject(body, "sessionId", args->argv[0]);
	(void)cJSON_AddStringToObject(body, "profileType", output_text(session, "profileType"));
	if (args->description)
		(void)cJSON_AddStringToObject(body, "description", args->description);
	if (args->tag_count)
		(void)cJSON_AddItemToObject(body, "tags", cJSON_CreateStringArray(args->tags, args->tag_count));
	if (client_json(args->client, "POST", BASELINES, body, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	output_warnings(answer);
	(void)printf("%s\n", output_text(answer, "baselineId"));
	return 0;
}

static int print_baselines(const cJSON *answer)
{
	struct table table = { .headings = { "baseline", "created", "service", "type", "samples",
					     "latest", "label" },
			       .right = { false, false, false, false, true },
			       .columns = 7,
			       .empty = "no baseline found; profctl baseline create ID keeps a profile as one" };
	const cJSON *item;

	cJSON_ArrayForEach(item, cJSON_GetObjectItem(answer, "items")) {
		table_add(&table, output_text(item, "baselineId"));
		table_add(&table, output_text(item, "createdAt"));
		table_add(&table, output_text(item, "service"));
		table_add(&table, output_text(item, "profileType"));
		table_addf(&table, "%.0f", output_number(item, "sampleCount"));
		table_add(&table,
			  cJSON_IsTrue(cJSON_GetObjectItem(item, "isLatest")) ? "yes" : "no");
		table_add(&table, output_text(item, "baselineLabel"));
	}
	output_more(answer);
	return table_print(&table) < 0;
}

int command_baseline_list(const struct arguments *args)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;

	buf_printf(&path, BASELINES "?limit=%u", args->limit);
	client_add_parameter(args->client, &path, "service", args->service);
	client_add_parameter(args->client, &path, "tag", args->tag);
	client_add_parameter(args->client, &path, "profileType",
			     args->type_given ? args->type : NULL);
	if (path.error || client_json(args->client, "GET", path.data, NULL, &answer) < 0)
		return 1;
	if (args->format != OUTPUT_JSON)
		return print_baselines(answer);
	output_json(answer);
	return 0;
}

int command_baseline_get(const struct arguments *args)
{
	struct table table = { .headings = { "self%", "cum%", "module", "function" },
			       .right = { true, true },
			       .columns = 4 };
	cleanup(json) cJSON *answer = NULL;
	const cJSON *f;
	uint32_t listed = 0;

	if (client_item(args->client, "GET", BASELINES, args->argv[0], &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	(void)printf("baseline   %s, %s\nservice    %s, %s\nsession    %s of %s\nsamples    %.0f "
		     "in %.1f s\n\n",
		     output_text(answer, "baselineId"), output_text(answer, "baselineLabel"),
		     output_text(answer, "service"), output_text(answer, "profileType"),
		     output_text(answer, "sessionId"), output_text(answer, "createdAt"),
		     output_number(answer, "sampleCount"),
		     output_number(answer, "durationSeconds"));
	cJSON_ArrayForEach(f, cJSON_GetObjectItem(answer, "topFunctions")) {
		if (listed++ == args->top)
			break;
		table_addf(&table, "%.2f", output_number(f, "selfPct"));
		table_addf(&table, "%.2f", output_number(f, "cumulativePct"));
		table_add(&table, output_text(f, "package"));
		table_add(&table, output_text(f, "funcName"));
	}
	return table_print(&table) < 0;
}

int command_baseline_delete(const struct arguments *args)
{
	return delete_item(args, BASELINES, "baselineId");
}

/* ---- keys ------------------------------------------------------------------------------------ */

int command_key_create(const struct arguments *args)
{
	cleanup(json) cJSON *body = cJSON_CreateObject();
	cleanup(json) cJSON *answer = NULL;

	if (!args->name) {
		(void)fprintf(stderr, "profctl: key create needs --name NAME\n");
		return EXIT_USAGE;
	}
	(void)cJSON_AddStringToObject(body, "name", args->name);
	(void)cJSON_AddStringToObject(body, "role", args->role ? args->role : "read");
	if (args->key_tenant)
		(void)cJSON_AddStringToObject(body, "tenant", args->key_tenant);
	if (client_json(args->client, "POST", KEYS, body, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	/* Scripts take the last line. */
	(void)printf("key        %s, role %s, tenant %s; shown only now:\n%s\n",
		     output_text(answer, "id"), output_text(answer, "role"),
		     *output_text(answer, "tenant") ? output_text(answer, "tenant") : "any",
		     output_text(answer, "key"));
	return 0;
}

int command_key_list(const struct arguments *args)
{
	struct table table = { .headings = { "key", "created", "role", "tenant", "name" },
			       .columns = 5,
			       .empty = "no key; profctl key create --name NAME makes one" };
	cleanup(json) cJSON *answer = NULL;
	const cJSON *item;

	if (client_json(args->client, "GET", KEYS, NULL, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItem(answer, "items")) {
		table_add(&table, output_text(item, "id"));
		table_add(&table, output_text(item, "createdAt"));
		table_add(&table, output_text(item, "role"));
		table_add(&table,
			  *output_text(item, "tenant") ? output_text(item, "tenant") : "any");
		table_add(&table, output_text(item, "name"));
	}
	return table_print(&table) < 0;
}

int command_key_delete(const struct arguments *args)
{
	return delete_item(args, KEYS, "id");
}
