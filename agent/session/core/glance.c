// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/glance.h"

#include "agent/base/clock.h"

#define GLANCE_NS     (300 * NS_PER_MS)
#define GLANCE_MAX_NS (3 * NS_PER_S) /* with the time until the sampler runs */

static bool has_python(const struct sessions *s, const struct session *session)
{
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && process->facts.flags & FEED_PROC_PYTHON &&
		    session_wants_process(session, process))
			return true;
	}
	return false;
}

bool glance_begin(struct sessions *s, struct session *session, uint64_t now_ns)
{
	const struct peers *peers = &s->peers;

	if (session->glances || !session->reads || session->info.type != PROFILE_GOROUTINE ||
	    session->pid_gone_ns || peers->collector_fd < 0 || !peers->has_status ||
	    !(peers->status.types & PROF_WANT_CPU) || !has_python(s, session))
		return false;
	session->glances = true;
	session->glance_until_ns = now_ns + GLANCE_MAX_NS;
	session->wants |= PROF_WANT_CPU;
	session->end_ns = now_ns + GLANCE_NS;
	s->peers.demand_dirty = s->peers.targets_dirty = true;
	return true;
}

void glance_follow(const struct sessions *s, struct session *session, uint64_t now_ns)
{
	if (!session->glance_until_ns)
		return;
	if (now_ns >= session->glance_until_ns || s->feed.demand.types & PROF_WANT_CPU)
		session->glance_until_ns = 0;
	session->end_ns = now_ns + GLANCE_NS;
}

int glance_take(struct session *session, const struct feed_sample *sample,
		const struct live_process *process)
{
	struct feed_sample seen = *sample;

	if (sample->type != PROF_SAMPLE_CPU || !sample->user_stack ||
	    sample->time_ns < session->start_ns || sample->time_ns >= session->end_ns)
		return 0;
	seen.state = CHUNK_CPU_SEEN;
	return recorder_add(session->recorder, &seen, process, 0, 0);
}
