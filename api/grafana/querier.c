// SPDX-License-Identifier: Apache-2.0
#include "api/grafana/querier.h"

#include <errno.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/grafana/answers.h"
#include "api/http/request_body.h"

/* Protobuf of one answer; JSON of it is several times larger. */
#define ANSWER_MAX (128u << 20)

static const struct {
	const char *name;
	answer_fn *answer;
} answers[] = {
	{ "ProfileTypes", answer_profile_types },
	{ "LabelNames", answer_label_names },
	{ "LabelValues", answer_label_values },
	{ "Series", answer_series },
	{ "SelectSeries", answer_select_series },
	{ "SelectMergeStacktraces", answer_merge_stacktraces },
	{ "SelectMergeSpanProfile", answer_merge_stacktraces },
	{ "SelectMergeProfile", answer_merge_profile },
	{ "Diff", answer_diff },
	{ "GetProfileStats", answer_profile_stats },
	{ "AnalyzeQuery", answer_analyze_query },
};

static answer_fn *find_answer(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
		if (strcmp(answers[i].name, name) == 0)
			return answers[i].answer;
	return NULL;
}

static int write_answer(struct http_call *call, const struct querier_call *procedure, bool json,
			struct buf *message)
{
	struct http_answer *answer = call->answer;

	answer->no_store = true;
	answer->content_type = json ? "application/json" : "application/proto";
	if (message->error == -EFBIG)
		return err_set(call->err, EFBIG, "LimitReached", NULL,
			       "the answer would be too large; ask for fewer nodes or less time");
	if (message->error)
		return message->error;
	if (json)
		return querier_answer_json(procedure->answer, message->data, message->len,
					   &answer->body);
	buf_deinit(&answer->body);
	answer->body = *message;
	*message = (struct buf){ 0 };
	return 0;
}

int handle_querier(struct http_call *call)
{
	const struct querier_call *procedure = querier_call_find(call->request->path[0]);
	answer_fn *answer = find_answer(call->request->path[0]);
	cleanup_querier_request struct querier_request request = { 0 };
	cleanup_buf struct buf unpacked = { 0 }, message = { .max = ANSWER_MAX };
	const char *body;
	size_t len;
	bool json = false;
	int rc;

	if (!procedure || !answer)
		return err_set(call->err, ENOENT, "NotImplemented", "call",
			       "profd has no call %.64s of QuerierService", call->request->path[0]);
	rc = request_connect_media(call->request, &json, call->err);
	if (rc == 0)
		rc = request_body(call->request, call->api->options.body_bytes, &unpacked, &body, &len,
				  call->err);
	if (rc == 0)
		rc = querier_request_read(procedure->request, json, body, len, &request, call->err);
	if (rc == 0)
		rc = answer(call, &request, &message);
	return rc < 0 ? rc : write_answer(call, procedure, json, &message);
}
