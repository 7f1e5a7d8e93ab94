/* SPDX-License-Identifier: Apache-2.0 */
/* Who is asking and what may they do (contract.md section 8). */
#ifndef PROFD_API_AUTH_H
#define PROFD_API_AUTH_H

#include "api/router.h"

/* Sets request->role and, where the caller is bound to one, request->tenant; refuses what the route's role
 * does not allow. -EACCES with Unauthenticated, Forbidden or TenantMismatch. */
int auth_check(struct http_call *call) must_use;

#endif
