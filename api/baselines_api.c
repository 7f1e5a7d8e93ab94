// SPDX-License-Identifier: Apache-2.0
#include "api/baselines_api.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "agent/profile/heatmap.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/http/json_in.h"
#include "api/render/quality_json.h"
#include "api/services_api.h"
#include "api/session_json.h"

#define LABEL_MAX	200
#define DESCRIPTION_MAX 2000
#define FUNCTION_MAX	4096
#define COUNT_MAX	(1ull << 53) /* whole numbers that JSON's readers keep */
#define LIST_DEFAULT	20
#define LIST_MAX	100

/* ---- one baseline as JSON -------------------------------------------------------------------- */

/* The functions that the client sent, else those of the session's data. */
static int functions_json(struct json_out *json, const struct baseline_info *info,
			  const struct profile *p)
{
	if (info->top_functions) {
		json_out_key(json, "topFunctions");
		json_out_raw(json, info->top_functions);
		return 0;
	}
	return top_functions_json(json, "topFunctions", p, profile_value_index(p),
				  TOP_FUNCTIONS_DEFAULT, true);
}

static int baseline_json(struct http_call *call, struct json_out *json,
			 const struct baseline_info *info, const struct json_warnings *warnings)
{
	const struct profile_type_info *type = profile_type_info(info->type);
	cleanup(profile) struct profile *p = NULL;
	int rc = sessions_profile(call->api->options.sessions, call->request->tenant, info->id, &p,
				  call->err);

	if (rc < 0)
		return rc;
	json_out_open(json, NULL, '{');
	json_out_text(json, "baselineId", info->id);
	json_out_text(json, "baselineLabel", info->label);
	json_out_text(json, "profileType", type->word);
	json_out_text(json, "sessionId", info->session_id);
	json_out_text(json, "service", info->service);
	json_out_text(json, "tenant", info->tenant);
	json_out_text(json, "description", info->description);
	rc = functions_json(json, info, p);
	json_out_time(json, "createdAt", info->created_at_ns);
	json_out_bool(json, "isLatest", info->is_latest);
	json_out_open(json, "tags", '[');
	for (uint32_t i = 0; i < info->tag_count; i++)
		json_out_text(json, NULL, info->tags[i]);
	json_out_close(json, ']');
	json_out_uint(json, "sampleCount", info->sample_count);
	json_out_int(json, "totalValue", info->total_value);
	json_out_text(json, "unit", type->values[type->value_index].unit);
	json_out_real(json, "durationSeconds", (double)info->duration_ns / 1e9, 3);
	quality_json(json, "quality", &p->quality);
	warnings_json(json, warnings);
	json_out_close(json, '}');
	call->answer->content_type = "application/json";
	return rc;
}

/* ---- create ---------------------------------------------------------------------------------- */

struct baseline_body {
	struct baseline_request request;
	const char *tags[BASELINE_TAGS_MAX];
	char *top_functions; /* owned */
};

static int parse_tags(const cJSON *body, struct baseline_body *out, struct err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(body, "tags");

	if (!list || cJSON_IsNull(list))
		return 0;
	if (!cJSON_IsArray(list))
		return err_set(err, EINVAL, "InvalidParam", "tags",
			       "member tags must be a list of strings");
	for (const cJSON *c = list->child; c; c = c->next) {
		if (out->request.tag_count == BASELINE_TAGS_MAX)
			return err_set(err, EINVAL, "InvalidParam", "tags", "at most %d tags",
				       BASELINE_TAGS_MAX);
		if (!cJSON_IsString(c) || !parse_is_name(c->valuestring))
			return err_set(err, EINVAL, "InvalidParam", "tags",
				       "a tag must be 1 to 64 of A-Z a-z 0-9 . _ -");
		out->tags[out->request.tag_count++] = c->valuestring;
	}
	out->request.tags = out->tags;
	return 0;
}

/* A decimal number as a string, which is the documented type, or a number. */
static int take_count(const cJSON *function, uint64_t *ret, struct err *err)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(function, "sampleCount");

	if (cJSON_IsString(item) && parse_u64(item->valuestring, 0, COUNT_MAX, ret) == 0)
		return 0;
	return json_in_uint(function, "sampleCount", false, 0, COUNT_MAX, ret, err);
}

/* The documented types; a count is kept as text, however it was sent. */
static int check_function(cJSON *function, struct err *err)
{
	const char *text = NULL;
	double share = 0;
	uint64_t count = UINT64_MAX;
	char number[24];
	int rc;

	if (!cJSON_IsObject(function))
		return err_set(err, EINVAL, "InvalidParam", "topFunctions",
			       "elements of topFunctions must be objects");
	rc = json_in_text(function, "funcName", false, FUNCTION_MAX, &text, err);
	if (rc == 0)
		rc = json_in_text(function, "package", false, FUNCTION_MAX, &text, err);
	if (rc == 0)
		rc = json_in_number(function, "selfPct", false, 0, 100, &share, err);
	if (rc == 0)
		rc = json_in_number(function, "cumulativePct", false, 0, 100, &share, err);
	if (rc == 0)
		rc = take_count(function, &count, err);
	if (rc < 0 || count == UINT64_MAX)
		return rc;
	(void)snprintf(number, sizeof(number), "%" PRIu64, count);
	return cJSON_ReplaceItemInObjectCaseSensitive(function, "sampleCount",
						      cJSON_CreateString(number))
		       ? 0
		       : -ENOMEM;
}

/* Clients that follow the documentation's example send the text "(nested array)": that is no list,
 * and the session's own functions are better than a refusal. */
static int parse_functions(const cJSON *body, struct baseline_body *out,
			   struct json_warnings *warnings, struct err *err)
{
	cJSON *list = cJSON_GetObjectItemCaseSensitive(body, "topFunctions");

	if (!list || cJSON_IsNull(list))
		return 0;
	if (!cJSON_IsArray(list)) {
		json_warn(warnings, "topFunctions is no list and was computed from the session");
		return 0;
	}
	if (!list->child) {
		json_warn(warnings, "topFunctions is empty and was computed from the session");
		return 0;
	}
	for (cJSON *c = list->child; c; c = c->next) {
		int rc = check_function(c, err);

		if (rc < 0)
			return rc;
	}
	out->top_functions = cJSON_PrintUnformatted(list);
	if (!out->top_functions)
		return -ENOMEM;
	out->request.top_functions = out->top_functions;
	return 0;
}

static int parse_baseline(const cJSON *body, struct baseline_body *out,
			  struct json_warnings *warnings, struct err *err)
{
	struct baseline_request *request = &out->request;
	int rc = json_in_text(body, "label", true, LABEL_MAX, &request->label, err);

	request->description = "";
	if (rc == 0)
		rc = json_in_text(body, "sessionId", true, 127, &request->session_id, err);
	if (rc == 0)
		rc = json_in_type(body, "profileType", true, &request->type, err);
	if (rc == 0)
		rc = json_in_text(body, "description", false, DESCRIPTION_MAX,
				  &request->description, err);
	if (rc == 0)
		rc = parse_tags(body, out, err);
	if (rc == 0)
		rc = parse_functions(body, out, warnings, err);
	if (rc == 0)
		json_in_unknown(body, "label sessionId profileType description tags topFunctions",
				warnings);
	return rc;
}

int handle_create_baseline(struct http_call *call)
{
	struct http_request *http = call->request;
	struct json_out json = json_out_to(&call->answer->body);
	struct baseline_body in = { .request = { .tenant = http->tenant } };
	struct json_warnings warnings = { 0 };
	struct baseline_info info = { 0 };
	cleanup(json) cJSON *body = NULL;
	int rc = json_in_object(http->body, http->body_len, &body, call->err);

	if (rc == 0)
		rc = parse_baseline(body, &in, &warnings, call->err);
	if (rc == 0)
		rc = sessions_baseline_create(call->api->options.sessions, &in.request, &info,
					      call->err);
	cJSON_free(in.top_functions);
	if (rc < 0)
		return rc;
	rc = baseline_json(call, &json, &info, &warnings);
	call->answer->no_store = true;
	http_answer_header(call->answer, "Location", "/api/v1/profiling/baselines/%s", info.id);
	baseline_info_deinit(&info);
	return rc;
}

/* ---- read, list, delete ---------------------------------------------------------------------- */

int handle_get_baseline(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	struct baseline_info info = { 0 };
	int rc = sessions_baseline_get(call->api->options.sessions, call->request->tenant,
				       call->request->path[0], &info, call->err);

	if (rc < 0)
		return rc;
	rc = baseline_json(call, &json, &info, NULL);
	baseline_info_deinit(&info);
	return rc;
}

int handle_delete_baseline(struct http_call *call)
{
	call->answer->status = 204;
	call->answer->no_store = true;
	return sessions_baseline_delete(call->api->options.sessions, call->request->tenant,
					call->request->path[0], call->err);
}

const struct query_spec baselines_params[] = {
	{ .name = "service", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1 },
	{ .name = "profileType", .type = QUERY_PROFILE_TYPE },
	{ .name = "tag", .type = QUERY_TEXT, .min = 1, .max = BASELINE_TAG_SIZE - 1 },
	{ .name = "limit", .alias = "size", .type = QUERY_UINT, .min = 1, .max = LIST_MAX },
	{ .name = "cursor", .type = QUERY_TEXT, .min = 1, .max = 63 },
	{ 0 },
};

static struct baseline_query list_query(struct http_call *call)
{
	const struct query *query = &call->request->query;

	return (struct baseline_query){
		.tenant = call->request->tenant,
		.service = service_asked(call, "service"),
		.type = query_has(query, "profileType") ? (int)query_uint(query, "profileType", 0)
							: -1,
		.tag = query_text(query, "tag", NULL),
		.limit = (uint32_t)query_uint(query, "limit", LIST_DEFAULT),
		.cursor = query_text(query, "cursor", NULL),
	};
}

/* A baseline deleted while the list is made is left out. */
static int pass_over_deleted(struct http_call *call, int rc)
{
	if (rc != -ENOENT)
		return rc;
	*call->err = (struct err){ 0 };
	return 0;
}

static uint64_t page_until_ns(const struct http_call *call)
{
	return clock_monotonic_ns() + sessions_build_budget_ns(call->api->options.sessions);
}

/* A profile is built for each item: when the time is over the page ends behind the @done first, and
 * the cursor goes on from there. */
static void end_page_in_time(struct baseline_list *list, uint32_t done, uint64_t until_ns)
{
	if (done < list->count && clock_monotonic_ns() >= until_ns)
		baseline_list_cut(list, done);
}

int handle_list_baselines(struct http_call *call)
{
	const struct baseline_query query = list_query(call);
	struct json_out json = json_out_to(&call->answer->body);
	struct baseline_list list = { 0 };
	const uint64_t until_ns = page_until_ns(call);
	int rc = sessions_baseline_list(call->api->options.sessions, &query, &list, call->err);

	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "items", '[');
	for (uint32_t i = 0; rc == 0 && i < list.count; i++) {
		rc = pass_over_deleted(call, baseline_json(call, &json, &list.items[i], NULL));
		end_page_in_time(&list, i + 1, until_ns);
	}
	json_out_close(&json, ']');
	json_out_text(&json, "nextCursor", list.next_cursor[0] ? list.next_cursor : NULL);
	json_out_uint(&json, "total", list.total);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	baseline_list_deinit(&list);
	return rc;
}

/* ---- trend ----------------------------------------------------------------------------------- */

const struct query_spec trend_params[] = {
	{ .name = "profileType", .type = QUERY_PROFILE_TYPE, .flags = QUERY_REQUIRED },
	{ .name = "funcName",
	  .type = QUERY_TEXT,
	  .min = 1,
	  .max = 2048,
	  .flags = QUERY_REQUIRED,
	  .about = "full name of a function" },
	{ .name = "metric", .type = QUERY_WORD, .words = "self_pct cumulative_pct" },
	{ .name = "service", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1 },
	{ .name = "order",
	  .type = QUERY_WORD,
	  .words = "oldest newest",
	  .about = "which baseline comes first" },
	{ .name = "limit", .alias = "size", .type = QUERY_UINT, .min = 1, .max = LIST_MAX },
	{ .name = "cursor", .type = QUERY_TEXT, .min = 1, .max = 63 },
	{ 0 },
};

static int point_json(struct http_call *call, struct json_out *json,
		      const struct baseline_info *info, const char *function, bool cumulative)
{
	cleanup(profile) struct profile *p = NULL;
	double value = 0;
	int rc = sessions_profile(call->api->options.sessions, call->request->tenant, info->id, &p,
				  call->err);

	if (rc == 0)
		rc = trend_value(p, function, cumulative, &value);
	if (rc < 0)
		return rc;
	json_out_open(json, NULL, '{');
	json_out_text(json, "baselineId", info->id);
	json_out_text(json, "baselineLabel", info->label);
	json_out_time(json, "createdAt", info->created_at_ns);
	json_out_real(json, "value", value, 4);
	json_out_close(json, '}');
	return 0;
}

/* The oldest comes first, as a curve is drawn; who wants the last ones of many asks for the newest
 * first. */
int handle_trend(struct http_call *call)
{
	const struct query *query = &call->request->query;
	const char *metric = query_text(query, "metric", "self_pct");
	const char *function = query_text(query, "funcName", "");
	struct baseline_query baselines = list_query(call);
	struct json_out json = json_out_to(&call->answer->body);
	struct baseline_list list = { 0 };
	const uint64_t until_ns = page_until_ns(call);
	int rc;

	baselines.oldest_first = strcmp(query_text(query, "order", "oldest"), "oldest") == 0;
	rc = sessions_baseline_list(call->api->options.sessions, &baselines, &list, call->err);
	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "metric", metric);
	json_out_text(&json, "profileType",
		      profile_type_info((enum profile_type)baselines.type)->word);
	json_out_text(&json, "funcName", function);
	json_out_open(&json, "items", '[');
	for (uint32_t i = 0; rc == 0 && i < list.count; i++) {
		rc = pass_over_deleted(call, point_json(call, &json, &list.items[i], function,
							strcmp(metric, "cumulative_pct") == 0));
		end_page_in_time(&list, i + 1, until_ns);
	}
	json_out_close(&json, ']');
	json_out_text(&json, "nextCursor", list.next_cursor[0] ? list.next_cursor : NULL);
	json_out_uint(&json, "total", list.total);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	baseline_list_deinit(&list);
	return rc;
}
