/* SPDX-License-Identifier: Apache-2.0 */
/* Demand: which sessions want which process, at which rate, and questions to the collector. The
 * caller holds the lock, unless a comment says that the function takes it. */
#ifndef PROFD_SESSION_DEMAND_H
#define PROFD_SESSION_DEMAND_H

#include "agent/session/core/glance.h"
#include "agent/session/core/sessions.h"

/* Are processes of @selector sampled at @rate_hz by perf events of their own, and not by the
 * sampler of the whole host? Pure. */
bool demand_is_fast(const struct selector *selector, uint32_t rate_hz);
/* The rate at which @session samples CPUs. */
static inline uint32_t session_cpu_hz(const struct session *session)
{
	return session->glances ? GLANCE_HZ : session->info.rate_hz;
}
static inline bool session_is_fast(const struct session *session)
{
	return (session->wants & PROF_WANT_CPU) &&
	       demand_is_fast(&session->selector, session_cpu_hz(session));
}
/* Raises @demand to CPU samples at @rate_hz; @fast: what demand_is_fast() said. */
void demand_cpu(struct control_demand *demand, uint32_t rate_hz, bool fast);
/* Lowers the threshold of @demand, so that waits are sampled at @rate_hz. */
void demand_waits(struct control_demand *demand, uint32_t rate_hz);
/* Asks the collector to send facts again. The question is lost when the channel is full; whoever
 * still misses something asks again. */
void demand_want(struct sessions *s, enum control_want_kind what, const uint64_t *ids,
		 unsigned count);
/* Has the collector reported every process that existed at @since_ns (monotonic)? If not, the
 * collector is asked. Takes the lock. */
bool demand_lives_are_told(struct sessions *s, uint64_t since_ns);
/* Has the collector reported where every process listened at @since_ns (monotonic)? Otherwise as
 * demand_lives_are_told(). */
bool demand_ports_are_told(struct sessions *s, uint64_t since_ns);
/* Finds the sessions that want @process; the result is cached in @process. */
void demand_match(const struct sessions *s, struct live_process *process);
/* Sends a message to the collector. false: the channel is full now, or there is no collector. */
bool demand_send(struct sessions *s, const void *message, size_t len);

#endif
