// SPDX-License-Identifier: Apache-2.0
#include "api/sessions_api.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "api/api_internal.h"
#include "api/profiling.h"
#include "api/session_json.h"

#define DURATION_DEFAULT_S 10
#define RATE_DEFAULT_HZ	   99
/* Beyond its duration, a session may wait for names and the last flush. */
#define FINISH_GRACE_NS (60 * NS_PER_S)
/* One wait is cut into slices, so that a server that stops is not held up. */
#define WAIT_SLICE_NS (200 * NS_PER_MS)

const struct query_spec create_session_params[] = {
	{ .name = "wait", .type = QUERY_BOOL, .about = "false: answer at once" },
	{ 0 },
};

int wait_for_session(struct http_call *call, const char *id, uint64_t timeout_ns)
{
	uint64_t end_ns = clock_monotonic_ns() + timeout_ns;

	for (;;) {
		struct err err = { 0 };
		int rc = sessions_wait(call->api->options.sessions, call->request->tenant, id,
				       WAIT_SLICE_NS, &err);

		if (rc != -ETIMEDOUT) {
			*call->err = err;
			return rc;
		}
		if (atomic_load(&call->api->stopping) || clock_monotonic_ns() >= end_ns)
			return err_set(call->err, ETIMEDOUT, "AgentBusy", NULL,
				       "the session %s is still running; ask for it by its id", id);
	}
}

static int parse_body(const cJSON *body, struct session_request *request,
		      struct json_warnings *warnings, struct err *err)
{
	uint64_t duration_s = DURATION_DEFAULT_S, min_s = 1, rate_hz = RATE_DEFAULT_HZ;
	int rc = json_in_type(body, "profileType", true, &request->type, err);

	if (rc == 0)
		rc = json_in_text(body, "target", true, SERVICE_NAME_SIZE - 1, &request->service,
				  err);
	if (rc == 0 && request->type == PROFILE_GOROUTINE)
		duration_s = min_s = 0; /* a state is taken at once */
	if (rc == 0)
		rc = json_in_uint(body, "durationSeconds", false, min_s, 3600, &duration_s, err);
	if (rc == 0)
		rc = json_in_uint(body, "sampleRate", false, 1, 1000, &rate_hz, err);
	if (rc < 0)
		return rc;
	request->duration_s = (uint32_t)duration_s;
	request->rate_hz = (uint32_t)rate_hz;
	json_in_unknown(body, "profileType target durationSeconds sampleRate", warnings);
	return 0;
}

static void write_session(struct http_call *call, const struct session_info *info,
			  const char *target, const struct json_warnings *warnings)
{
	struct json_out json = json_out_to(&call->answer->body);

	json_out_open(&json, NULL, '{');
	json_out_text(&json, "sessionId", info->id);
	json_out_text(&json, "profileType", profile_type_info(info->type)->word);
	json_out_text(&json, "target", target);
	json_out_text(&json, "service", info->service);
	json_out_time(&json, "createdAt", info->created_at_ns);
	json_out_text(&json, "status", session_status_text(info->status));
	json_out_uint(&json, "rawDataSizeBytes", info->raw_data_bytes);
	json_out_text(&json, "failureReason",
		      info->status == SESSION_FAILED ? info->failure : NULL);
	warnings_json(&json, warnings);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	http_answer_header(call->answer, "Location", "/api/v1/profiling/sessions/%s", info->id);
}

int handle_create_session(struct http_call *call)
{
	struct http_request *http = call->request;
	struct session_request request = { .tenant = http->tenant };
	struct json_warnings warnings = { 0 };
	struct session_info info = { 0 };
	cleanup(json) cJSON *body = NULL;
	int rc = json_in_object(http->body, http->body_len, &body, call->err);

	if (rc == 0)
		rc = parse_body(body, &request, &warnings, call->err);
	if (rc == 0) {
		rc = start_session(call, &request, &info);
		if (rc < 0 && strcmp(call->err->field, "service") == 0) /* as it is called here */
			memcpy(call->err->field, "target", sizeof("target"));
	}
	if (rc < 0)
		return rc;
	if (query_bool(&http->query, "wait", true)) {
		char id[SESSION_ID_SIZE];

		(void)snprintf(id, sizeof(id), "%s", info.id);
		session_info_deinit(&info);
		rc = wait_for_session(call, id, request.duration_s * NS_PER_S + FINISH_GRACE_NS);
		if (rc == 0)
			rc = sessions_get(call->api->options.sessions, http->tenant, id, &info,
					  call->err);
		if (rc < 0)
			return rc;
	} else {
		call->answer->status = 202;
	}
	write_session(call, &info, request.service, &warnings);
	session_info_deinit(&info);
	return 0;
}

int handle_list_sessions(struct http_call *call)
{
	return list_sessions(call);
}
