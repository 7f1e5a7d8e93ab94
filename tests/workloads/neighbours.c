// SPDX-License-Identifier: Apache-2.0
// Bad neighbours: each mode loads the host for a number of turns.
//
// usage: neighbours bomb TURNS              processes that end at once, one after the other
//        neighbours same TURNS PROGRAM...   each program in turn, run for 5 ms of CPU time, all
//                                           under one number
//        neighbours crowd TURNS FILE        as many mappings of a file's first page; then it uses
//                                           its time
//
// Prints `ready`, or `cannot` and why; at the end of the turns `done`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint64_t sink;

static void say(const char *text)
{
	(void)puts(text);
	(void)fflush(stdout);
}

static void bomb(long turns)
{
	say("ready");
	for (long i = 0; i < turns; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (pid > 0)
			(void)waitpid(pid, NULL, 0);
	}
	say("done");
}

// A child with this number, which is nobody's now; 0 = any.
static pid_t fork_as(pid_t number)
{
	struct clone_args args = { .exit_signal = SIGCHLD,
				   .set_tid = number ? (uintptr_t)&number : 0,
				   .set_tid_size = number ? 1 : 0 };

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static void same(long turns, char **programs, int count)
{
	pid_t number = 0;

	for (long i = 0; i < turns; i++) {
		char *program = programs[i % count];
		pid_t pid = fork_as(number);

		if (pid == 0) {
			(void)execl(program, program, "burn", "5", (char *)NULL);
			_exit(1);
		}
		if (pid < 0) {
			(void)printf("cannot give a process a number: %s\n", strerror(errno));
			exit(0);
		}
		(void)waitpid(pid, NULL, 0);
		if (i == 1) // the second one has the first one's
			say("ready");
		number = pid;
	}
	say("done");
}

static void crowd(long turns, const char *path)
{
	int fd = open(path, O_RDONLY);

	for (long i = 0; i < turns; i++) {
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) {
			(void)printf("cannot map it %ld times: %s\n", turns, strerror(errno));
			exit(0);
		}
	}
	(void)unlink(path);
	say("ready");
	for (;;)
		sink = sink * 6364136223846793005u + 1;
}

int main(int argc, char **argv)
{
	long turns = argc > 2 ? atol(argv[2]) : 0;

	if (argc == 3 && strcmp(argv[1], "bomb") == 0)
		bomb(turns);
	else if (argc > 3 && strcmp(argv[1], "same") == 0)
		same(turns, argv + 3, argc - 3);
	else if (argc == 4 && strcmp(argv[1], "crowd") == 0)
		crowd(turns, argv[3]);
	else
		return 1;
	return 0;
}
