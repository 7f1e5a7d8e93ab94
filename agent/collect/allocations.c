// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/allocations.h"

#include <errno.h>

#include "agent/collect/control.h"
#include "agent/collect/follow.h"
#include "agent/collect/samples.h"

static void engage(void *ctx, struct proc *proc)
{
	follow_engage(ctx, proc);
}

static void ask_files(void *ctx, const struct proc *proc)
{
	follow_ask(ctx, proc, true);
}

static void feed_allocation(void *ctx, const struct prof_sample_event *event)
{
	samples_feed(ctx, event);
}

static void feed_alloc_record(void *ctx, const struct feed_alloc *record, const char *reason)
{
	struct collector *c = ctx;

	if (feed_write_alloc(&c->feed, record, reason) < 0)
		c->own_outcomes[OUTCOME_feed_full]++;
}

static void tell_loading(void *ctx, bool on)
{
	struct collector *c = ctx;

	c->loading = on;
	control_send_status(c);
}

int allocations_open(struct collector *c)
{
	const struct alloc_host host = { .bpf = c->bpf,
					 .features = &c->options->features,
					 .procs = c->procs,
					 .modules = c->modules,
					 .index = c->index,
					 .ctx = c,
					 .engage = engage,
					 .ask_files = ask_files,
					 .sample = feed_allocation,
					 .record = feed_alloc_record,
					 .loading = tell_loading };

	c->alloc = alloc_create(&host);
	return c->alloc ? 0 : -ENOMEM;
}
