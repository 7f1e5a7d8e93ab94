// SPDX-License-Identifier: Apache-2.0
/* Tells the collector what to sample: the union of what sessions and continuous settings demand. */
#include <string.h>

#include "agent/session/continuous/continuous.h"
#include "agent/session/core/demand.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/run/run.h"

/* Without a session of waits the collector keeps only waits that are longer. */
#define OFF_THRESHOLD_MAX_NS (50 * NS_PER_MS)

static bool is_wanting(const struct session *session)
{
	return session->wants && session->phase >= PHASE_WAIT_PROCESS && session->phase <= PHASE_SAMPLING;
}

static uint32_t wanted_of(struct sessions *s, struct live_process *process)
{
	uint32_t wanted = 0;

	demand_match(s, process);
	for (unsigned i = 0; i < LIVE_SLOTS / 64; i++) {
		for (uint64_t left = process->match[i]; left; left &= left - 1) {
			const struct session *session =
				s->slots[i * 64 + (unsigned)__builtin_ctzll(left)];

			if (session && is_wanting(session))
				wanted |= session->wants | (session_is_fast(session) ? PROF_WANT_FAST : 0);
		}
	}
	wanted |= continuous_wants(continuous_plan_of(s, process));
	/* The collector observes so many at once, and none of these. */
	if (read_session_refusal(PROFILE_ALLOC, process->facts.flags))
		wanted &= ~(uint32_t)(PROF_WANT_ALLOC | PROF_WANT_LIVE);
	return wanted ? wanted : PROF_WANT_NONE;
}

static struct control_demand demand_now(const struct sessions *s)
{
	struct control_demand demand = { .head = { .kind = CONTROL_DEMAND },
					 .off_threshold_ns = OFF_THRESHOLD_MAX_NS };

	for (const struct session *session = s->running; session; session = session->next) {
		if (!is_wanting(session))
			continue;
		demand.types |= session->wants;
		demand.on_demand |= !session->info.continuous;
		/* Nobody has decided on a new program yet, also on one that a followed process has
		 * just executed. */
		demand.sample_undecided = 1;
		if (session->wants & PROF_WANT_CPU)
			demand_cpu(&demand, session_cpu_hz(session), session_is_fast(session));
		if (session->wants & PROF_WANT_OFFCPU)
			demand_waits(&demand, session->info.rate_hz);
	}
	continuous_demand(s, &demand);
	if (demand.fast_hz <= demand.rate_hz)
		demand.fast_hz = 0; /* the host sampler is fast enough */
	return demand;
}

/* Before the demand, so that nobody is born in between. */
static bool send_families(struct sessions *s)
{
	struct control_families families = { .head = { .kind = CONTROL_FAMILIES } };

	for (const struct session *session = s->running; session; session = session->next)
		if (session->selector.children && is_wanting(session) && families.count < FEED_FAMILIES_MAX)
			families.items[families.count++] =
				(struct control_family){ .family = session->seed,
							 .start_boottime_ns = session->selector.start_boottime_ns,
							 .tgid = session->selector.tgid };
	if (families.count == s->peers.families_sent.count &&
	    memcmp(families.items, s->peers.families_sent.items, sizeof(families.items)) == 0)
		return true;
	if (!demand_send(s, &families, sizeof(families)))
		return false;
	s->peers.families_sent = families;
	return true;
}

static void send_targets(struct sessions *s)
{
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		struct live_process *process = s->tables.processes.data[i];
		struct control_target target = { .head = { .kind = CONTROL_TARGET },
						 .proc = process->proc };

		if (process->exited_ns || (process->facts.flags & FEED_PROC_EXCLUDED))
			continue;
		target.wanted = wanted_of(s, process);
		if (target.wanted == process->wanted_sent)
			continue;
		if (!demand_send(s, &target, sizeof(target)))
			return;
		process->wanted_sent = target.wanted;
	}
	s->peers.targets_dirty = false;
}

void demand_update(struct sessions *s)
{
	struct control_demand demand;

	if (s->peers.demand_dirty && send_families(s)) {
		demand = demand_now(s);
		if (memcmp(&demand, &s->peers.demand_sent, sizeof(demand)) == 0) {
			s->peers.demand_dirty = false;
		} else if (demand_send(s, &demand, sizeof(demand))) {
			s->peers.demand_sent = demand;
			s->peers.demand_dirty = false;
		}
	}
	if (s->peers.targets_dirty && s->peers.demand_sent.types)
		send_targets(s);
	/* Behind the decisions it depends on. */
	if (s->peers.sweep_due && !s->peers.demand_dirty && !s->peers.targets_dirty) {
		const struct channel_head head = { .kind = CONTROL_SWEEP };

		s->peers.sweep_due = !demand_send(s, &head, sizeof(head)) &&
				     s->peers.collector_fd >= 0;
	}
	if (s->peers.flush_due) {
		const struct channel_head head = { .kind = CONTROL_FLUSH };

		s->peers.flush_due = !demand_send(s, &head, sizeof(head)) &&
				     s->peers.collector_fd >= 0;
	}
}
