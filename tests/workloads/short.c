// SPDX-License-Identifier: Apache-2.0
/* A program that lives for a few milliseconds of CPU in storm_burn(), and a parent that starts RATE
 * of them a second for SECONDS (`short storm RATE SECONDS [MS]`), 5 ms each or MS. Prints the CPU
 * time the children used, in ns. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

__attribute__((noinline)) static uint64_t storm_burn(uint64_t until)
{
	uint64_t x = 1;

	while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < until)
		for (int i = 0; i < 2000; i++)
			x = x * 6364136223846793005u + 1;
	return x;
}

int main(int argc, char **argv)
{
	uint64_t rate, start, end;
	struct rusage usage;

	if (argc < 4 || strcmp(argv[1], "storm")) {
		uint64_t x = storm_burn((argc > 2 ? strtoull(argv[2], NULL, 10) : 5) * 1000000u);

		return x == 0;
	}
	rate = strtoull(argv[2], NULL, 10);
	start = clock_ns(CLOCK_MONOTONIC);
	end = start + strtoull(argv[3], NULL, 10) * 1000000000u;
	for (uint64_t i = 0;; i++) {
		uint64_t due = start + i * 1000000000u / rate, now = clock_ns(CLOCK_MONOTONIC);
		struct timespec wait = { 0, due > now ? (long)(due - now) : 0 };

		if (due >= end)
			break;
		(void)nanosleep(&wait, NULL);
		if (fork() == 0) {
			(void)execl(argv[0], argv[0], "burn", argc > 4 ? argv[4] : "5", (char *)NULL);
			_exit(1);
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
	}
	while (wait(NULL) > 0)
		continue;
	(void)getrusage(RUSAGE_CHILDREN, &usage);
	(void)printf("%llu\n",
		     (unsigned long long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
			     (unsigned long long)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u);
	return 0;
}
