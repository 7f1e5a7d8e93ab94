// SPDX-License-Identifier: Apache-2.0
/* Uses MS milliseconds of CPU time, then starts the rest of its arguments as a program in its
 * place, if there are any. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long cpu_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

__attribute__((noinline)) static void spin(long long until_ns)
{
	while (cpu_ns() < until_ns)
		for (volatile int i = 0; i < 20000; i++)
			;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	spin(cpu_ns() + atoll(argv[1]) * 1000000);
	if (argc > 2)
		(void)execv(argv[2], argv + 2);
	return argc > 2 ? 1 : 0;
}
