/* SPDX-License-Identifier: Apache-2.0 */
/* Family B (contract.md section 6): sessions. */
#ifndef PROFD_API_SESSIONS_B_H
#define PROFD_API_SESSIONS_B_H

#include "api/router.h"

http_handler_fn handle_create_session, handle_list_sessions;

extern const struct query_spec create_session_params[];

/* Waits until the session is no longer running, at most @timeout_ns; ends early with -ETIMEDOUT when the server
 * stops. */
int wait_for_session(struct http_call *call, const char *id, uint64_t timeout_ns) must_use;

#endif
