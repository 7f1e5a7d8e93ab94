// SPDX-License-Identifier: Apache-2.0
/* CPython's strings and offsets, from bytes. That the offsets are those of real interpreters is
 * checked on processes (tests/bpf/test_reader_python.c). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/runtimes/cpython_layout.h"
#include "agent/runtimes/cpython_strings.h"
#include "agent/runtimes/unicode.h"

/* ---- strings --------------------------------------------------------------------------------- */

static void test_widths(void **state)
{
	static const uint16_t ucs2[] = { 'a', 0xe9, 0x20ac, 0xd800 };
	static const uint32_t ucs4[] = { 0x1f40d, 0x110000, 'z' };
	char text[64];

	assert_int_equal(unicode_utf8("main\xe9\n", 6, 1, text, sizeof(text)), 9);
	assert_string_equal(text, "main\xc3\xa9\xef\xbf\xbd");
	(void)unicode_utf8(ucs2, 4, 2, text, sizeof(text));
	assert_string_equal(text, "a\xc3\xa9\xe2\x82\xac\xef\xbf\xbd");
	(void)unicode_utf8(ucs4, 3, 4, text, sizeof(text));
	assert_string_equal(text, "\xf0\x9f\x90\x8d\xef\xbf\xbdz");
}

static void test_cut(void **state)
{
	static const uint16_t euros[] = { 0x20ac, 0x20ac };
	char text[8];

	assert_int_equal(unicode_utf8(euros, 2, 2, text, 7), 6);
	assert_int_equal(unicode_utf8(euros, 2, 2, text, 6), 3);
	assert_string_equal(text, "\xe2\x82\xac");
	assert_int_equal(unicode_utf8(euros, 2, 2, text, 1), 0);
}

static void test_heads(void **state)
{
	struct cpython_string s;

	/* interned 1, kind 1, compact, ascii */
	assert_int_equal(cpython_string_head(3, 1 | 1 << 2 | 1 << 5 | 1 << 6, &s), 0);
	assert_true(s.is_ascii && s.width == 1 && s.chars == 3);
	assert_int_equal(cpython_string_head(3, 2 << 2 | 1 << 5, &s), 0);
	assert_true(!s.is_ascii && s.width == 2);
	assert_int_equal(cpython_string_head(3, 1 << 2, &s), -EINVAL);
	assert_int_equal(cpython_string_head(3, 3 << 2 | 1 << 5, &s), -EINVAL);
	assert_int_equal(cpython_string_head(3, 2 << 2 | 1 << 5 | 1 << 6, &s), -EINVAL);
	assert_int_equal(cpython_string_head(1ull << 63, 1 << 2 | 1 << 5, &s), -EINVAL);
}

/* ---- offsets --------------------------------------------------------------------------------- */

static void test_table(void **state)
{
	struct script_python p;

	for (unsigned minor = 8; minor <= 12; minor++) {
		assert_int_equal(cpython_layout_of_version(minor, &p), 0);
		assert_int_equal(p.version, 0x0300 | minor);
		assert_true(p.chain && p.cookie_words && p.code_linetable && p.str_compact_data);
		assert_true(p.cookie_words <= SCRIPT_COOKIE_WORDS);
		assert_true(p.frame_instr <= SCRIPT_PYTHON_FRAME_BYTES - 8);
	}
	assert_int_equal(cpython_layout_of_version(7, &p), -EOPNOTSUPP);
	assert_int_equal(cpython_layout_of_version(13, &p), -EOPNOTSUPP);
}

/* The words of 3.13.0 as built for x86-64 with the GIL. */
static const uint64_t words_313[CPYTHON_DEBUG_OFFSETS_BYTES / 8] = {
	0,    51183856, 0,	283320, 608, 632, 194968, 7272, 7264, 7344, 7400, 7656, 7640,
	7648, 16,	7752,	0,	7768, 7760, 304,    0,	  8,    16,   72,   152,  160,
	232,  32,	80,	8,	0,   56,   72,	   70,	  208,  112,  120,  128,  136,
	68,   52,	96,	104,	200, 16,   8,	   416,	  24,   88,   168,  32,	  24,
	16,   40,	24,	16,	48,  32,   40,	   24,	  16,   32,   16,   24,	  40,
	16,   32,	64,	32,	16,  40,   240,	   200,
};

static int layout_of(const uint64_t *words, struct script_python *ret)
{
	uint64_t copy[CPYTHON_DEBUG_OFFSETS_BYTES / 8];

	memcpy(copy, words, sizeof(copy));
	memcpy(copy, "xdebugpy", 8);
	return cpython_layout_of_runtime(copy, sizeof(copy), ret);
}

static void test_debug_offsets(void **state)
{
	uint64_t changed[CPYTHON_DEBUG_OFFSETS_BYTES / 8];
	struct script_python p;

	assert_int_equal(layout_of(words_313, &p), 0);
	assert_int_equal(p.version, 0x030d);
	assert_int_equal(p.chain, SCRIPT_PYTHON_SHIM);
	assert_int_equal(p.flags, 0);
	assert_int_equal(p.runtime_interpreters, 632);
	assert_int_equal(p.interp_next, 7264);
	assert_int_equal(p.interp_threads, 7344);
	assert_int_equal(p.thread_frame, 72);
	assert_int_equal(p.thread_native_id, 160);
	assert_int_equal(p.frame_entry, 70);
	assert_int_equal(p.code_bytecode, 200);
	assert_int_equal(p.str_compact_data, 56);
	/* without the GIL: 3.13 is read, 3.14 is refused */
	memcpy(changed, words_313, sizeof(changed));
	changed[2] = 1;
	assert_int_equal(layout_of(changed, &p), 0);
	assert_int_equal(p.flags, SCRIPT_PYTHON_FREE_THREADED);
	changed[1] = 0x030e00f0;
	assert_int_equal(layout_of(changed, &p), -EOPNOTSUPP);
	/* every offset out of range, one after another */
	for (size_t i = 0; i < 71; i++) {
		memcpy(changed, words_313, sizeof(changed));
		changed[i] = 1ull << 40;
		if (i == 1)
			assert_int_equal(layout_of(changed, &p), -EOPNOTSUPP);
		else if (i == 5 || i == 8 || i == 9 || (i >= 21 && i <= 25) || (i >= 29 && i <= 31) || i == 33 ||
			 (i >= 35 && i <= 39) || i == 43 || i == 45 || i == 65 || i == 66 || (i >= 67 && i <= 70))
			assert_int_equal(layout_of(changed, &p), -EINVAL);
	}
	assert_int_equal(cpython_layout_of_runtime(words_313, sizeof(words_313), &p), -ENODATA);
	assert_int_equal(cpython_layout_of_runtime("xdebugpy", 8, &p), -ENODATA);
}

/* ---- cookies --------------------------------------------------------------------------------- */

/* An object that lies elsewhere changes a word by a small number, or two words by the same: another
 * cookie. Words behind the counted ones are not read. */
static void test_cookie(void **state)
{
	uint64_t words[SCRIPT_COOKIE_WORDS];

	for (uint64_t i = 0; i < SCRIPT_COOKIE_WORDS; i++)
		words[i] = 0x7f0012345000 + i * 0x1230;
	for (uint32_t count = 1; count <= SCRIPT_COOKIE_WORDS; count++) {
		const uint32_t cookie = script_cookie(words, count);

		for (uint32_t at = 0; at < SCRIPT_COOKIE_WORDS; at++) {
			for (uint64_t delta = 1; delta <= 1 << 20; delta *= 2) {
				words[at] += delta;
				assert_int_equal(script_cookie(words, count) == cookie, at >= count);
				for (uint32_t other = at + 1; other < count; other++) {
					words[other] -= delta;
					assert_int_not_equal(script_cookie(words, count), cookie);
					words[other] += 2 * delta;
					assert_int_not_equal(script_cookie(words, count), cookie);
					words[other] -= delta;
				}
				words[at] -= delta;
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cookie),
		cmocka_unit_test(test_widths), cmocka_unit_test(test_cut),
		cmocka_unit_test(test_heads),  cmocka_unit_test(test_table),
		cmocka_unit_test(test_debug_offsets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
