/* SPDX-License-Identifier: Apache-2.0 */
/* Idempotency keys of sessions that are deleted: a request that is repeated starts nothing a second
 * time, also when the server has begun again meanwhile. A running server has all keys in its ring
 * (struct idempotency). The records of other sessions have theirs. */
#ifndef PROFD_SESSION_USED_KEYS_H
#define PROFD_SESSION_USED_KEYS_H

#include "agent/base/err.h"
#include "agent/session/core/sessions.h"

#define USED_KEY_KIND	  "usedkey"
#define USED_KEYS_KEPT_NS (86400 * NS_PER_S) /* keys of sessions, deleted or not */

/* Session @id of @tenant is about to be deleted: stores its key, if it has one. Takes the lock. */
int used_keys_keep(struct sessions *s, const char *tenant, const char *id, struct err *err)
	must_use;
/* Puts what is stored and not too old into the ring. Nobody else is at @s yet. */
int used_keys_load(struct sessions *s, struct err *err) must_use;

#endif
