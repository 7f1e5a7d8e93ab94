// SPDX-License-Identifier: Apache-2.0
/* Waits for a byte on its standard input, uses MS of CPU time below ten frames of chain_V() and one
 * of burn_V(), and ends (`sleeper MS`). Built with -DV=N it is another program for each N. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PASTE(a, b) a##_##b
#define NAME(a, b)  PASTE(a, b)
#define NOINLINE    __attribute__((noipa))

static volatile uint64_t sink;

NOINLINE void NAME(burn, V)(void)
{
	for (int i = 0; i < 2000; i++)
		sink = sink * 6364136223846793005u + V;
}

NOINLINE int NAME(chain, V)(int depth)
{
	if (depth)
		return NAME(chain, V)(depth - 1) + 1;
	NAME(burn, V)();
	return 1;
}

int main(int argc, char **argv)
{
	int64_t ms = argc > 1 ? atoi(argv[1]) : 20;
	struct timespec t;
	char byte;

	if (read(STDIN_FILENO, &byte, 1) != 1)
		return 1;
	do {
		sink += (uint64_t)NAME(chain, V)(9);
		(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
	return 0;
}
