// SPDX-License-Identifier: Apache-2.0
/* Stacks and samples on their way from BPF to the feed. A stack is kept as it came until its first sample
 * says whose it is and when it was taken, which is what its addresses are resolved by. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/collect/collector_internal.h"
#include "agent/collect/proc_facts.h"

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

/* ---- resolving --------------------------------------------------------------------------------- */

struct resolving {
	struct collector *c;
	struct proc *proc;
	uint64_t time_ns;
};

/* The first stack through @module: it gets names, from the file as the sampled process has it mapped, which is
 * there to be opened even if its path leads elsewhere by now. */
static void name_module(struct collector *c, const struct proc *proc, struct module *module)
{
	struct module *mapped = module;

	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);

		if (module_table_canonical(c->modules, mapping->module) != module)
			continue;
		mapped = module_table_get(c->modules, mapping->module);
		mapped->origin = follow_origin(proc, mapping);
		break;
	}
	module->names_later = false;
	mapped->names_later = true;
	if (module_index_name(c->index, mapped))
		return;
	module->gone = true;
	(void)!samples_feed_module(c, module);
}

/* The module a frame is attributed to. Its table is asked for again if it had to give way. */
static struct module *use_module(const struct resolving *r, uint32_t id)
{
	struct collector *c = r->c;
	struct module *module = module_table_canonical(c->modules, id);

	if (!module)
		return NULL;
	module->used_ns = r->time_ns;
	if (module->id != id)
		module_table_get(c->modules, id)->aliased = true;
	if (module->names_later)
		name_module(c, r->proc, module);
	if (module->table_evicted && module->state == MODULE_READY) {
		module->table_evicted = false;
		module->state = MODULE_SEEN;
		module_index_ask(c->index, module, false);
	}
	return module;
}

static uint64_t resolve_kernel(const struct collector *c, uint64_t frame)
{
	uint64_t flags = frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED);
	uint64_t va = frame & PROF_FRAME_ADDRESS_MASK;

	if (!c->kernel_text || va < c->kernel_text || va - c->kernel_text > PROF_FRAME_OFFSET_MASK)
		return frame;
	return prof_frame_module(c->kernel_module, va - c->kernel_text, flags);
}

static uint64_t resolve_address(struct resolving *r, uint64_t frame)
{
	uint64_t flags = frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED);
	uint64_t va = frame & PROF_FRAME_ADDRESS_MASK;
	const struct mapping *mapping;
	struct module *module;
	uint32_t jit;

	/* A call at the end of a mapping returns behind it. */
	mapping = mapping_set_find(r->proc->mappings, va - !!(flags & PROF_FRAME_RETURN),
				   r->time_ns);
	if (!mapping)
		return frame;
	module = mapping->module ? use_module(r, mapping->module) : NULL;
	if (module && !publish_is_jit(module)) {
		if (va - mapping->bias > PROF_FRAME_OFFSET_MASK)
			return frame;
		return prof_frame_module(module->id, va - mapping->bias, flags);
	}
	jit = publish_jit_module(r->c, r->proc);
	return jit ? prof_frame_module(jit, va & PROF_FRAME_OFFSET_MASK, flags) : frame;
}

static uint64_t resolve_frame(void *ctx, uint64_t frame)
{
	struct resolving *r = ctx;
	struct module *module;

	switch (prof_frame_kind(frame)) {
	case PROF_FRAME_KERNEL:
		return resolve_kernel(r->c, frame);
	case PROF_FRAME_ADDRESS:
		return resolve_address(r, frame);
	case PROF_FRAME_MODULE:
		module = use_module(r, prof_frame_module_id(frame));
		if (!module)
			return frame;
		return prof_frame_module(module->id, prof_frame_offset(frame),
					 frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED));
	default:
		return frame;
	}
}

static bool resolve_key(void *ctx, uint32_t id, uint64_t *ret)
{
	const struct resolving *r = ctx;
	const struct module *module = module_table_get(r->c->modules, id);

	if (!module || !module->key)
		return false;
	*ret = module->key;
	return true;
}

static void normalize(struct collector *c, struct stack *stack, struct proc *proc, uint64_t time_ns)
{
	struct resolving resolving = { .c = c, .proc = proc, .time_ns = time_ns };
	struct stack_resolver resolver = {
		.ctx = &resolving,
		.frame = resolve_frame,
		.key = resolve_key,
		.version = c->knowledge,
		.salt = hash_combine(c->epoch, proc->id),
	};

	(void)stack_table_normalize(c->stacks, stack, &resolver);
}

/* ---- feeding ----------------------------------------------------------------------------------- */

void samples_feed_exit(struct collector *c, struct proc *proc)
{
	if (!proc->fed_once || !proc->ended_ns || proc->exit_fed)
		return;
	proc->exit_fed = feed_write_proc_exit(&c->feed, proc) == 0;
	if (!proc->exit_fed)
		c->names_due = true;
}

bool samples_feed_proc(struct collector *c, struct proc *proc)
{
	if (proc->fed)
		return true;
	if (feed_write_proc(&c->feed, proc, c->families) < 0) {
		c->names_due = true;
		return false;
	}
	proc->fed = true;
	proc->fed_once = true;
	samples_feed_exit(c, proc); /* the last samples of a life come after its end */
	return true;
}

bool samples_feed_module(struct collector *c, struct module *module)
{
	if (!module->key)
		return true; /* it comes when it is known */
	module->fed = feed_write_module(&c->feed, module) == 0;
	if (!module->fed)
		c->names_due = true;
	return module->fed;
}

void samples_feed_stack(struct collector *c, uint64_t id)
{
	struct stack *stack = stack_table_by_id(c->stacks, id);

	if (stack && feed_write_stack(&c->feed, stack) == 0)
		stack->sent_generation = c->server_generation;
}

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
	normalize(c, stack, proc, time_ns);
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

void samples_feed_promised(struct collector *c, struct proc *proc, uint64_t time_ns, uint64_t id,
			   const uint64_t *frames, uint16_t frame_count, uint8_t outcome)
{
	struct resolving resolving = { .c = c, .proc = proc, .time_ns = time_ns };
	uint64_t words[FEED_FRAMES_MAX];
	struct stack *stack;

	if (frame_count > FEED_FRAMES_MAX)
		return;
	for (uint16_t i = 0; i < frame_count; i++)
		words[i] = resolve_frame(&resolving, frames[i]);
	stack = stack_table_put_as(c->stacks, id, words, frame_count, outcome);
	if (stack)
		samples_feed_stack(c, id); /* what does not fit is asked for again */
	else
		c->own_outcomes[OUTCOME_stack_missing]++;
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

/* Of the lock that a thread waited for: what the lock says, if that is a thread of the process, else who
 * released it. */
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

void samples_sample(void *ctx, const struct prof_sample_event *event)
{
	struct collector *c = ctx;

	follow_until(c, event->time_ns);
	/* What an allocation stands for is known at the end of its period. */
	if (event->type == PROF_SAMPLE_ALLOC)
		alloc_event(c, event);
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
	of_stack = proc;
	if (event->type == PROF_SAMPLE_WAKER) {
		of_stack = follow_sampled(c, (uint32_t)event->object, event->value, event->time_ns,
					  event->comm);
		sample.object = sample.value = sample.value2 = 0;
	}
	sample.proc = proc->id;
	memcpy(sample.comm, event->comm, sizeof(sample.comm));
	if (!of_stack || !samples_feed_proc(c, proc) ||
	    feed_user_stack(c, of_stack, event, &sample.user_stack) < 0 ||
	    feed_stack_of(c, proc, event->kernel_stack_hash, event->time_ns,
			  &sample.kernel_stack) < 0 ||
	    feed_write_sample(&c->feed, &sample) < 0)
		c->own_outcomes[OUTCOME_feed_full]++;
}

void samples_feed_rest(struct collector *c)
{
	struct module *module;
	struct proc *proc;
	size_t at = 0, next = 0;

	if (!c->names_due)
		return;
	c->names_due = false;
	while ((proc = proc_table_next_kept(c->procs, &at))) {
		samples_feed_exit(c, proc);
		if (proc->engaged && !proc->ended_ns && !samples_feed_proc(c, proc))
			return;
	}
	while ((module = module_table_next(c->modules, &next)))
		if (!module->fed && !samples_feed_module(c, module))
			return;
}

void samples_feed_all(struct collector *c)
{
	struct module *module;
	struct proc *proc;
	size_t at = 0, next = 0;

	while ((proc = proc_table_next_kept(c->procs, &at))) {
		proc->fed = false;
		if (!proc->ended_ns)
			continue;
		/* Its last samples may be on their way: it is told again with them. */
		proc->fed_once = false;
		proc->exit_fed = false;
	}
	while ((module = module_table_next(c->modules, &next)))
		module->fed = false;
	c->names_due = true;
	samples_feed_rest(c);
}
