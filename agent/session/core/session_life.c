// SPDX-License-Identifier: Apache-2.0
/* The life of a running session, on the feed thread:
 *
 *   WAIT_PROCESS -> WAIT_SAMPLER -> SAMPLING -> CLOSING -> (completed | failed), ENDED until that
 * is stored
 *
 * A session begins when the collector says that it samples as wanted (FEED_DEMAND), and ends by
 * CLOCK_MONOTONIC. Events count by their own time, so that late delivery neither adds nor loses
 * any. */
#include "agent/session/core/session_life.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "agent/session/core/demand.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/services.h"
#include "agent/session/core/session_query.h"
#include "agent/session/core/session_way.h"

#define SESSION_MISSING_NS                                                                         \
	(3 * NS_PER_S) /* longest wait for the next of the stacks that are missing */
#define SESSION_PATIENCE_NS (12 * NS_PER_S) /* the last of them may come this long after the end   \
					     */
#define SESSION_SAMPLER_NS     (10 * NS_PER_S)	 /* the collector must confirm within this */
#define SESSION_LOADING_NS     (180 * NS_PER_S) /* the same while it loads programs */
#define SESSION_KNOWN_NS       (10 * NS_PER_S)	 /* a collector has told its processes again */

#define EXEC_NS (3 * NS_PER_S) /* a process that is replaced by exec is back within this */

static void set_phase(struct sessions *s, struct session *session, enum session_phase phase)
{
	session->phase = phase;
	s->peers.demand_dirty = s->peers.targets_dirty = true;
	(void)pthread_cond_broadcast(&s->changed);
}

static uint64_t to_realtime(const struct sessions *s, uint64_t monotonic_ns)
{
	return clock_to_realtime_ns(&s->feed.clock, monotonic_ns);
}

/* The samples of the type by which losses are shared out among sessions. */
static const uint64_t *host_samples_of(const struct sessions *s, const struct session *session)
{
	return &s->host_samples[session_sample_type(session)];
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* The cost of the BPF programs that take the session's type. */
static uint64_t type_cost_ns(const struct session *session, const struct feed_costs *costs)
{
	const struct {
		uint32_t wanted;
		enum prof_program program;
	} programs[] = {
		{ PROF_WANT_CPU, PROF_PROGRAM_CPU },
		{ PROF_WANT_OFFCPU, PROF_PROGRAM_SWITCH },
		{ PROF_WANT_OFFCPU | PROF_WANT_IO, PROF_PROGRAM_RESUME },
		{ PROF_WANT_IO, PROF_PROGRAM_IO },
		{ PROF_WANT_IO, PROF_PROGRAM_DISK },
		{ PROF_WANT_KERNEL_LOCKS, PROF_PROGRAM_LOCK },
		{ PROF_WANT_FAULTS, PROF_PROGRAM_FAULT },
	};
	uint64_t sum = 0;

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (session->wants & programs[i].wanted)
			sum += costs->run_ns[programs[i].program];
	return sum;
}

static void begin_sampling(struct sessions *s, struct session *session, uint64_t time_ns)
{
	struct chunk_quality *quality = recorder_quality(session->recorder);

	session->start_ns = time_ns;
	if (!session->stop)
		session->end_ns = time_ns + session->info.requested_duration_s * NS_PER_S;
	session->info.started_at_ns = to_realtime(s, time_ns);
	session->host_samples_from = *host_samples_of(s, session);
	session->host_lost_from = s->host_lost;
	session->refused_from = s->feed.ring ? ring_lost(s->feed.ring) : 0;
	session->cost_from_ns = s->feed.costs.clock.monotonic_ns;
	session->cost_ns_from = s->feed.costs.collector_cpu_ns + s->feed.costs.bpf_run_ns;
	session->type_cost_ns_from = type_cost_ns(session, &s->feed.programs);
	session->record_dirty = true;
	quality->clock = s->feed.clock;
	session_way(session)->start(s, session);
	session_life_note_restraint(session, &s->feed.demand);
	set_phase(s, session, PHASE_SAMPLING);
}

uint32_t session_sampled_hz(const struct session *session, const struct feed_demand *demand)
{
	bool fast = session_is_fast(session) && demand->fast_hz > demand->rate_hz;

	return fast ? demand->fast_hz : demand->rate_hz;
}

void session_life_note_restraint(struct session *session, const struct feed_demand *demand)
{
	struct control_demand due = { .off_threshold_ns = UINT64_MAX };

	if (session->glances)
		return; /* any rate will do */
	if ((session->wants & PROF_WANT_CPU) &&
	    session_sampled_hz(session, demand) < session->info.rate_hz)
		recorder_note(session->recorder,
			      "sampled at %u per second for a while: the CPU budget held it back",
			      session_sampled_hz(session, demand));
	demand_waits(&due, session->info.rate_hz);
	if ((session->wants & PROF_WANT_OFFCPU) && demand->off_threshold_ns > due.off_threshold_ns)
		recorder_note(session->recorder,
			      "waits shorter than %.0f ms were sampled, not all recorded, for a while: the "
			      "CPU budget held it back",
			      (double)demand->off_threshold_ns / NS_PER_MS);
}

static void wait_for_sampler(struct sessions *s, struct session *session, uint64_t now_ns)
{
	session->asked_ns = now_ns;
	set_phase(s, session, PHASE_WAIT_SAMPLER);
	if (session_way(session)->is_ready(s, session))
		begin_sampling(s, session, now_ns);
}

void session_life_saw_demand(struct sessions *s, uint64_t time_ns)
{
	for (struct session *session = s->running; session; session = session->next) {
		if (session->phase != PHASE_WAIT_SAMPLER)
			continue;
		if (session_way(session)->is_ready(s, session))
			begin_sampling(s, session,
				       time_ns > session->asked_ns ? time_ns : session->asked_ns);
	}
}

static void found_process(struct sessions *s, struct session *session, uint64_t now_ns)
{
	if (session->choice == CHOICE_MADE) {
		wait_for_sampler(s, session, now_ns);
	} else if (session->choice == CHOICE_OPEN) {
		session->choice = CHOICE_ASKED;
		session->choice_asked_ns = session->choice_retry_ns = now_ns;
		(void)pthread_cond_broadcast(&s->changed);
	}
}

/* The reading thread knows what the first process is. */
static void take_choice(struct sessions *s, struct session *session, uint64_t now_ns)
{
	struct type_need need;

	session->reads = session->choice == CHOICE_READ;
	session->choice = CHOICE_MADE;
	services_session_need(s, session, &need);
	session->wants = need.wants;
	if (need.available || need.returns)
		wait_for_sampler(s, session, now_ns);
	else
		session_life_fail(s, session, "%s", need.reason);
}

/* A process that became another program is that program's service: a command that profctl runs,
 * not profctl. */
static void follow_name(struct session *session, const struct live_process *process)
{
	const struct selector *selector = &session->selector;

	if (selector->kind == SELECTOR_PID && selector->tgid == process->facts.tgid &&
	    selector->start_boottime_ns == process->facts.start_boottime_ns)
		memcpy(session->info.service, process->identity.name, sizeof(session->info.service));
}

void session_life_saw_process(struct sessions *s, struct live_process *process, uint64_t now_ns)
{
	demand_match(s, process);
	s->peers.targets_dirty = true;
	for (struct session *session = s->running; session; session = session->next) {
		bool wanted = process->match[session->slot / 64] >> session->slot % 64 & 1;

		session->followed |= session->selector.children &&
				     live_process_is_of_family(process, session->seed);
		follow_name(session, process);
		if (wanted && !process->exited_ns)
			session->pid_gone_ns = 0;
		if (session->phase == PHASE_WAIT_PROCESS && wanted && !process->exited_ns)
			found_process(s, session, now_ns);
		else if (session->phase == PHASE_WAIT_SAMPLER && session->selector.children &&
			 session_way(session)->is_ready(s, session))
			begin_sampling(s, session, now_ns);
	}
}

void session_life_saw_exit(struct sessions *s, const struct live_process *gone)
{
	for (struct session *session = s->running; session; session = session->next)
		if (session->selector.kind == SELECTOR_PID && session_wants_process(session, gone))
			session->exit_ns = gone->exited_ns;
}

/* Whether anybody is left, once a round: a session with children may have seen many exits. A
 * process that replaced itself by exec is another instance with the same start time. */
static void look_for_life(const struct sessions *s, struct session *session)
{
	if (!session->exit_ns)
		return;
	if (!session_matches_any(s, session))
		session->pid_gone_ns = session->exit_ns;
	session->exit_ns = 0;
}

/* ---- ending ---------------------------------------------------------------------------------- */
/* Brings the counters that are the host's up to date. */
static void update_quality(struct sessions *s, struct session *session)
{
	struct chunk_quality *quality = recorder_quality(session->recorder);
	const struct feed_clock *costs = &s->feed.costs;

	if (session->reads)
		return;
	quality->host_samples = session->host_samples_before + *host_samples_of(s, session) -
				session->host_samples_from;
	quality->host_lost = session->host_lost_before + s->host_lost - session->host_lost_from;
	quality->last_ns = clock_monotonic_ns();
	if (quality->last_ns > session->end_ns)
		quality->last_ns = session->end_ns;
	if (session->cost_from_ns && costs->clock.monotonic_ns > session->cost_from_ns) {
		quality->cost_ns =
			costs->collector_cpu_ns + costs->bpf_run_ns - session->cost_ns_from;
		quality->type_cost_ns = type_cost_ns(session, &s->feed.programs) - session->type_cost_ns_from;
		quality->cost_from_ns = session->cost_from_ns;
		quality->cost_to_ns = costs->clock.monotonic_ns;
	} else if (s->feed.costs_before.clock.monotonic_ns) {
		/* Shorter than the interval between two records: the last interval stands for it.
		 */
		quality->cost_ns = costs->collector_cpu_ns + costs->bpf_run_ns -
				   s->feed.costs_before.collector_cpu_ns -
				   s->feed.costs_before.bpf_run_ns;
		quality->type_cost_ns = type_cost_ns(session, &s->feed.programs) -
					type_cost_ns(session, &s->feed.programs_before);
		quality->cost_from_ns = s->feed.costs_before.clock.monotonic_ns;
		quality->cost_to_ns = costs->clock.monotonic_ns;
	}
}

/* By the clock of its begin and its samples, however that was set meanwhile; with
 * the time the host slept. */
static uint64_t to_own_realtime(const struct sessions *s, const struct session *session,
				uint64_t monotonic_ns)
{
	const struct clock_triple *begin = &recorder_counters(session->recorder)->clock,
				  *now = &s->feed.clock;
	uint64_t slept_ns;

	if (!session->start_ns)
		return to_realtime(s, monotonic_ns);
	slept_ns = (now->boottime_ns - now->monotonic_ns) - (begin->boottime_ns - begin->monotonic_ns);
	return clock_to_realtime_ns(begin, monotonic_ns) + slept_ns;
}

static void end_session(struct sessions *s, struct session *session, enum session_status status)
{
	uint64_t now_ns = clock_monotonic_ns(), last_ns = now_ns;

	if (session->end_ns < last_ns)
		last_ns = session->end_ns;
	session->info.status = status;
	session->info.completed_at_ns = to_own_realtime(s, session, last_ns);
	session->info.duration_ns =
		session->start_ns && last_ns > session->start_ns ? last_ns - session->start_ns : 0;
	set_phase(s, session, PHASE_ENDED);
}

void session_life_fail(struct sessions *s, struct session *session, const char *fmt, ...)
{
	va_list args;

	if (session->phase == PHASE_ENDED)
		return;
	va_start(args, fmt);
	(void)vsnprintf(session->info.failure, sizeof(session->info.failure), fmt, args);
	va_end(args);
	end_session(s, session, SESSION_FAILED);
}

static void complete(struct sessions *s, struct session *session)
{
	bool empty = recorder_quality(session->recorder)->samples == 0 &&
		     !read_session_is_done(session);

	if (empty && session->stop)
		session_life_fail(s, session, "stopped before there was any data");
	else if (empty && s->peers.collector_fd < 0)
		session_life_fail(s, session,
				  "the collector process was not running: no data was taken");
	else
		end_session(s, session, SESSION_COMPLETED);
}

/* ---- flushing -------------------------------------------------------------------------------- */
#define FLUSH_CHUNKS_MAX 320

/* Gives sealed groups to the store, all in one commit with the position of the last one. Drops the
 * lock meanwhile: groups stay where they are until recorder_stored(), others may only be added
 * behind them. */
static void flush_session(struct sessions *s, struct session *session)
{
	struct store_chunk chunks[FLUSH_CHUNKS_MAX];
	const struct recorder_group *last = NULL;
	struct err err = { 0 };
	size_t count = 0;
	int rc;

	for (const struct recorder_group *group = recorder_groups(session->recorder);
	     group && count + RECORDER_GROUP_CHUNKS <= FLUSH_CHUNKS_MAX; group = group->next) {
		for (unsigned i = 0; i < group->chunk_count; i++)
			chunks[count++] =
				(struct store_chunk){ group->kinds[i], group->data[i].data,
						      group->data[i].len };
		last = group;
	}
	if (!last)
		return;
	sessions_unlock(s);
	rc = store_session_append(s->store, session->info.id, chunks, count,
				  ring_identity(s->feed.ring), last->position, &err);
	sessions_lock(s);
	sessions_note_store(s, rc, &err);
	if (rc < 0) {
		session_life_fail(s, session, "%s", err.text);
		return;
	}
	session->stored_position = last->position;
	recorder_stored(session->recorder, last);
}

/* Everything that was delivered has been read, and the stacks are there or given up on. */
/* Stacks of thousands of threads that sleep are read one by one: as long as they come they are
 * waited for. */
static void note_progress(struct session *session, uint64_t now_ns)
{
	size_t missing = recorder_missing(session->recorder);

	if (missing < session->missing && now_ns > session->end_ns &&
	    now_ns < session->end_ns + SESSION_PATIENCE_NS)
		session->patience_ns = now_ns - session->end_ns;
	session->missing = missing;
}

/* The collector reports the losses of a full feed when there is room again. */
static bool is_loss_untold(const struct sessions *s, const struct session *session)
{
	return s->feed.ring && ring_lost(s->feed.ring) != session->refused_from &&
	       s->feed.costs.clock.monotonic_ns < session->end_ns;
}

/* Puts what the session took into groups for its file. False: stacks or reports of losses are still
 * to come. */
static bool seal_all(struct sessions *s, struct session *session, uint64_t now_ns, bool final)
{
	struct recorder_wants wants = { 0 };
	int rc;

	if (is_loss_untold(s, session) && !final) {
		/* There is room when what was read is stored. */
		if (recorder_seal(session->recorder, &s->tables, s->feed.cursor, false, NULL) == 0)
			flush_session(s, session);
		s->peers.flush_due = true;
		return false;
	}
	if (!session->counted) {
		session->counted = true;
		update_quality(s, session);
	}
	rc = recorder_seal(session->recorder, &s->tables, s->feed.cursor, false, &wants);
	if (rc == 0 && recorder_missing(session->recorder)) {
		if (!final) {
			note_progress(session, now_ns);
			if (wants.stack_count)
				demand_want(s, WANT_STACK, wants.stacks, wants.stack_count);
			if (wants.module_count)
				demand_want(s, WANT_MODULE, wants.modules, wants.module_count);
			return false;
		}
		rc = recorder_seal(session->recorder, &s->tables, s->feed.cursor, true, NULL);
	}
	if (rc < 0)
		session_life_fail(s, session, "the session's data does not fit in memory: %s",
				  strerror(-rc));
	return true;
}

/* Has what is missing been waited for long enough? A server that has just begun has the feed still
 * to read, and a collector that is not connected yet. */
static bool is_given_up(const struct sessions *s, const struct session *session, uint64_t now_ns)
{
	uint64_t from_ns = session->end_ns;

	if (session->reloaded && now_ns < session->reloaded_ns + SESSION_KNOWN_NS &&
	    s->peers.collector_fd < 0)
		return false;
	if (session->reloaded && session->reloaded_ns > from_ns)
		from_ns = session->reloaded_ns;
	return s->peers.collector_fd < 0 ||
	       now_ns > from_ns + SESSION_MISSING_NS + session->patience_ns;
}

static void try_close(struct sessions *s, struct session *session, uint64_t now_ns)
{
	const bool final = is_given_up(s, session, now_ns);

	if (!session_way(session)->is_whole(s, session, now_ns, final) ||
	    ((!session->reads || session->glances) && !seal_all(s, session, now_ns, final)))
		return;
	flush_session(s, session);
	if (session->phase == PHASE_CLOSING && !recorder_groups(session->recorder))
		complete(s, session);
}

static void wait_for_reading(struct sessions *s, struct session *session, uint64_t now_ns)
{
	if (session->stop) {
		complete(s, session);
		return;
	}
	/* The values of the beginning cannot be read again after a crash: they are stored first. */
	if (read_session_is_ready(session))
		flush_session(s, session);
	if (session->phase == PHASE_WAIT_SAMPLER && session_way(session)->is_ready(s, session))
		begin_sampling(s, session, now_ns);
}

/* Until then the collector must have begun to sample. */
static uint64_t sampler_until_ns(const struct sessions *s, const struct session *session)
{
	if (s->peers.has_status && s->peers.status.loading)
		return session->asked_ns + SESSION_LOADING_NS;
	return (session->asked_ns > s->peers.loaded_ns ? session->asked_ns : s->peers.loaded_ns) +
	       SESSION_SAMPLER_NS;
}

static void fail_without_process(struct sessions *s, struct session *session)
{
	/* It is asked for a moment after the wait has begun. */
	uint64_t waited_s = (session->wait_until_ns - session->asked_ns + NS_PER_S / 2) / NS_PER_S;

	if (waited_s)
		session_life_fail(s, session, "no process of '%.128s' appeared within the %llu s of waitSeconds",
				  session->info.service, (unsigned long long)waited_s);
	else
		session_life_fail(s, session, "the last process of '%.128s' ended before the session could begin",
				  session->info.service);
}

/* The end of the wait for a first process. A server that has just begun does not know the processes
 * yet. */
static uint64_t process_until_ns(const struct session *session)
{
	const uint64_t known_ns = session->reloaded_ns + SESSION_KNOWN_NS;

	return session->reloaded && known_ns > session->wait_until_ns ? known_ns
								      : session->wait_until_ns;
}

static void check_time(struct sessions *s, struct session *session, uint64_t now_ns)
{
	const bool reads = session->reads;

	if (session->read_failure[0]) {
		session_life_fail(s, session, "%s", session->read_failure);
		return;
	}
	switch (session->phase) {
	case PHASE_WAIT_PROCESS:
		if (session->stop)
			complete(s, session);
		else if (session->choice == CHOICE_READ || session->choice == CHOICE_SAMPLE)
			take_choice(s, session, now_ns);
		else if (now_ns >= process_until_ns(session) && session->choice != CHOICE_ASKED)
			fail_without_process(s, session);
		break;
	case PHASE_WAIT_SAMPLER:
		if (reads)
			wait_for_reading(s, session, now_ns);
		else if (session->stop)
			complete(s, session);
		else if ((s->feed.demand.types & session->wants) == session->wants &&
			 session_is_followed(session) &&
			 now_ns > session->asked_ns + SESSION_SAMPLER_NS / 4) {
			/* It samples, but at less than was asked for: the budget holds it back. */
			recorder_note(session->recorder,
				      "sampled at %u instead of %u per second: the CPU budget "
				      "holds it back",
				      session_sampled_hz(session, &s->feed.demand), session->info.rate_hz);
			begin_sampling(s, session, now_ns);
		} else if (now_ns > sampler_until_ns(s, session)) {
			session_life_fail(s, session, "the collector did not begin to sample: %s",
					  s->peers.status.failure[0] ? s->peers.status.failure
								     : "no answer");
		}
		break;
	case PHASE_SAMPLING:
		if (session->pid_gone_ns && now_ns > session->pid_gone_ns + EXEC_NS &&
		    session->pid_gone_ns < session->end_ns) {
			recorder_note(session->recorder,
				      "the process exited before the end of the session");
			session->end_ns = session->pid_gone_ns > session->start_ns
						  ? session->pid_gone_ns
						  : session->start_ns;
		}
		glance_follow(s, session, now_ns);
		if (now_ns >= session->end_ns && glance_begin(s, session, now_ns))
			break;
		if (now_ns >= session->end_ns && !session->swept) {
			session->swept = true;
			session->swept_ns = now_ns;
			session_way(session)->stop(s, session);
			s->peers.flush_due = true;
		}
		if (now_ns >= session->end_ns + session_way(session)->grace_ns)
			set_phase(s, session, PHASE_CLOSING);
		break;
	default:
		break;
	}
}

static void honour_stop(struct session *session, uint64_t now_ns)
{
	if (!session->stop || session->phase != PHASE_SAMPLING || session->end_ns <= now_ns ||
	    session->glances) /* over in a moment */
		return;
	session->end_ns = now_ns;
	session->info.stopped_early = true;
}

/* ---- records --------------------------------------------------------------------------------- */
void session_resume_of(const struct sessions *s, const struct session *session,
		       struct session_resume *ret)
{
	*ret = (struct session_resume){
		.asked_ns = session->asked_ns,
		.start_ns = session->start_ns,
		.end_ns = session->end_ns,
		.wait_until_ns = session->wait_until_ns,
		.seed = session->seed,
		.feed_identity = s->feed.ring ? ring_identity(s->feed.ring) : 0,
		.begin_position = session->begin_position,
		.reads = session->reads ? 1 : 2,
		.boot_offset_ns = s->feed.clock.realtime_ns - s->feed.clock.monotonic_ns,
	};
	(void)snprintf(ret->idempotency_key, sizeof(ret->idempotency_key), "%s",
		       session->idempotency_key);
	ret->request_hash = session->request_hash;
}

/* Writes one session's record; drops the lock meanwhile. */
static int save_record(struct sessions *s, struct session *session)
{
	struct session_info info = { 0 };
	struct session_resume resume;
	struct err err = { 0 };
	int rc = session_describe(s, session, &info);

	if (rc < 0)
		return rc;
	session_resume_of(s, session, &resume);
	sessions_unlock(s);
	/* A shared store may be slow: the finisher asks it. */
	if (session->phase == PHASE_ENDED && !store_is_shared(s->store))
		info.raw_data_bytes = store_session_bytes(s->store, info.id);
	rc = session_record_put(s->store, &info, &resume, &err);
	sessions_lock(s);
	/* That a last record got through says nothing about the next session's data. */
	if (rc < 0 || session->phase != PHASE_ENDED)
		sessions_note_store(s, rc, &err);
	session_info_deinit(&info);
	return rc;
}

/* Writes the last record of an ended session. Who deleted it while it was being written would see
 * it come back. Drops the lock meanwhile. */
static void save_ended(struct sessions *s, struct session *session, uint64_t now_ns)
{
	int rc = save_record(s, session);

	if (rc < 0) {
		session->save_failed = true;
		s->save_again_ns = now_ns + NS_PER_S;
		(void)pthread_cond_broadcast(&s->changed);
		return;
	}
	session->saved = true;
	if (session->discard) {
		sessions_unlock(s);
		(void)!store_delete(s->store, SESSION_RECORD_KIND, session->info.tenant,
				    session->info.id, NULL);
		(void)!store_session_remove(s->store, session->info.id, NULL);
		sessions_lock(s);
	} else if (session->info.status == SESSION_COMPLETED) {
		finisher_add(s, session->info.tenant, session->info.id);
	}
}

/* Records of ended sessions that could not be written are tried again once a second. */
void session_life_save(struct sessions *s, uint64_t now_ns)
{
	bool again = now_ns >= s->save_again_ns;
	struct session *next;

	for (struct session *session = s->running; session; session = next) {
		if (session->phase == PHASE_ENDED && !session->saved &&
		    (again || !session->save_failed)) {
			save_ended(s, session, now_ns);
		} else if (session->phase != PHASE_ENDED && session->record_dirty) {
			session->record_dirty = false;
			if (save_record(s, session) < 0)
				session_life_fail(s, session, "%s", s->store_reason);
		}
		/* Read now: while the record was written others may have put sessions before, never
		 * behind. */
		next = session->next;
		if (session->phase == PHASE_ENDED && session->saved) {
			session_delist(s, session);
			session_free(session);
			(void)pthread_cond_broadcast(&s->changed);
		}
	}
}

/* ---- the round ------------------------------------------------------------------------------- */
void session_life_flush(struct sessions *s)
{
	struct recorder_wants wants = { 0 };

	for (struct session *session = s->running; session; session = session->next) {
		/* Also what a question has sealed (session_profile.c) and nothing came after: the
		 * ring is held for it. */
		if (session->phase == PHASE_SAMPLING && recorder_groups(session->recorder) &&
		    (session->reads || !recorder_pending(session->recorder)))
			flush_session(s, session);
		if (session->phase != PHASE_SAMPLING || !recorder_pending(session->recorder))
			continue;
		update_quality(s, session);
		if (recorder_seal(session->recorder, &s->tables, s->feed.cursor, false, &wants) < 0)
			session_life_fail(s, session, "the session's data does not fit in memory");
		flush_session(s, session);
	}
	if (wants.stack_count)
		demand_want(s, WANT_STACK, wants.stacks, wants.stack_count);
	if (wants.module_count)
		demand_want(s, WANT_MODULE, wants.modules, wants.module_count);
}

void session_life_check(struct sessions *s, uint64_t now_ns)
{
	for (struct session *session = s->running; session; session = session->next) {
		look_for_life(s, session);
		honour_stop(session, now_ns);
		check_time(s, session, now_ns);
		if (session->phase == PHASE_CLOSING)
			try_close(s, session, now_ns);
	}
}

uint64_t session_life_release_position(const struct sessions *s)
{
	uint64_t position = s->feed.cursor;

	for (const struct session *session = s->running; session; session = session->next) {
		if (session->phase < PHASE_WAIT_PROCESS || session->phase > PHASE_CLOSING)
			continue;
		/* Nothing taken since the last flush: nothing to be read again. */
		if (!recorder_pending(session->recorder) && !recorder_groups(session->recorder))
			continue;
		if (session->stored_position < position)
			position = session->stored_position;
	}
	return position;
}

void session_life_end_all(struct sessions *s, uint64_t now_ns)
{
	for (struct session *session = s->running; session; session = session->next) {
		if (session->phase == PHASE_PREPARING || session->phase == PHASE_ENDED)
			continue;
		if (session->end_ns > now_ns) {
			session->end_ns = now_ns;
			session->info.stopped_early = session->stop = true;
		}
		update_quality(s, session);
		if (recorder_seal(session->recorder, &s->tables, s->feed.cursor, true, NULL) < 0)
			session_life_fail(s, session, "the session's data does not fit in memory");
		flush_session(s, session);
		if (session->phase != PHASE_ENDED)
			complete(s, session);
	}
	s->save_again_ns = 0;
}
