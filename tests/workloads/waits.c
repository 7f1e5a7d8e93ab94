// SPDX-License-Identifier: Apache-2.0
/* Threads that wait, each for something else in a function of its own. Says "ready" when all do. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "asleep.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t never;
static int pipe_fds[2];
static unsigned begun;

__attribute__((noinline)) static int wait_lock(void)
{
	return pthread_mutex_lock(&lock);
}

__attribute__((noinline)) static int wait_semaphore(void)
{
	return sem_wait(&never);
}

__attribute__((noinline)) static int wait_pipe(void)
{
	char byte;

	return (int)read(pipe_fds[0], &byte, 1);
}

__attribute__((noinline)) static int wait_epoll(void)
{
	struct epoll_event event;

	return epoll_wait(epoll_create1(0), &event, 1, -1);
}

__attribute__((noinline)) static int wait_sleep(void)
{
	const struct timespec hour = { .tv_sec = 3600 };

	return nanosleep(&hour, NULL);
}

static void *run(void *arg)
{
	int (*const *wait)(void) = arg;

	__atomic_fetch_add(&begun, 1, __ATOMIC_RELEASE);
	return (*wait)() < 0 ? arg : NULL;
}

int main(void)
{
	static int (*const waits[])(void) = { wait_lock, wait_lock, wait_semaphore,
					      wait_pipe, wait_epoll, wait_sleep };
	pthread_t thread;

	if (pipe(pipe_fds) < 0 || sem_init(&never, 0, 0) < 0)
		return 1;
	(void)pthread_mutex_lock(&lock);
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
		if (pthread_create(&thread, NULL, run, (void *)&waits[i]))
			return 1;
	await_asleep(&begun, sizeof(waits) / sizeof(waits[0]), 0);
	(void)puts("ready");
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}
