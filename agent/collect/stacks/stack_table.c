// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/stacks/stack_table.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"

/* Beside the frames: the entry, its slot and its keys in two maps at half load. */
#define ENTRY_BYTES (sizeof(struct stack) + sizeof(struct stack *) + 4 * 17)
/* Ids of this version of the hash below; another way of hashing is another space of ids. */
#define ID_SEED	    0x50524f4649445331ull
#define USES_MAX    3

VEC_DEFINE(stack, struct stack *);

struct stack_table {
	struct u64map by_hash; /* -> struct stack * */
	struct u64map by_id;   /* -> struct stack *; the newest of those that share an id */
	struct stack_vec slots; /* the clock's face, without holes */
	size_t hand;
	size_t bytes, bytes_max;
	void (*evicted)(void *ctx, uint64_t hash);
	void *ctx;
};

struct stack_table *stack_table_create(size_t bytes_max, void (*evicted)(void *ctx, uint64_t hash),
				       void *ctx)
{
	struct stack_table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	u64map_init(&table->by_hash, 0);
	u64map_init(&table->by_id, 0);
	table->bytes_max = bytes_max;
	table->evicted = evicted;
	table->ctx = ctx;
	return table;
}

static void stack_free(struct stack *stack)
{
	free(stack->addresses);
	free(stack->frames);
	free(stack);
}
CLEANUP_DEFINE(stack, struct stack *, stack_free);

void stack_table_destroy(struct stack_table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->slots.count; i++)
		stack_free(table->slots.data[i]);
	stack_vec_deinit(&table->slots);
	u64map_deinit(&table->by_hash);
	u64map_deinit(&table->by_id);
	free(table);
}

static struct stack *look_up(const struct u64map *map, uint64_t key)
{
	uint64_t value;

	return u64map_get(map, key, &value) ? (struct stack *)(uintptr_t)value : NULL;
}

static size_t bytes_of_stack(const struct stack *stack)
{
	return ENTRY_BYTES + stack->frame_count * sizeof(*stack->frames) * (stack->addresses ? 2 : 1);
}

static void drop_id(struct stack_table *table, const struct stack *stack)
{
	if (stack->id && look_up(&table->by_id, stack->id) == stack)
		(void)u64map_remove(&table->by_id, stack->id);
}

static void evict(struct stack_table *table, size_t slot)
{
	struct stack *stack = table->slots.data[slot];

	table->slots.data[slot] = table->slots.data[--table->slots.count];
	table->bytes -= bytes_of_stack(stack);
	drop_id(table, stack);
	(void)u64map_remove(&table->by_hash, stack->hash);
	if (table->evicted)
		table->evicted(table->ctx, stack->hash);
	stack_free(stack);
}

/* Ends: every step takes a use or a stack away. */
static void make_room(struct stack_table *table, size_t bytes)
{
	while (table->slots.count > 0 && table->bytes + bytes > table->bytes_max) {
		struct stack *stack;

		if (table->hand >= table->slots.count)
			table->hand = 0;
		stack = table->slots.data[table->hand];
		if (stack->uses) {
			stack->uses--;
			table->hand++;
		} else {
			evict(table, table->hand);
		}
	}
}

static bool is_address(uint64_t frame)
{
	uint32_t kind = prof_frame_kind(frame);

	return kind == PROF_FRAME_ADDRESS || kind == PROF_FRAME_SCRIPT || kind == PROF_FRAME_SCRIPT_AT;
}

static int keep_addresses(struct stack *stack)
{
	uint16_t first = 0;

	while (first < stack->frame_count && !is_address(stack->frames[first]))
		first++;
	if (first == stack->frame_count)
		return 0;
	stack->addresses = calloc(stack->frame_count, sizeof(*stack->addresses));
	if (!stack->addresses)
		return -ENOMEM;
	for (uint16_t i = first; i < stack->frame_count; i++)
		if (is_address(stack->frames[i]))
			stack->addresses[i] = stack->frames[i];
	return 0;
}

int stack_table_put(struct stack_table *table, uint64_t hash, const uint64_t *frames,
		    uint16_t frame_count, uint8_t outcome)
{
	cleanup(stack) struct stack *stack = NULL;
	int rc;

	if (frame_count == 0 || frame_count > STACK_WORDS_MAX)
		return -EPROTO;
	if (look_up(&table->by_hash, hash))
		return 0;
	stack = calloc(1, sizeof(*stack));
	if (!stack)
		return -ENOMEM;
	stack->frames = malloc(frame_count * sizeof(*frames));
	if (!stack->frames)
		return -ENOMEM;
	memcpy(stack->frames, frames, frame_count * sizeof(*frames));
	stack->frame_count = frame_count;
	stack->outcome = outcome;
	stack->hash = hash;
	rc = keep_addresses(stack);
	if (rc < 0)
		return rc;
	make_room(table, bytes_of_stack(stack));
	rc = stack_vec_push(&table->slots, stack);
	if (rc < 0)
		return rc;
	rc = u64map_put(&table->by_hash, hash, (uintptr_t)stack);
	if (rc < 0) {
		table->slots.count--;
		return rc;
	}
	table->bytes += bytes_of_stack(stack);
	(void)take_ptr(stack);
	return 0;
}

struct stack *stack_table_put_as(struct stack_table *table, uint64_t id, const uint64_t *frames,
				 uint16_t frame_count, uint8_t outcome)
{
	struct stack *stack;

	/* Ids and hashes of BPF are of one kind: neither meets the other by chance. */
	if (stack_table_put(table, id, frames, frame_count, outcome) < 0)
		return NULL;
	stack = look_up(&table->by_hash, id);
	stack->id = id;
	(void)!u64map_put(&table->by_id, id, (uintptr_t)stack);
	return stack;
}

struct stack *stack_table_find(struct stack_table *table, uint64_t hash)
{
	struct stack *stack = look_up(&table->by_hash, hash);

	if (!stack)
		return NULL;
	if (stack->uses < USES_MAX)
		stack->uses++;
	/* its like, which could be found by its id, may have been evicted */
	if (stack->id && !look_up(&table->by_id, stack->id))
		(void)!u64map_put(&table->by_id, stack->id, (uintptr_t)stack);
	return stack;
}

struct stack *stack_table_by_id(struct stack_table *table, uint64_t id)
{
	return look_up(&table->by_id, id);
}

void stack_table_each(const struct stack_table *table,
		      void (*each)(void *ctx, const struct stack *stack), void *ctx)
{
	for (size_t i = 0; i < table->slots.count; i++)
		each(ctx, table->slots.data[i]);
}

/* ---- normal form -------------------------------------------------------------------------------
 */

/* Folds one frame into @id; sets what keeps the id from being final. */
static uint64_t hash_frame(uint64_t id, uint64_t frame, const struct stack_resolver *resolver,
			   uint8_t *flags)
{
	uint32_t module = prof_frame_module_id(frame);
	uint64_t key;

	switch (prof_frame_kind(frame)) {
	case PROF_FRAME_NONE:
		return id;
	case PROF_FRAME_MODULE:
		if (!resolver->key(resolver->ctx, module, &key)) {
			*flags |= STACK_PROVISIONAL;
			key = hash_combine(resolver->salt, module);
		}
		return hash_combine(hash_combine(id, key),
				    frame & (PROF_FRAME_OFFSET_MASK | PROF_FRAME_RETURN |
					     PROF_FRAME_GUESSED));
	case PROF_FRAME_ADDRESS:
	case PROF_FRAME_KERNEL:
		*flags |= STACK_ADDRESSES;
		return hash_combine(hash_combine(id, resolver->salt), frame);
	default:
		return hash_combine(id, frame);
	}
}

/* A stack that was resolved for another process instance says nothing about the instance of @salt.
 */
static void begin_life(struct stack *stack, uint64_t salt)
{
	if (!stack->addresses || stack->life == salt)
		return;
	stack->life = salt;
	stack->flags |= STACK_ADDRESSES;
	stack->resolved_at = UINT64_MAX;
	for (uint16_t i = 0; i < stack->frame_count; i++)
		if (stack->addresses[i])
			stack->frames[i] = stack->addresses[i];
}

bool stack_table_normalize(struct stack_table *table, struct stack *stack,
			   const struct stack_resolver *resolver)
{
	uint64_t id = hash_combine(ID_SEED, stack->outcome);
	uint8_t flags = 0;

	begin_life(stack, resolver->salt);
	if (stack->id && (!(stack->flags & (STACK_PROVISIONAL | STACK_ADDRESSES)) ||
			  stack->resolved_at == resolver->version))
		return false;
	for (uint16_t i = 0; i < stack->frame_count; i++) {
		stack->frames[i] = resolver->frame(resolver->ctx, stack->frames[i]);
		id = hash_frame(id, stack->frames[i], resolver, &flags);
	}
	if (id == 0)
		id = 1;
	stack->flags = flags;
	stack->resolved_at = resolver->version;
	if (id == stack->id)
		return false;
	drop_id(table, stack);
	stack->id = id;
	stack->sent_generation = 0;
	/* Without memory WANT_STACK cannot find it; the samples still carry it. */
	(void)!u64map_put(&table->by_id, id, (uintptr_t)stack);
	return true;
}
