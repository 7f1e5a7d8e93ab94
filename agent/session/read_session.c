// SPDX-License-Identifier: Apache-2.0
#include "agent/session/read_session.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/heap_job.h"
#include "agent/session/read_job.h"
#include "agent/session/reading_target.h"
#include "agent/session/recorder_internal.h"
#include "agent/session/sessions_internal.h"
#include "agent/session/state_sampler.h"

#define PROBES_MAX	  4u
#define PROBE_DEADLINE_MS 5000u
#define RUNTIME_KNOWN_NS  (6 * NS_PER_S) /* of age: its files have been indexed by then */
#define IDLE_WAIT_NS	  (200 * NS_PER_MS)
#define CALM_WAIT_NS	  (2 * NS_PER_S)
#define RELOAD_WAIT_NS	  (5 * NS_PER_S)
#define CHOICE_RETRY_NS	  (100 * NS_PER_MS)
#define CHOICE_MAX_NS	  (5 * NS_PER_S)

bool read_session_takes(enum profile_type type, uint32_t flags)
{
	switch (type) {
	case PROFILE_GOROUTINE:
		return true;
	case PROFILE_MEMORY:
	case PROFILE_ALLOC:
	case PROFILE_BLOCK:
	case PROFILE_MUTEX:
		return flags & FEED_PROC_GO;
	default:
		return false;
	}
}

bool read_session_suits(const struct sessions *s, const char *tenant,
			const struct selector *selector, enum profile_type type)
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = services_tenant_rule(s, tenant) };
	size_t all = 0, go = 0;

	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || !session_wants_process(&wanted, process))
			continue;
		all++;
		go += (process->facts.flags & FEED_PROC_GO) != 0;
	}
	return read_session_takes(type, go * 2 > all ? FEED_PROC_GO : 0);
}

bool read_session_is_decided(struct sessions *s, const char *tenant, const struct selector *selector)
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = services_tenant_rule(s, tenant) };
	uint64_t now_ns = clock_boottime_ns();
	sessions_scope(s);

	if (selector->kind == SELECTOR_HOST) /* some program is always young */
		return true;
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && session_wants_process(&wanted, process) &&
		    !(process->facts.flags & FEED_PROC_GO) &&
		    process->facts.start_boottime_ns + RUNTIME_KNOWN_NS > now_ns)
			return false;
	}
	return true;
}

/* Read from Go programs, sampled of others. */
static bool is_by_runtime(enum profile_type type)
{
	return read_session_takes(type, FEED_PROC_GO) && !read_session_takes(type, 0);
}

bool read_session_waits(const struct sessions *s, const struct session *session)
{
	return is_by_runtime(session->info.type) && session->selector.kind != SELECTOR_HOST &&
	       !session_matches_any(s, session);
}

static bool has_beginning(enum profile_type type)
{
	return type == PROFILE_ALLOC || type == PROFILE_BLOCK || type == PROFILE_MUTEX;
}

/* ---- availability ---------------------------------------------------------------------------- */

const char *read_session_missing(const struct sessions *s, enum profile_type type)
{
	return reader_client_is_connected(s->reader)
		       ? ""
		       : "the reader process is not running; it is being restarted";
}

const char *read_session_refusal(enum profile_type type, uint32_t flags)
{
	if (!(flags & FEED_PROC_KTHREAD))
		return NULL;
	if (type == PROFILE_GOROUTINE)
		return "kernel threads cannot be read from outside";
	if (type == PROFILE_MEMORY || type == PROFILE_ALLOC)
		return "kernel threads have no allocator of their own";
	return NULL;
}

/* Why none of the processes that a session would follow now can be its target; NULL: one can, or none is there. */
static const char *find_refusal(struct sessions *s, const char *tenant, const struct selector *selector,
				enum profile_type type)
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = services_tenant_rule(s, tenant) };
	const char *refusal = NULL;
	sessions_scope(s);

	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || !session_wants_process(&wanted, process))
			continue;
		refusal = read_session_refusal(type, process->facts.flags);
		if (!refusal)
			return NULL;
	}
	return refusal;
}

static int ignore_record(void *ctx, const struct read_record *record)
{
	return 0;
}

/* @count of @ret is what was found; the first PROBES_MAX, those known to be Go before others. */
static size_t find_probes(struct sessions *s, const char *tenant, const struct selector *selector,
			  struct reader_request ret[PROBES_MAX])
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = services_tenant_rule(s, tenant) };
	size_t found = 0, matching = 0;
	sessions_scope(s);

	for (int go = 1; go >= 0 && (go || !found); go--) {
		for (size_t i = 0; i < s->tables.processes.count; i++) {
			const struct live_process *process = s->tables.processes.data[i];
			bool is_go = (process->facts.flags & FEED_PROC_GO) != 0;

			if (process->exited_ns || (process->facts.flags & FEED_PROC_KTHREAD) ||
			    is_go != (go == 1) || !session_wants_process(&wanted, process))
				continue;
			matching++;
			if (found < PROBES_MAX)
				ret[found++] = (struct reader_request){
					.kind = CONTROL_GO_PROFILE,
					.tgid = process->facts.tgid,
					.start_boottime_ns = process->facts.start_boottime_ns,
					.deadline_ms = PROBE_DEADLINE_MS
				};
		}
	}
	/* None of many is known to be Go: it is not worth asking them all. */
	return matching <= PROBES_MAX || found < PROBES_MAX ? found : PROBES_MAX;
}

/* 2: one of them can be read. 1: that is not known. 0: none, and the first one's reason is in @first. */
static int ask_processes(struct sessions *s, const struct session_request *request, const struct selector *selector,
		 struct err *first)
{
	struct reader_request probes[PROBES_MAX];
	size_t count = find_probes(s, request->tenant, selector, probes);

	for (size_t i = 0; i < count; i++) {
		struct err why = { 0 };
		int rc;

		probes[i].what = read_job_what(request->type);
		rc = reader_client_ask(s->reader, &probes[i], ignore_record, NULL, &why);
		if (rc == 0)
			return 2;
		/* What says nothing about the program does not refuse it. */
		if (rc == -EPIPE || rc == -ETIMEDOUT || rc == -EHOSTDOWN || rc == -EAGAIN ||
		    rc == -EIO || rc == -ESRCH)
			return 1;
		/* Its own profile is off: its goroutines' states are sampled. */
		if (rc == -ENODATA && request->type != PROFILE_MEMORY && request->type != PROFILE_ALLOC)
			return 2;
		if (!first->code)
			*first = why;
	}
	return 0;
}

int read_session_check(struct sessions *s, const struct session_request *request,
		       const struct selector *selector, bool *ret_reads, struct err *err)
{
	const bool by_runtime = is_by_runtime(request->type);
	const bool heap = request->type == PROFILE_MEMORY || request->type == PROFILE_ALLOC;
	const char *refusal = find_refusal(s, request->tenant, selector, request->type);
	struct err first = { 0 };
	bool reads;

	if (refusal)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileType", "%s: %s",
			       profile_type_info(request->type)->word, refusal);
	sessions_lock(s);
	reads = read_session_suits(s, request->tenant, selector, request->type);
	sessions_unlock(s);
	/* A program that has just started may not be known to be Go yet: the reader sees it. */
	if (by_runtime && (reads || heap)) {
		int can = ask_processes(s, request, selector, &first);

		if (!can && first.code && (reads || first.code != ENOEXEC))
			return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileType", "%s: %.200s",
				       profile_type_info(request->type)->word, first.text);
		reads = can > !reads;
	}
	*ret_reads = reads;
	return 0;
}

/* ---- phases ---------------------------------------------------------------------------------- */

bool read_session_is_ready(const struct session *session)
{
	return !has_beginning(session->info.type) ||
	       recorder_has_read(session->recorder, READING_START) ||
	       recorder_has_read(session->recorder, READING_STATES);
}

bool read_session_is_done(const struct session *session)
{
	return recorder_has_read(session->recorder, READING_END);
}

/* ---- what a session that waited for its first process is ---------------------------------------- */

/* 1 = Go, 0 = not Go, -EAGAIN = not known yet. */
static int probe(struct sessions *s, const struct reading_target *target)
{
	const struct reader_request request = {
		.kind = CONTROL_GO_PROFILE,
		.what = READER_BLOCK,
		.tgid = target->p.tgid,
		.start_boottime_ns = target->p.start_boottime_ns,
		.deadline_ms = PROBE_DEADLINE_MS,
	};
	struct err err = { 0 };
	int rc = reader_client_ask(s->reader, &request, ignore_record, NULL, &err);

	if (rc == 0 || rc == -ENODATA || rc == -EOPNOTSUPP)
		return 1;
	return rc == -ENOEXEC ? 0 : -EAGAIN;
}

static enum session_choice choose(struct sessions *s, const struct reading_targets_vec *targets)
{
	size_t go = 0, other = 0;

	for (size_t i = 0; i < targets->count && i < PROBES_MAX; i++) {
		int rc = probe(s, &targets->data[i]);

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
		/* What cannot be told for so long is taken as any program is. */
		if (choice == CHOICE_ASKED && now_ns > session->choice_asked_ns + CHOICE_MAX_NS)
			choice = CHOICE_SAMPLE;
		session->choice = choice;
		session->choice_retry_ns = now_ns + CHOICE_RETRY_NS;
	}
	sessions_unlock(s);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* After a restart the tables fill again in moments: whom the session has read before is waited for, lest
 * its end be read of nobody. */
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

/* What a session wants to be read now, 0 = nothing. Lock held. */
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

/* Every session that begins or changes its phase wakes those who wait; the rest is for what may be missed. */
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
	int rc = pthread_create(&s->read_thread, NULL, read_main, s);

	s->has_read_thread = rc == 0;
	return -rc;
}

void read_session_stop_thread(struct sessions *s)
{
	if (s->has_read_thread)
		(void)pthread_join(s->read_thread, NULL);
	s->has_read_thread = false;
}
