// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "symbolize/jit_name.h"

static void test_forms(void **state)
{
	static const struct {
		const char *text, *function, *file;
		uint32_t line;
	} cases[] = {
		{ "JS:*hot /srv/app.js:12:7", "hot", "/srv/app.js", 12 },
		{ "JS:~hot /srv/app.js:12:7", "hot", "/srv/app.js", 12 },
		{ "LazyCompile:*hot /srv/app.js:12:7", "hot", "/srv/app.js", 12 },
		{ "LazyCompile:~hot /srv/app.js:12", "hot", "/srv/app.js", 12 },
		{ "LazyCompile:~ /srv/app.js:1", "(top level)", "/srv/app.js", 1 },
		{ "Function:^get href node:internal/url:925", "get href", "node:internal/url",
		  925 },
		{ "JS:^get href node:internal/url:925:11", "get href", "node:internal/url", 925 },
		{ "JS:*run /srv/my files/app.js:3:4", "run", "/srv/my files/app.js", 3 },
		{ "JS:+ /srv/app.js:9:21", "(anonymous)", "/srv/app.js", 9 },
		{ "JS:~ /srv/app.js:1:1", "(top level)", "/srv/app.js", 1 },
		{ "Eval:~ [eval]-wrapper:1:1", "(top level)", "[eval]-wrapper", 1 },
		{ "JS:*f app.js:2:3", "f", "app.js", 2 },
		{ "JS:*f", "JS:*f", "", 0 },
		{ "JS:", "JS:", "", 0 },
		{ "JS:*:1:2", "JS:*:1:2", "", 0 },
		{ "JS:*f /a.js:1234567890:2", "JS:*f /a.js:1234567890:2", "", 0 },
		{ "py::C.method:/usr/lib/a.py", "C.method", "/usr/lib/a.py", 0 },
		{ "py::", "py::", "", 0 },
		{ "Lcom/example/Main;::run", "Lcom/example/Main;::run", "", 0 },
		{ "Builtin:ArrayMap", "Builtin:ArrayMap", "", 0 },
		{ "void [app] Shop.Cart`1[System.__Canon]::Add(!0, int32)[OptimizedTier1]",
		  "void [app] Shop.Cart`1[System.__Canon]::Add(!0, int32)", "", 0 },
		{ "int32 [app] Shop.Cart::Sum(int32[])[QuickJitted]",
		  "int32 [app] Shop.Cart::Sum(int32[])", "", 0 },
		{ "int32 [app] Shop.Cart::Sum(int32[])", "int32 [app] Shop.Cart::Sum(int32[])", "",
		  0 },
		{ "stub GenerateLookupStub<[Optimized]>", "stub GenerateLookupStub<[Optimized]>",
		  "", 0 },
		{ "", "", "", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct jit_name name;

		jit_name_parse(cases[i].text, &name);
		assert_string_equal(name.function, cases[i].function);
		assert_string_equal(name.file, cases[i].file);
		assert_int_equal(name.start_line, cases[i].line);
	}
}

static void test_long(void **state)
{
	static char text[3 * JIT_NAME_SIZE];
	struct jit_name name;

	memset(text, 'x', sizeof(text) - 1);
	jit_name_parse(text, &name);
	assert_int_equal(strlen(name.function), JIT_NAME_SIZE - 1);
	memcpy(text, "py::", 4);
	text[6] = ':';
	jit_name_parse(text, &name);
	assert_string_equal(name.function, "xx");
	assert_int_equal(strlen(name.file), JIT_NAME_SIZE - 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(test_forms),
						   cmocka_unit_test(test_long) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
