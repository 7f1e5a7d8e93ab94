// SPDX-License-Identifier: Apache-2.0
/* Stacks through code that was not indexed when they were taken. Their samples go out at once,
 * under an id that is promised; the frames follow as soon as the rows are known (a server joins
 * them when it stores). */
#include "agent/collect/late.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/collect/resolve.h"

#define TABLES_MAX 16u /* mapped at a time */

struct table {
	uint32_t module;
	const void *image;
	size_t bytes;
};

/* Finds code for the walks of one round; tables stay mapped between them. */
struct finder {
	struct collector *c;
	const struct proc *proc;
	uint64_t time_ns;
	struct table tables[TABLES_MAX];
	unsigned table_count;
};

static void unmap_tables(struct finder *finder)
{
	while (finder->table_count) {
		struct table *table = &finder->tables[--finder->table_count];

		bpf_agent_table_unmap(table->image, table->bytes);
	}
}

static const struct table *table_of(struct finder *finder, uint32_t module)
{
	struct table table = { .module = module };

	for (unsigned i = 0; i < finder->table_count; i++)
		if (finder->tables[i].module == module)
			return &finder->tables[i];
	table.image = bpf_agent_table_map(finder->c->bpf, module, &table.bytes);
	if (!table.image)
		return NULL;
	if (finder->table_count == TABLES_MAX)
		unmap_tables(finder);
	finder->tables[finder->table_count] = table;
	return &finder->tables[finder->table_count++];
}

static int find_code(void *ctx, uint64_t va, struct late_place *ret)
{
	struct finder *finder = ctx;
	const struct mapping *mapping =
		mapping_set_find(finder->proc->mappings, va, finder->time_ns);
	const struct module *module;
	const struct table *table;

	if (!mapping)
		return -EAGAIN; /* its record may come yet */
	module = module_table_get(finder->c->modules, mapping->module);
	if (!module || module_is_jit(module))
		return -ENOENT;
	if (!module->key && module->state != MODULE_FAILED)
		return -EAGAIN;
	module = module_table_canonical(finder->c->modules, mapping->module);
	table = table_of(finder, module->id);
	if (!table)
		return module_is_awaited(module) ? -EAGAIN : -ENOENT;
	*ret = (struct late_place){ .module = module->id,
				    .bias = mapping->bias,
				    .table = table->image,
				    .table_bytes = table->bytes };
	return 0;
}

/* The outcome of a walk that ended with @rc before the stack did. If all was copied that may be,
 * the memory was there: with rows in time the kernel would have gone on. */
static uint8_t gap_of(const struct prof_late_event *event, int rc)
{
	return rc == -EFAULT && event->stack_bytes < PROF_LATE_STACK_BYTES ? OUTCOME_user_read_fault
									   : OUTCOME_no_rows;
}

/* The frames before the gap are those of the stack that was guessed, which is left alone if it goes
 * further than rows do. */
static int walk(struct finder *finder, const struct late_stack *item, struct proc *proc,
		struct late_frames *ret)
{
	const struct late_code code = { .ctx = finder, .find = find_code };
	const struct stack *guess = stack_table_find(finder->c->stacks, item->hash);
	int rc;

	if (!item->event->stack_bytes)
		return -EAGAIN; /* the kernel walks again, or late_memory.c has it read */
	if (!guess || guess->frame_count < item->event->frame_count ||
	    item->event->frame_count > PROF_WORDS_MAX)
		return -ENOENT;
	finder->proc = proc;
	finder->time_ns = item->event->time_ns;
	ret->count = item->event->frame_count;
	memcpy(ret->words, guess->frames, ret->count * sizeof(ret->words[0]));
	rc = late_stack_walk(item->event, &code, ret->words, PROF_WORDS_MAX, &ret->count,
			     &ret->outcome);
	if (rc == 0 || rc == -EAGAIN || ret->count <= guess->frame_count)
		return rc;
	ret->outcome = gap_of(item->event, rc);
	return 0;
}

void late_event(void *ctx, const struct prof_late_event *event)
{
	struct collector *c = ctx;

	if (late_stacks_put(&c->late, event, clock_monotonic_ns() + LATE_WAIT_NS) < 0)
		log_debug("too many stacks wait for unwind tables");
}

bool late_sample(struct collector *c, struct proc *proc, const struct prof_sample_event *event,
		 uint64_t *ret_id, uint64_t *ret_hash)
{
	struct late_stack *item = late_stacks_find(&c->late, event->time_ns, event->tid);
	struct finder finder = { .c = c };
	struct late_frames frames;
	int rc;

	*ret_hash = event->user_stack_hash;
	if (!item)
		return false;
	if (item->id) { /* the second part of a time off the CPU */
		*ret_id = item->id;
		return true;
	}
	item->hash = event->user_stack_hash;
	item->start_boottime_ns = event->start_boottime_ns;
	item->proc = proc->id;
	rc = walk(&finder, item, proc, &frames);
	unmap_tables(&finder);
	if (rc == 0) {
		uint64_t hash = hash_combine(hash_bytes(frames.words,
							frames.count * sizeof(frames.words[0]),
							proc->id),
					     frames.outcome);

		if (stack_table_put(c->stacks, hash, frames.words, frames.count,
				    frames.outcome) == 0)
			*ret_hash = hash;
	}
	if (rc != -EAGAIN) {
		late_stacks_remove(&c->late, (size_t)(item - c->late.items));
		return false;
	}
	item->id = hash_combine(hash_combine(c->epoch, event->time_ns), event->tid) | 1;
	*ret_id = item->id;
	return true;
}

/* Keeps the promise: with the frames as they are now known, else with what was guessed. */
static void deliver(struct collector *c, const struct late_stack *item, struct proc *proc,
		    const struct late_frames *frames)
{
	const struct stack *guess = stack_table_find(c->stacks, item->hash);

	if (frames)
		resolve_promised(c, proc, item->event->time_ns, item->id, frames->words,
				      frames->count, frames->outcome);
	else if (guess)
		resolve_promised(c, proc, item->event->time_ns, item->id, guess->frames,
				      guess->frame_count, guess->outcome);
	else
		c->own_outcomes[OUTCOME_stack_missing]++;
}

void late_retried(void *ctx, const struct prof_retried_event *event)
{
	struct collector *c = ctx;
	struct late_stack *item = late_stacks_find(&c->late, event->time_ns, event->tid);
	struct proc *proc = item && item->id ? proc_table_by_id(c->procs, item->proc) : NULL;

	if (!proc)
		return;
	if (stack_table_find(c->stacks, event->stack_hash))
		item->hash = event->stack_hash;
	else
		bpf_agent_forget_stack(c->bpf, event->stack_hash);
	deliver(c, item, proc, NULL);
	late_stacks_remove(&c->late, (size_t)(item - c->late.items));
}

/* True if nothing is waited for any more. */
static bool settle(struct finder *finder, const struct late_stack *item, uint64_t now_ns)
{
	struct collector *c = finder->c;
	struct proc *proc = proc_table_by_id(c->procs, item->proc);
	struct late_frames frames;
	bool waits = now_ns < item->until_ns || (item->asked && c->late_memory.is_busy);
	int rc;

	if (!item->id || !proc)
		return !waits;
	rc = walk(finder, item, proc, &frames);
	if (rc == -EAGAIN && waits)
		return false;
	deliver(c, item, proc, rc == 0 ? &frames : NULL);
	return true;
}

/* NULL: the process has none, or none that was seen to fit. */
static const struct script_runtime *runtime_of(const struct proc *proc)
{
	const struct script_frames *script = proc->script;

	return script && script->state == SCRIPT_READY ? &script->runtime : NULL;
}

static int read_process(void *ctx, void *dst, size_t bytes, uint64_t va)
{
	const struct finder *finder = ctx;
	struct iovec local = { dst, bytes }, remote = { (void *)(uintptr_t)va, bytes };
	ssize_t len = process_vm_readv((pid_t)finder->proc->tgid, &local, 1, &remote, 1, 0);

	return len == (ssize_t)bytes ? 0 : -EFAULT;
}

int late_walk_asleep(struct collector *c, const struct late_stack *item,
		     const struct prof_late_event *event, struct late_frames *ret)
{
	struct finder finder = { .c = c,
				 .proc = proc_table_by_id(c->procs, item->proc),
				 .time_ns = event->time_ns };
	struct late_code code = { .ctx = &finder, .find = find_code, .read = read_process };
	int rc;

	if (!finder.proc)
		return -ENOENT;
	code.runtime = runtime_of(finder.proc);
	ret->count = 0;
	rc = late_stack_walk(event, &code, ret->words, PROF_WORDS_MAX, &ret->count, &ret->outcome);
	unmap_tables(&finder);
	if (rc == 0 || rc == -EAGAIN || !ret->count)
		return rc;
	ret->outcome = gap_of(event, rc); /* what there is is more than where it entered the kernel */
	return 0;
}

void late_answer(struct collector *c, const struct late_frames *frames)
{
	for (size_t i = c->late.count; i-- > 0;) {
		const struct late_stack *item = &c->late.items[i];
		struct proc *proc = proc_table_by_id(c->procs, item->proc);

		if (!item->asked || item->id != frames->id)
			continue;
		if (proc)
			deliver(c, item, proc, frames);
		late_stacks_remove(&c->late, i);
		return;
	}
}

void late_sweep(struct collector *c, uint64_t now_ns)
{
	struct finder finder = { .c = c };

	if (!c->late.count || (c->late_seen == c->knowledge && now_ns < c->late.items[0].until_ns))
		return;
	c->late_seen = c->knowledge;
	for (size_t i = c->late.count; i-- > 0;)
		if (settle(&finder, &c->late.items[i], now_ns))
			late_stacks_remove(&c->late, i);
	unmap_tables(&finder);
}
