/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a session reads its processes or samples them. A Go program's own counters are read from
 * outside (agent/reader); other programs are sampled. goroutine is always read. Everything here
 * only decides; agent/session/snapshot does the reading. */
#ifndef PROFD_SESSION_READ_CHOICE_H
#define PROFD_SESSION_READ_CHOICE_H

#include "agent/recording/reader_client.h"
#include "agent/session/core/sessions.h"

#define PROBES_MAX 4u /* processes that are asked what they are */

/* The profile of the reader (enum reader_profile) that @type is made from. */
uint32_t read_job_what(enum profile_type type);
/* Asks the reader whether the process is a Go program: 1 = yes, 0 = no, -EAGAIN = not known yet.
 * Blocks for up to 5 s; the lock must not be held. */
int read_choice_probe(struct sessions *s, uint32_t tgid, uint64_t start_boottime_ns) must_use;
/* Is @type read from a process with @flags (enum feed_proc_flag)? memory, alloc, block and mutex
 * are read from Go programs only. Pure. */
bool read_session_takes(enum profile_type type, uint32_t flags);
/* false while a process of @selector is so young that its runtime may not be known yet. A start of
 * block or mutex waits for that. Takes the lock. */
bool read_session_is_decided(struct sessions *s, const char *tenant,
			     const struct selector *selector);
/* Would a new session of @selector read? Most of its processes decide. Lock held. */
bool read_session_suits(const struct sessions *s, const char *tenant,
			const struct selector *selector, enum profile_type type);
/* Is the first process of @session missing, and does that process decide whether the session
 * reads? Lock held. */
bool read_session_waits(const struct sessions *s, const struct session *session);
/* The reason why @type cannot be read from any process now, "" = it can. Lock held. */
const char *read_session_missing(const struct sessions *s, enum profile_type type);
/* The reason why @type cannot be taken from a process with @flags, as far as the flags tell; NULL =
 * it can. Pure. */
const char *read_session_refusal(enum profile_type type, uint32_t flags);
/* Checks that a new session would get data from the processes of @selector. Go programs are asked,
 * because one may be linked without its heap profile. *ret_reads: the session shall read.
 * -ENOTSUP: ProfileTypeUnavailable. Takes the lock itself; blocks for up to 20 s. */
int read_session_check(struct sessions *s, const struct session_request *request,
		       const struct selector *selector, bool *ret_reads, struct err *err) must_use;
/* Is the beginning read, or is none needed? Lock held. */
bool read_session_is_ready(const struct session *session);
/* Is the end read? Then the session may be completed. Lock held. */
bool read_session_is_done(const struct session *session);
/* Are the heaps of @session to be walked now? Only sessions of memory that are sampled. Lock
 * held. */
bool heap_job_is_due(const struct session *session);

#endif
