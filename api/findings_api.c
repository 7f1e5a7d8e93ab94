// SPDX-License-Identifier: Apache-2.0
#include "api/findings_api.h"

#include <errno.h>

#include "agent/base/clock.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/http/json_in.h"
#include "api/services_api.h"

#define LIMIT_DEFAULT 20
#define LIMIT_MAX     100

const struct query_spec findings_params[] = {
	{ .name = "service", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1 },
	{ .name = "from", .alias = "start", .type = QUERY_TIME },
	{ .name = "to", .alias = "end", .type = QUERY_TIME },
	{ .name = "limit", .alias = "size", .type = QUERY_UINT, .min = 1, .max = LIMIT_MAX },
	{ .name = "cursor", .type = QUERY_TEXT, .min = 1, .max = 63 },
	{ 0 },
};

static int items_json(struct json_out *json, const struct finding_list *list)
{
	json_out_open(json, "items", '[');
	for (uint32_t i = 0; i < list->count; i++) {
		cleanup_free char *item = finding_json(&list->items[i]);

		if (!item)
			return -ENOMEM;
		json_out_raw(json, item);
	}
	json_out_close(json, ']');
	return 0;
}

int handle_findings(struct http_call *call)
{
	const struct query *query = &call->request->query;
	struct json_out json = json_out_to(&call->answer->body);
	const struct finding_query wanted = {
		.tenant = call->request->tenant,
		.service = service_asked(call, "service"),
		.from_ns = query_uint(query, "from", 0),
		.to_ns = query_uint(query, "to", 0),
		.limit = (uint32_t)query_uint(query, "limit", LIMIT_DEFAULT),
		.cursor = query_text(query, "cursor", NULL),
	};
	struct finding_list list;
	int rc = sessions_findings(call->api->options.sessions, &wanted, &list, call->err);

	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	rc = items_json(&json, &list);
	json_out_text(&json, "nextCursor", list.next_cursor[0] ? list.next_cursor : NULL);
	json_out_uint(&json, "total", list.total);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	finding_list_deinit(&list);
	return rc;
}

/* ---- checking now ---------------------------------------------------------------------------- */

static int parse_check(const cJSON *body, const char **service, uint64_t *at_ns,
		       struct json_warnings *warnings, struct err *err)
{
	const char *at = NULL;
	int rc = json_in_text(body, "service", false, SERVICE_NAME_SIZE - 1, service, err);

	if (rc == 0)
		rc = json_in_text(body, "at", false, 64, &at, err);
	if (rc == 0 && at && clock_parse_rfc3339(at, at_ns) < 0)
		rc = err_set(err, EINVAL, "InvalidParam", "at",
			     "member at must be a time as 2026-11-21T14:00:00Z");
	json_in_unknown(body, "service at", warnings);
	return rc;
}

int handle_check_findings(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	struct json_warnings warnings = { 0 };
	cleanup(json) cJSON *body = NULL;
	const char *service = NULL;
	uint64_t at_ns = 0;
	uint32_t checked = 0;
	int rc = json_in_object(call->request->body, call->request->body_len, &body, call->err);

	if (rc == 0)
		rc = parse_check(body, &service, &at_ns, &warnings, call->err);
	if (rc == 0)
		rc = sessions_watch_check(call->api->options.sessions, call->request->tenant, service,
					  at_ns, &checked, call->err);
	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_uint(&json, "checked", checked);
	warnings_json(&json, &warnings);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return 0;
}

/* ---- deployments ----------------------------------------------------------------------------- */

int deployments_json(struct http_call *call, struct json_out *json,
		     const struct session_query *list)
{
	struct deployment_list deployments;
	int rc = sessions_deployments(call->api->options.sessions, list->tenant, list->service,
				      list->from_ns, list->to_ns, &deployments, call->err);

	if (rc < 0)
		return rc;
	json_out_open(json, "deployments", '[');
	for (uint32_t i = 0; i < deployments.count; i++) {
		const struct deployment_info *info = &deployments.items[i];

		json_out_open(json, NULL, '{');
		json_out_time(json, "at", info->at_ns);
		json_out_text(json, "service", info->service);
		json_out_text(json, "host", info->host);
		json_out_text(json, "exe", info->exe);
		json_out_text(json, "buildId", info->build_id);
		json_out_text(json, "previousBuildId", info->previous_build_id);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	deployment_list_deinit(&deployments);
	return 0;
}
