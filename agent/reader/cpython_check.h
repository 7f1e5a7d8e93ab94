/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process's CPython is what its ELF file says, and where its threads find their state.
 *
 * The list of threads leads to each PyThreadState, which holds its thread's pthread_t. The state's
 * address is searched in the structure there: where it stands in every thread is the slot of the
 * pthread key. thread_pointer.h says how far that is from what BPF knows.
 *
 * Then the chains of up to 16 threads are walked from outside, frame by frame. If less than 15 of
 * 16 threads fit, the layout is refused. */
#ifndef PROFD_READER_CPYTHON_CHECK_H
#define PROFD_READER_CPYTHON_CHECK_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"
#include "bpf/script.h"

/* Checks @runtime, whose addresses are those of the process. Sets its tls_at and tss_at. -EAGAIN:
 * no thread runs Python code yet. -EOPNOTSUPP: the offsets do not fit, or no thread's state was
 * found. -ETIMEDOUT: @deadline_ns (monotonic) has passed. -ESRCH, -EPERM: the process is gone or
 * may not be read. */
int cpython_check(struct target *target, struct script_runtime *runtime, uint64_t deadline_ns)
	must_use;

struct cpython_thread {
	uint64_t pthread_va; /* its pthread_t */
	uint64_t pointer_va; /* its thread pointer */
};

/* The threads of @python's interpreters, @max at most. -EOPNOTSUPP: their thread pointers are not
 * known.
 * -EAGAIN: there is none, -EINVAL: the offsets are none, -ETIMEDOUT, -ESRCH, -EPERM, -ENOMEM. */
int cpython_check_threads(struct target *target, const struct script_python *python,
			  struct cpython_thread *ret, size_t max, size_t *ret_count,
			  uint64_t deadline_ns) must_use;

#endif
