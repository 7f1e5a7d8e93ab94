// SPDX-License-Identifier: Apache-2.0
/* Commands about goroutines and threads: goroutines, ledger. */
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/text.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

/* ---- goroutines ------------------------------------------------------------------------------ */

static void add_stacks(struct table *table, const cJSON *list, const char *what)
{
	const cJSON *stack, *frame;

	cJSON_ArrayForEach(stack, list) {
		cleanup_buf struct buf frames = { 0 };

		cJSON_ArrayForEach(frame, cJSON_GetObjectItem(stack, "frames"))
			buf_printf(&frames, "%s%s", frames.len ? " < " : "",
				   cJSON_GetStringValue(frame));
		table_add(table, what);
		table_addf(table, "%.0f", output_number(stack, "count"));
		table_add(table, output_text(stack, "state"));
		table_add(table, output_text(stack, "waitReason"));
		table_add(table, output_text(stack, "createdBy"));
		table_add(table, frames.len ? frames.data : "");
	}
}

static int print_analysis(const cJSON *analysis)
{
	struct table table = { .headings = { "", "count", "state", "waiting for", "created by",
					     "stack, innermost first" },
			       .right = { false, true },
			       .columns = 6 };
	const cJSON *state;
	int comma = 0;

	(void)printf("in all     %.0f", output_number(analysis, "goroutineCount"));
	cJSON_ArrayForEach(state, cJSON_GetObjectItem(analysis, "states"))
		(void)printf("%s %d %s", comma++ ? "," : ":", state->valueint, state->string);
	if (*output_text(analysis, "comparedWith"))
		(void)printf("\ngrowth     %.2f times the %.0f of %s\n\n",
			     output_number(analysis, "goroutineGrowthRate"),
			     output_number(analysis, "previousGoroutineCount"),
			     output_text(analysis, "comparedWith"));
	else
		(void)printf("\ngrowth     nothing earlier to compare with\n\n");
	add_stacks(&table, cJSON_GetObjectItem(analysis, "suspectedLeaks"), "leak?");
	add_stacks(&table, cJSON_GetObjectItem(analysis, "deadlockCandidates"), "stuck?");
	add_stacks(&table, cJSON_GetObjectItem(analysis, "blockedGoroutines"), "blocked");
	add_stacks(&table, cJSON_GetObjectItem(analysis, "topStacks"), "all");
	return table_print(&table) < 0;
}

/* The id of a goroutine session: the one named, or a new one of the service; "" after printing why.
 */
static void session_of(const struct arguments *args, char *ret, size_t size)
{
	cleanup(json) cJSON *session = NULL;
	cleanup(json) cJSON *result = NULL;
	struct arguments typed = *args;

	ret[0] = '\0';
	if (text_begins(args->argv[0], "sess-")) {
		(void)snprintf(ret, size, "%s", args->argv[0]);
		return;
	}
	typed.type = "goroutine";
	if (session_start(&typed, args->argv[0], 1, &session) < 0 ||
	    session_follow(&typed, output_text(session, "id"), 1, &result) < 0)
		return;
	if (!strcmp(output_text(result, "status"), "failed"))
		(void)fprintf(stderr, "profctl: %s\n", output_text(result, "failureReason"));
	else
		(void)snprintf(ret, size, "%s", output_text(result, "id"));
}

int command_goroutines(const struct arguments *args)
{
	cleanup_free char *escaped = NULL;
	cleanup(json) cJSON *answer = NULL;
	char id[128], path[512];

	session_of(args, id, sizeof(id));
	if (*id && (args->format == OUTPUT_FOLDED || args->format == OUTPUT_PPROF))
		return session_render(args, id, NULL, args->format == OUTPUT_FOLDED ? "folded" : "pprof",
				      NULL) < 0;
	escaped = *id ? client_escape(args->client, id) : NULL;
	if (!escaped)
		return 1;
	(void)snprintf(path, sizeof(path), "/api/v1/profiling/sessions/%s/analysis?limit=%u%s",
		       escaped, args->top, args->system ? "&system=true" : "");
	if (client_json(args->client, "GET", path, NULL, &answer) < 0)
		return 1;
	if (args->format != OUTPUT_JSON)
		return print_analysis(answer);
	output_json(answer);
	return 0;
}

/* ---- ledger ---------------------------------------------------------------------------------- */

static void add_share(struct table *table, double part_ns, double elapsed_ns)
{
	table_addf(table, "%.1f", elapsed_ns > 0 ? 100 * part_ns / elapsed_ns : 0);
}

static int print_ledger(const cJSON *ledger)
{
	struct table table = { .headings = { "pid", "tid", "thread", "elapsed", "user%", "kernel%",
					     "runqueue%", "preempted%", "of it stolen%", "blocked%", "waits" },
			       .right = { true, true, false, true, true, true, true, true, true, true },
			       .columns = 11 };
	const cJSON *thread, *wait;

	cJSON_ArrayForEach(thread, cJSON_GetObjectItem(ledger, "threads")) {
		double elapsed_ns = output_number(thread, "elapsedNs"), blocked_ns = 0;
		cleanup_buf struct buf waits = { 0 };
		char value[64];

		cJSON_ArrayForEach(wait, cJSON_GetObjectItem(thread, "blockedNs")) {
			blocked_ns += wait->valuedouble;
			output_value(wait->valuedouble, "nanoseconds", value, sizeof(value));
			buf_printf(&waits, "%s%s %s", waits.len ? ", " : "", wait->string, value);
		}
		output_value(elapsed_ns, "nanoseconds", value, sizeof(value));
		table_addf(&table, "%.0f", output_number(thread, "pid"));
		table_addf(&table, "%.0f", output_number(thread, "tid"));
		table_add(&table, output_text(thread, "thread"));
		table_add(&table, value);
		add_share(&table, output_number(thread, "userNs"), elapsed_ns);
		add_share(&table, output_number(thread, "kernelNs"), elapsed_ns);
		add_share(&table, output_number(thread, "runqueueNs"), elapsed_ns);
		add_share(&table, output_number(thread, "preemptedNs"), elapsed_ns);
		add_share(&table, output_number(thread, "stolenNs"), elapsed_ns);
		add_share(&table, blocked_ns, elapsed_ns);
		table_add(&table, waits.len ? waits.data : "");
	}
	return table_print(&table) < 0;
}

int command_ledger(const struct arguments *args)
{
	cleanup_free char *escaped = client_escape(args->client, args->argv[0]);
	cleanup(json) cJSON *answer = NULL;
	char path[512];

	if (!escaped)
		return 1;
	(void)snprintf(path, sizeof(path), SESSIONS_PATH "/%s/ledger", escaped);
	if (client_json(args->client, "GET", path, NULL, &answer) < 0)
		return 1;
	if (args->format != OUTPUT_JSON)
		return print_ledger(answer);
	output_json(answer);
	return 0;
}
