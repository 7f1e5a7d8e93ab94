// SPDX-License-Identifier: Apache-2.0
#include "api/goroutines_api.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/goroutine/profile_diff.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/flamegraph.h"
#include "api/goroutine_findings_json.h"
#include "api/http/json_in.h"
#include "api/render/quality_json.h"
#include "api/render/render.h"
#include "api/sides.h"

#define STACKS_DEFAULT 20
#define STACKS_MAX     1000
#define PREVIOUS_MAX   10   /* sessions among which one like this one is looked for */
#define DIFF_FUNCTIONS 1000 /* listed by POST /diff, largest change first */

const struct query_spec analysis_params[] = {
	{ .name = "limit",
	  .type = QUERY_UINT,
	  .min = 1,
	  .max = STACKS_MAX,
	  .about = "stacks listed" },
	{ .name = "system", .type = QUERY_BOOL, .about = "include the runtime's own goroutines" },
	{ .name = "frames",
	  .type = QUERY_WORD,
	  .words = "names full details raw",
	  .about =
		  "full adds file and line, details all that is known of each frame, raw keeps the runtime's "
		  "innermost frames" },
	{ 0 },
};

const struct query_spec diff_params[] = {
	{ .name = "frames", .type = QUERY_WORD, .words = "names full details",
	  .about = "full adds file and line, details all that is known of each frame" },
	{ 0 },
};

/* ---- one stack ------------------------------------------------------------------------------- */

#define NO_BASE UINT64_MAX

enum stack_frames stack_frames_of(const struct query *query)
{
	const char *word = query_text(query, "frames", "names");

	return strcmp(word, "full") == 0      ? STACK_FRAMES_FULL
	       : strcmp(word, "details") == 0 ? STACK_FRAMES_DETAILS
					      : STACK_FRAMES_NAMES;
}

static void details_json(struct json_out *json, const struct goroutine_analysis *a,
			 const struct goroutine_stack *stack)
{
	json_out_open(json, "frameDetails", '[');
	for (uint32_t i = 0; i < stack->frame_count; i++) {
		const struct profile_frame *frame = &a->p->frames[a->frames[stack->frame_first + i]];

		json_out_open(json, NULL, '{');
		json_out_text(json, "name", profile_string(a->p, a->p->functions[frame->function].name));
		render_frame_details(json, a->p, frame);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

void goroutine_stack_members(struct json_out *json, const struct goroutine_analysis *a,
			     const struct goroutine_stack *stack, enum stack_frames frames)
{
	const struct profile *p = a->p;

	json_out_text(json, "state", profile_string(p, stack->state));
	json_out_text(json, "waitReason", profile_string(p, stack->wait));
	json_out_open(json, "frames", '[');
	for (uint32_t i = 0; i < stack->frame_count; i++) {
		const struct profile_frame *frame = &p->frames[a->frames[stack->frame_first + i]];
		const struct profile_function *function = &p->functions[frame->function];
		const char *name = profile_string(p, function->name);
		char text[4096];

		(void)snprintf(text, sizeof(text), "%s %s:%u", name,
			       profile_string(p, function->file), frame->line);
		json_out_text(json, NULL, frames == STACK_FRAMES_FULL && function->file ? text : name);
	}
	json_out_close(json, ']');
	if (frames == STACK_FRAMES_DETAILS)
		details_json(json, a, stack);
	json_out_text(json, "createdBy", profile_string(p, stack->created_by));
}

/* @base_count: how many there were on the other side, NO_BASE = not said. */
static void stack_json(struct json_out *json, const struct goroutine_analysis *a,
		       const struct goroutine_stack *stack, uint64_t count, uint64_t base_count,
		       enum stack_frames frames)
{
	json_out_open(json, NULL, '{');
	json_out_uint(json, "count", count);
	if (base_count != NO_BASE)
		json_out_uint(json, "baseCount", base_count);
	goroutine_stack_members(json, a, stack, frames);
	if (stack->max_wait_s)
		json_out_uint(json, "maxWaitSeconds", stack->max_wait_s);
	json_out_close(json, '}');
}

static void counts_json(struct json_out *json, const char *name, const struct profile *p,
			const struct goroutine_count *counts, uint32_t count)
{
	json_out_open(json, name, '{');
	for (uint32_t i = 0; i < count; i++) {
		json_out_key(json, profile_string(p, counts[i].word));
		json_out_uint(json, NULL, counts[i].count);
	}
	json_out_close(json, '}');
}

/* ---- analysis -------------------------------------------------------------------------------- */

struct previous {
	char id[SESSION_ID_SIZE]; /* "" = nothing to compare with */
	uint64_t count;
};

/* -ENODATA: the profile has asyncio tasks and @like has none, or the other way round. */
static int count_goroutines(struct http_call *call, const char *id, const struct profile *like,
			    const struct goroutine_options *options, uint64_t *ret)
{
	cleanup(profile) struct profile *p = NULL;
	struct goroutine_analysis analysis = { 0 };
	struct err err = { 0 };
	int rc = flamegraph_profile(call, id, &p, &err);

	if (rc == 0 && goroutines_have_tasks(p) != goroutines_have_tasks(like))
		rc = -ENODATA;
	if (rc == 0)
		rc = goroutine_analysis_init(&analysis, p, options);
	if (rc < 0)
		return rc;
	*ret = analysis.total;
	goroutine_analysis_deinit(&analysis);
	return 0;
}

/* The newest goroutine baseline of the service older than the session. */
static bool previous_baseline(struct http_call *call, const struct side *side,
			      const struct goroutine_options *options, struct previous *ret)
{
	struct baseline_query query = { .tenant = call->request->tenant, .service = side->service,
					.type = PROFILE_GOROUTINE, .limit = 100 };
	struct baseline_list list = { 0 };
	struct err err = { 0 };
	bool found = false;

	if (sessions_baseline_list(call->api->options.sessions, &query, &list, &err) < 0)
		return false;
	for (uint32_t i = 0; i < list.count && !found; i++) {
		const struct baseline_info *info = &list.items[i];

		found = info->created_at_ns < side->created_at_ns &&
			count_goroutines(call, info->id, side->profile, options, &ret->count) == 0;
		if (found)
			(void)snprintf(ret->id, sizeof(ret->id), "%s", info->id);
	}
	baseline_list_deinit(&list);
	return found;
}

/* Else the previous completed goroutine session. */
static void previous_session(struct http_call *call, const struct side *side,
			     const struct goroutine_options *options, struct previous *ret)
{
	struct session_query query = { .tenant = call->request->tenant, .service = side->service,
				       .type = PROFILE_GOROUTINE, .status = SESSION_COMPLETED,
				       .to_ns = side->created_at_ns, .limit = PREVIOUS_MAX };
	struct session_list list = { 0 };
	struct err err = { 0 };

	if (sessions_list(call->api->options.sessions, &query, &list, &err) < 0)
		return;
	for (uint32_t i = 0; i < list.count && !ret->id[0]; i++)
		if (count_goroutines(call, list.items[i].id, side->profile, options, &ret->count) == 0)
			(void)snprintf(ret->id, sizeof(ret->id), "%s", list.items[i].id);
	session_list_deinit(&list);
}

static void analysis_json(struct http_call *call, const struct side *side,
			  const struct goroutine_analysis *a, const struct previous *previous,
			  const struct goroutine_options *options)
{
	const struct query *query = &call->request->query;
	uint64_t limit = query_uint(query, "limit", STACKS_DEFAULT), listed = 0;
	enum stack_frames frames = stack_frames_of(query);
	struct json_out json = json_out_to(&call->answer->body);

	json_out_open(&json, NULL, '{');
	json_out_text(&json, "sessionId", side->label);
	json_out_text(&json, "service", side->service);
	json_out_uint(&json, "goroutineCount", a->total);
	json_out_open(&json, "topStacks", '[');
	for (uint32_t i = 0; i < a->stack_count && i < limit; i++)
		stack_json(&json, a, &a->stacks[i], a->stacks[i].count, NO_BASE, frames);
	json_out_close(&json, ']');
	json_out_open(&json, "blockedGoroutines", '[');
	for (uint32_t i = 0; i < a->stack_count && listed < limit; i++) {
		if (a->stacks[i].blocked) {
			stack_json(&json, a, &a->stacks[i], a->stacks[i].count, NO_BASE, frames);
			listed++;
		}
	}
	json_out_close(&json, ']');
	counts_json(&json, "states", a->p, a->states, a->state_count);
	counts_json(&json, "waitReasons", a->p, a->waits, a->wait_count);
	json_out_uint(&json, "stackCount", a->stack_count);
	goroutine_findings_json(call, &json, side, a, options);
	json_out_real(&json, "goroutineGrowthRate",
		      previous->id[0] ? goroutine_growth_rate(a->total, previous->count) : 1.0, 4);
	if (previous->id[0])
		json_out_uint(&json, "previousGoroutineCount", previous->count);
	else
		json_out_null(&json, "previousGoroutineCount");
	json_out_text(&json, "comparedWith", previous->id[0] ? previous->id : NULL);
	json_out_time(&json, "analyzedAt", clock_realtime_ns());
	quality_json(&json, "quality", &a->p->quality);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
}

int handle_analysis(struct http_call *call)
{
	const struct query *query = &call->request->query;
	const struct goroutine_options options = {
		.system = query_bool(query, "system", false),
		.raw_frames = strcmp(query_text(query, "frames", "names"), "raw") == 0,
	};
	cleanup_side struct side side = { 0 };
	struct goroutine_analysis analysis = { 0 };
	struct previous previous = { 0 };
	int rc = side_load(call, call->request->path[0], "sessionId", &side);

	if (rc < 0)
		return rc;
	if (side.profile->meta.type != PROFILE_GOROUTINE)
		return err_set(call->err, EINVAL, "ProfileTypeMismatch", "sessionId",
			       "the analysis is for goroutine sessions, this is %s",
			       profile_type_info(side.profile->meta.type)->word);
	rc = goroutine_analysis_init(&analysis, side.profile, &options);
	if (rc < 0)
		return rc;
	if (!previous_baseline(call, &side, &options, &previous))
		previous_session(call, &side, &options, &previous);
	analysis_json(call, &side, &analysis, &previous, &options);
	goroutine_analysis_deinit(&analysis);
	return 0;
}

/* ---- diff ------------------------------------------------------------------------------------ */

enum diff_list { DIFF_NEW, DIFF_GROWN, DIFF_REMOVED };

static void diff_stacks_json(struct json_out *json, const char *name, enum diff_list list,
			     const struct diff_stack *stacks, uint32_t count, enum stack_frames frames)
{
	json_out_open(json, name, '[');
	for (uint32_t i = 0; i < count; i++)
		stack_json(json, stacks[i].side, stacks[i].stack,
			   list == DIFF_REMOVED ? stacks[i].base_count : stacks[i].compare_count,
			   list == DIFF_GROWN ? stacks[i].base_count : NO_BASE, frames);
	json_out_close(json, ']');
}

static void diff_functions_json(struct json_out *json, const struct profile_diff *diff)
{
	json_out_open(json, "functions", '[');
	for (uint32_t i = 0; i < diff->function_count && i < DIFF_FUNCTIONS; i++) {
		const struct diff_function *f = &diff->functions[i];

		json_out_open(json, NULL, '{');
		json_out_text(json, "funcName", f->name);
		json_out_text(json, "package", f->package);
		json_out_text(json, "file", f->file);
		json_out_uint(json, "line", f->line);
		json_out_real(json, "basePct", f->base_pct, 4);
		json_out_real(json, "comparisonPct", f->compare_pct, 4);
		json_out_real(json, "deltaPct", f->compare_pct - f->base_pct, 4);
		json_out_int(json, "baseSelf", f->base_self);
		json_out_int(json, "comparisonSelf", f->compare_self);
		json_out_int(json, "baseCumulative", f->base_cumulative);
		json_out_int(json, "comparisonCumulative", f->compare_cumulative);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

static int write_diff(struct http_call *call, const struct side sides[2],
		      const struct json_warnings *warnings)
{
	const struct goroutine_options options = { 0 };
	enum stack_frames frames = stack_frames_of(&call->request->query);
	struct json_out json = json_out_to(&call->answer->body);
	struct profile_diff diff;
	int rc = profile_diff_init(&diff, sides[0].profile, sides[1].profile, &options);

	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "baseSessionId", sides[0].label);
	json_out_text(&json, "compareSessionId", sides[1].label);
	json_out_text(&json, "profileType", profile_type_info(sides[0].profile->meta.type)->word);
	diff_stacks_json(&json, "newStacks", DIFF_NEW, diff.new_stacks, diff.new_count, frames);
	json_out_uint(&json, "growthCount", diff.growth_count);
	diff_stacks_json(&json, "grownStacks", DIFF_GROWN, diff.grown_stacks, diff.grown_count, frames);
	diff_stacks_json(&json, "removedStacks", DIFF_REMOVED, diff.removed_stacks,
			 diff.removed_count, frames);
	json_out_int(&json, "netGrowth", diff.net_growth);
	if (sides[0].profile->meta.type != PROFILE_GOROUTINE)
		diff_functions_json(&json, &diff);
	json_out_open(&json, "quality", '{');
	quality_json(&json, "base", &sides[0].profile->quality);
	quality_json(&json, "comparison", &sides[1].profile->quality);
	json_out_close(&json, '}');
	warnings_json(&json, warnings);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	profile_diff_deinit(&diff);
	return 0;
}

int handle_diff(struct http_call *call)
{
	const char *base_id = "", *compare_id = "";
	struct json_warnings warnings = { 0 };
	struct side sides[2] = { 0 };
	cleanup(json) cJSON *body = NULL;
	enum profile_type type = PROFILE_TYPE_MAX;
	int rc = json_in_object(call->request->body, call->request->body_len, &body, call->err);

	if (rc == 0)
		rc = json_in_text(body, "baseId", true, 127, &base_id, call->err);
	if (rc == 0)
		rc = json_in_text(body, "compareId", true, 127, &compare_id, call->err);
	if (rc == 0)
		rc = json_in_type(body, "type", true, &type, call->err);
	if (rc == 0)
		rc = sides_load(call, base_id, "baseId", compare_id, "compareId", sides);
	if (rc < 0)
		return rc;
	json_in_unknown(body, "baseId compareId type", &warnings);
	if (sides[0].profile->meta.type != type)
		rc = err_set(call->err, EINVAL, "ProfileTypeMismatch", "type",
			     "both sessions are %s profiles",
			     profile_type_info(sides[0].profile->meta.type)->word);
	else
		rc = write_diff(call, sides, &warnings);
	side_deinit(&sides[0]);
	side_deinit(&sides[1]);
	return rc;
}

/* ---- flame graph as a string ----------------------------------------------------------------- */

const struct query_spec goroutine_flame_params[] = {
	{ .name = "format", .type = QUERY_WORD, .words = "folded json svg html flame" },
	{ .name = "frames",
	  .type = QUERY_WORD,
	  .words = "names details",
	  .about = "details: file, module, build-id, kind of each frame too (json)" },
	/* Go's and those of other programs' threads. */
	{ .name = "state",
	  .type = QUERY_WORD,
	  .flags = QUERY_EMPTY,
	  .about = "empty: all",
	  .words = "running runnable waiting syscall sleeping blocked stopped idle copystack "
		   "preempted leaked dead" },
	{ .name = "minCount",
	  .type = QUERY_UINT,
	  .min = 0,
	  .max = UINT32_MAX,
	  .about = "leave out stacks that fewer goroutines share" },
	{ .name = "system", .type = QUERY_BOOL, .about = "include the runtime's own goroutines" },
	{ 0 },
};

/* Samples of @p whose stack holds at least @least, as a view that borrows everything else. Those of
 * a stack stand together. */
static int keep_large(const struct profile *p, uint64_t least, struct profile *view)
{
	unsigned value = profile_value_index(p);

	*view = *p;
	view->sample_count = view->event_count = 0;
	view->samples = calloc((size_t)p->sample_count + 1, sizeof(*view->samples));
	if (!view->samples)
		return -ENOMEM;
	for (uint32_t from = 0, to; from < p->sample_count; from = to) {
		int64_t count = 0;

		for (to = from; to < p->sample_count && p->samples[to].node == p->samples[from].node; to++)
			count += p->samples[to].values[value];
		if (count < (int64_t)least)
			continue;
		memcpy(view->samples + view->sample_count, p->samples + from, (to - from) * sizeof(*p->samples));
		view->sample_count += to - from;
	}
	return 0;
}

static int render_quoted(struct http_call *call, const struct profile *p)
{
	const struct query *query = &call->request->query;
	const struct render_format *format =
		render_format_find(query_text(query, "format", "folded"));
	const struct render_options options = {
		.value_index = profile_value_index(p),
		.details = stack_frames_of(query) == STACK_FRAMES_DETAILS,
	};
	struct http_answer *answer = call->answer;
	struct json_out json = json_out_to(&answer->body);
	struct json_stream text;
	int rc, end;

	http_answer_stream(answer, call->api->options.data_dir, &call->api->answer_files);
	json_out_open(&json, NULL, '{');
	json_out_stream_begin(&json, "data", &text);
	rc = format->render(p, &options, &text.plain, call->err);
	end = json_out_stream_end(&text);
	rc = rc < 0 ? rc : end;
	json_out_close(&json, '}');
	end = http_answer_end(answer);
	answer->content_type = "application/json";
	return rc < 0 ? rc : end;
}

static int render_large(struct http_call *call, const struct profile *p)
{
	uint64_t least = query_uint(&call->request->query, "minCount", 0);
	struct profile view;
	int rc;

	if (!least)
		return render_quoted(call, p);
	rc = keep_large(p, least, &view);
	if (rc < 0)
		return rc;
	rc = render_quoted(call, &view);
	free(view.samples);
	return rc;
}

static int render_state(struct http_call *call, const struct profile *p)
{
	const char *state = query_text(&call->request->query, "state", "");
	const struct profile_filter filter = { .where_names = { "state" }, .where_values = { state },
					       .where_count = 1 };
	cleanup(profile) struct profile *part = NULL;
	int rc;

	if (!*state)
		return render_large(call, p);
	rc = profile_select(p, &filter, &part);
	return rc < 0 ? rc : render_large(call, part);
}

int handle_goroutine_flame(struct http_call *call)
{
	cleanup_side struct side side = { 0 };
	struct profile view;
	int rc = side_load(call, call->request->path[0], "sessionId", &side);

	if (rc < 0)
		return rc;
	if (side.profile->meta.type != PROFILE_GOROUTINE)
		return err_set(call->err, EINVAL, "ProfileTypeMismatch", "sessionId",
			       "this is a %s session, not goroutine",
			       profile_type_info(side.profile->meta.type)->word);
	if (query_bool(&call->request->query, "system", false))
		return render_state(call, side.profile);
	rc = goroutines_of_program(side.profile, &view);
	if (rc < 0)
		return rc;
	rc = render_state(call, &view);
	free(view.samples);
	return rc;
}
