// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/state_sums.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "bpf/profiler.h"

void state_sums_clear(struct state_sums *sums)
{
	reading_clear(&sums->sum);
	u64map_deinit(&sums->module_at);
	u64map_deinit(&sums->text_at);
	u64map_deinit(&sums->stack_at);
	u64map_deinit(&sums->labels_at);
	u64map_deinit(&sums->item_at);
	*sums = (struct state_sums){ .sum = { .type = sums->sum.type } };
}

/* The sum's ids of what one part numbers, 0 = not asked for yet. */
struct ids {
	struct state_sums *sums;
	const struct reading *part;
	uint32_t *modules, *texts, *stacks, *labels; /* by id of the part */
	int rc;
};

static uint32_t fail(struct ids *ids, int rc)
{
	if (ids->rc == 0)
		ids->rc = rc;
	return 0;
}

/* The id under @hash, or a new one, which the caller has to fill (*ret_new). */
static uint32_t intern(struct ids *ids, struct u64map *map, uint64_t hash, size_t count,
		       bool *ret_new)
{
	uint64_t known;
	int rc;

	*ret_new = false;
	if (u64map_get(map, hash, &known))
		return (uint32_t)known;
	rc = u64map_put(map, hash, count + 1);
	if (rc < 0)
		return fail(ids, rc);
	*ret_new = true;
	return (uint32_t)count + 1;
}

static uint32_t module_id(struct ids *ids, uint32_t id)
{
	const struct reading_module *from = &ids->part->modules.data[id - 1];
	struct reading *sum = &ids->sums->sum;
	struct reading_module module = *from;
	bool is_new;
	int rc;

	if (ids->modules[id])
		return ids->modules[id];
	ids->modules[id] = intern(ids, &ids->sums->module_at,
				  hash_combine(from->key ^ from->file, hash_bytes(from->path, strlen(from->path), 1)),
				  sum->modules.count, &is_new);
	if (is_new) {
		module.path = strdup(from->path);
		module.used = true;
		rc = module.path ? reading_modules_vec_push(&sum->modules, module) : -ENOMEM;
		if (rc < 0) {
			free(module.path);
			return fail(ids, rc);
		}
	}
	return ids->modules[id];
}

static uint32_t text_id(struct ids *ids, uint32_t id)
{
	const struct reading_text *from;
	struct reading *sum = &ids->sums->sum;
	struct reading_text text;
	const char *bytes;
	bool is_new;

	if (!id || ids->texts[id])
		return id ? ids->texts[id] : 0;
	from = &ids->part->texts.data[id - 1];
	bytes = ids->part->text.data + from->first;
	ids->texts[id] = intern(ids, &ids->sums->text_at, hash_bytes(bytes, from->len, from->len),
				sum->texts.count, &is_new);
	if (is_new) {
		text = (struct reading_text){ sum->text.len, from->len };
		buf_add(&sum->text, bytes, from->len);
		if (sum->text.error)
			return fail(ids, sum->text.error);
		ids->rc = reading_texts_vec_push(&sum->texts, text);
	}
	return ids->texts[id];
}

static uint64_t frame_of(struct ids *ids, uint64_t frame)
{
	if (prof_frame_kind(frame) != PROF_FRAME_MODULE)
		return frame;
	return prof_frame_module(module_id(ids, prof_frame_module_id(frame)), prof_frame_offset(frame),
				 frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED));
}

static int add_wrapper(struct reading *sum, uint64_t frame)
{
	int rc;

	if (u64map_get(&sum->wrapper_at, frame, &(uint64_t){ 0 }))
		return 0;
	rc = u64map_put(&sum->wrapper_at, frame, 1);
	return rc < 0 ? rc : reading_frames_vec_push(&sum->wrappers, frame);
}

static uint32_t stack_id(struct ids *ids, uint32_t id)
{
	const struct reading_stack *from;
	struct reading *sum = &ids->sums->sum;
	struct reading_stack stack = { .first = sum->frames.count };
	const uint64_t *frames;
	bool is_new;

	if (!id || ids->stacks[id])
		return id ? ids->stacks[id] : 0;
	from = &ids->part->stacks.data[id - 1];
	frames = ids->part->frames.data + from->first;
	stack.outcome = from->outcome;
	/* Translated where it would lie, and taken back if it is there already. */
	for (uint16_t i = 0; ids->rc == 0 && i < from->count; i++, stack.count++) {
		uint64_t frame = frame_of(ids, frames[i]);

		ids->rc = ids->rc ? ids->rc : reading_frames_vec_push(&sum->frames, frame);
		if (ids->rc == 0 && u64map_get(&ids->part->wrapper_at, frames[i], &(uint64_t){ 0 }))
			ids->rc = add_wrapper(sum, frame);
	}
	if (ids->rc == 0 && sum->frames.count > READING_FRAMES_MAX)
		ids->rc = -E2BIG;
	if (ids->rc < 0)
		return 0;
	ids->stacks[id] = intern(ids, &ids->sums->stack_at,
				 hash_bytes(sum->frames.data + stack.first,
					    stack.count * sizeof(*frames), stack.outcome),
				 sum->stacks.count, &is_new);
	if (is_new)
		ids->rc = reading_stacks_vec_push(&sum->stacks, stack);
	else
		sum->frames.count = stack.first;
	return ids->stacks[id];
}

static uint32_t labels_id(struct ids *ids, uint32_t id)
{
	const struct reading_labels *from;
	struct reading *sum = &ids->sums->sum;
	struct reading_labels labels = { .first = sum->label_pairs.count };
	uint64_t hash = 1;
	bool is_new;

	if (!id || ids->labels[id])
		return id ? ids->labels[id] : 0;
	from = &ids->part->label_sets.data[id - 1];
	for (uint32_t i = 0; ids->rc == 0 && i < from->count; i++, labels.count++) {
		struct reading_pair pair = ids->part->label_pairs.data[from->first + i];

		pair.name = text_id(ids, pair.name);
		pair.value = text_id(ids, pair.value);
		hash = hash_combine(hash, (uint64_t)pair.name << 32 | pair.value);
		if (ids->rc == 0)
			ids->rc = reading_pairs_vec_push(&sum->label_pairs, pair);
	}
	if (ids->rc < 0)
		return 0;
	ids->labels[id] =
		intern(ids, &ids->sums->labels_at, hash, sum->label_sets.count, &is_new);
	if (is_new)
		ids->rc = reading_label_sets_vec_push(&sum->label_sets, labels);
	else
		sum->label_pairs.count = labels.first;
	return ids->labels[id];
}

/* ---- items ----------------------------------------------------------------------------------- */

static bool is_text(const struct reading *part, uint32_t id, const char *wanted)
{
	const struct reading_text *text = id ? &part->texts.data[id - 1] : NULL;

	return text && text->len == strlen(wanted) &&
	       !memcmp(part->text.data + text->first, wanted, text->len);
}

bool state_sums_counts(enum profile_type type, const struct reading *part,
		       const struct reading_item *item)
{
	if (!(item->flags & READ_GOROUTINE_BLOCKED) || (item->flags & READ_GOROUTINE_SYSTEM))
		return false;
	if (type == PROFILE_MUTEX)
		return item->flags & READ_GOROUTINE_LOCK_WAIT;
	/* The network's readiness is a matter of I/O, as in Go's own block profile. */
	return !is_text(part, item->wait, "IO wait");
}

static int add_item(struct ids *ids, const struct reading_item *from, uint64_t weight_ns)
{
	struct reading *sum = &ids->sums->sum;
	const bool is_lock = from->flags & READ_GOROUTINE_ON_LOCK;
	struct reading_item item = {
		.start_frame = from->stack ? 0 : from->start_frame,
		.object = is_lock ? from->object : 0,
		.flags = from->flags & (READ_GOROUTINE_ON_LOCK | READ_GOROUTINE_LOCK_WAIT |
					READ_GOROUTINE_BLOCKED),
	};
	uint64_t hash;
	uint32_t id;
	bool is_new;

	if (item.start_frame)
		item.start_frame = frame_of(ids, item.start_frame);
	item.stack = stack_id(ids, from->stack);
	item.state = text_id(ids, from->state);
	item.wait = text_id(ids, from->wait);
	item.labels = labels_id(ids, from->labels);
	if (ids->rc < 0)
		return ids->rc;
	hash = hash_combine((uint64_t)item.stack << 32 | item.wait,
			    hash_combine((uint64_t)item.labels << 32 | item.state, item.object));
	hash = hash_combine(hash, item.start_frame);
	id = intern(ids, &ids->sums->item_at, hash, sum->items.count, &is_new);
	if (ids->rc == 0 && is_new)
		ids->rc = reading_items_vec_push(&sum->items, item);
	if (ids->rc < 0)
		return ids->rc;
	sum->items.data[id - 1].values[0]++;
	sum->items.data[id - 1].values[1] += (int64_t)weight_ns;
	return 0;
}

int state_sums_add(struct state_sums *sums, const struct reading *part, uint64_t weight_ns,
		   uint64_t *ret_seen)
{
	cleanup_free uint32_t *room = calloc(part->modules.count + part->texts.count + part->stacks.count +
						     part->label_sets.count + 4,
					     sizeof(*room));
	struct ids ids = { .sums = sums, .part = part, .modules = room };
	uint64_t seen = 0;

	if (!room)
		return -ENOMEM;
	ids.texts = ids.modules + part->modules.count + 1;
	ids.stacks = ids.texts + part->texts.count + 1;
	ids.labels = ids.stacks + part->stacks.count + 1;
	for (size_t i = 0; i < part->items.count; i++) {
		const struct reading_item *item = &part->items.data[i];
		int rc;

		if (!state_sums_counts(sums->sum.type, part, item))
			continue;
		rc = add_item(&ids, item, weight_ns);
		if (rc < 0)
			return rc;
		seen++;
	}
	*ret_seen = seen;
	return 0;
}
