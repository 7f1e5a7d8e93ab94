/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of goroutine sessions: analysis, diff and flame graph. */
#ifndef PROFD_API_GOROUTINES_API_H
#define PROFD_API_GOROUTINES_API_H

#include "agent/profile/goroutine/goroutine_analysis.h"
#include "api/http/json_out.h"
#include "api/http/router.h"

/* The forms of ?frames=. `raw` is separate: it says which frames there are. */
enum stack_frames { STACK_FRAMES_NAMES, STACK_FRAMES_FULL, STACK_FRAMES_DETAILS };
enum stack_frames stack_frames_of(const struct query *query);
/* State, wait reason, frames and creator of @stack as members of the object that is open. */
void goroutine_stack_members(struct json_out *json, const struct goroutine_analysis *a,
			     const struct goroutine_stack *stack, enum stack_frames frames);

http_handler_fn handle_analysis, handle_diff, handle_goroutine_flame;

extern const struct query_spec analysis_params[], diff_params[], goroutine_flame_params[];

#endif
