// SPDX-License-Identifier: Apache-2.0
/* Commands that set two profiles side by side: compare, diff. */
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/text.h"
#include "tools/profctl/command.h"
#include "tools/profctl/compare.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

#define FAMILY_B "/api/v1/profiling"

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
		table_add(table, output_text(f, "package"));
		table_add(table, output_text(f, "funcName"));
	}
}

static int print_functions(const cJSON *worse, const char *worse_word, const cJSON *better,
			   const char *better_word)
{
	struct table table = { .headings = { "", "base%", "now%", "points", "change", "module",
					     "function" },
			       .right = { false, true, true, true },
			       .columns = 7 };

	if (cJSON_GetArraySize(worse) + cJSON_GetArraySize(better) == 0)
		return 0;
	(void)printf("\n");
	add_functions(&table, worse, worse_word);
	add_functions(&table, better, better_word);
	return table_print(&table) < 0;
}

int comparison_print(const cJSON *c)
{
	const cJSON *overall = cJSON_GetObjectItem(c, "overallDelta");
	const bool shares_only = !strcmp(output_text(c, "cause"), "composition");
	const char *verdict = cJSON_IsTrue(cJSON_GetObjectItem(c, "insufficientData")) ?
				      "not enough data" :
				      output_text(c, "verdict");
	enum paint paint = !strcmp(verdict, "regressed")  ? PAINT_BAD
			   : !strcmp(verdict, "improved") ? PAINT_GOOD
							  : PAINT_BOLD;

	output_warnings(c);
	(void)printf("verdict    %s%s%s\n%s\n", output_paint(paint), verdict, output_paint(PAINT_NONE),
		     output_text(c, "summary"));
	if (cJSON_IsNumber(overall))
		(void)printf("overall    %+.2f %% of cost%s\n", overall->valuedouble,
			     cJSON_IsTrue(cJSON_GetObjectItem(c, "significant"))
				     ? ""
				     : ", not significant");
	(void)printf("unchanged  %.0f functions\n", output_number(c, "unchanged"));
	/* Without a steady part a share that fell does not make a function faster. */
	return print_functions(cJSON_GetObjectItem(c, "regressions"), shares_only ? "more" : "slower",
			       cJSON_GetObjectItem(c, "improvements"), shares_only ? "less" : "faster");
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
	client_add_parameter(args->client, &path, "frames", args->raw_frames ? "raw" : NULL);
	if (path.error || client_json(args->client, "GET", path.data, NULL, &answer) < 0)
		return 1;
	if (args->format != OUTPUT_JSON)
		return comparison_print(answer);
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
			       .columns = 5,
			       .empty = "no stack is new, gone or more frequent" };

	(void)printf("growth     %.0f more in new and grown stacks, %+.0f in all\n\n",
		     output_number(diff, "growthCount"), output_number(diff, "netGrowth"));
	add_stacks(&table, cJSON_GetObjectItem(diff, "newStacks"), "new", args->top);
	add_stacks(&table, cJSON_GetObjectItem(diff, "grownStacks"), "grown", args->top);
	add_stacks(&table, cJSON_GetObjectItem(diff, "removedStacks"), "removed", args->top);
	return table_print(&table) < 0;
}

static int print_moved(const struct arguments *args, const cJSON *diff)
{
	struct table table = { .headings = { "base%", "now%", "points", "module", "function" },
			       .right = { true, true, true },
			       .columns = 5,
			       .empty = "no function moved" };
	uint32_t listed = 0;
	const cJSON *f;

	cJSON_ArrayForEach(f, cJSON_GetObjectItem(diff, "functions")) {
		double moved = output_number(f, "deltaPct");

		if ((moved < 0 ? -moved : moved) < 0.005) /* would be +0.00 */
			continue;
		if (listed++ == args->top)
			break;
		table_addf(&table, "%.2f", output_number(f, "basePct"));
		table_addf(&table, "%.2f", output_number(f, "comparisonPct"));
		table_addf(&table, "%+.2f", moved);
		table_add(&table, output_text(f, "package"));
		table_add(&table, output_text(f, "funcName"));
	}
	return table_print(&table) < 0;
}

/* The type of a session or baseline, for requests that must name it; "" after printing why. */
static void read_type(const struct arguments *args, const char *id, char *ret, size_t size)
{
	bool baseline = text_begins(id, "bl-");
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
