// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
/* Threads that wait in every way the reader must name, each below three functions of its own;
 * prints "ready", then stays until it is killed. Thread names say what is expected: wait word with
 * '_' for ' '. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "asleep.h"

#define NOINLINE __attribute__((noinline, noclone))
/* Keeps the call from being the last thing, so that the caller's frame stays. */
#define AFTER __asm__ volatile("" ::: "memory")

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static unsigned begun;
static volatile unsigned long spins;

NOINLINE void wait_mutex(void)
{
	(void)pthread_mutex_lock(&lock);
	AFTER;
}
NOINLINE void wait_condition(void)
{
	static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	(void)pthread_mutex_lock(&own);
	(void)pthread_cond_wait(&condition, &own);
	AFTER;
}
NOINLINE void wait_sleep(void)
{
	(void)sleep(100000);
	AFTER;
}
NOINLINE void wait_pipe(void)
{
	int fds[2];
	char c;

	if (pipe(fds) == 0)
		(void)!read(fds[0], &c, 1);
	AFTER;
}
NOINLINE void wait_socket(void)
{
	int fds[2];
	char c;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0)
		(void)!recv(fds[0], &c, 1, 0);
	AFTER;
}
NOINLINE void wait_epoll(void)
{
	struct epoll_event event;

	(void)epoll_wait(epoll_create1(0), &event, 1, -1);
	AFTER;
}
NOINLINE void wait_poll(void)
{
	(void)poll(NULL, 0, -1);
	AFTER;
}
NOINLINE void wait_select(void)
{
	(void)select(0, NULL, NULL, NULL, NULL);
	AFTER;
}
NOINLINE void wait_event(void)
{
	unsigned long long value;

	(void)!read(eventfd(0, 0), &value, sizeof(value));
	AFTER;
}
NOINLINE void wait_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)pause();
	}
	(void)waitpid(pid, NULL, 0);
	AFTER;
}
NOINLINE void wait_spin(void)
{
	for (;;)
		spins++;
}

/* Frames of different shapes on the way: small, large with an array, one that aligns its stack. */
NOINLINE void third_level(void (*f)(void))
{
	f();
	AFTER;
}
NOINLINE void second_level(void (*f)(void), int n)
{
	char buffer[3000];

	(void)memset(buffer, n, sizeof(buffer));
	third_level(f);
	__asm__ volatile("" ::"r"(buffer) : "memory");
}
NOINLINE void first_level(void (*f)(void), int n)
{
	char *dynamic = __builtin_alloca((unsigned long)n);

	dynamic[0] = (char)n;
	second_level(f, n);
	__asm__ volatile("" ::"r"(dynamic) : "memory");
}

struct situation {
	const char *name;
	void (*f)(void);
};

static void *thread_main(void *arg)
{
	const struct situation *s = arg;

	(void)pthread_setname_np(pthread_self(), s->name);
	__atomic_fetch_add(&begun, 1, __ATOMIC_RELEASE);
	first_level(s->f, 100);
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct situation all[] = {
		{ "futex mutex", wait_mutex },	{ "futex cond", wait_condition },
		{ "nanosleep", wait_sleep },	{ "pipe read", wait_pipe },
		{ "socket read", wait_socket }, { "epoll", wait_epoll },
		{ "poll", wait_poll },		{ "select", wait_select },
		{ "eventfd read", wait_event }, { "child", wait_child },
		{ "spin", wait_spin },
	};
	int more = argc > 1 ? atoi(argv[1]) : 0, count = (int)(sizeof(all) / sizeof(all[0]));
	pthread_attr_t attr;
	pthread_t thread;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 64 << 10);
	(void)pthread_mutex_lock(&lock);
	for (int i = 0; i < count; i++)
		if (pthread_create(&thread, &attr, thread_main, (void *)&all[i]) != 0)
			return 1;
	for (int i = 0; i < more; i++)
		if (pthread_create(&thread, &attr, thread_main, (void *)&all[1]) != 0)
			return 1;
	await_asleep(&begun, (unsigned)(count + more), 1);
	(void)puts("ready");
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}
