/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the findings of a goroutine analysis as JSON. They are suspected leaks over the service's
 * last sessions, waits that do not end, the longest waits, and goroutines by label. */
#ifndef PROFD_API_GOROUTINE_FINDINGS_JSON_H
#define PROFD_API_GOROUTINE_FINDINGS_JSON_H

#include "agent/profile/goroutine/goroutine_analysis.h"
#include "api/http/json_out.h"
#include "api/sides.h"

/* Members of the object that is open in @json; nothing if there is no memory for them. */
void goroutine_findings_json(struct http_call *call, struct json_out *json, const struct side *side,
			     const struct goroutine_analysis *a,
			     const struct goroutine_options *options);

#endif
