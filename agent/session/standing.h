/* SPDX-License-Identifier: Apache-2.0 */
/* What continuous settings ask for that is no sum of samples by minutes: block and mutex (of Go programs read,
 * of others sampled), memory, alloc and goroutine. Each is a session of a span's length, and another one follows
 * when it ends: a state at the end of every span, what happened in it, or what its process counted meanwhile.
 * They are sessions like any other but that they neither count for a tenant's limits nor are in the way of those
 * that are asked for, that the budget is that of continuous profiling, and that they are kept as long as their
 * setting says. */
#ifndef PROFD_SESSION_STANDING_H
#define PROFD_SESSION_STANDING_H

#include "agent/session/continuous.h"

#define STANDING_MAX 64u /* types of all settings together */

static inline bool standing_takes(enum profile_type type)
{
	return type >= CONTINUOUS_TYPES && type != PROFILE_IO;
}

/* Whether @type can be taken for what @source names: ProfileTypeUnavailable with the reason, also that of the
 * processes that run now; LimitReached. May wait for seconds; takes the lock itself. */
int standing_check(struct sessions *s, const struct continuous_source *source, enum profile_type type,
		   struct err *err) must_use;
/* What @source keeps observed between its sessions: bits of enum prof_want. Lock held. */
uint32_t standing_wants(const struct sessions *s, const struct continuous_source *source);
/* Starts what is due and stops what nobody wants any more. Returns the monotonic time of the next look. May wait
 * for seconds; takes the lock itself. */
uint64_t standing_look(struct sessions *s);
/* Of the sessions that @source left: how many, their bytes, the newest. Asks the store. */
int standing_status(struct sessions *s, const struct continuous_source *source, struct continuous_status *status,
		    uint64_t newest_ns, struct err *err) must_use;
/* Deletes those that are older than their setting says. */
void standing_expire(struct sessions *s);

#endif
