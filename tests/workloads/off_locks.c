// SPDX-License-Identifier: Apache-2.0
/* Locks of every kind, each with a thread that holds it most of the time and never waits for it,
 * and one that waits for it in a function of its own: wait_KIND for what hold_KIND holds. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wait
#define SYS_futex_wait 455
#endif

static void nap(long us)
{
	struct timespec t = { .tv_nsec = us * 1000 };

	(void)nanosleep(&t, NULL);
}

/* ---- locks of our own: 0 free, 1 taken, 2 taken and waited for ------------------------------- */

struct word {
	_Atomic uint32_t value;
	uint32_t beside[7]; /* no owner anywhere */
};

/* As struct futex_waitv of linux/futex.h, which older headers lack. */
struct waitv {
	uint64_t value, address;
	uint32_t flags, reserved;
};

enum how { PLAIN, BITSET, VECTOR, SECOND };

static inline __attribute__((always_inline)) void word_wait(struct word *word, enum how how)
{
	const uint32_t flags = 2 | FUTEX_PRIVATE_FLAG; /* 32 bits */
	struct waitv wait = { 2, (uintptr_t)&word->value, flags, 0 };

	if (how == VECTOR)
		(void)syscall(SYS_futex_waitv, &wait, 1, 0, NULL, CLOCK_MONOTONIC);
	else if (how == BITSET)
		(void)syscall(SYS_futex, &word->value, FUTEX_WAIT_BITSET_PRIVATE, 2, NULL, NULL,
			      FUTEX_BITSET_MATCH_ANY);
	else if (how == PLAIN ||
		 (syscall(SYS_futex_wait, &word->value, 2, FUTEX_BITSET_MATCH_ANY, flags, NULL,
			  CLOCK_MONOTONIC) < 0 && errno == ENOSYS)) /* since Linux 6.7 */
		(void)syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, 2, NULL);
}

static inline __attribute__((always_inline)) void word_lock(struct word *word, enum how how)
{
	uint32_t free = 0;

	if (atomic_compare_exchange_strong(&word->value, &free, 1))
		return;
	while (atomic_exchange(&word->value, 2) != 0)
		word_wait(word, how);
}

static void word_unlock(struct word *word)
{
	if (atomic_exchange(&word->value, 0) == 2)
		(void)syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, 1);
}

/* The kernel frees it and wakes in one. */
static void word_unlock_op(struct word *word)
{
	static uint32_t nobody;

	(void)syscall(SYS_futex, &nobody, FUTEX_WAKE_OP_PRIVATE, 1, 1, &word->value,
		      FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_EQ, 2));
}

/* Whoever waits at @word goes on waiting at @other, and is woken there. */
static void word_unlock_requeue(struct word *word, struct word *other)
{
	(void)syscall(SYS_futex, &word->value, FUTEX_CMP_REQUEUE_PRIVATE, 0, 1, &other->value, 2);
	nap(1000);
	atomic_store(&word->value, 0);
	(void)syscall(SYS_futex, &other->value, FUTEX_WAKE_PRIVATE, 1);
	(void)syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, 1); /* it came in between */
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, timed = PTHREAD_MUTEX_INITIALIZER, robust,
		       pi;
static pthread_rwlock_t read_held = PTHREAD_RWLOCK_INITIALIZER,
			write_held = PTHREAD_RWLOCK_INITIALIZER;
static struct word word, vector, second, op, requeued, beside;

#define WAIT(name, lock, unlock)                                                                   \
	__attribute__((noipa)) static void wait_##name(void)                                       \
	{                                                                                          \
		lock;                                                                              \
		unlock;                                                                            \
	}                                                                                          \
	__attribute__((noipa)) static void hold_##name(void)

static void lock_timed(void)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_sec += 5;
	(void)pthread_mutex_timedlock(&timed, &at);
}

WAIT(plain, pthread_mutex_lock(&plain), pthread_mutex_unlock(&plain))
{
	pthread_mutex_lock(&plain);
	nap(6000);
	pthread_mutex_unlock(&plain);
}
WAIT(timed, lock_timed(), pthread_mutex_unlock(&timed))
{
	pthread_mutex_lock(&timed);
	nap(6000);
	pthread_mutex_unlock(&timed);
}
WAIT(robust, pthread_mutex_lock(&robust), pthread_mutex_unlock(&robust))
{
	pthread_mutex_lock(&robust);
	nap(6000);
	pthread_mutex_unlock(&robust);
}
WAIT(pi, pthread_mutex_lock(&pi), pthread_mutex_unlock(&pi))
{
	pthread_mutex_lock(&pi);
	nap(6000);
	pthread_mutex_unlock(&pi);
}
WAIT(reader, pthread_rwlock_rdlock(&write_held), pthread_rwlock_unlock(&write_held))
{
	pthread_rwlock_wrlock(&write_held);
	nap(6000);
	pthread_rwlock_unlock(&write_held);
}
WAIT(writer, pthread_rwlock_wrlock(&read_held), pthread_rwlock_unlock(&read_held))
{
	pthread_rwlock_wrlock(&read_held);
	nap(6000);
	pthread_rwlock_unlock(&read_held);
}
WAIT(word, word_lock(&word, BITSET), word_unlock(&word))
{
	word_lock(&word, BITSET);
	nap(6000);
	word_unlock(&word);
}
WAIT(vector, word_lock(&vector, VECTOR), word_unlock(&vector))
{
	word_lock(&vector, VECTOR);
	nap(6000);
	word_unlock(&vector);
}
WAIT(second, word_lock(&second, SECOND), word_unlock(&second))
{
	word_lock(&second, SECOND);
	nap(6000);
	word_unlock(&second);
}
WAIT(op, word_lock(&op, PLAIN), word_unlock(&op))
{
	word_lock(&op, PLAIN);
	nap(6000);
	word_unlock_op(&op);
}
WAIT(requeue, word_lock(&requeued, PLAIN), word_unlock(&requeued))
{
	word_lock(&requeued, PLAIN);
	nap(5000);
	word_unlock_requeue(&requeued, &beside);
}

static const struct kind {
	const char *name;
	void (*wait)(void), (*hold)(void);
} kinds[] = {
	{ "plain", wait_plain, hold_plain },	{ "timed", wait_timed, hold_timed },
	{ "robust", wait_robust, hold_robust }, { "pi", wait_pi, hold_pi },
	{ "reader", wait_reader, hold_reader }, { "writer", wait_writer, hold_writer },
	{ "word", wait_word, hold_word },	{ "vector", wait_vector, hold_vector },
	{ "second", wait_second, hold_second }, { "op", wait_op, hold_op },
	{ "requeue", wait_requeue, hold_requeue },
};

static void *wait_again(void *argument)
{
	const struct kind *kind = argument;

	pthread_setname_np(pthread_self(), kind->name);
	for (;;) {
		kind->wait();
		nap(300); /* the holder takes it meanwhile */
	}
	return NULL;
}

static void *hold_again(void *argument)
{
	const struct kind *kind = argument;
	char name[16];

	(void)snprintf(name, sizeof(name), "h_%s", kind->name);
	pthread_setname_np(pthread_self(), name);
	for (;;) {
		kind->hold();
		nap(1000);
	}
	return NULL;
}

int main(void)
{
	pthread_mutexattr_t attr;
	pthread_t thread;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attr);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&pi, &attr);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (pthread_create(&thread, NULL, hold_again, (void *)(uintptr_t)&kinds[i]) ||
		    pthread_create(&thread, NULL, wait_again, (void *)(uintptr_t)&kinds[i]))
			return 1;
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
