/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State of a thread between two hooks, and the registers with which it entered the kernel: by the
 * kernel's own means where it has them, else by a map of threads and by the layout of the thread's
 * kernel stack. */
#ifndef PROFD_BPF_TASK_BPF_H
#define PROFD_BPF_TASK_BPF_H

#include "bpf/maps.bpf.h"

/* ---- the current thread ---------------------------------------------------------------------- */

struct task_facts {
	uint64_t start_boottime_ns; /* of the process */
	uint32_t flags;
	bool has_memory;
};

static __always_inline struct task_facts task_facts_of_current(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return (struct task_facts){
		.start_boottime_ns = BPF_CORE_READ(task, group_leader, start_boottime),
		.flags = BPF_CORE_READ(task, flags),
		.has_memory = BPF_CORE_READ(task, mm),
	};
}

/* ---- registers ----------------------------------------------------------------------------- */

/* Where @task's registers were saved as it entered the kernel: kernel memory, which
 * bpf_probe_read_kernel() reads. Before v5.15 no helper tells; they lie at the upper end of the
 * thread's kernel stack (task_pt_regs() of the architecture's asm/processor.h). With another size
 * of kernel stacks (CONFIG_KASAN) other words are found there: callers check for user registers. */
#define task_saved_regs(task)                                                                      \
	(have_task_pt_regs ? (const void *)bpf_task_pt_regs(task) : task_stack_regs(task))

static __always_inline const void *task_stack_regs(struct task_struct *task)
{
	return (const char *)BPF_CORE_READ(task, stack) + ARCH_SAVED_REGS_AT;
}

static __always_inline const void *current_saved_regs(void)
{
	if (have_task_pt_regs)
		return (const void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	return task_stack_regs((void *)bpf_get_current_task());
}

/* How @task, which is off the CPU or leaves it, had entered the kernel. */
static __always_inline void task_get_call(struct arch_call *call, struct task_struct *task)
{
	const char *regs;

	if (have_task_pt_regs) {
		/* loads of its fields take a fifth of the time */
		arch_get_call(call, (const struct arch_regs *)bpf_task_pt_regs(task));
		return;
	}
	regs = task_stack_regs(task);
	if (!arch_read_call(call, regs))
		arch_call_clear(call);
	arch_call_trim(call);
}

/* ---- state --------------------------------------------------------------------------------- */

/* The threads of these maps: those that were seen last. A tid is used again, so the values say
 * whose they are. */
#define TASK_STATES_MAX 32768

/* Defines @map, and @get(), which looks up and with @create makes the struct @of that is kept of a
 * thread. It is out of line: called at many places, and on old kernels only. */
#define TASK_STATES(get, map, of)                                                                  \
	struct of##_of {                                                                           \
		uint64_t start_time; /* of the thread */                                           \
		struct of state;                                                                   \
	};                                                                                         \
                                                                                                   \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_LRU_HASH);                                               \
		__uint(max_entries, TASK_STATES_MAX);                                              \
		__type(key, uint32_t);                                                             \
		__type(value, struct of##_of);                                                     \
	} map SEC(".maps");                                                                        \
                                                                                                   \
	static __attribute__((noinline)) struct of *get(uint32_t tid, uint64_t start_time,         \
							bool create)                               \
	{                                                                                          \
		struct of##_of *found = bpf_map_lookup_elem(&map, &tid);                           \
		struct of##_of fresh = { .start_time = start_time };                               \
                                                                                                   \
		if (found && found->start_time == start_time)                                      \
			return &found->state;                                                      \
		if (!create || bpf_map_update_elem(&map, &tid, &fresh, BPF_ANY))                   \
			return NULL;                                                               \
		found = bpf_map_lookup_elem(&map, &tid);                                           \
		return found ? &found->state : NULL;                                               \
	}

TASK_STATES(off_state_by_tid, off_states_by_tid, off_state)
TASK_STATES(io_moved_by, io_moved_by_tid, io_moved)

/* Storage of tasks goes by itself. */
static __always_inline void task_forget(uint32_t tid)
{
	if (have_task_storage)
		return;
	bpf_map_delete_elem(&off_states_by_tid, &tid);
	bpf_map_delete_elem(&io_moved_by_tid, &tid);
}

/* NULL: there is none, or with @create no room for it. */
static __always_inline struct off_state *off_state_get(struct task_struct *task, bool create)
{
	if (have_task_storage)
		return bpf_task_storage_get(&off_states, task, 0,
					    create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	return off_state_by_tid(task->pid, task->start_time, create);
}

static __always_inline const struct io_moved *io_moved_get(struct task_struct *task)
{
	if (have_task_storage)
		return bpf_task_storage_get(&io_moved, task, 0, 0);
	return io_moved_by(task->pid, task->start_time, false);
}

static __always_inline struct io_moved *io_moved_of_current(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (have_task_storage)
		return bpf_task_storage_get(&io_moved, bpf_get_current_task_btf(), 0,
					    BPF_LOCAL_STORAGE_GET_F_CREATE);
	return io_moved_by((uint32_t)bpf_get_current_pid_tgid(), BPF_CORE_READ(task, start_time),
			   true);
}

#endif
