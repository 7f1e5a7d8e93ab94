// SPDX-License-Identifier: Apache-2.0
/* Fixed work with malloc and free: pairs COUNT SPIN. A line on stdin starts it; prints the CPU seconds it took. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *volatile sink;
static volatile uint64_t work;

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[1]) : 0;
	int spin = argc > 2 ? atoi(argv[2]) : 0;
	double begin;

	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	begin = cpu_s();
	for (long i = 0; i < count; i++) {
		void *p = malloc(64);

		sink = p;
		for (int k = 0; k < spin; k++)
			work += (uint64_t)k;
		free(p);
	}
	printf("%.6f\n", cpu_s() - begin);
	return 0;
}
