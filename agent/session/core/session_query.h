/* SPDX-License-Identifier: Apache-2.0 */
/* One session: what it looks like to a client, and its end by a client's order. Every function
 * takes the lock itself, but session_describe(). Spans of continuous profiling are not known here
 * (agent/session/history). */
#ifndef PROFD_SESSION_SESSION_QUERY_H
#define PROFD_SESSION_SESSION_QUERY_H

#include "agent/session/core/sessions.h"

/* Fills counters, processes and quality of a running session. -ENOMEM. */
int session_describe(const struct sessions *s, const struct session *session,
		     struct session_info *ret) must_use;
/* sessions_get() of what runs here, without asking the store how large its data are: 1, or 0 when
 * it does not. Takes the lock itself. */
int session_look(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
		 struct err *err) must_use;
/* As sessions_get() of a session that runs or is stored here. -ENOENT: no such session. */
int session_get(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
		struct err *err) must_use;
/* As sessions_delete(). -ENOENT: no such session. */
int session_delete(struct sessions *s, const char *tenant, const char *id, bool *ret_stopped,
		   struct err *err) must_use;
/* Waits until the session has ended and is stored, or, @started, until it samples; at most
 * @timeout_ns. 0 also when there is no such session. -ETIMEDOUT. */
int session_wait(struct sessions *s, const char *tenant, const char *id, uint64_t timeout_ns,
		 bool started) must_use;
/* Fills @err with UnknownSession and returns -ENOENT. */
int session_unknown(struct err *err, const char *id);

#endif
