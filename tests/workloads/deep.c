// SPDX-License-Identifier: Apache-2.0
// Uses its time at one depth: prints `ready` and computes below FRAMES frames in all, those of the
// C library's start included. With ROUNDS it does that much work, prints the CPU time it took in
// ns, and ends.
//
// usage: deep FRAMES [ROUNDS]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE     __attribute__((noinline, noclone))
#define FRAMES_ELSE  5 /* _start, two of libc, main, deep_leaf */

static volatile uint64_t sink;

NOINLINE void deep_leaf(void)
{
	for (int i = 0; i < 1000000; i++)
		sink = sink * 6364136223846793005u + 1;
}

NOINLINE int deep(int frames)
{
	volatile int local = frames;

	if (frames == 1)
		deep_leaf();
	else
		deep(frames - 1);
	return local;
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(int argc, char **argv)
{
	int frames = argc > 1 ? atoi(argv[1]) - FRAMES_ELSE : 1;
	long rounds = argc > 2 ? atol(argv[2]) : 0;
	uint64_t start_ns;

	printf("ready\n");
	fflush(stdout);
	start_ns = cpu_ns();
	for (long i = 0; !rounds || i < rounds; i++)
		deep(frames < 1 ? 1 : frames);
	printf("%llu\n", (unsigned long long)(cpu_ns() - start_ns));
	return 0;
}
