// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "agent/base/cleanup.h"
#include "agent/runtimes/v8_positions.h"
#include "agent/runtimes/v8_translations.h"

/* As node 24 writes it for a function with another one inlined. The second translation repeats the
 * whole first one, the last one its first seven operations. */
static const uint8_t node_24[] = {
	0x0e, 0x00, 0x04, 0x04, 0x01, 0x0c, 0x02, 0x00, 0x02, 0x26, 0x04, 0x28, 0x03, 0x26, 0x06, 0x25,
	0x25, 0x25, 0x01, 0x26, 0x00, 0x02, 0x02, 0x26, 0x08, 0x26, 0x0a, 0x26, 0x0c, 0x26, 0x06, 0x25,
	0x25, 0x27, 0x01, 0x0e, 0x23, 0x04, 0x04, 0x3c, 0x0e, 0x28, 0x02, 0x02, 0x01, 0x03, 0x02, 0x00,
	0x02, 0x33, 0x0e, 0x32, 0x04, 0x04, 0x34, 0x00, 0x1e, 0x00, 0x02, 0x02, 0x00, 0x02, 0x33, 0x25,
};

static void test_node_24(void **state)
{
	static const struct {
		uint32_t index;
		int count;
		struct v8_frame frames[2];
	} rows[] = {
		{ 0, 2, { { 1, 6 }, { 0, 19 } } },
		{ 35, 2, { { 1, 6 }, { 0, 19 } } },
		{ 40, 1, { { 1, V8_ENTRY } } },
		{ 50, 2, { { 1, 6 }, { 0, 15 } } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct v8_frame frames[2] = { { 0 } };

		assert_int_equal(v8_translation_frames(V8_OPERATIONS_13, node_24, sizeof(node_24),
						       rows[i].index, frames, 2),
				 rows[i].count);
		assert_memory_equal(frames, rows[i].frames,
				    (size_t)rows[i].count * sizeof(*frames));
	}
}

static int frames_of(enum v8_operations set, const char *table, size_t len, uint32_t index,
		     struct v8_frame ret[2])
{
	return v8_translation_frames(set, (const uint8_t *)table, len, index, ret, 2);
}

/* A builtin's frame, one of a constructor between two functions, and a count of repeated operations
 * that needs a byte of its own. */
static void test_made(void **state)
{
	static const char builtin[] = "\x0c\x00\x02\x02\x02\x86\x05\x08\x00";
	static const char constructor[] = "\x0c\x00\x06\x04\x01\x0e\x02\x04\x20\x05\x04\x01\x08\x00\x02";
	static const char repeats[] = "\x0e\x00\x02\x02\x01\x0a\x02\x00\x00"
				      "\x0e\x09\x02\x02\x2c\x01";
	struct v8_frame frames[2];

	assert_int_equal(frames_of(V8_OPERATIONS_12, builtin, sizeof(builtin) - 1, 0, frames), 1);
	assert_int_equal(frames[0].literal, 4);
	assert_int_equal(frames[0].bytecode, V8_BUILTIN);
	assert_int_equal(frames_of(V8_OPERATIONS_12, constructor, sizeof(constructor) - 1, 0, frames),
			 2);
	assert_int_equal(frames[0].bytecode, 7);
	assert_int_equal(frames[1].literal, 0);
	assert_int_equal(frames[1].bytecode, 4);
	assert_int_equal(frames_of(V8_OPERATIONS_13, repeats, sizeof(repeats) - 1, 9, frames), 1);
	assert_int_equal(frames[0].bytecode, 5);
}

static void test_damaged(void **state)
{
	static const struct {
		const char *table;
		size_t len;
		uint32_t index;
		int rc;
	} rows[] = {
		{ "", 0, 0, -EINVAL },
		{ "\x0e\x00\x02\x02", 4, 4, -EINVAL },		   /* behind the end */
		{ "\x0d\x00\x02\x02\x01\x00\x00\x00\x00", 9, 0, -EINVAL }, /* no begin */
		{ "\x0e\x00\x02\x02\x01\x00\x00\x00", 8, 0, -EINVAL },	   /* ends in a frame */
		{ "\x0e\x00\x00\x00\x01\x00\x00\x00\x00", 9, 0, -ENODATA }, /* no frames */
		{ "\x0e\x00\x06\x06\x01\x00\x00\x00\x00", 9, 0, -ENODATA }, /* too many */
		{ "\x0e\x00\x02\x03\x01\x00\x00\x00\x00", 9, 0, -ENODATA }, /* less than none */
		{ "\x0e\x00\x04\x04\x01\x00\x00\x00\x00\x0e", 10, 0, -EINVAL }, /* one too few */
		{ "\x0e\x00\x02\x02\x01\x05\x00\x00\x00", 9, 0, -EINVAL }, /* bytecode -2 */
		{ "\x0e\x00\x02\x02\x01\x00\x03\x00\x00", 9, 0, -EINVAL }, /* literal -1 */
		{ "\x0e\x00\x02\x02\x2e", 5, 0, -EINVAL },	   /* repeats nothing */
		{ "\x0e\x01\x02\x02\x2e", 5, 0, -EINVAL },	   /* a basis in front of the table */
		{ "\x0e\x00\x02\x02\x2d", 5, 0, -EINVAL },	   /* repeats no operation */
		{ "\x2e\x0e\x01\x02\x02\x2e", 6, 1, -EINVAL },	   /* a basis that repeats */
		{ "\x0e\x80\x80\x80\x80\x80\x00\x02\x02", 9, 0, -EINVAL }, /* a long number */
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct v8_frame frames[2];

		assert_int_equal(frames_of(V8_OPERATIONS_13, rows[i].table, rows[i].len,
					   rows[i].index, frames),
				 rows[i].rc);
	}
	assert_int_equal(v8_translation_frames(V8_OPERATIONS_UNKNOWN, node_24, sizeof(node_24), 0,
					       NULL, 0),
			 -ENODATA);
	assert_int_equal(v8_translation_frames(V8_OPERATIONS_END, node_24, sizeof(node_24), 0, NULL,
					       0),
			 -ENODATA);
}

static void test_tables(void **state)
{
	int32_t table[V8_OPERATIONS_MAX];

	assert_int_equal(v8_operations_table(V8_OPERATIONS_UNKNOWN, table), 0);
	assert_int_equal(v8_operations_table(V8_OPERATIONS_END, table), 0);
	assert_int_equal(v8_operations_table(V8_OPERATIONS_12, table), 40);
	assert_int_equal(table[0], 5);
	assert_int_equal(table[39], 1);
	assert_int_equal(v8_operations_table(V8_OPERATIONS_13, table), 45);
	assert_int_equal(table[14], 3);
	assert_int_equal(table[44], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_node_24),
		cmocka_unit_test(test_made),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
