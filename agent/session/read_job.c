// SPDX-License-Identifier: Apache-2.0
#include "agent/session/read_job.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/sessions_internal.h"

#define GO_DEADLINE_MS	    20000u
#define THREADS_DEADLINE_MS 10000u
#define RESTART_WAIT_NS	    (5 * NS_PER_S)
#define INDEX_WAIT_NS	    (3 * NS_PER_S) /* for modules of programs that have just started */
#define ITEMS_PER_CHUNK	    50000u
#define FRAMES_PER_CHUNK    1000000u
#define ROUND_SHIFT	    40
#define PROCESS_SHIFT	    25 /* above the number of stacks of one reading */

/* A process of the session, copied: it may leave the tables meanwhile. */
struct target {
	struct chunk_process p;
	char *text[6]; /* owned: the texts of p */
};

VEC_DEFINE(targets, struct target);
VEC_DEFINE(chunk_stacks, struct chunk_stack);
VEC_DEFINE(chunk_modules, struct chunk_module);

struct run {
	struct sessions *s;
	const struct read_job *job;
	struct targets_vec targets;
	size_t beyond; /* processes over the bound */
	uint64_t session_started_ns; /* realtime */
	uint32_t round;
	size_t done, failed;
	uint64_t index_until_ns; /* monotonic: names are not waited for longer */
	char reason[200]; /* of the first process that could not be read */
};

uint32_t read_job_what(enum profile_type type)
{
	return type == PROFILE_BLOCK ? READER_BLOCK
	       : type == PROFILE_MUTEX ? READER_MUTEX
				       : READER_MEMORY;
}

/* ---- whom to read ---------------------------------------------------------------------------- */

static void free_targets(struct targets_vec *targets)
{
	for (size_t i = 0; i < targets->count; i++)
		for (size_t j = 0; j < ARRAY_SIZE(targets->data[i].text); j++)
			free(targets->data[i].text[j]);
	targets_vec_deinit(targets);
}

static int add_target(struct run *run, const struct live_process *process)
{
	const struct service_facts *facts = &process->facts;
	const struct service_identity *identity = &process->identity;
	const char *from[] = { facts->comm,    facts->exe,     facts->cmdline,
			       identity->name, identity->unit, identity->container_id };
	struct target target = { .p = { .tgid = facts->tgid,
					.parent_tgid = process->parent_tgid,
					.uid = process->uid,
					.exec_generation = process->exec_generation,
					.flags = facts->flags,
					.start_boottime_ns = facts->start_boottime_ns,
					.started_at_ns = process_started_at_ns(run->s, process) } };
	struct chunk_text *to[] = { &target.p.comm,    &target.p.exe,  &target.p.cmdline,
				    &target.p.service, &target.p.unit, &target.p.container };
	int rc = targets_vec_reserve(&run->targets, run->targets.count + 1);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		target.text[i] = strdup(from[i]);
		*to[i] = chunk_text_of(target.text[i] ? target.text[i] : "");
	}
	run->targets.data[run->targets.count++] = target;
	return 0;
}

/* Also begins the round. false: the session is gone. */
static bool collect_targets(struct run *run)
{
	struct sessions *s = run->s;
	struct session *session;
	int rc = 0;
	sessions_scope(s);

	session = session_find(s, run->job->tenant, run->job->id);
	if (!session)
		return false;
	for (size_t i = 0; rc == 0 && i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || (process->facts.flags & FEED_PROC_KTHREAD) ||
		    !session_wants_process(session, process))
			continue;
		if (run->targets.count >= READ_PROCESSES_MAX)
			run->beyond++;
		else
			rc = add_target(run, process);
	}
	run->session_started_ns = session->info.started_at_ns;
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
	/* The reader may have died of something else; of this one it dies twice. */
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

static int read_process(struct run *run, const struct target *target, struct reading *reading,
			struct err *err)
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
	request.kind = CONTROL_THREADS;
	request.deadline_ms = THREADS_DEADLINE_MS;
	return ask_once(run, &request, reading, err);
}

/* ---- encoding -------------------------------------------------------------------------------- */

static struct buf *add_chunk(struct recorder_group *group, enum store_chunk_kind kind)
{
	group->kinds[group->chunk_count] = kind;
	return &group->data[group->chunk_count++];
}

static int encode_modules(struct recorder_group *group, const struct reading *reading)
{
	struct chunk_modules_vec modules = { 0 };
	struct buf *out;
	int rc = 0;

	if (!reading->modules.count)
		return 0;
	for (size_t i = 0; rc == 0 && i < reading->modules.count; i++) {
		const struct reading_module *m = &reading->modules.data[i];

		rc = chunk_modules_vec_push(&modules, (struct chunk_module){
							      .id = m->id,
							      .key = m->key,
							      .kind = m->kind,
							      .build_id_len = m->build_id_len,
							      .build_id = m->build_id,
							      .path = chunk_text_of(m->path) });
	}
	if (rc == 0) {
		out = add_chunk(group, STORE_CHUNK_MODULES);
		chunk_encode_modules(out, modules.data, modules.count);
		rc = out->error;
	}
	chunk_modules_vec_deinit(&modules);
	return rc;
}

static int add_single(struct chunk_stacks_vec *stacks, struct u64map *seen,
		      const struct reading_encoding *encoding, const uint64_t *frame)
{
	struct chunk_stack stack = { .id = reading_frame_stack(encoding, *frame),
				     .frame_count = 1,
				     .frames = frame };
	int rc;

	if (!*frame || u64map_get(seen, stack.id, &(uint64_t){ 0 }))
		return 0;
	rc = u64map_put(seen, stack.id, 1);
	return rc < 0 ? rc : chunk_stacks_vec_push(stacks, stack);
}

/* Every stack of @reading, and the frames that stand alone as stacks of one. */
static int list_stacks(const struct reading *reading, const struct reading_encoding *encoding,
		       struct chunk_stacks_vec *ret)
{
	struct u64map seen = { 0 };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < reading->stacks.count; i++) {
		const struct reading_stack *stack = &reading->stacks.data[i];

		rc = chunk_stacks_vec_push(
			ret, (struct chunk_stack){ .id = encoding->stack_base + i + 1,
						   .outcome = stack->outcome,
						   .frame_count = stack->count,
						   .frames = reading->frames.data + stack->first });
	}
	for (size_t i = 0; rc == 0 && i < reading->items.count; i++) {
		rc = add_single(ret, &seen, encoding, &reading->items.data[i].created_frame);
		if (rc == 0)
			rc = add_single(ret, &seen, encoding, &reading->items.data[i].start_frame);
	}
	u64map_deinit(&seen);
	return rc;
}

/* How many stacks from @from fit into one chunk. */
static size_t stacks_of_chunk(const struct chunk_stacks_vec *stacks, size_t from)
{
	size_t frames = 0, at = from;

	while (at < stacks->count && frames < FRAMES_PER_CHUNK)
		frames += stacks->data[at++].frame_count + 4u;
	return at - from;
}

struct encode {
	const struct reading *reading;
	struct reading_encoding encoding;
	bool has_process; /* room for its entry comes first */
	struct chunk_stacks_vec stacks;
	size_t stacks_done, items_done;
};

static int encode_group(struct encode *e, struct recorder_group *group)
{
	size_t stacks = stacks_of_chunk(&e->stacks, e->stacks_done);
	size_t items = e->reading->items.count - e->items_done;
	struct buf *out;
	int rc = 0;

	if (stacks) {
		out = add_chunk(group, STORE_CHUNK_STACKS);
		chunk_encode_stacks(out, e->stacks.data + e->stacks_done, stacks);
		rc = out->error;
	}
	if (items > ITEMS_PER_CHUNK)
		items = ITEMS_PER_CHUNK;
	if (rc == 0) {
		out = add_chunk(group, STORE_CHUNK_READINGS);
		rc = reading_chunk_encode(out, e->reading, &e->encoding, e->items_done,
					  e->items_done + items);
		if (rc == 0 && out->len > STORE_CHUNK_MAX)
			rc = -E2BIG;
	}
	e->stacks_done += stacks;
	e->items_done += items;
	return rc;
}

static int encode(struct encode *e, struct recorder_group **ret)
{
	struct recorder_group *first = NULL, **end = &first;
	int rc = e->encoding.phase == READING_END
			 ? list_stacks(e->reading, &e->encoding, &e->stacks)
			 : 0;

	do {
		struct recorder_group *group = rc == 0 ? calloc(1, sizeof(*group)) : NULL;

		if (!group) {
			rc = rc < 0 ? rc : -ENOMEM;
			break;
		}
		*end = group;
		end = &group->next;
		if (group == first && e->has_process) {
			(void)add_chunk(group, STORE_CHUNK_PROCESSES);
			rc = e->encoding.phase == READING_END ? encode_modules(group, e->reading)
							      : 0;
		}
		if (rc == 0)
			rc = encode_group(e, group);
	} while (rc == 0 && (e->stacks_done < e->stacks.count ||
			     e->items_done < e->reading->items.count));
	chunk_stacks_vec_deinit(&e->stacks);
	if (rc < 0)
		recorder_groups_free(first);
	else
		*ret = first;
	return rc;
}

/* ---- into the session ------------------------------------------------------------------------ */

/* A file without a build-id is known to the collector by its path alone. Lock held. */
static void find_keys(const struct sessions *s, struct reading *reading)
{
	for (size_t i = 0; i < reading->modules.count; i++) {
		struct reading_module *module = &reading->modules.data[i];

		for (size_t j = 0; !module->key && j < s->tables.modules.count; j++) {
			const struct live_module *live = &s->tables.modules.data[j];

			if (live->known && live->path && strcmp(live->path, module->path) == 0)
				module->key = live->key;
		}
		if (!module->key)
			module->key = hash_bytes(module->path, strlen(module->path), 1);
	}
}

/* What the session's dictionaries make of it. */
static int settle(struct run *run, const struct target *target, struct reading *reading)
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
	find_keys(run->s, reading);
	if (job->type != PROFILE_GOROUTINE && job->type != PROFILE_MEMORY)
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
	if (end->inconsistent)
		recorder_note(session->recorder, "process %u: %llu ran while they were read: no stack",
			      tgid, (unsigned long long)end->inconsistent);
}

static int hand_over(struct run *run, struct target *target, const struct reading *reading,
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

/* Lock held. */
static bool is_indexed(const struct sessions *s, uint64_t key)
{
	for (size_t i = 0; i < s->tables.modules.count; i++)
		if (s->tables.modules.data[i].known && s->tables.modules.data[i].key == key)
			return true;
	return false;
}

/* A program, or a daemon, that has just started: its frames have names as soon as the symbolizer has
 * seen its files, and nobody should look at a profile without. */
static void await_names(struct run *run, const struct reading *reading)
{
	size_t at = 0;

	while (at < reading->modules.count) {
		const struct reading_module *module = &reading->modules.data[at];
		bool known = module->kind != FEED_MODULE_ELF || !module->used;

		if (known) {
			at++;
			continue;
		}

		sessions_lock(run->s);
		known = is_indexed(run->s, module->key) || run->s->stopping;
		sessions_unlock(run->s);
		if (known)
			at++;
		else if (clock_monotonic_ns() >= run->index_until_ns)
			return;
		else
			clock_sleep_ns(INDEX_WAIT_NS / 200);
	}
}

static int take(struct run *run, size_t at, struct err *err)
{
	struct target *target = &run->targets.data[at];
	cleanup_reading struct reading reading = { .type = run->job->type };
	struct recorder_group *groups = NULL;
	struct encode e = { .reading = &reading,
			    .has_process = true,
			    .encoding = { .phase = run->job->phase,
					  .round = run->round,
					  .stack_base = (uint64_t)run->round << ROUND_SHIFT |
							(uint64_t)at << PROCESS_SHIFT } };
	int rc = read_process(run, target, &reading, err);

	if (rc < 0)
		return rc;
	rc = settle(run, target, &reading);
	if (rc == 0 && run->job->phase == READING_END)
		await_names(run, &reading);
	if (rc == 0)
		rc = encode(&e, &groups);
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

/* What a reader of the numbers must know about them. */
static void note_meaning(struct session *session)
{
	if (session->info.type == PROFILE_MUTEX)
		recorder_note(session->recorder,
			      "stackRole: unlocker - Go's mutex profile holds the stack that unlocked, "
			      "not the ones that waited");
	if (session->info.type == PROFILE_MUTEX || session->info.type == PROFILE_BLOCK)
		recorder_note(session->recorder,
			      "from the Go runtime's own profile: waits that have not ended are not in it");
}

static void note_misses(const struct run *run, struct session *session)
{
	if (run->beyond)
		recorder_note(session->recorder, "%zu processes beyond the first %u were not read",
			      run->beyond, READ_PROCESSES_MAX);
	if (run->failed)
		recorder_note(session->recorder, "%zu processes could not be read: %.100s",
			      run->failed, run->reason);
}

/* The phase is over: an empty chunk says so in the file. The feed thread does the rest. */
static void finish(struct run *run)
{
	struct reading nothing = { 0 };
	struct encode e = { .reading = &nothing,
			    .encoding = { .phase = run->job->phase, .round = run->round } };
	struct recorder_group *groups = NULL;
	struct session *session;
	int rc = encode(&e, &groups);
	sessions_scope(run->s);

	session = session_find(run->s, run->job->tenant, run->job->id);
	if (session && run->done) {
		note_misses(run, session);
		if (run->job->phase == READING_END)
			note_meaning(session);
		if (rc == 0)
			rc = recorder_add_groups(session->recorder, NULL, groups,
						 run->s->feed.cursor, 0, 0);
		if (rc == 0) {
			recorder_end_readings(session->recorder, run->job->phase);
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

void read_job_run(struct sessions *s, const struct read_job *job)
{
	struct run run = { .s = s,
			   .job = job,
			   .index_until_ns = clock_monotonic_ns() + INDEX_WAIT_NS };

	if (!collect_targets(&run))
		return;
	for (size_t i = 0; i < run.targets.count && !is_stopping(s); i++) {
		struct err err = { 0 };

		if (take(&run, i, &err) == 0) {
			run.done++;
			continue;
		}
		run.failed++;
		if (!run.reason[0])
			(void)snprintf(run.reason, sizeof(run.reason), "%.199s", err.text);
	}
	if (!is_stopping(s))
		finish(&run);
	free_targets(&run.targets);
}
