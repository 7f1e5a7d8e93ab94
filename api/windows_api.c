// SPDX-License-Identifier: Apache-2.0
#include "api/windows_api.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/flamegraph.h"
#include "api/render/quality_json.h"
#include "api/services_api.h"
#include "api/session_json.h"

const struct query_spec window_flamegraph_params[] = {
	{ .name = "service", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1,
	  .flags = QUERY_REQUIRED | QUERY_BOUND },
	{ .name = "profileType", .type = QUERY_PROFILE_TYPE, .flags = QUERY_REQUIRED | QUERY_BOUND },
	{ .name = "start", .type = QUERY_TIME, .flags = QUERY_REQUIRED | QUERY_BOUND,
	  .about = "start of the window" },
	{ .name = "end", .type = QUERY_TIME, .flags = QUERY_REQUIRED | QUERY_BOUND,
	  .about = "end of the window, exclusive" },
	FLAMEGRAPH_VIEW_PARAMS,
	{ 0 },
};

static int window_of(struct http_call *call, const struct session_query *list,
		     struct history_window *ret)
{
	if (!list->service)
		return err_set(call->err, EINVAL, "InvalidParam", "service",
			       "aggregate and merge need the parameter service");
	if (list->type < 0)
		return err_set(call->err, EINVAL, "InvalidParam", "profileType",
			       "aggregate and merge need the parameter profileType");
	*ret = (struct history_window){
		.tenant = list->tenant,
		.service = list->service,
		.type = (enum profile_type)list->type,
		.from_ns = list->from_ns,
		.to_ns = list->to_ns ? list->to_ns : clock_realtime_ns(),
	};
	if (ret->from_ns >= ret->to_ns)
		return err_set(call->err, EINVAL, "InvalidParam", "from", "from lies in the future");
	return 0;
}

static int points_json(struct http_call *call, struct json_out *json,
		       const struct history_window *window, struct profile_quality *ret_quality)
{
	const struct query *query = &call->request->query;
	struct history_points points = { 0 };
	uint64_t step_ns = query_uint(query, "aggregate", 0);
	int rc;

	if ((window->to_ns - window->from_ns) / step_ns >= HISTORY_POINTS_MAX)
		return err_set(call->err, EINVAL, "InvalidParam", "aggregate",
			       "more than %u points; choose a longer step", HISTORY_POINTS_MAX);
	rc = sessions_points(call->api->options.sessions, window, step_ns,
			     query_text(query, "function", NULL), &points, call->err);
	if (rc < 0)
		return rc;
	json_out_open(json, "points", '[');
	for (uint32_t i = 0; i < points.count; i++) {
		const struct history_point *point = &points.items[i];

		json_out_open(json, NULL, '{');
		json_out_time(json, "from", point->from_ns);
		json_out_time(json, "to", point->to_ns);
		json_out_int(json, "totalValue", point->total_value);
		json_out_real(json, "valuePerSecond", point->value_per_second, 3);
		json_out_uint(json, "sampleCount", point->sample_count);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	*ret_quality = points.quality;
	history_points_deinit(&points);
	return 0;
}

/* Nothing to merge leaves @ret_quality. */
static int merged_json(struct http_call *call, struct json_out *json,
		       const struct history_window *window, struct profile_quality *ret_quality)
{
	struct history_functions functions = { 0 };
	char link[LINK_SIZE];
	int rc = sessions_window_functions(call->api->options.sessions, window, &functions, call->err);

	/* Nothing stored is an empty merge, not a failure of the list. */
	if (rc < 0 && call->err->word && strcmp(call->err->word, "NotFound") == 0) {
		*call->err = (struct err){ 0 };
		json_out_open(json, "topFunctions", '[');
		json_out_close(json, ']');
		json_out_null(json, "flameGraphUrl");
		return 0;
	}
	if (rc == 0)
		rc = function_rows_json(json, "topFunctions", functions.profile,
					profile_value_index(functions.profile), functions.rows,
					functions.count < TOP_FUNCTIONS_DEFAULT
						? functions.count
						: TOP_FUNCTIONS_DEFAULT,
					false);
	if (rc == 0)
		json_out_text(json, "flameGraphUrl", link_window(call->api, window, link));
	if (rc == 0)
		*ret_quality = functions.profile->quality;
	history_functions_deinit(&functions);
	return rc;
}

int windows_json(struct http_call *call, struct json_out *json, const struct session_query *list)
{
	const struct query *query = &call->request->query;
	bool points = query_has(query, "aggregate"), merge = query_bool(query, "merge", false);
	struct history_window window;
	struct profile_quality quality = { .samples = -1,
					   .lost = -1,
					   .truncated_pct = -1,
					   .unknown_frame_pct = -1,
					   .guessed_frame_pct = -1,
					   .effective_rate = -1,
					   .overhead_pct = -1,
					   .type_overhead_pct = -1 };
	int rc;

	if (!points && query_has(query, "function"))
		return err_set(call->err, EINVAL, "InvalidParam", "function",
			       "function restricts the points of aggregate, which is missing");
	if (!points && !merge)
		return 0;
	rc = window_of(call, list, &window);
	if (rc == 0 && points)
		rc = points_json(call, json, &window, &quality);
	if (rc == 0 && merge)
		rc = merged_json(call, json, &window, &quality);
	if (rc == 0)
		quality_json(json, "quality", &quality);
	return rc;
}

int handle_window_flamegraph(struct http_call *call)
{
	const struct query *query = &call->request->query;
	const struct history_window window = {
		.tenant = call->request->tenant,
		.service = service_asked(call, "service"),
		.type = (enum profile_type)query_uint(query, "profileType", 0),
		.from_ns = query_uint(query, "start", 0),
		.to_ns = query_uint(query, "end", 0),
		.raw = flamegraph_wants_raw(query),
	};
	cleanup(profile) struct profile *p = NULL;
	int rc;

	if (window.from_ns >= window.to_ns)
		return err_set(call->err, EINVAL, "InvalidParam", "end", "end must lie after start");
	rc = sessions_window_profile(call->api->options.sessions, &window, &p, call->err);
	return rc < 0 ? rc
		      : flamegraph_answer(call, p,
					  &(struct flamegraph_span){ window.from_ns, window.to_ns },
					  window.service);
}
