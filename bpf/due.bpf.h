/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walks that are due. A verifier looks at a walk in each program anew, for 30 ms. So the programs
 * of tracepoints say what is to be recorded, and one program, walk_due (profiler.bpf.c), walks the
 * user stacks of all of them and sends their samples:
 *
 *   off_switch            leaves the wait in `switch_scratch`; walk_due runs in the interrupt that
 *                         it raises
 *   record_*, io_*        leave the bytes of a call in `io_owed` and raise the same interrupt;
 *                         walk_due is attached behind io_exit, whose calls are too many for that
 *   off_waker, lock_end   begin their sample in `io_scratch`; walk_due is attached behind them
 *
 * It is always the stack of the thread that passes the tracepoint. */
#ifndef PROFD_BPF_DUE_BPF_H
#define PROFD_BPF_DUE_BPF_H

#include "bpf/retry.bpf.h"

KERNEL_FRAMES(due_kernel_frames, io_scratch)

/* scratch.busy of a sample that waits for its walk: this, and the tid of the current thread. */
#define DUE_FROM 2u

static __always_inline uint32_t due_of_current(void)
{
	return DUE_FROM + (uint32_t)bpf_get_current_pid_tgid();
}

/* Enters `io_scratch`, as scratch_enter(); NULL (counted): it is in use. A sample that another
 * thread has left there is given up: the kernel preempted it between the two programs (7.0 and
 * newer). */
static __always_inline struct scratch *due_enter(void)
{
	uint32_t zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&io_scratch, &zero);

	if (!s)
		return NULL;
	if (s->busy) {
		outcome_count(OUTCOME_scratch_busy);
		if (s->busy < DUE_FROM || s->busy == due_of_current())
			return NULL;
	}
	s->busy = 1;
	return s;
}

/* Sends the sample, whose stack has been walked. What the stack of a waker lacks is not had later:
 * that goes by the sample's process, which is another one. */
static __attribute__((noinline)) int due_end(struct scratch *s)
{
	if (s->sample.type != PROF_SAMPLE_WAKER) {
		walked_send(s);
	} else {
		if (s->stack.frame_count)
			s->sample.user_stack_hash = stack_send(s);
		sample_send(s);
	}
	scratch_leave(s);
	return 0;
}

/* Leaves the sample to walk_due, or sends it without a user stack where that is not loaded.
 * s->going: it has one, from s->regs on. */
static __always_inline void due_leave(struct scratch *s)
{
	if (!have_irq_work) {
		walk_none(s);
		due_end(s);
		return;
	}
	barrier(); /* an interrupt may walk it from now on */
	s->busy = due_of_current();
}

/* The sample that the current thread has left, NULL: none. */
static __always_inline struct scratch *due_take(void)
{
	uint32_t zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&io_scratch, &zero);

	if (!s || s->busy != due_of_current())
		return NULL;
	s->busy = 1;
	return s;
}

#endif
