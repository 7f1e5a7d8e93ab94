// SPDX-License-Identifier: Apache-2.0
// Known shares in C: leaf_a 60 % below 20 frames of chain_a, leaf_b 40 % below 5 of chain_b.
// truth_plain.rs and truth_plain.go are the same program.
//
// usage: truth_plain CPU-SECONDS
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

// gcc makes copies for constant arguments, clang does not know the attribute
#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

static volatile uint64_t sink;
static volatile int unit; // of this round: rounds of equal length fall into step with the sampling

static inline __attribute__((always_inline)) void spin(int turns)
{
	uint64_t x = sink;

	for (int i = 0; i < turns; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	sink = x;
}

NOINLINE void leaf_a(void)
{
	spin(6 * unit);
}

NOINLINE void leaf_b(void)
{
	spin(4 * unit);
}

NOINLINE int chain_a(int depth)
{
	volatile int local = depth;

	if (depth == 1)
		leaf_a();
	else
		chain_a(depth - 1);
	return local;
}

NOINLINE int chain_b(int depth)
{
	volatile int local = depth;

	if (depth == 1)
		leaf_b();
	else
		chain_b(depth - 1);
	return local;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;

	while ((double)clock() < seconds * CLOCKS_PER_SEC) {
		unit = 1000 + rand() % 18000;
		chain_a(20);
		chain_b(5);
	}
	return 0;
}
