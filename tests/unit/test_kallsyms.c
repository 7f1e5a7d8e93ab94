// SPDX-License-Identifier: Apache-2.0
/* Kernel symbols: parsing, ends, modules, aliases; and this kernel's own table where it can be
 * read. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/io.h"
#include "symbolize/symbol_index.h"

static const char text[] = "ffffffff81000000 T _text\n"
			   "ffffffff81000000 T first_function\n"
			   "ffffffff81000100 t second\n"
			   "ffffffff81000180 D some_data\n"
			   "ffffffff81000200 W weak_one\n"
			   "ffffffff81000200 T __strong_one\n"
			   "ffffffff81000300 T last_core\n"
			   "ffffffffc0000000 t mod_init\t[ext4]\n"
			   "ffffffffc0000040 T mod_read\t[ext4]\n"
			   "not a line\n"
			   "ffffffffzz000040 T bad\n"
			   "ffffffffc0000040\n"
			   "ffffffffc0010000 t bpf_prog_6deef7357e7b4530_dump\t[bpf]\n"
			   "0000000000000000 A fixed_percpu_data\n"
			   "fffffffffffffff0 T at_the_top";

static const struct {
	uint64_t offset;
	const char *name;
} rows[] = {
	{ 0, "first_function" },
	{ 0xff, "first_function" },
	{ 0x100, "second" },
	{ 0x17f, "second" },
	{ 0x180, "" },
	{ 0x200, "__strong_one" },
	{ 0x300, "last_core" },
	{ 0x1fff, "last_core" },
	{ 0x2000, "" },
	{ 0x3f000000, "mod_init [ext4]" },
	{ 0x3f00003f, "mod_init [ext4]" },
	{ 0x3f000040, "mod_read [ext4]" },
	{ 0x3f001fff, "mod_read [ext4]" },
	{ 0x3f002000, "" },
	{ 0x3f010000, "bpf_prog_6deef7357e7b4530_dump [bpf]" },
	{ (uint64_t)-1, "" },
};

static int build(const char *content, struct symbol_index **ret, uint64_t *ret_text_va)
{
	cleanup_close int fd = io_memfd("kallsyms", 0);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, content, strlen(content)), 0);
	return symbol_index_build_kallsyms(fd, NULL, ret, ret_text_va);
}

static void test_rows(void **state)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	struct symbol_index *index = NULL;
	uint64_t text_va = 0;

	assert_int_equal(build(text, &index, &text_va), 0);
	assert_int_equal(text_va, 0xffffffff81000000);
	assert_int_equal(symbol_index_origins(index), SYMBOL_ORIGIN_KALLSYMS);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int count = symbol_index_find(index, rows[i].offset, frames);

		print_message("%llx\n", (unsigned long long)rows[i].offset);
		assert_string_equal(count ? frames[0].function : "", rows[i].name);
	}
	symbol_index_destroy(index);
}

/* arm64 lists only code that goes on running, and _text is before it. */
static void test_without_text(void **state)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	struct symbol_index *index = NULL;
	uint64_t text_va = 0;

	assert_int_equal(build("ffffc75802a10000 T _stext\nffffc75802a10100 T handler\n", &index,
			       &text_va),
			 0);
	assert_int_equal(text_va, 0xffffc75802a10000);
	assert_int_equal(symbol_index_find(index, 0x108, frames), 1);
	assert_string_equal(frames[0].function, "handler");
	symbol_index_destroy(index);
}

static void test_refused(void **state)
{
	static const struct {
		const char *content;
		int rc;
	} refused[] = {
		{ "", -ENODATA },
		{ "ffffffff81000000 T other\n", -ENODATA },
		{ "0000000000000000 T _text\n0000000000000000 t x\n", -EPERM },
		{ "0000000000000000 T _stext\n0000000000000000 t x\n", -EPERM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct symbol_index *index = (void *)1;
		uint64_t text_va = 7;

		assert_int_equal(build(refused[i].content, &index, &text_va), refused[i].rc);
		assert_ptr_equal(index, (void *)1);
		assert_int_equal(text_va, 7);
	}
}

static void test_this_kernel(void **state)
{
	cleanup_close int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	struct symbol_index *index = NULL;
	uint64_t text_va = 0;
	int rc = fd < 0 ? -EPERM : symbol_index_build_kallsyms(fd, NULL, &index, &text_va);
	char line[1024];
	size_t checked = 0;
	FILE *file;

	if (rc == -EPERM) {
		print_message("skipped: this user cannot read kernel addresses\n");
		skip();
	}
	assert_int_equal(rc, 0);
	file = fopen("/proc/kallsyms", "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		unsigned long long va;
		char type, name[512];

		if (sscanf(line, "%llx %c %511s", &va, &type, name) != 3 || !strchr("tT", type))
			continue;
		/* Programs may come and go between the two readings, the kernel's text does not. */
		if (strchr(line, '['))
			continue;
		assert_int_equal(symbol_index_find(index, va - text_va, frames), 1);
		checked++;
	}
	(void)fclose(file);
	print_message("%zu functions\n", checked);
	assert_true(checked > 1000);
	symbol_index_destroy(index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_without_text), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_this_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
