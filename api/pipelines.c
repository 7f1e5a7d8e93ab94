// SPDX-License-Identifier: Apache-2.0
#include "api/pipelines.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/clock.h"
#include "api/api_internal.h"
#include "api/flamegraph.h"
#include "api/http/json_out.h"
#include "api/profiling.h"
#include "api/render/render.h"
#include "api/sessions_api.h"

#define DURATION_DEFAULT_S 30
#define RATE_HZ		   1000 /* samply's default, which users of this call are used to */
#define START_TIMEOUT_NS   (5 * NS_PER_S)
#define MARK_LABEL	   "profd.samply" /* value: the ordinal, or "all" */
#define SEARCH_PAGES	   10 /* of 100 sessions, back in time, for the newest one with the mark */

const struct query_spec samply_start_params[] = {
	{ .name = "ordinal", .type = QUERY_UINT, .min = 0, .max = UINT32_MAX,
	  .about = "n-th instance of the service; absent: all" },
	{ .name = "duration_secs", .type = QUERY_UINT, .min = 1, .max = 3600, .about = "default 30" },
	{ 0 },
};

const struct query_spec samply_get_params[] = {
	{ .name = "latest", .type = QUERY_BOOL, .about = "204 while one is running" },
	{ .name = "ordinal", .type = QUERY_UINT, .min = 0, .max = UINT32_MAX,
	  .about = "n-th instance of the service; absent: all" },
	{ 0 },
};

/* Details of an error are {"pipeline_name": …} and what else is known. */
static void say_details(struct http_call *call, const char *name, const char *value)
{
	struct json_out json = json_out_to(&call->details);

	call->details.len = 0;
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "pipeline_name", call->request->path[0]);
	if (name)
		json_out_text(&json, name, value);
	json_out_close(&json, '}');
}

static int unknown_pipeline(struct http_call *call)
{
	say_details(call, NULL, NULL);
	return err_set(call->err, ENOENT, "UnknownPipelineName", "pipeline_name",
		       "Unknown pipeline name '%.200s'", call->request->path[0]);
}

/* ---- the service ----------------------------------------------------------------------------- */

struct pipeline {
	char selector[SERVICE_NAME_SIZE]; /* the service, or pid:<n> */
	char mark[24];
	uint32_t processes; /* living now */
};

static int compare_start(const void *a, const void *b)
{
	const struct service_process *x = a, *y = b;

	if (x->started_at_ns != y->started_at_ns)
		return x->started_at_ns < y->started_at_ns ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static int choose_instance(struct http_call *call, struct service_info *service, uint64_t ordinal,
			   struct pipeline *ret)
{
	if (ordinal >= service->process_count) {
		say_details(call, "ordinal", ret->mark);
		return err_set(call->err, ENOENT, "UnknownOrdinal", "ordinal",
			       "Pipeline '%.200s' has %u instances, there is no ordinal %s",
			       service->name, service->process_count, ret->mark);
	}
	qsort(service->processes, service->process_count, sizeof(*service->processes),
	      compare_start);
	(void)snprintf(ret->selector, sizeof(ret->selector), "pid:%u",
		       service->processes[ordinal].pid);
	return 0;
}

/* A pipeline without a live process: 0 if an earlier instance of it is known. */
static int check_stopped(struct http_call *call)
{
	int rc = sessions_service_is_stored(call->api->options.sessions, call->request->tenant,
					    call->request->path[0], call->err);

	return rc == 0 ? unknown_pipeline(call) : rc < 0 ? rc : 0;
}

static int find_pipeline(struct http_call *call, struct pipeline *ret)
{
	const char *name = call->request->path[0];
	struct service_list list = { 0 };
	uint64_t ordinal = query_uint(&call->request->query, "ordinal", UINT64_MAX);
	int rc;

	if (strlen(name) >= sizeof(ret->selector))
		return unknown_pipeline(call);
	rc = sessions_services(call->api->options.sessions, call->request->tenant, &list, call->err);
	if (rc < 0)
		return rc;
	*ret = (struct pipeline){ .mark = "all" };
	if (ordinal != UINT64_MAX)
		(void)snprintf(ret->mark, sizeof(ret->mark), "%" PRIu64, ordinal);
	memcpy(ret->selector, name, strlen(name) + 1);
	rc = -ENOENT;
	for (uint32_t i = 0; i < list.count && rc == -ENOENT; i++) {
		if (strcmp(list.items[i].name, name) != 0)
			continue;
		ret->processes = list.items[i].process_count;
		rc = ordinal == UINT64_MAX ? 0
					   : choose_instance(call, &list.items[i], ordinal, ret);
		if (rc == -ENOENT)
			break;
	}
	service_list_deinit(&list);
	return rc == -ENOENT && !call->err->code ? check_stopped(call) : rc;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool is_marked(const struct session_info *info, const char *mark)
{
	for (uint32_t i = 0; i < info->label_count; i++)
		if (strcmp(info->labels[i].name, MARK_LABEL) == 0 &&
		    strcmp(info->labels[i].value, mark) == 0)
			return true;
	return false;
}

struct runs {
	struct session_info running, finished; /* newest of each; id "" = none */
};

static void runs_deinit(struct runs *runs)
{
	session_info_deinit(&runs->running);
	session_info_deinit(&runs->finished);
}

static void take_run(struct runs *runs, struct session_info *info)
{
	struct session_info *slot = info->status == SESSION_RUNNING ? &runs->running
								    : &runs->finished;

	if (slot->id[0])
		return;
	*slot = *info;
	*info = (struct session_info){ 0 };
}

static int find_runs(struct http_call *call, const struct pipeline *pipeline, struct runs *ret)
{
	char cursor[64] = "";
	struct session_query query = { .tenant = call->request->tenant,
				       .service = call->request->path[0], .type = PROFILE_CPU,
				       .status = -1, .limit = 100 };

	for (int page = 0; page < SEARCH_PAGES && !ret->finished.id[0]; page++) {
		struct session_list list = { 0 };
		int rc = sessions_list_on_demand(call->api->options.sessions, &query, &list, call->err);

		if (rc < 0)
			return rc;
		for (uint32_t i = 0; i < list.count; i++)
			if (is_marked(&list.items[i], pipeline->mark))
				take_run(ret, &list.items[i]);
		(void)snprintf(cursor, sizeof(cursor), "%s", list.next_cursor);
		session_list_deinit(&list);
		if (!cursor[0])
			break;
		query.cursor = cursor;
	}
	return 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

static int not_running(struct http_call *call)
{
	say_details(call, NULL, NULL);
	return err_set(call->err, EBUSY, "PipelineInteractionNotDeployed", "pipeline_name",
		       "Unable to interact with pipeline '%.200s' because it has no running process",
		       call->request->path[0]);
}

/* Translates an error of the session layer into this family's words. */
static int translate(struct http_call *call, int rc)
{
	const char *word = call->err->word ? call->err->word : "";
	char cause[sizeof(call->err->text)];

	memcpy(cause, call->err->text, sizeof(cause));
	if (strcmp(word, "AlreadyRunning") == 0) {
		say_details(call, NULL, NULL);
		return err_set(call->err, EBUSY, "SamplyProfilingInProgress", NULL,
			       "samply profile collection is already in progress");
	}
	if (strcmp(word, "UnknownService") == 0)
		return unknown_pipeline(call);
	if (strcmp(word, "ServiceNotRunning") == 0)
		return not_running(call);
	say_details(call, "cause", cause);
	if (strcmp(word, "AgentBusy") == 0 || strcmp(word, "ProfileTypeUnavailable") == 0 ||
	    strcmp(word, "TooManySessions") == 0 || strcmp(word, "StoreUnavailable") == 0)
		return err_set(call->err, EBUSY, "PipelineUnavailable", NULL,
			       "the agent cannot profile now: %s", cause);
	if (strcmp(word, "InvalidParam") == 0)
		return rc;
	return err_set(call->err, EIO, "SamplyProfilingFailure", NULL,
		       "failed to profile the pipeline using samply");
}

/* 202 only after the events are open and the target lives: a run that ends at once is a failure. */
static int confirm_start(struct http_call *call, const char *id)
{
	struct session_info info = { 0 };
	int rc = sessions_wait_started(call->api->options.sessions, call->request->tenant, id,
				       START_TIMEOUT_NS, call->err);

	if (rc == 0)
		rc = sessions_get(call->api->options.sessions, call->request->tenant, id, &info,
				  call->err);
	if (rc == 0 && info.status == SESSION_FAILED) {
		say_details(call, "cause", info.failure);
		rc = err_set(call->err, EIO, "SamplyProfilingFailure", NULL,
			     "failed to profile the pipeline using samply");
	} else if (rc == -ETIMEDOUT) {
		bool stopped;

		/* The client was told that the profile failed, and may start another one. */
		(void)!sessions_delete(call->api->options.sessions, call->request->tenant, id,
				       &stopped, call->err);
		say_details(call, "cause", "sampling did not begin within 5 s");
		rc = err_set(call->err, EIO, "SamplyProfilingFailure", NULL,
			     "failed to profile the pipeline using samply");
	}
	session_info_deinit(&info);
	return rc;
}

int handle_samply_start(struct http_call *call)
{
	struct session_request request = { .tenant = call->request->tenant, .type = PROFILE_CPU,
					   .rate_hz = RATE_HZ, .label_count = 1 };
	struct session_label label = { .name = MARK_LABEL };
	struct session_info info = { 0 };
	struct pipeline pipeline;
	struct runs runs = { 0 };
	char id[SESSION_ID_SIZE];
	int rc = find_pipeline(call, &pipeline);

	if (rc == 0 && !pipeline.processes)
		rc = not_running(call);
	if (rc == 0)
		rc = find_runs(call, &pipeline, &runs);
	if (rc == 0 && runs.running.id[0]) {
		call->err->word = "AlreadyRunning";
		rc = translate(call, -EBUSY);
	}
	runs_deinit(&runs);
	if (rc < 0)
		return rc;
	request.service = pipeline.selector;
	request.duration_s =
		(uint32_t)query_uint(&call->request->query, "duration_secs", DURATION_DEFAULT_S);
	request.labels = &label;
	memcpy(label.value, pipeline.mark, sizeof(pipeline.mark));
	rc = sessions_start(call->api->options.sessions, &request, &info, call->err);
	(void)snprintf(id, sizeof(id), "%s", info.id);
	session_info_deinit(&info);
	if (rc < 0)
		return translate(call, rc);
	rc = confirm_start(call, id);
	call->answer->status = 202;
	call->answer->no_store = true;
	return rc;
}

/* ---- get ------------------------------------------------------------------------------------- */

static int send_file(struct http_call *call, const struct session_info *info)
{
	cleanup(profile) struct profile *p = NULL;
	const struct render_options options = { .value_index = 1, .title = info->service };
	char when[CLOCK_RFC3339_SIZE];
	int rc = sessions_profile(call->api->options.sessions, call->request->tenant, info->id, &p,
				  call->err);

	if (rc == 0)
		rc = flamegraph_write(call, p, &options, render_firefox, 6);
	if (rc < 0)
		return rc;
	clock_format_rfc3339(info->completed_at_ns, when);
	call->answer->content_type = "application/gzip";
	call->answer->no_compress = true;
	http_answer_header(call->answer, "Content-Disposition",
			   "attachment; filename=\"%s-samply_profile.json.gz\"", when);
	return 0;
}

static int still_running(struct http_call *call, const struct session_info *info)
{
	call->answer->status = 204;
	call->answer->no_store = true;
	http_answer_header(call->answer, "Retry-After", "%u", session_left_s(info));
	return 0;
}

int handle_samply_get(struct http_call *call)
{
	struct pipeline pipeline;
	struct runs runs = { 0 };
	int rc = find_pipeline(call, &pipeline);

	if (rc == 0)
		rc = find_runs(call, &pipeline, &runs);
	if (rc < 0) {
		runs_deinit(&runs);
		return rc;
	}
	if (runs.running.id[0] && query_bool(&call->request->query, "latest", false)) {
		rc = still_running(call, &runs.running);
	} else if (!runs.finished.id[0]) {
		say_details(call, NULL, NULL);
		rc = err_set(call->err, EINVAL, "NoSamplyProfile", NULL,
			     "there is no samply profile yet: start one with POST to this address");
	} else if (runs.finished.status == SESSION_FAILED) {
		say_details(call, "cause", runs.finished.failure);
		rc = err_set(call->err, EIO, "SamplyProfilingFailure", NULL,
			     "failed to profile the pipeline using samply");
	} else {
		rc = send_file(call, &runs.finished);
	}
	runs_deinit(&runs);
	return rc;
}

/* ---- pipelines ------------------------------------------------------------------------------- */

static void pipeline_json(struct json_out *json, const struct service_info *service)
{
	json_out_open(json, NULL, '{');
	json_out_text(json, "name", service->name);
	json_out_text(json, "description", "");
	json_out_text(json, "deployment_status", service->process_count ? "Running" : "Stopped");
	json_out_text(json, "runtime", service->runtime);
	json_out_uint(json, "instances", service->process_count);
	json_out_real(json, "cpus", service->cpus, 4);
	json_out_close(json, '}');
}

int handle_pipelines(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	struct service_list list = { 0 };
	int rc = sessions_services(call->api->options.sessions, call->request->tenant, &list,
				   call->err);

	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '[');
	for (uint32_t i = 0; i < list.count; i++)
		pipeline_json(&json, &list.items[i]);
	json_out_close(&json, ']');
	call->answer->content_type = "application/json";
	service_list_deinit(&list);
	return 0;
}

int handle_pipeline(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	struct service_info stopped = { 0 };
	struct service_list list = { 0 };
	int rc = sessions_services(call->api->options.sessions, call->request->tenant, &list,
				   call->err);

	if (rc < 0)
		return rc;
	(void)snprintf(stopped.name, sizeof(stopped.name), "%.255s", call->request->path[0]);
	rc = -ENOENT;
	for (uint32_t i = 0; i < list.count && rc == -ENOENT; i++) {
		if (strcmp(list.items[i].name, call->request->path[0]) == 0) {
			pipeline_json(&json, &list.items[i]);
			rc = 0;
		}
	}
	call->answer->content_type = "application/json";
	service_list_deinit(&list);
	if (rc < 0)
		rc = check_stopped(call);
	if (rc == 0 && !call->answer->body.len)
		pipeline_json(&json, &stopped);
	return rc;
}

int handle_heap_profile(struct http_call *call)
{
	struct session_request request = { .tenant = call->request->tenant, .type = PROFILE_MEMORY,
					   .service = call->request->path[0], .duration_s = 1,
					   .rate_hz = 99 };
	cleanup(profile) struct profile *p = NULL;
	struct session_info info = { 0 };
	char id[SESSION_ID_SIZE];
	int rc = sessions_start(call->api->options.sessions, &request, &info, call->err);

	(void)snprintf(id, sizeof(id), "%s", info.id);
	session_info_deinit(&info);
	if (rc < 0)
		return translate(call, rc);
	rc = wait_for_session(call, id, 60 * NS_PER_S);
	if (rc == 0)
		rc = sessions_profile(call->api->options.sessions, call->request->tenant, id, &p,
				      call->err);
	if (rc == 0)
		rc = flamegraph_file(call, p, "pprof", "heap_profile");
	if (rc < 0)
		return translate(call, rc);
	call->answer->content_type = "application/protobuf";
	return 0;
}
