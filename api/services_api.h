/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of the services of the host. */
#ifndef PROFD_API_SERVICES_API_H
#define PROFD_API_SERVICES_API_H

#include "api/http/router.h"

http_handler_fn handle_services;

/* The value of the query parameter @name as what is stored calls it: of an alias the service that
 * it means now. NULL: it was not given. */
const char *service_asked(struct http_call *call, const char *name);

extern const struct query_spec services_params[];

#endif
