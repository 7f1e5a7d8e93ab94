/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's own locks: how long a thread waited for one on which it can sleep (mutexes,
 * reader-writer semaphores), by the tracepoints around the wait (Linux 5.19, 16edd9b511a1 "locking:
 * Add lock contention tracepoints"). Sampled like times off the CPU. Attached only while somebody
 * wants them.
 *
 * Spin locks are left out. The kernel reports the end of their wait with the lock held: it may be
 * the one of the very ring buffer that the sample would go into. And who spins is on the CPU: `cpu`
 * shows it. */
#ifndef PROFD_BPF_LOCKS_BPF_H
#define PROFD_BPF_LOCKS_BPF_H

#include "bpf/offcpu.bpf.h"

/* include/trace/events/lock.h */
#define LCB_F_SPIN  (1u << 0)
#define LCB_F_MUTEX (1u << 5)

/* A mutex is announced twice when spinning for it did not help: the first counts. */
SEC("tp_btf/contention_begin")
int BPF_PROG(lock_begin, void *lock, uint32_t flags)
{
	struct cost_timer timer;
	struct task_struct *task;
	struct lock_wait *wait;
	uint32_t tgid;

	if ((flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN)
		return 0;
	timer = cost_begin(PROF_PROGRAM_LOCK);
	task = bpf_get_current_task_btf();
	tgid = task->tgid;
	if (!target_wants(bpf_map_lookup_elem(&targets, &tgid), PROF_WANT_KERNEL_LOCKS)) {
		wait = bpf_task_storage_get(&lock_waits, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (wait && (wait->lock != (uint64_t)lock || !wait->since_ns ||
			     wait->generation != config.lock_generation)) {
			wait->lock = (uint64_t)lock;
			wait->since_ns = bpf_ktime_get_ns();
			wait->generation = config.lock_generation;
		}
	}
	cost_end(&timer);
	return 0;
}

/* The time that the wait for @lock, which ended, stands for; 0: it is not recorded. */
static __always_inline uint64_t lock_value(struct task_struct *task, void *lock, uint64_t now_ns,
					   uint64_t *ret_ns)
{
	struct lock_wait *wait = bpf_task_storage_get(&lock_waits, task, 0, 0);
	uint64_t ns;

	if (!wait || !wait->since_ns || wait->lock != (uint64_t)lock ||
	    wait->generation != config.lock_generation)
		return 0;
	ns = now_ns - wait->since_ns;
	wait->since_ns = 0;
	*ret_ns = ns;
	return ns ? off_value(ns) : 0;
}

/* Everything before the walk, NULL: nothing to record. Locks are distinguished by a number, not by
 * where the kernel has them. A function of its own as waker_begin() is. */
static __attribute__((noinline)) struct scratch *lock_sample(void *ctx, void *lock)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t now_ns = bpf_ktime_get_ns(), ns = 0, value = lock_value(task, lock, now_ns, &ns);
	struct scratch *s;

	if (!value || !ns)
		return NULL;
	s = due_enter();
	if (!s)
		return NULL;
	off_sample_begin(s, task, now_ns, ns, value);
	s->sample.state = PROF_OFF_BLOCKED << 4 | PROF_WAIT_OTHER;
	s->sample.detail = PROF_DETAIL_KERNEL_LOCK;
	s->sample.object = hash_frame(config.lock_secret, (uint64_t)lock) | 1;
	walk_none(s);
	kernel_stack_take(s, own_kernel_stack(ctx, s), false, due_kernel_frames, 0);
	s->sample.kernel_stack_hash = stack_send(s);
	walk_none(s);
	if (!has_user_stack(BPF_CORE_READ(task, mm), task->flags) ||
	    bpf_probe_read_kernel(&s->regs, sizeof(s->regs), (void *)bpf_task_pt_regs(task)) ||
	    !arch_is_user(&s->regs) || arch_is_compat32(&s->regs))
		return s;
	s->going = 1;
	return s;
}

/* The kernels that have the tracepoint have bpf_loop() too. */
SEC("tp_btf/contention_end")
int BPF_PROG(lock_end, void *lock, int rc)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_LOCK);
	struct scratch *s = lock_sample(ctx, lock);

	if (s)
		due_leave(s);
	cost_end(&timer);
	return 0;
}

#endif
