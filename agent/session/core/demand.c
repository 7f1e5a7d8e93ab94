// SPDX-License-Identifier: Apache-2.0
/* Matching processes to sessions, rates, and questions to the collector. */
#include "agent/session/core/demand.h"

#include <errno.h>
#include <string.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/session/core/sessions.h"

#define FAST_ABOVE_HZ                                                                              \
	200u /* a session of a part of the host has events of its processes' threads */
#define FAST_HOST_HZ  99u  /* meanwhile the host sampler finds what nobody has decided on */

/* Waits shorter than the threshold are sampled in proportion to their length, which costs each
 * thread up to two samples for each that was asked for a second. */
#define OFF_THRESHOLD_MIN_NS (1 * NS_PER_MS)

#define ASK_AGAIN_NS   (20 * NS_PER_MS)
#define PORTS_AGAIN_NS (500 * NS_PER_MS) /* the descriptors of all processes are looked at */
#define ANSWER_WAIT_NS NS_PER_S

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

bool demand_send(struct sessions *s, const void *message, size_t len)
{
	int rc;

	if (s->peers.collector_fd < 0)
		return false;
	rc = channel_send(s->peers.collector_fd, message, len, NULL, 0);
	return rc == 0;
}

void demand_want(struct sessions *s, enum control_want_kind what, const uint64_t *ids,
		 unsigned count)
{
	struct control_want want = { .head = { .kind = CONTROL_WANT },
				     .what = what,
				     .count = count };

	memcpy(want.ids, ids, count * sizeof(*ids));
	/* Lost when the channel is full: whoever misses something asks again. */
	(void)demand_send(s, &want, sizeof(want));
}

/* true: the answer told at @told_ns covers @since_ns. Else it is asked for, in one question for all
 * who wait, at most every @again_ns: a slow collector is not asked ever faster. */
static bool is_told(struct sessions *s, enum control_want_kind what, uint64_t told_ns,
		    uint64_t *asked_ns, uint64_t since_ns, uint64_t again_ns)
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

	return is_told(s, WANT_LIVES, s->feed.lives_told_ns, &s->peers.lives_asked_ns, since_ns,
		       ASK_AGAIN_NS);
}

bool demand_ports_are_told(struct sessions *s, uint64_t since_ns)
{
	sessions_scope(s);

	return is_told(s, WANT_PORTS, s->feed.ports_told_ns, &s->peers.ports_asked_ns, since_ns,
		       PORTS_AGAIN_NS);
}
