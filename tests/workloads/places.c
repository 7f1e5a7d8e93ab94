// SPDX-License-Identifier: Apache-2.0
// Code in unusual places. It prints `ready` and then uses its time in place_leaf:
//   deep     below 400 frames of place_deep
//   dlopen   in a library (LIBRARY) that is opened and defines place_leaf_in_library
//   plain    below place_plain
//   lazy     in the dynamic linker, with LD_BIND_NOT=1: every call from place_lazy binds its
//   function again
//
// usage: places deep|dlopen|plain|lazy [LIBRARY]
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile uint64_t sink;

NOINLINE void place_leaf(void)
{
	for (int i = 0; i < 100000; i++)
		sink = sink * 6364136223846793005u + 1;
}

NOINLINE int place_deep(int depth)
{
	volatile int local = depth;

	if (depth == 1)
		place_leaf();
	else
		place_deep(depth - 1);
	return local;
}

NOINLINE void place_plain(void)
{
	place_leaf();
	__asm__ volatile("");
}

NOINLINE void place_lazy(void)
{
	for (int i = 0; i < 1000; i++)
		sink += (uint64_t)rand();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "plain";
	void (*in_library)(void) = NULL;

	if (strcmp(what, "dlopen") == 0) {
		void *library = dlopen(argv[2], RTLD_NOW);

		if (library)
			in_library = (void (*)(void))dlsym(library, "place_leaf_in_library");
		if (!in_library)
			return 1;
	}
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		if (in_library)
			in_library();
		else if (strcmp(what, "deep") == 0)
			place_deep(400);
		else if (strcmp(what, "lazy") == 0)
			place_lazy();
		else
			place_plain();
	}
}
