// SPDX-License-Identifier: Apache-2.0
/* Names from ELF symbols: sizes, gaps, aliases, variants of one program, and stored images. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "agent/base/io.h"
#include "symbolize/symbol_image.h"
#include "tests/support/elf_fixture.h"

static const char source_c[] =
	"__attribute__((noinline)) int alpha(int x) { return x * 3 + 1; }\n"
	"__attribute__((noinline)) static int beta(int x) { return x * 5 + alpha(x); }\n"
	"int beta_alias(int) __attribute__((weak, alias(\"alpha\")));\n"
	"int __under(int) __attribute__((alias(\"alpha\")));\n"
	"static int impl(int x) { return x; }\n"
	"static void *resolve(void) { return (void *)impl; }\n"
	"int indirect(int) __attribute__((ifunc(\"resolve\")));\n"
	"int bare_one(int), bare_two(int);\n"
	"int main(int argc, char **argv) { return beta(argc) + indirect(argc) + bare_one(1) +"
	" bare_two(2); }\n";

/* Assembler symbols without .size and .type, then one that ends its section. */
static const char source_s[] =
	".section .text.bare,\"ax\",@progbits\n.p2align 6\n.globl bare_one, bare_two\n"
	"bare_one: mov $1,%eax\n ret\n nop\n nop\n"
	"bare_two: mov $2,%eax\n ret\n"
	".section .text.other,\"ax\",@progbits\n.p2align 8\n nop\n"
	".section .note.GNU-stack,\"\",@progbits\n";

/* A library that exports some of its functions; the assembler's have no size, and one of them no
 * call frame information. */
static const char library_c[] =
	"#define F __attribute__((noinline, noclone))\n"
	"static volatile int sink;\n"
	"static F int local_one(int x) { sink += x; return sink * 3; }\n"
	"F int shown_one(int x) { sink -= x; return local_one(x) + 1; }\n"
	"static F int local_two(int x) { for (int i = 0; i < x; i++) sink ^= i; return sink; }\n"
	"static F __attribute__((cold)) void never(void) { sink = 7; __builtin_trap(); }\n"
	"F int shown_two(int x) { if (x == 12345) never(); return local_two(x) + shown_one(x); }\n"
	"static F int local_three(int x) { sink = x; return local_one(x) ^ 5; }\n"
	"int shown_three(int x) { return local_three(x) + shown_two(x); }\n"
	"int bare(int), framed(int);\n"
	"int shown_four(int x) { return bare(x) + framed(x); }\n";
static const char library_s[] =
	".section .text,\"ax\",@progbits\n.globl bare, framed\n"
	"bare: lea 1(%rdi),%eax\n ret\n.p2align 4,0x90\n"
	"behind_bare: .cfi_startproc\n lea 2(%rdi),%eax\n ret\n.cfi_endproc\n"
	".size behind_bare, .-behind_bare\n.p2align 4,0x90\n"
	"framed: .cfi_startproc\n lea 3(%rdi),%eax\n ret\n.cfi_endproc\n.p2align 4,0x90\n"
	"behind_framed: .cfi_startproc\n lea 4(%rdi),%eax\n ret\n.cfi_endproc\n"
	".size behind_framed, .-behind_framed\n"
	".section .note.GNU-stack,\"\",@progbits\n";

static int set_up(void **state)
{
	fixture_write("names.c", source_c);
	fixture_write("bare.s", source_s);
	assert_true(fixture_run("gcc -O1 -g -rdynamic -fno-inline -o prog names.c bare.s"));
	assert_true(fixture_run("objcopy --only-keep-debug prog prog.debug"));
	assert_true(fixture_run("strip -o prog.stripped prog"));
	assert_true(fixture_run("objcopy --compress-debug-sections=zlib prog prog.zlib"));
	assert_true(fixture_run("gcc -O1 -no-pie -fno-inline -o prog.nopie names.c bare.s"));
	return 0;
}

static const char *outer_name(const struct symbol_index *index, uint64_t fo)
{
	static struct symbol_frame frames[SYMBOL_INLINE_MAX];
	int count = symbol_index_find(index, fo, frames);

	return count ? frames[count - 1].function : "";
}

struct variant {
	const char *file, *debug;
	bool has_locals;
};

static const struct variant variants[] = {
	{ "prog", NULL, true },
	{ "prog.stripped", "prog.debug", true },
	{ "prog.stripped", NULL, false },
	{ "prog.zlib", NULL, true },
	{ "prog.nopie", NULL, true },
};

static void test_variants(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++) {
		const struct variant *at = &variants[i];
		const char *whole = strstr(at->file, "nopie") ? "prog.nopie" : "prog";
		struct symbol_index *index = fixture_index(at->file, at->debug);
		uint64_t size = 0, ev = fixture_symbol(whole, "alpha", &size);
		uint64_t fo = fixture_offset(at->file, ev);

		print_message("%s\n", at->file);
		assert_true(ev && size);
		/* Global beats weak, fewer underscores beat more. */
		assert_string_equal(outer_name(index, fo), "alpha");
		assert_string_equal(outer_name(index, fo + size - 1), "alpha");
		ev = fixture_symbol(whole, "beta", &size);
		fo = fixture_offset(at->file, ev);
		assert_string_equal(outer_name(index, fo), at->has_locals ? "beta" : "");
		ev = fixture_symbol(whole, "impl", NULL);
		assert_string_equal(outer_name(index, fixture_offset(at->file, ev)),
				    at->has_locals ? "impl" : "");
		assert_true(symbol_index_origins(index) &
			    (at->has_locals ? SYMBOL_ORIGIN_SYMTAB : SYMBOL_ORIGIN_DYNSYM));
		symbol_index_destroy(index);
	}
}

static void test_bounds(void **state)
{
	struct symbol_index *index = fixture_index("prog.nopie", NULL);
	uint64_t one = fixture_offset("prog.nopie", fixture_symbol("prog.nopie", "bare_one", NULL));
	uint64_t two = fixture_offset("prog.nopie", fixture_symbol("prog.nopie", "bare_two", NULL));
	struct symbol_frame frames[SYMBOL_INLINE_MAX];

	assert_true(one && two > one);
	assert_string_equal(outer_name(index, one), "bare_one");
	assert_string_equal(outer_name(index, two - 1), "bare_one");
	assert_string_equal(outer_name(index, two), "bare_two");
	assert_string_equal(outer_name(index, two + 5), "bare_two");
	/* Outside code, and beyond the file. */
	assert_int_equal(symbol_index_find(index, 0, frames), 0);
	assert_int_equal(symbol_index_find(index, UINT64_MAX, frames), 0);
	assert_int_equal(symbol_index_find(index, UINT32_MAX, frames), 0);
	symbol_index_destroy(index);
}

/* Every byte of every function symbol of a real library has a name that nm has at that address. */
static void test_like_nm(void **state)
{
	static const char *const files[] = { "prog", "/bin/true", "/lib/x86_64-linux-gnu/libz.so.1" };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct symbol_index *index = fixture_index(files[i], NULL);
		char *out = fixture_output("nm -S --defined-only %s 2>/dev/null; nm -DS "
					   "--defined-only %s 2>/dev/null; true",
					   files[i], files[i]);
		size_t checked = 0;

		for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
			unsigned long long ev, size;
			char type;

			if (sscanf(line, "%llx %llx %c", &ev, &size, &type) != 3 ||
			    !strchr("tTwWi", type) || !size)
				continue;
			assert_string_not_equal(
				outer_name(index, fixture_offset(files[i], ev)), "");
			assert_string_not_equal(
				outer_name(index, fixture_offset(files[i], ev + size - 1)), "");
			checked++;
		}
		print_message("%s: %zu symbols\n", files[i], checked);
		free(out);
		symbol_index_destroy(index);
	}
}

/* .gnu_debugdata as distributions make it: the symbols that .dynsym lacks, in XZ. */
static void test_minidebug(void **state)
{
	struct symbol_index *index;

	if (!fixture_has("xz")) {
		print_message("skipped: no xz\n");
		skip();
	}
	assert_true(fixture_run("nm -D prog --format=posix --defined-only | cut -d' ' -f1 | sort >dyn"));
	assert_true(fixture_run("nm prog --format=posix --defined-only | "
				"awk '$2 ~ /^[tT]$/ { print $1 }' | sort >all"));
	assert_true(fixture_run("comm -13 dyn all >keep && objcopy -S --remove-section .gdb_index "
				"--keep-symbols=keep prog.debug mini && rm -f mini.xz && xz mini && "
				"objcopy --add-section .gnu_debugdata=mini.xz prog.stripped prog.mini"));
	index = fixture_index("prog.mini", NULL);
	assert_int_equal(symbol_index_origins(index),
			 SYMBOL_ORIGIN_DYNSYM | SYMBOL_ORIGIN_MINIDEBUG);
	assert_string_equal(
		outer_name(index, fixture_offset("prog", fixture_symbol("prog", "beta", NULL))),
		"beta");
	assert_string_equal(
		outer_name(index, fixture_offset("prog", fixture_symbol("prog", "alpha", NULL))),
		"alpha");
	symbol_index_destroy(index);
}

/* Call stubs in every layout that the linkers here write, against the disassembler's names. */
static void test_plt(void **state)
{
	static const char *const flags[] = { "", "-Wl,-z,now", "-fcf-protection -Wl,-z,ibtplt",
					     "-no-pie", "-fuse-ld=gold", "-fuse-ld=lld", "-fuse-ld=mold" };

	fixture_write("calls.c", "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
				 "int main(int c, char **v) { void *p = malloc(c); puts(v[0]);\n"
				 "free(p); return atoi(v[0]) + (int)strtol(v[0], NULL, 0) + (free != 0); }\n");
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		struct symbol_index *index;
		size_t checked = 0;
		char *out, *save, *line;

		if (!fixture_run("gcc -O1 -o calls calls.c %s && strip -o calls.stripped calls",
				 flags[i])) {
			print_message("cannot link with %s\n", flags[i]);
			continue;
		}
		index = fixture_index("calls.stripped", NULL);
		/* mold has symbols of its own for its stubs, whose layout the disassembler does not know */
		out = fixture_output("objdump -d calls | sed -n 's/@GLIBC[^>]*//; s/[$]plt[got]*>/@plt>/; "
				     "s/^0*\\([0-9a-f]*\\) <\\(.*@plt\\)>:/\\1 \\2/p'");
		assert_non_null(out);
		for (line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
			char *name;
			uint64_t ev = strtoull(line, &name, 16);

			assert_string_equal(outer_name(index, fixture_offset("calls", ev)), name + 1);
			assert_string_equal(outer_name(index, fixture_offset("calls", ev) + 7),
					    name + 1);
			checked++;
		}
		print_message("%s: %zu stubs\n", flags[i], checked);
		assert_true(checked >= 2);
		free(out);
		symbol_index_destroy(index);
	}
}

/* Checks each byte of one function in the index of the stripped library. An exported function has
 * its name; any other has its start address only, never the name of another function. */
static void check_function(const struct symbol_index *index, const char *name, uint64_t fo,
			   uint64_t size)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	bool is_shown = !strncmp(name, "shown_", 6);

	for (uint64_t at = 0; at < size; at++) {
		assert_int_equal(symbol_index_find(index, fo + at, frames), 1);
		assert_string_equal(frames[0].function, is_shown ? name : "");
		assert_string_equal(frames[0].file, "");
		assert_int_equal(frames[0].from_start, is_shown ? 0 : at);
	}
}

static void test_functions_without_a_name(void **state)
{
	static const char *const flags[] = { "", "-fcf-protection", "-Wl,-z,separate-code",
					     "-fuse-ld=lld" };
	struct symbol_frame frames[SYMBOL_INLINE_MAX];

	fixture_write("library.c", library_c);
	fixture_write("library_s.s", library_s);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		static const char *const names[] = { "local_one",   "shown_one", "local_two",	"shown_two",
						     "local_three", "shown_three", "shown_four", "never",
						     "behind_bare", "behind_framed" };
		struct symbol_index *index;
		uint64_t bare, framed;

		if (!fixture_run(
			    "gcc -O2 -fomit-frame-pointer -shared -fPIC %s -o library library.c library_s.s && "
			    "strip --strip-all -o library.stripped library",
			    flags[i])) {
			print_message("cannot link with %s\n", flags[i]);
			continue;
		}
		index = fixture_index("library.stripped", NULL);
		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			uint64_t size = 0, ev = fixture_symbol("library", names[k], &size);

			assert_true(ev && size);
			check_function(index, names[k], fixture_offset("library", ev), size);
		}
		bare = fixture_offset("library", fixture_symbol("library", "bare", NULL));
		framed = fixture_offset("library", fixture_symbol("library", "framed", NULL));
		assert_string_equal(outer_name(index, bare + 3), "bare");
		assert_string_equal(outer_name(index, framed + 3), "framed");
		/* It ends where the call frame information says, not at the next symbol. */
		assert_int_equal(symbol_index_find(index, framed + 4, frames), 0);
		symbol_index_destroy(index);
	}
}

/* With the symbols of all functions nothing is left to be kept of the call frame information. */
static void test_extents_of_named_functions_are_dropped(void **state)
{
	static const char *const files[] = { "prog", "prog.stripped" };
	size_t counts[2];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct symbol_index *index = fixture_index(files[i], NULL);
		size_t bytes;
		const struct symbol_image_head *head = symbol_index_image(index, &bytes);

		counts[i] = head->parts[SYMBOL_IMAGE_EXTENTS].count;
		symbol_index_destroy(index);
	}
	print_message("%zu of %zu extents are kept\n", counts[0], counts[1]);
	/* The linker's .plt and .init have no symbol that covers them. */
	assert_in_range(counts[0], 0, 3);
	assert_in_range(counts[1], counts[0] + 3, 20);
}

static int image_file(const void *image, size_t bytes)
{
	int fd = io_memfd("image", 0);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, image, bytes), 0);
	return fd;
}

static void test_image(void **state)
{
	struct symbol_index *index = fixture_index("prog", NULL), *again = NULL, *none = (void *)1;
	uint64_t fo = fixture_offset("prog", fixture_symbol("prog", "alpha", NULL));
	size_t bytes;
	const void *image = symbol_index_image(index, &bytes);
	cleanup_free uint8_t *copy = malloc(bytes);
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	int fd = image_file(image, bytes);

	assert_int_equal(symbol_index_open(fd, &again), 0);
	assert_string_equal(outer_name(again, fo), "alpha");
	symbol_index_destroy(again);
	close(fd);
	assert_non_null(copy);

	/* Whatever byte is damaged, the image is refused or answers within itself. */
	for (size_t i = 0; i < bytes; i += i < 512 ? 1 : 37) {
		memcpy(copy, image, bytes);
		copy[i] ^= 0xff;
		fd = image_file(copy, bytes);
		again = none;
		if (symbol_index_open(fd, &again) == 0) {
			for (uint64_t at = 0x1000; at < 0x1400; at += 7)
				(void)symbol_index_find(again, at, frames);
			symbol_index_destroy(again);
		} else {
			assert_ptr_equal(again, none);
		}
		close(fd);
	}
	for (size_t len = 0; len < bytes; len += 97) {
		fd = image_file(image, len);
		assert_int_equal(symbol_index_open(fd, &none), -EPROTO);
		close(fd);
	}
	symbol_index_destroy(index);
}

static void test_not_elf(void **state)
{
	struct symbol_index *index = (void *)1;
	struct fixture_elf file = fixture_open("names.c");

	assert_int_equal(symbol_index_build(file.elf, NULL, &index), -ENOEXEC);
	assert_ptr_equal(index, (void *)1);
	fixture_close(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_variants), cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_like_nm),	 cmocka_unit_test(test_image),
		cmocka_unit_test(test_functions_without_a_name),
		cmocka_unit_test(test_extents_of_named_functions_are_dropped),
		cmocka_unit_test(test_plt), cmocka_unit_test(test_minidebug), cmocka_unit_test(test_not_elf),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
