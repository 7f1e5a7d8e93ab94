/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decides which processes are recorded. */
#ifndef PROFD_BPF_TARGET_BPF_H
#define PROFD_BPF_TARGET_BPF_H

#include "bpf/maps.bpf.h"
#include "bpf/outcome.h"

/* OUTCOME_complete: take it; else the reason not to. */
static __always_inline uint32_t target_wants(const struct prof_target *target, uint32_t want)
{
	if (!target)
		return config.sample_undecided ? OUTCOME_complete : OUTCOME_not_wanted;
	if (target->wanted & PROF_WANT_EXCLUDED)
		return OUTCOME_excluded;
	return target->wanted & want ? OUTCOME_complete : OUTCOME_not_wanted;
}

/* Kernel threads and the kernel's own threads in a process (io_uring, vhost) have no user stack. */
static __always_inline bool has_user_stack(bool has_memory, uint32_t flags)
{
	return has_memory && !(flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER));
}

/* Inside of execve() the registers are those of the caller, whose memory may be gone already. */
static __always_inline bool is_executing(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return bpf_core_field_exists(task->in_execve) &&
	       BPF_CORE_READ_BITFIELD_PROBED(task, in_execve);
}

#endif
