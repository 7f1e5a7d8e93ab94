/* SPDX-License-Identifier: Apache-2.0 */
/* memory and alloc of programs that are not Go: whether their allocators can be observed, and what the
 * collector says about how they are. */
#ifndef PROFD_SESSION_ALLOC_SESSION_H
#define PROFD_SESSION_ALLOC_SESSION_H

#include "agent/session/session.h"

struct selector;
struct ring_record;
struct chunk_quality;
struct session;
struct feed_sample;

/* Is this a session of allocations seen by probes? (Go's are read: read_session.h) */
bool alloc_session_is(const struct session *session);
/* Asks the collector about the processes that a session would follow: refused (ProfileTypeUnavailable with
 * the first one's reason) when none can be observed. Takes the lock itself; waits at most 3 s. */
int alloc_session_check(struct sessions *s, const struct session_request *request,
			const struct selector *selector, struct err *err) must_use;
/* A FEED_ALLOC record of @len bytes at @data. Lock held. */
void alloc_session_saw(struct sessions *s, const void *data, size_t len);
/* Does @sample belong to it? Of what is in use, one sweep's samples count: the first behind its end. */
bool alloc_session_takes(struct session *session, const struct feed_sample *sample);
/* Fills @ret's part about probes. */
void alloc_session_quality(const struct sessions *s, const struct chunk_quality *quality,
			   struct profile_quality *ret);

#endif
