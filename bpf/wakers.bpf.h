/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The stack of who ends a wait. Taken of waits that are long enough to be recorded each
 * (offcpu.bpf.h), at the moment that the waker has; user space joins it to the wait by thread and
 * time. An interrupt that wakes shows in the kernel stack, and then the thread under it has nothing
 * to do with it. Mutex profiles have so the stacks of threads that release the GIL (gil.bpf.h).
 * Attached only while somebody wants wakers, or locks where there are GILs. */
#ifndef PROFD_BPF_WAKERS_BPF_H
#define PROFD_BPF_WAKERS_BPF_H

#include "bpf/offcpu.bpf.h"

/* Does the current thread release the GIL by waking @task, and is that recorded? */
static __always_inline bool waker_releases_gil(const struct off_state *state,
					       struct task_struct *task, struct task_struct *waker,
					       uint64_t now_ns, struct gil_head *ret)
{
	return state->waits_for_gil && task->tgid == waker->tgid &&
	       off_value_by(now_ns - state->gil_since_ns, state->gil_draw) &&
	       gil_is_release(state, ret);
}

/* Does @task end a wait whose waker is wanted? ret->interval_us is 0 unless that releases the GIL,
 * which *ret is then. */
static __always_inline bool waker_is_wanted(struct task_struct *task, struct task_struct *waker,
					    uint64_t now_ns, struct gil_head *ret)
{
	struct off_state *state = off_state_get(task, false);
	uint32_t tgid = task->tgid, wanted = PROF_WANT_WAKERS;

	ret->interval_us = 0;
	if (!state || !state->blocked || !state->since_ns ||
	    state->generation != config.off_generation)
		return false;
	if (waker_releases_gil(state, task, waker, now_ns, ret)) {
		wanted |= PROF_WANT_LOCKS;
	} else {
		ret->interval_us = 0;
		if (now_ns - state->since_ns < config.off_threshold_ns)
			return false;
	}
	return !target_wants(bpf_map_lookup_elem(&targets, &tgid), wanted);
}

/* A function of its own: its stack is not that of the walk, and what it leaves there does not make
 * the verifier follow the walk twice. */
static __attribute__((noinline)) struct scratch *waker_begin(void *ctx, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	uint64_t now_ns = bpf_ktime_get_ns();
	uint32_t tgid = waker->tgid;
	struct gil_head gil;
	struct scratch *s;

	if (!waker_is_wanted(task, waker, now_ns, &gil))
		return NULL;
	s = due_enter();
	if (!s)
		return NULL;
	off_sample_begin(s, task, now_ns, 1, 0);
	s->sample.object = tgid;
	s->sample.value = BPF_CORE_READ(waker, group_leader, start_boottime);
	s->sample.type = PROF_SAMPLE_WAKER;
	s->sample.state = 0;
	s->sample.holder = waker->pid;
	bpf_get_current_comm(s->sample.comm, sizeof(s->sample.comm));
	if (gil.interval_us) {
		s->sample.state = PROF_OFF_BLOCKED << 4 | PROF_WAIT_GIL;
		s->sample.value2 = gil_tenure_ns(&gil, tgid, now_ns);
		s->sample.waker = gil_thread_number(gil.last_holder);
	}
	walk_none(s);
	kernel_stack_take(s, own_kernel_stack(ctx, s), false, due_kernel_frames, 0);
	s->sample.kernel_stack_hash = stack_send(s);
	walk_none(s);
	if (!has_user_stack(BPF_CORE_READ(waker, mm), waker->flags) || is_executing() ||
	    bpf_probe_read_kernel(&s->regs, sizeof(s->regs), (void *)bpf_task_pt_regs(waker)) ||
	    !arch_is_user(&s->regs) || arch_is_compat32(&s->regs))
		return s;
	s->going = 1;
	return s;
}

/* Needs bpf_loop(): without it nobody is offered wakers. */
SEC("tp_btf/sched_waking")
int BPF_PROG(off_waker, struct task_struct *task)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_SWITCH);
	struct scratch *s = waker_begin(ctx, task);

	if (s)
		due_leave(s);
	cost_end(&timer);
	return 0;
}

#endif
