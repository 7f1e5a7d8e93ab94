// SPDX-License-Identifier: Apache-2.0
/* Stacks and samples on their way from BPF to the feed. A stack is kept as it came until its first
 * sample says whose it is and when it was taken, which is what its addresses are resolved by. */
#include "agent/collect/samples.h"

#include <errno.h>
#include <string.h>

#include "agent/collect/announce.h"
#include "agent/collect/follow.h"
#include "agent/collect/late.h"
#include "agent/collect/proc/proc_facts.h"
#include "agent/collect/resolve.h"

void samples_stack(void *ctx, const struct prof_stack_event *event)
{
	struct collector *c = ctx;

	/* A stack that is not kept is asked for again when its sample comes. */
	(void)!stack_table_put(c->stacks, event->stack_hash, event->frames, event->frame_count,
			       event->outcome);
}

void samples_task(void *ctx, const struct prof_task_event *event)
{
	follow_task(ctx, event);
}

void samples_evicted(void *ctx, uint64_t hash)
{
	struct collector *c = ctx;

	if (c->bpf)
		bpf_agent_forget_stack(c->bpf, hash);
}

/* ---- feeding -----------------------------------------------------------------------------------
 */

/* The id that a sample names, its stack being in the feed; 0 = the sample goes without one.
 * -ENOSPC: the ring is full. */
static int feed_stack_of(struct collector *c, struct proc *proc, uint64_t hash, uint64_t time_ns,
			 uint64_t *ret_id)
{
	struct stack *stack, *same;
	int rc;

	*ret_id = 0;
	if (!hash)
		return 0;
	stack = stack_table_find(c->stacks, hash);
	if (!stack) {
		bpf_agent_forget_stack(c->bpf, hash);
		c->own_outcomes[OUTCOME_stack_missing]++;
		return 0;
	}
	resolve_stack(c, stack, proc, time_ns);
	*ret_id = stack->id;
	if (stack->sent_generation == c->server_generation)
		return 0;
	/* Another hash of BPF may have led to the same stack. */
	same = stack_table_by_id(c->stacks, stack->id);
	if (!same || same == stack || same->sent_generation != c->server_generation) {
		rc = feed_write_stack(&c->feed, stack);
		if (rc < 0)
			return rc;
	}
	stack->sent_generation = c->server_generation;
	return 0;
}

/* The user stack of a sample: as it is known now, or under an id that is promised. */
static int feed_user_stack(struct collector *c, struct proc *proc,
			   const struct prof_sample_event *event, uint64_t *ret_id)
{
	uint64_t hash = event->user_stack_hash;

	if (event->head.flags & PROF_SAMPLE_LATE && late_sample(c, proc, event, ret_id, &hash))
		return 0;
	return feed_stack_of(c, proc, hash, event->time_ns, ret_id);
}

/* The main thread's name is the process's; a program may change it at any time. */
static void follow_comm(struct proc *proc, const struct prof_sample_event *event)
{
	if (event->tid != event->tgid || event->type == PROF_SAMPLE_WAKER || proc->ended_ns ||
	    memcmp(proc->comm, event->comm, sizeof(proc->comm)) == 0)
		return;
	memcpy(proc->comm, event->comm, sizeof(proc->comm));
	proc->fed = false;
}

/* The holder of the lock that a thread waited for: the one that the lock names, if it is a thread
 * of the process, else the thread that released the lock. */
static uint32_t holder_of(const struct prof_sample_event *event)
{
	if (event->type == PROF_SAMPLE_ALLOC || event->type == PROF_SAMPLE_WAKER ||
	    (event->type == PROF_SAMPLE_OFFCPU && prof_state_is_disk(event->state)))
		return event->holder;
	if (event->holder && event->holder != event->tid &&
	    proc_facts_is_thread(event->tgid, event->holder))
		return event->holder;
	return event->detail == PROF_DETAIL_LOCK ? event->waker : 0;
}

/* CPython's global lock is a condition in _PyRuntime, or in the first interpreter's state, which is
 * a part of that. Its futexes change with each wait, so that the lock is told by _PyRuntime. Its
 * holder is not a tid, but a number that its releases have, too (bpf/gil.bpf.h). */
static void tell_gil(const struct proc *proc, const struct prof_sample_event *event,
		     struct feed_sample *sample)
{
	const struct script_runtime *runtime = proc->script ? &proc->script->runtime : NULL;

	if (event->type != PROF_SAMPLE_OFFCPU || !runtime || runtime->kind != SCRIPT_CPYTHON ||
	    event->state != (PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX) ||
	    event->object - runtime->python.runtime >= runtime->python.runtime_bytes)
		return;
	sample->state = PROF_OFF_BLOCKED << 4 | PROF_WAIT_GIL;
	sample->object = runtime->python.runtime;
	sample->detail = PROF_DETAIL_LOCK;
	sample->holder = event->holder;
}

void samples_sample(void *ctx, const struct prof_sample_event *event)
{
	struct collector *c = ctx;

	follow_until(c, event->time_ns);
	/* The weight of an allocation is known at the end of its period. */
	if (event->type == PROF_SAMPLE_ALLOC)
		alloc_event(c->alloc, event);
	else
		samples_feed(c, event);
}

void samples_feed(struct collector *c, const struct prof_sample_event *event)
{
	struct feed_sample sample = { .time_ns = event->time_ns,
				      .value = event->value,
				      .value2 = event->value2,
				      .tid = event->tid,
				      .source = event->source,
				      .cpu = event->cpu,
				      .type = event->type,
				      .state = event->state,
				      .object = event->object,
				      .holder = holder_of(event),
				      .detail = event->detail };
	struct proc *proc, *of_stack;

	proc = follow_sampled(c, event->tgid, event->start_boottime_ns, event->time_ns,
			      event->comm);
	if (!proc) {
		c->own_outcomes[OUTCOME_feed_full]++;
		return;
	}
	if (proc->flags & FEED_PROC_EXCLUDED) {
		c->own_outcomes[OUTCOME_excluded]++;
		return;
	}
	follow_comm(proc, event);
	tell_gil(proc, event, &sample);
	of_stack = proc;
	if (event->type == PROF_SAMPLE_WAKER) {
		of_stack = follow_sampled(c, (uint32_t)event->object, event->value, event->time_ns,
					  event->comm);
		/* of a release of the GIL; else both are 0 */
		sample.value = event->value2;
		sample.object = event->waker;
		sample.value2 = 0;
	}
	sample.proc = proc->id;
	memcpy(sample.comm, event->comm, sizeof(sample.comm));
	if (!of_stack || !announce_proc(c, proc) ||
	    feed_user_stack(c, of_stack, event, &sample.user_stack) < 0 ||
	    feed_stack_of(c, proc, event->kernel_stack_hash, event->time_ns,
			  &sample.kernel_stack) < 0 ||
	    feed_write_sample(&c->feed, &sample) < 0)
		c->own_outcomes[OUTCOME_feed_full]++;
}
