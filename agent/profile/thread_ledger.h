/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of each thread's time, from a `wall` profile: running (in user code or in the kernel),
 * waiting for a CPU, preempted, blocked by what it waited for. The parts sum to the thread's time.
 * Pure. */
#ifndef PROFD_PROFILE_THREAD_LEDGER_H
#define PROFD_PROFILE_THREAD_LEDGER_H

#include "agent/profile/profile.h"

struct ledger_wait {
	uint32_t wait; /* string id of the profile; 0 = not known */
	int64_t ns;
};

struct ledger_thread {
	uint32_t process; /* index of the profile's processes */
	uint32_t tid;	  /* 0 = the whole process */
	uint32_t name;	  /* string id */
	int64_t elapsed_ns, user_ns, kernel_ns, runqueue_ns, preempted_ns;
	int64_t stolen_ns; /* of preempted_ns: by interrupts or a hypervisor */
	uint32_t wait_first, wait_count; /* waits[wait_first … + wait_count), by name id */
};

struct thread_ledger {
	struct ledger_thread *threads; /* by process, then tid */
	uint32_t thread_count;
	struct ledger_wait *waits;
	uint32_t wait_count;
};

/* -EINVAL unless @p is a wall profile; -ENOMEM. */
int thread_ledger_init(struct thread_ledger *ret, const struct profile *p) must_use;
void thread_ledger_deinit(struct thread_ledger *ledger);

#endif
