/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a session: limits, idempotency keys, the first record. */
#ifndef PROFD_SESSION_START_H
#define PROFD_SESSION_START_H

#include "agent/session/core/sessions.h"

void sessions_remember_key(struct sessions *s, const char *tenant, const char *key, const char *id,
			   uint64_t hash);
/* sessions_start() for what is known already: the service's @name and what to follow. Takes the
 * lock itself. */
int session_start_resolved(struct sessions *s, const struct session_request *request,
			   const struct selector *selector, const char *name, struct session_info *ret,
			   struct err *err) must_use;

#endif
