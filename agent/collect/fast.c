// SPDX-License-Identifier: Apache-2.0
/* Processes that are sampled at more than the host's rate, by events of their own threads. Where
 * that cannot be had the whole host is sampled at the rate that was asked for them. */
#include "agent/collect/fast.h"

#include <errno.h>
#include <string.h>

#include "agent/base/log.h"
#include "agent/collect/publish.h"

static void stop(struct collector *c, struct proc *proc)
{
	if (!proc->fast)
		return;
	/* First the decision: from then on the host sampler's ticks count. */
	proc->fast = false;
	publish_target(c, proc);
	bpf_agent_fast_close(c->bpf, proc->tgid);
}

static int begin(struct collector *c, struct proc *proc)
{
	int rc = bpf_agent_fast_open(c->bpf, proc->tgid);

	if (rc == -ESRCH)
		return 0; /* its end is on the way */
	if (rc < 0) {
		log_warn("process %u cannot be sampled at %u Hz alone: %s; the whole host is",
			 proc->tgid, c->fast_hz, strerror(-rc));
		return rc;
	}
	proc->fast = true;
	publish_target(c, proc);
	return 0;
}

static bool is_due(const struct collector *c, const struct proc *proc)
{
	return c->fast_hz > 0 && (proc->wanted & PROF_WANT_FAST) && !proc->ended_ns;
}

static bool begin_all(struct collector *c)
{
	struct proc *proc;
	size_t at = 0;

	while ((proc = proc_table_next(c->procs, &at)))
		if (is_due(c, proc) && begin(c, proc) < 0)
			return false;
	return true;
}

void fast_set_rate(struct collector *c, uint32_t rate_hz)
{
	struct proc *proc;
	size_t at = 0;

	if (rate_hz == c->fast_hz)
		return;
	while ((proc = proc_table_next(c->procs, &at)))
		stop(c, proc);
	c->fast_hz = rate_hz;
	bpf_agent_set_fast_rate(c->bpf, rate_hz);
	if (begin_all(c))
		return;
	c->fast_refused = true;
	fast_set_rate(c, 0);
}

bool fast_follow(struct collector *c, struct proc *proc)
{
	if (!is_due(c, proc))
		stop(c, proc);
	else if (!proc->fast && begin(c, proc) < 0)
		c->fast_refused = true;
	return !c->fast_refused || !c->fast_hz;
}

void fast_end(struct collector *c, struct proc *proc)
{
	if (proc->fast)
		bpf_agent_fast_close(c->bpf, proc->tgid);
	proc->fast = false;
}
