// SPDX-License-Identifier: Apache-2.0
/* Two processes on one CPU that pass a byte to and fro, as fast as they can: every read is a
 * switch. Prints the CPU time of both per switch, ns, after each line of standard input and ends
 * with it. The argument is the number of rounds, two switches each. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int to[2], fro[2];

static void __attribute__((noipa)) pass(int from, int onto)
{
	char byte;

	if (read(from, &byte, 1) != 1 || write(onto, &byte, 1) != 1)
		_exit(0);
	__asm__ volatile("");
}

static double cpu_ns(int who)
{
	struct rusage usage;

	getrusage(who, &usage);
	return ((double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec) * 1e9 +
	       ((double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec) * 1e3;
}

/* A child of its own each time, so that its CPU time is known when it has ended. */
static double play(long rounds)
{
	double before = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN);
	pid_t pid;

	if (pipe(to) < 0 || pipe(fro) < 0)
		exit(1);
	pid = fork();
	for (long i = 0; i < rounds; i++) {
		if (pid == 0) {
			pass(to[0], fro[1]);
		} else {
			if (write(to[1], "x", 1) != 1)
				exit(1);
			char byte;
			if (read(fro[0], &byte, 1) != 1)
				exit(1);
		}
	}
	if (pid == 0)
		_exit(0);
	(void)waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		(void)close(to[i]);
		(void)close(fro[i]);
	}
	return (cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN) - before) / (double)(2 * rounds);
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 100000;
	char line[64];
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		printf("%.1f\n", play(rounds));
		fflush(stdout);
	}
	return 0;
}
