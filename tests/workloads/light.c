// SPDX-License-Identifier: Apache-2.0
/* Works for about a millisecond twice a second: hundreds of them leave a host to others. */
#include <time.h>

static volatile long sink;

__attribute__((noinline)) static void work(void)
{
	for (long i = 0; i < 500000; i++)
		sink += i;
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 500000000 };

	for (;;) {
		work();
		(void)nanosleep(&pause, NULL);
	}
}
