// SPDX-License-Identifier: Apache-2.0
/* Many threads, many switches, short lives, a lock of the kernel: off_crowd threads N | switches |
 * exec | maps. After "ready" every line of standard input is answered with {"time": ns, "nap": ns
 * off the CPU of all threads in nap(), "switches": n, "mapped": ns off the CPU in map_small()}. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define F __attribute__((noipa)) static void

static unsigned long long napped, switches, mapped;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static unsigned long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

F nap(void)
{
	struct timespec t = { .tv_nsec = 90000000 };

	(void)nanosleep(&t, NULL);
	__asm__ volatile("");
}

F stay(void)
{
	pthread_mutex_lock(&gate);
	for (;;)
		pthread_cond_wait(&never, &gate);
}

F pass(int from, int onto)
{
	char byte;

	if (read(from, &byte, 1) != 1 || write(onto, &byte, 1) != 1)
		exit(1);
	__asm__ volatile("");
}

F after_exec(void)
{
	for (;;)
		pause();
}

static void *napper(void *argument)
{
	unsigned long long before, cpu;

	(void)argument;
	for (;;) {
		before = now(CLOCK_MONOTONIC);
		cpu = now(CLOCK_THREAD_CPUTIME_ID);
		nap();
		cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		__atomic_fetch_add(&napped, now(CLOCK_MONOTONIC) - before - cpu, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *stayer(void *argument)
{
	(void)argument;
	stay();
	return NULL;
}

static int pipes[2][2];

static void *player(void *argument)
{
	int which = (int)(long)argument;

	for (;;) {
		pass(pipes[which][0], pipes[!which][1]);
		__atomic_fetch_add(&switches, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* The kernel holds the lock of the process's mappings while it fills memory, ... */
F map_large(void)
{
	const size_t bytes = 96u << 20;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory != MAP_FAILED)
		(void)munmap(memory, bytes);
	__asm__ volatile("");
}

/* ... and wants it for the smallest. */
F map_small(void)
{
	void *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory != MAP_FAILED)
		(void)munmap(memory, 4096);
	__asm__ volatile("");
}

static void *filler(void *argument)
{
	(void)argument;
	for (;;)
		map_large();
	return NULL;
}

static void *mapper(void *argument)
{
	const struct timespec pause = { .tv_nsec = 500000 };
	unsigned long long before, cpu;

	(void)argument;
	for (;;) {
		before = now(CLOCK_MONOTONIC);
		cpu = now(CLOCK_THREAD_CPUTIME_ID);
		map_small();
		cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		__atomic_fetch_add(&mapped, now(CLOCK_MONOTONIC) - before - cpu, __ATOMIC_RELAXED);
		(void)nanosleep(&pause, NULL);
	}
	return NULL;
}

static void start(void *(*function)(void *), long argument)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	if (pthread_create(&thread, &attr, function, (void *)argument)) {
		perror("thread");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[2]) : 0;
	cpu_set_t set;
	char line[64];

	if (argc > 1 && strcmp(argv[1], "after") == 0)
		after_exec();
	if (argc > 1 && strcmp(argv[1], "switches") == 0) {
		CPU_ZERO(&set);
		CPU_SET(0, &set);
		if (sched_setaffinity(0, sizeof(set), &set) < 0 || pipe(pipes[0]) < 0 ||
		    pipe(pipes[1]) < 0 || write(pipes[0][1], "x", 1) != 1)
			return 1;
		start(player, 0);
		start(player, 1);
	}
	for (long i = 0; i < count; i++)
		start(i % 2 ? napper : stayer, 0);
	if (argc > 1 && strcmp(argv[1], "exec") == 0)
		start(stayer, 0);
	if (argc > 1 && strcmp(argv[1], "maps") == 0) {
		start(filler, 0);
		start(mapper, 0);
	}
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "exec\n") == 0)
			(void)execl("/proc/self/exe", argv[0], "after", (char *)NULL);
		printf("{\"time\": %llu, \"nap\": %llu, \"switches\": %llu, \"mapped\": %llu}\n",
		       now(CLOCK_MONOTONIC), __atomic_load_n(&napped, __ATOMIC_RELAXED),
		       __atomic_load_n(&switches, __ATOMIC_RELAXED),
		       __atomic_load_n(&mapped, __ATOMIC_RELAXED));
		fflush(stdout);
	}
	return 0;
}
