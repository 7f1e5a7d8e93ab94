// SPDX-License-Identifier: Apache-2.0
#include "agent/session/recorder.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "agent/base/hash.h"
#include "bpf/profiler.h"

#define PROCESSES_MAX	      65536u
#define ATTRS_MAX	      1000000u /* more threads share one entry per process */
#define OUTCOME_UNKNOWN	      0xff
#define OUTCOME_STACK_MISSING 39     /* bpf/outcome.def */
#define STACK_WAITS	      0xffff /* its frames are not known yet */

struct pair {
	struct chunk_pair stacks;
	uint64_t samples;
	uint8_t outcome; /* of the user stack, OUTCOME_UNKNOWN until its record is known */
};

VEC_DEFINE(pairs, struct pair);
VEC_DEFINE(chunk_pairs, struct chunk_pair);
VEC_DEFINE(chunk_attrs, struct chunk_attr);
VEC_DEFINE(chunk_events, struct chunk_event);
VEC_DEFINE(chunk_stacks, struct chunk_stack);
VEC_DEFINE(chunk_modules, struct chunk_module);
VEC_DEFINE(recorder_processes, struct recorder_process);
VEC_DEFINE(stack_ids, uint64_t);

struct recorder {
	uint32_t pairs_max;
	/* Dictionaries: key -> the session's own id. */
	struct u64map module_ids;  /* module key */
	struct u64map process_ids; /* hash of the life's identity */
	struct u64map pair_ids;	   /* hash of both stack ids */
	struct u64map attr_ids;	   /* hash of the attr */
	struct u64map
		stack_seen; /* stack id -> 0: in the file or a group, 1: waits for its frames */
	struct u64map live_process_ids; /* the collector's proc -> process id, this epoch only */
	struct pairs_vec pairs;
	struct chunk_attrs_vec attrs;
	struct recorder_processes_vec processes;
	uint32_t module_count;
	uint32_t pairs_sealed, attrs_sealed; /* how many of them are in the file or a group */
	/* New since the last seal. */
	struct chunk_events_vec pending;
	struct stack_ids_vec missing;
	struct buf process_entries;
	uint32_t process_entry_count;
	bool quality_changed;
	uint32_t next_seq;
	struct chunk_quality quality;
	struct recorder_group *groups, **groups_end;
};

struct recorder *recorder_create(uint32_t pairs_max)
{
	struct recorder *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->pairs_max = pairs_max;
	r->groups_end = &r->groups;
	/* The overflow bucket is there from the beginning. */
	if (pairs_vec_push(&r->pairs, (struct pair){ .outcome = 0 }) < 0) {
		recorder_destroy(r);
		return NULL;
	}
	return r;
}

static void free_group(struct recorder_group *group)
{
	for (unsigned i = 0; i < group->chunk_count; i++)
		buf_deinit(&group->data[i]);
	free(group);
}

void recorder_destroy(struct recorder *r)
{
	struct u64map *maps[6];

	if (!r)
		return;
	maps[0] = &r->module_ids, maps[1] = &r->process_ids, maps[2] = &r->pair_ids;
	maps[3] = &r->attr_ids, maps[4] = &r->stack_seen, maps[5] = &r->live_process_ids;
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		u64map_deinit(maps[i]);
	pairs_vec_deinit(&r->pairs);
	chunk_attrs_vec_deinit(&r->attrs);
	recorder_processes_vec_deinit(&r->processes);
	chunk_events_vec_deinit(&r->pending);
	stack_ids_vec_deinit(&r->missing);
	buf_deinit(&r->process_entries);
	while (r->groups) {
		struct recorder_group *next = r->groups->next;

		free_group(r->groups);
		r->groups = next;
	}
	free(r);
}

void recorder_forget_epoch(struct recorder *r)
{
	u64map_clear(&r->live_process_ids);
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

static uint64_t process_hash(uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_generation)
{
	return hash_combine(hash_combine(tgid, start_boottime_ns), exec_generation);
}

static uint64_t pair_hash(const struct chunk_pair *pair)
{
	return hash_combine(hash_mix64(pair->user), pair->kernel);
}

static uint64_t attr_hash(const struct chunk_attr *attr)
{
	uint64_t head = (uint64_t)attr->process << 32 | attr->tid;

	return hash_bytes(attr->comm, sizeof(attr->comm),
			  hash_combine(head, (uint64_t)attr->type << 8 | attr->state));
}

/* A process new to the session; the first of its facts are kept. */
static int add_process(struct recorder *r, const struct chunk_process *p, uint64_t hash)
{
	struct recorder_process totals = { .tgid = p->tgid, .started_at_ns = p->started_at_ns };
	size_t len = p->exe.len < sizeof(totals.exe) ? p->exe.len : sizeof(totals.exe) - 1;
	int rc;

	memcpy(totals.exe, p->exe.text, len);
	rc = u64map_put(&r->process_ids, hash, r->processes.count);
	if (rc < 0)
		return rc;
	rc = recorder_processes_vec_push(&r->processes, totals);
	if (rc < 0)
		(void)u64map_remove(&r->process_ids, hash);
	return rc;
}

static int find_process(struct recorder *r, const struct live_process *process,
			uint64_t started_at_ns, uint32_t *ret)
{
	const struct service_facts *facts = &process->facts;
	uint64_t hash =
		process_hash(facts->tgid, facts->start_boottime_ns, process->exec_generation);
	uint64_t id;
	int rc;

	if (u64map_get(&r->live_process_ids, process->proc, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	if (!u64map_get(&r->process_ids, hash, &id)) {
		struct chunk_process p = {
			.id = (uint32_t)r->processes.count,
			.tgid = facts->tgid,
			.parent_tgid = process->parent_tgid,
			.uid = process->uid,
			.exec_generation = process->exec_generation,
			.flags = facts->flags,
			.start_boottime_ns = facts->start_boottime_ns,
			.started_at_ns = started_at_ns,
			.comm = chunk_text_of(facts->comm),
			.exe = chunk_text_of(facts->exe),
			.cmdline = chunk_text_of(facts->cmdline),
			.service = chunk_text_of(process->identity.name),
			.unit = chunk_text_of(process->identity.unit),
			.container = chunk_text_of(process->identity.container_id),
		};

		/* Beyond the bound processes share the last entry: counted, never lost. */
		if (r->processes.count >= PROCESSES_MAX) {
			*ret = PROCESSES_MAX - 1;
			return 0;
		}
		id = p.id;
		rc = add_process(r, &p, hash);
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

static int need_stack(struct recorder *r, uint64_t stack)
{
	int rc;

	if (!stack || u64map_get(&r->stack_seen, stack, &(uint64_t){ 0 }))
		return 0;
	rc = u64map_put(&r->stack_seen, stack, STACK_WAITS);
	return rc < 0 ? rc : stack_ids_vec_push(&r->missing, stack);
}

static int find_pair(struct recorder *r, const struct feed_sample *sample, uint32_t *ret)
{
	struct pair pair = { .stacks = { sample->user_stack, sample->kernel_stack },
			     .outcome = sample->user_stack ? OUTCOME_UNKNOWN : 0 };
	uint64_t hash = pair_hash(&pair.stacks), id;
	int rc;

	if (u64map_get(&r->pair_ids, hash, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	if (r->pairs.count > r->pairs_max) {
		*ret = CHUNK_PAIR_OVERFLOW;
		return 0;
	}
	rc = need_stack(r, sample->user_stack);
	if (rc == 0)
		rc = need_stack(r, sample->kernel_stack);
	if (rc == 0)
		rc = u64map_put(&r->pair_ids, hash, r->pairs.count);
	if (rc == 0)
		rc = pairs_vec_push(&r->pairs, pair);
	if (rc == 0)
		*ret = (uint32_t)r->pairs.count - 1;
	return rc;
}

static int find_attr(struct recorder *r, const struct feed_sample *sample, uint32_t process,
		     uint32_t *ret)
{
	struct chunk_attr attr = {
		.process = process, .tid = sample->tid, .type = sample->type, .state = sample->state
	};
	uint64_t hash, id;
	int rc;

	memcpy(attr.comm, sample->comm, strnlen(sample->comm, sizeof(attr.comm)));
	if (r->attrs.count >= ATTRS_MAX) {
		attr.tid = 0;
		memset(attr.comm, 0, sizeof(attr.comm));
	}
	hash = attr_hash(&attr);
	if (u64map_get(&r->attr_ids, hash, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	rc = u64map_put(&r->attr_ids, hash, r->attrs.count);
	if (rc == 0)
		rc = chunk_attrs_vec_push(&r->attrs, attr);
	if (rc == 0)
		*ret = (uint32_t)r->attrs.count - 1;
	return rc;
}

/* ---- adding ---------------------------------------------------------------------------------- */

static void count(struct recorder *r, const struct chunk_event *event)
{
	struct recorder_process *process = &r->processes.data[r->attrs.data[event->attr].process];

	r->pairs.data[event->pair].samples++;
	process->samples++;
	process->value += event->value;
	r->quality.samples++;
	r->quality.value += event->value;
	r->quality.value2 += (int64_t)event->value2;
}

int recorder_add(struct recorder *r, const struct feed_sample *sample,
		 const struct live_process *process, uint64_t started_at_ns, int64_t value,
		 uint64_t value2)
{
	struct chunk_event event = { .time_ns = sample->time_ns, .value = value, .value2 = value2 };
	uint32_t process_id = 0;
	int rc = find_process(r, process, started_at_ns, &process_id);

	if (rc == 0)
		rc = find_pair(r, sample, &event.pair);
	if (rc == 0)
		rc = find_attr(r, sample, process_id, &event.attr);
	if (rc == 0)
		rc = chunk_events_vec_push(&r->pending, event);
	if (rc == 0)
		count(r, &event);
	return rc;
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

/* ---- sealing --------------------------------------------------------------------------------- */
struct seal {
	struct recorder *r;
	struct live_tables *tables;
	struct recorder_wants *wants;
	bool final;
	struct chunk_modules_vec modules;
	struct chunk_stacks_vec stacks;
};

static void want(uint64_t *ids, unsigned *wanted, uint64_t id)
{
	for (unsigned i = 0; i < *wanted; i++)
		if (ids[i] == id)
			return;
	if (*wanted < 512)
		ids[(*wanted)++] = id;
}

/* The session's id of a module; its dictionary entry goes out with this seal when it is new. A
 * module that is still unknown at the end is kept under a key of its own, so that its frames stay
 * `[unknown] module+offset`. */
static int translate_module(struct seal *seal, uint32_t module, uint32_t *ret)
{
	const struct live_module *live = live_tables_module(seal->tables, module);
	struct chunk_module entry = { .kind = FEED_MODULE_UNREADABLE,
				      .build_id = (const uint8_t *)"" };
	uint64_t id;
	int rc;

	if (!live && !seal->final) {
		if (seal->wants)
			want(seal->wants->modules, &seal->wants->module_count, module);
		return -ENOENT;
	}
	entry.key = live ? live->key : hash_mix64(module);
	entry.path = chunk_text_of(live ? live->path : "");
	if (u64map_get(&seal->r->module_ids, entry.key, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	entry.id = seal->r->module_count;
	if (live) {
		entry.kind = live->kind;
		entry.build_id = live->build_id;
		entry.build_id_len = live->build_id_len;
	}
	rc = chunk_modules_vec_push(&seal->modules, entry);
	if (rc == 0)
		rc = u64map_put(&seal->r->module_ids, entry.key, entry.id);
	if (rc < 0)
		return rc;
	*ret = seal->r->module_count++;
	return 0;
}

/* A copy of the stack's frames with the session's module ids. -ENOENT: something is missing. */
static int translate_stack(struct seal *seal, uint64_t id, struct chunk_stack *ret)
{
	const struct live_stack *live = live_tables_stack(seal->tables, id);
	cleanup_free uint64_t *frames = NULL;

	if (!live) {
		if (seal->wants)
			want(seal->wants->stacks, &seal->wants->stack_count, id);
		return -ENOENT;
	}
	frames = malloc((live->frame_count + 1u) * sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	for (uint16_t i = 0; i < live->frame_count; i++) {
		uint64_t frame = live->frames[i];
		uint32_t module;

		if (prof_frame_kind(frame) == PROF_FRAME_MODULE) {
			int rc = translate_module(seal, prof_frame_module_id(frame), &module);

			if (rc < 0)
				return rc;
			frame = prof_frame_module(module, prof_frame_offset(frame),
						  frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED));
		}
		frames[i] = frame;
	}
	*ret = (struct chunk_stack){ .id = id,
				     .outcome = live->outcome,
				     .frame_count = live->frame_count,
				     .frames = take_ptr(frames) };
	return 0;
}

static int seal_stacks(struct seal *seal)
{
	struct recorder *r = seal->r;
	size_t kept = 0;
	int rc = 0;

	for (size_t i = 0; i < r->missing.count; i++) {
		uint64_t id = r->missing.data[i];
		struct chunk_stack stack;

		if (rc == 0)
			rc = translate_stack(seal, id, &stack);
		if (rc == 0) {
			rc = chunk_stacks_vec_push(&seal->stacks, stack);
			if (rc < 0)
				free((void *)(uintptr_t)stack.frames);
			else
				rc = u64map_put(&r->stack_seen, id, stack.outcome);
			continue;
		}
		r->missing.data[kept++] = id;
		if (rc == -ENOENT)
			rc = 0;
	}
	r->missing.count = kept;
	return rc;
}

static struct buf *add_chunk(struct recorder_group *group, enum store_chunk_kind kind)
{
	group->kinds[group->chunk_count] = kind;
	return &group->data[group->chunk_count++];
}

static void encode_samples(struct recorder *r, struct recorder_group *group,
			   const struct chunk_pairs_vec *pairs)
{
	struct chunk_samples samples = {
		.seq = group->seq,
		.first_pair = r->pairs_sealed,
		.pair_count = (uint32_t)pairs->count,
		.pairs = pairs->data,
		.first_attr = r->attrs_sealed,
		.attr_count = (uint32_t)r->attrs.count - r->attrs_sealed,
		.attrs = r->attrs.data + r->attrs_sealed,
		.event_count = (uint32_t)r->pending.count,
		.events = r->pending.data,
	};

	chunk_encode_samples(add_chunk(group, STORE_CHUNK_SAMPLES), &samples);
}

static int encode_group(struct seal *seal, struct recorder_group *group,
			const struct chunk_pairs_vec *pairs)
{
	struct recorder *r = seal->r;
	struct buf *out;

	if (seal->modules.count)
		chunk_encode_modules(add_chunk(group, STORE_CHUNK_MODULES), seal->modules.data,
				     seal->modules.count);
	if (r->process_entry_count) {
		out = add_chunk(group, STORE_CHUNK_PROCESSES);
		buf_add_varint(out, r->process_entry_count);
		buf_add(out, r->process_entries.data, r->process_entries.len);
	}
	if (seal->stacks.count)
		chunk_encode_stacks(add_chunk(group, STORE_CHUNK_STACKS), seal->stacks.data,
				    seal->stacks.count);
	encode_samples(r, group, pairs);
	chunk_encode_quality(add_chunk(group, STORE_CHUNK_QUALITY), &r->quality);
	for (unsigned i = 0; i < group->chunk_count; i++)
		if (group->data[i].error)
			return group->data[i].error;
	return 0;
}

/* Now that the group is whole: nothing of it is new any more. */
static void hand_over(struct recorder *r, struct recorder_group *group)
{
	*r->groups_end = group;
	r->groups_end = &group->next;
	r->next_seq++;
	r->pairs_sealed = (uint32_t)r->pairs.count;
	r->attrs_sealed = (uint32_t)r->attrs.count;
	r->pending.count = 0;
	r->process_entries.len = 0;
	r->process_entry_count = 0;
	r->quality_changed = false;
}

static int seal_group(struct seal *seal, uint64_t position)
{
	struct recorder *r = seal->r;
	struct chunk_pairs_vec pairs = { 0 };
	struct recorder_group *group = calloc(1, sizeof(*group));
	int rc = group ? 0 : -ENOMEM;

	for (size_t i = r->pairs_sealed; rc == 0 && i < r->pairs.count; i++)
		rc = chunk_pairs_vec_push(&pairs, r->pairs.data[i].stacks);
	if (rc == 0) {
		group->seq = r->next_seq;
		group->position = position;
		rc = encode_group(seal, group, &pairs);
	}
	chunk_pairs_vec_deinit(&pairs);
	if (rc == 0)
		hand_over(r, group);
	else if (group)
		free_group(group);
	return rc;
}

static void learn_outcomes(struct recorder *r, bool final)
{
	for (size_t i = 0; i < r->pairs.count; i++) {
		struct pair *pair = &r->pairs.data[i];
		uint64_t outcome;

		if (pair->outcome != OUTCOME_UNKNOWN)
			continue;
		if (u64map_get(&r->stack_seen, pair->stacks.user, &outcome) &&
		    outcome != STACK_WAITS)
			pair->outcome = outcome < 32 ? (uint8_t)outcome : 0;
		else if (final)
			pair->outcome = OUTCOME_STACK_MISSING;
	}
}

int recorder_seal(struct recorder *r, struct live_tables *tables, uint64_t position, bool final,
		  struct recorder_wants *wants)
{
	struct seal seal = { .r = r, .tables = tables, .wants = wants, .final = final };
	int rc;

	if (!r->pending.count && !r->missing.count && !r->quality_changed &&
	    !r->process_entry_count)
		return 0;
	rc = seal_stacks(&seal);
	learn_outcomes(r, final);
	if (rc == 0 && (r->pending.count || r->quality_changed || r->process_entry_count ||
			seal.stacks.count || seal.modules.count))
		rc = seal_group(&seal, position);
	for (size_t i = 0; i < seal.stacks.count; i++)
		free((void *)(uintptr_t)seal.stacks.data[i].frames);
	chunk_stacks_vec_deinit(&seal.stacks);
	chunk_modules_vec_deinit(&seal.modules);
	return rc;
}

struct recorder_group *recorder_groups(struct recorder *r)
{
	return r->groups;
}

void recorder_stored(struct recorder *r, const struct recorder_group *last)
{
	bool done = false;

	while (r->groups && !done) {
		struct recorder_group *group = r->groups;

		done = group == last;
		r->groups = group->next;
		free_group(group);
	}
	if (!r->groups)
		r->groups_end = &r->groups;
}

size_t recorder_missing(const struct recorder *r)
{
	return r->missing.count;
}

/* ---- totals ---------------------------------------------------------------------------------- */
void recorder_outcomes(const struct recorder *r, uint64_t ret[PROFILE_OUTCOMES_MAX])
{
	memset(ret, 0, PROFILE_OUTCOMES_MAX * sizeof(*ret));
	for (size_t i = 0; i < r->pairs.count; i++)
		if (r->pairs.data[i].outcome < PROFILE_OUTCOMES_MAX)
			ret[r->pairs.data[i].outcome] += r->pairs.data[i].samples;
}

size_t recorder_process_count(const struct recorder *r)
{
	return r->processes.count;
}

const struct recorder_process *recorder_process(const struct recorder *r, size_t at)
{
	return &r->processes.data[at];
}

/* ---- after a restart ------------------------------------------------------------------------- */

static int reload_module(void *ctx, const struct chunk_module *module)
{
	struct recorder *r = ctx;

	if (u64map_get(&r->module_ids, module->key, &(uint64_t){ 0 }))
		return 0;
	if (module->id >= r->module_count)
		r->module_count = module->id + 1;
	return u64map_put(&r->module_ids, module->key, module->id);
}

static int reload_process(void *ctx, const struct chunk_process *p)
{
	struct recorder *r = ctx;

	if (p->id != r->processes.count)
		return 0;
	return add_process(r, p, process_hash(p->tgid, p->start_boottime_ns, p->exec_generation));
}

static int reload_stack(void *ctx, const struct chunk_stack *stack)
{
	struct recorder *r = ctx;

	/* Its pairs were reloaded as needing it when their chunk came first. */
	return u64map_put(&r->stack_seen, stack->id, stack->outcome);
}

static int reload_samples(void *ctx, uint32_t seq)
{
	struct recorder *r = ctx;

	if (seq < r->next_seq)
		return 1;
	r->next_seq = seq + 1;
	return 0;
}

static int reload_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct recorder *r = ctx;
	struct pair entry = { .stacks = *pair, .outcome = pair->user ? OUTCOME_UNKNOWN : 0 };
	int rc;

	if (id != r->pairs.count)
		return 0; /* pair 0 is there from the beginning; a gap is damage and stays one */
	rc = u64map_put(&r->pair_ids, pair_hash(pair), id);
	return rc < 0 ? rc : pairs_vec_push(&r->pairs, entry);
}

static int reload_attr(void *ctx, uint32_t id, const struct chunk_attr *attr)
{
	struct recorder *r = ctx;
	int rc;

	if (id != r->attrs.count || attr->process >= r->processes.count)
		return 0;
	rc = u64map_put(&r->attr_ids, attr_hash(attr), id);
	return rc < 0 ? rc : chunk_attrs_vec_push(&r->attrs, *attr);
}

static int reload_event(void *ctx, const struct chunk_event *event)
{
	struct recorder *r = ctx;

	if (event->pair < r->pairs.count && event->attr < r->attrs.count)
		count(r, event);
	return 0;
}

static int reload_quality(void *ctx, const struct chunk_quality *quality)
{
	struct recorder *r = ctx;

	r->quality = *quality;
	return 0;
}

static int reload_chunk(void *ctx, const struct store_chunk *chunk)
{
	struct recorder *r = ctx;
	const struct chunk_sink sink = {
		.ctx = r,
		.module = reload_module,
		.process = reload_process,
		.stack = reload_stack,
		.samples = reload_samples,
		.pair = reload_pair,
		.attr = reload_attr,
		.event = reload_event,
		.quality = reload_quality,
	};
	int rc = chunk_decode(chunk->kind, chunk->data, chunk->len, &sink);

	return rc == -EPROTO ? 0 : rc;
}

/* Stacks that samples in the file refer to, but whose frames were not known yet when it was
 * written. */
static int reload_missing(struct recorder *r)
{
	for (size_t i = 1; i < r->pairs.count; i++) {
		int rc = need_stack(r, r->pairs.data[i].stacks.user);

		if (rc == 0)
			rc = need_stack(r, r->pairs.data[i].stacks.kernel);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int recorder_reload(struct recorder *r, struct store *store, const char *id, struct err *err)
{
	unsigned damaged = 0;
	int rc = store_session_read(store, id, reload_chunk, r, &damaged, err);

	if (rc < 0)
		return rc;
	rc = reload_missing(r);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "no memory to resume %s", id);
	r->pairs_sealed = (uint32_t)r->pairs.count;
	r->attrs_sealed = (uint32_t)r->attrs.count;
	if (damaged)
		recorder_note(r, "%u damaged pieces of this session's data were left out", damaged);
	return 0;
}
