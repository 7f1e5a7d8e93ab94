// SPDX-License-Identifier: Apache-2.0
/* V8's tables of source positions, as node writes them: for each, the positions that
 * `node --print-bytecode` shows for the same function. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/runtimes/v8_positions.h"

struct entry {
	uint32_t offset, position;
};

static int find(const void *table, size_t len, uint32_t offset, struct v8_position *ret)
{
	return v8_positions_find(v8_positions_format_of(table, len), table, len, offset, ret);
}

static void check_one(const char *table, size_t len, uint32_t offset, uint32_t expected)
{
	struct v8_position position = { 0 };

	assert_int_equal(find(table, len, offset, &position), 0);
	assert_int_equal(position.offset, expected);
	assert_int_equal(position.inlined, V8_NOT_INLINED);
}

static void check(const char *table, size_t len, const struct entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t last = i + 1 < count ? entries[i + 1].offset - 1 : 1000;

		check_one(table, len, entries[i].offset, entries[i].position);
		check_one(table, len, last, entries[i].position);
	}
}
#define CHECK(table, entries) check(table, sizeof(table) - 1, entries, ARRAY_SIZE(entries))

static void test_node_22(void **state)
{
	static const char table[] = "\x01\xa4\x07\x02\x18\x03\x18\x0a\x44\x0f\x18\x09\x17\x0a\x2c"
				    "\x02\x14\x15\x1c\x1f\x38\x09\x07\x13\x60\x15\x00\x0d\xd4\x01"
				    "\x09\xfb\x01\x06\x9c\x02";
	static const struct entry entries[] = { { 0, 238 },  { 1, 244 },  { 6, 261 },  { 13, 267 },
						{ 17, 261 }, { 22, 272 }, { 23, 277 }, { 33, 284 },
						{ 48, 298 }, { 52, 296 }, { 61, 320 }, { 77, 373 },
						{ 81, 310 }, { 84, 381 } };

	CHECK(table, entries);
}

static void test_node_26(void **state)
{
	static const char table[] = "\x02\xa4\x07\x07\x18\x06\x18\x1b\x44\x1e\x18\x12\x17\x17\x2c"
				    "\x07\x14\x2a\x1c\x3e\x38\x12\x07\x26\x60\x2a\x00\x1a\xd4\x01"
				    "\x12\xfb\x01\x0f\x9c\x02";
	static const struct entry entries[] = { { 0, 238 },  { 1, 244 },  { 7, 261 },  { 14, 267 },
						{ 18, 261 }, { 23, 272 }, { 24, 277 }, { 34, 284 },
						{ 49, 298 }, { 53, 296 }, { 62, 320 }, { 78, 373 },
						{ 82, 310 }, { 85, 381 } };

	CHECK(table, entries);
}

/* Offset 5 of the function that was inlined third. */
static void test_inlined(void **state)
{
	struct v8_position position;

	assert_int_equal(v8_position_of(3ull << 31 | 6 << 1, &position), 0);
	assert_int_equal(position.offset, 5);
	assert_int_equal(position.inlined, 2);
}

static void check_sides(const void *table, size_t len, uint32_t offset,
			const struct v8_positions_sides *expected)
{
	struct v8_positions_sides sides = { 0 };

	assert_int_equal(v8_positions_around(v8_positions_format_of(table, len), table, len, offset,
					     &sides),
			 0);
	assert_int_equal(sides.before_at, expected->before_at);
	assert_int_equal(sides.after_at, expected->after_at);
	assert_int_equal(sides.is_whole, expected->is_whole);
	if (sides.before_at >= 0)
		assert_int_equal(sides.before.offset, expected->before.offset);
	if (sides.after_at >= 0)
		assert_int_equal(sides.after.offset, expected->after.offset);
}

/* Tables: that of test_node_22() has entries at 0 (238), 1 (244), 6 (261), ..., 84 (381). The
 * second entry of the other one has no position. */
static void test_sides(void **state)
{
	static const char whole[] = "\x01\xa4\x07\x02\x18\x03\x18\x0a\x44\x0f\x18\x09\x17\x0a\x2c"
				    "\x02\x14\x15\x1c\x1f\x38\x09\x07\x13\x60\x15\x00\x0d\xd4\x01"
				    "\x09\xfb\x01\x06\x9c\x02";
	static const char holes[] = "\x01\x04\x0a\x03\x0a\x18";
	size_t len = sizeof(whole) - 1;

	check_sides(whole, len, 4,
		    &(struct v8_positions_sides){ 1, 6, { 244, 0 }, { 261, 0 }, true });
	check_sides(whole, len, 6,
		    &(struct v8_positions_sides){ 6, 13, { 261, 0 }, { 267, 0 }, true });
	check_sides(whole, len, 84,
		    &(struct v8_positions_sides){ 84, -1, { 381, 0 }, { 0, 0 }, true });
	check_sides(holes, sizeof(holes) - 1, 7,
		    &(struct v8_positions_sides){ -1, 9, { 0, 0 }, { 5, 0 }, false });
}

static int find_bytecode(const void *table, size_t table_len, const void *code, size_t code_len,
			 uint32_t offset, int32_t *ret)
{
	static const uint8_t sizes[] = { 1, 1, 1, 1, 2, 3, 1, 1, 1, 1, 3, 5, 1, 1, 1, 1, 5, 9 };
	struct v8_baseline baseline = { table, code, table_len, code_len, { sizes, 6 } };

	return v8_baseline_find(&baseline, offset, ret);
}

/* Bytecodes at 0, 2, 5 (wide), 11 (extra wide), 17. */
static void test_baseline(void **state)
{
	static const char code[] = "\x04\x00\x05\x00\x00\x02\x05\x00\x00\x00\x00\x01\x04\x00\x00"
				   "\x00\x00\x04\x00";
	static const char table[] = "\x82\x01\x04\x05\x06\x07\x08";
	static const struct entry ends[] = {
		{ 134, 0 }, { 139, 2 }, { 145, 5 }, { 152, 11 }, { 160, 17 }
	};
	uint32_t offset = 131;
	int32_t found = 7;

	assert_int_equal(find_bytecode(table, 7, code, 19, 130, &found), 0);
	assert_int_equal(found, V8_ENTRY);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		for (; offset <= ends[i].offset; offset++) {
			assert_int_equal(find_bytecode(table, 7, code, 19, offset, &found), 0);
			assert_int_equal(found, ends[i].position);
		}
	assert_int_equal(find_bytecode(table, 7, code, 19, 161, &found), -ENODATA);
	assert_int_equal(find_bytecode(table, 7, code, 11, 150, &found), -EINVAL); /* too few */
	assert_int_equal(find_bytecode(table, 7, "\x06", 1, 150, &found), -EINVAL); /* no bytecode */
	assert_int_equal(find_bytecode(table, 7, "\x00", 1, 150, &found), -EINVAL); /* a prefix */
	assert_int_equal(find_bytecode("\x82", 1, code, 19, 1, &found), -EINVAL);
	assert_int_equal(find_bytecode("", 0, code, 19, 1, &found), -ENODATA);
	assert_int_equal(found, 17);
}

/* As node 24 writes it for a function with five calls. */
static void test_safepoints(void **state)
{
	static const char text[] = "\x08\0\0\0\x05\0\0\0\xa1\0\0\0\0\0\0\0"
				   "\x20\0\x0b\xe0\x02\0\xc9\0\x0c\xe4\x02\0\x97\x01\x0d\xe8\x02\0"
				   "\x91\x02\x0e\xec\x02\0\xb0\x02\0\0\0\x01";
	uint8_t table[sizeof(text) - 1];
	struct v8_safepoint_sides sides = { false };

	memcpy(table, text, sizeof(table));
	assert_int_equal(v8_safepoints_len(table), sizeof(table));
	assert_int_equal(v8_safepoints_around(table, sizeof(table) - 1, 201, &sides), -EINVAL);
	assert_int_equal(v8_safepoints_around(table, 15, 201, &sides), -EINVAL);
	assert_int_equal(v8_safepoints_around(table, sizeof(table), 31, &sides), 0);
	assert_false(sides.has_before);
	assert_int_equal(sides.after.offset, 32);
	assert_int_equal(v8_safepoints_around(table, sizeof(table), 201, &sides), 0);
	assert_true(sides.has_before && sides.has_after);
	assert_int_equal(sides.before.offset, 201);
	assert_int_equal(sides.before.exit, 11);
	assert_int_equal(sides.before.exit_offset, 739);
	assert_int_equal(sides.after.offset, 407);
	assert_int_equal(v8_safepoints_around(table, sizeof(table), 688, &sides), 0);
	assert_int_equal(sides.before.offset, 657); /* the last one has no exit */
	assert_false(sides.has_after);
	table[8] = 0xa0; /* no exits at all */
	assert_int_equal(v8_safepoints_len(table), 0);
	table[8] = 0xd1; /* offsets of five bytes */
	assert_int_equal(v8_safepoints_around(table, sizeof(table), 201, &sides), -EINVAL);
}

static void test_damaged(void **state)
{
	static const struct {
		const char *table;
		size_t len;
		int rc;
	} rows[] = {
		{ "", 0, -EINVAL },
		{ "\x01\x04\x80", 3, -EINVAL },	   /* a number without end */
		{ "\x01\x04\x06", 3, -EINVAL },	   /* an entry without position */
		{ "\x07\x04", 2, -EINVAL },	   /* another format */
		{ "\x01\x05", 2, -ENODATA },	   /* a place outside of JavaScript */
		{ "\x01\x00", 2, -ENODATA },	   /* no position */
		{ "\x01\x04\xfe\xff\xff\xff\xff\x7f\x04", 9, -EINVAL }, /* a step beyond any function */
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct v8_position position = { 7, 8 };

		assert_int_equal(find(rows[i].table, rows[i].len, 9, &position), rows[i].rc);
		assert_int_equal(position.offset, 7);
		assert_int_equal(position.inlined, 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_node_22),
		cmocka_unit_test(test_node_26),
		cmocka_unit_test(test_inlined),
		cmocka_unit_test(test_sides),
		cmocka_unit_test(test_baseline),
		cmocka_unit_test(test_safepoints),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
