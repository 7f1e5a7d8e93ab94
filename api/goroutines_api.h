/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks as a table (contract.md section 6): analysis, diff, and the flame graph of a goroutine session. */
#ifndef PROFD_API_GOROUTINES_API_H
#define PROFD_API_GOROUTINES_API_H

#include "agent/profile/goroutine_analysis.h"
#include "api/json_out.h"
#include "api/router.h"

/* State, wait reason, frames and creator of @stack as members of the object that is open. @full: frames
 * with file and line. */
void goroutine_stack_members(struct json_out *json, const struct goroutine_analysis *a,
			     const struct goroutine_stack *stack, bool full);

http_handler_fn handle_analysis, handle_diff, handle_goroutine_flame;

extern const struct query_spec analysis_params[], goroutine_flame_params[];

#endif
