/* SPDX-License-Identifier: Apache-2.0 */
/* A session as a record of the store: JSON, numbers beyond 2^53 as decimal text, unknown members
 * ignored. */
#ifndef PROFD_SESSION_SESSION_RECORD_H
#define PROFD_SESSION_SESSION_RECORD_H

#include "agent/session/session.h"
#include "agent/store/store.h"

#define SESSION_RECORD_KIND "session"

/* Facts that only the session layer needs to go on after a restart. */
struct session_resume {
	uint64_t asked_ns, start_ns, end_ns, wait_until_ns; /* monotonic */
	uint64_t seed;
	uint64_t feed_identity, begin_position;
	uint64_t boot_offset_ns; /* realtime - monotonic when written: tells another boot */
	char idempotency_key[256];
	uint64_t request_hash;
	uint64_t reads; /* 1 = taken by reading processes, 2 = not, 0 = an earlier version wrote it */
};

const char *session_status_word(enum session_status status);
/* Owned text (free), NULL when out of memory. @resume may be NULL. */
char *session_record_encode(const struct session_info *info, const struct session_resume *resume);
/* -EPROTO when it is not a session's record. @resume may be NULL. @ret is released with
 * session_info_deinit(). */
int session_record_decode(const char *body, size_t len, struct session_info *ret,
			  struct session_resume *resume) must_use;
/* Writes the record. */
int session_record_put(struct store *store, const struct session_info *info,
		       const struct session_resume *resume, struct err *err) must_use;

#endif
