// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/ingest/recorder_internal.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"

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
				rc = recent_map_put(&r->stack_seen, id, stack.outcome);
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

/* How many pairs are in the file or a group. */
static uint32_t count_sealed(const struct recorder *r)
{
	return r->pair_count - (uint32_t)r->new_pairs.count;
}

static void encode_samples(struct recorder *r, struct recorder_group *group)
{
	struct chunk_samples samples = {
		.seq = group->seq,
		.first_pair = count_sealed(r),
		.pair_count = (uint32_t)r->new_pairs.count,
		.pairs = r->new_pairs.data,
		.first_attr = r->attr_count - (uint32_t)r->new_attrs.count,
		.attr_count = (uint32_t)r->new_attrs.count,
		.attrs = r->new_attrs.data,
		.event_count = (uint32_t)r->pending.count,
		.events = r->pending.data,
	};

	chunk_encode_samples(add_chunk(group, STORE_CHUNK_SAMPLES), &samples);
}

static int encode_group(struct seal *seal, struct recorder_group *group)
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
	encode_samples(r, group);
	if (r->pending.count || r->quality_changed)
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
	r->new_pairs.count = 0;
	r->new_attrs.count = 0;
	r->sealed_events += r->pending.count;
	r->pending.count = 0;
	r->process_entries.len = 0;
	r->process_entry_count = 0;
	r->quality_changed = false;
}

static int seal_group(struct seal *seal, uint64_t position)
{
	struct recorder *r = seal->r;
	struct recorder_group *group = calloc(1, sizeof(*group));
	int rc;

	if (!group)
		return -ENOMEM;
	group->seq = r->next_seq;
	group->position = position;
	rc = encode_group(seal, group);
	if (rc == 0)
		hand_over(r, group);
	else
		recorder_free_group(group);
	return rc;
}

static bool is_changed(const struct recorder *r)
{
	/* The overflow bucket alone is nothing. */
	return r->pending.count || r->quality_changed || r->process_entry_count ||
	       (r->pair_count > 1 && r->new_pairs.count) ||
	       r->new_attrs.count;
}

int recorder_seal(struct recorder *r, struct live_tables *tables, uint64_t position, bool final,
		  struct recorder_wants *wants)
{
	struct seal seal = { .r = r, .tables = tables, .wants = wants, .final = final };
	int rc;

	if (!r->missing.count && !is_changed(r))
		return 0;
	rc = seal_stacks(&seal);
	recorder_learn_outcomes(r, final);
	recent_map_age(&r->pair_ids, RECENT_MAX);
	recent_map_age(&r->stack_seen, RECENT_MAX);
	recent_map_age(&r->attr_ids, RECENT_MAX);
	if (rc == 0 && (is_changed(r) || seal.stacks.count || seal.modules.count))
		rc = seal_group(&seal, position);
	for (size_t i = 0; i < seal.stacks.count; i++)
		free((void *)(uintptr_t)seal.stacks.data[i].frames);
	chunk_stacks_vec_deinit(&seal.stacks);
	chunk_modules_vec_deinit(&seal.modules);
	return rc;
}

#define ORDERED_MAX 16384u /* the tables keep what was asked for last: so many stacks for sure */

struct ordered {
	struct chunk_stack stack; /* lent by the tables; compared as one */
	uint32_t pair;
};

static void look_up(struct live_tables *tables, const struct chunk_pair *pair, struct ordered *ret)
{
	const struct live_stack *live = live_tables_stack(tables, pair->user ? pair->user : pair->kernel);

	if (live)
		ret->stack = (struct chunk_stack){ .frame_count = live->frame_count, .frames = live->frames };
}

/* A pair that is not sealed gets the number @id. */
static void put_pair(struct recorder *r, uint32_t id, const struct chunk_pair *pair)
{
	r->new_pairs.data[id - count_sealed(r)] = *pair;
	recent_map_change(&r->pair_ids, recorder_pair_hash(pair), id);
}

int recorder_order_pairs(struct recorder *r, struct live_tables *tables, uint32_t *ret_first,
			 uint32_t **ret_moved)
{
	uint32_t sealed = count_sealed(r), first = sealed ? sealed : CHUNK_PAIR_OVERFLOW + 1;
	size_t news = r->pair_count > first ? r->pair_count - first : 0;
	size_t count = news < ORDERED_MAX ? news : ORDERED_MAX;
	cleanup_free struct ordered *order = calloc(count + 1, sizeof(*order));
	cleanup_free struct chunk_pair *before = calloc(count + 1, sizeof(*before));
	cleanup_free uint32_t *moved = calloc(news + 1, sizeof(*moved));

	if (!order || !before || !moved)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		before[i] = r->new_pairs.data[first - sealed + i];
		order[i].pair = (uint32_t)i;
		look_up(tables, &before[i], &order[i]);
	}
	if (count)
		qsort(order, count, sizeof(*order), chunk_compare_stacks);
	for (uint32_t i = 0; i < count; i++) {
		put_pair(r, first + i, &before[order[i].pair]);
		moved[order[i].pair] = first + i;
	}
	for (size_t i = count; i < news; i++)
		moved[i] = (uint32_t)(first + i);
	*ret_first = first;
	*ret_moved = count ? take_ptr(moved) : NULL;
	return 0;
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
		recorder_free_group(group);
	}
	if (!r->groups)
		r->groups_end = &r->groups;
}

size_t recorder_missing(const struct recorder *r)
{
	return r->missing.count;
}

void recorder_forget_stacks(struct recorder *r)
{
	recent_map_clear(&r->stack_seen);
	/* There is room: they were among those that went. */
	for (size_t i = 0; i < r->missing.count; i++)
		(void)!recent_map_put(&r->stack_seen, r->missing.data[i], STACK_WAITS);
}
