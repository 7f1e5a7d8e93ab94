// SPDX-License-Identifier: Apache-2.0
/* Spends its time in the kernel: reads of /dev/zero (clear_user below read) for SECONDS of CPU. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 20];

__attribute__((noinline)) static long read_loop(int fd)
{
	long sum = 0;

	for (int i = 0; i < 100; i++)
		sum += read(fd, buffer, sizeof(buffer));
	return sum;
}

int main(int argc, char **argv)
{
	clock_t end = clock() + (clock_t)((argc > 1 ? atof(argv[1]) : 5) * CLOCKS_PER_SEC);
	int fd = open("/dev/zero", O_RDONLY);
	long sum = 0;

	(void)printf("ready\n");
	(void)fflush(stdout);
	while (clock() < end)
		sum += read_loop(fd);
	(void)printf("%ld\n", sum);
	return 0;
}
