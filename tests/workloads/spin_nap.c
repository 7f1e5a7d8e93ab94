// SPDX-License-Identifier: Apache-2.0
/* A main thread that never waits, and a thread "nap" that works for 20 ms and sleeps for 1, again
 * and again. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void *nap(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "nap");
	for (;;) {
		for (long long end = now_ns() + 20000000; now_ns() < end;)
			;
		usleep(1000);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;

	pthread_setname_np(pthread_self(), "spin");
	if (pthread_create(&thread, NULL, nap, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	for (volatile long i = 0;; i++)
		;
}
