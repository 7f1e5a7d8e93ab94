/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a running session, from the first process to the stored record. Only the feed thread
 * calls these functions, with the lock held, but where it is said otherwise. */
#ifndef PROFD_SESSION_SESSION_LIFE_H
#define PROFD_SESSION_SESSION_LIFE_H

#include "agent/session/core/sessions.h"
#include "agent/session/records/session_record.h"

/* Moves sessions whose time has come into their next phase. May drop the lock while it writes. */
void session_life_check(struct sessions *s, uint64_t now_ns);
/* Makes durable what sessions have taken. Drops the lock while it writes. */
void session_life_flush(struct sessions *s);
/* Writes records that have changed, and frees sessions whose last record is stored. Drops the lock
 * while it writes. */
void session_life_save(struct sessions *s, uint64_t now_ns);
/* Feed position up to which the ring may be released. */
uint64_t session_life_release_position(const struct sessions *s);
void session_life_fail(struct sessions *s, struct session *session, const char *fmt, ...)
	printf_like(3, 4);
/* Ends everything that runs with what it has (the daemon stops). session_life_save() writes the
 * records. */
void session_life_end_all(struct sessions *s, uint64_t now_ns);
/* A process exited, appeared, or the sampler changed. */
void session_life_saw_exit(struct sessions *s, const struct live_process *process);
void session_life_saw_process(struct sessions *s, struct live_process *process, uint64_t now_ns);
void session_life_saw_demand(struct sessions *s, uint64_t time_ns);
/* A session that gets less than it asked for says so. */
void session_life_note_restraint(struct session *session, const struct feed_demand *demand);
/* The facts that a restarted server needs to go on with @session. Any thread. */
void session_resume_of(const struct sessions *s, const struct session *session,
		       struct session_resume *ret);
/* Whether its process's descendants are noted from now on, or nobody is left who could have any. */
static inline bool session_is_followed(const struct session *session)
{
	return !session->selector.children || session->followed || session->pid_gone_ns;
}
/* The rate at which its processes' CPU time is sampled under @demand. */
uint32_t session_sampled_hz(const struct session *session, const struct feed_demand *demand);

#endif
