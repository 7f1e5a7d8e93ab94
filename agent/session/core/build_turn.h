/* SPDX-License-Identifier: Apache-2.0 */
/* Turns in which profiles are built: one at a time, since a build takes a processor and the memory
 * of a whole profile. Tenants take turns: after one build of a tenant with a hundred, each other
 * waiting tenant has its next one. No caller waits longer than asked for. Thread-safe. */
#ifndef PROFD_SESSION_BUILD_TURN_H
#define PROFD_SESSION_BUILD_TURN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define BUILD_TURN_FOREVER UINT64_MAX

struct build_waiter;

struct build_turns {
	pthread_mutex_t lock;
	bool is_taken;
	uint64_t now; /* rounds begun: the tag of the last waiter that got its turn */
	struct build_waiter *waiting; /* on the stacks of those that wait */
};

void build_turns_init(struct build_turns *turns);
/* Nobody waits or builds. */
void build_turns_deinit(struct build_turns *turns);

/* Waits for a turn of @tenant ("" = the agent's own work), at most @wait_ns. -EBUSY with a sentence
 * and retry_after_s in @err: the time is over. */
int build_turn_take(struct build_turns *turns, const char *tenant, uint64_t wait_ns,
		    struct err *err) must_use;
void build_turn_end(struct build_turns *turns);
/* How many wait; @turns->lock held, or nobody else is at it. */
unsigned build_turns_waiting(const struct build_turns *turns);
/* Between the parts of a long build: lets those go first whose turn it is, and takes another turn.
 * On failure the turn is over. */
int build_turn_pass(struct build_turns *turns, const char *tenant, uint64_t wait_ns,
		    struct err *err) must_use;

#endif
