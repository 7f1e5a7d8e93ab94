// SPDX-License-Identifier: Apache-2.0
/* Demangling of C++ and Rust names, its bounds, and the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "symbolize/demangle.h"
#include "tests/support/elf_fixture.h"

static const struct {
	const char *name, *expected; /* expected NULL: not mangled */
} rows[] = {
	{ "main", NULL },
	{ "", NULL },
	{ "_", NULL },
	{ "_Z", NULL },
	{ "_R", NULL },
	{ "_Zzzzz", NULL },
	{ "_start", NULL },
	{ "_Z3fooi", "foo(int)" },
	{ "_ZN3foo3barIiEEvT_", "void foo::bar<int>(int)" },
	{ "_ZN12_GLOBAL__N_14testEv.cold", "(anonymous namespace)::test() [clone .cold]" },
	{ "_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const" },
	{ "_ZN1AC4Ev", "A::A()" },
	{ "_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write" },
	{ "_ZN61_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcde0E",
	  "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt" },
	{ "_RNvCs1234_7mycrate3foo", "mycrate::foo" },
	{ "_RNvMs_NtCs1234_7mycrate3modNtB4_4Type6method", "<mycrate::mod::Type>::method" },
};

static void test_rows(void **state)
{
	char text[DEMANGLE_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t len = demangle(rows[i].name, text);

		print_message("%s\n", rows[i].name);
		if (!rows[i].expected) {
			assert_int_equal(len, 0);
			continue;
		}
		assert_int_equal(len, strlen(rows[i].expected));
		assert_string_equal(text, rows[i].expected);
	}
}

/* Each level names the two before it twice: the full text would be exponential. */
static void test_bomb(void **state)
{
	char name[4096] = "_Z1f", text[DEMANGLE_TEXT_MAX];
	size_t at = strlen(name), len;

	at += (size_t)snprintf(name + at, sizeof(name) - at, "1AIiiE");
	for (int i = 0; i < 30; i++) {
		char sub[8] = "S_";

		if (i > 0)
			(void)snprintf(sub, sizeof(sub), "S%c_", i <= 10 ? '0' + i - 1 : 'A' + i - 11);
		at += (size_t)snprintf(name + at, sizeof(name) - at, "1BI%s%sE", sub, sub);
	}
	len = demangle(name, text);
	assert_true(len < DEMANGLE_TEXT_MAX);

	memset(name, 'P', sizeof(name) - 1);
	memcpy(name, "_Z1f", 4);
	name[sizeof(name) - 2] = 'i';
	name[sizeof(name) - 1] = '\0';
	assert_true(demangle(name, text) < DEMANGLE_TEXT_MAX);
}

/* Real templates have names that the library's own limit would refuse. */
static void test_long(void **state)
{
	char name[4096] = "_Z1fI", text[DEMANGLE_TEXT_MAX];
	size_t at = strlen(name);

	for (int i = 0; i < 400; i++)
		at += (size_t)snprintf(name + at, sizeof(name) - at, "5Type%c", 'a' + i % 26);
	(void)snprintf(name + at, sizeof(name) - at, "EvT_");
	assert_true(strlen(name) > 2048);
	assert_true(demangle(name, text) > 400 * 7);
	assert_memory_equal(text, "void f<Typea, Typeb, ", 21);
	assert_string_equal(text + strlen(text) - 7, "(Typea)");
}

static void test_like_cppfilt(void **state)
{
	char *names, *plain, *at_name, *at_plain, *save_name, *save_plain;
	char text[DEMANGLE_TEXT_MAX];
	size_t checked = 0;

	names = fixture_output("nm -D --without-symbol-versions --defined-only "
			       "$(ldconfig -p | sed -n 's/.*=> \\(.*libstdc++.so.6\\)$/\\1/p' | head -1)"
			       " | sed 's/.* //' | tee names.txt");
	plain = fixture_output("c++filt -i < names.txt");
	assert_non_null(names);
	assert_non_null(plain);
	at_name = strtok_r(names, "\n", &save_name);
	at_plain = strtok_r(plain, "\n", &save_plain);
	for (; at_name && at_plain; at_name = strtok_r(NULL, "\n", &save_name),
				    at_plain = strtok_r(NULL, "\n", &save_plain)) {
		/* Data symbols have prefixes ("vtable for") but the same rules. */
		assert_string_equal(demangle(at_name, text) ? text : at_name, at_plain);
		checked++;
	}
	print_message("%zu names\n", checked);
	assert_true(checked > 1000);
	free(names);
	free(plain);
}

static void test_cache(void **state)
{
	cleanup(demangle_cache) struct demangle_cache *cache = demangle_cache_create();
	static char names[20000][24];
	const char *first, *plain = "plain";

	assert_non_null(cache);
	assert_ptr_equal(demangle_cached(cache, plain), plain);
	for (int i = 0; i < 20000; i++)
		(void)snprintf(names[i], sizeof(names[i]), "_ZN8name%04x1fEv", i);
	first = demangle_cached(cache, names[0]);
	assert_string_equal(first, "name0000::f()");
	assert_ptr_equal(demangle_cached(cache, names[0]), first);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 20000; i++) {
			char expected[24];

			(void)snprintf(expected, sizeof(expected), "name%04x::f()", i);
			assert_string_equal(demangle_cached(cache, names[i]), expected);
			demangle_cache_trim(cache);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_bomb),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_like_cppfilt),
		cmocka_unit_test(test_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
