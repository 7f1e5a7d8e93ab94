// SPDX-License-Identifier: Apache-2.0
#include "api/profiling.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "api/api_internal.h"
#include "api/breakdown.h"
#include "api/findings_api.h"
#include "api/flamegraph.h"
#include "api/services_api.h"
#include "api/session_json.h"
#include "api/windows_api.h"

#define DURATION_DEFAULT_S 30
#define DURATION_MAX_S	   3600
#define RATE_DEFAULT_HZ	   99
#define RATE_MAX_HZ	   1000
#define WAIT_MAX_S	   3600
#define HISTORY_SPAN_NS	   (24 * 3600 * NS_PER_S)
#define LIST_DEFAULT	   20
#define LIST_MAX	   100
/* Reading the profiles of a long list must not hold the answer up. */
#define LIST_TOP_DEFAULT   5
#define LIST_TOP_BUDGET_NS (500 * NS_PER_MS)

/* ---- start ----------------------------------------------------------------------------------- */

static int parse_labels(const cJSON *body, struct session_label *labels, uint32_t *ret_count,
			struct err *err)
{
	const cJSON *object = cJSON_GetObjectItemCaseSensitive(body, "labels");
	uint32_t count = 0;

	if (!object || cJSON_IsNull(object))
		return 0;
	if (!cJSON_IsObject(object))
		return err_set(err, EINVAL, "InvalidParam", "labels",
			       "member labels must be an object of strings");
	for (const cJSON *c = object->child; c; c = c->next) {
		if (count == SESSION_LABELS_MAX)
			return err_set(err, EINVAL, "InvalidParam", "labels", "at most %d labels",
				       SESSION_LABELS_MAX);
		if (!parse_is_name(c->string) || !cJSON_IsString(c) ||
		    strlen(c->valuestring) >= SESSION_LABEL_SIZE)
			return err_set(err, EINVAL, "InvalidParam", "labels",
				       "label %.64s: names are A-Z a-z 0-9 . _ -, values strings of "
				       "at most %d bytes",
				       c->string, SESSION_LABEL_SIZE - 1);
		(void)snprintf(labels[count].name, sizeof(labels[count].name), "%s", c->string);
		(void)snprintf(labels[count].value, sizeof(labels[count].value), "%s",
			       c->valuestring);
		count++;
	}
	*ret_count = count;
	return 0;
}

static int take_idempotency_key(const struct http_request *http, struct session_request *request,
				struct err *err)
{
	const char *key = http_header(http, "Idempotency-Key");
	size_t len = key ? strlen(key) : 0;

	if (!key)
		return 0;
	if (len == 0 || len > 255 || !parse_is_utf8(key, len))
		return err_set(err, EINVAL, "InvalidParam", "Idempotency-Key",
			       "Idempotency-Key must have 1 to 255 bytes");
	request->idempotency_key = key;
	return 0;
}

static int parse_start(const cJSON *body, struct session_request *request,
		       struct session_label *labels, struct json_warnings *warnings,
		       struct err *err)
{
	uint64_t duration_s = DURATION_DEFAULT_S, rate_hz = RATE_DEFAULT_HZ, wait_s = 0;
	int rc = json_in_text(body, "service", true, SERVICE_NAME_SIZE - 1, &request->service, err);

	if (rc == 0)
		rc = json_in_type(body, "profileType", true, &request->type, err);
	if (rc == 0)
		rc = json_in_uint(body, "durationSeconds", false, 1, DURATION_MAX_S, &duration_s,
				  err);
	if (rc == 0)
		rc = json_in_uint(body, "sampleRate", false, 1, RATE_MAX_HZ, &rate_hz, err);
	if (rc == 0)
		rc = json_in_uint(body, "waitSeconds", false, 1, WAIT_MAX_S, &wait_s, err);
	if (rc == 0)
		rc = json_in_bool(body, "kernelLocks", &request->kernel_locks, err);
	if (rc == 0)
		rc = json_in_bool(body, "wakers", &request->wakers, err);
	if (rc == 0)
		rc = json_in_bool(body, "paths", &request->paths, err);
	if (rc == 0)
		rc = json_in_bool(body, "tasks", &request->tasks, err);
	if (rc == 0)
		rc = json_in_bool(body, "children", &request->children, err);
	if (rc == 0)
		rc = parse_labels(body, labels, &request->label_count, err);
	if (rc < 0)
		return rc;
	request->duration_s = (uint32_t)duration_s;
	request->rate_hz = (uint32_t)rate_hz;
	request->wait_s = (uint32_t)wait_s;
	request->labels = labels;
	if (!profile_type_info(request->type)->rate &&
	    cJSON_GetObjectItemCaseSensitive(body, "sampleRate"))
		json_warn(warnings, "sampleRate is ignored for %s: it shows the state at the end",
			  profile_type_info(request->type)->word);
	json_in_unknown(body,
			"service profileType durationSeconds sampleRate waitSeconds kernelLocks "
			"wakers paths tasks children labels",
			warnings);
	return 0;
}

int start_session(struct http_call *call, const struct session_request *request,
		  struct session_info *ret)
{
	struct json_out details = json_out_to(&call->details);
	int rc = sessions_start(call->api->options.sessions, request, ret, call->err);

	if (rc < 0 && call->err->word && strcmp(call->err->word, "AlreadyRunning") == 0) {
		json_out_open(&details, NULL, '{');
		json_out_text(&details, "profileId", ret->id);
		json_out_text(&details, "sessionId", ret->id);
		json_out_close(&details, '}');
		session_info_deinit(ret);
	}
	return rc;
}

int handle_start(struct http_call *call)
{
	struct http_request *http = call->request;
	struct session_request request = { .tenant = http->tenant };
	struct session_label labels[SESSION_LABELS_MAX];
	struct json_warnings warnings = { 0 };
	struct session_info info = { 0 };
	struct session_json_options shown = { .warnings = &warnings };
	struct json_out json = json_out_to(&call->answer->body);
	cleanup(json) cJSON *body = NULL;
	int rc = json_in_object(http->body, http->body_len, &body, call->err);

	if (rc == 0)
		rc = parse_start(body, &request, labels, &warnings, call->err);
	if (rc == 0)
		rc = take_idempotency_key(http, &request, call->err);
	if (rc == 0)
		rc = start_session(call, &request, &info);
	if (rc < 0)
		return rc;
	session_json(&json, NULL, call->api, &info, &shown);
	call->answer->status = 202;
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	http_answer_header(call->answer, "Location", "/api/v1/observability/profiling/%s", info.id);
	session_info_deinit(&info);
	return 0;
}

/* ---- one ------------------------------------------------------------------------------------- */

const struct query_spec get_profile_params[] = {
	{ .name = "top",
	  .type = QUERY_UINT,
	  .min = 0,
	  .max = TOP_FUNCTIONS_MAX,
	  .about = "most functions listed" },
	{ .name = "value",
	  .type = QUERY_TEXT,
	  .min = 1,
	  .max = 32,
	  .about =
		  "which of the type's values topFunctions, totalValue and unit show, such as samples or bytes" },
	{ .name = "breakdown",
	  .type = QUERY_WORDS,
	  .words = BREAKDOWN_WORDS,
	  .about =
		  "also sum by those of them that have many values: pid, tid, goid, path, waitObject" },
	{ .name = "frames",
	  .type = QUERY_WORD,
	  .words = "names raw",
	  .about = "raw: with the interpreter's own functions, whose time else is the Python functions'" },
	{ 0 },
};

/* The profile as far as there is one: a failed or still empty session has none. */
static int optional_profile(struct http_call *call, const struct session_info *info,
			    struct profile **ret)
{
	struct err err = { 0 };
	int rc;

	if (info->status == SESSION_FAILED)
		return 0;
	rc = flamegraph_profile(call, info->id, ret, &err);
	if (rc == 0 || info->status == SESSION_RUNNING ||
	    (err.word && strcmp(err.word, "SessionFailed") == 0))
		return 0;
	*call->err = err;
	return rc;
}

int handle_get_profile(struct http_call *call)
{
	const struct http_request *request = call->request;
	cleanup(profile) struct profile *p = NULL;
	struct json_out json = json_out_to(&call->answer->body);
	struct session_json_options shown = {
		.top = (uint32_t)query_uint(&request->query, "top", TOP_FUNCTIONS_DEFAULT),
		.breakdown = true,
		.breakdown_extra = query_text(&request->query, "breakdown", NULL),
	};
	struct session_info info = { 0 };
	unsigned value;
	int rc = sessions_get(call->api->options.sessions, request->tenant, request->path[0], &info,
			      call->err);

	if (rc < 0)
		return rc;
	rc = flamegraph_value(&request->query, info.type, profile_first_value(info.source), &value,
			      call->err);
	if (rc == 0)
		rc = optional_profile(call, &info, &p);
	if (rc == 0) {
		shown.profile = p;
		shown.value = value + 1;
		if (p)
			session_info_settle(&info, p);
		session_json(&json, NULL, call->api, &info, &shown);
		call->answer->content_type = "application/json";
	}
	session_info_deinit(&info);
	return rc;
}

int handle_delete_profile(struct http_call *call)
{
	const struct http_request *request = call->request;
	struct json_out json = json_out_to(&call->answer->body);
	struct session_json_options shown = { 0 };
	struct session_info info = { 0 };
	bool stopped = false;
	int rc = sessions_delete(call->api->options.sessions, request->tenant, request->path[0],
				 &stopped, call->err);

	if (rc < 0)
		return rc;
	call->answer->no_store = true;
	call->answer->status = stopped ? 202 : 204;
	if (!stopped)
		return 0;
	rc = sessions_get(call->api->options.sessions, request->tenant, request->path[0], &info,
			  call->err);
	if (rc < 0)
		return rc;
	session_json(&json, NULL, call->api, &info, &shown);
	call->answer->content_type = "application/json";
	session_info_deinit(&info);
	return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

#define LIST_PARAMS \
	{ .name = "service", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1 }, \
	{ .name = "profileType", .type = QUERY_PROFILE_TYPE }, \
	{ .name = "status", .type = QUERY_WORD, .words = "running completed failed" }, \
	{ .name = "from", .alias = "start", .type = QUERY_TIME, .about = "default: 24 h before to" }, \
	{ .name = "to", .alias = "end", .type = QUERY_TIME, .about = "default: now" }, \
	{ .name = "limit", .alias = "size", .type = QUERY_UINT, .min = 1, .max = LIST_MAX }, \
	{ .name = "cursor", .type = QUERY_TEXT, .min = 1, .max = 63 }, \
	{ .name = "top", .type = QUERY_UINT, .min = 0, .max = 100, \
	  .about = "functions listed for each item" }

const struct query_spec history_params[] = {
	LIST_PARAMS,
	{ .name = "aggregate", .type = QUERY_DURATION, .min = 60, .max = 30 * 86400,
	  .about = "also points of this width" },
	{ .name = "merge", .type = QUERY_BOOL, .about = "also one table of the whole window" },
	{ .name = "function", .type = QUERY_TEXT, .min = 1, .max = 2048,
	  .about = "points of stacks with this function only" },
	{ 0 },
};

const struct query_spec list_sessions_params[] = { LIST_PARAMS, { 0 } };

static int parse_list(struct http_call *call, struct session_query *ret)
{
	const struct query *query = &call->request->query;
	const char *status = query_text(query, "status", NULL);
	const uint64_t end_ns = query_uint(query, "to", clock_realtime_ns());
	struct session_query list = {
		.tenant = call->request->tenant,
		.service = service_asked(call, "service"),
		.type = query_has(query, "profileType") ? (int)query_uint(query, "profileType", 0)
							: -1,
		.status = -1,
		.from_ns = query_uint(query, "from", end_ns > HISTORY_SPAN_NS ? end_ns - HISTORY_SPAN_NS : 0),
		.to_ns = query_uint(query, "to", 0),
		.limit = (uint32_t)query_uint(query, "limit", LIST_DEFAULT),
		.cursor = query_text(query, "cursor", NULL),
	};

	if (status && session_status_from(status, &list.status) < 0)
		return -EINVAL; /* the query parser let no other word through */
	if (list.to_ns && list.from_ns >= list.to_ns)
		return err_set(call->err, EINVAL, "InvalidParam", "to", "to must lie after from");
	*ret = list;
	return 0;
}

static void write_items(struct http_call *call, struct json_out *json,
			const struct session_list *list)
{
	uint32_t top = (uint32_t)query_uint(&call->request->query, "top", LIST_TOP_DEFAULT);
	uint64_t end_ns = clock_monotonic_ns() + LIST_TOP_BUDGET_NS;

	json_out_open(json, "items", '[');
	for (uint32_t i = 0; i < list->count; i++) {
		cleanup(profile) struct profile *p = NULL;
		struct session_json_options shown = { .top = top };
		struct json_warnings warnings = { 0 };

		if (top > 0 && clock_monotonic_ns() < end_ns) {
			if (optional_profile(call, &list->items[i], &p) < 0)
				*call->err = (struct err){ 0 };
		} else if (top > 0) {
			json_warn(&warnings, "topFunctions were left out to answer in time; ask for "
					     "this profile itself");
			shown.warnings = &warnings;
		}
		shown.profile = p;
		if (p)
			session_info_settle(&list->items[i], p);
		session_json(json, NULL, call->api, &list->items[i], &shown);
	}
	json_out_close(json, ']');
	json_out_text(json, "nextCursor", list->next_cursor[0] ? list->next_cursor : NULL);
	json_out_uint(json, "total", list->total);
}

int list_sessions(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	struct session_query query;
	struct session_list list = { 0 };
	int rc = parse_list(call, &query);

	if (rc == 0)
		rc = sessions_list(call->api->options.sessions, &query, &list, call->err);
	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "service", query.service);
	write_items(call, &json, &list);
	rc = deployments_json(call, &json, &query);
	if (rc == 0)
		rc = windows_json(call, &json, &query);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	session_list_deinit(&list);
	return rc;
}

int handle_history(struct http_call *call)
{
	return list_sessions(call);
}
