/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stacks of which a word was not resident. No program can wait for memory where samples are taken.
 * But since v6.18 the kernel can call a program by task work in the thread itself, before it goes
 * back to user mode. There the program may wait for memory, and the stack is unchanged. The sample
 * goes out at once with what could be read, and the whole stack follows it (agent/collect/late.c).
 *
 * It is the thread that waits then, for memory of its own, because it was sampled. So: once at a
 * time, PROF_RETRIES_PER_SECOND on a CPU, RETRY_PAGES of a stack, not again within a second where
 * it was of no use, and never memory that another program or host has to provide. */
#ifndef PROFD_BPF_RETRY_BPF_H
#define PROFD_BPF_RETRY_BPF_H

#include "bpf/late.bpf.h"

#ifdef PROF_TASK_WORK

#define TASK_WORK_EXPLICIT 1
#define TASK_WORK_IMPLICIT 2

#define RETRY_SLOTS 256u /* a power of two */
#define RETRY_PAGES 32u

typedef int (*task_work_callback)(struct bpf_map *map, void *key, void *value);

/* Since v7.0 the last argument is the kernel's own business. libbpf compares whole prototypes, so
 * each of the two kinds of kernel has an object of its own. */
#if PROF_TASK_WORK == TASK_WORK_EXPLICIT
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *work,
					      void *map__map, task_work_callback callback,
					      void *aux__prog) __ksym __weak;
#define task_work_schedule(task, work, callback)                                                   \
	bpf_task_work_schedule_resume_impl(task, work, &retries, callback, NULL)
#else
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *work,
					 void *map__map, task_work_callback callback) __ksym __weak;
#define task_work_schedule(task, work, callback)                                                   \
	bpf_task_work_schedule_resume(task, work, &retries, callback)
#endif
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* A thread whose stack is to be walked again. */
struct retry {
	struct bpf_task_work work;
	uint32_t taken;
	uint32_t tgid;
	uint32_t tid;
	uint32_t reserved;
	uint64_t time_ns; /* of the sample; 0 = nobody waits for its stack */
	uint64_t start_boottime_ns;
	uint64_t stack_hash;	/* of what could be read */
	uint64_t unread;	/* address */
	uint64_t not_before_ns; /* the last one here was of no use */
	struct arch_regs regs;
};

/* By thread. Two that share a slot wait for each other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RETRY_SLOTS);
	__type(key, uint32_t);
	__type(value, struct retry);
} retries SEC(".maps");

/* The sampler's walk and the one that is made again, verified once for both. @of: enum
 * cpu_scratch_of. */
__attribute__((noinline)) int cpu_walk(uint32_t of)
{
	struct scratch *s = bpf_map_lookup_elem(&cpu_scratch, &of);

	if (s)
		walk_whole(s);
	return 0;
}

#define sampler_walk(s, of) cpu_walk(of)

/* ---- in the thread, before it goes back to user mode -------------------------------------------
 */

/* Memory that comes from this kernel: without a file, of a file on a block device or in memory.
 * Others may not answer for ever (FUSE, NFS, userfaultfd). */
static long retry_vma(struct task_struct *task, struct vm_area_struct *vma, bool *is_local)
{
	struct super_block *sb;

	if (bpf_core_field_exists(vma->vm_userfaultfd_ctx.ctx) &&
	    BPF_CORE_READ(vma, vm_userfaultfd_ctx.ctx))
		return 0;
	sb = BPF_CORE_READ(vma, vm_file, f_inode, i_sb);
	*is_local = !sb || BPF_CORE_READ(sb, s_dev) >> 20 || BPF_CORE_READ(sb, s_magic) == TMPFS_MAGIC;
	return 0;
}

/* Both words of a read: they may lie on two pages. */
static __always_inline bool retry_fault_in(uint64_t address)
{
	uint64_t pair[2];
	bool is_local = false;

	bpf_find_vma(bpf_get_current_task_btf(), address, retry_vma, &is_local, 0);
	return is_local && !bpf_copy_from_user(pair, sizeof(pair), (void *)address);
}

/* It has not been in user mode since its sample. */
static __always_inline bool retry_is_same(const struct retry *retry, struct scratch *s)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->pid == retry->tid && task->mm && !(task->flags & PF_EXITING) &&
	       !bpf_probe_read_kernel(&s->regs, sizeof(s->regs), (void *)bpf_task_pt_regs(task)) &&
	       arch_ip(&s->regs) == arch_ip(&retry->regs) && arch_sp(&s->regs) == arch_sp(&retry->regs);
}

static __always_inline void retry_answer(const struct retry *retry, uint64_t stack_hash)
{
	struct prof_retried_event event = {
		.head = { .kind = PROF_EVENT_RETRIED, .size_bytes = sizeof(event) },
		.time_ns = retry->time_ns,
		.stack_hash = stack_hash,
		.tid = retry->tid,
	};

	/* without it the collector stops waiting */
	bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_NO_WAKEUP);
}

/* 0: another word is missing. As cpu_walk() a global function; @slot: the thread's. */
__attribute__((noinline)) int retry_walk(uint32_t slot, uint32_t is_last)
{
	struct retry *retry = bpf_map_lookup_elem(&retries, &slot);
	uint32_t of = CPU_SCRATCH_RETRY, tgid;
	struct scratch *s = bpf_map_lookup_elem(&cpu_scratch, &of);

	if (!s || !retry)
		return 1;
	tgid = retry->tgid;
	if (!retry_is_same(retry, s)) {
		outcome_count(OUTCOME_user_read_fault);
		retry_answer(retry, retry->stack_hash);
		return 1;
	}
	walk_none(s);
	arch_start_unwind(&s->at, &retry->regs);
	walk_begin(s, tgid, bpf_map_lookup_elem(&targets, &tgid), true);
	cpu_walk(of);
	if (s->stack.outcome == OUTCOME_user_read_fault) {
		retry->unread = s->at.unread;
		if (!is_last)
			return 0;
		retry->not_before_ns = bpf_ktime_get_ns() + SECOND_NS;
	}
	outcome_count(s->stack.outcome);
	retry_answer(retry, stack_send(s));
	if (s->unknown_pc)
		unknown_pc_send(s, tgid, retry->time_ns, retry->start_boottime_ns);
	return 1;
}

struct retry_context {
	struct retry *retry;
};

/* While it walks, nobody else may have the CPU: the scratch is the CPU's, and tables that are
 * replaced live only as long as somebody who cannot be preempted may use them. */
static long retry_turn(uint32_t turn, void *context)
{
	struct retry *retry = ((struct retry_context *)context)->retry;
	bool is_last = !retry_fault_in(retry->unread) || turn == RETRY_PAGES - 1, ended;
	struct cost_timer timer;

	bpf_preempt_disable();
	timer = cost_begin(PROF_PROGRAM_RESUME);
	ended = retry_walk(retry->tid & (RETRY_SLOTS - 1), is_last);
	cost_end(&timer);
	bpf_preempt_enable();
	return ended;
}

static int retry_work(struct bpf_map *map, void *key, void *value)
{
	struct retry_context context = { .retry = value };

	if (context.retry->time_ns)
		bpf_loop(RETRY_PAGES, retry_turn, &context, 0);
	__sync_val_compare_and_swap(&context.retry->taken, 1, 0);
	return 0;
}

/* ---- where the sample is taken -----------------------------------------------------------------
 */

/* The slot of this thread, taken, or NULL. */
static __always_inline struct retry *retry_take(const struct scratch *s)
{
	uint32_t zero = 0, slot = s->sample.tid & (RETRY_SLOTS - 1);
	struct retry *retry = bpf_map_lookup_elem(&retries, &slot);
	struct late *late = bpf_map_lookup_elem(&late_scratch, &zero);

	if (!retry || !late || s->sample.time_ns < retry->not_before_ns ||
	    !late_allowed(&late->retries, PROF_RETRIES_PER_SECOND, s->sample.time_ns) ||
	    __sync_val_compare_and_swap(&retry->taken, 0, 1))
		return NULL;
	return retry;
}

/* After a walk whose stack was sent: true if the stack will be walked again. */
static __attribute__((noinline)) bool retry_begin(struct scratch *s)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct retry *retry;

	if (s->stack.outcome != OUTCOME_user_read_fault || s->late.wanted || task->flags & PF_EXITING)
		return false;
	retry = retry_take(s);
	if (!retry)
		return false;
	retry->tgid = s->sample.tgid;
	retry->tid = s->sample.tid;
	retry->time_ns = s->sample.time_ns;
	retry->start_boottime_ns = s->sample.start_boottime_ns;
	retry->stack_hash = s->sample.user_stack_hash;
	retry->unread = s->at.unread;
	retry->regs = s->regs;
	if (task_work_schedule(task, &retry->work, retry_work)) {
		retry->taken = 0;
		return false;
	}
	if (late_send_registers(s, 0, PROF_LATE_RETRIED))
		return true;
	retry->time_ns = 0;
	return false;
}

#else

#define sampler_walk(s, of) walk_whole(s)
#define retry_begin(s)	false

#endif

/* After a walk: the user stack, and what is missing of it. @may_retry is a constant: may task work
 * be named in this program? */
static __always_inline void walked_stack_send(struct scratch *s, bool may_retry)
{
	if (s->stack.frame_count) {
		s->sample.user_stack_hash = stack_send(s);
		if (may_retry && retry_begin(s)) {
			outcome_count(OUTCOME_read_retried);
			s->sample.head.flags = PROF_SAMPLE_LATE;
		} else {
			outcome_count(s->stack.outcome);
			s->sample.head.flags = late_send(s) ? PROF_SAMPLE_LATE : 0;
		}
	}
	if (s->unknown_pc)
		unknown_pc_send(s, s->sample.tgid, s->sample.time_ns, s->sample.start_boottime_ns);
}

static __always_inline void walked_send(struct scratch *s)
{
	walked_stack_send(s, false);
	sample_send(s);
}

#endif
