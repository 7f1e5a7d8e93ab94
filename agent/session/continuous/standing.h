/* SPDX-License-Identifier: Apache-2.0 */
/* Profile types that cannot be summed minute by minute: block and mutex (read from Go programs,
 * sampled from others), memory, alloc and goroutine. A continuous setting takes them as a chain of
 * sessions, each one span long. They are sessions like any other, with exceptions. They do not
 * count for a tenant's limits, do not block requested sessions, use the budget of continuous
 * profiling, and are kept as long as their setting says. */
#ifndef PROFD_SESSION_STANDING_H
#define PROFD_SESSION_STANDING_H

#include "agent/session/continuous/continuous.h"

#define STANDING_TENANT_MAX 64u  /* types of all settings of one tenant together */
#define STANDING_MAX	    192u /* of all tenants: they leave room among LIVE_SLOTS */

static inline bool standing_takes(enum profile_type type)
{
	return profile_type_is_kept(type, PROFILE_KEPT_SESSIONS);
}

/* Whether @type can be taken for what @source names: ProfileTypeUnavailable with the reason, also
 * that of the processes that run now; LimitReached. May wait for seconds; takes the lock itself. */
int standing_check(struct sessions *s, const struct continuous_source *source,
		   enum profile_type type, struct err *err) must_use;
/* The processes' events that @source keeps observed between its sessions: bits of enum prof_want.
 * Lock held. */
uint32_t standing_wants(const struct sessions *s, const struct continuous_source *source);
/* Starts what is due and stops what nobody wants any more. Returns the monotonic time of the next
 * look. May wait for seconds; takes the lock itself. */
uint64_t standing_look(struct sessions *s);
/* Counts the sessions that @source left, their bytes, and finds the newest. Asks the store. */
int standing_status(struct sessions *s, const struct continuous_source *source,
		    struct continuous_status *status, uint64_t newest_ns, struct err *err) must_use;
/* Deletes those that are older than their setting says. */
void standing_expire(struct sessions *s);

#endif
