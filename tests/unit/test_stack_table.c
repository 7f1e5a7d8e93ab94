// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/collect/stacks/stack_table.h"

/* A process that has one module mapped at 0x1000000 (id set by the test), and keys by module id. */
struct world {
	uint32_t module;
	uint64_t keys[8];
	bool mapped;
};

static uint64_t resolve_frame(void *ctx, uint64_t frame)
{
	const struct world *world = ctx;
	uint64_t va = frame & PROF_FRAME_ADDRESS_MASK;

	if (prof_frame_kind(frame) == PROF_FRAME_ADDRESS && world->mapped && va >= 0x1000000)
		return prof_frame_module(world->module, va - 0x1000000,
					 frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED));
	return frame;
}

static bool resolve_key(void *ctx, uint32_t module, uint64_t *ret)
{
	const struct world *world = ctx;

	*ret = world->keys[module & 7];
	return *ret != 0;
}

static struct stack_resolver resolver_of(struct world *world, uint64_t version, uint64_t salt)
{
	return (struct stack_resolver){ .ctx = world,
					.frame = resolve_frame,
					.key = resolve_key,
					.version = version,
					.salt = salt };
}

static uint64_t id_of(struct world *world, const uint64_t *frames, uint16_t count, uint8_t outcome,
		      uint64_t salt, uint8_t *ret_flags)
{
	cleanup(stack_table) struct stack_table *table =
		stack_table_create(STACK_TABLE_BYTES_MAX, NULL, NULL);
	struct stack_resolver resolver = resolver_of(world, 1, salt);
	struct stack *stack;

	assert_int_equal(stack_table_put(table, 5, frames, count, outcome), 0);
	stack = stack_table_find(table, 5);
	assert_true(stack_table_normalize(table, stack, &resolver));
	assert_ptr_equal(stack_table_by_id(table, stack->id), stack);
	*ret_flags = stack->flags;
	return stack->id;
}

static void an_id_depends_on_content_and_nothing_else(void **state)
{
	struct world here = { .module = 3, .keys = { [3] = 0xaaa, [4] = 0xbbb }, .mapped = true };
	struct world there = { .module = 6, .keys = { [6] = 0xaaa, [1] = 0xbbb }, .mapped = true };
	const uint64_t by_address[] = {
		prof_frame_address(PROF_FRAME_ADDRESS, 0x1000040, 0),
		prof_frame_address(PROF_FRAME_ADDRESS, 0x1000080, PROF_FRAME_RETURN),
	};
	const uint64_t by_module[] = { prof_frame_module(6, 0x40, 0),
				       prof_frame_module(6, 0x80, PROF_FRAME_RETURN) };
	uint8_t flags;
	uint64_t id = id_of(&here, by_address, 2, 0, 1, &flags);

	assert_int_equal(flags & (STACK_PROVISIONAL | STACK_ADDRESSES), 0);
	/* Another host, other module ids, found by the kernel itself: the same stack. */
	assert_true(id_of(&there, by_module, 2, 0, 999, &flags) == id);
}

static void what_differs_has_another_id(void **state)
{
	struct world world = { .module = 3, .keys = { [3] = 0xaaa, [4] = 0xbbb }, .mapped = true };
	const uint64_t frames[][2] = {
		{ prof_frame_module(3, 0x40, 0), prof_frame_module(3, 0x80, PROF_FRAME_RETURN) },
		{ prof_frame_module(3, 0x80, PROF_FRAME_RETURN), prof_frame_module(3, 0x40, 0) },
		{ prof_frame_module(3, 0x41, 0), prof_frame_module(3, 0x80, PROF_FRAME_RETURN) },
		{ prof_frame_module(4, 0x40, 0), prof_frame_module(3, 0x80, PROF_FRAME_RETURN) },
		{ prof_frame_module(3, 0x40, 0), prof_frame_module(3, 0x80, 0) },
		{ prof_frame_module(3, 0x40, 0),
		  prof_frame_module(3, 0x80, PROF_FRAME_RETURN | PROF_FRAME_GUESSED) },
	};
	uint64_t ids[ARRAY_SIZE(frames) + 2];
	size_t count = ARRAY_SIZE(frames);
	uint8_t flags;

	for (size_t i = 0; i < count; i++)
		ids[i] = id_of(&world, frames[i], 2, 0, 1, &flags);
	ids[count++] = id_of(&world, frames[0], 1, 0, 1, &flags);
	ids[count++] = id_of(&world, frames[0], 2, 7, 1, &flags);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < i; j++)
			assert_true(ids[i] != ids[j]);
}

static void addresses_belong_to_one_process(void **state)
{
	struct world world = { .mapped = false };
	const uint64_t frame = prof_frame_address(PROF_FRAME_ADDRESS, 0x1000040, 0);
	uint8_t flags;
	uint64_t mine = id_of(&world, &frame, 1, 0, 1, &flags);

	assert_true(flags & STACK_ADDRESSES);
	assert_true(id_of(&world, &frame, 1, 0, 2, &flags) != mine);
}

/* A process that executes another program keeps its number, by which BPF tells addresses apart. */
static void addresses_are_resolved_for_each_life(void **state)
{
	cleanup(stack_table) struct stack_table *table =
		stack_table_create(STACK_TABLE_BYTES_MAX, NULL, NULL);
	struct world before = { .module = 3,
				.keys = { [3] = 0xaaa, [4] = 0xbbb, [5] = 0xccc },
				.mapped = true };
	struct world after = before;
	const uint64_t frames[] = { prof_frame_address(PROF_FRAME_ADDRESS, 0x1000040, 0),
				    prof_frame_module(5, 0x80, PROF_FRAME_RETURN) };
	struct stack_resolver resolvers[] = { resolver_of(&before, 7, 1), resolver_of(&after, 7, 2) };
	struct stack *stack;

	after.module = 4;
	assert_int_equal(stack_table_put(table, 5, frames, 2, 0), 0);
	stack = stack_table_find(table, 5);
	for (unsigned i = 0; i < 4; i++) {
		const uint64_t id = stack->id;

		stack->sent_generation = 1;
		assert_true(stack_table_normalize(table, stack, &resolvers[i % 2]));
		assert_int_equal(stack->frames[0], prof_frame_module(i % 2 ? 4 : 3, 0x40, 0));
		assert_int_equal(stack->frames[1], frames[1]);
		assert_int_equal(stack->flags, 0);
		assert_true(stack->id != id);
		assert_int_equal(stack->sent_generation, 0);
		assert_false(stack_table_normalize(table, stack, &resolvers[i % 2]));
	}
}

static void a_stack_becomes_final_when_more_is_known(void **state)
{
	cleanup(stack_table) struct stack_table *table =
		stack_table_create(STACK_TABLE_BYTES_MAX, NULL, NULL);
	struct world world = { .module = 3 };
	const uint64_t frame = prof_frame_address(PROF_FRAME_ADDRESS, 0x1000040, 0);
	struct stack_resolver resolver = resolver_of(&world, 1, 1);
	struct stack *stack;
	uint64_t first, second;

	assert_int_equal(stack_table_put(table, 5, &frame, 1, 0), 0);
	stack = stack_table_find(table, 5);
	assert_true(stack_table_normalize(table, stack, &resolver));
	first = stack->id;
	stack->sent_generation = 1;
	world.mapped = true;
	assert_false(stack_table_normalize(table, stack, &resolver)); /* nothing new is claimed */
	resolver.version = 2;
	assert_true(stack_table_normalize(table, stack, &resolver));
	second = stack->id;
	assert_true(stack->flags & STACK_PROVISIONAL);
	assert_int_equal(stack->sent_generation, 0); /* to be sent under its new id */
	world.keys[3] = 0xaaa;
	resolver.version = 3;
	assert_true(stack_table_normalize(table, stack, &resolver));
	assert_true(stack->id != second && stack->id != first);
	assert_int_equal(stack->flags & (STACK_PROVISIONAL | STACK_ADDRESSES), 0);
	assert_null(stack_table_by_id(table, first));
	assert_null(stack_table_by_id(table, second));
	/* Final: nothing is looked at again. */
	world.keys[3] = 0xbbb;
	resolver.version = 4;
	assert_false(stack_table_normalize(table, stack, &resolver));
}

struct gone {
	uint64_t hashes[4096];
	size_t count;
};

static void on_evicted(void *ctx, uint64_t hash)
{
	struct gone *gone = ctx;

	if (gone->count < ARRAY_SIZE(gone->hashes))
		gone->hashes[gone->count++] = hash;
}

static void memory_is_bounded_and_what_is_used_stays(void **state)
{
	static struct gone gone;
	cleanup(stack_table) struct stack_table *table =
		stack_table_create(64 << 10, on_evicted, &gone);
	uint64_t frames[64];
	size_t kept = 0;

	for (size_t i = 0; i < ARRAY_SIZE(frames); i++)
		frames[i] = prof_frame_module(3, i, 0);
	for (uint64_t hash = 1; hash <= 1000; hash++) {
		assert_int_equal(stack_table_put(table, hash, frames, 64, 0), 0);
		assert_non_null(stack_table_find(table, 1)); /* in every sample */
	}
	assert_non_null(stack_table_find(table, 1));
	assert_non_null(stack_table_find(table, 1000));
	assert_null(stack_table_find(table, 2));
	for (uint64_t hash = 1; hash <= 1000; hash++)
		kept += stack_table_find(table, hash) != NULL;
	assert_true(kept <= (64 << 10) / sizeof(frames));
	assert_int_equal(gone.count + kept, 1000);
	for (size_t i = 0; i < gone.count; i++) {
		assert_true(gone.hashes[i] != 1);
		assert_null(stack_table_find(table, gone.hashes[i]));
	}
}

/* Young programs are known by addresses, older ones by modules: two of BPF's hashes are one stack.
 */
static void what_is_asked_for_is_found_when_its_like_is_gone(void **state)
{
	cleanup(stack_table) struct stack_table *table = stack_table_create(8192, NULL, NULL);
	struct world world = { .module = 3, .keys = { [3] = 0xaaa }, .mapped = true };
	const uint64_t by_module = prof_frame_module(3, 0x40, 0);
	const uint64_t by_address = prof_frame_address(PROF_FRAME_ADDRESS, 0x1000040, 0);
	struct stack_resolver resolver = resolver_of(&world, 1, 1);
	struct stack *stack;
	uint64_t id;

	assert_int_equal(stack_table_put(table, 1, &by_module, 1, 0), 0);
	assert_int_equal(stack_table_put(table, 2, &by_address, 1, 0), 0);
	for (uint64_t hash = 1; hash <= 2; hash++) {
		stack = stack_table_find(table, hash);
		assert_true(stack_table_normalize(table, stack, &resolver));
		id = stack->id;
	}
	for (uint64_t hash = 100; hash < 400; hash++) {
		stack = stack_table_find(table, 1);
		assert_non_null(stack);
		assert_int_equal(stack->id, id);
		assert_int_equal(stack_table_put(table, hash, &by_module, 1, 0), 0);
		(void)stack_table_find(table, hash); /* so that the clock's hand moves on */
	}
	assert_null(stack_table_find(table, 2));
	assert_non_null(stack_table_by_id(table, id));
}

static void hostile_counts_are_refused(void **state)
{
	cleanup(stack_table) struct stack_table *table = stack_table_create(1 << 20, NULL, NULL);
	static uint64_t frames[STACK_WORDS_MAX + 1];

	assert_int_equal(stack_table_put(table, 1, frames, 0, 0), -EPROTO);
	assert_int_equal(stack_table_put(table, 1, frames, STACK_WORDS_MAX + 1, 0), -EPROTO);
	assert_int_equal(stack_table_put(table, 1, frames, STACK_WORDS_MAX, 0), 0);
	assert_int_equal(stack_table_put(table, 1, frames, 1, 0), 0);
	assert_int_equal(stack_table_find(table, 1)->frame_count, STACK_WORDS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_id_depends_on_content_and_nothing_else),
		cmocka_unit_test(what_differs_has_another_id),
		cmocka_unit_test(addresses_belong_to_one_process),
		cmocka_unit_test(addresses_are_resolved_for_each_life),
		cmocka_unit_test(a_stack_becomes_final_when_more_is_known),
		cmocka_unit_test(memory_is_bounded_and_what_is_used_stays),
		cmocka_unit_test(what_is_asked_for_is_found_when_its_like_is_gone),
		cmocka_unit_test(hostile_counts_are_refused),
	};

	return cmocka_run_group_tests_name("stack_table", tests, NULL, NULL);
}
