// SPDX-License-Identifier: Apache-2.0
/* JIT code in the symbolizer process: perf maps and jitdumps over its real channels, and files that
 * claim to be one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "agent/wire/control.h"
#include "tests/support/elf_fixture.h"
#include "tests/support/symbolizer_host.h"

static struct control_indexed index_jit(struct symbolizer_host *f, uint64_t key, uint8_t key_len,
					int fd)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 3 },
				       .kind = FEED_MODULE_JIT,
				       .build_id_len = key_len };

	memcpy(index.build_id, &key, sizeof(key));
	host_send(f->collector, &index, sizeof(index), fd);
	(void)close(fd);
	return *(const struct control_indexed *)host_receive(f, f->collector, CONTROL_INDEXED);
}

static void check_jit(struct symbolizer_host *f, uint64_t key, uint64_t offset, const char *name)
{
	struct host_names names = host_names_once(f, key, offset);

	assert_int_equal(names.status, 0);
	assert_int_equal(names.frames, name ? 1 : 0);
	assert_string_equal(names.function, name ? name : "");
}

static void append(const char *name, const char *text)
{
	char path[512];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", fixture_dir(), name);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
	(void)close(fd);
}

static void test_jit(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;

	fixture_write("perf.map", "7f0012345000 40 first\n7f00123");
	fixture_write("perf2.map", "12345000 40 of another\n");
	host_start(&f, NULL);
	answer = index_jit(&f, 77, 8, host_open_file("perf.map"));
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.flags, INDEXED_SYMBOLS);
	assert_int_equal(answer.key, 77);
	assert_int_equal(index_jit(&f, 78, 8, host_open_file("perf2.map")).status, 0);
	/* The frame has the low 40 bits. */
	check_jit(&f, 77, 0x0012345000, "first");
	check_jit(&f, 77, 0x001234503f, "first");
	check_jit(&f, 77, 0x0012345040, NULL);
	check_jit(&f, 78, 0x0012345000, "of another");
	assert_int_equal(host_names_once(&f, 79, 0x12345000).status, -ENOENT);
	append("perf.map", "45040 10 second\n7f0012345010 10 over it\n");
	check_jit(&f, 77, 0x0012345040, "second");
	check_jit(&f, 77, 0x001234501f, "over it");
	check_jit(&f, 77, 0x0012345000, "first");
	/* Another file under the same key takes the place of the first. */
	assert_int_equal(index_jit(&f, 77, 8, host_open_file("perf2.map")).status, 0);
	check_jit(&f, 77, 0x0012345000, "of another");
	host_stop(&f);
}

static void test_bad_jit(void **state)
{
	static struct symbolizer_host f;
	static const char damaged[] = "DTiJ\2";
	int pipes[2];

	fixture_write("perf.map", "1000 10 a\n");
	fixture_write("bad.dump", damaged);
	append("bad.dump", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	host_start(&f, NULL);
	assert_int_equal(index_jit(&f, 1, 20, host_open_file("perf.map")).status, -EINVAL);
	assert_int_equal(index_jit(&f, 1, 8, host_open_file("bad.dump")).status, -ENOEXEC);
	assert_int_equal(pipe(pipes), 0);
	(void)close(pipes[1]);
	assert_int_equal(index_jit(&f, 1, 8, pipes[0]).status, -EINVAL);
	assert_int_equal(host_names_once(&f, 1, 0x1000).status, -ENOENT);
	/* More processes than are kept: the last ones are there, the first are not. */
	for (uint64_t key = 1; key <= 300; key++)
		assert_int_equal(index_jit(&f, key, 8, host_open_file("perf.map")).status, 0);
	check_jit(&f, 300, 0x1000, "a");
	check_jit(&f, 100, 0x1000, "a");
	assert_int_equal(host_names_once(&f, 1, 0x1000).status, -ENOENT);
	host_stop(&f);
}

static int set_up(void **state)
{
	return !fixture_run("chmod 755 .");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jit),
		cmocka_unit_test(test_bad_jit),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
