// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/sessions.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool session_is_running(const struct session *session)
{
	return session->phase < PHASE_ENDED;
}

struct session *session_find(const struct sessions *s, const char *tenant, const char *id)
{
	for (struct session *session = s->running; session; session = session->next)
		if (session->phase != PHASE_PREPARING && strcmp(session->info.id, id) == 0 &&
		    strcmp(session->info.tenant, tenant) == 0)
			return session;
	return NULL;
}

void session_free(struct session *session)
{
	if (!session)
		return;
	recorder_destroy(session->recorder);
	session_info_deinit(&session->info);
	free(session);
}

int session_enlist(struct sessions *s, struct session *session)
{
	for (unsigned slot = 0; slot < LIVE_SLOTS; slot++) {
		if (s->slots[slot])
			continue;
		s->slots[slot] = session;
		session->slot = slot;
		session->next = s->running;
		s->running = session;
		s->match_generation++;
		return 0;
	}
	return -EBUSY;
}

void session_delist(struct sessions *s, struct session *session)
{
	struct session **at = &s->running;

	while (*at != session)
		at = &(*at)->next;
	*at = session->next;
	s->slots[session->slot] = NULL;
	s->match_generation++;
	s->peers.demand_dirty = s->peers.targets_dirty = true;
}

bool session_wants_process(const struct session *session, const struct live_process *process)
{
	if (process->facts.flags & FEED_PROC_EXCLUDED)
		return false;
	return (selector_matches(&session->selector, &process->facts, &process->identity) ||
		(session->selector.children && live_process_is_of_family(process, session->seed))) &&
	       (!session->tenant_rule ||
		service_tenant_allows(session->tenant_rule, &process->facts, &process->identity));
}

bool session_matches_any(const struct sessions *s, const struct session *session)
{
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && session_wants_process(session, process))
			return true;
	}
	return false;
}

const struct tenant_rule *sessions_tenant_rule(const struct sessions *s, const char *tenant)
{
	for (unsigned i = 0; i < s->options.tenant_count; i++)
		if (strcmp(s->options.tenants[i].name, tenant) == 0)
			return &s->options.tenants[i];
	return NULL;
}

void sessions_wake(struct sessions *s)
{
	uint64_t one = 1;

	(void)!write(s->wake_fd, &one, sizeof(one));
}

uint64_t sessions_told(struct sessions *s)
{
	sessions_scope(s);

	return s->told_count;
}

void sessions_await_told(struct sessions *s, uint64_t seen, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_monotonic_ns() + timeout_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };
	int rc = 0;
	sessions_scope(s);

	while (s->told_count == seen && !s->stopping && rc == 0)
		rc = pthread_cond_timedwait(&s->told, &s->lock, &until);
}

void sessions_note_store(struct sessions *s, int rc, const struct err *err)
{
	s->store_error = rc;
	if (rc < 0)
		(void)snprintf(s->store_reason, sizeof(s->store_reason), "%.199s", err->text);
}

void finisher_add(struct sessions *s, const char *tenant, const char *id)
{
	struct finished *slot;

	for (size_t i = 0; i < s->finished_count; i++)
		if (strcmp(s->finished[i].id, id) == 0 && strcmp(s->finished[i].tenant, tenant) == 0)
			return;
	/* A full queue: its names are asked for when it is shown. */
	if (s->finished_count >= FINISHED_MAX)
		return;
	slot = &s->finished[s->finished_count++];
	*slot = (struct finished){ 0 };
	(void)snprintf(slot->tenant, sizeof(slot->tenant), "%s", tenant);
	(void)snprintf(slot->id, sizeof(slot->id), "%s", id);
	(void)pthread_cond_signal(&s->finisher_wake);
}
