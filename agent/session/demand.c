// SPDX-License-Identifier: Apache-2.0
/* What the collector shall sample: the union of what the sessions want. */
#include <errno.h>
#include <string.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/session/continuous.h"
#include "agent/session/read_session.h"
#include "agent/session/sessions_internal.h"

#define FAST_ABOVE_HZ 200u /* a session of a part of the host has events of its processes' threads */
#define FAST_HOST_HZ  99u  /* meanwhile the host sampler finds what nobody has decided on */

/* Waits shorter than the threshold are sampled in proportion to their length, which costs each thread up
 * to two samples for each that was asked for a second. */
#define OFF_THRESHOLD_MIN_NS (1 * NS_PER_MS)
#define OFF_THRESHOLD_MAX_NS (50 * NS_PER_MS)

#define ASK_AGAIN_NS   (20 * NS_PER_MS)
#define PORTS_AGAIN_NS (500 * NS_PER_MS) /* the descriptors of all processes are looked at */
#define ANSWER_WAIT_NS NS_PER_S

static bool is_wanting(const struct session *session)
{
	return session->wants && session->phase >= PHASE_WAIT_PROCESS && session->phase <= PHASE_SAMPLING;
}

void demand_match(const struct sessions *s, struct live_process *process)
{
	if (process->match_generation == s->match_generation)
		return;
	memset(process->match, 0, sizeof(process->match));
	for (const struct session *session = s->running; session; session = session->next)
		if (session->phase != PHASE_PREPARING && session_wants_process(session, process))
			process->match[session->slot / 64] |= 1ull << session->slot % 64;
	process->match_generation = s->match_generation;
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

bool demand_is_fast(const struct selector *selector, uint32_t rate_hz)
{
	/* Children are over before they could have events. */
	return selector->kind != SELECTOR_HOST && !selector->children && rate_hz > FAST_ABOVE_HZ;
}

void demand_cpu(struct control_demand *demand, uint32_t rate_hz, bool fast)
{
	uint32_t host_hz = fast ? FAST_HOST_HZ : rate_hz;

	if (host_hz > demand->rate_hz)
		demand->rate_hz = host_hz;
	if (fast && rate_hz > demand->fast_hz)
		demand->fast_hz = rate_hz;
}

void demand_waits(struct control_demand *demand, uint32_t rate_hz)
{
	uint64_t threshold_ns = NS_PER_S / (2 * (uint64_t)(rate_hz ? rate_hz : 1));

	if (threshold_ns < OFF_THRESHOLD_MIN_NS)
		threshold_ns = OFF_THRESHOLD_MIN_NS;
	if (threshold_ns < demand->off_threshold_ns)
		demand->off_threshold_ns = threshold_ns;
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
			demand_cpu(&demand, session->info.rate_hz, session_is_fast(session));
		if (session->wants & PROF_WANT_OFFCPU)
			demand_waits(&demand, session->info.rate_hz);
	}
	continuous_demand(s, &demand);
	if (demand.fast_hz <= demand.rate_hz)
		demand.fast_hz = 0; /* the host sampler is fast enough */
	return demand;
}

/* false: no room now, or no collector. */
static bool send_to_collector(struct sessions *s, const void *message, size_t len)
{
	int rc;

	if (s->peers.collector_fd < 0)
		return false;
	rc = channel_send(s->peers.collector_fd, message, len, NULL, 0);
	return rc == 0;
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
	if (!send_to_collector(s, &families, sizeof(families)))
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
		if (!send_to_collector(s, &target, sizeof(target)))
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
		} else if (send_to_collector(s, &demand, sizeof(demand))) {
			s->peers.demand_sent = demand;
			s->peers.demand_dirty = false;
		}
	}
	if (s->peers.targets_dirty && s->peers.demand_sent.types)
		send_targets(s);
	/* Behind the decisions it depends on. */
	if (s->peers.sweep_due && !s->peers.demand_dirty && !s->peers.targets_dirty) {
		const struct channel_head head = { .kind = CONTROL_SWEEP };

		s->peers.sweep_due = !send_to_collector(s, &head, sizeof(head)) &&
				     s->peers.collector_fd >= 0;
	}
	if (s->peers.flush_due) {
		const struct channel_head head = { .kind = CONTROL_FLUSH };

		s->peers.flush_due = !send_to_collector(s, &head, sizeof(head)) &&
				     s->peers.collector_fd >= 0;
	}
}

void demand_want(struct sessions *s, enum control_want_kind what, const uint64_t *ids,
		 unsigned count)
{
	struct control_want want = { .head = { .kind = CONTROL_WANT },
				     .what = what,
				     .count = count };

	memcpy(want.ids, ids, count * sizeof(*ids));
	/* Lost when the channel is full: whoever misses something asks again. */
	(void)send_to_collector(s, &want, sizeof(want));
}

/* Of what was last told for @told_ns and asked for at @asked_ns: was it told for @since_ns? Else it is asked for, in one
 * question for all who wait, and at most every @again_ns; a collector that is slow is not asked ever faster. */
static bool is_told(struct sessions *s, enum control_want_kind what, uint64_t told_ns, uint64_t *asked_ns, uint64_t since_ns,
		    uint64_t again_ns)
{
	uint64_t now_ns = clock_monotonic_ns(), none = 0;
	bool answered = told_ns >= *asked_ns;

	if (told_ns >= since_ns)
		return true;
	if (now_ns - *asked_ns > (answered ? again_ns : ANSWER_WAIT_NS)) {
		*asked_ns = now_ns;
		demand_want(s, what, &none, 0);
	}
	sessions_wake(s); /* the answer may be in the feed */
	return false;
}

bool demand_lives_are_told(struct sessions *s, uint64_t since_ns)
{
	sessions_scope(s);

	return is_told(s, WANT_LIVES, s->feed.lives_told_ns, &s->peers.lives_asked_ns, since_ns, ASK_AGAIN_NS);
}

bool demand_ports_are_told(struct sessions *s, uint64_t since_ns)
{
	sessions_scope(s);

	return is_told(s, WANT_PORTS, s->feed.ports_told_ns, &s->peers.ports_asked_ns, since_ns, PORTS_AGAIN_NS);
}
