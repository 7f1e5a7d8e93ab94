// SPDX-License-Identifier: Apache-2.0
/* Waits of known kinds in functions of known names: each thread repeats its one wait and counts, by
 * clocks, the time it was off the CPU meanwhile. One thread is blocked all the time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define F __attribute__((noipa)) static void

enum {
	SLEEP,
	LOCK,
	CONDITION,
	PIPE,
	SOCKET,
	EPOLL,
	SYNC,
	CHILD,
	RWLOCK,
	SEMAPHORE,
	HOG_A,
	HOG_B,
	COUNT
};

static const char *const names[COUNT] = { "wait_sleep",	    "wait_lock",   "wait_condition",
					  "wait_pipe",	    "wait_socket", "wait_epoll",
					  "wait_sync",	    "wait_child",  "wait_rwlock",
					  "wait_semaphore", "hog_a",	   "hog_b" };
static int pipes[2], sockets[2], poll_pipes[2], poll_fd, file;
static pthread_mutex_t cache_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t state_changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t items;
static pthread_mutex_t forever = PTHREAD_MUTEX_INITIALIZER;
/* ns off the CPU in the function, at most and at least; ns on it; the thread's id */
static unsigned long long spent[COUNT], at_least[COUNT], ran[COUNT], calls[COUNT];
static int tids[COUNT];

static unsigned long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

static void nap(long us)
{
	struct timespec t = { .tv_nsec = us * 1000 };

	(void)nanosleep(&t, NULL);
}

F wait_sleep(void)
{
	struct timespec t = { .tv_nsec = 7000000 };

	(void)nanosleep(&t, NULL);
}

F wait_lock(void)
{
	pthread_mutex_lock(&cache_mutex);
	pthread_mutex_unlock(&cache_mutex);
	/* the owner takes it again before */
}

F wait_condition(void)
{
	pthread_mutex_lock(&state_mutex);
	pthread_cond_wait(&state_changed, &state_mutex);
	pthread_mutex_unlock(&state_mutex);
}

F wait_pipe(void)
{
	char byte;

	if (read(pipes[0], &byte, 1) != 1)
		exit(1);
}

F wait_socket(void)
{
	char byte;

	if (recv(sockets[0], &byte, 1, 0) != 1)
		exit(1);
}

F wait_epoll(void)
{
	struct epoll_event event;
	char byte;

	if (epoll_wait(poll_fd, &event, 1, -1) == 1 && read(poll_pipes[0], &byte, 1) != 1)
		exit(1);
}

F wait_sync(void)
{
	if (write(file, "x", 1) != 1 || fsync(file) < 0)
		exit(1);
}

F wait_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		nap(5000);
		_exit(0);
	}
	(void)waitpid(pid, NULL, 0);
}

F wait_rwlock(void)
{
	pthread_rwlock_rdlock(&table_lock);
	pthread_rwlock_unlock(&table_lock);
}

F wait_semaphore(void)
{
	if (sem_wait(&items))
		exit(1);
	__asm__ volatile("");
}

/* 5 ms of CPU time, beside another one on the same CPU. */
static void burn(void)
{
	unsigned long long end = now(CLOCK_THREAD_CPUTIME_ID) + 5000000;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

F hog_a(void)
{
	burn();
	__asm__ volatile("");
}

F hog_b(void)
{
	burn();
	__asm__ volatile("" ::: "memory");
}

static void (*const functions[COUNT])(void) = { wait_sleep,	wait_lock,   wait_condition,
						wait_pipe,	wait_socket, wait_epoll,
						wait_sync,	wait_child,  wait_rwlock,
						wait_semaphore, hog_a,	     hog_b };

static void add(unsigned long long *to, unsigned long long ns)
{
	__atomic_fetch_add(to, ns, __ATOMIC_RELAXED);
}

static void *run(void *argument)
{
	int which = (int)(long)argument;
	unsigned long long before, inner, cpu;

	pthread_setname_np(pthread_self(), names[which]);
	tids[which] = gettid();
	if (which >= HOG_A) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(0, &set);
		(void)sched_setaffinity(0, sizeof(set), &set);
	}
	for (;;) {
		before = now(CLOCK_MONOTONIC);
		cpu = now(CLOCK_THREAD_CPUTIME_ID);
		inner = now(CLOCK_MONOTONIC);
		functions[which]();
		inner = now(CLOCK_MONOTONIC) - inner;
		cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		/* off the CPU: what the clock says less what it ran; reading clocks takes time, too */
		add(&spent[which], now(CLOCK_MONOTONIC) - before - cpu);
		add(&at_least[which], inner > cpu ? inner - cpu : 0);
		add(&ran[which], cpu);
		add(&calls[which], 1);
		if (which == LOCK || which == RWLOCK)
			nap(300); /* the owner takes it meanwhile */
	}
	return NULL;
}

/* Holds the lock for 6 of 7 ms. */
static void *own(void *argument)
{
	(void)argument;
	pthread_setname_np(pthread_self(), "owner");
	for (;;) {
		pthread_mutex_lock(&cache_mutex);
		nap(6000);
		pthread_mutex_unlock(&cache_mutex);
		nap(1000);
	}
	return NULL;
}

/* The same of the read-write lock, as its writer. */
static void *rewrite(void *argument)
{
	(void)argument;
	pthread_setname_np(pthread_self(), "writer");
	for (;;) {
		pthread_rwlock_wrlock(&table_lock);
		nap(5000);
		pthread_rwlock_unlock(&table_lock);
		nap(1000);
	}
	return NULL;
}

static void *feed(void *argument)
{
	(void)argument;
	pthread_setname_np(pthread_self(), "feeder");
	for (;;) {
		nap(8000);
		if (write(pipes[1], "x", 1) != 1 || send(sockets[1], "x", 1, 0) != 1 ||
		    write(poll_pipes[1], "x", 1) != 1 || sem_post(&items))
			exit(1);
		pthread_mutex_lock(&state_mutex);
		pthread_cond_signal(&state_changed);
		pthread_mutex_unlock(&state_mutex);
	}
	return NULL;
}

static void __attribute__((noipa)) wait_for_ever(void)
{
	pthread_mutex_lock(&forever);
	__asm__ volatile("");
}

static void *stay(void *argument)
{
	(void)argument;
	pthread_setname_np(pthread_self(), "forever");
	wait_for_ever();
	return NULL;
}

static void start(void *(*function)(void *), long argument)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, function, (void *)argument))
		exit(1);
}

/* How long a thread has waited for CPUs. */
static unsigned long long queued_ns(int tid)
{
	unsigned long long queued = 0;
	char path[64];
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", tid);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%*u %llu", &queued) != 1)
		queued = 0;
	if (f)
		(void)fclose(f);
	return queued;
}

/* {function: [ns off the CPU at most, calls, ns off the CPU at least, ns on the CPU, ns that its
 * thread waited for CPUs]} */
static void print_counters(void)
{
	printf("{\"time\": %llu", now(CLOCK_REALTIME));
	for (int i = 0; i < COUNT; i++)
		printf(", \"%s\": [%llu, %llu, %llu, %llu, %llu]", names[i],
		       __atomic_load_n(&spent[i], __ATOMIC_RELAXED),
		       __atomic_load_n(&calls[i], __ATOMIC_RELAXED),
		       __atomic_load_n(&at_least[i], __ATOMIC_RELAXED),
		       __atomic_load_n(&ran[i], __ATOMIC_RELAXED),
		       tids[i] ? queued_ns(tids[i]) : 0);
	printf("}\n");
	fflush(stdout);
}

/* Every line of standard input is answered with a line of counters; the argument is a folder on a
 * disk. With a second one there are no threads that make processes, use a CPU all the time or sync
 * a file: a sync does not wait where files are in memory. */
int main(int argc, char **argv)
{
	struct epoll_event event = { .events = EPOLLIN };
	char line[64], path[4096];

	snprintf(path, sizeof(path), "%s/off_waits.XXXXXX", argc > 1 ? argv[1] : "/var/tmp");
	file = mkstemp(path);
	if (file < 0 || unlink(path) < 0 || pipe(pipes) < 0 || pipe(poll_pipes) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0)
		return 1;
	poll_fd = epoll_create1(0);
	if (poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, poll_pipes[0], &event) < 0)
		return 1;
	pthread_mutex_lock(&forever);
	sem_init(&items, 0, 0);
	for (long i = 0; i < COUNT; i++)
		if (argc < 3 || (i != SYNC && i != CHILD && i < HOG_A))
			start(run, i);
	start(own, 0);
	start(rewrite, 0);
	start(feed, 0);
	start(stay, 0);
	nap(100000);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		print_counters();
	return 0;
}
