// SPDX-License-Identifier: Apache-2.0
/* Names of Go programs from pclntab: a known inline chain and every function as `go tool addr2line`
 * has it, in every build mode, stripped, without section headers, and by every toolchain at hand.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/elf_fixture.h"

/* Line numbers matter below. */
static const char main_go[] = "package main\n\n"
			      "import (\n\t\"fmt\"\n\t\"os\"\n)\nvar sink int\n"
			      "func leaf(x int) int {\n" /* 8 */
			      "\tsink = x*3 + 1; return x\n"
			      "}\n\n"
			      "func middle(x int) int {\n" /* 12 */
			      "\ty := leaf(x + 1)\n"
			      "\treturn y * x\n"
			      "}\n\n"
			      "//go:noinline\n"
			      "func outer(x int) int {\n" /* 18 */
			      "\tz := middle(x)\n"
			      "\treturn z * x\n"
			      "}\n\n"
			      "type T struct{ n int }\n\n"
			      "//go:noinline\n"
			      "func (t *T) Method() int { return t.n * outer(t.n) }\n\n"
			      "func main() {\n"
			      "\tt := &T{len(os.Args)}\n"
			      "\tfmt.Println(t.Method(), func() int { return t.n }())\n"
			      "}\n";

static const char generic_go[] = "package main\n\n"
				 "import \"fmt\"\n\n"
				 "type P[K comparable, V any] struct {\n\tk K\n\tv V\n}\n\n"
				 "//go:noinline\n"
				 "func (p *P[K, V]) Get() V { return p.v }\n\n"
				 "//go:noinline\n"
				 "func Map[T, U any](in []T, f func(T) U) []U {\n"
				 "\tvar out []U\n"
				 "\tfor _, x := range in {\n\t\tout = append(out, f(x))\n\t}\n"
				 "\treturn out\n}\n\n"
				 "func main() {\n"
				 "\tp := &P[string, []int]{\"a\", []int{1, 2}}\n"
				 "\tfmt.Println(Map(p.Get(), func(i int) string { return fmt.Sprint(i) }))\n"
				 "}\n";

static int set_up(void **state)
{
	fixture_write("go.mod", "module example.com/prog\n\ngo 1.16\n");
	fixture_write("main.go", main_go);
	assert_true(fixture_run("mkdir -p generic"));
	fixture_write("generic/go.mod", "module example.com/generic\n\ngo 1.18\n");
	fixture_write("generic/main.go", generic_go);
	return 0;
}

static bool has_go(void)
{
	if (fixture_has("go"))
		return true;
	print_message("skipped: no go\n");
	return false;
}

/* @path without section headers, as some packers leave it. */
static void remove_sections(const char *path, const char *to)
{
	static const uint8_t zero[8];
	char full[256];
	int fd;

	assert_true(fixture_run("cp %s %s", path, to));
	(void)snprintf(full, sizeof(full), "%s/%s", fixture_dir(), to);
	fd = open(full, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, zero, 8, 40), 8); /* e_shoff */
	assert_int_equal(pwrite(fd, zero, 6, 58), 6); /* e_shentsize, e_shnum, e_shstrndx */
	close(fd);
}

static const struct {
	const char *function;
	unsigned line, start_line;
} chain[] = { { "main.leaf", 9, 8 }, { "main.middle", 13, 12 }, { "main.outer", 19, 18 } };

/* Go before 1.20 does not record where functions begin. */
static void check_chain(const struct symbol_index *index, uint64_t fo, uint64_t size, bool is_old)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	unsigned seen_leaf = 0, seen_outer = 0;

	for (uint64_t at = fo; at < fo + size; at++) {
		int count = symbol_index_find(index, at, frames);

		assert_in_range(count, 1, 3);
		for (int i = 0; i < count; i++) {
			assert_string_equal(frames[i].function, chain[3 - count + i].function);
			assert_non_null(strstr(frames[i].file, "main.go"));
			if (!is_old)
				assert_int_equal(frames[i].start_line,
						 chain[3 - count + i].start_line);
			if (i > 0)
				assert_int_equal(frames[i].line, chain[3 - count + i].line);
		}
		seen_leaf += count == 3 && frames[0].line == 9;
		seen_outer += count == 1;
	}
	assert_true(seen_leaf && seen_outer);
}

/* As the runtime prints type arguments; the tool leaves some in full. */
static void fold(const char *name, char *ret, size_t size)
{
	const char *open = strchr(name, '['), *close = strrchr(name, ']');

	if (open && close > open)
		(void)snprintf(ret, size, "%.*s[...%s", (int)(open - name), name, close);
	else
		(void)snprintf(ret, size, "%s", name);
}

/* All functions: our outermost frame and innermost line against the toolchain's own reader. */
static void check_like_go(const struct symbol_index *index, const char *path, const char *symbols)
{
	char *list = fixture_output("nm %s | sed -n 's/^0*\\([0-9a-f]*\\) [tT] .*/0x\\1/p' | "
				    "tee list.txt",
				    symbols);
	char *answers = fixture_output("go tool addr2line %s < list.txt", path);
	char *save_list, *address, *at = answers;
	size_t checked = 0;

	assert_non_null(list);
	assert_non_null(answers);
	for (address = strtok_r(list, "\n", &save_list); address;
	     address = strtok_r(NULL, "\n", &save_list)) {
		char *function = strsep(&at, "\n"), *place = strsep(&at, "\n");
		struct symbol_frame frames[SYMBOL_INLINE_MAX];
		uint64_t fo = fixture_offset(symbols, strtoull(address, NULL, 16));
		char ours[1024], folded[4096];
		int count = symbol_index_find(index, fo, frames);

		assert_non_null(place);
		if (!strcmp(function, "?") || !count)
			continue;
		(void)snprintf(ours, sizeof(ours), "%s:%u", frames[0].file, frames[0].line);
		fold(function, folded, sizeof(folded));
		/* The tool's name of a wrapper is not compared: a wrapper's own frame is left out.
		 * */
		if (strcmp(place + strcspn(place, ":"), ":1") != 0 || strncmp(place, "<autogenerated>", 15) != 0)
			assert_string_equal(frames[count - 1].function, folded);
		if (frames[0].line) /* theirs says -1, or a first line, for code without lines */
			assert_string_equal(ours, place);
		checked++;
	}
	print_message("%s: %zu functions\n", path, checked);
	assert_true(checked > 500);
	free(list);
	free(answers);
}

static void check_file(const char *path, const char *symbols, bool is_old)
{
	struct symbol_index *index = fixture_index(path, NULL);
	uint64_t size = 0, ev = fixture_symbol(symbols, "main.outer", &size);

	print_message("%s\n", path);
	assert_true(ev && size);
	assert_true(symbol_index_origins(index) & SYMBOL_ORIGIN_GOPCLNTAB);
	check_chain(index, fixture_offset(symbols, ev), size, is_old);
	symbol_index_destroy(index);
}

static void test_build_modes(void **state)
{
	static const char *const modes[] = { "-buildmode=exe", "-buildmode=pie",
					     "-ldflags=-linkmode=external",
					     "-buildmode=pie -ldflags=-linkmode=external" };

	if (!has_go())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		print_message("go build %s\n", modes[i]);
		assert_true(fixture_run("go build %s -o prog .", modes[i]));
		assert_true(fixture_run("strip -o prog.stripped prog"));
		remove_sections("prog.stripped", "prog.bare");
		check_file("prog", "prog", false);
		check_file("prog.stripped", "prog", false);
		check_file("prog.bare", "prog", false);
	}
}

static void test_like_go(void **state)
{
	struct symbol_index *index;

	if (!has_go())
		skip();
	assert_true(fixture_run("go build -o prog . && go build -ldflags '-s -w' -o prog.sw ."));
	index = fixture_index("prog", NULL);
	check_like_go(index, "prog", "prog");
	/* There is nothing more in it, so that it need not be read again. */
	assert_true(symbol_index_origins(index) & SYMBOL_ORIGIN_DWARF);
	symbol_index_destroy(index);
	index = fixture_index("prog.sw", NULL);
	check_like_go(index, "prog.sw", "prog");
	assert_false(symbol_index_origins(index) & SYMBOL_ORIGIN_DWARF);
	symbol_index_destroy(index);
}

/* Older toolchains, which the Go command fetches. */
static void test_toolchains(void **state)
{
	/* The last of each layout, and the last before 1.26 moved the text start. */
	static const char *const versions[] = { "go1.17.13", "go1.19.13", "go1.20.14", "go1.25.5" };

	if (!has_go())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		bool is_old = i < 2;

		for (int pie = 0; pie < 2; pie++) {
			assert_true(fixture_run("GOENV=off GOTOOLCHAIN=%s go build -buildmode=%s "
						"-o old . && strip -o old.stripped old",
						versions[i], pie ? "pie" : "exe"));
			remove_sections("old.stripped", "old.bare");
			check_file("old", "old", is_old);
			check_file("old.stripped", "old", is_old);
			check_file("old.bare", "old", is_old);
		}
	}
}

static const char *outer_name(const struct symbol_index *index, uint64_t fo)
{
	static struct symbol_frame frames[SYMBOL_INLINE_MAX];
	int count = symbol_index_find(index, fo, frames);

	return count ? frames[count - 1].function : "";
}

static void test_generics(void **state)
{
	struct symbol_index *index;
	unsigned seen = 0;
	char *list;

	if (!has_go())
		skip();
	assert_true(fixture_run("cd generic && go build -o ../gen ."));
	index = fixture_index("gen", NULL);
	list = fixture_output("nm gen | sed -n 's/^\\([0-9a-f]*\\) [tT] main\\./\\1 /p'");
	for (char *save, *line = strtok_r(list, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *name = outer_name(
			index, fixture_offset("gen", strtoull(line, NULL, 16)));

		assert_null(strstr(name, "go.shape"));
		seen |= !strcmp(name, "main.Map[...]") ? 1 : 0;
		seen |= !strcmp(name, "main.(*P[...]).Get") ? 2 : 0;
		seen |= !strcmp(name, "main.main.func1") ? 4 : 0;
	}
	free(list);
	assert_int_equal(seen, 7);
	symbol_index_destroy(index);
}

/* A C program has no pclntab, whatever it contains. */
static void test_not_go(void **state)
{
	struct symbol_index *index;

	fixture_write("c.c", "unsigned magic[] = { 0xfffffff1, 0x08010000, 1, 2, 3, 4, 5, 6, 7, 8, 9 };\n"
			     "char text[] = \"\\xff Go buildinf:\";\n"
			     "int main(void) { return magic[0] + text[0]; }\n");
	assert_true(fixture_run("gcc -o cprog c.c && strip -o cprog.stripped cprog"));
	index = fixture_index("cprog", NULL);
	assert_false(symbol_index_origins(index) & SYMBOL_ORIGIN_GOPCLNTAB);
	symbol_index_destroy(index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_build_modes), cmocka_unit_test(test_like_go),
		cmocka_unit_test(test_toolchains),  cmocka_unit_test(test_generics),
		cmocka_unit_test(test_not_go),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
