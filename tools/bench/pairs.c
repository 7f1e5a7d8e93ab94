// SPDX-License-Identifier: Apache-2.0
/* malloc and free for ever: pairs SPIN FILE. Between the two it counts to SPIN; how many pairs
 * there were so far stands in the first 8 bytes of FILE, which must be there. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *volatile sink;
static volatile uint64_t work;

int main(int argc, char **argv)
{
	int spin = argc > 2 ? atoi(argv[1]) : 0;
	int fd = argc > 2 ? open(argv[2], O_RDWR) : -1;
	volatile uint64_t *pairs =
		fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (pairs == MAP_FAILED)
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		void *p = malloc(64);

		sink = p;
		for (int k = 0; k < spin; k++)
			work += (uint64_t)k;
		free(p);
		++*pairs;
	}
}
