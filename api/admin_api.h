/* SPDX-License-Identifier: Apache-2.0 */
/* Routes for administrators: the switch over all sampling, a copy of the store. */
#ifndef PROFD_API_ADMIN_API_H
#define PROFD_API_ADMIN_API_H

#include "api/http/router.h"

http_handler_fn handle_get_sampling, handle_set_sampling, handle_backup;

#endif
