/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of /sessions: create and list. */
#ifndef PROFD_API_SESSIONS_API_H
#define PROFD_API_SESSIONS_API_H

#include "api/http/router.h"

http_handler_fn handle_create_session, handle_list_sessions;

extern const struct query_spec create_session_params[];

/* Waits until the session is no longer running, at most @timeout_ns; ends early with -ETIMEDOUT
 * when the server stops. */
int wait_for_session(struct http_call *call, const char *id, uint64_t timeout_ns) must_use;

#endif
