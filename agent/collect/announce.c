// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/announce.h"

void announce_exit(struct collector *c, struct proc *proc)
{
	if (!proc->fed_once || !proc->ended_ns || proc->exit_fed)
		return;
	proc->exit_fed = feed_write_proc_exit(&c->feed, proc) == 0;
	if (!proc->exit_fed)
		c->names_due = true;
}

bool announce_proc(struct collector *c, struct proc *proc)
{
	if (proc->fed)
		return true;
	if (feed_write_proc(&c->feed, proc, c->families) < 0) {
		c->names_due = true;
		return false;
	}
	proc->fed = true;
	proc->fed_once = true;
	announce_exit(c, proc); /* the last samples of an instance come after its end */
	return true;
}

bool announce_module(struct collector *c, struct module *module)
{
	if (!module->key)
		return true; /* it comes when it is known */
	module->fed = feed_write_module(&c->feed, module) == 0;
	if (!module->fed)
		c->names_due = true;
	return module->fed;
}

void announce_stack(struct collector *c, uint64_t id)
{
	struct stack *stack = stack_table_by_id(c->stacks, id);

	if (stack && feed_write_stack(&c->feed, stack) == 0)
		stack->sent_generation = c->server_generation;
}

void announce_rest(struct collector *c)
{
	struct module *module;
	struct proc *proc;
	size_t at = 0, next = 0;

	if (!c->names_due)
		return;
	c->names_due = false;
	while ((proc = proc_table_next_kept(c->procs, &at))) {
		announce_exit(c, proc);
		if (proc->engaged && !proc->ended_ns && !announce_proc(c, proc))
			return;
	}
	while ((module = module_table_next(c->modules, &next)))
		if (!module->fed && !announce_module(c, module))
			return;
}

void announce_all(struct collector *c)
{
	struct module *module;
	struct proc *proc;
	size_t at = 0, next = 0;

	while ((proc = proc_table_next_kept(c->procs, &at))) {
		proc->fed = false;
		if (!proc->ended_ns)
			continue;
		/* Its last samples may be on their way: it is announced again with them. */
		proc->fed_once = false;
		proc->exit_fed = false;
	}
	while ((module = module_table_next(c->modules, &next)))
		module->fed = false;
	c->names_due = true;
	announce_rest(c);
}
