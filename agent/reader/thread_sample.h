/* SPDX-License-Identifier: Apache-2.0 */
/* Samples running threads. Their registers are not in memory that others can read, so an interrupt
 * copies registers and stack. A clock is opened for each thread (perf_event_open(2)), which ticks
 * once, in user code, the next time the thread is on a CPU. Nothing is stopped. CAP_SYS_PTRACE is
 * enough for that while kernel.perf_event_paranoid is at most 2. Not thread-safe. */
#ifndef PROFD_READER_THREAD_SAMPLE_H
#define PROFD_READER_THREAD_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "bpf/arch.h"

#define THREAD_SAMPLES_MAX                                                                         \
	8u /* at once: 68 KiB of locked memory each, of the 516 a CPU that a user may have */
#define THREAD_SAMPLE_STACK_BYTES (32u << 10)

struct thread_sample {
	uint64_t regs[ARCH_REG_COUNT]; /* by DWARF number */
	uint64_t ip;
	const uint8_t *stack; /* copy of [sp, sp + stack_len); borrowed until the samples are closed */
	uint32_t stack_len;
};

struct thread_samples {
	struct thread_clock {
		int fd; /* -1 = could not be opened */
		void *ring;
	} clocks[THREAD_SAMPLES_MAX];
	unsigned count;
};

/* Opens the clock of thread @tid, which gets the next index; nothing may follow THREAD_SAMPLES_MAX.
 * thread_samples_get() says whether it could be opened. */
void thread_samples_open(struct thread_samples *samples, uint32_t tid);
/* Until every clock has ticked, but not beyond @until_ns (monotonic). */
void thread_samples_wait(const struct thread_samples *samples, uint64_t until_ns);
/* False: it did not run in user code, has ended, or may not be looked at. */
bool thread_samples_get(const struct thread_samples *samples, unsigned index,
			struct thread_sample *ret) must_use;
/* Closes all; the first one gets index 0 again. */
void thread_samples_close(struct thread_samples *samples);

static inline void cleanup_thread_samples_fn(struct thread_samples *samples)
{
	thread_samples_close(samples);
}
#define cleanup_thread_samples __attribute__((__cleanup__(cleanup_thread_samples_fn)))

#endif
