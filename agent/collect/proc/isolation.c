// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/isolation.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/vec.h"
#include "agent/collect/proc/proc_facts.h"

#define STACK_BYTES (256u << 10)
#define WAITS_MAX   20u /* ISOLATION_WAIT_MS each, of a thread that only lacks a CPU */

struct helper {
	pthread_t thread;
	pthread_mutex_t lock; /* of all that follows but data, which is the thread's during a call */
	pthread_cond_t asked, answered;
	pid_t tid; /* 0 = not there yet */
	int (*call)(void *data); /* NULL = none */
	int rc;
	bool done, stopping;
	atomic_bool ended;
	void *data;
	size_t capacity;
	/* left behind: */
	void (*drop)(void *data);
	uint32_t tgid, uid;
};

struct isolation {
	struct helper *helper; /* NULL = none yet */
	struct helper *left[ISOLATION_LEFT_MAX];
	unsigned left_count;
};

/* ---- the thread ------------------------------------------------------------------------------ */

static void *work(void *ctx)
{
	struct helper *h = ctx;

	(void)pthread_mutex_lock(&h->lock);
	h->tid = gettid();
	while (!h->stopping) {
		if (!h->call) {
			(void)pthread_cond_wait(&h->asked, &h->lock);
			continue;
		}
		(void)pthread_mutex_unlock(&h->lock);
		h->rc = h->call(h->data);
		(void)pthread_mutex_lock(&h->lock);
		h->call = NULL;
		h->done = true;
		(void)pthread_cond_signal(&h->answered);
	}
	(void)pthread_mutex_unlock(&h->lock);
	atomic_store(&h->ended, true);
	return NULL;
}

static void helper_free(struct helper *h)
{
	(void)pthread_cond_destroy(&h->asked);
	(void)pthread_cond_destroy(&h->answered);
	(void)pthread_mutex_destroy(&h->lock);
	free(h->data);
	free(h);
}

static int start_thread(struct helper *h)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int rc;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&h->thread, &attr, work, h);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return -rc;
}

static int helper_start(struct helper **ret)
{
	struct helper *h = calloc(1, sizeof(*h));
	pthread_condattr_t attr;
	int rc;

	if (!h)
		return -ENOMEM;
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&h->lock, NULL);
	(void)pthread_cond_init(&h->asked, NULL);
	(void)pthread_cond_init(&h->answered, &attr);
	(void)pthread_condattr_destroy(&attr);
	rc = start_thread(h);
	if (rc < 0)
		helper_free(h);
	else
		*ret = h;
	return rc;
}

/* Lock held: to end when it can. */
static void stop(struct helper *h)
{
	h->stopping = true;
	(void)pthread_cond_signal(&h->asked);
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct isolation *isolation_create(void)
{
	return calloc(1, sizeof(struct isolation));
}

/* Joins threads that came back after their call was given up. */
static void join_ended(struct isolation *isolation)
{
	for (unsigned i = isolation->left_count; i-- > 0;) {
		struct helper *h = isolation->left[i];

		if (!atomic_load(&h->ended))
			continue;
		(void)pthread_join(h->thread, NULL);
		if (h->drop)
			h->drop(h->data);
		helper_free(h);
		isolation->left[i] = isolation->left[--isolation->left_count];
	}
}

void isolation_destroy(struct isolation *isolation)
{
	if (!isolation)
		return;
	join_ended(isolation);
	for (unsigned i = 0; i < isolation->left_count; i++)
		(void)pthread_detach(isolation->left[i]->thread); /* what it holds ends with the process */
	if (isolation->helper) {
		(void)pthread_mutex_lock(&isolation->helper->lock);
		stop(isolation->helper);
		(void)pthread_mutex_unlock(&isolation->helper->lock);
		(void)pthread_join(isolation->helper->thread, NULL);
		helper_free(isolation->helper);
	}
	free(isolation);
}

unsigned isolation_left(const struct isolation *isolation)
{
	return isolation->left_count;
}

/* True if a call about @tgid is not to be made: what one user does holds up nobody else for long.
 */
static bool is_shunned(const struct isolation *isolation, uint32_t tgid)
{
	unsigned of_user = 0;
	uint32_t uid;

	if (!isolation->left_count)
		return false;
	if (isolation->left_count == ISOLATION_LEFT_MAX || proc_facts_read_uid(tgid, &uid) < 0)
		return true;
	for (unsigned i = 0; i < isolation->left_count; i++) {
		if (isolation->left[i]->tgid == tgid)
			return true;
		of_user += isolation->left[i]->uid == uid;
	}
	return of_user >= ISOLATION_USERS_MAX;
}

/* Lock held. It waits in the kernel, and not for a CPU, on which a busy host may let it wait, too.
 */
static bool hangs(const struct helper *h)
{
	char path[64], text[256];
	const char *state;

	if (!h->tid)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", h->tid);
	if (io_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	state = strrchr(text, ')');
	return state && state[1] == ' ' && state[2] == 'D';
}

/* Lock held. False: it does not come back. */
static bool await(struct helper *h)
{
	for (unsigned waits = 0; !h->done && waits < WAITS_MAX; waits++) {
		uint64_t until_ns = clock_monotonic_ns() + ISOLATION_WAIT_MS * NS_PER_MS;
		struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
					  .tv_nsec = (long)(until_ns % NS_PER_S) };
		int rc = 0;

		while (!h->done && rc == 0)
			rc = pthread_cond_timedwait(&h->answered, &h->lock, &until);
		if (!h->done && hangs(h))
			return false;
	}
	return h->done;
}

static void leave_behind(struct isolation *isolation, uint32_t tgid, void (*drop)(void *data))
{
	struct helper *h = take_ptr(isolation->helper);

	stop(h);
	h->drop = drop;
	h->tgid = tgid;
	(void)!proc_facts_read_uid(tgid, &h->uid); /* gone: root's, which is nobody's fault */
	isolation->left[isolation->left_count++] = h;
	log_warn("process %u lets nobody look at its address space: what it maps and what it was "
		 "started with stay unknown",
		 tgid);
	if (isolation->left_count == ISOLATION_LEFT_MAX)
		log_warn("%u such processes: until one ends, nothing of that kind is asked of any",
			 ISOLATION_LEFT_MAX);
}

int isolation_call(struct isolation *isolation, uint32_t tgid, int (*call)(void *data),
		 void (*drop)(void *data), void *data, size_t bytes)
{
	struct helper *h;
	bool done;
	int rc;

	if (!isolation)
		return call(data);
	join_ended(isolation);
	if (is_shunned(isolation, tgid))
		return -ETIMEDOUT;
	rc = isolation->helper ? 0 : helper_start(&isolation->helper);
	if (rc == 0)
		rc = vec_grow(&isolation->helper->data, &isolation->helper->capacity, bytes, 1, 0);
	if (rc < 0)
		return rc;
	h = isolation->helper;
	(void)pthread_mutex_lock(&h->lock);
	memcpy(h->data, data, bytes);
	h->done = false;
	h->call = call;
	(void)pthread_cond_signal(&h->asked);
	done = await(h);
	if (done) {
		memcpy(data, h->data, bytes);
		rc = h->rc;
	} else {
		leave_behind(isolation, tgid, drop);
	}
	(void)pthread_mutex_unlock(&h->lock);
	return done ? rc : -ETIMEDOUT;
}
