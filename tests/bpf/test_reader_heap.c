// SPDX-License-Identifier: Apache-2.0
/* Walking glibc's heaps from outside, against the books of the program itself
 * (tests/workloads/heap_shapes.c). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/reader_peer.h"

#define PROGRAM "build/tests/workload-heap-shapes"

struct program {
	pid_t pid;
	unsigned long long bytes, blocks, mapped_bytes, mapped_blocks; /* its own books */
	unsigned long long of[READ_HEAP_SIZES];
};

static void build(const char *flags)
{
	char command[512];

	(void)mkdir("build/tests", 0755);
	(void)snprintf(command, sizeof(command),
		       "cc -O1 -pthread %s -o %s-new tests/workloads/heap_shapes.c && mv %s-new %s",
		       flags, PROGRAM, PROGRAM, PROGRAM);
	assert_int_equal(system(command), 0);
}

static void start(struct program *p, const char *threads, const char *how)
{
	int out[2];
	FILE *file;

	assert_int_equal(pipe(out), 0);
	fflush(NULL);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(out[1], 1);
		execl(PROGRAM, PROGRAM, threads, how, NULL);
		_exit(127);
	}
	(void)close(out[1]);
	file = fdopen(out[0], "r");
	assert_int_equal(fscanf(file, "ready %llu %llu %llu %llu", &p->bytes, &p->blocks, &p->mapped_bytes,
				&p->mapped_blocks),
			 4);
	for (unsigned i = 0; i < READ_HEAP_SIZES; i++)
		assert_int_equal(fscanf(file, " %llu", &p->of[i]), 1);
	(void)fclose(file);
}

static void stop(const struct program *p)
{
	(void)kill(p->pid, SIGKILL);
	(void)waitpid(p->pid, NULL, 0);
}

static int ask(struct reader_peer *reader, pid_t pid, struct read_collect *ret)
{
	const struct control_read_target request = { .head = { .kind = CONTROL_HEAP },
						     .tgid = (uint32_t)pid,
						     .deadline_ms = 10000 };

	return reader_peer_ask(reader, &request, ret);
}

/* Within 1 % plus what the C library and the threads' start keep for themselves. */
static void assert_close(const char *what, uint64_t seen, uint64_t real, uint64_t own)
{
	if (seen < real - real / 100 || seen > real + real / 100 + own)
		fail_msg("%s: %llu instead of %llu", what, (unsigned long long)seen, (unsigned long long)real);
}

static void test_shapes(void **state)
{
	static const struct {
		const char *flags, *threads, *how;
	} cases[] = {
		{ "", "0", NULL },		     { "", "9", NULL },
		{ "-static", "3", NULL },	     { "-static-pie -s", "3", NULL },
		{ "-s -fno-pie -no-pie", "3", "busy" },
	};
	struct reader_peer reader;

	reader_peer_start(&reader);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct read_collect c;
		struct program p;

		build(cases[i].flags);
		start(&p, cases[i].threads, cases[i].how);
		if (ask(&reader, p.pid, &c) != 0)
			fail_msg("%s %s: %s", cases[i].flags, cases[i].threads, reader.text);
		assert_non_null(c.heap);
		print_message(
			"%s, %s threads: %.2f MB of %.2f, %llu of %llu blocks, mapped %llu of %llu, %u arenas, "
			"%.1f ms\n",
			cases[i].flags, cases[i].threads, (double)c.heap->in_use_bytes / 1e6,
			(double)p.bytes / 1e6, (unsigned long long)c.heap->in_use_blocks, p.blocks,
			(unsigned long long)c.heap->mapped_blocks, p.mapped_blocks, c.heap->arenas,
			(double)c.end->cpu_ns / 1e6);
		assert_close("bytes", c.heap->in_use_bytes, p.bytes, 600000);
		assert_close("blocks", c.heap->in_use_blocks, p.blocks, 600);
		for (unsigned k = 0; k < READ_HEAP_SIZES; k++)
			assert_close("blocks of a size", c.heap->blocks_of[k], p.of[k], 40);
		assert_true(c.heap->mapped_known);
		assert_int_equal(c.heap->mapped_blocks, p.mapped_blocks);
		assert_int_equal(c.heap->mapped_bytes, p.mapped_bytes);
		read_collect_deinit(&c);
		stop(&p);
	}
	assert_int_equal(reader_peer_stop(&reader), 0);
}

/* A program that uses another allocator, or none, and one that lies. */
static void test_refused(void **state)
{
	static const char bare[] = "echo 'void _start(void) { __asm__(\"1: pause; jmp 1b\"); }' | "
				   "cc -x c -nostdlib -static -o " PROGRAM "-bare -";
	struct reader_peer reader;
	struct read_collect c;
	struct program p;
	int ends[2];
	char byte;
	pid_t pid;

	assert_int_equal(system(bare), 0);
	reader_peer_start(&reader);
	assert_int_equal(ask(&reader, INT32_MAX, &c), -ESRCH);
	read_collect_deinit(&c);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(PROGRAM "-bare", PROGRAM "-bare", NULL);
		_exit(127);
	}
	(void)close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 0); /* closed by its exec */
	(void)close(ends[0]);
	assert_int_equal(ask(&reader, pid, &c), -EOPNOTSUPP);
	assert_non_null(strstr(reader.text, "no heap of glibc"));
	read_collect_deinit(&c);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);

	build("");
	start(&p, "0", "liar");
	assert_int_equal(ask(&reader, p.pid, &c), -EIO);
	read_collect_deinit(&c);
	stop(&p);
	assert_int_equal(reader_peer_stop(&reader), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_refused),
	};

	if (geteuid() != 0) {
		print_message("skipped: reading other processes needs root\n");
		return 0;
	}
	return cmocka_run_group_tests_name("reader_heap", tests, NULL, NULL);
}
