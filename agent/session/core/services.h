/* SPDX-License-Identifier: Apache-2.0 */
/* The services that run now, the profile types that they can be profiled by, and the processes that
 * the words of a request mean. */
#ifndef PROFD_SESSION_SERVICES_H
#define PROFD_SESSION_SERVICES_H

#include "agent/session/core/sessions.h"

struct type_need {
	bool available;
	bool returns;	  /* not available only until a process of the agent is back */
	uint32_t wants;	  /* bits of enum prof_want for the collector */
	char reason[256]; /* why the type is not available; "" = it is */
};
/* Can @type be taken now, sampled or, @reads, read? Lock held. */
void services_type_state(const struct sessions *s, enum profile_type type, bool reads,
			 struct type_need *ret);
/* The same for @session with the options of its request. Lock held. */
void services_session_need(const struct sessions *s, const struct session *session,
			   struct type_need *ret);
/* Finds the processes that @service means for @tenant, and the name of their service. @may_wait: no
 * process needs to run now. Takes the lock itself and asks the store. -ENOENT: UnknownService;
 * -ESRCH: ServiceNotRunning; -EINVAL: InvalidParam; -ENOTSUP: ProfileTypeUnavailable. */
int services_resolve(struct sessions *s, const char *tenant, const char *service, bool may_wait,
		     struct selector *ret, char name[SERVICE_NAME_SIZE], struct err *err) must_use;
/* When did the last process end that @service means for @tenant? Monotonic; 0 = none is known. An
 * exec ends a process instance, and the next instance is reported later. Takes the lock itself. */
uint64_t services_ended_ns(struct sessions *s, const char *tenant, const char *service);
/* Does @service name a port? Then the listening processes decide what it means. Pure. */
bool services_is_port(const char *service);

#endif
