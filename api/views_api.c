// SPDX-License-Identifier: Apache-2.0
#include "api/views_api.h"

#include <errno.h>

#include "agent/profile/heatmap.h"
#include "agent/profile/thread_ledger.h"
#include "api/api_internal.h"
#include "api/http/json_out.h"
#include "api/render/quality_json.h"

#define COLUMN_DEFAULT_MS 1000
#define ROW_DEFAULT_MS	  20

const struct query_spec heatmap_params[] = {
	{ .name = "colMs", .type = QUERY_UINT, .min = 1, .max = 3600000,
	  .about = "milliseconds of one column" },
	{ .name = "rowMs", .type = QUERY_UINT, .min = 1, .max = 3600000,
	  .about = "milliseconds of one row; must divide colMs" },
	{ 0 },
};

static int load(struct http_call *call, struct profile **ret)
{
	return sessions_profile(call->api->options.sessions, call->request->tenant,
				call->request->path[0], ret, call->err);
}

int handle_heatmap(struct http_call *call)
{
	const struct query *query = &call->request->query;
	uint32_t col_ms = (uint32_t)query_uint(query, "colMs", COLUMN_DEFAULT_MS);
	uint32_t row_ms = (uint32_t)query_uint(query, "rowMs", ROW_DEFAULT_MS);
	struct json_out json = json_out_to(&call->answer->body);
	cleanup(profile) struct profile *p = NULL;
	struct heatmap map;
	int rc = load(call, &p);

	if (rc < 0)
		return rc;
	if (col_ms % row_ms)
		return err_set(call->err, EINVAL, "InvalidParam", "rowMs",
			       "query parameter rowMs must divide colMs");
	rc = heatmap_init(&map, p, col_ms, row_ms);
	if (rc == -ENODATA)
		return err_set(
			call->err, ENODATA, "DetailExpired", NULL,
			p->meta.grain_ns
				? "the times of this profile's single samples are not kept any more, only sums of "
				  "minutes: ask with colMs and rowMs of whole minutes"
				: "the times of this profile's samples are not kept");
	if (rc == -E2BIG)
		return err_set(call->err, EINVAL, "InvalidParam", "rowMs",
			       "more than %u cells; choose wider rows", HEATMAP_CELLS_MAX);
	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_time(&json, "from", map.from_ns);
	json_out_uint(&json, "colMs", map.col_ms);
	json_out_uint(&json, "rowMs", map.row_ms);
	json_out_uint(&json, "cols", map.cols);
	json_out_uint(&json, "rows", map.rows);
	json_out_int(&json, "max", map.max);
	json_out_open(&json, "cells", '[');
	for (uint64_t i = 0; i < (uint64_t)map.cols * map.rows; i++)
		json_out_int(&json, NULL, map.cells[i]);
	json_out_close(&json, ']');
	quality_json(&json, "quality", &p->quality);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	heatmap_deinit(&map);
	return 0;
}

static void thread_json(struct json_out *json, const struct profile *p,
			const struct thread_ledger *ledger, const struct ledger_thread *thread)
{
	json_out_open(json, NULL, '{');
	json_out_uint(json, "pid",
		      thread->process < p->process_count ? p->processes[thread->process].pid : 0);
	json_out_uint(json, "tid", thread->tid);
	json_out_text(json, "thread", profile_string(p, thread->name));
	json_out_int(json, "elapsedNs", thread->elapsed_ns);
	json_out_int(json, "userNs", thread->user_ns);
	json_out_int(json, "kernelNs", thread->kernel_ns);
	json_out_int(json, "runqueueNs", thread->runqueue_ns);
	json_out_int(json, "preemptedNs", thread->preempted_ns);
	json_out_int(json, "stolenNs", thread->stolen_ns);
	json_out_open(json, "blockedNs", '{');
	for (uint32_t i = 0; i < thread->wait_count; i++) {
		const struct ledger_wait *wait = &ledger->waits[thread->wait_first + i];

		json_out_key(json, wait->wait ? profile_string(p, wait->wait) : "other");
		json_out_int(json, NULL, wait->ns);
	}
	json_out_close(json, '}');
	json_out_close(json, '}');
}

int handle_ledger(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	cleanup(profile) struct profile *p = NULL;
	struct thread_ledger ledger;
	int rc = load(call, &p);

	if (rc < 0)
		return rc;
	if (p->meta.type != PROFILE_WALL)
		return err_set(call->err, EINVAL, "ProfileTypeMismatch", "profileId",
			       "the ledger is made from wall sessions, this is %s",
			       profile_type_info(p->meta.type)->word);
	rc = thread_ledger_init(&ledger, p);
	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "threads", '[');
	for (uint32_t i = 0; i < ledger.thread_count; i++)
		thread_json(&json, p, &ledger, &ledger.threads[i]);
	json_out_close(&json, ']');
	quality_json(&json, "quality", &p->quality);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	thread_ledger_deinit(&ledger);
	return 0;
}
