// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/state_sampler.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "agent/session/core/sessions.h"
#include "agent/session/snapshot/read_session.h"
#include "agent/session/snapshot/reading_groups.h"
#include "agent/session/snapshot/reading_target.h"
#include "agent/session/snapshot/state_sums.h"

#define DEADLINE_MS    5000u
#define PAUSE_MIN_NS   (50 * NS_PER_MS)
#define COST_SHARE     100u /* the pause is so many times what a snapshot cost */
#define COST_SHARE_MAX 10u  /* when that would leave a session with fewer than ROUNDS_MIN */
#define ROUNDS_MIN     10u
#define HANGS_MAX      2u   /* then a process is let be: it keeps the reader from all others */
#define FLUSH_FIRST_NS (1 * NS_PER_S)
#define FLUSH_NS       (10 * NS_PER_S)

/* One process of one session. */
struct watched {
	struct reading_target target; /* owned */
	struct state_sums sums;
	struct reading held;	/* the last snapshot: the time around it is not over */
	uint64_t held_from_ns;	/* monotonic: where that time begins */
	uint64_t held_at_ns;	/* 0 = none */
	char reason[156];	/* why the last attempt failed */
	unsigned hangs;		/* in a row: the reader hung in it */
	bool lives;
	bool was_read;		/* at least once */
};
VEC_DEFINE(watched, struct watched *);

struct state_sampler {
	struct state_sampler *next;
	char tenant[TENANT_NAME_SIZE];
	char id[SESSION_ID_SIZE];
	enum profile_type type;
	uint32_t rate_hz;
	uint64_t duration_ns; /* as asked */
	uint64_t begin_ns;    /* monotonic: from here on */
	uint64_t due_ns, flush_at_ns;
	uint64_t cost_ns, rounds; /* since the last flush */
	struct watched_vec processes;
	bool had_any; /* snapshot of any process */
};

uint64_t state_sampler_pause_ns(uint64_t cost_ns, uint64_t duration_ns, uint32_t rate_hz)
{
	uint64_t pause_ns = cost_ns * COST_SHARE, most_ns = duration_ns / ROUNDS_MIN;

	if (pause_ns > most_ns)
		pause_ns = most_ns > cost_ns * COST_SHARE_MAX ? most_ns : cost_ns * COST_SHARE_MAX;
	if (pause_ns < PAUSE_MIN_NS)
		pause_ns = PAUSE_MIN_NS;
	if (rate_hz && pause_ns < NS_PER_S / rate_hz)
		pause_ns = NS_PER_S / rate_hz;
	return pause_ns;
}

/* @pause_ns on average, between half and one and a half of it. */
static uint64_t drawn_ns(uint64_t pause_ns)
{
	uint32_t random = UINT32_MAX / 2;

	(void)!getrandom(&random, sizeof(random), 0);
	return pause_ns / 2 + (uint64_t)((double)pause_ns * random / UINT32_MAX);
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- samplers and their processes ------------------------------------------------------------ */

static void watched_free(struct watched *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->target.text); i++)
		free(w->target.text[i]);
	state_sums_clear(&w->sums);
	reading_clear(&w->held);
	free(w);
}

static void sampler_free(struct state_sampler *sampler)
{
	for (size_t i = 0; i < sampler->processes.count; i++)
		watched_free(sampler->processes.data[i]);
	watched_vec_deinit(&sampler->processes);
	free(sampler);
}

void state_samplers_free(struct sessions *s)
{
	while (s->snapshots->samplers) {
		struct state_sampler *next = s->snapshots->samplers->next;

		sampler_free(s->snapshots->samplers);
		s->snapshots->samplers = next;
	}
}

static struct state_sampler **find_sampler(struct sessions *s, const char *tenant, const char *id)
{
	struct state_sampler **at = &s->snapshots->samplers;

	while (*at && (strcmp((*at)->id, id) != 0 || strcmp((*at)->tenant, tenant) != 0))
		at = &(*at)->next;
	return at;
}

static bool wants_snapshots(const struct session *session)
{
	return session->reads && session->phase == PHASE_SAMPLING && !session->read_failure[0] &&
	       recorder_has_read(session->recorder, READING_STATES);
}

/* One for @session, whose states are sampled from now on, or after a restart again. Lock held. */
static struct state_sampler *add_sampler(struct sessions *s, const struct session *session)
{
	const struct chunk_quality *quality = recorder_counters(session->recorder);
	struct state_sampler *sampler = calloc(1, sizeof(*sampler));

	if (!sampler)
		return NULL;
	(void)snprintf(sampler->tenant, sizeof(sampler->tenant), "%s", session->info.tenant);
	(void)snprintf(sampler->id, sizeof(sampler->id), "%s", session->info.id);
	sampler->type = session->info.type;
	sampler->rate_hz = session->info.rate_hz;
	sampler->duration_ns = session->info.requested_duration_s * NS_PER_S;
	sampler->begin_ns = quality->cost_to_ns ? quality->cost_to_ns : session->start_ns;
	sampler->due_ns = sampler->begin_ns + drawn_ns(PAUSE_MIN_NS);
	sampler->flush_at_ns = sampler->begin_ns + FLUSH_FIRST_NS;
	sampler->next = s->snapshots->samplers;
	s->snapshots->samplers = sampler;
	return sampler;
}

static void drop_gone(struct sessions *s)
{
	struct state_sampler **at = &s->snapshots->samplers;

	while (*at) {
		struct state_sampler *sampler = *at;

		if (session_find(s, sampler->tenant, sampler->id)) {
			at = &sampler->next;
			continue;
		}
		*at = sampler->next;
		sampler_free(sampler);
	}
}

uint64_t state_samplers_due(struct sessions *s)
{
	uint64_t due_ns = UINT64_MAX;

	drop_gone(s);
	for (const struct session *session = s->running; session; session = session->next) {
		struct state_sampler *sampler;

		if (!wants_snapshots(session))
			continue;
		sampler = *find_sampler(s, session->info.tenant, session->info.id);
		if (!sampler)
			sampler = add_sampler(s, session);
		if (sampler && sampler->due_ns < due_ns)
			due_ns = sampler->due_ns;
	}
	return due_ns;
}

static uint64_t to_monotonic_ns(uint64_t boottime_ns)
{
	struct clock_triple now = clock_now();
	uint64_t asleep_ns = now.boottime_ns - now.monotonic_ns;

	return boottime_ns > asleep_ns ? boottime_ns - asleep_ns : 0;
}

static bool is_same_process(const struct chunk_process *a, const struct chunk_process *b)
{
	return a->tgid == b->tgid && a->start_boottime_ns == b->start_boottime_ns &&
	       a->exec_generation == b->exec_generation;
}

/* Takes the texts of @target over. */
static int watch(struct state_sampler *sampler, struct reading_target *target)
{
	struct watched *w;
	uint64_t born_ns;
	int rc;

	for (size_t i = 0; i < sampler->processes.count; i++) {
		w = sampler->processes.data[i];
		if (is_same_process(&w->target.p, &target->p)) {
			w->lives = true;
			return 0;
		}
	}
	w = calloc(1, sizeof(*w));
	rc = w ? watched_vec_push(&sampler->processes, w) : -ENOMEM;
	if (rc < 0) {
		free(w);
		return rc;
	}
	w->target = *target;
	memset(target->text, 0, sizeof(target->text));
	w->lives = true;
	w->sums.sum.type = w->held.type = sampler->type;
	born_ns = to_monotonic_ns(w->target.p.start_boottime_ns);
	w->held_from_ns = born_ns > sampler->begin_ns ? born_ns : sampler->begin_ns;
	return 0;
}

/* The processes of the session as they are now. false: it wants no more snapshots. */
static bool update_processes(struct sessions *s, struct state_sampler *sampler)
{
	struct reading_targets_vec targets = { 0 };
	const struct session *session;
	size_t beyond;
	bool wanted;
	int rc = 0;

	sessions_lock(s);
	session = session_find(s, sampler->tenant, sampler->id);
	wanted = session && wants_snapshots(session);
	if (wanted)
		rc = reading_targets_collect(s, session, &targets, &beyond);
	sessions_unlock(s);
	for (size_t i = 0; i < sampler->processes.count; i++)
		sampler->processes.data[i]->lives = false;
	for (size_t i = 0; rc == 0 && i < targets.count; i++)
		rc = watch(sampler, &targets.data[i]);
	reading_targets_free(&targets);
	return wanted;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* The time of the snapshot that is held ends at @until_ns. */
static void settle_held(struct watched *w, uint64_t until_ns)
{
	uint64_t seen;

	if (w->held_at_ns && until_ns > w->held_from_ns)
		(void)!state_sums_add(&w->sums, &w->held, until_ns - w->held_from_ns, &seen);
	if (until_ns > w->held_from_ns)
		w->held_from_ns = until_ns;
	w->held_at_ns = 0;
}

static void take_snapshot(struct sessions *s, struct state_sampler *sampler, struct watched *w)
{
	const struct reader_request request = {
		.kind = CONTROL_GOROUTINES,
		.flags = sampler->type == PROFILE_MUTEX ? READER_LOCKS_ONLY : READER_BLOCKED_ONLY,
		.tgid = w->target.p.tgid,
		.start_boottime_ns = w->target.p.start_boottime_ns,
		.deadline_ms = DEADLINE_MS,
	};
	cleanup_reading struct reading reading = { .type = sampler->type };
	uint64_t at_ns = clock_monotonic_ns();
	struct err err = { 0 };
	int rc = reader_client_ask(s->reader, &request, reading_take, &reading, &err);

	if (rc < 0) {
		(void)snprintf(w->reason, sizeof(w->reason), "%.155s", err.text);
		w->hangs += rc == -EHOSTDOWN;
		return;
	}
	w->was_read = true;
	w->hangs = 0;
	sampler->cost_ns += reading.end.cpu_ns;
	settle_held(w, w->held_at_ns ? w->held_at_ns + (at_ns - w->held_at_ns) / 2
				     : w->held_from_ns);
	reading_clear(&w->held);
	w->held = reading;
	w->held_at_ns = at_ns;
	reading = (struct reading){ .type = sampler->type };
}

/* ---- into the session ------------------------------------------------------------------------ */

static void count_cost(struct sessions *s, struct state_sampler *sampler, struct session *session,
		       uint64_t until_ns)
{
	struct chunk_quality *quality = recorder_quality(session->recorder);

	quality->cost_ns += sampler->cost_ns;
	quality->value2 += (int64_t)sampler->rounds;
	quality->cost_from_ns = session->start_ns;
	quality->cost_to_ns = quality->last_ns = until_ns;
	sampler->cost_ns = sampler->rounds = 0;
}

/* Lock held; @ret_groups are the session's then. */
static int hand_over(struct sessions *s, struct state_sampler *sampler, struct watched *w,
		     size_t at)
{
	struct reading *sum = &w->sums.sum;
	struct recorder_group *groups = NULL;
	struct reading_encoding encoding = { .phase = READING_STATES };
	struct session *session = session_find(s, sampler->tenant, sampler->id);
	uint64_t seen = 0;
	int64_t value = 0;
	int rc;

	if (!session)
		return -ENOENT;
	encoding.round = recorder_begin_readings(session->recorder, READING_STATES);
	encoding.stack_base = reading_stack_base(encoding.round, at);
	read_job_find_keys(s, sum);
	rc = recorder_translate_reading(session->recorder, sum);
	if (rc == 0)
		rc = reading_groups_encode(sum, &encoding, true, &groups);
	for (size_t i = 0; i < sum->items.count; i++) {
		seen += (uint64_t)sum->items.data[i].values[0];
		value += sum->items.data[i].values[1];
	}
	if (rc == 0)
		rc = recorder_add_groups(session->recorder, &w->target.p, groups, s->feed.cursor, seen,
					 value);
	if (rc < 0)
		recorder_groups_free(groups);
	return rc;
}

/* Everything summed so far becomes part of the session. */
static int flush(struct sessions *s, struct state_sampler *sampler, uint64_t until_ns, bool last)
{
	struct session *session;
	int rc = 0;
	sessions_scope(s);

	session = session_find(s, sampler->tenant, sampler->id);
	if (!session)
		return -ENOENT;
	count_cost(s, sampler, session, until_ns);
	for (size_t i = 0; rc == 0 && i < sampler->processes.count; i++) {
		struct watched *w = sampler->processes.data[i];

		sampler->had_any |= w->was_read;
		/* It may still be read; the reader may just be starting again. */
		if (!w->was_read && w->reason[0] && (last || !w->lives))
			recorder_skip(session->recorder, w->target.p.tgid, w->reason);
		if (!w->sums.sum.items.count)
			continue;
		rc = hand_over(s, sampler, w, i);
		state_sums_clear(&w->sums);
	}
	if (rc < 0)
		(void)snprintf(session->read_failure, sizeof(session->read_failure),
			       "the samples do not fit in memory: %s", strerror(-rc));
	return rc;
}

static bool is_full(const struct state_sampler *sampler)
{
	for (size_t i = 0; i < sampler->processes.count; i++)
		if (sampler->processes.data[i]->sums.sum.items.count > STATE_SUMS_ITEMS_MAX)
			return true;
	return false;
}

static void run_round(struct sessions *s, struct state_sampler *sampler)
{
	uint64_t cpu_ns = thread_cpu_ns(), cost_before_ns = sampler->cost_ns, now_ns;
	size_t kept = 0;

	if (!update_processes(s, sampler)) {
		sampler->due_ns = UINT64_MAX;
		return;
	}
	for (size_t i = 0; i < sampler->processes.count; i++) {
		struct watched *w = sampler->processes.data[i];

		now_ns = clock_monotonic_ns();
		if (w->lives && w->hangs < HANGS_MAX)
			take_snapshot(s, sampler, w);
		else if (w->held_at_ns)
			settle_held(w, w->held_at_ns + (now_ns - w->held_at_ns) / 2);
	}
	sampler->cost_ns += thread_cpu_ns() - cpu_ns;
	sampler->rounds++;
	now_ns = clock_monotonic_ns();
	sampler->due_ns = now_ns + drawn_ns(state_sampler_pause_ns(sampler->cost_ns - cost_before_ns,
								   sampler->duration_ns,
								   sampler->rate_hz));
	if (now_ns < sampler->flush_at_ns && !is_full(sampler))
		return;
	(void)!flush(s, sampler, now_ns, false);
	sampler->flush_at_ns = now_ns + FLUSH_NS;
	/* Those that have ended and given everything. */
	for (size_t i = 0; i < sampler->processes.count; i++) {
		struct watched *w = sampler->processes.data[i];

		if (w->lives)
			sampler->processes.data[kept++] = w;
		else
			watched_free(w);
	}
	sampler->processes.count = kept;
}

void state_samplers_run(struct sessions *s)
{
	for (struct state_sampler *sampler = s->snapshots->samplers; sampler; sampler = sampler->next)
		if (sampler->due_ns <= clock_monotonic_ns())
			run_round(s, sampler);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void note_method(struct session *session)
{
	const struct chunk_quality *quality = recorder_counters(session->recorder);
	double seconds = (double)(quality->cost_to_ns - quality->cost_from_ns) / 1e9;

	if (!(seconds > 0))
		seconds = 1;
	recorder_note(session->recorder,
		      "sampled from goroutine states (Go's own %s profile is off): %lld snapshots, %.1f/s "
		      "at random moments, %.2f%% of a core",
		      profile_type_info(session->info.type)->word, (long long)quality->value2,
		      (double)quality->value2 / seconds, (double)quality->cost_ns / seconds / 1e7);
	recorder_note(session->recorder,
		      "time is unbiased, +-100/sqrt(sampleCount) %% per stack; waits that go on count; "
		      "contentions are not known");
}

/* An empty chunk says in the file that the phase is over. Lock held. */
static int mark_end(struct sessions *s, struct session *session)
{
	struct reading nothing = { 0 };
	struct reading_encoding encoding = { .phase = READING_END };
	struct recorder_group *groups = NULL;
	int rc;

	encoding.round = recorder_begin_readings(session->recorder, READING_STATES);
	rc = reading_groups_encode(&nothing, &encoding, false, &groups);
	if (rc == 0)
		rc = recorder_add_groups(session->recorder, NULL, groups, s->feed.cursor, 0, 0);
	if (rc == 0)
		recorder_end_readings(session->recorder, READING_END);
	else
		recorder_groups_free(groups);
	return rc;
}

void state_samplers_finish(struct sessions *s, const struct read_job *job)
{
	struct state_sampler **at, *sampler;
	struct session *session;
	uint64_t end_ns = 0;
	int rc = 0;

	sessions_lock(s);
	session = session_find(s, job->tenant, job->id);
	if (session)
		end_ns = session->end_ns;
	sessions_unlock(s);
	at = find_sampler(s, job->tenant, job->id);
	sampler = *at;
	if (sampler) {
		for (size_t i = 0; i < sampler->processes.count; i++)
			settle_held(sampler->processes.data[i], end_ns);
		rc = session ? flush(s, sampler, end_ns, true) : 0;
		*at = sampler->next;
	}
	sessions_lock(s);
	session = session_find(s, job->tenant, job->id);
	if (session && rc == 0) {
		const struct chunk_quality *quality = recorder_counters(session->recorder);

		if (quality->value2 && (!sampler || sampler->had_any || !quality->skipped_count))
			note_method(session);
		else
			(void)snprintf(session->read_failure, sizeof(session->read_failure), "%s",
				       quality->skipped_count ? quality->skipped[0].reason
							      : "it ended before the first snapshot");
		if (!session->read_failure[0] && mark_end(s, session) < 0)
			(void)snprintf(session->read_failure, sizeof(session->read_failure),
				       "no memory to keep the samples");
	}
	sessions_unlock(s);
	if (sampler)
		sampler_free(sampler);
}
