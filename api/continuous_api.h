/* SPDX-License-Identifier: Apache-2.0 */
/* Continuous profiling: its settings (contract.md section 5, ContinuousProfile). */
#ifndef PROFD_API_CONTINUOUS_API_H
#define PROFD_API_CONTINUOUS_API_H

#include "api/router.h"

http_handler_fn handle_put_continuous, handle_list_continuous, handle_get_continuous,
	handle_delete_continuous;

#endif
