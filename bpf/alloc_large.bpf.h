/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Blocks with a mapping of their own, which are known one by one: a part of alloc.bpf.c. Both parts
 * send their events and stacks by functions here. */
#ifndef PROFD_BPF_ALLOC_LARGE_BPF_H
#define PROFD_BPF_ALLOC_LARGE_BPF_H

#include "bpf/stack.bpf.h"
#include "bpf/task.bpf.h"

#include <bpf/bpf_tracing.h>

#include "bpf/alloc.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct scratch);
} alloc_fault_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ALLOC_SLOTS_MAX);
	__type(key, uint32_t); /* tgid */
	__type(value, struct alloc_owner);
} alloc_owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ALLOC_MOVED_MAX);
	__type(key, struct alloc_key);
	__type(value, struct alloc_moved);
} alloc_moves SEC(".maps");

/* ---- events and stacks ----------------------------------------------------------------------- */

static __always_inline bool alloc_send(struct prof_sample_event *event, uint64_t wakeup)
{
	const uint64_t ids = bpf_get_current_pid_tgid();

	event->head.kind = PROF_EVENT_SAMPLE;
	event->head.size_bytes = sizeof(*event);
	event->type = PROF_SAMPLE_ALLOC;
	event->tgid = ids >> 32;
	event->tid = (uint32_t)ids;
	event->start_boottime_ns = task_facts_of_current().start_boottime_ns;
	event->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	return !bpf_ringbuf_output(&events, event, sizeof(*event), wakeup);
}

static __always_inline uint64_t alloc_walk_send(struct scratch *s)
{
	if (!s->stack.frame_count)
		return 0;
	outcome_count(s->stack.outcome);
	return stack_send(s);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

#define PAGE_MASK	4095ul
#define HUGE_BYTES	(2ul << 20) /* x86-64, and AArch64 with pages of 4 KiB */
#define CODE_FRAMES_MAX 16 /* of the allocator, from its innermost function on */
#define EBUSY		16 /* of bpf_find_vma(): the mappings are locked for a change */
#define TREE_DEPTH_MAX	40 /* twice the logarithm of the mappings that a process may have */

static long alloc_vma_found(struct task_struct *task, struct vm_area_struct *vma, uint64_t *begin)
{
	*begin = vma->vm_file ? 0 : vma->vm_start;
	return 0;
}

/* Is the frame at hand one of the allocator, or the function that is nothing but a system call? */
static __always_inline bool alloc_is_own(const struct scratch *s, const struct alloc_owner *owner,
					 bool in_call)
{
	uint64_t pc = s->at.ip - !!s->at.is_return;

	return (pc >= owner->code_va && pc < owner->code_end_va) || in_call;
}

/* The frame that was stepped over is not one of the stack. */
static __always_inline void alloc_left(struct scratch *s)
{
	s->stack.frame_count = 0;
	s->stack.stack_hash = 0;
}

struct alloc_walk {
	struct scratch *scratch;
	const struct alloc_owner *owner;
	bool in_call;
};

static long alloc_leave_turn(uint32_t turn, struct alloc_walk *walk)
{
	struct scratch *s = walk->scratch;
	int ended;

	if (!alloc_is_own(s, walk->owner, walk->in_call && !turn))
		return 1;
	ended = walk_frames_once(s);
	alloc_left(s);
	return !!ended;
}

/* The registers are in @s. */
static __always_inline bool alloc_fault_begin(struct scratch *s, uint32_t tgid, bool with_loop)
{
	if (!arch_is_user(&s->regs))
		return false;
	arch_start_unwind(&s->at, &s->regs);
	walk_begin(s, tgid, bpf_map_lookup_elem(&targets, &tgid), with_loop);
	s->one_by_one = 1;
	return true;
}

/* Apart from the walk that follows, which has what this used of the stack. */
static __attribute__((noinline)) int alloc_leave(struct scratch *s, const struct alloc_owner *owner,
						 bool in_call)
{
	struct alloc_walk walk = { s, owner, in_call };

	return (int)bpf_loop(CODE_FRAMES_MAX, alloc_leave_turn, &walk, 0);
}

/* The stack of the thread whose registers are in `alloc_fault_scratch`. A global function is
 * verified once for both that call it. */
__attribute__((noinline)) uint64_t alloc_fault_stack(uint32_t in_call)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	const struct alloc_owner *owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	struct scratch *s = bpf_map_lookup_elem(&alloc_fault_scratch, &zero);

	if (!owner || !s || !alloc_fault_begin(s, tgid, true))
		return 0;
	alloc_leave(s, owner, in_call);
	s->one_by_one = 0;
	if (s->going)
		walk_whole(s);
	return alloc_walk_send(s);
}

WALK_COMPAT(alloc_fault_turn, alloc_fault_scratch)

/* alloc_leave_turn() where there is no bpf_loop(): verified once. */
__attribute__((noinline)) int alloc_leave_compat(uint32_t in_call)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	const struct alloc_owner *owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	struct scratch *s = bpf_map_lookup_elem(&alloc_fault_scratch, &zero);
	int ended;

	if (!owner || !s || !alloc_is_own(s, owner, in_call))
		return 1;
	ended = alloc_fault_turn(zero);
	alloc_left(s);
	return ended;
}

static __attribute__((noinline)) uint64_t alloc_fault_stack_compat(struct scratch *s, uint32_t tgid,
								   bool in_call)
{
	if (!alloc_fault_begin(s, tgid, false))
		return 0;
	for (uint32_t i = 0; i < CODE_FRAMES_MAX; i++)
		if (alloc_leave_compat(in_call && !i))
			break;
	s->one_by_one = 0;
	if (s->going)
		walk_compat(alloc_fault_turn, 0);
	return alloc_walk_send(s);
}

static __attribute__((noinline)) bool alloc_mapped(uint32_t slot, uint64_t address, uint64_t ip,
						   uint64_t stack)
{
	struct prof_sample_event event = {
		.detail = ALLOC_MAPPED,
		.user_stack_hash = stack,
		.object = address,
		.value = ip,
		.holder = slot,
		.time_ns = bpf_ktime_get_ns(),
	};

	return alloc_send(&event, BPF_RB_NO_WAKEUP);
}

/* The first address of the mapping without a file that holds @address, where bpf_find_vma() is not
 * there (before v5.17): by the tree of mappings that those kernels have. A read that meets a change
 * by another thread finds none. */
__attribute__((noinline)) uint64_t alloc_tree_begin(uint64_t address)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct___rb *mm = (void *)BPF_CORE_READ(task, mm);
	struct vm_area_struct *vma;
	struct rb_node *node;
	uint64_t start;

	if (!bpf_core_field_exists(mm->mm_rb))
		return 0;
	node = BPF_CORE_READ(mm, mm_rb.rb_node);
	for (uint32_t i = 0; i < TREE_DEPTH_MAX && node; i++) {
		vma = (void *)((char *)node - bpf_core_field_offset(struct vm_area_struct___rb, vm_rb));
		start = BPF_CORE_READ(vma, vm_start);
		if (address < start)
			node = BPF_CORE_READ(node, rb_left);
		else if (address >= BPF_CORE_READ(vma, vm_end))
			node = BPF_CORE_READ(node, rb_right);
		else
			return BPF_CORE_READ(vma, vm_file) ? 0 : start;
	}
	return 0;
}

/* Is @address where a mapping begins? While other threads change the mappings the kernel does not
 * say. Until it is known which instruction writes headers, a touch by the one that was the last to
 * touch a new mapping is taken for a block then, and its header decides. Others are not: each page
 * that memset() writes would be one, and use up the stacks that may be walked. */
static __always_inline bool alloc_begins(struct alloc_owner *owner, uint64_t address, uint64_t ip,
					 bool with_loop)
{
	const bool allocator = ip >= owner->code_va && ip < owner->code_end_va;
	uint64_t begin = 0;
	long rc = 0;

	if (with_loop)
		rc = bpf_find_vma(bpf_get_current_task_btf(), address, alloc_vma_found, &begin, 0);
	else
		begin = alloc_tree_begin(address);
	if (rc == -EBUSY)
		return allocator && !owner->header_ip && (!owner->first_ip || ip == owner->first_ip);
	if (rc || begin != address)
		return false;
	if (allocator)
		owner->first_ip = ip;
	return true;
}

/* May a touch at @address be one of a header, or a mapping begin there? Most page faults of the
 * host are neither. */
static __always_inline bool alloc_may_begin(uint64_t address)
{
	return (address & PAGE_MASK) <= sizeof(uint64_t);
}

/* The scratch memory for the stack of a touch at @address by the instruction at @ip. NULL: it does
 * not begin a block, or no more stacks may be walked. */
static __always_inline struct scratch *alloc_touch_begin(struct alloc_owner *owner,
							 uint64_t address, uint64_t ip,
							 bool with_loop)
{
	struct scratch *s;

	address &= ~PAGE_MASK;
	if ((ip != owner->header_ip && !alloc_begins(owner, address, ip, with_loop)) || !owner->left)
		return NULL;
	owner->left--;
	s = scratch_enter(&alloc_fault_scratch);
	if (!s)
		outcome_count(OUTCOME_scratch_busy);
	return s;
}

/* The registers are in @s. */
static __always_inline void alloc_touch_end(struct scratch *s, uint32_t tgid,
					    const struct alloc_owner *owner, uint64_t address,
					    uint64_t ip, bool with_loop)
{
	uint64_t stack = with_loop ? alloc_fault_stack(false)
				   : alloc_fault_stack_compat(s, tgid, false);

	scratch_leave(s);
	if (stack)
		alloc_mapped(owner->slot, address & ~PAGE_MASK, ip, stack);
}

static __attribute__((noinline)) uint64_t alloc_touched_by(const struct arch_regs *regs)
{
	struct arch_call call;

	return arch_read_call(&call, regs) ? arch_ip(&call) : 0;
}

static __always_inline int alloc_touched(uint64_t address, const struct arch_regs *regs,
					 uint64_t error, bool with_loop)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	struct alloc_owner *owner;
	struct scratch *s;
	uint64_t ip;

	if (!(error & ARCH_FAULT_WRITE))
		return 0;
	owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	if (!owner)
		return 0;
	ip = alloc_touched_by(regs);
	s = alloc_touch_begin(owner, address, ip, with_loop);
	if (!s)
		return 0;
	if (bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs))
		scratch_leave(s);
	else
		alloc_touch_end(s, tgid, owner, address, ip, with_loop);
	return 0;
}

static __always_inline int alloc_touched_event(struct bpf_perf_event_data *ctx, bool with_loop)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	uint64_t address = ctx->addr, ip = ctx->regs.ip;
	struct alloc_owner *owner;
	struct scratch *s;

	if (!alloc_may_begin(address) || !arch_is_user(&ctx->regs))
		return 0;
	owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	if (!owner)
		return 0;
	s = alloc_touch_begin(owner, address, ip, with_loop);
	if (!s)
		return 0;
	arch_copy_regs(&s->regs, ctx);
	alloc_touch_end(s, tgid, owner, address, ip, with_loop);
	return 0;
}

/* The kernel's software event of page faults serves where there is no such tracepoint (AArch64). It
 * is raised before the kernel handles the fault, too, and does not tell reads from writes. A
 * mapping that is read first has no header yet, and user space drops it. */
SEC("perf_event")
int alloc_fault_event(struct bpf_perf_event_data *ctx)
{
	return alloc_touched_event(ctx, true);
}

SEC("perf_event")
int alloc_fault_event_compat(struct bpf_perf_event_data *ctx)
{
	return alloc_touched_event(ctx, false);
}

/* A file-less mapping whose length is a multiple of a huge page is put where huge pages fit: the
 * kernel looks for one huge page more, and takes the address there that is aligned as the offset.
 * Source: mm/huge_memory.c, __thp_get_unmapped_area(), since Linux 6.7. */
static __always_inline uint64_t alloc_moved_to(uint64_t found, uint64_t from, uint64_t bytes,
					       uint64_t looked_for)
{
	uint64_t up = (from - found) & (HUGE_BYTES - 1);

	if (looked_for == ((bytes + PAGE_MASK) & ~PAGE_MASK))
		return found;
	return found + (up ? up : HUGE_BYTES);
}

/* Is the current thread in mremap()? */
static __always_inline bool alloc_is_moving(struct arch_call *call)
{
	return arch_read_call(call, current_saved_regs()) && arch_system_call(call) == ARCH_MREMAP &&
	       !arch_is_compat32(call);
}

/* Notes what mremap() is asked for; a function of its own, so that the walk before it has the stack
 * that this uses. One entry follows a block through any number of moves. */
static __attribute__((noinline)) int alloc_note_move(uint32_t slot, uint64_t found,
						     uint64_t looked_for, uint64_t stack,
						     uint64_t now_ns)
{
	struct alloc_moved moved = { .stack = stack, .first_ns = now_ns, .last_ns = now_ns }, *before;
	struct alloc_key key = { .slot = slot };
	struct arch_call call;
	uint64_t from_va;

	if (!alloc_is_moving(&call))
		return 0;
	moved.bytes = arch_third_argument(&call);
	moved.from_va = key.address = from_va = arch_first_argument(&call);
	before = bpf_map_lookup_elem(&alloc_moves, &key);
	if (before) {
		moved.from_va = before->from_va;
		moved.first_ns = before->first_ns;
		if (!stack)
			moved.stack = before->stack;
		bpf_map_delete_elem(&alloc_moves, &key);
	}
	key.address = alloc_moved_to(found, from_va, moved.bytes, looked_for);
	bpf_map_update_elem(&alloc_moves, &key, &moved, BPF_ANY);
	return 0;
}

static __attribute__((noinline)) bool alloc_in_move(void)
{
	struct arch_call call;

	return alloc_is_moving(&call);
}

/* realloc() moves such blocks by mremap(). The pages come along, so no first touch tells of the new
 * address, but the kernel looks for it. What is resized in place keeps its header. */
static __always_inline int alloc_moves_to(uint64_t found, uint64_t looked_for, bool with_loop)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	struct alloc_owner *owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	uint64_t now_ns, stack = 0;
	struct scratch *s;

	if (!owner || found & PAGE_MASK || !alloc_in_move())
		return 0;
	now_ns = bpf_ktime_get_ns();
	s = owner->left ? scratch_enter(&alloc_fault_scratch) : NULL;
	if (s) {
		if (!bpf_probe_read_kernel(&s->regs, sizeof(s->regs), current_saved_regs()))
			stack = with_loop ? alloc_fault_stack(true)
					  : alloc_fault_stack_compat(s, tgid, true);
		owner->left--;
		scratch_leave(s);
	}
	return alloc_note_move(owner->slot, found, looked_for, stack, now_ns);
}

/* glibc takes large blocks from mmap() one by one and writes their headers at once: the first touch
 * of a mapping's first bytes. What it was is told by the header, which user space reads later, and
 * says which instruction wrote it: from then on mappings that the kernel joined to those below are
 * known by that.
 *
 * One program, so that a verifier looks at its walk once, is attached to the tracepoints
 * page_fault_user(address, registers, error) and vm_unmapped_area(found, info). The registers are
 * where those of the thread were saved as it entered the kernel, and @info never is. */
static __always_inline int alloc_of_event(const unsigned long long *event, bool with_loop)
{
	const void *what = (const void *)event[1];
	const struct vm_unmapped_area_info *info = what;
	uint64_t error;

	if (!alloc_may_begin(event[0]))
		return 0;
	if (what != current_saved_regs())
		return alloc_moves_to(event[0], BPF_CORE_READ(info, length), with_loop);
	/* A program that loads it is not let in where there are two arguments. */
	if (bpf_probe_read_kernel(&error, sizeof(error), event + 2))
		return 0;
	return alloc_touched(event[0], what, error, with_loop);
}

SEC("raw_tp")
int alloc_large(const unsigned long long *event)
{
	return alloc_of_event(event, true);
}

SEC("raw_tp")
int alloc_large_compat(const unsigned long long *event)
{
	return alloc_of_event(event, false);
}

#endif
