// SPDX-License-Identifier: Apache-2.0
#include "api/goroutine_findings_json.h"

#include <string.h>

#include "agent/profile/goroutine/goroutine_findings.h"
#include "api/api_internal.h"
#include "api/goroutines_api.h"

#define LIMIT_DEFAULT 20

/* ---- the sessions before ----------------------------------------------------------------------
 */

/* Oldest first; the last is the one that is asked about and not owned. */
struct series {
	struct profile *profiles[FINDINGS_HISTORY_MAX];
	struct goroutine_analysis analyses[FINDINGS_HISTORY_MAX];
	char ids[FINDINGS_HISTORY_MAX][SESSION_ID_SIZE];
	uint32_t count;
};

static void series_deinit(struct series *series)
{
	for (uint32_t i = 0; i + 1 < series->count; i++) {
		goroutine_analysis_deinit(&series->analyses[i]);
		series->profiles[i] = profile_unref(series->profiles[i]);
	}
}

static bool add_session(struct http_call *call, struct series *series, const char *id,
			bool has_tasks, const struct goroutine_options *options)
{
	struct profile **profile = &series->profiles[series->count];
	struct err err = { 0 };

	if (sessions_profile(call->api->options.sessions, call->request->tenant, id, profile, &err) < 0)
		return false;
	if (goroutines_have_tasks(*profile) != has_tasks ||
	    goroutine_analysis_init(&series->analyses[series->count], *profile, options) < 0) {
		*profile = profile_unref(*profile);
		return false;
	}
	(void)snprintf(series->ids[series->count++], SESSION_ID_SIZE, "%s", id);
	return true;
}

static void load_series(struct http_call *call, const struct side *side,
			const struct goroutine_analysis *newest,
			const struct goroutine_options *options, struct series *series)
{
	struct session_query query = { .tenant = call->request->tenant, .service = side->service,
				       .type = PROFILE_GOROUTINE, .status = SESSION_COMPLETED,
				       .to_ns = side->created_at_ns, .limit = FINDINGS_HISTORY_MAX - 1 };
	struct session_list list = { 0 };
	struct err err = { 0 };

	if (sessions_list(call->api->options.sessions, &query, &list, &err) == 0) {
		for (uint32_t i = list.count; i-- > 0;)
			(void)add_session(call, series, list.items[i].id,
					  goroutines_have_tasks(newest->p), options);
		session_list_deinit(&list);
	}
	series->analyses[series->count] = *newest;
	(void)snprintf(series->ids[series->count++], SESSION_ID_SIZE, "%.*s", SESSION_ID_SIZE - 1,
		       side->label);
}

/* ---- lists ------------------------------------------------------------------------------------
 */

static void leaks_json(struct json_out *json, const struct goroutine_findings *findings,
		       const struct series *series, enum stack_frames frames)
{
	const struct goroutine_analysis *a = &series->analyses[series->count - 1];

	json_out_open(json, "suspectedLeaks", '[');
	for (uint32_t i = 0; i < findings->leak_count; i++) {
		const struct goroutine_leak *leak = &findings->leaks[i];

		json_out_open(json, NULL, '{');
		json_out_uint(json, "count", leak->counts[series->count - 1]);
		goroutine_stack_members(json, a, leak->stack, frames);
		if (leak->max_wait_s)
			json_out_uint(json, "maxWaitSeconds", leak->max_wait_s);
		json_out_open(json, "sessions", '[');
		for (uint32_t j = leak->first; j < series->count; j++) {
			json_out_open(json, NULL, '{');
			json_out_text(json, "sessionId", series->ids[j]);
			json_out_uint(json, "count", leak->counts[j]);
			json_out_close(json, '}');
		}
		json_out_close(json, ']');
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

static void object_json(struct json_out *json, const struct profile *p, uint32_t process,
			uint32_t object)
{
	if (process < p->process_count)
		json_out_uint(json, "pid", p->processes[process].pid);
	if (object)
		json_out_text(json, "waitObject", profile_string(p, object));
}

static void deadlocks_json(struct json_out *json, const struct goroutine_findings *findings,
			   const struct goroutine_analysis *a, enum stack_frames frames)
{
	json_out_open(json, "deadlockCandidates", '[');
	for (uint32_t i = 0; i < findings->deadlock_count; i++) {
		const struct goroutine_deadlock *deadlock = &findings->deadlocks[i];

		json_out_open(json, NULL, '{');
		json_out_text(json, "kind", goroutine_deadlock_word(deadlock->kind));
		json_out_uint(json, "count", deadlock->count);
		object_json(json, a->p, deadlock->process, deadlock->object);
		goroutine_stack_members(json, a, deadlock->stack, frames);
		if (deadlock->max_wait_s)
			json_out_uint(json, "maxWaitSeconds", deadlock->max_wait_s);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

static void waits_json(struct json_out *json, const struct goroutine_findings *findings,
		       const struct goroutine_analysis *a, enum stack_frames frames)
{
	json_out_open(json, "longestWaits", '[');
	for (uint32_t i = 0; i < findings->wait_count; i++) {
		const struct goroutine_wait *wait = &findings->waits[i];

		json_out_open(json, NULL, '{');
		json_out_uint(json, "goid", wait->id);
		json_out_uint(json, "waitSeconds", wait->wait_s);
		object_json(json, a->p, wait->process, wait->object);
		goroutine_stack_members(json, a, wait->stack, frames);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

static void labels_json(struct json_out *json, const struct goroutine_findings *findings,
			const struct profile *p)
{
	json_out_open(json, "labels", '{');
	for (uint32_t i = 0; i < findings->label_count; i++) {
		const struct goroutine_label *label = &findings->labels[i];

		if (!i || label->name != label[-1].name) {
			if (i)
				json_out_close(json, '}');
			json_out_open(json, profile_string(p, label->name), '{');
		}
		json_out_key(json, profile_string(p, label->value));
		json_out_uint(json, NULL, label->count);
	}
	if (findings->label_count)
		json_out_close(json, '}');
	json_out_close(json, '}');
}

void goroutine_findings_json(struct http_call *call, struct json_out *json, const struct side *side,
			     const struct goroutine_analysis *a, const struct goroutine_options *options)
{
	const struct query *query = &call->request->query;
	uint32_t limit = (uint32_t)query_uint(query, "limit", LIMIT_DEFAULT);
	enum stack_frames frames = stack_frames_of(query);
	cleanup_goroutine_findings struct goroutine_findings findings = { 0 };
	__attribute__((__cleanup__(series_deinit))) struct series series = { 0 };

	load_series(call, side, a, options, &series);
	if (goroutine_findings_init(&findings, series.analyses, series.count, limit) < 0)
		return;
	leaks_json(json, &findings, &series, frames);
	deadlocks_json(json, &findings, a, frames);
	waits_json(json, &findings, a, frames);
	labels_json(json, &findings, a->p);
}
