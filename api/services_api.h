/* SPDX-License-Identifier: Apache-2.0 */
/* The services of the host (contract.md section 2). */
#ifndef PROFD_API_SERVICES_API_H
#define PROFD_API_SERVICES_API_H

#include "api/router.h"

http_handler_fn handle_services;

extern const struct query_spec services_params[];

#endif
