// SPDX-License-Identifier: Apache-2.0
/* Commands that set two profiles side by side: compare, diff, ci. */
#include <string.h>

#include "agent/base/buf.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

#define FAMILY_B      "/api/v1/profiling"
#define PAGES_MAX     100 /* of baselines looked through for a label */
#define CI_DURATION_S 30

/* ---- compare --------------------------------------------------------------------------------- */

static void add_functions(struct table *table, const cJSON *list, const char *what)
{
	const cJSON *f;

	cJSON_ArrayForEach(f, list) {
		table_add(table, what);
		table_addf(table, "%.2f", output_number(f, "basePct"));
		table_addf(table, "%.2f", output_number(f, "comparisonPct"));
		table_addf(table, "%+.2f", output_number(f, "deltaPct"));
		table_add(table, output_text(f, "change"));
		table_addf(table, "%.100s", output_text(f, "funcName"));
		table_add(table, output_text(f, "package"));
	}
}

static int print_functions(const cJSON *worse, const char *worse_word, const cJSON *better,
			   const char *better_word)
{
	struct table table = { .headings = { "", "base%", "now%", "points", "change", "function",
					     "module" },
			       .right = { false, true, true, true },
			       .columns = 7 };

	if (cJSON_GetArraySize(worse) + cJSON_GetArraySize(better) == 0)
		return 0;
	(void)printf("\n");
	add_functions(&table, worse, worse_word);
	add_functions(&table, better, better_word);
	return table_print(&table) < 0;
}

static int print_comparison(const cJSON *c)
{
	const cJSON *overall = cJSON_GetObjectItem(c, "overallDelta");

	(void)printf("verdict    %s\n%s\n", output_text(c, "verdict"), output_text(c, "summary"));
	if (cJSON_IsNumber(overall))
		(void)printf("overall    %+.2f %% of cost%s\n", overall->valuedouble,
			     cJSON_IsTrue(cJSON_GetObjectItem(c, "significant"))
				     ? ""
				     : ", not significant");
	(void)printf("unchanged  %.0f functions\n", output_number(c, "unchanged"));
	return print_functions(cJSON_GetObjectItem(c, "regressions"), "slower",
			       cJSON_GetObjectItem(c, "improvements"), "faster");
}

int command_compare(const struct arguments *args)
{
	cleanup_free char *base = client_escape(args->client, args->argv[0]);
	cleanup_free char *comparison = client_escape(args->client, args->argv[1]);
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;

	if (!base || !comparison)
		return 1;
	buf_printf(&path, SESSIONS_PATH "/compare?baseProfileId=%s&comparisonProfileId=%s", base,
		   comparison);
	if (args->threshold)
		buf_printf(&path, "&threshold=%s", args->threshold);
	if (args->confidence)
		buf_printf(&path, "&confidence=%s", args->confidence);
	if (path.error || client_json(args->client, "GET", path.data, NULL, &answer) < 0)
		return 1;
	if (args->format != OUTPUT_JSON)
		return print_comparison(answer);
	output_json(answer);
	return 0;
}

/* ---- diff ------------------------------------------------------------------------------------ */

static void add_stacks(struct table *table, const cJSON *list, const char *what, uint32_t limit)
{
	const cJSON *stack, *frame;
	uint32_t listed = 0;

	cJSON_ArrayForEach(stack, list) {
		cleanup_buf struct buf frames = { 0 };

		if (listed++ == limit)
			return;
		cJSON_ArrayForEach(frame, cJSON_GetObjectItem(stack, "frames"))
			buf_printf(&frames, "%s%s", frames.len ? " < " : "",
				   cJSON_GetStringValue(frame));
		table_add(table, what);
		table_addf(table, "%.0f", output_number(stack, "baseCount"));
		table_addf(table, "%.0f", output_number(stack, "count"));
		table_add(table, output_text(stack, "waitReason"));
		table_add(table, frames.len ? frames.data : "");
	}
}

static int print_stacks(const struct arguments *args, const cJSON *diff)
{
	struct table table = { .headings = { "", "base", "now", "waiting for",
					     "stack, innermost first" },
			       .right = { false, true, true },
			       .columns = 5 };

	(void)printf("growth     %.0f more in new and grown stacks, %+.0f in all\n\n",
		     output_number(diff, "growthCount"), output_number(diff, "netGrowth"));
	add_stacks(&table, cJSON_GetObjectItem(diff, "newStacks"), "new", args->top);
	add_stacks(&table, cJSON_GetObjectItem(diff, "grownStacks"), "grown", args->top);
	add_stacks(&table, cJSON_GetObjectItem(diff, "removedStacks"), "removed", args->top);
	return table_print(&table) < 0;
}

static int print_moved(const struct arguments *args, const cJSON *diff)
{
	struct table table = { .headings = { "base%", "now%", "points", "function", "module" },
			       .right = { true, true, true },
			       .columns = 5 };
	uint32_t listed = 0;
	const cJSON *f;

	cJSON_ArrayForEach(f, cJSON_GetObjectItem(diff, "functions")) {
		if (listed++ == args->top)
			break;
		table_addf(&table, "%.2f", output_number(f, "basePct"));
		table_addf(&table, "%.2f", output_number(f, "comparisonPct"));
		table_addf(&table, "%+.2f", output_number(f, "deltaPct"));
		table_addf(&table, "%.100s", output_text(f, "funcName"));
		table_add(&table, output_text(f, "package"));
	}
	return table_print(&table) < 0;
}

/* The type of a session or baseline, for requests that must name it; "" after printing why. */
static void read_type(const struct arguments *args, const char *id, char *ret, size_t size)
{
	bool baseline = !strncmp(id, "bl-", 3);
	cleanup_free char *escaped = client_escape(args->client, id);
	cleanup(json) cJSON *answer = NULL;
	char path[512];

	ret[0] = '\0';
	(void)snprintf(path, sizeof(path), "%s/%s",
		       baseline ? FAMILY_B "/baselines" : SESSIONS_PATH, escaped ? escaped : "");
	if (escaped && client_json(args->client, "GET", path, NULL, &answer) == 0)
		(void)snprintf(ret, size, "%s", output_text(answer, "profileType"));
}

int command_diff(const struct arguments *args)
{
	cleanup(json) cJSON *body = cJSON_CreateObject();
	cleanup(json) cJSON *answer = NULL;
	char type[32];

	(void)snprintf(type, sizeof(type), "%s", args->type);
	if (!args->type_given)
		read_type(args, args->argv[0], type, sizeof(type));
	if (!*type)
		return 1;
	(void)cJSON_AddStringToObject(body, "baseId", args->argv[0]);
	(void)cJSON_AddStringToObject(body, "compareId", args->argv[1]);
	(void)cJSON_AddStringToObject(body, "type", type);
	if (client_json(args->client, "POST", FAMILY_B "/diff", body, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	return !strcmp(output_text(answer, "profileType"), "goroutine") ? print_stacks(args, answer)
									: print_moved(args, answer);
}

/* ---- ci -------------------------------------------------------------------------------------- */

/* The newest baseline of a label; NULL after printing why. Lists are newest first. */
static cJSON *find_label(const struct arguments *args, const char *label)
{
	cleanup_buf struct buf path = { 0 };

	buf_printf(&path, FAMILY_B "/baselines?limit=100");
	for (unsigned page = 0; page < PAGES_MAX && !path.error; page++) {
		cleanup(json) cJSON *answer = NULL;
		cJSON *item;

		if (client_json(args->client, "GET", path.data, NULL, &answer) < 0)
			return NULL;
		cJSON_ArrayForEach(item, cJSON_GetObjectItem(answer, "items"))
			if (!strcmp(output_text(item, "baselineLabel"), label))
				return cJSON_DetachItemViaPointer(cJSON_GetObjectItem(answer, "item"
											      "s"),
								  item);
		if (!*output_text(answer, "nextCursor"))
			break;
		path.len = 0;
		buf_printf(&path, FAMILY_B "/baselines?limit=100&cursor=%s",
			   output_text(answer, "nextCursor"));
	}
	(void)fprintf(stderr,
		      "profctl: no baseline has the id or label '%s'; see profctl baseline list\n",
		      label);
	return NULL;
}

static cJSON *find_baseline(const struct arguments *args, const char *word)
{
	cleanup_free char *escaped = NULL;
	cJSON *answer = NULL;
	char path[512];

	if (strncmp(word, "bl-", 3))
		return find_label(args, word);
	escaped = client_escape(args->client, word);
	(void)snprintf(path, sizeof(path), FAMILY_B "/baselines/%s", escaped ? escaped : "");
	if (!escaped || client_json(args->client, "GET", path, NULL, &answer) < 0)
		return NULL;
	return answer;
}

/* The session to judge: the one named, or a new one as long as asked for. */
static int session_to_judge(const struct arguments *args, const cJSON *baseline, cJSON **ret)
{
	uint32_t duration_s = args->duration_s ? args->duration_s : CI_DURATION_S;
	cleanup(json) cJSON *session = NULL;
	struct arguments typed = *args;

	if (!strncmp(args->argv[0], "sess-", 5))
		return session_get(args, args->argv[0], ret);
	if (!args->type_given)
		typed.type = output_text(baseline, "profileType");
	if (session_start(&typed, args->argv[0], duration_s, &session) < 0)
		return -1;
	return session_follow(&typed, output_text(session, "id"), duration_s, ret);
}

static int print_report(const struct arguments *args, const cJSON *report)
{
	const char *severity = output_text(report, "severity");

	if (args->format == OUTPUT_JSON) {
		output_json(report);
	} else {
		(void)printf("severity   %s\n%s\nreport     %s\n", severity,
			     output_text(report, "summary"), output_text(report, "reportId"));
		if (print_functions(cJSON_GetObjectItem(report, "changedFunctions"), "changed",
				    cJSON_GetObjectItem(report, "newHotspots"), "hotspot"))
			return 1;
	}
	if (!strcmp(severity, "CRITICAL"))
		return EXIT_CRITICAL;
	if (!strcmp(severity, "WARNING"))
		return EXIT_WARNING;
	if (!cJSON_IsTrue(cJSON_GetObjectItem(report, "insufficientData")))
		return 0;
	/* A gate that had nothing to judge by has not been passed. */
	(void)fprintf(stderr, "profctl: too little data for a verdict; profile for longer\n");
	return 1;
}

int command_ci(const struct arguments *args)
{
	cleanup(json) cJSON *baseline = NULL;
	cleanup(json) cJSON *session = NULL;
	cleanup(json) cJSON *report = NULL;
	cleanup(json) cJSON *body = NULL;

	if (!args->baseline) {
		(void)fprintf(stderr, "profctl: ci needs --baseline ID or LABEL\n");
		return EXIT_USAGE;
	}
	baseline = find_baseline(args, args->baseline);
	if (!baseline || session_to_judge(args, baseline, &session) < 0)
		return 1;
	if (strcmp(output_text(session, "status"), "completed")) {
		(void)fprintf(stderr, "profctl: the profile is %s: %s\n",
			      output_text(session, "status"),
			      output_text(session, "failureReason"));
		return 1;
	}
	body = cJSON_CreateObject();
	(void)cJSON_AddStringToObject(body, "baselineId", output_text(baseline, "baselineId"));
	(void)cJSON_AddStringToObject(body, "compareId", output_text(session, "id"));
	if (client_json(args->client, "POST", FAMILY_B "/regression/check", body, &report) < 0)
		return 1;
	return print_report(args, report);
}
