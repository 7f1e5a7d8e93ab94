// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/build_turn.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "agent/base/clock.h"

#define RETRY_AFTER_S 5

/* Fair queueing: a waiter's tag is one more than that of the last waiter of its tenant, and the
 * lowest tag goes first. */
struct build_waiter {
	struct build_waiter *next; /* that came later */
	const char *tenant;
	uint64_t tag;
	bool has_turn;
	pthread_cond_t changed;
};

void build_turns_init(struct build_turns *turns)
{
	*turns = (struct build_turns){ .is_taken = false };
	(void)pthread_mutex_init(&turns->lock, NULL);
}

void build_turns_deinit(struct build_turns *turns)
{
	(void)pthread_mutex_destroy(&turns->lock);
}

/* Lock held. */
static void append(struct build_turns *turns, struct build_waiter *own)
{
	struct build_waiter **at = &turns->waiting;

	own->tag = turns->now;
	for (; *at; at = &(*at)->next)
		if (strcmp((*at)->tenant, own->tenant) == 0 && (*at)->tag > own->tag)
			own->tag = (*at)->tag;
	own->tag++;
	*at = own;
}

/* Lock held. */
static void leave(struct build_turns *turns, const struct build_waiter *own)
{
	struct build_waiter **at = &turns->waiting;

	while (*at != own)
		at = &(*at)->next;
	*at = own->next;
}

/* Gives the turn to the first of those with the lowest tag. Lock held. */
static void give(struct build_turns *turns)
{
	struct build_waiter *next = turns->waiting;

	turns->is_taken = next != NULL;
	if (!next)
		return;
	for (struct build_waiter *other = next->next; other; other = other->next)
		if (other->tag < next->tag)
			next = other;
	leave(turns, next);
	turns->now = next->tag;
	next->has_turn = true;
	(void)pthread_cond_signal(&next->changed);
}

static struct timespec end_of(uint64_t wait_ns)
{
	uint64_t end_ns = clock_monotonic_ns() + wait_ns;

	return (struct timespec){ .tv_sec = (time_t)(end_ns / NS_PER_S),
				  .tv_nsec = (long)(end_ns % NS_PER_S) };
}

/* Lock held, left while it waits. */
static bool await_turn(struct build_turns *turns, struct build_waiter *own, uint64_t wait_ns)
{
	const struct timespec end = end_of(wait_ns == BUILD_TURN_FOREVER ? 0 : wait_ns);
	int rc = 0;

	append(turns, own);
	while (!own->has_turn && rc != ETIMEDOUT)
		rc = wait_ns == BUILD_TURN_FOREVER
			     ? pthread_cond_wait(&own->changed, &turns->lock)
			     : pthread_cond_timedwait(&own->changed, &turns->lock, &end);
	if (!own->has_turn)
		leave(turns, own);
	return own->has_turn;
}

int build_turn_take(struct build_turns *turns, const char *tenant, uint64_t wait_ns,
		    struct err *err)
{
	struct build_waiter own = { .tenant = tenant };
	pthread_condattr_t attr;
	bool is_mine;

	(void)pthread_mutex_lock(&turns->lock);
	is_mine = !turns->is_taken;
	turns->is_taken = true;
	if (!is_mine) {
		(void)pthread_condattr_init(&attr);
		(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		(void)pthread_cond_init(&own.changed, &attr);
		(void)pthread_condattr_destroy(&attr);
		is_mine = await_turn(turns, &own, wait_ns);
		(void)pthread_cond_destroy(&own.changed);
	}
	(void)pthread_mutex_unlock(&turns->lock);
	if (is_mine)
		return 0;
	(void)err_set(err, EBUSY, "AgentBusy", NULL,
		      "other profiles are being built, and this one's turn did not come within %llu s: "
		      "ask again",
		      (unsigned long long)(wait_ns / NS_PER_S));
	if (err)
		err->retry_after_s = RETRY_AFTER_S;
	return -EBUSY;
}

void build_turn_end(struct build_turns *turns)
{
	(void)pthread_mutex_lock(&turns->lock);
	give(turns);
	(void)pthread_mutex_unlock(&turns->lock);
}

unsigned build_turns_waiting(const struct build_turns *turns)
{
	unsigned count = 0;

	for (const struct build_waiter *at = turns->waiting; at; at = at->next)
		count++;
	return count;
}

int build_turn_pass(struct build_turns *turns, const char *tenant, uint64_t wait_ns,
		    struct err *err)
{
	bool is_wanted;

	(void)pthread_mutex_lock(&turns->lock);
	is_wanted = build_turns_waiting(turns) > 0;
	(void)pthread_mutex_unlock(&turns->lock);
	if (!is_wanted)
		return 0;
	build_turn_end(turns);
	return build_turn_take(turns, tenant, wait_ns, err);
}
