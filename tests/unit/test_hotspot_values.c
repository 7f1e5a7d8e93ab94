// SPDX-License-Identifier: Apache-2.0
/* Decoders of HotSpot's structures: packed numbers and line tables of both forms, scopes of inlined
 * methods, names. The bytes of the tables are written here by the rules of unsigned5.hpp; whole
 * tables of real methods are compared with jstack in tests/e2e/test_java_truth.py. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/runtimes/hotspot_lines.h"
#include "agent/runtimes/hotspot_names.h"
#include "agent/runtimes/hotspot_scopes.h"

struct table {
	uint8_t bytes[256];
	size_t len;
};

static void put(struct table *t, uint8_t byte)
{
	t->bytes[t->len++] = byte;
}

static void put_number(struct table *t, enum hotspot_packing packing, uint32_t value)
{
	uint32_t excluded = packing == HOTSPOT_PACKED_WITHOUT_ZERO, low = 192 - excluded;

	for (unsigned i = 0; i < 4 && value >= low; i++) {
		value -= low;
		put(t, (uint8_t)(192 + value % 64));
		value /= 64;
	}
	put(t, (uint8_t)(value + excluded));
}

static void put_signed(struct table *t, enum hotspot_packing packing, int32_t value)
{
	put_number(t, packing, (uint32_t)value << 1 ^ (uint32_t)(value >> 31));
}

static void test_numbers(void **state)
{
	static const uint32_t values[] = { 0,	  1,	 190,	191,	    192,       255,
					   12415, 12416, 70000, 0x7fffffff, 0xffffffff };

	(void)state;
	assert_int_equal(hotspot_packing_of(17), HOTSPOT_PACKED_PLAIN);
	assert_int_equal(hotspot_packing_of(21), HOTSPOT_PACKED_WITHOUT_ZERO);
	for (unsigned packing = 0; packing < 2; packing++) {
		struct table t = { .len = 0 };
		struct bytes in;

		for (size_t i = 0; i < ARRAY_SIZE(values); i++)
			put_number(&t, packing, values[i]);
		in = bytes_of(t.bytes, t.len);
		for (size_t i = 0; i < ARRAY_SIZE(values); i++)
			assert_int_equal(hotspot_unsigned(&in, packing), values[i]);
		assert_false(in.failed);
		assert_int_equal(hotspot_unsigned(&in, packing), 0);
		assert_true(in.failed);
	}
}

static void test_zero_byte(void **state)
{
	struct bytes in = bytes_of("\0\1", 2);

	(void)state;
	assert_int_equal(hotspot_unsigned(&in, HOTSPOT_PACKED_WITHOUT_ZERO), 0);
	assert_true(in.failed);
}

/* (0, 10) (5, 12) (300, 4) (304, 70) */
static void make_lines(struct table *t, enum hotspot_packing packing)
{
	put(t, 0xff);
	put_signed(t, packing, 0);
	put_signed(t, packing, 10);
	put(t, 5 << 3 | 2);
	put(t, 0xff);
	put_signed(t, packing, 295);
	put_signed(t, packing, -8);
	put(t, 0xff);
	put_signed(t, packing, 4);
	put_signed(t, packing, 66);
	put(t, 0);
}

static void test_lines(void **state)
{
	static const uint32_t expected[][2] = {
		{ 0, 10 },  { 4, 10 },	{ 5, 12 },   { 299, 12 },
		{ 300, 4 }, { 303, 4 }, { 304, 70 }, { 65535, 70 }
	};
	uint32_t line, first;

	(void)state;
	for (unsigned packing = 0; packing < 2; packing++) {
		struct table t = { .len = 0 };

		make_lines(&t, packing);
		for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
			assert_int_equal(hotspot_line(t.bytes, t.len, packing, expected[i][0],
						      &line, &first),
					 0);
			assert_int_equal(line, expected[i][1]);
			assert_int_equal(first, 10);
		}
		assert_int_equal(hotspot_line(t.bytes, 3, packing, 65535, &line, &first), -EINVAL);
	}
}

static void test_no_lines(void **state)
{
	uint32_t line = 1, first = 1;

	(void)state;
	assert_int_equal(hotspot_line("\0", 1, HOTSPOT_PACKED_PLAIN, 3, &line, &first), 0);
	assert_int_equal(line, 0);
	assert_int_equal(first, 0);
	assert_int_equal(hotspot_line("", 0, HOTSPOT_PACKED_PLAIN, 3, &line, &first), -EINVAL);
}

static void test_pc_descs(void **state)
{
	static const int32_t descs[][4] = { { -1, 0, 0, 0 },
					    { 16, 0, 0, 0 },
					    { 40, 7, 0, 0 },
					    { 64, 19, 0, 0 },
					    { 1 << 29, 0, 0, 0 } };
	uint32_t begin = 0;

	(void)state;
	assert_int_equal(hotspot_scopes_begin(descs, sizeof(descs), 41, &begin), 0);
	assert_int_equal(begin, 19);
	assert_int_equal(hotspot_scopes_begin(descs, sizeof(descs), 40, &begin), 0);
	assert_int_equal(begin, 7);
	assert_int_equal(hotspot_scopes_begin(descs, sizeof(descs), 3, &begin), -ENODATA);
	assert_int_equal(hotspot_scopes_begin(descs, sizeof(descs), 65, &begin), -ENODATA);
	assert_int_equal(hotspot_scopes_begin(descs, 31, 17, &begin), -ENODATA);
}

static uint32_t put_scope(struct table *t, enum hotspot_packing packing, uint32_t sender,
			  uint32_t method, int32_t bci)
{
	uint32_t begin = (uint32_t)t->len;

	put_number(t, packing, sender);
	put_number(t, packing, method);
	put_number(t, packing, (uint32_t)(bci + 1));
	return begin;
}

static void test_scopes(void **state)
{
	(void)state;
	for (unsigned packing = 0; packing < 2; packing++) {
		struct hotspot_scope scopes[HOTSPOT_SCOPES_MAX];
		struct table t = { .len = 1 };
		uint32_t outer = put_scope(&t, packing, 0, 3, 77);
		uint32_t inner = put_scope(&t, packing, outer, 1, -1);

		assert_int_equal(hotspot_scopes_read(t.bytes, t.len, packing, inner, scopes), 2);
		assert_int_equal(scopes[0].method, 1);
		assert_int_equal(scopes[0].bci, HOTSPOT_BCI_NONE);
		assert_int_equal(scopes[1].method, 3);
		assert_int_equal(scopes[1].bci, 77);
		assert_int_equal(hotspot_scopes_read(t.bytes, t.len - 1, packing, inner, scopes),
				 -EINVAL);
		/* a scope within itself */
		inner = put_scope(&t, packing, (uint32_t)t.len, 1, 5);
		assert_int_equal(hotspot_scopes_read(t.bytes, t.len, packing, inner, scopes),
				 -EINVAL);
	}
}

static void check_names(const char *class_name, const char *expected)
{
	char name[128];

	hotspot_function_name(class_name, strlen(class_name), "run", 3, name, sizeof(name));
	assert_string_equal(name, expected);
}

static void test_names(void **state)
{
	char name[16];

	(void)state;
	check_names("java/lang/String", "java.lang.String.run");
	check_names("Main$1", "Main$1.run");
	check_names("a/Main$$Lambda$14+0x0000000800c03000", "a.Main$$Lambda.run");
	check_names("a/Main$$Lambda$14/0x0000000800c03000", "a.Main$$Lambda.run");
	check_names("a/Main$$Lambda+0x00007f2b1c002200", "a.Main$$Lambda.run");
	check_names("java/lang/invoke/LambdaForm$DMH+0x00007f2b",
		    "java.lang.invoke.LambdaForm$DMH.run");
	check_names("jdk/internal/reflect/GeneratedMethodAccessor12",
		    "jdk.internal.reflect.GeneratedMethodAccessor.run");
	check_names("com/sun/proxy/$Proxy7", "com.sun.proxy.$Proxy.run");
	check_names("x\x01\xff\xed\xa0\x80z", "x?????z.run");
	hotspot_function_name("java/lang/String", 16, "run", 3, name, sizeof(name));
	assert_string_equal(name, "java.lang.Strin");
	hotspot_function_name("12345678901234\xc3\xa4", 16, "run", 3, name, sizeof(name));
	assert_string_equal(name, "12345678901234");
}

static void check_file(const char *class_name, const char *file, const char *expected)
{
	char name[128];

	hotspot_file_name(class_name, strlen(class_name), file, strlen(file), name, sizeof(name));
	assert_string_equal(name, expected);
}

static void test_files(void **state)
{
	(void)state;
	check_file("java/lang/String", "String.java", "java/lang/String.java");
	check_file("Main$1", "Main.java", "Main.java");
	check_file("a/Main$$Lambda$14/0x0000000800c03000", "Main.java", "a/Main.java");
	check_file("a/Main", "", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),	 cmocka_unit_test(test_zero_byte),
		cmocka_unit_test(test_lines),	 cmocka_unit_test(test_no_lines),
		cmocka_unit_test(test_pc_descs), cmocka_unit_test(test_scopes),
		cmocka_unit_test(test_names),	 cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
