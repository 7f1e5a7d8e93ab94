// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/read_session.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/sessions.h"
#include "agent/session/ingest/recorder_internal.h"
#include "agent/session/snapshot/heap_job.h"
#include "agent/session/snapshot/read_job.h"
#include "agent/session/snapshot/reading_target.h"
#include "agent/session/snapshot/state_sampler.h"

#define IDLE_WAIT_NS	  (200 * NS_PER_MS)
#define CALM_WAIT_NS	  (2 * NS_PER_S)
#define RELOAD_WAIT_NS	  (5 * NS_PER_S)
#define CHOICE_RETRY_NS	  (100 * NS_PER_MS)
#define CHOICE_MAX_NS	  (5 * NS_PER_S)

/* ---- what a session that waited for its first process is ----------------------------------------
 */

static enum session_choice choose(struct sessions *s, const struct reading_targets_vec *targets)
{
	size_t go = 0, other = 0;

	for (size_t i = 0; i < targets->count && i < PROBES_MAX; i++) {
		int rc = read_choice_probe(s, targets->data[i].p.tgid,
					   targets->data[i].p.start_boottime_ns);

		go += rc == 1;
		other += rc == 0;
	}
	if (!go && !other)
		return CHOICE_ASKED;
	return go > other ? CHOICE_READ : CHOICE_SAMPLE;
}

static void decide(struct sessions *s, const struct read_job *job)
{
	struct reading_targets_vec targets = { 0 };
	enum session_choice choice;
	struct session *session;
	uint64_t now_ns;
	size_t beyond;
	int rc;

	sessions_lock(s);
	session = session_find(s, job->tenant, job->id);
	rc = session ? reading_targets_collect(s, session, &targets, &beyond) : -ENOENT;
	sessions_unlock(s);
	choice = rc == 0 && targets.count ? choose(s, &targets) : CHOICE_OPEN;
	reading_targets_free(&targets);
	now_ns = clock_monotonic_ns();
	sessions_lock(s);
	session = session_find(s, job->tenant, job->id);
	if (session && session->choice == CHOICE_ASKED) {
		/* A program that cannot be classified for so long is taken as any program is. */
		if (choice == CHOICE_ASKED && now_ns > session->choice_asked_ns + CHOICE_MAX_NS)
			choice = CHOICE_SAMPLE;
		session->choice = choice;
		session->choice_retry_ns = now_ns + CHOICE_RETRY_NS;
	}
	sessions_unlock(s);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* After a restart the tables fill again in moments: whom the session has read before is waited for,
 * lest its end be read of nobody. */
static bool awaits_processes(const struct sessions *s, const struct session *session)
{
	if (!session->reloaded || clock_monotonic_ns() > session->reloaded_ns + RELOAD_WAIT_NS)
		return false;
	for (size_t i = 0; i < recorder_process_count(session->recorder); i++) {
		const uint32_t tgid = recorder_process(session->recorder, i)->tgid;
		bool known = false;

		for (size_t j = 0; j < s->tables.processes.count && !known; j++)
			known = s->tables.processes.data[j]->facts.tgid == tgid;
		if (!known)
			return true;
	}
	return false;
}

/* The phase that a session wants to be read now, 0 = nothing. Lock held. */
static uint8_t wanted_phase(const struct sessions *s, const struct session *session)
{
	if (!session->reads || session->read_failure[0])
		return 0;
	if (session->phase == PHASE_WAIT_SAMPLER && !read_session_is_ready(session))
		return READING_START;
	if (session->phase == PHASE_CLOSING && !read_session_is_done(session) &&
	    !awaits_processes(s, session))
		return READING_END;
	return 0;
}

/* A session that wants something read, or decided, now; lock held. */
static bool find_work(const struct sessions *s, struct read_job *job)
{
	const uint64_t now_ns = clock_monotonic_ns();

	for (const struct session *session = s->running; session; session = session->next) {
		const bool decides = session->phase == PHASE_WAIT_PROCESS &&
				     session->choice == CHOICE_ASKED &&
				     now_ns >= session->choice_retry_ns;
		const uint8_t phase = wanted_phase(s, session);
		const bool heap = heap_job_is_due(session);

		if (!phase && !decides && !heap)
			continue;
		*job = (struct read_job){ .type = session->info.type,
					  .phase = phase,
					  .heap = heap,
					  .by_states = recorder_has_read(session->recorder,
									 READING_STATES) };
		(void)snprintf(job->tenant, sizeof(job->tenant), "%s", session->info.tenant);
		(void)snprintf(job->id, sizeof(job->id), "%s", session->info.id);
		return true;
	}
	return false;
}

/* Every session that begins or changes its phase wakes those who wait; the rest is for what may be
 * missed. */
static bool any_reads(const struct sessions *s)
{
	for (const struct session *session = s->running; session; session = session->next)
		if (session->reads || heap_job_is_due(session))
			return true;
	return false;
}

/* At most until @due_ns. */
static void wait_for_work(struct sessions *s, uint64_t due_ns)
{
	uint64_t idle_ns = clock_monotonic_ns() + (any_reads(s) ? IDLE_WAIT_NS : CALM_WAIT_NS);
	uint64_t until_ns = due_ns < idle_ns ? due_ns : idle_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };

	(void)pthread_cond_timedwait(&s->changed, &s->lock, &until);
}

static void *read_main(void *ctx)
{
	struct sessions *s = ctx;

	sessions_lock(s);
	while (!s->stopping) {
		uint64_t due_ns = state_samplers_due(s);
		struct read_job job;
		bool found = find_work(s, &job);

		if (!found && due_ns > clock_monotonic_ns()) {
			wait_for_work(s, due_ns);
			continue;
		}
		sessions_unlock(s);
		if (found) {
			if (job.heap)
				heap_job_run(s, &job);
			else if (job.phase)
				read_job_run(s, &job);
			else
				decide(s, &job);
			sessions_wake(s);
		} else {
			state_samplers_run(s);
		}
		sessions_lock(s);
	}
	sessions_unlock(s);
	state_samplers_free(s);
	return NULL;
}

int read_session_start_thread(struct sessions *s)
{
	struct snapshots *snapshots = calloc(1, sizeof(*snapshots));
	int rc;

	if (!snapshots)
		return -ENOMEM;
	s->snapshots = snapshots;
	rc = pthread_create(&snapshots->thread, NULL, read_main, s);
	snapshots->has_thread = rc == 0;
	return -rc;
}

void read_session_stop_thread(struct sessions *s)
{
	if (!s->snapshots)
		return;
	if (s->snapshots->has_thread)
		(void)pthread_join(s->snapshots->thread, NULL);
	script_numbers_deinit(&s->snapshots->scripts);
	free(s->snapshots);
	s->snapshots = NULL;
}
