/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which a session takes its profile. Each has functions for before the start, the
 * start, the end of the session's time, and the time until its data is whole. A profile type names
 * its way in the table of types (agent/profile/profile_type.c); a new type of an existing way needs
 * nothing here. */
#ifndef PROFD_SESSION_SESSION_WAY_H
#define PROFD_SESSION_SESSION_WAY_H

#include "agent/session/core/sessions.h"

/* The note of an io session, as long as no bytes are known to be missing. */
#define SESSION_BYTES_ARE_EXACT                                                             \
	"bytes are exact for each thread, and for each function but those with a "          \
	"confidenceInterval, of which calls were sampled; so are operations"

/* All but @check: on the feed thread, lock held. */
struct session_way {
	/* Refuses a request whose processes cannot be taken in this way; NULL: nothing to ask. Takes
	 * the lock itself, may wait for seconds. */
	int (*check)(struct sessions *s, const struct session_request *request,
		     const struct selector *selector, struct err *err);
	/* Whether the collector or the reader is ready, so that the session may begin. */
	bool (*is_ready)(const struct sessions *s, const struct session *session);
	/* The session's time begins. */
	void (*start)(struct sessions *s, struct session *session);
	/* The session's time is over. */
	void (*stop)(struct sessions *s, struct session *session);
	/* Whether @sample, which is of one of its type's kinds, belongs to the session. */
	bool (*takes)(struct session *session, const struct feed_sample *sample);
	/* Whether everything of the session's time has arrived. @final: nobody waits any longer. */
	bool (*is_whole)(const struct sessions *s, const struct session *session, uint64_t now_ns,
			 bool final);
	uint64_t grace_ns; /* from the end of its time until its data may be whole */
};

/* Never NULL. */
const struct session_way *session_way(const struct session *session);
/* The same before there is a session. @reads: from the memory of Go programs. */
const struct session_way *session_way_of(enum profile_type type, bool reads);

#endif
