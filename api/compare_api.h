/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of comparisons: the verdict and the differential flame graph. */
#ifndef PROFD_API_COMPARE_API_H
#define PROFD_API_COMPARE_API_H

#include "agent/profile/compare/compare.h"
#include "api/http/json_out.h"
#include "api/http/router.h"

http_handler_fn handle_compare, handle_compare_flamegraph;

extern const struct query_spec compare_params[], compare_flamegraph_params[];

/* One element of regressions, improvements, newHotspots. */
void compare_function_json(struct json_out *json, const struct compare_function *function);

#endif
