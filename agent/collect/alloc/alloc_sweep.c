// SPDX-License-Identifier: Apache-2.0
/* Memory in use, for sessions that end. Every period ends, memory is read once more, and
 * everything goes into the feed. Nothing blocks: alloc_tick() takes the steps. A sweep that is
 * asked for meanwhile joins this one. */
#include "agent/collect/alloc/alloc_internal.h"

#include <math.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"

#define SWEEP_WINDOWS_MAX 4u /* processes that get one more window for a sweep */
#define SWEEP_NS	  (1500 * NS_PER_MS) /* 50 in general; sessions wait for 3 s */
#define ERROR_MAX	  100.0 /* relative */
#define SETTLE_NS	  (5 * NS_PER_MS) /* a period shorter than this is not worth a window */

struct live_context {
	struct alloc_watch *watch;
	const struct target *target;
};

static void feed_large(struct alloc_watch *watch, struct target *target)
{
	const struct proc *proc = proc_table_by_id(watch->host.procs, target->proc);

	for (size_t i = 0; proc && i < target->large.blocks.count; i++) {
		const struct alloc_large_block *block = &target->large.blocks.data[i];
		const struct prof_sample_event event = {
			.time_ns = block->time_ns,
			.start_boottime_ns = proc->start_boottime_ns,
			.user_stack_hash = block->stack,
			.value = block->bytes,
			.value2 = 1024,
			.tgid = target->tgid,
			.source = watch->sweeps,
			.type = PROF_SAMPLE_ALLOC,
			.state = FEED_ALLOC_EXACT,
		};

		if (block->bytes)
			watch->host.sample(watch->host.ctx, &event);
	}
}

static int feed_live(void *ctx, const struct alloc_live *live)
{
	const struct live_context *context = ctx;
	const struct target *target = context->target;
	const struct proc *proc = proc_table_by_id(context->watch->host.procs, target->proc);
	struct prof_sample_event event = {
		.time_ns = live->time_ns,
		.start_boottime_ns = proc ? proc->start_boottime_ns : 0,
		.user_stack_hash = live->stack,
		.value = (uint64_t)(live->bytes + 0.5),
		.value2 = (uint64_t)(live->objects * 1024 + 0.5),
		.tgid = target->tgid,
		.source = context->watch->sweeps,
		.type = PROF_SAMPLE_ALLOC,
		.state = FEED_ALLOC_LIVE,
		.detail = (uint8_t)((live->few ? FEED_ALLOC_FEW : 0) |
				    (live->old < FEED_ALLOC_FEW ? live->old : FEED_ALLOC_FEW - 1)),
		.holder = live->deaths,
		.object = feed_alloc_site((uint64_t)(fmin(live->error, ERROR_MAX) * 1000 + 0.5),
					  live->least_bytes, live->most_bytes, live->unsure),
	};

	if (event.value && proc)
		context->watch->host.sample(context->watch->host.ctx, &event);
	return 0;
}

static void feed_all(struct alloc_watch *watch)
{
	for (size_t i = 0; i < ARRAY_SIZE(watch->targets); i++) {
		struct target *target = &watch->targets[i];
		struct live_context context = { watch, target };

		if (target->state < STATE_IDLE || target->state == STATE_REFUSED || !target->track)
			continue;
		(void)!alloc_heap_each_live(target->heap, clock_monotonic_ns(), feed_live, &context);
		feed_large(watch, target);
	}
}

/* Brings a period to its end now. */
static void cut(struct alloc_watch *watch, struct target *target, unsigned *windows)
{
	uint64_t now_ns = clock_monotonic_ns();
	bool another = target->state == STATE_IDLE && now_ns - target->begin_ns > SETTLE_NS &&
		       !target->look.seen && *windows < SWEEP_WINDOWS_MAX;

	/* One more window where the period had none, also on credit: its part of the session would
	 * be missing. */
	*windows += another;
	if (another)
		target->state = STATE_LOOKING;
	else if (target->has_large && !target->look.seen)
		(void)alloc_look_at(watch, target, false);
	if (target->state == STATE_OPEN && !target->pace.full)
		alloc_detach(watch, target);
	target->cut = target->state == STATE_LOOKING || target->state == STATE_OPEN ||
		      target->state == STATE_CLOSED;
	if (target->cut)
		target->next_ns = now_ns;
}

void alloc_sweep_go_on(struct alloc_watch *watch)
{
	for (size_t i = 0; i < ARRAY_SIZE(watch->targets); i++) {
		const struct target *target = &watch->targets[i];

		if (target->state >= STATE_IDLE && (target->cut || target->look.seen) &&
		    clock_monotonic_ns() < watch->sweep_until_ns)
			return;
	}
	watch->sweep_until_ns = 0;
	feed_all(watch);
	alloc_tell(watch, 0, FEED_ALLOC_SWEPT, "");
}

void alloc_sweep(struct alloc_watch *watch)
{
	unsigned windows = 0;

	if (!watch->probes) {
		alloc_tell(watch, 0, FEED_ALLOC_SWEPT, "");
		return;
	}
	if (watch->sweep_until_ns)
		return;
	watch->sweep_until_ns = clock_monotonic_ns() + SWEEP_NS;
	watch->sweeps++;
	for (size_t i = 0; i < ARRAY_SIZE(watch->targets); i++)
		if (watch->targets[i].state >= STATE_IDLE && watch->targets[i].state != STATE_REFUSED)
			cut(watch, &watch->targets[i], &windows);
}
