// SPDX-License-Identifier: Apache-2.0
/* Names of JIT code: perf maps and jitdump files as they grow, overlap, move and are replaced. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "symbolize/perf_map.h"

struct expected {
	uint64_t va;
	const char *name; /* "" = none */
};

static void check(struct jit_map *map, const struct expected *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *name = jit_map_find(map, rows[i].va);

		assert_string_equal(name ? name : "", rows[i].name);
	}
}

static void append(int fd, const void *data, size_t len)
{
	assert_true(lseek(fd, 0, SEEK_END) >= 0);
	assert_int_equal(io_write_all(fd, data, len), 0);
}

static void append_text(int fd, const char *text)
{
	append(fd, text, strlen(text));
}

static void test_lines(void **state)
{
	static const struct expected rows[] = {
		{ 0x1000, "first" },	   { 0x100f, "first" },		{ 0x1010, "" },
		{ 0x2000, "LazyCompile:~f a b /x.js:1:2" },		{ 0x3000, "prefixed" },
		{ 0x4000, "" },		   { 0x5000, "" },		{ 0x6000, "bad?byte" },
		{ 0x7000, "carriage" },	   { 0xfffffffffffff000, "" },
	};
	struct perf_map_cursor cursor = { 0 };
	struct jit_map map = { 0 };
	int fd = io_memfd("map", 0);

	append_text(fd, "1000 10 first\n"
			"2000 20 LazyCompile:~f a b /x.js:1:2\n"
			"0x3000 0x10 prefixed\n"
			"4000 0 empty\n"
			"5000 10\n"
			"nonsense\n"
			"\n"
			"6000 10 bad\xff"
			"byte\n"
			"7000 10 carriage\r\n"
			"fffffffffffff000 ffffffffffffffff wraps\n"
			"11111111111111111 10 too long\n");
	assert_int_equal(perf_map_update(&cursor, fd, &map), 0);
	check(&map, rows, ARRAY_SIZE(rows));
	jit_map_deinit(&map);
	close(fd);
}

static void test_growing(void **state)
{
	struct perf_map_cursor cursor = { 0 };
	struct jit_map map = { 0 };
	int fd = io_memfd("map", 0);

	append_text(fd, "1000 100 old\n2000 10 ha");
	assert_int_equal(perf_map_update(&cursor, fd, &map), 0);
	check(&map, (struct expected[]){ { 0x1080, "old" }, { 0x2000, "" } }, 2);
	append_text(fd, "lf line\n1040 20 new\n");
	assert_int_equal(perf_map_update(&cursor, fd, &map), 0);
	check(&map,
	      (struct expected[]){ { 0x103f, "old" },
				   { 0x1040, "new" },
				   { 0x105f, "new" },
				   { 0x1060, "old" },
				   { 0x2000, "half line" } },
	      5);
	/* Written anew, and longer than before: nothing of the former text counts. */
	assert_int_equal(ftruncate(fd, 0), 0);
	append_text(fd, "3000 10 first of a new dump\n4000 10 second\n5000 10 third\n6000 10 fourth\n");
	assert_int_equal(perf_map_update(&cursor, fd, &map), 0);
	check(&map,
	      (struct expected[]){
		      { 0x1080, "" }, { 0x3000, "first of a new dump" }, { 0x6000, "fourth" } },
	      3);
	/* Shorter than before: another life of the file. */
	assert_int_equal(ftruncate(fd, 0), 0);
	append_text(fd, "9000 10 again\n");
	assert_int_equal(perf_map_update(&cursor, fd, &map), 0);
	check(&map, (struct expected[]){ { 0x1000, "" }, { 0x9000, "again" } }, 2);
	jit_map_deinit(&map);
	close(fd);
}

static void test_long_line(void **state)
{
	struct perf_map_cursor cursor = { 0 };
	struct jit_map map = { 0 };
	int fd = io_memfd("map", 0);
	static char line[200000];
	const char *name;

	memset(line, 'x', sizeof(line));
	memcpy(line, "1000 10 ", 8);
	line[3000] = '\n';
	append(fd, line, 3001);
	memcpy(line, "2000 10 ", 8);
	line[3000] = 'x';
	append(fd, line, sizeof(line));
	append_text(fd, "\n3000 10 after\n");
	assert_int_equal(perf_map_update(&cursor, fd, &map), 0);
	name = jit_map_find(&map, 0x1000);
	assert_non_null(name);
	assert_int_equal(strlen(name), PERF_MAP_NAME_MAX);
	check(&map, (struct expected[]){ { 0x2000, "" }, { 0x3000, "after" } }, 2);
	jit_map_deinit(&map);
	close(fd);
}

/* Random overlapping entries against the plain rule: the last entry that covers an address. */
static void test_overlaps(void **state)
{
	enum { SPACE = 512, ENTRIES = 400 };
	for (unsigned seed = 0; seed < 20; seed++) {
		struct jit_map map = { 0 };
		int covers[SPACE];
		char name[16];

		memset(covers, -1, sizeof(covers));
		for (int i = 0; i < ENTRIES; i++) {
			uint64_t random = hash_mix64(seed * 1000u + (unsigned)i + 1);
			unsigned start = random % SPACE, size = (random >> 32) % 40;

			(void)snprintf(name, sizeof(name), "n%d", i);
			assert_int_equal(jit_map_add(&map, start, size, name, strlen(name)), 0);
			for (unsigned at = start; at < start + size && at < SPACE; at++)
				covers[at] = i;
			if (i % 97 == 0)
				(void)jit_map_find(&map, start);
		}
		for (int at = 0; at < SPACE; at++) {
			(void)snprintf(name, sizeof(name), "n%d", covers[at]);
			check(&map, &(struct expected){ (uint64_t)at, covers[at] < 0 ? "" : name }, 1);
		}
		jit_map_deinit(&map);
	}
}

/* A runtime that compiles forever at the same place stays within the bounds. */
static void test_bounded(void **state)
{
	struct jit_map map = { 0 };
	char name[1001];

	memset(name, 'x', sizeof(name));
	for (unsigned i = 0; i < 100000; i++) {
		(void)snprintf(name + 990, 11, "%u", i);
		assert_int_equal(jit_map_add(&map, (i % 5000) * 64, 64, name, strlen(name)), 0);
	}
	assert_int_equal(map.dropped, 0);
	assert_true(map.entries.count < 100000);
	assert_true(map.names.len <= 2 * JIT_MAP_NAMES_MAX + sizeof(name));
	check(&map, &(struct expected){ 4999 * 64, name }, 1);
	/* Code that stays, however, is refused in the end. */
	for (unsigned i = 0; i < 100000; i++) {
		(void)snprintf(name + 990, 11, "%u", i);
		assert_int_equal(jit_map_add(&map, 0x1000000 + i * 64, 64, name, strlen(name)), 0);
	}
	assert_true(map.dropped > 0);
	assert_true(map.names.len <= 2 * JIT_MAP_NAMES_MAX + sizeof(name));
	jit_map_deinit(&map);
}

/* ---- jitdump --------------------------------------------------------------------------------- */

struct record {
	uint8_t bytes[256];
	size_t len;
};

static void put(struct record *record, const void *data, size_t len)
{
	assert_true(record->len + len <= sizeof(record->bytes));
	memcpy(record->bytes + record->len, data, len);
	record->len += len;
}

static void put_u32(struct record *record, uint32_t value)
{
	put(record, &value, 4);
}

static void put_u64(struct record *record, uint64_t value)
{
	put(record, &value, 8);
}

static void append_header(int fd)
{
	struct record record = { 0 };

	put_u32(&record, 0x4a695444);
	put_u32(&record, 1);
	put_u32(&record, 40);
	put_u32(&record, 62);
	put_u32(&record, 0);
	put_u32(&record, 1234);
	put_u64(&record, 1);
	put_u64(&record, 0);
	append(fd, record.bytes, record.len);
}

static void append_load(int fd, uint64_t va, uint64_t size, const char *name)
{
	struct record record = { 0 };
	uint32_t total;

	put_u32(&record, 0);
	put_u32(&record, 0);
	put_u64(&record, 5);
	put_u32(&record, 1234);
	put_u32(&record, 1234);
	put_u64(&record, va);
	put_u64(&record, va);
	put_u64(&record, size);
	put_u64(&record, 1);
	put(&record, name, strlen(name) + 1);
	put(&record, "\x90\x90\xc3", 3); /* code */
	total = (uint32_t)record.len;
	memcpy(record.bytes + 4, &total, 4);
	append(fd, record.bytes, record.len);
}

static void append_move(int fd, uint64_t from, uint64_t to, uint64_t size)
{
	struct record record = { 0 };

	put_u32(&record, 1);
	put_u32(&record, 64);
	put_u64(&record, 6);
	put_u32(&record, 1234);
	put_u32(&record, 1234);
	put_u64(&record, to);
	put_u64(&record, from);
	put_u64(&record, to);
	put_u64(&record, size);
	put_u64(&record, 1);
	append(fd, record.bytes, record.len);
}

static void test_jitdump(void **state)
{
	struct perf_map_cursor cursor = { 0 };
	struct jit_map map = { 0 };
	int fd = io_memfd("jitdump", 0);

	assert_int_equal(perf_map_update_jitdump(&cursor, fd, &map), 0);
	append_header(fd);
	append_load(fd, 0x1000, 0x100, "LFoo;.bar()V");
	append_load(fd, 0x2000, 0x80, "baz");
	assert_int_equal(perf_map_update_jitdump(&cursor, fd, &map), 0);
	check(&map,
	      (struct expected[]){ { 0x10ff, "LFoo;.bar()V" }, { 0x1100, "" }, { 0x2000, "baz" } }, 3);
	append_move(fd, 0x1000, 0x8000, 0x100);
	append_move(fd, 0x7777, 0x9000, 0x100);
	append(fd, "\0\0\0\0\xff\xff\0\0", 8); /* a record that is not complete yet */
	assert_int_equal(perf_map_update_jitdump(&cursor, fd, &map), 0);
	check(&map,
	      (struct expected[]){ { 0x1000, "" }, { 0x8080, "LFoo;.bar()V" }, { 0x9000, "" } }, 3);
	jit_map_deinit(&map);
	close(fd);
}

static void test_jitdump_damaged(void **state)
{
	struct perf_map_cursor cursor = { 0 };
	struct jit_map map = { 0 };
	int fd = io_memfd("jitdump", 0);

	append_header(fd);
	append_load(fd, 0x1000, 0x100, "fine");
	append(fd, "\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0", 16); /* shorter than its own head */
	assert_int_equal(perf_map_update_jitdump(&cursor, fd, &map), -ENOEXEC);
	check(&map, &(struct expected){ 0x1000, "fine" }, 1);
	assert_int_equal(perf_map_update_jitdump(&cursor, fd, &map), -ENOEXEC);
	close(fd);
	jit_map_deinit(&map);

	cursor = (struct perf_map_cursor){ 0 };
	fd = io_memfd("jitdump", 0);
	append_text(fd, "this is some other kind of file, long enough for a header");
	assert_int_equal(perf_map_update_jitdump(&cursor, fd, &map), -ENOEXEC);
	close(fd);
	jit_map_deinit(&map);
}

static void test_not_a_file(void **state)
{
	struct perf_map_cursor cursor = { 0 };
	struct jit_map map = { 0 };
	int fds[2];

	/* A target may put a pipe where its map should be: it must not block us. */
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(perf_map_update(&cursor, fds[0], &map), -EINVAL);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),	  cmocka_unit_test(test_growing),
		cmocka_unit_test(test_long_line), cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_bounded),	  cmocka_unit_test(test_jitdump),
		cmocka_unit_test(test_jitdump_damaged), cmocka_unit_test(test_not_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
