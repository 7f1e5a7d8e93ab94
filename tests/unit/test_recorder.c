// SPDX-License-Identifier: Apache-2.0
/* The dictionary that a recorder keeps: numbers of pairs of stacks and of threads, in memory that
 * does not grow with them, and after a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/session/ingest/recorder.h"
#include "agent/store/store.h"
#include "tests/support/live_stack.h"

#define PAIRS_MAX 1000000u

struct recording {
	struct recorder *recorder, *next; /* @next: of the next server, see seal() */
	struct live_tables tables;
	struct live_process *process;
};

static int setup(void **state)
{
	static const char comm[16] = "worker";
	struct recording *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->recorder = recorder_create_for_sums(PAIRS_MAX);
	r->next = recorder_create_for_sums(PAIRS_MAX);
	assert_true(r->recorder && r->next);
	live_tables_init(&r->tables, NULL, 0);
	assert_int_equal(live_tables_add_nameless(&r->tables, 1, comm, &r->process), 0);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct recording *r = *state;

	recorder_destroy(r->recorder);
	recorder_destroy(r->next);
	live_tables_deinit(&r->tables);
	free(r);
	return 0;
}

/* The number of the pair; *ret_attr: of the thread. */
static uint32_t intern(const struct recording *r, uint64_t user, uint64_t kernel, uint32_t tid,
		       uint32_t *ret_attr)
{
	const struct feed_sample sample = { .user_stack = user, .kernel_stack = kernel, .tid = tid };
	uint32_t pair;

	assert_int_equal(recorder_intern(r->recorder, &sample, r->process, &pair, ret_attr), 0);
	return pair;
}

static uint32_t pair_of(const struct recording *r, uint64_t user, uint64_t kernel)
{
	return intern(r, user, kernel, 1, &(uint32_t){ 0 });
}

static uint32_t attr_of(const struct recording *r, uint32_t tid)
{
	uint32_t attr;

	(void)intern(r, 1, 0, tid, &attr);
	return attr;
}

/* New entries go to the file, and from there into the recorder of the next server. */
static void seal(struct recording *r)
{
	struct recorder_group *group;

	assert_int_equal(recorder_seal(r->recorder, &r->tables, 1, false, NULL), 0);
	assert_int_equal(recorder_missing(r->recorder), 0);
	while ((group = recorder_groups(r->recorder))) {
		for (unsigned i = 0; i < group->chunk_count; i++) {
			const struct store_chunk chunk = { group->kinds[i], group->data[i].data,
							   group->data[i].len };

			assert_int_equal(recorder_reload_chunk(r->next, &chunk), 0);
		}
		recorder_stored(r->recorder, group);
	}
}

static void restart(struct recording *r)
{
	assert_int_equal(recorder_reload_done(r->next), 0);
	recorder_destroy(r->recorder);
	r->recorder = r->next;
	r->next = NULL;
}

/* A pair that is seen again and again keeps its number. One that was not seen for the time of
 * 100,000 others gets a new one: the memory of a recorder does not grow with the day. */
static void test_pairs_seen_long_ago_are_stored_again(void **state)
{
	enum { STACKS = 400, RARE = STACKS + 1, EACH = 50 };
	struct recording *r = *state;
	uint32_t often, once, last = 0;

	for (uint64_t i = 1; i <= RARE; i++)
		live_stack_add(&r->tables, i, i);
	often = pair_of(r, 1, 0);
	once = pair_of(r, RARE, 0);
	for (uint64_t user = 1; user <= STACKS; user++) {
		for (uint64_t kernel = 1; kernel <= STACKS; kernel++)
			last = pair_of(r, user, kernel);
		assert_int_equal(pair_of(r, 1, 0), often);
		if (user % EACH == 0)
			seal(r);
	}
	assert_int_equal(last, STACKS * STACKS + once);
	assert_int_equal(pair_of(r, STACKS, STACKS), last);
	assert_int_equal(pair_of(r, RARE, 0), last + 1);
	/* The next server knows those of the end and their stacks, and goes on with the numbers. */
	restart(r);
	assert_int_equal(pair_of(r, STACKS, STACKS), last);
	assert_int_equal(recorder_missing(r->recorder), 0);
	assert_int_equal(pair_of(r, RARE, 0), last + 1);
	assert_int_equal(recorder_missing(r->recorder), 1);
}

static void test_threads_seen_long_ago_are_stored_again(void **state)
{
	enum { THREADS = 100000, EACH = 10000 };
	struct recording *r = *state;
	uint32_t often, once, last = 0;

	live_stack_add(&r->tables, 1, 1);
	often = attr_of(r, 1);
	once = attr_of(r, 2);
	for (uint32_t tid = 3; tid <= THREADS; tid++) {
		last = attr_of(r, tid);
		assert_int_equal(attr_of(r, 1), often);
		if (tid % EACH == 0)
			seal(r);
	}
	assert_int_equal(last, once + THREADS - 2);
	assert_int_equal(attr_of(r, 2), last + 1);
	restart(r);
	assert_int_equal(attr_of(r, THREADS), last);
	assert_int_equal(attr_of(r, 2), last + 1);
	/* A sample without stacks, which pair 0 is not. */
	assert_int_equal(pair_of(r, 0, 0), 2);
}

/* New pairs are numbered in the order of their stacks, and known by these numbers. */
static void test_ordered_pairs_are_known(void **state)
{
	enum { COUNT = 20 };
	struct recording *r = *state;
	uint32_t *moved = NULL, before[COUNT], first;

	for (uint64_t i = 1; i <= COUNT; i++) {
		live_stack_add(&r->tables, i, 1000 - i);
		before[i - 1] = pair_of(r, i, 0);
	}
	assert_int_equal(recorder_order_pairs(r->recorder, &r->tables, &first, &moved), 0);
	assert_non_null(moved);
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_int_equal(moved[before[i] - first], first + COUNT - 1 - i);
		assert_int_equal(pair_of(r, i + 1, 0), moved[before[i] - first]);
	}
	free(moved);
}

/* A forged file: a recorder for sums has no events, and no counts of them. */
static void test_events_among_sums(void **state)
{
	struct recording *r = *state;
	const struct chunk_pair pair = { 1, 0 };
	const struct chunk_attr attr = { .tid = 1 };
	const struct chunk_event event = { .pair = 1, .value = 1, .value2 = 1024 };
	const struct chunk_samples samples = { .seq = 1, .first_pair = 1, .pair_count = 1, .pairs = &pair,
					       .attr_count = 1, .attrs = &attr,
					       .event_count = 1, .events = &event };
	cleanup_buf struct buf data = { 0 };
	struct store_chunk chunk = { .kind = STORE_CHUNK_SAMPLES };

	(void)pair_of(r, 0, 0);
	seal(r); /* the next server has the process */
	chunk_encode_samples(&data, &samples);
	chunk.data = data.data;
	chunk.len = data.len;
	assert_int_equal(recorder_reload_chunk(r->next, &chunk), 0);
	restart(r);
	assert_int_equal(recorder_counters(r->recorder)->samples, 0);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		test(test_pairs_seen_long_ago_are_stored_again),
		test(test_threads_seen_long_ago_are_stored_again),
		test(test_ordered_pairs_are_known),
		test(test_events_among_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
