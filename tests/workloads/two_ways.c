// SPDX-License-Identifier: Apache-2.0
/* two_ways SLOW [BESIDE]: prints `ready`, then does rounds of work for ever: of a hundred on
 * average SLOW in slow_way() and the others in fast_way(), and to them BESIDE each in four
 * functions that nobody changes. One thread does all of it, so that the parts do not depend on what
 * else wants the CPUs; rounds are drawn, so that none are in step with samples. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t sink;

#define WAY(name, operation)                                                                       \
	static __attribute__((noinline)) void name(void)                                           \
	{                                                                                          \
		for (uint64_t i = 0; i < 10000; i++)                                               \
			sink operation i;                                                          \
	}

WAY(fast_way, +=)
WAY(slow_way, ^=)
WAY(beside_one, -=)
WAY(beside_two, |=)
WAY(beside_three, &=)
WAY(beside_four, *=)

static unsigned draw(unsigned below)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state % below);
}

int main(int argc, char **argv)
{
	static void (*const beside_ways[])(void) = { beside_one, beside_two, beside_three, beside_four };
	unsigned slow = argc > 1 ? (unsigned)atoi(argv[1]) : 0,
		 beside = argc > 2 ? (unsigned)atoi(argv[2]) : 0;

	(void)puts("ready");
	(void)fflush(stdout);
	for (;;) {
		unsigned round = draw(100 + 4 * beside);

		if (round < slow)
			slow_way();
		else if (round < 100)
			fast_way();
		else
			beside_ways[(round - 100) / beside]();
	}
}
