/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stacks and samples on their way out. A stack's frames are sent once, before the first sample that
 * names it; it counts as sent only when the ring buffer took it. */
#ifndef PROFD_BPF_STACK_BPF_H
#define PROFD_BPF_STACK_BPF_H

#include "bpf/unwind.bpf.h"

#define KERNEL_STACK_BYTES (PROF_KERNEL_FRAMES_MAX * sizeof(uint64_t))

#define SCRIPT_WAKEUPS_MAX 16u /* a second, of a CPU */

/* A short program's functions have names only if the collector asks for them while the program
 * runs. So a chain of functions that is new wakes the collector at once, unless many are. */
static __attribute__((noinline)) uint64_t script_wakeup(struct scratch *s)
{
	uint64_t chain = s->script.chain ^ s->stack.tgid, now_ns;
	const uint32_t seen = 1;

	if (bpf_map_lookup_elem(&script_chains, &chain))
		return BPF_RB_NO_WAKEUP;
	now_ns = bpf_ktime_get_ns();
	if (now_ns - s->script.wakeups_ns >= SECOND_NS) {
		s->script.wakeups_ns = now_ns;
		s->script.wakeups = 0;
	}
	if (s->script.wakeups++ >= SCRIPT_WAKEUPS_MAX)
		return BPF_RB_NO_WAKEUP;
	bpf_map_update_elem(&script_chains, &chain, &seen, BPF_ANY);
	return BPF_RB_FORCE_WAKEUP;
}

/* Sends the stack that s->stack and s->frames hold unless it was sent before, and returns its id. A
 * stack that found the ring full keeps its id: it is sent with its next sample. */
static __always_inline uint64_t stack_send(struct scratch *s)
{
	uint32_t count = s->stack.frame_count;
	const uint32_t sent = 1;
	uint64_t hash;

	/* what is checked is what is used: not the number that it was made of */
	asm volatile("" : "+r"(count));
	if (!count || count > STACK_FRAMES_MAX)
		return 0;
	/* the same frames ended in another way are another stack */
	hash = hash_frame(s->stack.stack_hash, s->stack.outcome);
	s->stack.stack_hash = hash ? hash : 1;
	if (bpf_map_lookup_elem(&sent_stacks, &s->stack.stack_hash))
		return s->stack.stack_hash;
	s->stack.head.kind = PROF_EVENT_STACK;
	s->stack.head.size_bytes = sizeof(s->stack) + count * sizeof(s->frames[0]);
	if (bpf_ringbuf_output(&events, &s->stack, sizeof(s->stack) + count * sizeof(s->frames[0]),
			       s->script.chain ? script_wakeup(s) : BPF_RB_NO_WAKEUP))
		outcome_count(OUTCOME_stack_ring_full);
	else
		bpf_map_update_elem(&sent_stacks, &s->stack.stack_hash, &sent, BPF_ANY);
	return s->stack.stack_hash;
}

static __always_inline void kernel_frame(struct scratch *s, uint32_t at, uint64_t flags)
{
	uint32_t i = index_within(at, 128);
	uint64_t frame = prof_frame_address(PROF_FRAME_KERNEL, s->frames[i], flags);

	s->frames[i] = frame;
	s->stack.stack_hash = hash_frame(s->stack.stack_hash, frame);
}

/* The verifier follows a loop turn by turn. So all frames but the innermost are made in runs of a
 * global function (KERNEL_FRAMES), which it looks at once. */
#define KERNEL_RUN 16u

/* The frames of a run; 1: there are no more. */
static __always_inline int kernel_run(struct scratch *s, uint32_t first)
{
	uint32_t count = s->stack.frame_count;

	for (uint32_t i = 0; i < KERNEL_RUN && first + i < count; i++)
		kernel_frame(s, first + i, PROF_FRAME_RETURN);
	return first + KERNEL_RUN >= count;
}

/* Defines @turn for scratch memory in @map. */
#define KERNEL_FRAMES(turn, map)                                                                   \
	__attribute__((noinline)) int turn(uint32_t at, uint32_t first)                            \
	{                                                                                          \
		struct scratch *s = bpf_map_lookup_elem(&(map), &at);                              \
                                                                                                   \
		return s ? kernel_run(s, first) : 1;                                               \
	}

static __always_inline void kernel_stack_begin(struct scratch *s, long bytes, bool exact)
{
	uint32_t count = bytes > 0 ? (uint32_t)bytes / sizeof(uint64_t) : 0;

	s->stack.tgid = 0;
	s->stack.frame_count = count;
	s->stack.outcome = count < PROF_KERNEL_FRAMES_MAX ? OUTCOME_complete : OUTCOME_truncated;
	s->stack.stack_hash = 0;
	s->script.chain = 0;
	if (count)
		kernel_frame(s, 0, exact ? 0 : PROF_FRAME_RETURN);
}

/* Makes the kernel stack that s->frames holds as @bytes of addresses, innermost first, the stack to
 * be sent; the first is exact if @exact (an interrupted one). @s is the element @at of @turn's map.
 * The user stack, which uses the same space, must have been sent. */
#define kernel_stack_take(s, bytes, exact, turn, at)                                               \
	do {                                                                                       \
		kernel_stack_begin(s, bytes, exact);                                               \
		for (uint32_t i_ = 1; i_ < PROF_KERNEL_FRAMES_MAX; i_ += KERNEL_RUN)               \
			if (turn(at, i_))                                                          \
				break;                                                             \
	} while (0)

/* The kernel stack at a tracepoint, asked for in a function of the program: without this function,
 * the program itself, the kernel's bpf_trace_run*(), and __traceiter_*(), through which a
 * tracepoint calls several programs. That is so where walk_due is attached behind this one. */
static __always_inline long own_kernel_stack(void *ctx, struct scratch *s)
{
	return bpf_get_stack(ctx, s->frames, KERNEL_STACK_BYTES, have_irq_work ? 4 : 3);
}

static __always_inline void sample_send(struct scratch *s)
{
	s->sample.head.kind = PROF_EVENT_SAMPLE;
	s->sample.head.size_bytes = sizeof(s->sample);
	if (bpf_ringbuf_output(&events, &s->sample, sizeof(s->sample), BPF_RB_NO_WAKEUP))
		outcome_count(OUTCOME_ring_full);
}

/* A user pc in no known mapping: tells the collector, which reads the process's mappings again. */
static __always_inline void unknown_pc_send(struct scratch *s, uint32_t tgid, uint64_t now_ns,
					    uint64_t start_boottime_ns)
{
	struct prof_task_event event = {
		.head = { .kind = PROF_EVENT_UNKNOWN_PC, .size_bytes = sizeof(event) },
		.time_ns = now_ns,
		.start_boottime_ns = start_boottime_ns,
		.address = s->unknown_pc,
		.tgid = tgid,
	};
	uint64_t *last_ns = bpf_map_lookup_elem(&unknown_pcs, &tgid);

	if (last_ns && now_ns - *last_ns < PROF_UNKNOWN_PC_INTERVAL_NS)
		return;
	bpf_get_current_comm(event.comm, sizeof(event.comm));
	if (!bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_NO_WAKEUP))
		bpf_map_update_elem(&unknown_pcs, &tgid, &now_ns, BPF_ANY);
}

#endif
