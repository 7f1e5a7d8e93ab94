/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of the findings of the watch. */
#ifndef PROFD_API_FINDINGS_API_H
#define PROFD_API_FINDINGS_API_H

#include "api/http/json_out.h"
#include "api/http/router.h"

struct session_query;

http_handler_fn handle_findings, handle_check_findings;
extern const struct query_spec findings_params[];

/* Adds `deployments[]` of the list's service and time to an open object. */
int deployments_json(struct http_call *call, struct json_out *json,
		     const struct session_query *list) must_use;

#endif
