/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions that are taken by reading processes from outside (agent/reader) instead of sampling them:
 *
 *   goroutine           every goroutine, or thread, at the end of the duration
 *   memory              the live heap of Go programs at the end
 *   alloc block mutex   Go's own counters at the end less those of the beginning
 *
 * A thread of its own asks the reader, so that nobody else waits for it; what to read follows from
 * the sessions' phases: one that waits for its sampler wants the values of its beginning, one that
 * closes wants those of its end. */
#ifndef PROFD_SESSION_READ_SESSION_H
#define PROFD_SESSION_READ_SESSION_H

#include "agent/session/live_tables.h"
#include "agent/session/session.h"

struct session;
struct type_need;

/* Whether this type is taken from a process with these flags (enum feed_proc_flag) by reading it. Memory,
 * alloc, block and mutex of Go programs only: others are sampled. */
bool read_session_takes(enum profile_type type, uint32_t flags);
/* False while one of the selector's processes is so young that its runtime may not be known yet: block and
 * mutex are read from a Go program and sampled of any other, so the answer to a start waits for it. Takes
 * the lock. */
bool read_session_is_decided(struct sessions *s, const char *tenant, const struct selector *selector);
/* The same for what a new session would follow: what most of its processes are. Lock held. */
bool read_session_suits(const struct sessions *s, const char *tenant,
			const struct selector *selector, enum profile_type type);

/* Whether what a session does depends on its first process, which is not there yet. Lock held. */
bool read_session_waits(const struct sessions *s, const struct session *session);

/* Lock held. Why @type cannot be taken now from any process, "" = it can. */
const char *read_session_missing(const struct sessions *s, enum profile_type type);
/* Whether it can be taken from a process with these flags (enum feed_proc_flag), as far as is known
 * without reading it; NULL = yes. */
const char *read_session_refusal(enum profile_type type, uint32_t flags);
/* Whether a new session would have anything of the processes that it would follow. Asks those of Go, too, which may
 * have been linked without their heap profile. Words: ProfileTypeUnavailable. Takes the lock
 * itself. @ret_reads: the session is to be taken by reading. */
int read_session_check(struct sessions *s, const struct session_request *request,
		       const struct selector *selector, bool *ret_reads, struct err *err) must_use;

/* Lock held, feed thread. The beginning has been read, or needs no reading. */
bool read_session_is_ready(const struct session *session);
/* The end has been read; the session may be completed, or fails with its reason. */
bool read_session_is_done(const struct session *session);

int read_session_start_thread(struct sessions *s) must_use;
void read_session_stop_thread(struct sessions *s);

#endif
