// SPDX-License-Identifier: Apache-2.0
#include "agent/session/recording.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/lock_site.h"
#include "agent/profile/quality.h"
#include "agent/profile/stack_resolver.h"
#include "agent/session/lock_names.h"
#include "agent/session/reading_profile.h"
#include "agent/session/session_chunks.h"
#include "bpf/profiler.h"

#define MODULES_MAX   (1u << 18)
#define PROCESSES_MAX (1u << 16)
#define PAIRS_MAX     (1u << 21)
#define ATTRS_MAX     (1u << 21)
#define DRAWS_MAX     4096u
#define NO_NODE	      UINT32_MAX

struct module {
	uint64_t key;
	uint8_t kind, build_id_len;
	uint8_t build_id[FEED_BUILD_ID_MAX];
	char *path; /* owned, NULL = not known */
};

struct process {
	uint32_t tgid;
	uint64_t started_at_ns;
	char *comm, *exe, *service; /* owned, NULL = not known */
};

struct stack {
	size_t first; /* in frames */
	uint16_t count;
	uint8_t outcome;
};

VEC_DEFINE(modules, struct module);
VEC_DEFINE(processes, struct process);
VEC_DEFINE(stacks, struct stack);
VEC_DEFINE(frames, uint64_t);
VEC_DEFINE(pairs, struct chunk_pair);
VEC_DEFINE(attrs, struct chunk_attr);
VEC_DEFINE(events, struct chunk_event);
VEC_DEFINE(ids, uint32_t);

struct recording {
	struct modules_vec modules;
	struct processes_vec processes;
	struct u64map stack_at; /* stack id -> index of stacks */
	struct stacks_vec stacks;
	struct frames_vec frames;
	struct pairs_vec pairs;
	struct attrs_vec attrs;
	struct events_vec events;
	struct reading_bytes_vec readings;
	struct chunk_quality quality;
	uint64_t dropped; /* events beyond RECORDING_EVENTS_MAX */
	unsigned damaged;
	bool windowed;	      /* events are sums of minutes: realtime, value2 counts */
	struct u64map needed; /* windowed: stack ids of the pairs that occur */
	struct u64map pairs_used;
	size_t used_until; /* of events, in pairs_used */
	/* of the chunk being added */
	uint32_t seq_end;
	struct names_client *names;
};

struct recording *recording_create(void)
{
	return calloc(1, sizeof(struct recording));
}

void recording_destroy(struct recording *recording)
{
	if (!recording)
		return;
	for (size_t i = 0; i < recording->modules.count; i++)
		free(recording->modules.data[i].path);
	for (size_t i = 0; i < recording->processes.count; i++) {
		free(recording->processes.data[i].comm);
		free(recording->processes.data[i].exe);
		free(recording->processes.data[i].service);
	}
	modules_vec_deinit(&recording->modules);
	processes_vec_deinit(&recording->processes);
	u64map_deinit(&recording->stack_at);
	stacks_vec_deinit(&recording->stacks);
	frames_vec_deinit(&recording->frames);
	pairs_vec_deinit(&recording->pairs);
	attrs_vec_deinit(&recording->attrs);
	events_vec_deinit(&recording->events);
	reading_forget(&recording->readings);
	u64map_deinit(&recording->needed);
	u64map_deinit(&recording->pairs_used);
	free(recording);
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Room for element @id of a vector whose ids are dense but for damage. Zeroes what is new. */
static int grow_to(void **data, size_t *count, size_t *capacity, uint32_t id, size_t size,
		   uint32_t max)
{
	int rc;

	if (id >= max)
		return -EPROTO;
	if (id < *count)
		return 0;
	rc = vec_grow(data, capacity, (size_t)id + 1, size, 0);
	if (rc < 0)
		return rc;
	memset((char *)*data + *count * size, 0, (id + 1 - *count) * size);
	*count = (size_t)id + 1;
	return 0;
}

#define GROW_TO(vec, id, max)                                                                      \
	grow_to((void **)&(vec)->data, &(vec)->count, &(vec)->capacity, (id),                      \
		sizeof(*(vec)->data), (max))

static int on_module(void *ctx, const struct chunk_module *m)
{
	struct recording *recording = ctx;
	struct module *module;
	int rc = GROW_TO(&recording->modules, m->id, MODULES_MAX);

	if (rc < 0)
		return rc;
	module = &recording->modules.data[m->id];
	if (module->path)
		return 0;
	module->path = strndup(m->path.text, m->path.len);
	if (!module->path)
		return -ENOMEM;
	module->key = m->key;
	module->kind = m->kind;
	module->build_id_len = m->build_id_len;
	memcpy(module->build_id, m->build_id, m->build_id_len);
	return 0;
}

static int on_process(void *ctx, const struct chunk_process *p)
{
	struct recording *recording = ctx;
	struct process *process;
	int rc = GROW_TO(&recording->processes, p->id, PROCESSES_MAX);

	if (rc < 0)
		return rc;
	process = &recording->processes.data[p->id];
	if (process->comm)
		return 0;
	process->tgid = p->tgid;
	process->started_at_ns = p->started_at_ns;
	process->comm = strndup(p->comm.text, p->comm.len);
	process->exe = strndup(p->exe.text, p->exe.len);
	process->service = strndup(p->service.text, p->service.len);
	return process->comm && process->exe && process->service ? 0 : -ENOMEM;
}

static int on_stack(void *ctx, const struct chunk_stack *s)
{
	struct recording *recording = ctx;
	struct stack stack = { recording->frames.count, s->frame_count, s->outcome };
	int rc;

	if (u64map_get(&recording->stack_at, s->id, &(uint64_t){ 0 }) ||
	    (recording->windowed && !u64map_get(&recording->needed, s->id, &(uint64_t){ 0 })))
		return 0;
	rc = frames_vec_reserve(&recording->frames, recording->frames.count + s->frame_count + 1u);
	if (rc == 0)
		rc = u64map_put(&recording->stack_at, s->id, recording->stacks.count);
	if (rc == 0)
		rc = stacks_vec_push(&recording->stacks, stack);
	if (rc < 0)
		return rc;
	memcpy(recording->frames.data + stack.first, s->frames, s->frame_count * sizeof(uint64_t));
	recording->frames.count += s->frame_count;
	return 0;
}

static int on_samples(void *ctx, uint32_t seq)
{
	const struct recording *recording = ctx;

	return seq >= recording->seq_end;
}

static int on_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct recording *recording = ctx;
	int rc = GROW_TO(&recording->pairs, id, PAIRS_MAX);

	if (rc == 0)
		recording->pairs.data[id] = *pair;
	return rc;
}

static int on_attr(void *ctx, uint32_t id, const struct chunk_attr *attr)
{
	struct recording *recording = ctx;
	int rc = GROW_TO(&recording->attrs, id, ATTRS_MAX);

	if (rc == 0)
		recording->attrs.data[id] = *attr;
	return rc;
}

static int on_event(void *ctx, const struct chunk_event *event)
{
	struct recording *recording = ctx;

	if (recording->events.count >= RECORDING_EVENTS_MAX) {
		recording->dropped++;
		return 0;
	}
	return events_vec_push(&recording->events, *event);
}

static int on_quality(void *ctx, const struct chunk_quality *quality)
{
	struct recording *recording = ctx;

	recording->quality = *quality;
	return 0;
}

static int on_name(void *ctx, const struct chunk_name *name)
{
	struct recording *recording = ctx;

	if (!recording->names)
		return 0;
	return names_keep(recording->names, name->key, name->offset, name->frames,
			  name->frame_count);
}

int recording_add(struct recording *recording, int kind, const void *data, size_t len,
		  uint32_t seq_end, struct names_client *names)
{
	const struct chunk_sink sink = {
		.ctx = recording,
		.module = on_module,
		.process = on_process,
		.stack = on_stack,
		.samples = on_samples,
		.pair = on_pair,
		.attr = on_attr,
		.event = on_event,
		.quality = on_quality,
		.name = on_name,
	};
	int rc;

	recording->seq_end = seq_end;
	recording->names = names;
	rc = kind == STORE_CHUNK_READINGS
		     ? reading_keep(&recording->readings, data, len, seq_end)
		     : chunk_decode(kind, data, len, &sink);
	if (rc != -EPROTO)
		return rc < 0 ? rc : 0;
	recording->damaged++;
	return 0;
}

/* ---- windows -----------------------------------------------------------------------------------
 */

struct add_sum {
	struct recording *recording;
	uint64_t minute_ns;
	double keep;
};

/* How many of @count samples a view at share @keep shows: a draw for each, by a hash of what it is.
 */
static uint64_t draw(const struct add_sum *add, const struct chunk_sum *sum, uint64_t count)
{
	uint64_t seed = hash_combine(hash_combine(add->minute_ns, sum->pair), sum->attr), kept = 0;

	/* Of so many the share is known to 2 % without drawing. */
	if (count > DRAWS_MAX)
		return (uint64_t)((double)count * add->keep + 0.5);
	for (uint64_t i = 0; i < count; i++)
		kept += (double)(hash_combine(seed, i) >> 11) * 0x1p-53 < add->keep;
	return kept;
}

static int add_sum(void *ctx, const struct chunk_sum *sum)
{
	const struct add_sum *add = ctx;
	struct chunk_event event = { .time_ns = add->minute_ns,
				     .pair = sum->pair,
				     .attr = sum->attr,
				     .value = sum->value,
				     .value2 = sum->value2 };
	uint64_t count = (sum->value2 + 512) / 1024, kept;

	if (add->keep < 1 && count) {
		kept = draw(add, sum, count);
		if (!kept)
			return 0;
		event.value =
			(int64_t)((double)sum->value * (double)kept / ((double)count * add->keep));
		event.value2 = kept * 1024;
	}
	return events_vec_push(&add->recording->events, event);
}

int recording_add_window(struct recording *recording, uint64_t minute_ns, const void *data,
			 size_t len, double keep)
{
	struct add_sum add = { recording, minute_ns, keep };
	int rc;

	recording->windowed = true;
	rc = chunk_decode_window(data, len, add_sum, &add);
	if (rc != -EPROTO)
		return rc;
	recording->damaged++;
	return 0;
}

static int need_stacks(struct recording *recording, const struct chunk_pair *pair)
{
	int rc = pair->user ? u64map_put(&recording->needed, pair->user, 1) : 0;

	return rc == 0 && pair->kernel ? u64map_put(&recording->needed, pair->kernel, 1) : rc;
}

static int on_used_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct recording *recording = ctx;

	if (!u64map_get(&recording->pairs_used, id, &(uint64_t){ 0 }))
		return 0;
	return need_stacks(recording, pair);
}

int recording_add_pairs(struct recording *recording, int kind, const void *data, size_t len)
{
	const struct chunk_sink sink = { .ctx = recording, .pair = on_used_pair };
	int rc = 0;

	for (; rc == 0 && recording->used_until < recording->events.count; recording->used_until++)
		rc = u64map_put(&recording->pairs_used,
				recording->events.data[recording->used_until].pair, 1);
	if (rc == 0 && kind == STORE_CHUNK_SAMPLES)
		rc = chunk_decode(kind, data, len, &sink);
	return rc == -EPROTO ? 0 : rc; /* counted by the second pass */
}

size_t recording_event_count(const struct recording *recording)
{
	return recording->events.count;
}

struct load {
	struct recording *recording;
	uint32_t seq_end;
	struct names_client *names;
};

static int load_chunk(void *ctx, const struct store_chunk *chunk)
{
	const struct load *load = ctx;

	return recording_add(load->recording, chunk->kind, chunk->data, chunk->len, load->seq_end,
			     load->names);
}

int recording_load(struct recording *recording, struct store *store, const char *id,
		   uint32_t seq_end, struct names_client *names, struct err *err)
{
	struct load load = { recording, seq_end, names };
	unsigned damaged = 0;
	int rc = store_session_read(store, id, load_chunk, &load, &damaged, err);

	recording->damaged += damaged;
	return rc;
}

/* ---- building -------------------------------------------------------------------------------- */
struct build {
	const struct recording *recording;
	const struct recording_options *options;
	struct profile_builder *builder;
	const struct name_source *names;
	struct stack_resolver *resolver;
	struct ids_vec nodes;	  /* by pair, NO_NODE until asked for */
	struct ids_vec attrs;	  /* by attr, likewise */
	struct ids_vec processes; /* by process, likewise */
	struct lock_names locks;
};

static bool find_module(void *ctx, uint32_t id, struct stack_module *ret)
{
	const struct recording *recording = ctx;
	const struct module *module;

	if (id >= recording->modules.count || !recording->modules.data[id].path)
		return false;
	module = &recording->modules.data[id];
	*ret = (struct stack_module){ module->key, module->path, module->build_id,
				      module->build_id_len, module->kind };
	return true;
}

static int fill_ids(struct ids_vec *ids, size_t count)
{
	int rc = ids_vec_reserve(ids, count + 1);

	for (size_t i = 0; rc == 0 && i < count; i++)
		ids->data[i] = NO_NODE;
	ids->count = rc == 0 ? count : 0;
	return rc;
}

static uint32_t text_id(struct build *b, const char *text)
{
	return profile_builder_string(b->builder, text, strlen(text));
}

/* A node below the root for what has no stack: the overflow bucket, a stack that never arrived. */
static uint32_t marker_node(struct build *b, const char *text)
{
	struct profile_function function = { .name = text_id(b, text) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER };

	frame.function = profile_builder_function(b->builder, &function);
	return profile_builder_node(b->builder, 0, profile_builder_frame(b->builder, &frame));
}

/* false: there is a stack, but its frames are missing. */
static bool find_stack(const struct recording *recording, uint64_t id, struct stack_frames *ret)
{
	const struct stack *stack;
	uint64_t at;

	*ret = (struct stack_frames){ 0 };
	if (!id)
		return true;
	if (!u64map_get(&recording->stack_at, id, &at))
		return false;
	stack = &recording->stacks.data[at];
	*ret = (struct stack_frames){ recording->frames.data + stack->first, stack->count };
	return true;
}

static int node_of(struct build *b, uint32_t pair, uint32_t *ret)
{
	struct stack_frames user, kernel;
	bool whole;
	int rc;

	if (pair >= b->nodes.count) {
		*ret = marker_node(b, "[unknown]");
		return 0;
	}
	if (b->nodes.data[pair] != NO_NODE) {
		*ret = b->nodes.data[pair];
		return 0;
	}
	if (pair == CHUNK_PAIR_OVERFLOW) {
		*ret = b->nodes.data[pair] = marker_node(b, PROFILE_TRUNCATED);
		return 0;
	}
	whole = find_stack(b->recording, b->recording->pairs.data[pair].user, &user);
	whole &= find_stack(b->recording, b->recording->pairs.data[pair].kernel, &kernel);
	if (!user.count && !kernel.count)
		*ret = whole ? marker_node(b, "[no stack]") : marker_node(b, "[unknown]");
	else {
		rc = stack_resolver_node(b->resolver, user, kernel, ret);
		if (rc < 0)
			return rc;
	}
	b->nodes.data[pair] = *ret;
	return 0;
}

static uint32_t process_of(struct build *b, uint32_t id)
{
	const struct process *process =
		id < b->processes.count ? &b->recording->processes.data[id] : NULL;
	struct profile_process entry = { 0 };
	uint32_t made;

	if (process && b->processes.data[id] != NO_NODE)
		return b->processes.data[id];
	if (process && process->comm) {
		entry.pid = process->tgid;
		entry.started_at_ns = process->started_at_ns;
		entry.comm = text_id(b, process->comm);
		entry.exe = text_id(b, process->exe);
		entry.service = text_id(b, process->service);
	}
	made = profile_builder_process(b->builder, &entry);
	if (process)
		b->processes.data[id] = made;
	return made;
}

static const char *state_word(const struct chunk_attr *attr)
{
	if (attr->type != PROF_SAMPLE_OFFCPU)
		return "";
	switch (attr->state >> 4) {
	case PROF_OFF_BLOCKED:
		return "blocked";
	case PROF_OFF_RUNQUEUE:
		return "runqueue";
	case PROF_OFF_PREEMPTED:
		return "preempted";
	}
	return "";
}

static const char *wait_word(const struct chunk_attr *attr)
{
	static const char *const words[] = { "",      "futex", "sleep", "socket", "pipe",
					     "epoll", "disk",  "fault", "child",  "other" };
	unsigned wait = attr->state & 15;

	if (attr->type != PROF_SAMPLE_OFFCPU || attr->state >> 4 != PROF_OFF_BLOCKED)
		return "";
	return wait < ARRAY_SIZE(words) ? words[wait] : "other";
}

static const char *kind_word(const struct chunk_attr *attr)
{
	switch (attr->detail) {
	case PROF_DETAIL_FILE:
		return "file";
	case PROF_DETAIL_SOCKET:
		return "socket";
	case PROF_DETAIL_PIPE:
		return "pipe";
	case PROF_DETAIL_SYNC:
		return "sync";
	}
	return "";
}

/* Finds out for every futex of the session which function waits for it. */
static int find_locks(struct build *b)
{
	const struct recording *recording = b->recording;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = event->attr < recording->attrs.count
							? &recording->attrs.data[event->attr]
							: NULL;
		uint32_t node;

		if (!attr || !attr->object)
			continue;
		rc = node_of(b, event->pair, &node);
		if (rc == 0)
			rc = lock_names_wait(&b->locks, attr->process, attr->object,
					     lock_site(b->builder, node), event->value);
	}
	for (size_t i = 0; rc == 0 && i < recording->attrs.count; i++) {
		const struct chunk_attr *attr = &recording->attrs.data[i];

		if (b->options->meta.type == PROFILE_MUTEX)
			rc = lock_names_thread(&b->locks, attr->process, attr->tid, attr->comm);
	}
	return rc;
}

static uint32_t attrs_of(struct build *b, uint32_t id)
{
	static const struct chunk_attr unknown = { .process = UINT32_MAX };
	const struct chunk_attr *attr =
		id < b->attrs.count ? &b->recording->attrs.data[id] : &unknown;
	struct profile_attrs entry = { 0 };
	struct profile_label holder = { 0 };
	uint32_t made;

	if (attr != &unknown && b->attrs.data[id] != NO_NODE)
		return b->attrs.data[id];
	entry.process = process_of(b, attr->process);
	entry.tid = attr->tid;
	entry.thread_name = profile_builder_string(b->builder, attr->comm,
						   strnlen(attr->comm, sizeof(attr->comm)));
	entry.state = text_id(b, state_word(attr));
	entry.wait = text_id(b, wait_word(attr));
	if (attr->object)
		entry.extra =
			lock_names_lock(&b->locks, b->builder, "futex", attr->process, attr->object);
	else
		entry.extra = text_id(b, kind_word(attr));
	if (attr->holder != attr->tid)
		holder.value = lock_names_holder(&b->locks, b->builder, attr->process, attr->holder);
	if (holder.value) {
		holder.name = text_id(b, "holder");
		entry.label_count = 1;
	}
	made = profile_builder_attrs(b->builder, &entry, &holder);
	if (attr != &unknown)
		b->attrs.data[id] = made;
	return made;
}

/* One event's values in the order of its type. */
static void values_of(enum profile_type type, bool windowed, const struct chunk_event *event,
		      int64_t ret[PROFILE_VALUES_MAX])
{
	memset(ret, 0, PROFILE_VALUES_MAX * sizeof(*ret));
	if (profile_type_info(type)->value_count == 1) {
		ret[0] = event->value;
		return;
	}
	ret[0] = type == PROFILE_CPU && !windowed ? 1 : (int64_t)(event->value2 + 512) / 1024;
	ret[1] = event->value;
}

static int add_events(struct build *b)
{
	const struct recording *recording = b->recording;
	const struct clock_triple *clock = &recording->quality.clock;

	for (size_t i = 0; i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		int64_t values[PROFILE_VALUES_MAX];
		struct profile_event timed = { .value = event->value };
		int rc = node_of(b, event->pair, &timed.node);

		if (rc < 0)
			return rc;
		timed.attrs = attrs_of(b, event->attr);
		values_of(b->options->meta.type, recording->windowed, event, values);
		profile_builder_sample(b->builder, timed.node, timed.attrs, values);
		if (!b->options->events)
			continue;
		timed.time_ns = clock_to_realtime_ns(clock, event->time_ns);
		profile_builder_event(b->builder, &timed);
	}
	return 0;
}

static bool lend_stack(void *ctx, uint64_t id, struct stack_frames *ret)
{
	const struct build *b = ctx;

	return find_stack(b->recording, id, ret);
}

static uint32_t lend_process(void *ctx, uint32_t id)
{
	return process_of(ctx, id);
}

static int add_readings(struct build *b, unsigned *damaged)
{
	const struct reading_lender lender = {
		b, lend_stack, lend_process, { (void *)(uintptr_t)b->recording, find_module }
	};

	return reading_build(&b->recording->readings, b->options->meta.type, &lender, b->names,
			     b->builder, damaged);
}

static int build_profile(struct build *b, struct profile **ret)
{
	unsigned damaged = b->recording->damaged;
	const struct recording *recording = b->recording;
	struct profile_quality quality = b->options->quality;
	int rc = fill_ids(&b->nodes, recording->pairs.count);

	if (rc == 0)
		rc = fill_ids(&b->attrs, recording->attrs.count);
	if (rc == 0)
		rc = fill_ids(&b->processes, recording->processes.count);
	if (rc == 0)
		rc = stack_resolver_prefetch(b->resolver, recording->frames.data,
					     recording->frames.count);
	if (rc == 0)
		rc = find_locks(b);
	if (rc == 0)
		rc = add_events(b);
	if (rc == 0 && recording->readings.count)
		rc = add_readings(b, &damaged);
	if (rc < 0)
		return rc;
	if (damaged)
		quality_note(&quality, "%u damaged pieces of the stored data were left out",
			     damaged);
	if (recording->dropped)
		quality_note(&quality, "%llu events beyond the limit were left out",
			     (unsigned long long)recording->dropped);
	return profile_builder_finish(b->builder, &quality, ret);
}

int recording_build(const struct recording *recording, const struct recording_options *options,
		    const struct name_source *names, struct profile **ret)
{
	struct stack_modules modules = { (void *)(uintptr_t)recording, find_module };
	cleanup(profile_builder) struct profile_builder *builder =
		profile_builder_create(&options->meta, options->nodes_max);
	cleanup(stack_resolver) struct stack_resolver *resolver = NULL;
	struct build b = {
		.recording = recording, .options = options, .builder = builder, .names = names
	};
	int rc = -ENOMEM;

	if (builder)
		resolver = b.resolver = stack_resolver_create(builder, &modules, names, 0);
	if (resolver)
		rc = build_profile(&b, ret);
	ids_vec_deinit(&b.nodes);
	ids_vec_deinit(&b.attrs);
	ids_vec_deinit(&b.processes);
	lock_names_deinit(&b.locks);
	return rc;
}
