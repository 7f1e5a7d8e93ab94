/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers below /profiling: start, read, delete and list sessions. */
#ifndef PROFD_API_PROFILING_H
#define PROFD_API_PROFILING_H

#include "api/http/router.h"

http_handler_fn handle_start, handle_get_profile, handle_delete_profile, handle_history;

extern const struct query_spec get_profile_params[], history_params[], list_sessions_params[];

/* Starts @request and explains AlreadyRunning with the running id in call->details. */
int start_session(struct http_call *call, const struct session_request *request,
		  struct session_info *ret) must_use;
/* Lists sessions by the query of the call as {items, nextCursor, total}. */
int list_sessions(struct http_call *call) must_use;

#endif
