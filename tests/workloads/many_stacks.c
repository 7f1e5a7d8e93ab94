// SPDX-License-Identifier: Apache-2.0
/* Hardly ever the same stack: functions that call each other in a random order, a hundred deep, and
 * spin at the end. */
#include <stdint.h>
#include <stdlib.h>

#define DEPTH 100

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static int step(int depth);

#define FUNCTION(name)                                                                             \
	__attribute__((noinline)) static int name(int depth)                                       \
	{                                                                                          \
		return step(depth) + 1;                                                            \
	}

FUNCTION(red)
FUNCTION(orange)
FUNCTION(yellow)
FUNCTION(green)
FUNCTION(cyan)
FUNCTION(blue)
FUNCTION(violet)
FUNCTION(white)

__attribute__((noinline)) static int step(int depth)
{
	static int (*const functions[])(int) = { red, orange, yellow, green, cyan, blue, violet, white };
	volatile int turns = 20000;

	if (depth > 0)
		return functions[next() >> 61](depth - 1);
	while (turns > 0)
		turns--;
	return 0;
}

int main(void)
{
	for (;;)
		if (step(DEPTH) < 0)
			return EXIT_FAILURE;
}
