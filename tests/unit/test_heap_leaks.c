// SPDX-License-Identifier: Apache-2.0
/* A place is suspected of leaking if enough of its allocations are followed and it still
 * allocates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/profile/memory/heap_leaks.h"
#include "agent/profile/profile.h"

#define SECOND 1000000000ull
#define BEGIN  (1000 * SECOND)
#define END    (BEGIN + 100 * SECOND)

static uint32_t place(struct profile_builder *b, const char *name)
{
	const struct profile_function function = { .name = profile_builder_string(b, name, strlen(name)) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_NATIVE };

	frame.function = profile_builder_function(b, &function);
	return profile_builder_node(b, 0, profile_builder_frame(b, &frame));
}

/* 100 bytes in use of each of @count seconds from @from_s on, @followed addresses of which are old.
 */
static void in_use(struct profile_builder *b, const char *name, unsigned from_s, unsigned count,
		   const char *followed)
{
	const struct profile_label label = {
		profile_builder_string(b, PROFILE_LABEL_FOLLOWED, strlen(PROFILE_LABEL_FOLLOWED)),
		profile_builder_string(b, followed, strlen(followed))
	};
	const struct profile_attrs attrs = { .label_count = followed[0] != '\0' };
	const uint32_t node = place(b, name), id = profile_builder_attrs(b, &attrs, &label);

	for (unsigned i = 0; i < count; i++) {
		const struct profile_event event = { .time_ns = BEGIN + (from_s + i) * SECOND,
						     .node = node,
						     .attrs = id,
						     .value = 100 };

		profile_builder_event(b, &event);
	}
}

static void test_who_leaks(void **state)
{
	const struct profile_meta meta = { .type = PROFILE_MEMORY, .service = "leaks" };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	const struct profile_quality quality = { 0 };
	cleanup_free struct heap_leak *leaks = NULL;
	cleanup(profile) struct profile *p = NULL;
	static const char *const expected[] = { "much", "little" };
	uint32_t count;

	assert_non_null(b);
	in_use(b, "little", 0, 90, "3");
	in_use(b, "few are followed", 0, 100, "2");
	in_use(b, "steady", 0, 100, "");
	in_use(b, "allocated at the start", 0, 40, "200");
	in_use(b, "much", 20, 80, "3");
	in_use(b, "much", 20, 80, "7"); /* of another process */
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_int_equal(heap_leaks_find(p, END, &leaks, &count), 0);
	assert_int_equal(count, ARRAY_SIZE(expected));
	for (uint32_t i = 0; i < count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[leaks[i].node].frame];

		assert_string_equal(profile_string(p, p->functions[frame->function].name), expected[i]);
	}
	assert_int_equal(leaks[0].followed, 7);
	assert_int_equal(leaks[0].bytes, 16000);
	assert_int_equal(leaks[0].since_ns, BEGIN + 20 * SECOND);
	assert_float_equal(leaks[0].bytes_per_s, 200, 1e-6);
	assert_int_equal(leaks[1].followed, 3);
}

/* @objects of 100 bytes in one piece, the only address of which that was met is old, or @few are.
 */
static void met(struct profile_builder *b, const char *name, int64_t objects, const char *few)
{
	const struct profile_label label = { profile_builder_string(b, PROFILE_LABEL_FEW,
								    strlen(PROFILE_LABEL_FEW)),
					     profile_builder_string(b, few, strlen(few)) };
	const struct profile_attrs attrs = { .label_count = few[0] != '\0' };
	const uint32_t id = profile_builder_attrs(b, &attrs, &label);
	const struct profile_event event = { .time_ns = BEGIN + SECOND,
					     .node = place(b, name),
					     .attrs = id,
					     .value = objects * 100 };
	const int64_t values[PROFILE_VALUES_MAX] = { objects, objects * 100 };

	profile_builder_event(b, &event);
	profile_builder_sample(b, event.node, id, values);
}

static uint32_t slow_leaks(uint64_t before, uint64_t blocks, uint32_t block_bytes, const char *few,
			   int64_t objects)
{
	const struct profile_meta meta = { .type = PROFILE_MEMORY, .service = "leaks" };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	struct profile_quality quality = {
		.probes = { .grown_count = 1, .grown = { { block_bytes, before, blocks } } }
	};
	cleanup_free struct heap_leak *leaks = NULL;
	cleanup(profile) struct profile *p = NULL;
	uint32_t count;

	assert_non_null(b);
	met(b, "slow", objects, few);
	met(b, "none is old", objects, "");
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_int_equal(heap_leaks_find(p, END, &leaks, &count), 0);
	return count;
}

/* One old address is enough where the heap gained blocks of its size that hardly any others were
 * of. */
static void test_slow_leaks(void **state)
{
	assert_int_equal(slow_leaks(1000, 12000, 104, "1", 4000), 1);
	assert_int_equal(slow_leaks(4000, 12000, 104, "1", 4000), 1);
	assert_int_equal(slow_leaks(4001, 12000, 104, "1", 4000), 0); /* it may be one of those */
	assert_int_equal(slow_leaks(1000000, 12000, 104, "2", 4000), 1);
	assert_int_equal(slow_leaks(1000, 12000, 120, "1", 4000), 0); /* of another size */
	assert_int_equal(slow_leaks(1000, 12000, 88, "1", 4000), 0);
	assert_int_equal(slow_leaks(1000, 12000, 104, "1", 61000),
			 0); /* allocates more than the heap gained */
	assert_int_equal(slow_leaks(1000, 12000, 104, "", 4000), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_who_leaks),
					    cmocka_unit_test(test_slow_leaks) };

	return cmocka_run_group_tests_name("heap_leaks", tests, NULL, NULL);
}
