// SPDX-License-Identifier: Apache-2.0
/* Functions, inline chains and lines from DWARF: a program whose chain is known, in every DWARF
 * version and packing that the compilers here write, and a C++ program compared with
 * llvm-symbolizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/elf_fixture.h"

/* Line numbers matter below. */
static const char chain_c[] =
	"#define IN static inline __attribute__((always_inline))\n"
	"volatile int sink;\n"
	"IN void leaf(int x)\n"
	"{\n"
	"\tsink = x;\n" /* 5 */
	"}\n"
	"IN void middle(int x)\n"
	"{\n"
	"\tsink = 1;\n"
	"\tleaf(x + 1);\n" /* 10 */
	"}\n"
	"__attribute__((noinline)) void outer(int x)\n" /* 12 */
	"{\n"
	"\tsink = 2;\n"
	"\tmiddle(x);\n" /* 15 */
	"\tsink = 3;\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"\touter(argc);\n"
	"\treturn 0;\n"
	"}\n";

static const char rich_cc[] =
	"#include <algorithm>\n#include <map>\n#include <memory>\n#include <string>\n"
	"#include <vector>\n#include <cstdio>\n"
	"namespace app { namespace {\n"
	"struct Point { int x, y; bool operator<(const Point &o) const { return x < o.x; } };\n"
	"template <typename T, int N> struct Ring { T d[N]; int at = 0;\n"
	" void push(const T &t) { d[at++ % N] = t; } T sum() const { T s{}; for (auto &v : d) s += v;"
	" return s; } };\n}\n"
	"struct Shape { virtual ~Shape() {} virtual double area() const = 0; };\n"
	"struct Square : Shape { double s; Square(double v) : s(v) {} double area() const override"
	" { return s * s; } };\n}\n"
	"extern \"C\" int plain(int x) { struct Local { static int f(int v) { return v * 7; } };"
	" return Local::f(x); }\n"
	"int main(int argc, char **argv) {\n"
	" std::map<app::Point, std::string> m;\n"
	" for (int i = 0; i < argc; i++) m[{i, i}] = std::to_string(i);\n"
	" std::vector<std::unique_ptr<app::Shape>> v; v.push_back(std::make_unique<app::Square>(2));\n"
	" std::vector<int> n(100); std::generate(n.begin(), n.end(), [k = 0]() mutable { return k++ * 7"
	" % 13; });\n"
	" std::sort(n.begin(), n.end(), [](int a, int b) { return a > b; });\n"
	" app::Ring<long, 16> ring; for (int x : n) ring.push(x);\n"
	" printf(\"%ld %f %d\\n\", ring.sum() + (long)m.size(), v[0]->area(), plain(argc)); }\n";

static int set_up(void **state)
{
	fixture_write("chain.c", chain_c);
	fixture_write("rich.cc", rich_cc);
	return 0;
}

struct expected {
	const char *function;
	unsigned line, start_line;
};

static void check_chain(const struct symbol_index *index, uint64_t fo, uint64_t size)
{
	static const struct expected expected[] = { { "leaf", 5, 3 }, { "middle", 10, 7 },
						     { "outer", 15, 12 } };
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	unsigned seen_leaf = 0, seen_middle = 0, seen_outer = 0;

	for (uint64_t at = fo; at < fo + size; at++) {
		int count = symbol_index_find(index, at, frames);

		assert_in_range(count, 1, 3);
		for (int i = 0; i < count; i++) {
			const struct expected *want = &expected[3 - count + i];

			assert_string_equal(frames[i].function, want->function);
			assert_int_equal(frames[i].start_line, want->start_line);
			assert_non_null(strstr(frames[i].file, "/chain.c"));
			assert_int_equal(frames[i].file[0], '/');
			if (i > 0)
				assert_int_equal(frames[i].line, want->line);
		}
		seen_leaf += count == 3 && frames[0].line == 5;
		seen_middle += count == 2 && frames[0].line == 9;
		seen_outer += count == 1;
	}
	assert_true(seen_leaf && seen_middle && seen_outer);
}

static const struct {
	const char *compile, *file, *debug;
} variants[] = {
	{ "gcc -gdwarf-2 -O1 -o c2 chain.c", "c2", NULL },
	{ "gcc -gdwarf-3 -gstrict-dwarf -O1 -o c3 chain.c", "c3", NULL },
	{ "gcc -gdwarf-4 -O2 -o c4 chain.c", "c4", NULL },
	{ "gcc -gdwarf-5 -O2 -o c5 chain.c", "c5", NULL },
	{ "gcc -gdwarf-5 -gdwarf64 -O2 -o c64 chain.c", "c64", NULL },
	{ "gcc -g -O2 -flto -o clto chain.c", "clto", NULL },
	{ "gcc -g -O2 -no-pie -o cnopie chain.c", "cnopie", NULL },
	{ "gcc -g -O2 -fdebug-types-section -o ctypes chain.c", "ctypes", NULL },
	{ "gcc -g -O2 -ffunction-sections -o csections chain.c", "csections", NULL },
	{ "gcc -gdwarf-4 -gz=zlib-gnu -O2 -o czgnu chain.c", "czgnu", NULL },
	{ "gcc -g -gz=zlib -O2 -o czlib chain.c", "czlib", NULL },
	{ "objcopy --compress-debug-sections=zstd c5 czstd", "czstd", NULL },
	{ "objcopy --only-keep-debug c5 c5.debug && strip -o c5.stripped c5", "c5.stripped",
	  "c5.debug" },
	{ "objcopy --only-keep-debug c4 c4.debug && strip --strip-debug -o c4.nodebug c4",
	  "c4.nodebug", "c4.debug" },
};

static void test_chain(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++) {
		struct symbol_index *index;
		uint64_t size = 0, ev;

		print_message("%s\n", variants[i].compile);
		assert_true(fixture_run("%s", variants[i].compile));
		index = fixture_index(variants[i].file, variants[i].debug);
		assert_true(symbol_index_origins(index) & SYMBOL_ORIGIN_DWARF);
		ev = fixture_symbol(variants[i].debug ? variants[i].debug : variants[i].file,
				    "outer", &size);
		assert_true(ev && size);
		check_chain(index, fixture_offset(variants[i].file, ev), size);
		symbol_index_destroy(index);
	}
}

static void test_chain_clang(void **state)
{
	static const char *const flags[] = { "-gdwarf-2", "-gdwarf-4", "-gdwarf-5", "-gdwarf-5 -gz" };

	if (!fixture_has("clang-14")) {
		print_message("skipped: no clang-14\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		struct symbol_index *index;
		uint64_t size = 0, ev;

		print_message("clang %s\n", flags[i]);
		assert_true(fixture_run("clang-14 %s -O2 -o clang chain.c", flags[i]));
		index = fixture_index("clang", NULL);
		ev = fixture_symbol("clang", "outer", &size);
		check_chain(index, fixture_offset("clang", ev), size);
		symbol_index_destroy(index);
	}
}

/* A frame as text: function, file, line, first line. */
static void add_frame(char *text, size_t size, const char *function, const char *line)
{
	size_t at = strlen(text);

	(void)snprintf(text + at, size - at, "%s %s\n", function, line);
}

static void our_answer(const struct symbol_index *index, uint64_t fo, char *ret, size_t size)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	int count = symbol_index_find(index, fo, frames);

	ret[0] = '\0';
	for (int i = 0; i < count; i++) {
		char line[1024];

		(void)snprintf(line, sizeof(line), "%s:%u",
			       frames[i].file[0] ? frames[i].file : "??", frames[i].line);
		add_frame(ret, size, frames[i].function, line);
	}
}

/* dwz moves what several files have in common into one that all refer to. */
static void test_dwz(void **state)
{
	static char whole[1 << 18], moved[1 << 18];
	struct symbol_index *before, *after, *without = NULL;
	struct fixture_elf file;
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	uint64_t size = 0, fo;

	if (!fixture_has("dwz")) {
		print_message("skipped: no dwz\n");
		skip();
	}
	assert_true(fixture_run("g++ -g -O2 -std=c++17 -o rich rich.cc && cp rich one && "
				"cp rich two && dwz -m common.debug one two && "
				"readelf -SW one | grep -q gnu_debugaltlink"));
	before = fixture_index("rich", NULL);
	after = fixture_index("one", NULL);
	file = fixture_open("one");
	assert_int_equal(symbol_index_build(file.elf, NULL, &without), 0);
	fo = fixture_offset("rich", fixture_symbol("rich", "main", &size));
	for (uint64_t at = fo; at < fo + size; at++) {
		int count = symbol_index_find(without, at, frames);

		our_answer(before, at, whole, sizeof(whole));
		our_answer(after, at, moved, sizeof(moved));
		assert_string_equal(moved, whole);
		/* Without the common file some frames are missing or less qualified, never empty. */
		assert_true(count >= 1);
		for (int i = 0; i < count; i++)
			assert_string_not_equal(frames[i].function, "");
	}
	symbol_index_destroy(before);
	symbol_index_destroy(after);
	symbol_index_destroy(without);
	fixture_close(&file);
}

/* The same code: every address has the same chain, files and lines, whatever file they come from.
 */
static void check_same_answers(const struct symbol_index *expected,
			       const struct symbol_index *index, uint64_t fo, uint64_t end)
{
	static char want[1 << 18], got[1 << 18];

	for (uint64_t at = fo; at < end; at++) {
		our_answer(expected, at, want, sizeof(want));
		our_answer(index, at, got, sizeof(got));
		assert_string_equal(got, want);
	}
}

/* The larger part of the debug information in files of its own, one per compilation, or all of them
 * packed. */
static void test_split(void **state)
{
	static const char *const compilers[] = { "g++ -gdwarf-4", "g++ -gdwarf-5", "clang++-14 -gdwarf-4",
						 "clang++-14 -gdwarf-5 -fsplit-dwarf-inlining" };

	fixture_write("two.cc", "int twice(int x) { return x * 2; }\n");
	for (size_t i = 0; i < ARRAY_SIZE(compilers); i++) {
		struct symbol_index *whole, *single, *packed;
		struct symbol_frame frames[SYMBOL_INLINE_MAX];
		uint64_t size = 0, fo;

		print_message("%s\n", compilers[i]);
		if (!fixture_has("clang++-14") && strstr(compilers[i], "clang")) {
			print_message("skipped: no clang++-14\n");
			continue;
		}
		assert_true(fixture_run("rm -f *.dwo *.dwp; "
					"%s -O2 -std=c++17 -o whole rich.cc two.cc && "
					"%s -gsplit-dwarf -O2 -std=c++17 -o split rich.cc two.cc && "
					"ls *.dwo",
					compilers[i], compilers[i]));
		whole = fixture_index("whole", NULL);
		single = fixture_index("split", NULL);
		fo = fixture_offset("whole", fixture_symbol("whole", "main", &size));
		assert_int_equal(fo, fixture_offset("split", fixture_symbol("split", "main", NULL)));
		check_same_answers(whole, single, fo, fo + size);
		assert_true(fixture_run("llvm-dwp-14 -e split -o split.dwp && rm -f *.dwo"));
		packed = fixture_index("split", NULL);
		check_same_answers(whole, packed, fo, fo + size);
		assert_int_equal(symbol_index_find(packed,
						   fixture_offset("split", fixture_symbol("split", "_Z5twicei", NULL)),
						   frames),
				 1);
		assert_string_equal(frames[0].function, "twice(int)");
		assert_int_equal(frames[0].start_line, 1);
		symbol_index_destroy(packed);
		symbol_index_destroy(single);
		symbol_index_destroy(whole);
		/* Without either there are lines and symbols. */
		assert_true(fixture_run("rm -f split.dwp"));
		single = fixture_index("split", NULL);
		assert_true(symbol_index_find(single, fo, frames) >= 1);
		assert_non_null(strstr(frames[0].file, "/rich.cc"));
		symbol_index_destroy(single);
	}
}

/* llvm-symbolizer prints a function and a "file:line:column" line per frame, then an empty line.
 * Its unqualified names of functions without linkage name count as equal to our qualified ones. */
static bool same_frame(const char *ours, const char *function, const char *place)
{
	const char *ours_place = strrchr(ours, ' ');
	size_t name_len = (size_t)(ours_place - ours), len = strlen(function);
	size_t place_len = strlen(ours_place + 1);

	if (name_len < len || memcmp(ours + name_len - len, function, len) ||
	    (name_len > len && (name_len < len + 2 || ours[name_len - len - 1] != ':')))
		return false;
	/* Without DWARF theirs may name a file (STT_FILE), but no line. */
	if (!strcmp(ours_place, " ??:0"))
		return strstr(place, ":0:0") != NULL;
	return !strncmp(place, ours_place + 1, place_len) && place[place_len] == ':';
}

static bool same_chain(char *ours, char **llvm)
{
	char *save = NULL, *at = strtok_r(ours, "\n", &save);
	bool same = true;

	while (**llvm && **llvm != '\n') {
		char *function = strsep(llvm, "\n"), *place = strsep(llvm, "\n");

		if (!place)
			return false;
		same = same && at && same_frame(at, function, place);
		at = strtok_r(NULL, "\n", &save);
	}
	if (**llvm)
		(*llvm)++;
	return same && !at;
}

static void compare(const char *file)
{
	struct symbol_index *index = fixture_index(file, NULL);
	uint64_t text_ev, text_size, step;
	size_t checked = 0, equal = 0;
	static char ours[1 << 18];
	char *out, *at, *first = NULL;

	out = fixture_output("readelf -SW %s | sed -n 's/.* \\.text *PROGBITS *//p'", file);
	assert_non_null(out);
	text_ev = strtoull(out, &at, 16);
	(void)strtoull(at, &at, 16);
	text_size = strtoull(at, NULL, 16);
	free(out);
	assert_true(text_size > 1000);
	step = text_size / 3000 + 1;
	out = fixture_output("i=%llu; while [ $i -lt %llu ]; do printf '0x%%x\\n' $i; "
			     "i=$((i+%llu)); done | llvm-symbolizer-14 --inlines --no-demangle "
			     "--obj=%s | c++filt -i",
			     (unsigned long long)text_ev,
			     (unsigned long long)(text_ev + text_size), (unsigned long long)step,
			     file);
	assert_non_null(out);
	at = out;
	for (uint64_t ev = text_ev; ev < text_ev + text_size; ev += step) {
		bool known = strncmp(at, "??\n", 3);

		our_answer(index, fixture_offset(file, ev), ours, sizeof(ours));
		if (!known) {
			/* Padding and code without debug information: theirs has no lines either. */
			at = strstr(at, "\n\n") + 2;
			continue;
		}
		checked++;
		if (same_chain(ours, &at))
			equal++;
		else if (!first) {
			our_answer(index, fixture_offset(file, ev), ours, sizeof(ours));
			first = strdup(ours);
			print_message("differs at %llx:\n%s", (unsigned long long)ev, first);
		}
	}
	print_message("%s: %zu of %zu equal\n", file, equal, checked);
	assert_true(checked > 500);
	assert_true(equal * 1000 >= checked * 995);
	free(first);
	free(out);
	symbol_index_destroy(index);
}

static void test_like_llvm(void **state)
{
	static const char *const compilers[] = { "g++ -gdwarf-5", "g++ -gdwarf-4", "g++ -flto",
						 "clang++-14 -gdwarf-5", "clang++-14 -gdwarf-4" };

	if (!fixture_has("llvm-symbolizer-14") || !fixture_has("clang++-14")) {
		print_message("skipped: no llvm-symbolizer-14 or clang++-14\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(compilers); i++) {
		print_message("%s\n", compilers[i]);
		assert_true(fixture_run("%s -g -O2 -std=c++17 -o rich rich.cc", compilers[i]));
		compare("rich");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_chain_clang),
		cmocka_unit_test(test_dwz),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_like_llvm),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
