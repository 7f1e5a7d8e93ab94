// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/read_job.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/sessions.h"
#include "agent/session/snapshot/reading_groups.h"
#include "agent/session/snapshot/read_session.h"
#include "agent/session/snapshot/reading_target.h"
#include "agent/session/snapshot/state_sampler.h"

#define GO_DEADLINE_MS	    20000u
#define THREADS_DEADLINE_MS 10000u
#define RESTART_WAIT_NS	    (5 * NS_PER_S)
#define INDEX_WAIT_NS	    (3 * NS_PER_S) /* for modules of programs that have just started */

struct run {
	struct sessions *s;
	const struct read_job *job;
	struct reading_targets_vec targets;
	size_t beyond; /* processes over the bound */
	uint64_t session_started_ns; /* realtime */
	uint32_t round;
	size_t done, failed;
	uint64_t index_until_ns; /* monotonic: names are not waited for longer */
	bool tasks;	  /* the asyncio tasks of Python programs, too */
	bool by_states;	  /* a program does not keep this profile: goroutine states are sampled */
	char reason[200]; /* of the first process that could not be read */
};

/* Also begins the round. false: the session is gone. */
static bool collect_targets(struct run *run)
{
	struct sessions *s = run->s;
	struct session *session;
	sessions_scope(s);

	session = session_find(s, run->job->tenant, run->job->id);
	if (!session)
		return false;
	if (reading_targets_collect(s, session, &run->targets, &run->beyond) < 0)
		(void)snprintf(run->reason, sizeof(run->reason), "%s", strerror(ENOMEM));
	run->session_started_ns = session->info.started_at_ns;
	run->tasks = session->info.tasks;
	run->round = recorder_begin_readings(session->recorder, run->job->phase);
	return true;
}

/* ---- reading one ----------------------------------------------------------------------------- */

static int ask_once(struct run *run, struct reader_request *request, struct reading *reading,
		    struct err *err)
{
	int rc;

	reading_clear(reading);
	rc = reader_client_ask(run->s->reader, request, reading_take, reading, err);
	/* The reader may have died of something else. */
	if (rc == -EPIPE && reader_client_wait(run->s->reader, RESTART_WAIT_NS)) {
		reading_clear(reading);
		rc = reader_client_ask(run->s->reader, request, reading_take, reading, err);
	}
	return rc;
}

static bool is_surely_native(uint32_t flags)
{
	return (flags & (FEED_PROC_JVM | FEED_PROC_PYTHON | FEED_PROC_NODE | FEED_PROC_COMPAT32)) !=
	       0;
}

static void note_threads(struct run *run, uint32_t tgid, const struct err *err)
{
	struct session *session;
	sessions_scope(run->s);

	session = session_find(run->s, run->job->tenant, run->job->id);
	if (session)
		recorder_note(session->recorder, "process %u: threads instead of goroutines: %.110s", tgid,
			      err->text);
}

static int read_process(struct run *run, const struct reading_target *target,
			struct reading *reading, struct err *err)
{
	const bool counters = run->job->type != PROFILE_GOROUTINE;
	struct reader_request request = { .kind = counters ? CONTROL_GO_PROFILE : CONTROL_GOROUTINES,
					  .tgid = target->p.tgid,
					  .what = counters ? read_job_what(run->job->type) : 0,
					  .start_boottime_ns = target->p.start_boottime_ns,
					  .deadline_ms = GO_DEADLINE_MS };
	int rc = -ENOEXEC;

	if (counters || !is_surely_native(target->p.flags))
		rc = ask_once(run, &request, reading, err);
	if (counters || (rc != -ENOEXEC && rc != -EOPNOTSUPP))
		return rc;
	if (rc == -EOPNOTSUPP)
		note_threads(run, target->p.tgid, err);
	*err = (struct err){ 0 };
	request.kind = CONTROL_THREADS;
	request.flags = run->tasks ? READER_TASKS : 0;
	request.deadline_ms = THREADS_DEADLINE_MS;
	return ask_once(run, &request, reading, err);
}

/* ---- into the session ------------------------------------------------------------------------ */

static bool is_file(const struct live_module *live, const struct reading_module *module)
{
	if (!live->known || !live->path)
		return false;
	if (live->file && module->file)
		return live->file == module->file;
	return strcmp(live->path, module->path) == 0 && live->build_id_len == module->build_id_len &&
	       memcmp(live->build_id, module->build_id, module->build_id_len) == 0;
}

static const struct live_module *find_file(const struct sessions *s,
					   const struct reading_module *module)
{
	for (size_t i = 0; i < s->tables.modules.count; i++)
		if (is_file(&s->tables.modules.data[i], module))
			return &s->tables.modules.data[i];
	return NULL;
}

/* The key has what the collector alone knows, as who could write the file. Lock held. */
void read_job_find_keys(const struct sessions *s, struct reading *reading)
{
	for (size_t i = 0; i < reading->modules.count; i++) {
		struct reading_module *module = &reading->modules.data[i];
		const struct live_module *live =
			module->kind == FEED_MODULE_SCRIPT ? NULL : find_file(s, module);

		if (live)
			module->key = live->key;
		else if (!module->key)
			module->key = hash_bytes(module->path, strlen(module->path), 1);
	}
}

/* Translates a reading by the session's dictionaries. */
static int settle(struct run *run, const struct reading_target *target, struct reading *reading)
{
	const struct read_job *job = run->job;
	struct session *session;
	int rc = 0;
	sessions_scope(run->s);

	session = session_find(run->s, job->tenant, job->id);
	if (!session)
		return -ENOENT;
	if (job->phase == READING_START) {
		rc = reading_items_vec_push(&reading->items, (struct reading_item){
								     .bucket = READING_STARTED });
		return rc < 0 ? rc : recorder_keep_start(session->recorder, &target->p, reading);
	}
	read_job_find_keys(run->s, reading);
	if (profile_type_info(job->type)->counter)
		rc = recorder_subtract_start(session->recorder, &target->p,
					     target->p.started_at_ns <= run->session_started_ns,
					     reading);
	return rc < 0 ? rc : recorder_translate_reading(session->recorder, reading);
}

static void note_reading(struct session *session, const struct reading *reading, uint32_t tgid)
{
	const struct read_end *end = &reading->end;

	if (end->flags & READ_END_SAMPLED)
		recorder_note(session->recorder,
			      "process %u: %llu of %llu were read within the time, without bias",
			      tgid, (unsigned long long)end->read, (unsigned long long)end->listed);
	if (reading->profile.rate_assumed)
		recorder_note(session->recorder,
			      "process %u: its sampling rate is not known, Go's default was assumed",
			      tgid);
	if (reading->profile.before_gc)
		recorder_note(session->recorder,
			      "process %u: no garbage collection has finished yet: the values are "
			      "of what was allocated so far",
			      tgid);
	for (uint32_t i = 0; i < reading->note_count; i++) {
		const struct reading_text *text = &reading->texts.data[reading->notes[i] - 1];

		recorder_note(session->recorder, "process %u: %.*s", tgid, (int)text->len,
			      (const char *)reading->text.data + text->first);
	}
	if (end->inconsistent)
		recorder_note(session->recorder, "process %u: %llu ran while they were read: no stack",
			      tgid, (unsigned long long)end->inconsistent);
}

static int hand_over(struct run *run, struct reading_target *target, const struct reading *reading,
		     struct recorder_group *groups)
{
	const unsigned main_value = profile_type_info(run->job->type)->value_index;
	const bool end = run->job->phase == READING_END;
	struct session *session;
	int64_t value = 0;
	int rc;
	sessions_scope(run->s);

	session = session_find(run->s, run->job->tenant, run->job->id);
	if (!session)
		return -ENOENT;
	for (size_t i = 0; end && i < reading->items.count; i++)
		value += reading->items.data[i].values[main_value];
	if (end)
		note_reading(session, reading, target->p.tgid);
	rc = recorder_add_groups(session->recorder, &target->p, groups, run->s->feed.cursor,
				 end ? reading->items.count : 0, value);
	return rc;
}

/* A program, or a daemon, that has just started: its frames have names as soon as the symbolizer
 * has seen its files, and nobody should look at a profile without. */
static void await_names(struct run *run, const struct reading *reading)
{
	size_t at = 0;

	while (at < reading->modules.count) {
		const struct reading_module *module = &reading->modules.data[at];
		bool known = module->kind != FEED_MODULE_ELF || !module->used;
		uint64_t told;

		if (known) {
			at++;
			continue;
		}

		sessions_lock(run->s);
		known = find_file(run->s, module) || run->s->stopping;
		told = run->s->told_count;
		sessions_unlock(run->s);
		if (known)
			at++;
		else if (clock_monotonic_ns() >= run->index_until_ns)
			return;
		else
			sessions_await_told(run->s, told, INDEX_WAIT_NS / 200);
	}
}

static int take(struct run *run, size_t at, struct err *err)
{
	struct reading_target *target = &run->targets.data[at];
	cleanup_reading struct reading reading = { .type = run->job->type };
	struct recorder_group *groups = NULL;
	const struct reading_encoding encoding = {
		.phase = run->job->phase,
		.round = run->round,
		.stack_base = reading_stack_base(run->round, at),
	};
	int rc = read_process(run, target, &reading, err);

	if (rc == 0)
		rc = script_numbers_give(&run->s->snapshots->scripts, run->s->names, &reading);
	if (rc < 0)
		return rc;
	if (run->job->phase == READING_END)
		await_names(run, &reading);
	rc = settle(run, target, &reading);
	if (rc == 0)
		rc = reading_groups_encode(&reading, &encoding, true, &groups);
	if (rc == 0)
		rc = hand_over(run, target, &reading, groups);
	if (rc < 0) {
		recorder_groups_free(groups);
		return err_set(err, -rc, NULL, NULL, "%s",
			       rc == -ENODATA ? "it could not be read at the beginning"
					      : strerror(-rc));
	}
	return 0;
}

static void fail(struct session *session, const char *reason)
{
	(void)snprintf(session->read_failure, sizeof(session->read_failure), "%s", reason);
}

/* Notes what a reader of the numbers must know about them. */
static void note_meaning(struct session *session)
{
	if (session->info.type == PROFILE_MUTEX)
		recorder_note(session->recorder,
			      "stackRole: unlocker - Go's mutex profile holds the stack that unlocked, "
			      "not the ones that waited");
	if (profile_type_info(session->info.type)->way == PROFILE_WAY_WAITS)
		recorder_note(session->recorder,
			      "from the Go runtime's own profile, which does not contain waits that have not ended");
}

static void note_misses(const struct run *run, struct session *session)
{
	if (run->beyond)
		recorder_note(session->recorder, "%zu processes beyond the first %u were not read",
			      run->beyond, READ_PROCESSES_MAX);
}

/* Lock held. */
static void set_source(struct session *session, bool by_states)
{
	session->info.source = by_states				   ? PROFILE_SOURCE_STATES
			       : session->info.type == PROFILE_MUTEX ? PROFILE_SOURCE_UNLOCKERS
								     : PROFILE_SOURCE_USUAL;
	session->record_dirty = true;
}

/* The phase is over: an empty chunk says so in the file. The feed thread does the rest. */
static void finish(struct run *run)
{
	const uint8_t phase = run->by_states ? READING_STATES : run->job->phase;
	const struct reading_encoding encoding = { .phase = phase, .round = run->round };
	struct reading nothing = { 0 };
	struct recorder_group *groups = NULL;
	struct session *session;
	int rc = reading_groups_encode(&nothing, &encoding, false, &groups);
	sessions_scope(run->s);

	session = session_find(run->s, run->job->tenant, run->job->id);
	if (session && (run->done || run->by_states)) {
		note_misses(run, session);
		set_source(session, run->by_states);
		if (phase == READING_END)
			note_meaning(session);
		if (rc == 0)
			rc = recorder_add_groups(session->recorder, NULL, groups,
						 run->s->feed.cursor, 0, 0);
		if (rc == 0) {
			recorder_end_readings(session->recorder, phase);
			return;
		}
		fail(session, "no memory to keep what was read");
	} else if (session) {
		fail(session, run->reason[0] ? run->reason : "no process of it is alive");
	}
	recorder_groups_free(groups);
}

static bool is_stopping(struct sessions *s)
{
	sessions_scope(s);

	return s->stopping;
}

static void skip(struct run *run, uint32_t pid, const struct err *err)
{
	struct session *session;
	sessions_scope(run->s);

	session = session_find(run->s, run->job->tenant, run->job->id);
	if (session)
		recorder_skip(session->recorder, pid, err->text);
}

/* One method for the whole session: stacks of waiters and stacks of unlockers are not added up. */
static bool may_use_states(const struct read_job *job)
{
	return job->phase == READING_START &&
	       profile_type_info(job->type)->way == PROFILE_WAY_WAITS;
}

void read_job_run(struct sessions *s, const struct read_job *job)
{
	struct run run = { .s = s,
			   .job = job,
			   .index_until_ns = clock_monotonic_ns() + INDEX_WAIT_NS };

	if (job->by_states) {
		state_samplers_finish(s, job);
		return;
	}
	if (!collect_targets(&run))
		return;
	for (size_t i = 0; i < run.targets.count && !run.by_states && !is_stopping(s); i++) {
		struct err err = { 0 };
		int rc = take(&run, i, &err);

		if (rc == 0) {
			run.done++;
			continue;
		}
		if (rc == -ENODATA && may_use_states(job)) {
			run.by_states = true;
			continue;
		}
		run.failed++;
		skip(&run, run.targets.data[i].p.tgid, &err);
		if (!run.reason[0])
			(void)snprintf(run.reason, sizeof(run.reason), "%.199s", err.text);
	}
	if (!is_stopping(s))
		finish(&run);
	reading_targets_free(&run.targets);
}
