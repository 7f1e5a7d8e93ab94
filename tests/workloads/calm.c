// SPDX-License-Identifier: Apache-2.0
/* Works for 5 ms of CPU time and sleeps for 10 ms, again and again: leaves room for what looks at
 * it. usage: calm [MS that it sleeps] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile long sink;

static long long cpu_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

__attribute__((noinline)) static void add(void)
{
	for (long i = 0; i < 20000; i++)
		sink += i;
}

__attribute__((noinline)) static void multiply(void)
{
	for (long i = 0; i < 10000; i++)
		sink = sink * 3 + i;
}

__attribute__((noinline)) static void work(long long until_ns)
{
	while (cpu_ns() < until_ns) {
		add();
		multiply();
	}
}

int main(int argc, char **argv)
{
	useconds_t rest_us = 1000 * (argc > 1 ? atoi(argv[1]) : 10);

	puts("ready");
	fflush(stdout);
	for (;;) {
		work(cpu_ns() + 5000000);
		usleep(rest_us);
	}
}
