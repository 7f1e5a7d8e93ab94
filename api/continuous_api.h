/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of the settings of continuous profiling. */
#ifndef PROFD_API_CONTINUOUS_API_H
#define PROFD_API_CONTINUOUS_API_H

#include "api/http/router.h"

http_handler_fn handle_put_continuous, handle_list_continuous, handle_get_continuous,
	handle_delete_continuous;

#endif
