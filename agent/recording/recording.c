// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/recording_internal.h"

#define PROCESSES_MAX (1u << 16)
#define PAIRS_MAX     (1u << 21)
#define ATTRS_MAX     (1u << 21)
#define DRAWS_MAX     4096u
#define AHEAD	      16u /* pairs */
#define MINUTE_NS     (60 * NS_PER_S)

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
	modules_vec_deinit(&recording->modules);
	processes_vec_deinit(&recording->processes);
	text_pool_deinit(&recording->texts);
	u64map_deinit(&recording->stack_at);
	stacks_vec_deinit(&recording->stacks);
	recording_trees_free(&recording->trees);
	frames_vec_deinit(&recording->frames);
	pairs_vec_deinit(&recording->pairs);
	attrs_vec_deinit(&recording->attrs);
	events_vec_deinit(&recording->events);
	pair_sums_vec_deinit(&recording->pair_sums);
	pair_sums_vec_deinit(&recording->place_sums);
	reading_forget(&recording->readings);
	pair_places_deinit(&recording->places);
	buf_deinit(&recording->shared);
	u64map_deinit(&recording->event_at);
	u64map_deinit(&recording->needed);
	u64map_deinit(&recording->pair_at);
	u64map_deinit(&recording->attr_at);
	pair_numbers_vec_deinit(&recording->numbers);
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
	int rc = GROW_TO(&recording->modules, m->id, RECORDING_MODULES_MAX);

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

static const char *keep_text(struct recording *recording, const struct chunk_text *text)
{
	return text_pool_keep(&recording->texts, text->text, text->len);
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
	process->comm = keep_text(recording, &p->comm);
	process->exe = keep_text(recording, &p->exe);
	process->service = keep_text(recording, &p->service);
	if (p->container.len && !(process->container = keep_text(recording, &p->container)))
		return -ENOMEM;
	return process->comm && process->exe && process->service ? 0 : -ENOMEM;
}

static bool wants_stack(void *ctx, uint64_t id)
{
	const struct recording *recording = ctx;

	return !recording->windowed || u64map_get(&recording->needed, id, &(uint64_t){ 0 });
}

static int on_stack(void *ctx, const struct chunk_stack *s)
{
	struct recording *recording = ctx;
	struct stack stack = { recording->frames.count, s->frame_count, s->outcome };
	int rc;

	if (u64map_get(&recording->stack_at, s->id, &(uint64_t){ 0 }) || !wants_stack(ctx, s->id))
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

static int need_stacks(struct recording *recording, const struct chunk_pair *pair)
{
	int rc = pair->user ? u64map_put(&recording->needed, pair->user, 1) : 0;

	return rc == 0 && pair->kernel ? u64map_put(&recording->needed, pair->kernel, 1) : rc;
}

/* Where the pair or attr @id of the chunks is kept; false: it does not occur in the windows. */
static bool find_index(const struct recording *recording, const struct u64map *at, uint32_t id,
		       uint32_t *ret)
{
	uint64_t index = id;

	if (recording->windowed && !u64map_get(at, id, &index))
		return false;
	*ret = (uint32_t)index;
	return true;
}

static int on_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct recording *recording = ctx;
	uint32_t at;
	int rc;

	if (!find_index(recording, &recording->pair_at, id, &at))
		return 0;
	rc = GROW_TO(&recording->pairs, at, PAIRS_MAX);
	if (rc < 0)
		return rc;
	recording->pairs.data[at] = *pair;
	/* Stacks of settled chunks come behind their pairs. */
	return recording->windowed ? need_stacks(recording, pair) : 0;
}

/* The pairs are there, but it is the tree that knows their stacks. */
static int on_tree(void *ctx, const struct chunk_tree *tree)
{
	struct recording *recording = ctx;

	return recording_trees_add(&recording->trees, tree);
}

static int on_attr(void *ctx, uint32_t id, const struct chunk_attr *attr)
{
	struct recording *recording = ctx;
	uint32_t at;
	int rc;

	if (!find_index(recording, &recording->attr_at, id, &at))
		return 0;
	rc = GROW_TO(&recording->attrs, at, ATTRS_MAX);
	if (rc == 0)
		recording->attrs.data[at] = *attr;
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
		.wants_stack = wants_stack,
		.tree = recording->keeps_trees ? on_tree : NULL,
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

/* A value in place of several; those of a damaged file may be any. */
static int64_t scaled(int64_t value, double by)
{
	double result = (double)value * by;

	return result >= 0x1p63 ? INT64_MAX : result < -0x1p63 ? INT64_MIN : (int64_t)result;
}

static uint64_t seed_of(uint64_t minute_ns, uint32_t pair, uint32_t attr)
{
	return hash_combine(hash_combine(minute_ns, pair), attr);
}

/* Whether a view at share @keep shows sample @i of those of @seed. */
static bool is_drawn(uint64_t seed, uint64_t i, double keep)
{
	return (double)(hash_combine(seed, i) >> 11) * 0x1p-53 < keep;
}

/* How many of @count samples a view at share @keep shows: a draw for each, by a hash of what it is.
 */
static uint64_t draw(const struct add_sum *add, const struct chunk_sum *sum, uint64_t count)
{
	uint64_t seed = seed_of(add->minute_ns, sum->pair, sum->attr), kept = 0;

	/* With this many samples the share is right to 2 % without drawing. */
	if (count > DRAWS_MAX)
		return (uint64_t)((double)count * add->keep + 0.5);
	for (uint64_t i = 0; i < count; i++)
		kept += is_drawn(seed, i, add->keep);
	return kept;
}

static int add_up(struct recording *recording, uint32_t pair, int64_t value, uint64_t value2)
{
	int rc = pair < recording->pair_sums.count ? 0 : GROW_TO(&recording->pair_sums, pair, PAIRS_MAX);
	struct chunk_pair_sum *to;

	if (rc < 0)
		return rc;
	to = &recording->pair_sums.data[pair];
	to->value = (int64_t)((uint64_t)to->value + (uint64_t)value);
	to->value2 += value2;
	return 0;
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
		event.value = scaled(sum->value, (double)kept / ((double)count * add->keep));
		event.value2 = kept * 1024;
	}
	return add->recording->added_up ? add_up(add->recording, event.pair, event.value, event.value2)
					: events_vec_push(&add->recording->events, event);
}

void recording_add_up(struct recording *recording)
{
	recording->added_up = true;
}

/* Hours tell pairs by their place. */
static int add_placed(const struct add_sum *add, struct chunk_sum sum)
{
	const struct pair_numbers_vec *pairs = &add->recording->places.pairs;

	if (sum.pair >= pairs->count)
		return -EPROTO;
	sum.pair = pairs->data[sum.pair];
	return add_sum((void *)(uintptr_t)add, &sum);
}

static int add_hour_sum(void *ctx, const struct chunk_hour_sum *sum)
{
	const struct add_sum *hour = ctx;
	const struct add_sum add = { hour->recording, hour->minute_ns + sum->minute * MINUTE_NS,
				     hour->keep };

	return add_placed(&add, sum->sum);
}

int recording_added_up(struct recording *recording)
{
	const struct pair_numbers_vec *pairs = &recording->places.pairs;
	int rc = 0;

	for (size_t i = 0; i < recording->place_sums.count && rc == 0; i++) {
		const struct chunk_pair_sum *sum = &recording->place_sums.data[i];

		/* They lie anywhere. */
		if (i + AHEAD < recording->place_sums.count)
			__builtin_prefetch(recording->pair_sums.data + pairs->data[i + AHEAD], 1);
		if (sum->value || sum->value2)
			rc = add_up(recording, pairs->data[i], sum->value, sum->value2);
	}
	recording->place_sums.count = 0;
	return rc;
}

/* Those of one series are the same from hour to hour. */
static int find_places(struct recording *recording, const struct store_window *window)
{
	struct buf *shared = &recording->shared;
	int rc;

	if (shared->len == window->shared_len &&
	    (!shared->len || memcmp(shared->data, window->shared, shared->len) == 0))
		return 0;
	rc = recording_added_up(recording);
	if (rc < 0)
		return rc;
	shared->len = 0;
	buf_add(shared, window->shared, window->shared_len);
	if (shared->error)
		return shared->error;
	return pair_places_decode(&recording->places, window->shared, window->shared_len);
}

static int add_pairs_of_hour(struct recording *recording, const struct store_window *window)
{
	struct pair_sums_vec *sums = &recording->place_sums;
	size_t count = recording->places.pairs.count;

	if (sums->count < count) {
		int rc = pair_sums_vec_reserve(sums, count);

		if (rc < 0)
			return rc;
		memset(sums->data + sums->count, 0, (count - sums->count) * sizeof(*sums->data));
		sums->count = count;
	}
	return chunk_add_hour_pairs(window->data, window->len, sums->data, count);
}

static int add_hour(const struct add_sum *add, const struct store_window *window, uint64_t first,
		    uint64_t end)
{
	void *ctx = (void *)(uintptr_t)add;
	int rc = find_places(add->recording, window);

	if (rc < 0)
		return rc;
	/* A view at a lower rate is drawn minute by minute. */
	return add->recording->added_up && add->keep >= 1 && first == 0 && end >= 60
		       ? add_pairs_of_hour(add->recording, window)
		       : chunk_decode_hour(window->data, window->len, (uint32_t)(first < 60 ? first : 60),
					   (uint32_t)(end < 60 ? end : 60), add_hour_sum, ctx);
}

int recording_add_window(struct recording *recording, const struct store_window *window,
			 uint64_t from_ns, uint64_t to_ns, double keep)
{
	struct add_sum add = { recording, window->from_ns, keep };
	uint64_t first = from_ns > window->from_ns
				 ? (from_ns - window->from_ns + MINUTE_NS - 1) / MINUTE_NS
				 : 0;
	uint64_t end = (to_ns - window->from_ns + MINUTE_NS - 1) / MINUTE_NS;
	int rc;

	recording->windowed = recording->sums = true;
	rc = window->minute_count ? add_hour(&add, window, first, end)
				  : chunk_decode_window(window->data, window->len, add_sum, &add);
	if (rc != -EPROTO)
		return rc;
	recording->damaged++;
	return 0;
}

int recording_add_event(struct recording *recording, const struct chunk_event *event,
			uint64_t minute_ns, double keep)
{
	uint64_t seed = seed_of(minute_ns, event->pair, event->attr), seen = 0;
	struct chunk_event kept = *event;
	int rc;

	recording->windowed = recording->sums = true;
	if (keep < 1) {
		(void)u64map_get(&recording->event_at, seed, &seen);
		rc = u64map_put(&recording->event_at, seed, seen + 1);
		if (rc < 0)
			return rc;
		if (!is_drawn(seed, seen, keep))
			return 0;
		kept.value = scaled(event->value, 1 / keep);
	}
	return on_event(recording, &kept);
}

static int on_used_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct recording *recording = ctx;

	if (!u64map_get(&recording->pair_at, id, &(uint64_t){ 0 }))
		return 0;
	return need_stacks(recording, pair);
}

/* The index of pair @number of the day; a new one if it did not occur yet. */
static int index_pair(struct recording *recording, uint32_t number, uint32_t *ret)
{
	/* Until its chunk comes; if that is damaged, its stack is lost. */
	static const struct chunk_pair unknown = { .user = UINT64_MAX };
	uint64_t at = recording->numbers.count;
	int rc = 0;

	if (!u64map_get(&recording->pair_at, number, &at)) {
		rc = pairs_vec_push(&recording->pairs, unknown);
		if (rc == 0)
			rc = pair_numbers_vec_push(&recording->numbers, number);
		if (rc == 0)
			rc = u64map_put(&recording->pair_at, number, at);
	}
	if (rc == 0)
		*ret = (uint32_t)at;
	return rc;
}

static int index_attr(struct recording *recording, uint32_t number, uint32_t *ret)
{
	static const struct chunk_attr unknown = { .process = UINT32_MAX };
	uint64_t at = recording->attrs.count;
	int rc = 0;

	if (!u64map_get(&recording->attr_at, number, &at)) {
		rc = attrs_vec_push(&recording->attrs, unknown);
		if (rc == 0)
			rc = u64map_put(&recording->attr_at, number, at);
	}
	if (rc == 0)
		*ret = (uint32_t)at;
	return rc;
}

int recording_add_pairs(struct recording *recording, int kind, const void *data, size_t len)
{
	const struct chunk_sink sink = { .ctx = recording, .pair = on_used_pair };
	int rc = 0;

	/* The overflow bucket keeps its number, which says what it is. */
	if (!recording->numbers.count)
		rc = index_pair(recording, CHUNK_PAIR_OVERFLOW, &(uint32_t){ 0 });
	for (; rc == 0 && recording->numbered < recording->events.count; recording->numbered++) {
		struct chunk_event *event = &recording->events.data[recording->numbered];

		rc = index_pair(recording, event->pair, &event->pair);
		if (rc == 0)
			rc = index_attr(recording, event->attr, &event->attr);
	}
	if (rc == 0 && kind == STORE_CHUNK_SAMPLES)
		rc = chunk_decode(kind, data, len, &sink);
	return rc == -EPROTO ? 0 : rc; /* counted by the second pass */
}

void recording_keep_trees(struct recording *recording)
{
	recording->keeps_trees = true;
}

void recording_set_sums(struct recording *recording)
{
	recording->sums = true;
}

void recording_note_damage(struct recording *recording, unsigned count)
{
	recording->damaged += count;
}

size_t recording_event_count(const struct recording *recording)
{
	return recording->added_up ? recording->pair_sums.count : recording->events.count;
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
