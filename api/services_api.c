// SPDX-License-Identifier: Apache-2.0
#include "api/services_api.h"

#include "agent/base/clock.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/http/json_out.h"
#include "api/session_json.h"

#define HOUR_S	   3600
#define POINTS_MAX 60 /* the history keeps minutes */

const struct query_spec services_params[] = {
	{ .name = "sparkline", .type = QUERY_WORD, .words = "cpu",
	  .about = "also the last hour of each service" },
	{ .name = "points", .type = QUERY_UINT, .min = 1, .max = POINTS_MAX,
	  .about = "values of a sparkline" },
	{ .name = "lastProfile", .type = QUERY_BOOL,
	  .about = "also the newest profile of each service" },
	{ 0 },
};

const char *service_asked(struct http_call *call, const char *name)
{
	struct query *query = &call->request->query;
	const char *text = query_text(query, name, NULL);
	char stored[SERVICE_NAME_SIZE];

	if (!text)
		return NULL;
	sessions_service_name(call->api->options.sessions, call->request->tenant, text, stored);
	query_replace(query, name, stored);
	return query_text(query, name, NULL);
}

/* CPUs over the last whole hour of minutes; null where nothing was taken. A service without history
 * has no line at all. */
static void sparkline_json(struct http_call *call, struct json_out *json, const char *service)
{
	uint64_t count = query_uint(&call->request->query, "points", POINTS_MAX);
	uint64_t step_s = (HOUR_S / count + 59) / 60 * 60,
		 end_s = clock_realtime_ns() / NS_PER_S / 60 * 60;
	const struct history_window window = {
		.tenant = call->request->tenant,
		.service = service,
		.type = PROFILE_CPU,
		.from_ns = (end_s - HOUR_S) * NS_PER_S,
		.to_ns = end_s * NS_PER_S,
		.host = "", /* as its processes */
	};
	struct history_points points = { 0 };
	struct err err = { 0 };
	uint32_t at = 0;

	if (sessions_points(call->api->options.sessions, &window, step_s * NS_PER_S, NULL, &points,
			    &err) < 0 || !points.count) {
		history_points_deinit(&points);
		json_out_null(json, "sparkline");
		return;
	}
	json_out_open(json, "sparkline", '{');
	json_out_time(json, "from", window.from_ns);
	json_out_uint(json, "stepSeconds", step_s);
	json_out_open(json, "values", '[');
	for (uint64_t from_ns = window.from_ns; from_ns < window.to_ns; from_ns += step_s * NS_PER_S) {
		while (at < points.count && points.items[at].from_ns < from_ns)
			at++;
		if (at < points.count && points.items[at].from_ns < from_ns + step_s * NS_PER_S)
			json_out_real(json, NULL, points.items[at].value_per_second / 1e9, 4);
		else
			json_out_null(json, NULL);
	}
	json_out_close(json, ']');
	json_out_close(json, '}');
	history_points_deinit(&points);
}

/* However old it is, and however many of other services are newer. */
static void last_profile_json(struct http_call *call, struct json_out *json, const char *service)
{
	const struct session_query query = { .tenant = call->request->tenant,
					     .service = service,
					     .type = -1,
					     .status = -1,
					     .limit = 1 };
	struct session_list list = { 0 };
	struct err err = { 0 };

	if (sessions_list(call->api->options.sessions, &query, &list, &err) < 0 || !list.count) {
		session_list_deinit(&list);
		json_out_null(json, "lastProfile");
		return;
	}
	json_out_open(json, "lastProfile", '{');
	json_out_text(json, "id", list.items[0].id);
	json_out_text(json, "profileType", profile_type_info(list.items[0].type)->word);
	json_out_text(json, "status", session_status_text(list.items[0].status));
	json_out_time(json, "createdAt", list.items[0].created_at_ns);
	json_out_close(json, '}');
	session_list_deinit(&list);
}

static void service_json(struct http_call *call, struct json_out *json,
			 const struct service_info *service)
{
	json_out_open(json, NULL, '{');
	json_out_text(json, "name", service->name);
	json_out_text(json, "source", service->source);
	json_out_bool(json, "inferred", service->inferred);
	json_out_text(json, "runtime", service->runtime);
	json_out_text(json, "containerId", service->container_id[0] ? service->container_id : NULL);
	json_out_text(json, "container", service->container[0] ? service->container : NULL);
	json_out_text(json, "image", service->image[0] ? service->image : NULL);
	json_out_text(json, "pod", service->pod[0] ? service->pod : NULL);
	json_out_text(json, "namespace", service->namespace[0] ? service->namespace : NULL);
	json_out_text(json, "workload", service->workload[0] ? service->workload : NULL);
	json_out_text(json, "systemdUnit", service->unit[0] ? service->unit : NULL);
	json_out_real(json, "cpus", service->cpus, 4);
	json_out_open(json, "processes", '[');
	for (uint32_t i = 0; i < service->process_count; i++) {
		const struct service_process *process = &service->processes[i];

		json_out_open(json, NULL, '{');
		json_out_uint(json, "pid", process->pid);
		json_out_time(json, "startedAt", process->started_at_ns);
		json_out_text(json, "exe", process->exe);
		json_out_text(json, "runtime", process->runtime);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	json_out_open(json, "profileTypes", '[');
	for (unsigned i = 0; i < PROFILE_TYPE_MAX; i++) {
		const struct service_type_state *state = &service->types[i];

		json_out_open(json, NULL, '{');
		json_out_text(json, "type", profile_type_info((enum profile_type)i)->word);
		json_out_bool(json, "available", state->available);
		json_out_text(json, "reason", state->available ? NULL : state->reason);
		json_out_text(json, "hint", state->hint);
		options_json(json, profile_type_info((enum profile_type)i)->options);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	if (query_has(&call->request->query, "sparkline"))
		sparkline_json(call, json, service->name);
	if (query_bool(&call->request->query, "lastProfile", false))
		last_profile_json(call, json, service->name);
	json_out_close(json, '}');
}

int handle_services(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	struct service_list list = { 0 };
	int rc = sessions_services(call->api->options.sessions, call->request->tenant, &list,
				   call->err);

	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "items", '[');
	for (uint32_t i = 0; i < list.count; i++)
		service_json(call, &json, &list.items[i]);
	json_out_close(&json, ']');
	json_out_null(&json, "nextCursor");
	json_out_uint(&json, "total", list.count);
	json_out_uint(&json, "hostCpus", list.host_cpus);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	service_list_deinit(&list);
	return 0;
}
