/* SPDX-License-Identifier: Apache-2.0 */
/* /debug/pprof/…, so that `go tool pprof` and agents that scrape Go programs can pull from this
 * one. */
#ifndef PROFD_API_DEBUG_PPROF_H
#define PROFD_API_DEBUG_PPROF_H

#include "api/http/router.h"

http_handler_fn handle_debug_cpu, handle_debug_heap, handle_debug_allocs, handle_debug_block,
	handle_debug_mutex, handle_debug_goroutine;

extern const struct query_spec debug_params[];

#endif
