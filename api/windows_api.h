/* SPDX-License-Identifier: Apache-2.0 */
/* Merged windows of the history: trend points, the merged table, the flame graph of a window. */
#ifndef PROFD_API_WINDOWS_API_H
#define PROFD_API_WINDOWS_API_H

#include "api/http/json_out.h"
#include "api/http/router.h"

struct session_query;

http_handler_fn handle_window_flamegraph;

extern const struct query_spec window_flamegraph_params[];

/* Members `points` and `topFunctions`, `flameGraphUrl` of a history answer, as its query asks for.
 */
int windows_json(struct http_call *call, struct json_out *json, const struct session_query *list)
	must_use;

#endif
