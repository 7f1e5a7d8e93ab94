// SPDX-License-Identifier: Apache-2.0
#include "api/debug_pprof.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/base/clock.h"
#include "agent/profile/goroutine/goroutine_analysis.h"
#include "api/api_internal.h"
#include "api/flamegraph.h"
#include "api/profiling.h"
#include "api/sessions_api.h"

#define RATE_HZ		100 /* what Go's own profiles have */
#define CPU_DEFAULT_S	30  /* net/http/pprof */
#define DELTA_DEFAULT_S 10  /* of types that count over a time */
#define STATE_DEFAULT_S 1   /* of types that show a state */

const struct query_spec debug_params[] = {
	{ .name = "service", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1,
	  .about = "service or alias; default the whole host" },
	{ .name = "seconds", .type = QUERY_UINT, .min = 1, .max = 3600, .about = "duration" },
	{ .name = "debug", .type = QUERY_UINT, .min = 0, .max = 0,
	  .about = "only the binary form is served" },
	{ .name = "gc", .type = QUERY_UINT, .min = 0, .max = 1, .about = "ignored" },
	{ 0 },
};

/* As Go's own, without those of the runtime. */
static int goroutines_file(struct http_call *call, const struct profile *p, const char *name)
{
	struct profile view;
	int rc = goroutines_of_program(p, &view);

	if (rc < 0)
		return rc;
	rc = flamegraph_file(call, &view, "pprof", name);
	free(view.samples);
	return rc;
}

static int collect(struct http_call *call, enum profile_type type, uint32_t default_s,
		   const char *name)
{
	const struct query *query = &call->request->query;
	struct session_request request = {
		.tenant = call->request->tenant,
		.service = query_text(query, "service", "*"),
		.type = type,
		.duration_s = (uint32_t)query_uint(query, "seconds", default_s),
		.rate_hz = RATE_HZ,
	};
	cleanup(profile) struct profile *p = NULL;
	struct session_info info = { 0 };
	char id[SESSION_ID_SIZE];
	int rc = start_session(call, &request, &info);

	if (rc < 0)
		return rc;
	(void)snprintf(id, sizeof(id), "%s", info.id);
	session_info_deinit(&info);
	rc = wait_for_session(call, id, (request.duration_s + 60) * NS_PER_S);
	if (rc == 0)
		rc = sessions_profile(call->api->options.sessions, call->request->tenant, id, &p,
				      call->err);
	if (rc == 0)
		rc = type == PROFILE_GOROUTINE ? goroutines_file(call, p, name)
					       : flamegraph_file(call, p, "pprof", name);
	call->answer->no_store = true;
	return rc;
}

int handle_debug_cpu(struct http_call *call)
{
	return collect(call, PROFILE_CPU, CPU_DEFAULT_S, "profile");
}

int handle_debug_heap(struct http_call *call)
{
	return collect(call, PROFILE_MEMORY, STATE_DEFAULT_S, "heap");
}

int handle_debug_allocs(struct http_call *call)
{
	return collect(call, PROFILE_ALLOC, DELTA_DEFAULT_S, "allocs");
}

int handle_debug_block(struct http_call *call)
{
	return collect(call, PROFILE_BLOCK, DELTA_DEFAULT_S, "block");
}

int handle_debug_mutex(struct http_call *call)
{
	return collect(call, PROFILE_MUTEX, DELTA_DEFAULT_S, "mutex");
}

int handle_debug_goroutine(struct http_call *call)
{
	return collect(call, PROFILE_GOROUTINE, STATE_DEFAULT_S, "goroutine");
}
