/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of memory and alloc of programs that are not written in Go: whether their allocators can
 * be observed, and what the collector reports about the observation. */
#ifndef PROFD_SESSION_ALLOC_SESSION_H
#define PROFD_SESSION_ALLOC_SESSION_H

#include "agent/session/session.h"

struct selector;
struct ring_record;
struct chunk_quality;
struct session;
struct feed_sample;

/* Is this a session of allocations that probes see? Go programs are read instead (read_choice.h).
 */
bool alloc_session_is(const struct session *session);
/* Asks the collector about the processes that a session of @selector would follow. If none of them
 * can be observed: -ENOTSUP, ProfileTypeUnavailable with the first reason. Takes the lock itself;
 * blocks for at most 3 s. */
int alloc_session_check(struct sessions *s, const struct session_request *request,
			const struct selector *selector, struct err *err) must_use;
/* Takes the FEED_ALLOC record of @len bytes at @data. Lock held. */
void alloc_session_saw(struct sessions *s, const void *data, size_t len);
/* Does @sample belong to @session? Samples of memory that is in use come in sweeps. One sweep
 * counts for a session: the first one after its end. Lock held. */
bool alloc_session_takes(struct session *session, const struct feed_sample *sample);
/* Fills in what @ret says about probes. Lock held. */
void alloc_session_quality(const struct sessions *s, const struct chunk_quality *quality,
			   struct profile_quality *ret);

#endif
