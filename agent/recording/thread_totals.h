/* SPDX-License-Identifier: Apache-2.0 */
/* Scales the samples of each thread to the kernel's counts (PROF_SAMPLE_THREAD,
 * PROF_SAMPLE_STOLEN). Between two readings the kernel's count of a thread's time on CPUs, on run
 * queues and stolen while it had a CPU is exact; the remaining time it was blocked. The samples of
 * each class are scaled to these sums. A class without samples becomes a rest of its own. Pure. */
#ifndef PROFD_RECORDING_THREAD_TOTALS_H
#define PROFD_RECORDING_THREAD_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/recording/thread_lives.h"

/* STOLEN: on a CPU that interrupts or a hypervisor had; never sampled. */
enum thread_class { THREAD_ON_CPU, THREAD_WAITS, THREAD_BLOCKED, THREAD_STOLEN, THREAD_CLASS_MAX };

/* thread_reading.counts */
enum { THREAD_COUNT_CPU_NS, THREAD_COUNT_WAITS_NS };
/* And of thread_totals_read_stolen(). BLOCKS does not rise while the thread is not blocked. */
enum { THREAD_COUNT_STOLEN_NS, THREAD_COUNT_BLOCKS };

struct thread_totals;

struct thread_totals *thread_totals_create(void); /* NULL: no memory */
void thread_totals_destroy(struct thread_totals *totals);
CLEANUP_DEFINE(thread_totals, struct thread_totals *, thread_totals_destroy);

/* To be called before any reading: for each thread instance the first reading from @to_ns on is the
 * last that counts. What is read later is read for others, or as the thread exits. */
void thread_totals_until(struct thread_totals *totals, uint64_t to_ns);
/* In order of time. -ENOMEM. */
int thread_totals_read(struct thread_totals *totals, uint32_t pid, uint32_t tid,
		       const struct thread_reading *reading) must_use;
/* Takes a reading of the time stolen from a thread. Without these readings stolen time counts as
 * blocked. */
int thread_totals_read_stolen(struct thread_totals *totals, uint32_t pid, uint32_t tid,
			      const struct thread_reading *reading) must_use;
/* A sample of @value ns; @exact: it stands for itself alone. Threads without a reading are ignored.
 */
void thread_totals_add(struct thread_totals *totals, uint32_t pid, uint32_t tid,
		       enum thread_class class, bool exact, int64_t value);
/* After all readings and samples: compares them over the span. @on_cpu: that class was sampled too.
 */
void thread_totals_settle(struct thread_totals *totals, uint64_t from_ns, uint64_t to_ns,
			  bool on_cpu);
/* The value that such a sample counts. */
int64_t thread_totals_scale(const struct thread_totals *totals, uint32_t pid, uint32_t tid,
			    enum thread_class class, bool exact, int64_t value);
/* The time of a class that no sample of the thread stands for, once; 0 = none, not known, or taken.
 */
int64_t thread_totals_take_rest(struct thread_totals *totals, uint32_t pid, uint32_t tid,
				enum thread_class class);

#endif
