// SPDX-License-Identifier: Apache-2.0
#include "agent/session/ingest/live_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/profiler.h"

#define PROC_STRINGS 7

static void *as_pointer(uint64_t value)
{
	return (void *)(uintptr_t)value;
}

void live_tables_init(struct live_tables *tables, const struct service_rule *rules,
		      unsigned rule_count)
{
	*tables = (struct live_tables){ .rules = rules, .rule_count = rule_count };
	u64map_init(&tables->process_at, LIVE_PROCESSES_MAX);
	u64map_init(&tables->tgid_at, LIVE_PROCESSES_MAX);
}

static void free_process(struct live_process *process)
{
	free(process->text);
	free(process->families);
	free(process);
}

static void clear_stacks(struct live_stacks *stacks)
{
	uint64_t key, value;

	for (size_t at = 0; u64map_next(&stacks->at, &at, &key, &value);)
		free(as_pointer(value));
	u64map_clear(&stacks->at);
	stacks->bytes = 0;
}

void live_tables_clear(struct live_tables *tables)
{
	for (size_t i = 0; i < tables->modules.count; i++)
		free(tables->modules.data[i].path);
	tables->modules.count = 0;
	tables->module_count = 0;
	tables->freed = 0;
	for (size_t i = 0; i < tables->processes.count; i++)
		free_process(tables->processes.data[i]);
	tables->processes.count = 0;
	u64map_clear(&tables->process_at);
	u64map_clear(&tables->tgid_at);
	clear_stacks(&tables->young);
	clear_stacks(&tables->old);
}

void live_tables_deinit(struct live_tables *tables)
{
	live_tables_clear(tables);
	live_modules_vec_deinit(&tables->modules);
	live_processes_vec_deinit(&tables->processes);
	u64map_deinit(&tables->process_at);
	u64map_deinit(&tables->tgid_at);
	u64map_deinit(&tables->young.at);
	u64map_deinit(&tables->old.at);
	user_names_deinit(&tables->users);
}

/* ---- modules --------------------------------------------------------------------------------- */

int live_tables_add_module(struct live_tables *tables, const void *data, size_t len)
{
	struct feed_module record;
	struct feed_string path;
	struct live_module *module;
	const void *tail;
	size_t tail_len;
	char *text;
	int rc = feed_decode(data, len, &record, sizeof(record), &tail, &tail_len);

	if (rc == 0)
		rc = feed_decode_strings(tail, tail_len, &path, 1);
	if (rc < 0)
		return rc;
	if (record.module >= LIVE_MODULES_MAX || record.build_id_len > FEED_BUILD_ID_MAX) {
		tables->refused++;
		return -ENOSPC;
	}
	if (record.module >= tables->modules.count) {
		size_t before = tables->modules.count;

		rc = live_modules_vec_reserve(&tables->modules, record.module + 1);
		if (rc < 0)
			return rc;
		memset(tables->modules.data + before, 0,
		       (record.module + 1 - before) * sizeof(*tables->modules.data));
		tables->modules.count = record.module + 1;
	}
	module = &tables->modules.data[record.module];
	if (record.kind == FEED_MODULE_FREED) {
		tables->module_count -= module->known;
		free(module->path);
		*module = (struct live_module){ .freed = ++tables->freed };
		return 0;
	}
	text = strndup(path.text, path.len);
	if (!text)
		return -ENOMEM;
	tables->module_count += !module->known;
	free(module->path);
	*module = (struct live_module){ .known = true,
					.freed = module->freed,
					.key = record.key,
					.file = record.file,
					.kind = record.kind,
					.build_id_len = record.build_id_len,
					.path = text };
	memcpy(module->build_id, record.build_id, sizeof(module->build_id));
	return 0;
}

const struct live_module *live_tables_module(const struct live_tables *tables, uint32_t module)
{
	return module < tables->modules.count && tables->modules.data[module].known
		       ? &tables->modules.data[module]
		       : NULL;
}

/* ---- processes ------------------------------------------------------------------------------- */

static struct live_process *oldest_exited(const struct live_tables *tables)
{
	struct live_process *oldest = NULL;

	for (size_t i = 0; i < tables->processes.count; i++) {
		struct live_process *process = tables->processes.data[i];

		if (process->exited_ns && (!oldest || process->exited_ns < oldest->exited_ns))
			oldest = process;
	}
	return oldest;
}

static void forget_ids(struct live_tables *tables, const struct live_process *process)
{
	uint64_t newest;

	(void)u64map_remove(&tables->process_at, process->proc);
	if (u64map_get(&tables->tgid_at, process->facts.tgid, &newest) && newest == process->proc)
		(void)u64map_remove(&tables->tgid_at, process->facts.tgid);
}

static void remove_process(struct live_tables *tables, struct live_process *process)
{
	forget_ids(tables, process);
	for (size_t i = 0; i < tables->processes.count; i++) {
		if (tables->processes.data[i] == process) {
			tables->processes.data[i] =
				tables->processes.data[--tables->processes.count];
			break;
		}
	}
	free_process(process);
}

static int new_process(struct live_tables *tables, uint32_t proc, struct live_process **ret)
{
	struct live_process *process, *oldest;
	int rc;

	if (tables->processes.count >= LIVE_PROCESSES_MAX) {
		oldest = oldest_exited(tables);
		if (!oldest) {
			tables->refused++;
			return -ENOSPC;
		}
		remove_process(tables, oldest);
	}
	process = calloc(1, sizeof(*process));
	if (!process)
		return -ENOMEM;
	process->proc = proc;
	rc = live_processes_vec_push(&tables->processes, process);
	if (rc == 0) {
		rc = u64map_put(&tables->process_at, proc, (uintptr_t)process);
		if (rc < 0)
			tables->processes.count--;
	}
	if (rc < 0) {
		free(process);
		return rc;
	}
	*ret = process;
	return 0;
}

/* Copies the record's strings into one block behind each other, and the user's name. */
static char *copy_strings(const struct feed_string strings[PROC_STRINGS], const char *user,
			  const char *ret[PROC_STRINGS + 1])
{
	size_t size = strlen(user) + 1;
	char *text, *at;

	for (int i = 0; i < PROC_STRINGS; i++)
		size += strings[i].len + 1u;
	text = at = malloc(size);
	if (!text)
		return NULL;
	for (int i = 0; i < PROC_STRINGS; i++) {
		ret[i] = at;
		for (uint16_t j = 0; j < strings[i].len; j++)
			*at++ = strings[i].text[j] ? strings[i].text[j] : ' ';
		*at++ = '\0';
	}
	ret[PROC_STRINGS] = at;
	memcpy(at, user, strlen(user) + 1);
	return text;
}

/* @texts: as copy_strings() left them. */
static struct service_facts facts_of(const char *const texts[PROC_STRINGS + 1])
{
	return (struct service_facts){
		.comm = texts[0],
		.exe = texts[1],
		.cmdline = texts[2],
		.cgroup = texts[3],
		.environment = texts[4],
		.ports = texts[5],
		.program = texts[6],
		.user = texts[7],
	};
}

static int keep_families(struct live_process *process, const uint64_t *families, uint32_t count)
{
	uint64_t *copy = count ? malloc(count * sizeof(*copy)) : NULL;

	if (count && !copy)
		return -ENOMEM;
	if (count)
		memcpy(copy, families, count * sizeof(*copy));
	free(process->families);
	process->families = copy;
	process->family_count = count;
	return 0;
}

bool live_process_is_of_family(const struct live_process *process, uint64_t family)
{
	for (uint32_t i = 0; i < process->family_count; i++)
		if (process->families[i] == family)
			return true;
	return false;
}

/* An exec begins a new process instance; the one before it ends here if nobody said so. */
static void retire_older(struct live_tables *tables, struct live_process *process,
			 uint64_t seen_ns)
{
	struct live_process *older;
	uint64_t value;

	if (u64map_get(&tables->tgid_at, process->facts.tgid, &value) && value != process->proc) {
		older = live_tables_process(tables, (uint32_t)value);
		if (older && older->facts.start_boottime_ns == process->facts.start_boottime_ns)
			process->started_at_ns = older->started_at_ns;
		if (older && (int32_t)(older->proc - process->proc) > 0) /* numbers may begin anew */
			return; /* asked for again and delivered out of order */
		if (older && !older->exited_ns && older->facts.tgid == process->facts.tgid)
			older->exited_ns = seen_ns ? seen_ns : 1;
	}
	/* Without room older instances are removed only by their exits. */
	(void)!u64map_put(&tables->tgid_at, process->facts.tgid, process->proc);
}

int live_tables_add_process(struct live_tables *tables, const struct clock_triple *clock,
			    const void *data, size_t len, struct live_process **ret)
{
	struct feed_string strings[PROC_STRINGS];
	const char *texts[PROC_STRINGS + 1];
	struct live_process *process;
	struct feed_proc record;
	const void *tail;
	size_t tail_len;
	uint64_t families[FEED_FAMILIES_MAX];
	char scratch[12], *text;
	int family_count = 0;
	int rc = feed_decode(data, len, &record, sizeof(record), &tail, &tail_len);

	if (rc == 0)
		rc = feed_decode_strings(tail, tail_len, strings, PROC_STRINGS);
	if (rc == 0)
		rc = family_count = feed_decode_families(tail, tail_len, &strings[PROC_STRINGS - 1], families);
	if (rc < 0)
		return rc;
	text = copy_strings(strings, user_names_find(&tables->users, record.uid, scratch), texts);
	if (!text)
		return -ENOMEM;
	process = live_tables_process(tables, record.proc);
	rc = process ? 0 : new_process(tables, record.proc, &process);
	if (rc == 0)
		rc = keep_families(process, families, (uint32_t)family_count);
	if (rc < 0) {
		free(text);
		return rc;
	}
	free(process->text);
	process->text = text;
	process->parent_tgid = record.parent_tgid;
	process->uid = record.uid;
	if (!process->started_at_ns)
		/* To what a settled dictionary keeps (settled.h), so that it is the same before and after. */
		process->started_at_ns = ((clock->realtime_ns - clock->boottime_ns) / NS_PER_MS +
					  record.start_boottime_ns / NS_PER_MS) * NS_PER_MS;
	process->exec_generation = record.exec_generation;
	process->match_generation = process->plan_generation =
		0; /* decided on what was known of it before */
	process->facts = facts_of(texts);
	process->facts.tgid = record.tgid;
	process->facts.start_boottime_ns = record.start_boottime_ns;
	process->facts.flags = record.flags;
	service_identify(tables->rules, tables->rule_count, &process->facts, &process->identity);
	retire_older(tables, process, record.seen_monotonic_ns);
	*ret = process;
	return 0;
}

int live_tables_add_nameless(struct live_tables *tables, uint32_t proc, const char comm[16],
			     struct live_process **ret)
{
	struct feed_string strings[PROC_STRINGS] = { { comm, (uint16_t)strnlen(comm, 16) } };
	const char *texts[PROC_STRINGS + 1];
	struct live_process *process;
	char *text = copy_strings(strings, "", texts);
	int rc = text ? new_process(tables, proc, &process) : -ENOMEM;

	if (rc < 0) {
		free(text);
		return rc;
	}
	process->text = text;
	process->exited_ns = 1; /* it is not listed, and leaves at the next occasion */
	process->facts = facts_of(texts);
	service_identify(tables->rules, tables->rule_count, &process->facts, &process->identity);
	*ret = process;
	return 0;
}

struct live_process *live_tables_process(const struct live_tables *tables, uint32_t proc)
{
	uint64_t value;

	return u64map_get(&tables->process_at, proc, &value) ? as_pointer(value) : NULL;
}

void live_tables_expire(struct live_tables *tables, uint64_t now_ns)
{
	size_t kept = 0;

	for (size_t i = 0; i < tables->processes.count; i++) {
		struct live_process *process = tables->processes.data[i];

		if (process->exited_ns && process->exited_ns + LIVE_EXITED_NS < now_ns) {
			forget_ids(tables, process);
			free_process(process);
		} else {
			tables->processes.data[kept++] = process;
		}
	}
	tables->processes.count = kept;
}

void live_process_read_cpu(struct live_process *process, uint64_t time_ns, uint64_t cpu_ns)
{
	uint64_t boottime_ns = clock_boottime_ns(), start_ns = process->facts.start_boottime_ns;
	uint64_t elapsed_ns = time_ns - process->cpu_read_ns, used_ns = cpu_ns - process->cpu_ns;

	if (!process->cpu_read_ns) {
		elapsed_ns = boottime_ns > start_ns ? boottime_ns - start_ns : 0;
		used_ns = cpu_ns;
	} else if (time_ns <= process->cpu_read_ns || cpu_ns < process->cpu_ns ||
		   elapsed_ns < LIVE_CPU_SPAN_NS) {
		return;
	}
	process->cpus = elapsed_ns ? (double)used_ns / (double)elapsed_ns : 0;
	process->cpu_read_ns = time_ns;
	process->cpu_ns = cpu_ns;
}

/* ---- stacks ---------------------------------------------------------------------------------- */
static size_t stack_bytes(const struct live_stack *stack)
{
	return sizeof(*stack) + stack->frame_count * sizeof(stack->frames[0]);
}

/* An id among its modules was given to another since: what it says now is no more what it was. */
static bool is_outdated(const struct live_tables *tables, struct live_stack *stack)
{
	if (stack->freed == tables->freed)
		return false;
	for (uint16_t i = 0; i < stack->frame_count; i++) {
		uint32_t module = prof_frame_module_id(stack->frames[i]);

		if (prof_frame_kind(stack->frames[i]) == PROF_FRAME_MODULE && module < tables->modules.count &&
		    tables->modules.data[module].freed > stack->freed)
			return true;
	}
	stack->freed = tables->freed; /* not looked at again until the next */
	return false;
}

/* Takes ownership of @stack. A full young generation becomes the old one, which is forgotten: what
 * was used since then has moved to the young one. */
static int keep_stack(struct live_tables *tables, struct live_stack *stack)
{
	int rc;

	if (tables->young.bytes + stack_bytes(stack) > LIVE_STACK_BYTES) {
		struct live_stacks empty = tables->old;

		clear_stacks(&empty);
		tables->old = tables->young;
		tables->young = empty;
	}
	rc = u64map_put(&tables->young.at, stack->id, (uintptr_t)stack);
	if (rc < 0) {
		free(stack);
		return rc;
	}
	tables->young.bytes += stack_bytes(stack);
	return 0;
}

int live_tables_add_stack(struct live_tables *tables, const void *data, size_t len)
{
	struct feed_stack record;
	struct live_stack *stack;
	const void *tail;
	size_t tail_len;
	int rc = feed_decode(data, len, &record, sizeof(record), &tail, &tail_len);

	if (rc < 0)
		return rc;
	/* An id is a hash of the contents: a second copy says nothing new. */
	if (live_tables_stack(tables, record.stack))
		return 0;
	if (record.frame_count > FEED_FRAMES_MAX)
		return -EPROTO;
	stack = malloc(sizeof(*stack) + record.frame_count * sizeof(uint64_t));
	if (!stack)
		return -ENOMEM;
	stack->id = record.stack;
	stack->freed = tables->freed;
	stack->frame_count = record.frame_count;
	stack->outcome = record.outcome;
	rc = feed_decode_frames(&record, tail, tail_len, stack->frames);
	if (rc < 0) {
		free(stack);
		return rc;
	}
	return keep_stack(tables, stack);
}

const struct live_stack *live_tables_stack(struct live_tables *tables, uint64_t id)
{
	struct live_stacks *stacks = &tables->young;
	struct live_stack *stack;
	uint64_t value;

	if (!u64map_get(&stacks->at, id, &value)) {
		stacks = &tables->old;
		if (!u64map_get(&stacks->at, id, &value))
			return NULL;
	}
	stack = as_pointer(value);
	if (stacks == &tables->young && !is_outdated(tables, stack))
		return stack;
	(void)u64map_remove(&stacks->at, id);
	stacks->bytes -= stack_bytes(stack);
	if (is_outdated(tables, stack)) {
		free(stack);
		return NULL;
	}
	return keep_stack(tables, stack) < 0 ? NULL : stack;
}

uint32_t live_tables_stack_count(const struct live_tables *tables)
{
	return (uint32_t)(tables->young.at.count + tables->old.at.count);
}
