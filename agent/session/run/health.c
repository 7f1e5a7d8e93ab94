// SPDX-License-Identifier: Apache-2.0
#include <string.h>
#include <time.h>

#include "agent/base/hash.h"
#include "agent/session/continuous/detail.h"
#include "agent/session/core/sessions.h"
#include "bpf/profiler.h"

static const char *const program_words[SESSIONS_PROGRAMS] = {
	[PROF_PROGRAM_CPU] = "cpu",	  [PROF_PROGRAM_SWITCH] = "switch", [PROF_PROGRAM_LIFE] = "life",
	[PROF_PROGRAM_RESUME] = "resume", [PROF_PROGRAM_IO] = "io",	    [PROF_PROGRAM_LOCK] = "lock",
	[PROF_PROGRAM_DISK] = "disk",
	[PROF_PROGRAM_FAULT] = "fault",
};
_Static_assert(SESSIONS_PROGRAMS == PROF_PROGRAM_MAX, "each has a word");

static uint32_t count_services(const struct sessions *s)
{
	struct u64map names = { 0 };
	uint32_t count;

	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns)
			(void)!u64map_put(&names,
					  hash_bytes(process->identity.name,
						     strlen(process->identity.name), 0),
					  1);
	}
	count = (uint32_t)names.count;
	u64map_deinit(&names);
	return count;
}

static void say(struct sessions_health *ret, const char *reason)
{
	if (!ret->reason[0])
		(void)snprintf(ret->reason, sizeof(ret->reason), "%.383s", reason);
}

static void judge(struct sessions *s, struct sessions_health *ret)
{
	ret->store_ok = s->store_error == 0 && s->store_unread == 0 && !s->standby_reason[0];
	if (s->standby_reason[0])
		say(ret, s->standby_reason);
	else if (!ret->store_ok)
		say(ret, s->store_error ? s->store_reason : s->store_unread_reason);
	ret->collector_ok = s->feed.ring && s->peers.collector_fd >= 0 && s->peers.has_status &&
			    s->peers.has_listed && !s->peers.status.failure[0];
	if (!s->feed.ring)
		say(ret, "this profd runs with --no-collect");
	else if (s->peers.collector_fd < 0 || !s->peers.has_status)
		say(ret, "the collector process is not running; it is being restarted");
	else if (s->peers.status.failure[0])
		say(ret, s->peers.status.failure);
	else if (!s->peers.has_listed)
		say(ret, "the processes of this host are being listed");
	ret->sampling_enabled = !s->sampling_off_ns;
	if (!ret->sampling_enabled)
		say(ret, "sampling was stopped by an administrator; `profctl resume` starts it again");
	ret->symbolizer_ok = names_client_is_connected(s->names);
	if (!ret->symbolizer_ok && s->feed.ring)
		say(ret, "the symbolizer process is not running; it is being restarted");
}

void sessions_health(struct sessions *s, struct sessions_health *ret)
{
	struct sessions_health health = { .store_bytes = store_bytes(s->store),
					  .store_waiting_bytes = store_waiting_bytes(s->store),
					  .detail_bytes = detail_bytes(s) };
	sessions_scope(s);

	judge(s, &health);
	memcpy(health.outcomes, s->outcomes, sizeof(health.outcomes));
	for (const struct session *session = s->running; session; session = session->next)
		health.running_sessions += session_is_running(session);
	for (size_t i = 0; i < s->tables.processes.count; i++)
		health.processes += !s->tables.processes.data[i]->exited_ns;
	health.services = count_services(s);
	health.modules = s->tables.module_count;
	health.stacks = live_tables_stack_count(&s->tables);
	health.samples = s->samples;
	if (s->feed.ring) {
		health.feed_bytes_used = ring_head(s->feed.ring) - ring_tail(s->feed.ring);
		health.feed_bytes_capacity = ring_capacity(s->feed.ring);
	}
	health.collector_cpu_ns = s->feed.costs.collector_cpu_ns;
	health.bpf_run_ns = s->feed.costs.bpf_run_ns;
	for (size_t i = 0; i < SESSIONS_PROGRAMS; i++)
		health.programs[i] = (struct sessions_program){ program_words[i], s->feed.programs.run_ns[i] };
	health.map_bytes = s->feed.costs.map_bytes;
	health.server_cpu_ns = clock_process_ns();
	health.rate_hz = s->feed.demand.rate_hz;
	health.hung_readers = s->peers.status.hung_readers;
	*ret = health;
}
