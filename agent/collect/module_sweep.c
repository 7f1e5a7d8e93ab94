// SPDX-License-Identifier: Apache-2.0
/* Modules leave the table when there are many and nothing needs them: no process maps them (or did
 * a moment ago), no stack that is kept leads through them, nobody is asked about them, and they
 * stand for no other. A module that was so for two looks leaves BPF's map of files, so that no new
 * stack gets its id; at the next look, with all stacks of before long read, its id is free. */
#include "agent/collect/module_sweep.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/vec.h"
#include "agent/collect/publish.h"

#define LOOK_NS	     (60 * NS_PER_S)
#define MODULES_KEEP 16384u /* a file that comes back is known: it is not read again */
#define IDLE_LOOKS   2u

VEC_DEFINE(id, uint32_t);

static void hold(struct collector *c, uint32_t id)
{
	struct module *module = module_table_get(c->modules, id);

	if (module)
		module->idle = 0;
}

static void hold_stack(void *ctx, const struct stack *stack)
{
	for (uint16_t i = 0; i < stack->frame_count; i++)
		if (prof_frame_kind(stack->frames[i]) == PROF_FRAME_MODULE)
			hold(ctx, prof_frame_module_id(stack->frames[i]));
}

static void hold_mapping(void *ctx, const struct mapping *mapping)
{
	hold(ctx, mapping->module);
}

/* The kernel, the vDSO and what stands for all files that found no place are not of a file or a
 * process. */
static bool is_needed(const struct module *module)
{
	return module->state == MODULE_ASKED || (!module->file.inode && module->kind != FEED_MODULE_JIT &&
						 module->kind != FEED_MODULE_SCRIPT);
}

/* Counts the looks at which each was not needed. */
static void look(struct collector *c)
{
	struct module *module;
	const struct proc *proc;
	size_t at = 0;

	while ((module = module_table_next(c->modules, &at)))
		module->idle = is_needed(module) ? 0 : module->idle + 1;
	at = 0;
	while ((proc = proc_table_next_kept(c->procs, &at))) {
		mapping_set_each(proc->mappings, hold_mapping, c);
		hold(c, proc->jit_module);
		if (proc->script)
			hold(c, proc->script->module);
	}
	stack_table_each(c->stacks, hold_stack, c);
	at = 0;
	while ((module = module_table_next(c->modules, &at))) {
		const struct module *canonical = module_table_canonical(c->modules, module->id);

		if (canonical == module)
			continue;
		/* BPF's hash of a stack is over the ids that it saw. */
		if (module->aliased && !canonical->idle)
			module->idle = 0;
		hold(c, canonical->id);
	}
}

static int by_idleness(const void *a, const void *b)
{
	const struct module *left = *(struct module *const *)a, *right = *(struct module *const *)b;

	return left->idle > right->idle ? -1 : left->idle < right->idle;
}

/* False: the feed or memory is full. */
static bool free_module(struct collector *c, struct module *module, struct id_vec *with_table)
{
	if (module->table_bytes && id_vec_push(with_table, module->id) < 0)
		return false;
	if (module->key && feed_write_module_freed(&c->feed, module->id) < 0)
		return false;
	return module_table_remove(c->modules, module) == 0;
}

static void free_idle(struct collector *c, uint32_t too_many)
{
	cleanup_free struct module **idle = calloc(module_table_count(c->modules), sizeof(*idle));
	struct id_vec with_table = { 0 };
	uint32_t count = 0, freed = 0;
	struct module *module;
	size_t at = 0;

	while (idle && (module = module_table_next(c->modules, &at)))
		if (module->idle >= IDLE_LOOKS)
			idle[count++] = module;
	if (count)
		qsort(idle, count, sizeof(struct module *), by_idleness);
	for (uint32_t i = 0; i < count && i < too_many; i++) {
		if (idle[i]->idle == IDLE_LOOKS || idle[i]->in_files) {
			publish_withdraw_file(c, idle[i]);
			continue;
		}
		if (!free_module(c, idle[i], &with_table))
			break;
		freed++;
	}
	if (c->bpf && with_table.count)
		bpf_agent_tables_drop(c->bpf, with_table.data, (uint32_t)with_table.count);
	id_vec_deinit(&with_table);
	log_debug("%u modules that nothing needs were forgotten, %u are left", freed,
		  module_table_count(c->modules));
}

void module_sweep(struct collector *c, uint64_t now_ns)
{
	uint32_t count = module_table_count(c->modules);

	if (now_ns - c->modules_swept_ns < LOOK_NS || count <= MODULES_KEEP)
		return;
	c->modules_swept_ns = now_ns;
	look(c);
	free_idle(c, count - MODULES_KEEP);
}
