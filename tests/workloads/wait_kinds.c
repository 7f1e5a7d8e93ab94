// SPDX-License-Identifier: Apache-2.0
/* One thread for each kind of wait, named after it; each waits about 10 ms again and again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int pipes[2], socks[2], events, ep, ticks, faults;
static char *page;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void futex(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 10000000;
	if (t.tv_nsec > 999999999)
		t.tv_sec++, t.tv_nsec -= 1000000000;
	pthread_mutex_lock(&lock);
	pthread_cond_timedwait(&cond, &lock, &t);
	pthread_mutex_unlock(&lock);
}

static void pipe_(void)
{
	char b;
	read(pipes[0], &b, 1);
}

static void socket_(void)
{
	char b;
	read(socks[0], &b, 1);
}

static void epoll(void)
{
	struct epoll_event e;
	epoll_wait(ep, &e, 1, 10);
}

static void sleep_(void)
{
	usleep(10000);
}

static void child(void)
{
	pid_t p = vfork();
	if (!p) {
		usleep(10000);
		_exit(0);
	}
	waitpid(p, 0, 0);
}

static void event(void)
{
	uint64_t b;
	read(events, &b, 8);
}

static void signal_(void)
{
	sigset_t s;
	struct timespec t = { 0, 10000000 };
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	sigtimedwait(&s, 0, &t);
}

static void timer(void)
{
	struct itimerspec t = { .it_value = { 0, 10000000 } };
	uint64_t b;
	timerfd_settime(ticks, 0, &t, 0);
	read(ticks, &b, 8);
}

static void fault(void)
{
	*(volatile char *)page = 1;
	madvise(page, 4096, MADV_DONTNEED);
}

static void feed(void)
{
	struct uffdio_zeropage z = { { (size_t)page, 4096 } };
	uint64_t b = 1;
	usleep(10000);
	write(pipes[1], &b, 1);
	write(socks[1], &b, 1);
	write(events, &b, 8);
	ioctl(faults, UFFDIO_ZEROPAGE, &z);
}

static const struct {
	const char *name;
	void (*wait)(void);
} kinds[] = { { "futex", futex },  { "pipe", pipe_ },  { "socket", socket_ }, { "epoll", epoll },
	      { "sleep", sleep_ }, { "child", child }, { "event", event },    { "signal", signal_ },
	      { "timer", timer },  { "fault", fault }, { "feed", feed } };
static void *run(void *p)
{
	int k = (long)p;
	pthread_setname_np(pthread_self(), kinds[k].name);
	for (;;)
		kinds[k].wait();
}

int main(void)
{
	pthread_t t;
	pipe(pipes);
	socketpair(AF_UNIX, SOCK_STREAM, 0, socks);
	events = eventfd(0, 0);
	ep = epoll_create1(0);
	ticks = timerfd_create(CLOCK_MONOTONIC, 0);
	page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_api api = { UFFD_API };
	faults = syscall(SYS_userfaultfd, 0);
	ioctl(faults, UFFDIO_API, &api);
	struct uffdio_register area = { { (size_t)page, 4096 }, UFFDIO_REGISTER_MODE_MISSING };
	if (ioctl(faults, UFFDIO_REGISTER, &area))
		return 1;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	for (long k = 0; k < 11; k++)
		pthread_create(&t, 0, run, (void *)k);
	puts("x");
	fflush(stdout);
	pause();
}
