// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/proc_table.h"

#include <errno.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "agent/collect/proc/proc_facts.h"

struct proc_table {
	struct u64map by_tgid; /* newest instance, ended or not */
	struct u64map by_id;
	struct proc *ended_first, *ended_last; /* in the order they ended */
	size_t alive, ended;
	uint64_t refused;
	uint32_t next_id;
};

struct proc_table *proc_table_create(void)
{
	struct proc_table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	u64map_init(&table->by_tgid, 0);
	u64map_init(&table->by_id, PROC_TABLE_MAX + PROC_TABLE_ENDED_MAX);
	table->next_id = 1;
	return table;
}

static void proc_free(struct proc *proc)
{
	for (int i = 0; i < PROC_TEXT_MAX; i++)
		free(proc->text[i]);
	mapping_set_unref(proc->mappings);
	script_frames_unref(proc->script);
	free(proc);
}
CLEANUP_DEFINE(proc, struct proc *, proc_free);

static struct proc *as_proc(uint64_t value)
{
	return (struct proc *)(uintptr_t)value;
}

void proc_table_destroy(struct proc_table *table)
{
	uint64_t key, value;
	size_t at = 0;

	if (!table)
		return;
	while (u64map_next(&table->by_id, &at, &key, &value))
		proc_free(as_proc(value));
	u64map_deinit(&table->by_id);
	u64map_deinit(&table->by_tgid);
	free(table);
}

struct proc_table_counts proc_table_counts(const struct proc_table *table)
{
	return (struct proc_table_counts){ table->alive, table->ended, table->refused };
}

static struct proc *newest(const struct proc_table *table, uint32_t tgid)
{
	uint64_t value;

	return u64map_get(&table->by_tgid, tgid, &value) ? as_proc(value) : NULL;
}

struct proc *proc_table_find(struct proc_table *table, uint32_t tgid)
{
	struct proc *proc = newest(table, tgid);

	return proc && !proc->ended_ns ? proc : NULL;
}

struct proc *proc_table_by_id(struct proc_table *table, uint32_t id)
{
	uint64_t value;

	return u64map_get(&table->by_id, id, &value) ? as_proc(value) : NULL;
}

bool proc_led_by(const struct proc *proc, uint64_t start_boottime_ns)
{
	if (proc->start_exact)
		return proc->start_boottime_ns == start_boottime_ns;
	return proc_facts_same_start(proc->start_boottime_ns, start_boottime_ns);
}

struct proc *proc_table_find_at(struct proc_table *table, uint32_t tgid, uint64_t start_boottime_ns,
				uint64_t time_ns)
{
	struct proc *best = NULL;

	for (struct proc *proc = newest(table, tgid); proc; proc = proc->older) {
		if (!proc_led_by(proc, start_boottime_ns))
			continue;
		best = proc;
		if (proc->begin_ns <= time_ns)
			break;
	}
	if (best && !best->start_exact) {
		best->start_boottime_ns = start_boottime_ns;
		best->start_exact = true;
	}
	return best;
}

bool proc_set_text(struct proc *proc, enum proc_text which, const char *text)
{
	char *copy;

	if (proc->text[which] && strcmp(proc->text[which], text) == 0)
		return false;
	copy = strdup(text);
	if (!copy)
		return false;
	free(proc->text[which]);
	proc->text[which] = copy;
	return true;
}

static int inherit(struct proc *proc, const struct proc *from)
{
	for (int i = 0; i < PROC_TEXT_MAX; i++) {
		proc->text[i] = strdup(from ? from->text[i] : "");
		if (!proc->text[i])
			return -ENOMEM;
	}
	if (!from)
		return 0;
	memcpy(proc->comm, from->comm, sizeof(proc->comm));
	proc->uid = from->uid;
	proc->families = from->families;
	return 0;
}

/* A host that starts thousands of programs a second uses all numbers up within weeks. Then they
 * begin anew; those of instances that are still kept are passed over, and 0 is none. */
static uint32_t free_id(struct proc_table *table)
{
	while (!table->next_id || proc_table_by_id(table, table->next_id))
		table->next_id++;
	return table->next_id;
}

void proc_table_set_next_id(struct proc_table *table, uint32_t id)
{
	table->next_id = id;
}

static struct proc *refuse(struct proc_table *table)
{
	table->refused++;
	return NULL;
}

/* Puts the new instance in front of those of the same tgid that are still kept. */
static struct proc *begin(struct proc_table *table, const struct proc *from, uint32_t tgid,
			  uint64_t start_boottime_ns, uint64_t begin_ns)
{
	cleanup(proc) struct proc *proc = NULL;

	if (table->alive >= PROC_TABLE_MAX)
		return refuse(table);
	proc = calloc(1, sizeof(*proc));
	if (!proc || inherit(proc, from) < 0)
		return refuse(table);
	proc->id = free_id(table);
	proc->tgid = tgid;
	proc->start_boottime_ns = start_boottime_ns;
	proc->begin_ns = begin_ns;
	proc->seen_ns = begin_ns;
	proc->older = newest(table, tgid);
	if (u64map_put(&table->by_id, proc->id, (uintptr_t)proc) < 0)
		return refuse(table);
	if (u64map_put(&table->by_tgid, tgid, (uintptr_t)proc) < 0) {
		(void)u64map_remove(&table->by_id, proc->id);
		return refuse(table);
	}
	table->next_id++;
	table->alive++;
	return take_ptr(proc);
}

struct proc *proc_table_add(struct proc_table *table, uint32_t tgid, uint64_t start_boottime_ns,
			    uint64_t begin_ns)
{
	return begin(table, NULL, tgid, start_boottime_ns, begin_ns);
}

struct proc *proc_table_fork(struct proc_table *table, const struct proc *parent, uint32_t tgid,
			     uint64_t start_boottime_ns, uint64_t time_ns)
{
	struct proc *proc = begin(table, parent, tgid, start_boottime_ns, time_ns);

	if (!proc)
		return NULL;
	proc->start_exact = true;
	if (parent) {
		proc->parent_tgid = parent->tgid;
		proc->flags = parent->flags;
		proc->mappings = mapping_set_ref(parent->mappings);
		proc->wanted = parent->wanted;
		if (parent->script)
			proc->script = script_frames_create(parent->script);
	}
	return proc;
}

struct proc *proc_table_exec(struct proc_table *table, struct proc *proc, uint64_t time_ns)
{
	struct proc *next;

	proc_table_end(table, proc, time_ns);
	next = begin(table, proc, proc->tgid, proc->start_boottime_ns, time_ns);
	if (!next)
		return NULL;
	next->start_exact = proc->start_exact;
	next->parent_tgid = proc->parent_tgid;
	next->exec_generation = proc->exec_generation + 1;
	return next;
}

void proc_table_end(struct proc_table *table, struct proc *proc, uint64_t time_ns)
{
	if (proc->ended_ns)
		return;
	proc->ended_ns = time_ns ? time_ns : 1;
	if (table->ended_last)
		table->ended_last->next_ended = proc;
	else
		table->ended_first = proc;
	table->ended_last = proc;
	table->alive--;
	table->ended++;
}

/* Ended instances of one tgid end in order, so the first of the queue is the last of its chain. */
static void unchain(struct proc_table *table, struct proc *proc)
{
	struct proc *at = newest(table, proc->tgid);

	if (at == proc) {
		(void)u64map_remove(&table->by_tgid, proc->tgid);
		return;
	}
	while (at && at->older != proc)
		at = at->older;
	if (at)
		at->older = proc->older;
}

void proc_table_purge(struct proc_table *table, uint64_t now_ns)
{
	while (table->ended_first) {
		struct proc *proc = table->ended_first;

		if (table->ended <= PROC_TABLE_ENDED_MAX &&
		    proc->ended_ns + PROC_TABLE_ENDED_NS > now_ns)
			return;
		table->ended_first = proc->next_ended;
		if (!table->ended_first)
			table->ended_last = NULL;
		table->ended--;
		unchain(table, proc);
		(void)u64map_remove(&table->by_id, proc->id);
		proc_free(proc);
	}
}

struct proc *proc_table_next(struct proc_table *table, size_t *at)
{
	uint64_t key, value;

	while (u64map_next(&table->by_tgid, at, &key, &value))
		if (!as_proc(value)->ended_ns)
			return as_proc(value);
	return NULL;
}

struct proc *proc_table_next_kept(struct proc_table *table, size_t *at)
{
	uint64_t key, value;

	return u64map_next(&table->by_id, at, &key, &value) ? as_proc(value) : NULL;
}
