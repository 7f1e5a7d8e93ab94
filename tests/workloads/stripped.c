// SPDX-License-Identifier: Apache-2.0
// Known shares in a program and, with -DLIBRARY, its library, which exports every other function:
// work_a 40 %, work_c 20 % of the library's own, shown_b 30 %, and of the program work_d 10 %.
//
// usage: stripped CPU-SECONDS
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

static inline __attribute__((always_inline)) void spin(volatile uint64_t *sink, int turns)
{
	uint64_t x = *sink;

	for (int i = 0; i < turns; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	*sink = x;
}

void shown_b(int unit);
void shown_run(int unit);

static volatile uint64_t sink;

#ifdef LIBRARY

static NOINLINE void work_a(int unit)
{
	spin(&sink, 4 * unit);
}

NOINLINE void shown_b(int unit)
{
	spin(&sink, 3 * unit);
	sink++; // no tail, no copy of work_a
}

static NOINLINE void work_c(int unit)
{
	spin(&sink, 2 * unit);
	sink--;
}

static NOINLINE void chain(int depth, int unit)
{
	if (depth)
		chain(depth - 1, unit);
	else
		work_c(unit);
	sink++;
}

NOINLINE void shown_run(int unit)
{
	work_a(unit);
	shown_b(unit);
	chain(7, unit);
}

#else

static NOINLINE void work_d(int unit)
{
	spin(&sink, unit);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;

	while ((double)clock() < seconds * CLOCKS_PER_SEC) {
		int unit = 1000 + rand() % 18000;

		shown_run(unit);
		work_d(unit);
	}
	return 0;
}

#endif
