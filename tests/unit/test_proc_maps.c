// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/collect/proc/proc_maps.h"

static void lines_of_the_kernel(void **state)
{
	static const struct {
		const char *line;
		uint64_t start, end, pgoff, inode;
		uint32_t major, minor;
		bool executable, deleted;
		const char *path;
	} cases[] = {
		{ "560741857000-56074185d000 r-xp 00002000 fe:00 247278                     "
		  "/usr/bin/head",
		  0x560741857000, 0x56074185d000, 0x2000, 247278, 0xfe, 0, true, false,
		  "/usr/bin/head" },
		{ "7fa519195000-7fa5191aa000 rw-p 00000000 00:00 0 ", 0x7fa519195000,
		  0x7fa5191aa000, 0, 0, 0, 0, false, false, "" },
		{ "7fa5191bb000-7fa5191bd000 r-xp 00000000 00:00 0                          [vdso]",
		  0x7fa5191bb000, 0x7fa5191bd000, 0, 0, 0, 0, true, false, "[vdso]" },
		{ "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  "
		  "[vsyscall]",
		  0xffffffffff600000, 0xffffffffff601000, 0, 0, 0, 0, true, false, "[vsyscall]" },
		{ "7f00-8f00 rwxs 1ff000 103:1a 18446744073709551615 /tmp/a b (deleted)", 0x7f00,
		  0x8f00, 0x1ff000, UINT64_MAX, 0x103, 0x1a, true, true, "/tmp/a b" },
		{ "1000-2000 r-xp 0 8:1 5 /x\\012y\\040z", 0x1000, 0x2000, 0, 5, 8, 1, true, false,
		  "/x\ny\\040z" },
		{ "1000-2000 r-xp 0 8:1 5  (deleted)", 0x1000, 0x2000, 0, 5, 8, 1, true, false,
		  "(deleted)" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct proc_map got;

		assert_int_equal(proc_maps_parse_line(cases[i].line, strlen(cases[i].line), &got), 0);
		assert_true(got.start_va == cases[i].start);
		assert_true(got.end_va == cases[i].end);
		assert_true(got.pgoff_fo == cases[i].pgoff);
		assert_true(got.inode == cases[i].inode);
		assert_int_equal(got.dev_major, cases[i].major);
		assert_int_equal(got.dev_minor, cases[i].minor);
		assert_int_equal(got.executable, cases[i].executable);
		assert_int_equal(got.deleted, cases[i].deleted);
		assert_string_equal(got.path, cases[i].path);
	}
}

static void lines_that_are_none(void **state)
{
	static const char *const lines[] = {
		"",
		"\n",
		"1000",
		"1000-",
		"-2000 r-xp 0 8:1 5 /x",
		"1000-2000",
		"1000-2000 ",
		"2000-1000 r-xp 0 8:1 5 /x",
		"1000-1000 r-xp 0 8:1 5 /x",
		"1000-2000 r-x 0 8:1 5 /x",
		"1000-2000 qwxp 0 8:1 5 /x",
		"1000-2000 r-xp",
		"1000-2000 r-xp 0 8:1",
		"1000-2000 r-xp 0 8:1 5",
		"1000-2000 r-xp 0 8:1 -5 /x",
		"1000-2000 r-xp 0 8:1 5a /x",
		"1000-2000 r-xp 0 100000000:1 5 /x",
		"1000-2000 r-xp 0 8:100000000 5 /x",
		"10000000000000000-20000000000000000 r-xp 0 8:1 5 /x",
		"1000-2000 r-xp 0 8:1 18446744073709551616 /x",
		"0x1000-0x2000 r-xp 0 8:1 5 /x",
		"1000-2000 R-XP 0 8:1 5 /x",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct proc_map got = { .start_va = 77, .path = "kept" };
		size_t len = strlen(lines[i]);
		/* Exact-size copy: a sanitizer sees reads behind the end. */
		cleanup_free char *exact = malloc(len ? len : 1);

		assert_non_null(exact);
		memcpy(exact, lines[i], len);
		assert_int_equal(proc_maps_parse_line(exact, len, &got), -EINVAL);
		assert_true(got.start_va == 77);
		assert_string_equal(got.path, "kept");
	}
	assert_int_equal(proc_maps_parse_line("1000-2000 r-xp 0 8:1 5 /x\0y", 27,
					      &(struct proc_map){ 0 }),
			 -EINVAL);
}

/* Every prefix and every one-byte damage of a good line is either refused or gives a bounded
 * result. */
static void damaged_lines_stay_bounded(void **state)
{
	static const char good[] = "560741857000-56074185d000 r-xp 00002000 fe:00 247278   /usr/bin/he";
	size_t len = sizeof(good) - 1;

	for (size_t i = 0; i <= len; i++) {
		for (int c = 0; c < 256; c += 5) {
			cleanup_free char *copy = malloc(len);
			struct proc_map got;

			assert_non_null(copy);
			memcpy(copy, good, len);
			if (i < len)
				copy[i] = (char)c;
			if (proc_maps_parse_line(copy, len, &got) == 0) {
				assert_true(got.end_va > got.start_va);
				assert_true(strlen(got.path) < PROC_MAPS_PATH_MAX);
			}
			(void)!proc_maps_parse_line(copy, i, &got);
		}
	}
}

static void a_path_longer_than_path_max_is_cut(void **state)
{
	static const char fields[] = "1000-2000 r-xp 0 8:1 5 ";
	size_t len = sizeof(fields) - 1 + 9000;
	cleanup_free char *line = malloc(len);
	struct proc_map got;

	assert_non_null(line);
	memset(line, 'p', len);
	memcpy(line, fields, sizeof(fields) - 1);
	assert_int_equal(proc_maps_parse_line(line, len, &got), 0);
	assert_int_equal(strlen(got.path), PROC_MAPS_PATH_MAX - 1);
}

struct seen {
	uint64_t address;
	bool found;
	unsigned count;
};

static int look_for(void *ctx, const struct proc_map *map)
{
	struct seen *seen = ctx;

	assert_true(map->executable);
	seen->count++;
	if (seen->address >= map->start_va && seen->address < map->end_va)
		seen->found = map->inode != 0 && map->path[0] == '/';
	return 0;
}

static int stop_at_once(void *ctx, const struct proc_map *map)
{
	return -ECANCELED;
}

static void own_mappings_are_read(void **state)
{
	struct seen seen = { .address = (uint64_t)(uintptr_t)own_mappings_are_read };

	assert_true(proc_maps_read((uint32_t)getpid(), 4096, look_for, &seen) > 1);
	assert_true(seen.found);
	assert_int_equal(proc_maps_read((uint32_t)getpid(), 1, look_for, &seen), -E2BIG);
	assert_int_equal(proc_maps_read((uint32_t)getpid(), 4096, stop_at_once, NULL), -ECANCELED);
	assert_true(proc_maps_read(0x7fffffff, 4096, look_for, &seen) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_of_the_kernel),
		cmocka_unit_test(lines_that_are_none),
		cmocka_unit_test(damaged_lines_stay_bounded),
		cmocka_unit_test(a_path_longer_than_path_max_is_cut),
		cmocka_unit_test(own_mappings_are_read),
	};

	return cmocka_run_group_tests_name("proc_maps", tests, NULL, NULL);
}
