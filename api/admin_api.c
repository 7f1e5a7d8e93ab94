// SPDX-License-Identifier: Apache-2.0
#include "api/admin_api.h"

#include <errno.h>

#include "agent/base/clock.h"
#include "agent/store/store.h"
#include "api/api_internal.h"
#include "api/http/json_in.h"
#include "api/http/json_out.h"

/* ---- the switch ------------------------------------------------------------------------------ */

static void write_sampling(struct http_call *call, const struct sampling_state *state,
			   const struct json_warnings *warnings)
{
	struct json_out json = json_out_to(&call->answer->body);

	json_out_open(&json, NULL, '{');
	json_out_bool(&json, "enabled", state->enabled);
	json_out_time(&json, "stoppedSince", state->off_since_ns);
	/* A key of one tenant does not learn how many sessions the others had. */
	json_out_uint(&json, "ended", call->request->bound ? 0 : state->ended);
	if (warnings)
		warnings_json(&json, warnings);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
}

int handle_get_sampling(struct http_call *call)
{
	struct sampling_state state;

	sessions_sampling_get(call->api->options.sessions, &state);
	write_sampling(call, &state, NULL);
	return 0;
}

int handle_set_sampling(struct http_call *call)
{
	struct json_warnings warnings = { 0 };
	struct sampling_state state;
	cleanup(json) cJSON *body = NULL;
	bool enabled = false;
	int rc = json_in_object(call->request->body, call->request->body_len, &body, call->err);

	if (rc == 0 && !cJSON_IsBool(cJSON_GetObjectItemCaseSensitive(body, "enabled")))
		rc = err_set(call->err, EINVAL, "InvalidParam", "enabled",
			     "member enabled is required: true or false");
	if (rc == 0)
		rc = json_in_bool(body, "enabled", &enabled, call->err);
	if (rc < 0)
		return rc;
	json_in_unknown(body, "enabled", &warnings);
	rc = sessions_sampling_set(call->api->options.sessions, enabled, &state, call->err);
	if (rc < 0)
		return rc;
	write_sampling(call, &state, &warnings);
	return 0;
}

/* ---- backup ---------------------------------------------------------------------------------- */

int handle_backup(struct http_call *call)
{
	struct http_answer *answer = call->answer;
	char now[CLOCK_RFC3339_SIZE];
	int rc;

	if (!call->api->options.store)
		return err_set(call->err, ENODEV, "StoreUnavailable", NULL, "this agent has no store");
	rc = store_backup(call->api->options.store, &answer->file_fd, &answer->file_bytes, call->err);
	if (rc < 0)
		return rc;
	answer->has_file = true;
	answer->unhurried = true; /* as large as the history, and for administrators only */
	answer->content_type = "application/x-tar";
	answer->no_store = true;
	clock_format_rfc3339(clock_realtime_ns(), now);
	http_answer_header(answer, "Content-Disposition", "attachment; filename=\"profd-%.10s.tar\"", now);
	return 0;
}
