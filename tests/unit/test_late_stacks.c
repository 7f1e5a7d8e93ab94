// SPDX-License-Identifier: Apache-2.0
/* Stacks that are walked on when their rows have become known, on a made-up program: code at 0x1000
 * whose functions have frames of 16 bytes up to offset 0x100, and the outermost function behind. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/collect/stacks/late_stacks.h"
#include "bpf/outcome.h"
#include "bpf/unwind_table.h"

#define CODE_VA	 0x1000ull
#define OUTER_VA (CODE_VA + 0x180)
#define NO_RULE	 0x1c0u
#define SP	 0x7ffe00001000ull
#define MODULE	 7u

static union {
	uint32_t words[7][4];
	struct {
		struct unwind_table_head head;
		uint32_t directory[4];
		struct unwind_rule rules[3];
		uint32_t rows[4];
	} parts;
} table;

static int known; /* what finding code answers: 0, or an error */

static int find_code(void *ctx, uint64_t va, struct late_place *ret)
{
	(void)ctx;
	if (known)
		return known;
	if (va < CODE_VA || va >= CODE_VA + 0x200)
		return -ENOENT;
	*ret = (struct late_place){ .module = MODULE,
				    .bias = CODE_VA,
				    .table = &table,
				    .table_bytes = sizeof(table) };
	return 0;
}

static const struct late_code code = { .find = find_code };

static int setup(void **state)
{
	(void)state;
	table.parts.head = (struct unwind_table_head){ .magic = UNWIND_TABLE_MAGIC,
						       .version = UNWIND_TABLE_VERSION,
						       .page_count = 1,
						       .rules_at = 3,
						       .rule_count = 3,
						       .rows_at = 6,
						       .row_count = 3 };
	table.parts.directory[1] = 3;
	table.parts.rules[1] = (struct unwind_rule){ .cfa = UNWIND_CFA_SP,
						     .cfa_offset = 16,
						     .ra_offset = -8 / ARCH_RA_UNIT };
	table.parts.rules[2] = (struct unwind_rule){ .cfa = UNWIND_CFA_END };
	table.parts.rows[0] = 1u << 16;
	table.parts.rows[1] = 2u << 16 | 0x100;
	table.parts.rows[2] = NO_RULE;
	known = 0;
	return 0;
}

/* @depth frames below the outermost one, @missing words of the stack's far end not copied. */
static struct prof_late_event *make_event(unsigned depth, unsigned missing)
{
	uint32_t bytes = ARCH_BELOW_SP + (depth * 2 - missing) * 8;
	struct prof_late_event *event = calloc(1, sizeof(*event) + ARCH_BELOW_SP + depth * 16);
	uint64_t *words;

	assert_non_null(event);
	*event = (struct prof_late_event){ .time_ns = 5,
					   .ip = CODE_VA + 0x10,
					   .sp = SP,
					   .tid = 3,
					   .stack_bytes = bytes };
	words = (uint64_t *)(void *)(event->stack + ARCH_BELOW_SP);
	for (unsigned i = 0; i < depth; i++)
		words[i * 2 + 1] = i + 1 == depth ? OUTER_VA : CODE_VA + 0x20 + i % 64;
	return event;
}

static void test_goes_on(void **state)
{
	cleanup_free struct prof_late_event *event = make_event(3, 0);
	uint64_t frames[16] = { 11, 12 };
	uint8_t outcome = 99;
	uint16_t count = 2;

	(void)state;
	assert_int_equal(late_stack_walk(event, &code, frames, 15, &count, &outcome), 0);
	assert_int_equal(count, 6);
	assert_int_equal(outcome, OUTCOME_complete);
	assert_true(frames[0] == 11 && frames[1] == 12);
	assert_true(frames[2] == prof_frame_module(MODULE, 0x10, 0));
	assert_true(frames[3] == prof_frame_module(MODULE, 0x20, PROF_FRAME_RETURN));
	assert_true(frames[4] == prof_frame_module(MODULE, 0x21, PROF_FRAME_RETURN));
	assert_true(frames[5] == prof_frame_module(MODULE, 0x180, PROF_FRAME_RETURN));
}

static void test_is_cut(void **state)
{
	cleanup_free struct prof_late_event *event = make_event(30, 0);
	uint64_t frames[16];
	uint8_t outcome = 99;
	uint16_t count = 0;

	(void)state;
	assert_int_equal(late_stack_walk(event, &code, frames, 15, &count, &outcome), 0);
	assert_int_equal(count, 16);
	assert_int_equal(outcome, OUTCOME_truncated);
	assert_int_equal(prof_frame_kind(frames[15]), PROF_FRAME_TRUNCATED);
}

/* How far it came is said, nothing else is touched: the caller may have a better guess. */
static void test_ends_elsewhere(void **state)
{
	cleanup_free struct prof_late_event *short_stack = make_event(3, 1);
	cleanup_free struct prof_late_event *whole = make_event(3, 0);
	uint64_t frames[16];
	uint8_t outcome = 99;
	uint16_t count = 0;

	(void)state;
	assert_int_equal(late_stack_walk(short_stack, &code, frames, 15, &count, &outcome), -EFAULT);
	assert_int_equal(count, 3);
	count = 0;
	whole->ip = CODE_VA + 0x1000;
	assert_int_equal(late_stack_walk(whole, &code, frames, 15, &count, &outcome), -ENOENT);
	known = -EAGAIN;
	assert_int_equal(late_stack_walk(whole, &code, frames, 15, &count, &outcome), -EAGAIN);
	assert_int_equal(count, 0);
	assert_int_equal(outcome, 99);
}

/* Code without rows is the last frame that is known: it has called what is below. */
static void test_ends_in_code_without_rows(void **state)
{
	cleanup_free struct prof_late_event *event = make_event(3, 0);
	uint64_t *words = (uint64_t *)(void *)(event->stack + ARCH_BELOW_SP), frames[16];
	uint8_t outcome = 99;
	uint16_t count = 0;

	(void)state;
	words[5] = CODE_VA + NO_RULE + 8;
	assert_int_equal(late_stack_walk(event, &code, frames, 15, &count, &outcome), -ENOENT);
	assert_int_equal(count, 4);
	assert_true(frames[3] == prof_frame_module(MODULE, NO_RULE + 8, PROF_FRAME_RETURN));
}

static void test_bounds(void **state)
{
	cleanup_free struct prof_late_event *event = make_event(100, 0);
	struct late_stacks late = { 0 };
	unsigned kept = 0;

	(void)state;
	event->stack_bytes = 0;
	while (late_stacks_put(&late, event, 1) == 0) {
		event->time_ns++;
		kept++;
	}
	assert_int_equal(kept, LATE_STACKS_MAX);
	assert_null(late_stacks_find(&late, 5, 4));
	assert_ptr_equal(late_stacks_find(&late, 5, 3), &late.items[0]);
	late_stacks_remove(&late, 0);
	assert_null(late_stacks_find(&late, 5, 3));
	assert_int_equal(late.count, LATE_STACKS_MAX - 1);
	late_stacks_deinit(&late);
	assert_int_equal(late.bytes, 0);
	event->stack_bytes = 1600;
	while (late_stacks_put(&late, event, 1) == 0)
		;
	assert_true(late.bytes <= LATE_STACKS_BYTES_MAX);
	late_stacks_deinit(&late);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_goes_on, setup),
		cmocka_unit_test_setup(test_is_cut, setup),
		cmocka_unit_test_setup(test_ends_elsewhere, setup),
		cmocka_unit_test_setup(test_ends_in_code_without_rows, setup),
		cmocka_unit_test_setup(test_bounds, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
