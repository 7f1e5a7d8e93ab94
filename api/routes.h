/* SPDX-License-Identifier: Apache-2.0 */
/* Every method and path that the server answers, with its parameters. */
#ifndef PROFD_API_ROUTES_H
#define PROFD_API_ROUTES_H

#include "api/http/router.h"

extern const struct route_table route_table;

#endif
