// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/reading_groups.h"

#include <errno.h>
#include <string.h>

#define ITEMS_PER_CHUNK	 50000u
#define FRAMES_PER_CHUNK 1000000u

VEC_DEFINE(chunk_stacks, struct chunk_stack);
VEC_DEFINE(chunk_modules, struct chunk_module);

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
		const struct reading_item *item = &reading->items.data[i];
		const struct reading_item *before = i ? item - 1 : NULL;

		if (!before || before->created_frame != item->created_frame)
			rc = add_single(ret, &seen, encoding, &item->created_frame);
		if (rc == 0 && (!before || before->start_frame != item->start_frame))
			rc = add_single(ret, &seen, encoding, &item->start_frame);
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

int reading_groups_encode(const struct reading *reading, const struct reading_encoding *encoding,
			  bool has_process, struct recorder_group **ret)
{
	struct encode e = { .reading = reading, .encoding = *encoding, .has_process = has_process };
	struct recorder_group *first = NULL, **end = &first;
	int rc = encoding->phase != READING_START ? list_stacks(reading, &e.encoding, &e.stacks) : 0;

	do {
		struct recorder_group *group = rc == 0 ? calloc(1, sizeof(*group)) : NULL;

		if (!group) {
			rc = rc < 0 ? rc : -ENOMEM;
			break;
		}
		*end = group;
		end = &group->next;
		if (group == first && has_process) {
			(void)add_chunk(group, STORE_CHUNK_PROCESSES);
			rc = encoding->phase != READING_START ? encode_modules(group, reading) : 0;
		}
		if (rc == 0)
			rc = encode_group(&e, group);
	} while (rc == 0 && (e.stacks_done < e.stacks.count || e.items_done < reading->items.count));
	chunk_stacks_vec_deinit(&e.stacks);
	if (rc < 0)
		recorder_groups_free(first);
	else
		*ret = first;
	return rc;
}
