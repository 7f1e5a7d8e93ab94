/* SPDX-License-Identifier: Apache-2.0 */
/* Family C (contract.md section 7): a pipeline is a service, its Samply profile a CPU session at 1000 Hz, marked by a
 * label, so that it survives a restart and is seen by the other families too. */
#ifndef PROFD_API_PIPELINES_H
#define PROFD_API_PIPELINES_H

#include "api/router.h"

http_handler_fn handle_samply_start, handle_samply_get, handle_pipelines, handle_pipeline,
	handle_heap_profile;

extern const struct query_spec samply_start_params[], samply_get_params[];

#endif
