// SPDX-License-Identifier: Apache-2.0
/* Prints `ready`, then spends the given percentage of its work in slow_way(), the rest in fast_way(). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t sink;

static __attribute__((noinline)) void fast_way(void)
{
	for (uint64_t i = 0; i < 10000; i++)
		sink += i;
}

static __attribute__((noinline)) void slow_way(void)
{
	for (uint64_t i = 0; i < 10000; i++)
		sink ^= i;
}

int main(int argc, char **argv)
{
	unsigned slow_pct = argc > 1 ? (unsigned)atoi(argv[1]) : 0;

	(void)puts("ready");
	(void)fflush(stdout);
	for (unsigned round = 0;; round = (round + 1) % 100) {
		if (round < slow_pct)
			slow_way();
		else
			fast_way();
	}
}
