/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stacks through code that nobody has indexed yet. A program that starts runs for some milliseconds
 * before its rows are there, on a busy host for longer, and one that lives no longer than that
 * would never have a whole stack. So what the walk would have read is sent along: the registers of
 * the frame where it came to such code, and the stack from there on. The collector takes the
 * remaining steps with the same rules (agent/collect/stacks/late_stacks.h). Bounded per CPU and
 * second, and by the room in the ring, which samples need more. */
#ifndef PROFD_BPF_LATE_BPF_H
#define PROFD_BPF_LATE_BPF_H

#include "bpf/stack.bpf.h"

#define LATE_PAGES     (PROF_LATE_STACK_BYTES / PAGE_BYTES - 1) /* behind the first, partial one */

_Static_assert(PROF_REGS == ARCH_REG_COUNT, "struct prof_late_event");

static __always_inline bool late_has_room(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) <
	       bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) / 2;
}

static __always_inline bool late_allowed(struct late_rate *rate, uint32_t per_second,
					 uint64_t now_ns)
{
	if (now_ns - rate->since_ns >= SECOND_NS) {
		rate->since_ns = now_ns;
		rate->used = 0;
	}
	return rate->used++ < per_second && late_has_room();
}

/* How much of the stack is worth copying. Of the main thread's all that is above its first frame is
 * arguments and environment. */
static __always_inline uint64_t late_bytes_wanted(uint64_t sp)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	uint64_t bytes = BPF_CORE_READ(task, mm, start_stack) - sp;

	return bytes < PROF_LATE_STACK_BYTES ? bytes : PROF_LATE_STACK_BYTES;
}

/* Copies page by page, so that only what is not resident is missing; bytes. */
static __always_inline uint32_t late_copy(struct late *late, uint64_t sp)
{
	uint64_t wanted = late_bytes_wanted(sp);
	uint32_t at = PAGE_BYTES - ((uint32_t)sp & (PAGE_BYTES - 1));

	if (bpf_probe_read_user(late->stack, at, (void *)sp))
		return 0;
	for (uint32_t page = 0; page < LATE_PAGES; page++) {
		if (at >= wanted ||
		    bpf_probe_read_user(late->stack + index_within(at, PROF_LATE_STACK_BYTES),
					PAGE_BYTES, (void *)(sp + at)))
			break;
		at += PAGE_BYTES;
	}
	return at < wanted ? at : wanted;
}

static __always_inline void late_fill(struct prof_late_event *event, const struct scratch *s,
				      uint16_t flags)
{
	const struct unwind_state *at = &s->late.at;

	event->head.flags = flags;
	event->time_ns = s->sample.time_ns;
	event->ip = at->ip;
	event->sp = at->sp;
	event->fp = at->fp;
	event->context_at = at->context_at;
	event->thread_pointer = 0;
	for (uint32_t reg = 0; reg < ARCH_REG_COUNT; reg++)
		event->regs[reg] = at->regs[reg];
	event->tgid = s->sample.tgid;
	event->tid = s->sample.tid;
	event->frame_count = s->late.frame_count;
	event->is_return = at->is_return;
	event->regs_known = at->regs_known;
}

/* The registers alone (s->regs), of a thread whose memory cannot be read here: it sleeps, and the
 * collector has it read (@thread_pointer is its own), or as @flags say (enum prof_late_flag). True
 * if they were sent. */
static __always_inline bool late_send_registers(struct scratch *s, uint64_t thread_pointer,
						uint16_t flags)
{
	uint32_t zero = 0;
	struct late *late = bpf_map_lookup_elem(&late_scratch, &zero);
	bool sent;

	if (!late || late->busy || !late_has_room())
		return false;
	late->busy = 1;
	arch_start_unwind(&s->late.at, &s->regs);
	s->late.frame_count = 0;
	late_fill(&late->event, s, flags);
	late->event.thread_pointer = thread_pointer;
	late->event.head.kind = PROF_EVENT_LATE;
	late->event.head.size_bytes = sizeof(late->event);
	late->event.stack_bytes = 0;
	sent = !bpf_ringbuf_output(&events, &late->event, sizeof(late->event), BPF_RB_NO_WAKEUP);
	late->busy = 0;
	return sent;
}

/* After a walk: true if the rest of its stack was sent along. */
static __always_inline bool late_send(struct scratch *s)
{
	uint32_t zero = 0, bytes;
	struct late *late;
	bool sent = false;

	if (!s->late.wanted)
		return false;
	late = bpf_map_lookup_elem(&late_scratch, &zero);
	if (!late || late->busy)
		return false; /* a sampler interrupted another program in it */
	late->busy = 1;
	if (late_allowed(&late->copies, PROF_LATE_PER_SECOND, s->sample.time_ns)) {
		bytes = late_copy(late, s->late.at.sp - ARCH_BELOW_SP);
		if (bytes && bytes <= PROF_LATE_STACK_BYTES) {
			late_fill(&late->event, s, 0);
			late->event.head.kind = PROF_EVENT_LATE;
			late->event.head.size_bytes = sizeof(late->event) + bytes;
			late->event.stack_bytes = bytes;
			sent = !bpf_ringbuf_output(&events, &late->event, sizeof(late->event) + bytes,
						   BPF_RB_NO_WAKEUP);
		}
	}
	late->busy = 0;
	return sent;
}

#endif
