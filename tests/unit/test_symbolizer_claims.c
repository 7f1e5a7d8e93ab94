// SPDX-License-Identifier: Apache-2.0
/* Files that claim another file's build-id: what one user writes never names what root's files, or
 * another user's, are; and a copy with code at other places has names and rows of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>

#include "agent/wire/module_key.h"
#include "tests/support/elf_fixture.h"
#include "tests/support/symbolizer_host.h"

#define ALICE 17u /* vouchers of two users; what they are made of is the collector's affair */
#define BOB   18u

/* Two programs of one layout and one build-id, which differ in the name of their function. */
static void compile_twins(void)
{
	fixture_write("root.c", "int __attribute__((noinline)) honest(int x) { return x * 2; }\n"
				"int main(int argc, char **argv) { return honest(argc) - 2; }\n");
	assert_true(fixture_run("sed s/honest/forged/ root.c >user.c && for f in root user; do "
				"gcc -O1 -Wl,--build-id=0x0123456789abcdef -o $f $f.c || exit 1; done"));
	assert_int_equal(host_offset("root", "honest"), host_offset("user", "forged"));
}

static void expect_name(struct symbolizer_host *f, uint64_t key, const char *symbol)
{
	const struct host_names names = host_names(f, key, host_offset("root", "honest"));

	assert_int_equal(names.status, 0);
	assert_int_equal(names.frames, 1);
	assert_string_equal(names.function, symbol);
}

static uint64_t index_as(struct symbolizer_host *f, uint64_t voucher, const char *path)
{
	struct control_indexed answer;

	f->voucher = voucher;
	answer = host_index(f, 1, path);
	assert_int_equal(answer.status, 0);
	return answer.key;
}

/* Whoever comes first, also when the names are in the disk cache and the process is another. */
static void test_user_does_not_name_root(void **state)
{
	static struct symbolizer_host f;
	uint64_t user, root;

	compile_twins();
	host_start(&f, "claims");
	user = index_as(&f, ALICE, "user");
	expect_name(&f, user, "forged");
	host_stop(&f);
	host_start(&f, "claims");
	root = index_as(&f, MODULE_VOUCHER_ROOT, "root");
	expect_name(&f, root, "honest");
	expect_name(&f, index_as(&f, ALICE, "user"), "forged");
	expect_name(&f, index_as(&f, BOB, "root"), "honest");
	expect_name(&f, root, "honest");
	assert_int_equal(user, index_as(&f, ALICE, "user"));
	host_stop(&f);
}

/* Files that nobody vouches for share names only if they are equal. */
static void test_content(void **state)
{
	static struct symbolizer_host f;
	uint64_t user, root;

	compile_twins();
	assert_true(fixture_run("cp root same"));
	host_start(&f, NULL);
	user = index_as(&f, MODULE_VOUCHER_CONTENT, "user");
	root = index_as(&f, MODULE_VOUCHER_CONTENT, "root");
	assert_int_not_equal(user, root);
	assert_int_equal(root, index_as(&f, MODULE_VOUCHER_CONTENT, "same"));
	assert_int_not_equal(root, index_as(&f, MODULE_VOUCHER_ROOT, "root"));
	expect_name(&f, user, "forged");
	expect_name(&f, root, "honest");
	host_stop(&f);
}

/* As patchelf makes them: the same build-id, code elsewhere in the file. */
static void test_layout(void **state)
{
	static struct symbolizer_host f;
	uint64_t before, after, offset;
	struct host_names names;

	compile_twins();
	assert_true(fixture_run("gcc -O1 -DPAD -Wl,--build-id=0x0123456789abcdef "
				"-Wl,-z,max-page-size=0x200000 -o moved root.c"));
	offset = host_offset("moved", "honest");
	assert_int_not_equal(offset, host_offset("root", "honest"));
	host_start(&f, NULL);
	before = index_as(&f, MODULE_VOUCHER_ROOT, "root");
	after = index_as(&f, MODULE_VOUCHER_ROOT, "moved");
	assert_int_not_equal(before, after);
	names = host_names(&f, after, offset);
	assert_string_equal(names.function, "honest");
	expect_name(&f, before, "honest");
	host_stop(&f);
	/* A stripped copy is the same program. */
	assert_true(fixture_run("strip -o stripped root"));
	host_start(&f, NULL);
	assert_int_equal(before, index_as(&f, MODULE_VOUCHER_ROOT, "stripped"));
	host_stop(&f);
}

/* A process that has a root of its own has its own /usr/lib/debug, too. */
static void test_debug_file_of_a_user(void **state)
{
	static const struct {
		uint64_t module, debug;
		bool is_used;
	} rows[] = {
		{ MODULE_VOUCHER_ROOT, ALICE, false },
		{ MODULE_VOUCHER_ROOT, MODULE_VOUCHER_CONTENT, false },
		{ MODULE_VOUCHER_CONTENT, MODULE_VOUCHER_CONTENT, false },
		{ BOB, ALICE, false },
		{ ALICE, ALICE, true },
		{ ALICE, MODULE_VOUCHER_ROOT, true },
		{ MODULE_VOUCHER_CONTENT, MODULE_VOUCHER_ROOT, true },
	};
	static struct symbolizer_host f;

	compile_twins();
	assert_true(fixture_run("objcopy --only-keep-debug root root.debug && "
				"strip -o root.stripped root"));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct host_names names;
		uint64_t key;

		host_start(&f, NULL);
		f.debug_voucher = rows[i].debug;
		key = index_as(&f, rows[i].module, "root.stripped");
		(void)host_answer_debug(&f, "root.debug");
		names = host_names_once(&f, key, host_offset("root", "honest"));
		assert_string_equal(names.function, rows[i].is_used ? "honest" : "");
		host_stop(&f);
	}
}

static void test_vouchers(void **state)
{
	struct stat st = { .st_uid = 0, .st_gid = 0, .st_mode = S_IFREG | 0755 };
	uint64_t alice;

	assert_int_equal(module_voucher_of(&st), MODULE_VOUCHER_ROOT);
	st.st_mode |= S_IWGRP;
	assert_true(module_voucher_of(&st) > MODULE_VOUCHER_CONTENT);
	st.st_mode = S_IFREG | 0757;
	assert_true(module_voucher_of(&st) > MODULE_VOUCHER_CONTENT);
	st.st_mode = S_IFREG | 0755;
	st.st_uid = 1000;
	alice = module_voucher_of(&st);
	assert_true(alice > MODULE_VOUCHER_CONTENT);
	st.st_gid = 1000; /* who may only read it */
	assert_int_equal(module_voucher_of(&st), alice);
	st.st_mode |= S_IWGRP;
	assert_int_not_equal(module_voucher_of(&st), alice);
	st.st_mode = S_IFREG | 0755;
	st.st_uid = 1001;
	assert_int_not_equal(module_voucher_of(&st), alice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vouchers),
		cmocka_unit_test(test_user_does_not_name_root),
		cmocka_unit_test(test_content),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_debug_file_of_a_user),
	};

	return cmocka_run_group_tests_name("claims", tests, NULL, NULL);
}
