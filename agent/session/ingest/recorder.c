// SPDX-License-Identifier: Apache-2.0
#include "agent/session/ingest/recorder.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/ingest/recorder_internal.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"

#define PROCESSES_MAX 65536u
#define EXE_MAX	      255u
#define ATTRS_MAX     1000000u /* more threads share one entry per process */
#define SUMS_MAX      262144u  /* places and threads of calls that add up */

static struct recorder *create(uint32_t pairs_max, bool sums)
{
	struct recorder *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->pairs_max = pairs_max;
	r->sums = sums;
	r->groups_end = &r->groups;
	/* The overflow bucket is there from the beginning. */
	if (recorder_add_pair(r, &(struct chunk_pair){ 0 }) < 0) {
		recorder_destroy(r);
		return NULL;
	}
	return r;
}

struct recorder *recorder_create(uint32_t pairs_max)
{
	return create(pairs_max, false);
}

struct recorder *recorder_create_for_sums(uint32_t pairs_max)
{
	return create(pairs_max, true);
}

void recorder_free_group(struct recorder_group *group)
{
	for (unsigned i = 0; i < group->chunk_count; i++)
		buf_deinit(&group->data[i]);
	free(group);
}

void recorder_destroy(struct recorder *r)
{
	struct u64map *maps[4];

	if (!r)
		return;
	maps[0] = &r->module_ids, maps[1] = &r->process_ids;
	maps[2] = &r->live_process_ids, maps[3] = &r->sum_at;
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		u64map_deinit(maps[i]);
	recent_map_deinit(&r->pair_ids);
	recent_map_deinit(&r->stack_seen);
	recent_map_deinit(&r->attr_ids);
	pair_outcomes_vec_deinit(&r->outcomes);
	waiting_pairs_vec_deinit(&r->waiting);
	chunk_pairs_vec_deinit(&r->new_pairs);
	chunk_attrs_vec_deinit(&r->new_attrs);
	recorder_processes_vec_deinit(&r->processes);
	text_pool_deinit(&r->exes);
	chunk_events_vec_deinit(&r->pending);
	stack_ids_vec_deinit(&r->missing);
	buf_deinit(&r->process_entries);
	u64map_deinit(&r->start_at);
	start_values_vec_deinit(&r->start_values);
	while (r->groups) {
		struct recorder_group *next = r->groups->next;

		recorder_free_group(r->groups);
		r->groups = next;
	}
	free(r);
}

void recorder_forget_epoch(struct recorder *r)
{
	u64map_clear(&r->live_process_ids);
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

uint64_t recorder_process_hash(uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_generation)
{
	/* To what a settled dictionary keeps of it (settled.h). */
	return hash_combine(hash_combine(tgid, start_boottime_ns / NS_PER_MS), exec_generation);
}

uint64_t recorder_pair_hash(const struct chunk_pair *pair)
{
	return hash_combine(pair->user, pair->kernel);
}

uint64_t recorder_attr_hash(const struct chunk_attr *attr)
{
	uint64_t head = (uint64_t)attr->process << 32 | attr->tid;

	uint64_t kind = (uint64_t)attr->holder << 32 | (uint64_t)attr->detail << 16 |
			(uint64_t)attr->type << 8 | attr->state;

	return hash_bytes(attr->comm, sizeof(attr->comm),
			  hash_combine(hash_combine(head, kind), attr->object));
}

static int add_totals(struct recorder *r, const struct chunk_process *p, uint64_t hash)
{
	struct recorder_process totals = { .tgid = p->tgid, .started_at_ns = p->started_at_ns,
					   .hash = hash };
	/* Its first sample may be from inside of the exec, before the executable is mapped. */
	const struct chunk_text *name = p->exe.len ? &p->exe : &p->comm;

	totals.exe = text_pool_keep(&r->exes, name->text, name->len < EXE_MAX ? name->len : EXE_MAX);
	return totals.exe ? recorder_processes_vec_push(&r->processes, totals) : -ENOMEM;
}

int recorder_add_process(struct recorder *r, const struct chunk_process *p, uint64_t hash)
{
	int rc = u64map_put(&r->process_ids, hash, r->process_count);

	if (rc < 0)
		return rc;
	if (!r->sums)
		rc = add_totals(r, p, hash);
	if (rc < 0)
		(void)u64map_remove(&r->process_ids, hash);
	else
		r->process_count++;
	return rc;
}

static int find_process(struct recorder *r, const struct live_process *process,
			uint32_t *ret)
{
	const struct service_facts *facts = &process->facts;
	uint64_t hash = recorder_process_hash(facts->tgid, facts->start_boottime_ns,
					      process->exec_generation);
	uint64_t id;
	int rc;

	if (u64map_get(&r->live_process_ids, process->proc, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	if (!u64map_get(&r->process_ids, hash, &id)) {
		struct chunk_process p = {
			.id = r->process_count,
			.tgid = facts->tgid,
			.parent_tgid = process->parent_tgid,
			.uid = process->uid,
			.exec_generation = process->exec_generation,
			.flags = facts->flags,
			.start_boottime_ns = facts->start_boottime_ns,
			.started_at_ns = process->started_at_ns,
			.comm = chunk_text_of(facts->comm),
			.exe = chunk_text_of(facts->exe),
			.cmdline = chunk_text_of(facts->cmdline),
			.service = chunk_text_of(process->identity.name),
			.unit = chunk_text_of(process->identity.unit),
			.container = chunk_text_of(service_container_lines(facts)),
		};

		/* Beyond the bound processes share the last entry: counted, never lost. */
		if (r->process_count >= PROCESSES_MAX) {
			*ret = PROCESSES_MAX - 1;
			return 0;
		}
		id = p.id;
		rc = recorder_add_process(r, &p, hash);
		if (rc < 0)
			return rc;
		chunk_encode_process(&r->process_entries, &p);
		r->process_entry_count++;
		if (r->process_entries.error)
			return r->process_entries.error;
	}
	rc = u64map_put(&r->live_process_ids, process->proc, id);
	*ret = (uint32_t)id;
	return rc;
}

int recorder_need_stack(struct recorder *r, uint64_t stack)
{
	int rc;

	if (!stack || recent_map_get(&r->stack_seen, stack, &(uint64_t){ 0 }))
		return 0;
	rc = recent_map_put(&r->stack_seen, stack, STACK_WAITS);
	return rc < 0 ? rc : stack_ids_vec_push(&r->missing, stack);
}

static bool find_outcome(struct recorder *r, uint64_t user_stack, bool final, uint32_t *ret)
{
	uint64_t outcome;

	if (recent_map_get(&r->stack_seen, user_stack, &outcome) && outcome != STACK_WAITS)
		*ret = outcome < OUTCOME_STACKS_MAX ? (uint32_t)outcome : OUTCOME_complete;
	else if (final)
		*ret = OUTCOME_stack_missing;
	else
		return false;
	return true;
}

void recorder_learn_outcomes(struct recorder *r, bool final)
{
	size_t kept = 0;

	for (size_t i = 0; i < r->waiting.count; i++) {
		const struct waiting_pair *waiting = &r->waiting.data[i];
		uint32_t outcome;

		if (find_outcome(r, waiting->user_stack, final, &outcome)) {
			r->outcome_samples[outcome] += waiting->samples;
			r->outcomes.data[waiting->pair] = outcome;
			continue;
		}
		r->outcomes.data[waiting->pair] = PAIR_WAITS + (uint32_t)kept;
		r->waiting.data[kept++] = *waiting;
	}
	r->waiting.count = kept;
	if (!kept)
		waiting_pairs_vec_deinit(&r->waiting);
}

/* Whether the stack of @pair is whole: known, or waited for. */
static int add_outcome(struct recorder *r, const struct chunk_pair *pair)
{
	const struct waiting_pair waiting = { .user_stack = pair->user, .pair = r->pair_count };
	uint32_t outcome = OUTCOME_complete;
	bool waits = pair->user && !find_outcome(r, pair->user, false, &outcome);
	int rc = pair_outcomes_vec_reserve(&r->outcomes, r->outcomes.count + 1);

	if (rc == 0 && waits)
		rc = waiting_pairs_vec_push(&r->waiting, waiting);
	if (rc == 0)
		r->outcomes.data[r->outcomes.count++] =
			waits ? PAIR_WAITS + (uint32_t)r->waiting.count - 1 : outcome;
	return rc;
}

int recorder_add_pair(struct recorder *r, const struct chunk_pair *pair)
{
	int rc = chunk_pairs_vec_reserve(&r->new_pairs, r->new_pairs.count + 1);

	if (rc == 0 && !r->sums)
		rc = add_outcome(r, pair);
	if (rc < 0)
		return rc;
	r->new_pairs.data[r->new_pairs.count++] = *pair;
	r->pair_count++;
	return 0;
}

static int find_pair(struct recorder *r, const struct feed_sample *sample, uint32_t *ret)
{
	const struct chunk_pair pair = { sample->user_stack, sample->kernel_stack };
	uint64_t hash = recorder_pair_hash(&pair), id = r->pair_count;
	int rc;

	if (recent_map_get(&r->pair_ids, hash, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	if (id > r->pairs_max) {
		*ret = CHUNK_PAIR_OVERFLOW;
		return 0;
	}
	rc = recorder_need_stack(r, sample->user_stack);
	if (rc == 0)
		rc = recorder_need_stack(r, sample->kernel_stack);
	if (rc == 0)
		rc = recent_map_put(&r->pair_ids, hash, id);
	if (rc < 0)
		return rc;
	rc = recorder_add_pair(r, &pair);
	if (rc < 0)
		recent_map_remove(&r->pair_ids, hash);
	else
		*ret = (uint32_t)id;
	return rc;
}

static int find_attr(struct recorder *r, const struct feed_sample *sample, uint32_t process,
		     struct chunk_attr *attr, uint32_t *ret)
{
	uint64_t hash, id = r->attr_count;
	int rc;

	*attr = (struct chunk_attr){
		.process = process,	  .tid = sample->tid,	    .type = sample->type,
		.state = sample->state,	  .detail = sample->detail, .holder = sample->holder,
		.object = sample->object,
	};
	memcpy(attr->comm, sample->comm, strnlen(sample->comm, sizeof(attr->comm)));
	if (r->attr_count >= ATTRS_MAX) {
		attr->tid = attr->holder = 0;
		attr->object = 0;
		memset(attr->comm, 0, sizeof(attr->comm));
	}
	hash = recorder_attr_hash(attr);
	if (!recent_map_get(&r->attr_ids, hash, &id)) {
		rc = chunk_attrs_vec_reserve(&r->new_attrs, r->new_attrs.count + 1);
		if (rc == 0)
			rc = recent_map_put(&r->attr_ids, hash, id);
		if (rc < 0)
			return rc;
		r->new_attrs.data[r->new_attrs.count++] = *attr;
		r->attr_count++;
	}
	*ret = (uint32_t)id;
	return 0;
}

/* ---- adding ---------------------------------------------------------------------------------- */

static bool is_sum(const struct chunk_attr *attr)
{
	return attr->type == PROF_SAMPLE_IO && attr->state == CHUNK_IO_SUM;
}

static void count_outcome(struct recorder *r, uint32_t pair, uint64_t samples)
{
	uint32_t outcome = r->outcomes.data[pair];

	if (outcome >= PAIR_WAITS)
		r->waiting.data[outcome - PAIR_WAITS].samples += samples;
	else if (outcome < PROFILE_OUTCOMES_MAX)
		r->outcome_samples[outcome] += samples;
}

void recorder_count(struct recorder *r, const struct chunk_event *event,
		    const struct chunk_attr *attr)
{
	struct recorder_process *process = &r->processes.data[attr->process];
	uint64_t samples = is_sum(attr) ? event->value2 / 1024 : 1;

	if (prof_sample_is_reading(attr->type) || attr->type == PROF_SAMPLE_WAKER ||
	    chunk_attr_is_seen(attr))
		return; /* said of samples, or of threads, and no sample itself */
	count_outcome(r, event->pair, samples);
	process->samples += samples;
	r->quality.samples += samples;
	if (attr->type == PROF_SAMPLE_IO)
		return; /* bytes; the value is time */
	process->value += event->value;
	r->quality.value += event->value;
	if (attr->type == PROF_SAMPLE_CPU) {
		r->quality.on_cpu_samples++;
		r->quality.on_cpu_ns += (uint64_t)event->value;
	}
	r->quality.value2 += (int64_t)event->value2;
}

/* Sets @event's pair and attr. */
static int intern(struct recorder *r, const struct feed_sample *sample,
		  const struct live_process *process, struct chunk_event *event,
		  struct chunk_attr *ret_attr)
{
	uint32_t process_id = 0;
	int rc = find_process(r, process, &process_id);

	if (rc == 0)
		rc = find_pair(r, sample, &event->pair);
	return rc < 0 ? rc : find_attr(r, sample, process_id, ret_attr, &event->attr);
}

int recorder_intern(struct recorder *r, const struct feed_sample *sample,
		    const struct live_process *process, uint32_t *ret_pair, uint32_t *ret_attr)
{
	struct chunk_event event;
	struct chunk_attr attr;
	int rc = intern(r, sample, process, &event, &attr);

	if (rc < 0)
		return rc;
	*ret_pair = event.pair;
	*ret_attr = event.attr;
	return 0;
}

static uint64_t sum_key(const struct chunk_event *event)
{
	return (uint64_t)event->pair << 32 | event->attr;
}

static int add_event(struct recorder *r, const struct chunk_event *event,
		     const struct chunk_attr *attr)
{
	int rc = chunk_events_vec_push(&r->pending, *event);

	if (rc < 0)
		return rc;
	recorder_count(r, event, attr);
	if (!is_sum(attr))
		return 0;
	if (r->sum_at.count >= SUMS_MAX)
		u64map_clear(&r->sum_at); /* they are found anew */
	return u64map_put(&r->sum_at, sum_key(event), r->sealed_events + r->pending.count - 1);
}

int recorder_add(struct recorder *r, const struct feed_sample *sample,
		 const struct live_process *process, int64_t value, uint64_t value2)
{
	struct chunk_event event = { .time_ns = sample->time_ns, .value = value, .value2 = value2 };
	struct chunk_attr attr;
	int rc = intern(r, sample, process, &event, &attr);

	return rc < 0 ? rc : add_event(r, &event, &attr);
}

int recorder_add_up(struct recorder *r, const struct feed_sample *sample,
		    const struct live_process *process, bool may_begin)
{
	struct chunk_event event = { .time_ns = sample->time_ns,
				     .value = (int64_t)sample->value,
				     .value2 = sample->value2 };
	struct chunk_attr attr;
	int rc = intern(r, sample, process, &event, &attr);
	struct chunk_event *sum;
	uint64_t number;

	if (rc < 0 || !u64map_get(&r->sum_at, sum_key(&event), &number))
		return rc < 0 ? rc : RECORDER_NONE;
	sum = number < r->sealed_events ? NULL : &r->pending.data[number - r->sealed_events];
	if (!sum || (may_begin && event.time_ns / NS_PER_S > sum->time_ns / NS_PER_S)) {
		rc = add_event(r, &event, &attr);
		return rc < 0 ? rc : RECORDER_BEGAN;
	}
	sum->value += event.value;
	sum->value2 += event.value2;
	recorder_count(r, &event, &attr);
	return RECORDER_ADDED;
}

size_t recorder_pending(const struct recorder *r)
{
	return r->pending.count;
}

const struct chunk_quality *recorder_counters(const struct recorder *r)
{
	return &r->quality;
}

struct chunk_quality *recorder_quality(struct recorder *r)
{
	r->quality_changed = true;
	return &r->quality;
}

void recorder_note(struct recorder *r, const char *fmt, ...)
{
	struct chunk_quality *quality = recorder_quality(r);
	char note[sizeof(quality->notes[0])];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(note, sizeof(note), fmt, args);
	va_end(args);
	for (uint32_t i = 0; i < quality->note_count; i++)
		if (strcmp(quality->notes[i], note) == 0)
			return;
	if (quality->note_count < ARRAY_SIZE(quality->notes))
		memcpy(quality->notes[quality->note_count++], note, sizeof(note));
}

void recorder_unnote(struct recorder *r, const char *note)
{
	struct chunk_quality *quality = recorder_quality(r);

	for (uint32_t i = 0; i < quality->note_count; i++)
		if (strcmp(quality->notes[i], note) == 0) {
			memmove(quality->notes[i], quality->notes[i + 1],
				(--quality->note_count - i) * sizeof(quality->notes[0]));
			return;
		}
}

void recorder_skip(struct recorder *r, uint32_t pid, const char *reason)
{
	struct chunk_quality *quality = recorder_quality(r);
	struct profile_skipped *skipped = &quality->skipped[quality->skipped_count];

	for (uint32_t i = 0; i < quality->skipped_count; i++)
		if (quality->skipped[i].pid == pid)
			return;
	if (quality->skipped_count >= ARRAY_SIZE(quality->skipped)) {
		recorder_note(r, "more processes than are listed were left out");
		return;
	}
	skipped->pid = pid;
	(void)snprintf(skipped->reason, sizeof(skipped->reason), "%s", reason);
	quality->skipped_count++;
}

/* ---- totals ---------------------------------------------------------------------------------- */
void recorder_outcomes(const struct recorder *r, uint64_t ret[PROFILE_OUTCOMES_MAX])
{
	memcpy(ret, r->outcome_samples, sizeof(r->outcome_samples));
}

size_t recorder_process_count(const struct recorder *r)
{
	return r->processes.count;
}

const struct recorder_process *recorder_process(const struct recorder *r, size_t at)
{
	return &r->processes.data[at];
}
