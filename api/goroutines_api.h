/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks as a table (contract.md section 6): analysis, diff, and the flame graph of a goroutine session. */
#ifndef PROFD_API_GOROUTINES_API_H
#define PROFD_API_GOROUTINES_API_H

#include "api/router.h"

http_handler_fn handle_analysis, handle_diff, handle_goroutine_flame;

extern const struct query_spec analysis_params[], goroutine_flame_params[];

#endif
