/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of pipelines. A pipeline is a service; its Samply profile is a CPU session at 1000 Hz. A
 * label marks the session, so that it survives a restart and every other call lists it too. */
#ifndef PROFD_API_PIPELINES_H
#define PROFD_API_PIPELINES_H

#include "api/http/router.h"

http_handler_fn handle_samply_start, handle_samply_get, handle_pipelines, handle_pipeline,
	handle_heap_profile;

extern const struct query_spec samply_start_params[], samply_get_params[];

#endif
