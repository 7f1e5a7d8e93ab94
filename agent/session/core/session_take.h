/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a sample that a session keeps. Feed thread, lock held. */
#ifndef PROFD_SESSION_SESSION_TAKE_H
#define PROFD_SESSION_SESSION_TAKE_H

#include "agent/session/core/sessions.h"

/* Whether an event counts at @rate_hz, and with which values: the sum's expectation stays the same.
 */
bool session_thin(uint32_t rate_hz, uint64_t seed, struct thinning *thinning,
		  const struct feed_sample *sample, int64_t *value, uint64_t *value2);
/* Gives the session what it takes of the sample; fails it when that does not fit in memory. */
void session_take(struct sessions *s, struct session *session, const struct feed_sample *sample,
		  const struct live_process *process);

#endif
