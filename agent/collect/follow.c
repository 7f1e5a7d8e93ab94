// SPDX-License-Identifier: Apache-2.0
/* From events to process instances. Two streams tell what happens, and both can lose: BPF's task
 * events (fork, exec, exit) and the kernel's mapping records. They are applied in the order of
 * their times: mapping records are drained first, then each BPF event applies the records that are
 * older than itself. An exec is seen twice, by the mapping record when the old image is gone and by
 * the event when the new one is ready; whichever comes first begins the new instance. */
#include "agent/collect/follow.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/parse.h"
#include "agent/base/vec.h"
#include "agent/collect/announce.h"
#include "agent/collect/family.h"
#include "agent/collect/fast.h"
#include "agent/collect/modules/module_files.h"
#include "agent/collect/proc/mounts.h"
#include "agent/collect/proc/proc_facts.h"
#include "agent/collect/proc/proc_maps.h"
#include "agent/collect/publish.h"
#include "agent/collect/script.h"

#define MAPS_LINES_MAX	  65536u
#define MAPS_INTERVAL_NS  (250 * NS_PER_MS) /* between two readings of one process's maps */
#define CHECK_INTERVAL_NS NS_PER_S	    /* between two looks at a mapped library */
#define GROUP_INTERVAL_NS (30 * NS_PER_S)   /* between two looks at a process's control group */
#define PORTS_INTERVAL_NS (5 * NS_PER_S)    /* between two readings of the listening sockets */

/* Ages at which a process is looked at: first when it has lived long enough that somebody may ask
 * for it (the many that live for milliseconds are not worth it), then because after its start it
 * moves to its group, listens, renames. */
static const uint64_t look_ages_ns[] = { 200 * NS_PER_MS, NS_PER_S, 5 * NS_PER_S, 30 * NS_PER_S };
#define LOOKS_MAX ARRAY_SIZE(look_ages_ns)

VEC_DEFINE(mapping, struct mapping);

/* ---- mappings ----------------------------------------------------------------------------------
 */

/* Asks for a module at its first sight. While sessions run it is opened at once: its process may be
 * gone in a millisecond. Before, what it is is enough. */
static void first_sight(struct collector *c, const struct proc *proc, const struct mapping *mapping)
{
	struct module *module = module_table_get(c->modules, mapping->module);

	/* Nothing is taken of what is excluded: its files are read when others map them, too. */
	if (!module || (proc->flags & FEED_PROC_EXCLUDED))
		return;
	module->mappings++;
	if (module->kind != FEED_MODULE_ELF)
		return;
	module->origin = module_files_origin(proc, mapping);
	if (collector_active(c))
		module_want_rows(module);
	if (module->state != MODULE_SEEN)
		return;
	module->names_later = true;
	if (collector_active(c))
		module_index_ask(c->index, module, true);
	else
		module->rows_later = true;
}

struct stat_call {
	char path[96];
	struct stat st;
};

static int call_stat(void *data)
{
	struct stat_call *call = data;

	return mounts_stat(call->path, &call->st);
}

static int stat_mapped(struct collector *c, uint32_t tgid, const struct mapping *mapping,
		       struct stat *ret)
{
	struct stat_call call = { .st = { 0 } };
	int rc;

	(void)snprintf(call.path, sizeof(call.path), "/proc/%u/map_files/%llx-%llx", tgid,
		       (unsigned long long)mapping->start_va, (unsigned long long)mapping->end_va);
	rc = isolation_call(c->isolation, tgid, call_stat, NULL, &call, sizeof(call));
	if (rc == 0)
		*ret = call.st;
	return rc;
}

/* Checks that an inode still holds the file that is known under it. A copy over a file keeps the
 * inode, a new file may get the inode of a deleted one, and a program may have ended before its
 * file could be opened. Executables are checked each time they are mapped, before their first
 * sample; libraries at most once a second. */
static void check_file(struct collector *c, uint32_t tgid, const struct module_file *file,
		       const struct mapping *mapping, uint64_t at_ns, bool executable)
{
	struct module *module = module_table_find(c->modules, file);
	struct stat st;
	char path[40];

	if (!module || module->slow || (!module->inode_changed_ns && !module->missed) ||
	    module_is_jit(module) ||
	    (!executable && at_ns - module->checked_ns < CHECK_INTERVAL_NS))
		return;
	module->checked_ns = at_ns;
	if (stat_mapped(c, tgid, mapping, &st) < 0) {
		(void)snprintf(path, sizeof(path), "/proc/%u/exe", tgid);
		if (!executable || mounts_stat(path, &st) < 0)
			return;
	}
	if (S_ISREG(st.st_mode) && (module->missed || module_may_be_of(module, &st)) &&
	    !module_is_of(module, &st))
		publish_forget_file(c, module);
}

struct reading {
	struct collector *c;
	struct proc *proc;
	struct mapping_vec seen;
	bool above_4g;
};

static int on_map(void *ctx, const struct proc_map *map)
{
	struct reading *reading = ctx;
	struct module_file file = { .inode = map->inode,
				    .dev_major = map->dev_major,
				    .dev_minor = map->dev_minor };
	struct mapping mapping = { .start_va = map->start_va,
				   .end_va = map->end_va,
				   .bias = map->start_va - map->pgoff_fo,
				   .from_ns = reading->proc->begin_ns };

	if (map->end_va > UINT32_MAX && strcmp(map->path, "[vsyscall]") != 0)
		reading->above_4g = true;
	if (map->inode != 0)
		check_file(reading->c, reading->proc->tgid, &file, &mapping, reading->proc->maps_ns,
			   strcmp(map->path, reading->proc->text[PROC_EXE]) == 0);
	if (!publish_module_of(reading->c, &file, map->path, &mapping.module))
		return 0;
	if (map->inode == 0)
		mapping.bias = mapping.module ? map->start_va : 0;
	if (reading->seen.count >= MAPPING_SET_MAX)
		return -ENOSPC;
	first_sight(reading->c, reading->proc, &mapping);
	return mapping_vec_push(&reading->seen, mapping);
}

/* True if the process has executed another program since the events that are being applied: then
 * /proc describes its next instance. */
static bool has_executed_since(const struct collector *c, uint32_t tgid)
{
	for (size_t i = c->batch_at; i < c->batch.count; i++)
		if (c->batch.records[i].kind == MMAP_RECORD_EXEC && c->batch.records[i].tgid == tgid)
			return true;
	return false;
}

void follow_lost(struct collector *c, uint64_t lost)
{
	struct proc *proc;
	size_t at = 0;

	if (!lost)
		return;
	c->own_outcomes[OUTCOME_perf_lost] += lost;
	/* Nobody knows whose they were: every process is read again when it is next needed. */
	while ((proc = proc_table_next(c->procs, &at)))
		proc->engaged = false;
}

/* Whether /proc has just described this process instance. Another process with the same number may
 * have begun in the same tick of 10 ms, which is all that /proc tells of a start. It has executed
 * its program, and a mapping record says so by now. */
static bool was_of(struct collector *c, const struct proc *proc)
{
	const uint64_t lost = c->batch.lost;

	if (!c->mmaps)
		return true;
	c->drained_ns = clock_monotonic_ns();
	mmap_records_drain_more(c->mmaps, &c->batch, c->batch_at);
	follow_lost(c, c->batch.lost - lost);
	return !has_executed_since(c, proc->tgid);
}

struct maps_call {
	uint32_t tgid;
	char *text; /* owned */
	size_t len;
};

static int call_maps(void *data)
{
	struct maps_call *call = data;

	return proc_maps_text(call->tgid, MAPS_LINES_MAX, &call->text, &call->len);
}

static void drop_maps(void *data)
{
	free(((struct maps_call *)data)->text);
}

/* Makes the known mappings those of /proc/PID/maps; nothing happens when the process is gone. */
static void read_maps(struct collector *c, struct proc *proc, uint64_t now_ns)
{
	struct reading reading = { .c = c, .proc = proc };
	struct publish_context context = { c, proc };
	struct mapping_changes changes = publish_changes(&context);
	struct maps_call call = { .tgid = proc->tgid };
	struct proc_facts after = { 0 };
	int rc;

	proc->maps_ns = now_ns;
	rc = isolation_call(c->isolation, proc->tgid, call_maps, drop_maps, &call, sizeof(call));
	if (rc == 0)
		rc = proc_maps_each(call.text, call.len, on_map, &reading);
	/* The start time, read after the mappings, tells which process instance they belong to. */
	if (rc >= 0 && proc_facts_read_stat(proc->tgid, &after) == 0 &&
	    proc_facts_same_start(after.start_boottime_ns, proc->start_boottime_ns) &&
	    reading.seen.count > 0 && was_of(c, proc)) {
		if (mapping_set_replace(&proc->mappings, reading.seen.data, reading.seen.count,
					now_ns, &changes) < 0)
			log_debug("process %u has more mappings than are followed", proc->tgid);
		if (!reading.above_4g)
			proc->flags |= FEED_PROC_COMPAT32;
		c->sweep_due = true;
	}
	mapping_vec_deinit(&reading.seen);
	drop_maps(&call);
}

/* ---- facts -------------------------------------------------------------------------------------
 */

/* The innermost systemd unit of a group's path. */
static const char *unit_of(const char *cgroup)
{
	const char *best = "";

	for (const char *at = cgroup; at && *at; at = strchr(at, '/')) {
		size_t len;

		at += *at == '/';
		len = strcspn(at, "/");
		if ((len > 8 && memcmp(at + len - 8, ".service", 8) == 0) ||
		    (len > 6 && memcmp(at + len - 6, ".scope", 6) == 0))
			best = at;
	}
	return best;
}

static bool is_excluded(const struct collector *c, const struct proc *proc)
{
	char unit[256];
	const char *start = unit_of(proc->text[PROC_CGROUP]);
	size_t len = strcspn(start, "/");

	(void)snprintf(unit, sizeof(unit), "%.*s", (int)(len < 255 ? len : 255), start);
	for (unsigned i = 0; i < c->options->exclude_count; i++) {
		const char *pattern = c->options->exclude[i];

		if (proc->text[PROC_EXE][0] && fnmatch(pattern, proc->text[PROC_EXE], 0) == 0)
			return true;
		if (unit[0] && fnmatch(pattern, unit, 0) == 0)
			return true;
	}
	return false;
}

static void derive(struct collector *c, struct proc *proc)
{
	if (strcmp(proc->text[PROC_EXE], c->own_exe) == 0 && c->own_exe[0] &&
	    (proc->tgid == c->supervisor_tgid || proc->parent_tgid == c->supervisor_tgid))
		proc->flags |= FEED_PROC_PROFD;
	if (c->options->exclude_count > 0 && is_excluded(c, proc)) {
		proc->flags |= FEED_PROC_EXCLUDED;
		proc->wanted = PROF_WANT_EXCLUDED;
		publish_target(c, proc);
	}
}

static void read_ports(struct collector *c, struct proc *proc)
{
	char ports[PROC_PORTS_TEXT_SIZE];

	if (proc->flags & FEED_PROC_KTHREAD || proc_ports_read(c->ports, proc->tgid, ports) < 0 ||
	    !proc_set_text(proc, PROC_PORTS, ports))
		return;
	proc->fed = false;
	c->names_due = true;
}

struct facts_call {
	uint32_t tgid;
	uint64_t start_boottime_ns;
	struct proc_facts facts;
};

static int call_facts(void *data)
{
	struct facts_call *call = data;

	return proc_facts_read(call->tgid, call->start_boottime_ns, &call->facts);
}

/* The variables that @proc started with, where /proc no longer has them: as they were read before,
 * else those of its parent, if @proc is a fork of it that has not executed. */
static const char *known_environment(struct collector *c, const struct proc *proc,
				     const struct proc_facts *facts)
{
	const struct proc *parent = proc_table_find(c->procs, facts->parent_tgid);
	const char *before = proc->facts_ns ? proc->text[PROC_ENVIRONMENT] : "";

	if (proc_facts_own_environment(before))
		return before;
	return parent && parent->layout == facts->layout && facts->layout
		       ? parent->text[PROC_ENVIRONMENT]
		       : "";
}

static void set_environment(struct collector *c, struct proc *proc, const struct proc_facts *facts)
{
	const char *own = facts->environment_lost ? known_environment(c, proc, facts) : "";
	size_t len = proc_facts_own_environment(own);
	char text[PROC_FACTS_ENVIRONMENT_SIZE];

	if (len + strlen(facts->environment) >= sizeof(text))
		len = 0;
	(void)snprintf(text, sizeof(text), "%.*s%s", (int)len, own, facts->environment);
	(void)proc_set_text(proc, PROC_ENVIRONMENT, text);
}

/* True if the process was there. */
static bool read_facts(struct collector *c, struct proc *proc, uint64_t now_ns)
{
	cleanup_free struct facts_call *call = calloc(1, sizeof(*call));
	const struct proc_facts *facts;

	if (!call)
		return false;
	call->tgid = proc->tgid;
	call->start_boottime_ns = proc->start_boottime_ns;
	if (isolation_call(c->isolation, proc->tgid, call_facts, NULL, call, sizeof(*call)) < 0 ||
	    !was_of(c, proc))
		return false;
	facts = &call->facts;
	proc->parent_tgid = facts->parent_tgid;
	proc->uid = facts->uid;
	proc->layout = facts->layout;
	(void)family_join(c, proc, proc_table_find(c->procs, proc->parent_tgid));
	if (facts->kthread)
		proc->flags |= FEED_PROC_KTHREAD;
	memcpy(proc->comm, facts->comm, sizeof(proc->comm));
	(void)proc_set_text(proc, PROC_EXE, facts->exe);
	(void)proc_set_text(proc, PROC_CMDLINE, facts->cmdline);
	(void)proc_set_text(proc, PROC_PROGRAM, facts->program);
	(void)proc_set_text(proc, PROC_CGROUP, facts->cgroup);
	set_environment(c, proc, facts);
	proc->facts_ns = now_ns;
	proc->fed = false;
	derive(c, proc);
	return true;
}

static void want_rows(const struct proc *proc, const struct mapping *mapping, struct module *module)
{
	if (module->rows_later)
		module->origin = module_files_origin(proc, mapping); /* where it was found may be gone */
	module_want_rows(module);
}

void follow_ask(struct collector *c, const struct proc *proc, bool urgent)
{
	if (c->starting || (proc->flags & FEED_PROC_EXCLUDED))
		return; /* most mapped first, when all are known */
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);
		struct module *module = module_table_get(c->modules, mapping->module);

		if (!module)
			continue;
		if (urgent)
			want_rows(proc, mapping, module);
		module_index_ask(c->index, module, urgent);
	}
}

void follow_engage(struct collector *c, struct proc *proc)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (proc->ended_ns)
		return;
	proc->engaged = true;
	proc->engaged_ns = now_ns;
	if (has_executed_since(c, proc->tgid)) {
		c->names_due = true; /* what it inherited is all there is to know */
		derive(c, proc);
		return;
	}
	if (!read_facts(c, proc, now_ns))
		derive(c, proc);
	else if (!(proc->flags & FEED_PROC_KTHREAD))
		read_maps(c, proc, now_ns);
	follow_ask(c, proc, proc->sampled);
	c->sweep_due = true;
	c->names_due = true;
}

/* ---- process instances -------------------------------------------------------------------------
 */

/* Nothing of @proc is observed or looked up by BPF any more. */
static void withdraw(struct collector *c, struct proc *proc)
{
	alloc_end(c->alloc, proc);
	fast_end(c, proc);
	script_end(c, proc);
	publish_withdraw(c, proc);
}

void follow_end(struct collector *c, struct proc *proc, uint64_t time_ns)
{
	if (proc->ended_ns)
		return;
	withdraw(c, proc);
	proc_table_end(c->procs, proc, time_ns);
	announce_exit(c, proc);
}

static struct proc *begin_exec(struct collector *c, struct proc *proc, uint64_t time_ns)
{
	struct proc *next;

	withdraw(c, proc);
	next = proc_table_exec(c->procs, proc, time_ns);
	announce_exit(c, proc);
	if (next) {
		(void)proc_set_text(next, PROC_EXE, "");
		(void)proc_set_text(next, PROC_CMDLINE, "");
		(void)proc_set_text(next, PROC_PROGRAM, "");
		(void)proc_set_text(next, PROC_PORTS, "");
	}
	return next;
}

static struct proc *add_life(struct collector *c, uint32_t tgid, uint64_t start_boottime_ns,
			     uint64_t begin_ns, const char *comm)
{
	struct proc *former = proc_table_find(c->procs, tgid);
	struct proc *proc;

	if (former)
		follow_end(c, former, begin_ns ? begin_ns : clock_monotonic_ns());
	proc = proc_table_add(c->procs, tgid, start_boottime_ns, begin_ns);
	if (!proc)
		return NULL;
	if (!begin_ns)
		proc->seen_ns = clock_monotonic_ns();
	memcpy(proc->comm, comm, sizeof(proc->comm));
	return proc;
}

struct proc *follow_sampled(struct collector *c, uint32_t tgid, uint64_t start_boottime_ns,
			    uint64_t time_ns, const char *comm)
{
	struct proc *proc = proc_table_find_at(c->procs, tgid, start_boottime_ns, time_ns);

	if (!proc) {
		/* Its fork was lost, or happened before we looked. */
		proc = add_life(c, tgid, start_boottime_ns, 0, comm);
		if (!proc)
			return NULL;
		proc->start_exact = true;
	}
	if (proc->sampled && proc->engaged)
		return proc;
	proc->sampled = true;
	if (!proc->engaged)
		follow_engage(c, proc);
	else
		follow_ask(c, proc, proc->sampled);
	c->sweep_due = true;
	return proc;
}

/* ---- BPF's events ------------------------------------------------------------------------------
 */

static void on_fork(struct collector *c, const struct prof_task_event *event)
{
	struct proc *parent = proc_table_find(c->procs, event->parent_tgid);
	struct proc *proc = proc_table_find(c->procs, event->tgid);

	if (proc && proc_led_by(proc, event->start_boottime_ns)) {
		(void)family_join(c, proc, parent); /* /proc was faster */
		return;
	}
	if (proc)
		follow_end(c, proc, event->time_ns);
	proc = proc_table_fork(c->procs, parent, event->tgid, event->start_boottime_ns,
			       event->time_ns);
	if (!proc)
		return;
	memcpy(proc->comm, event->comm, sizeof(proc->comm));
	proc->parent_tgid = event->parent_tgid;
	proc->exec_generation = event->exec_generation;
	script_forked(c, proc);
}

static void on_exec(struct collector *c, const struct prof_task_event *event)
{
	struct proc *proc = proc_table_find_at(c->procs, event->tgid, event->start_boottime_ns,
					       event->time_ns);

	if (!proc || proc->ended_ns)
		proc = add_life(c, event->tgid, event->start_boottime_ns, event->time_ns,
				event->comm);
	else if (!proc->exec_assumed)
		proc = begin_exec(c, proc, event->time_ns);
	if (!proc)
		return;
	proc->exec_assumed = false;
	proc->start_exact = true;
	proc->exec_generation = event->exec_generation;
	proc->parent_tgid = event->parent_tgid;
	(void)family_join(c, proc, proc_table_find(c->procs, proc->parent_tgid));
	memcpy(proc->comm, event->comm, sizeof(proc->comm));
}

static void on_end(struct collector *c, const struct prof_task_event *event)
{
	struct proc *proc = proc_table_find(c->procs, event->tgid);

	if (proc && proc_led_by(proc, event->start_boottime_ns))
		follow_end(c, proc, event->time_ns);
}

static void on_unknown_pc(struct collector *c, const struct prof_task_event *event)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct proc *proc = follow_sampled(c, event->tgid, event->start_boottime_ns, event->time_ns,
					   event->comm);

	if (!proc || proc->ended_ns || now_ns - proc->maps_ns < MAPS_INTERVAL_NS)
		return;
	if (!mapping_set_find(proc->mappings, event->address, event->time_ns))
		read_maps(c, proc, now_ns);
}

void follow_task(struct collector *c, const struct prof_task_event *event)
{
	follow_until(c, event->time_ns);
	switch (event->head.kind) {
	case PROF_EVENT_FORK:
		on_fork(c, event);
		break;
	case PROF_EVENT_EXEC:
		on_exec(c, event);
		break;
	case PROF_EVENT_EXIT:
		on_end(c, event);
		break;
	case PROF_EVENT_UNKNOWN_PC:
		on_unknown_pc(c, event);
		break;
	}
}

/* ---- mapping records ---------------------------------------------------------------------------
 */

static void apply_map(struct collector *c, const struct mmap_record *record, const char *path)
{
	struct proc *proc = proc_table_find(c->procs, record->tgid);
	struct module_file file = { .inode = record->inode,
				    .generation = record->inode_generation,
				    .dev_major = record->dev_major,
				    .dev_minor = record->dev_minor };
	struct mapping mapping = { .start_va = record->start_va,
				   .end_va = record->end_va,
				   .bias = record->start_va - record->pgoff_fo,
				   .from_ns = record->time_ns };
	struct publish_context context = { c, proc };
	struct mapping_changes changes = publish_changes(&context);
	bool executable;

	/* Without an instance there is nothing to hold it; /proc is read when the first sample
	 * comes. */
	if (!proc || record->time_ns < proc->begin_ns)
		return;
	executable = record->inode != 0 && !proc->exec_mapped && proc->exec_assumed;
	if (executable) {
		/* The first file that a new image maps is its executable: begin_new_exec(), which
		 * writes the exec record, comes before elf_load(). */
		proc->exec_mapped = true;
		proc->fed &= !proc_set_text(proc, PROC_EXE, path);
		derive(c, proc); /* it may have ended when /proc is read */
	}
	if (record->inode != 0)
		check_file(c, record->tgid, &file, &mapping, record->time_ns, executable);
	if (!publish_module_of(c, &file, path, &mapping.module))
		return;
	if (record->inode == 0)
		mapping.bias = mapping.module ? record->start_va : 0;
	first_sight(c, proc, &mapping);
	if (mapping_set_add(&proc->mappings, &mapping, &changes) < 0)
		log_debug("process %u has more mappings than are followed", proc->tgid);
}

static void apply_exec(struct collector *c, const struct mmap_record *record, const char *comm)
{
	struct proc *proc = proc_table_find(c->procs, record->tgid);

	if (!proc || record->time_ns < proc->begin_ns)
		return;
	proc = begin_exec(c, proc, record->time_ns);
	if (!proc)
		return;
	proc->exec_assumed = true;
	memset(proc->comm, 0, sizeof(proc->comm));
	(void)snprintf(proc->comm, sizeof(proc->comm), "%s", comm);
}

void follow_apply(struct collector *c, uint64_t time_ns)
{
	while (c->batch_at < c->batch.count) {
		const struct mmap_record *record = &c->batch.records[c->batch_at];
		const char *text = c->batch.texts + record->path_at;

		if (record->time_ns > time_ns)
			return;
		c->batch_at++;
		if (record->kind == MMAP_RECORD_EXEC)
			apply_exec(c, record, text);
		else
			apply_map(c, record, text);
	}
}

void follow_drain(struct collector *c)
{
	if (!c->mmaps)
		return;
	follow_apply(c, UINT64_MAX);
	c->drained_ns = clock_monotonic_ns();
	mmap_records_drain(c->mmaps, &c->batch);
	c->batch_at = 0;
	follow_lost(c, c->batch.lost);
}

void follow_until(struct collector *c, uint64_t time_ns)
{
	/* An event newer than the last look at the records: an exec without the mappings before it
	 * would lose them. */
	if (time_ns > c->drained_ns)
		follow_drain(c);
	follow_apply(c, time_ns);
}

/* ---- /proc -------------------------------------------------------------------------------------
 */

static void scan_one(struct collector *c, uint32_t tgid)
{
	struct proc *proc = proc_table_find(c->procs, tgid);
	struct proc_facts facts = { 0 };

	if (proc_facts_read_stat(tgid, &facts) < 0)
		return;
	if (proc && proc_facts_same_start(proc->start_boottime_ns, facts.start_boottime_ns)) {
		proc->scanned = true; /* its event reports that it has ended */
		return;
	}
	if (facts.ended)
		return;
	proc = add_life(c, tgid, facts.start_boottime_ns, 0, facts.comm);
	if (!proc)
		return;
	proc->scanned = true;
	follow_engage(c, proc);
	/* One that has long started has set up what it will. */
	proc->looks = clock_boottime_ns() - facts.start_boottime_ns > look_ages_ns[LOOKS_MAX - 1] ?
			      LOOKS_MAX :
			      1;
	read_ports(c, proc);
}

void follow_jit(struct collector *c)
{
	struct proc *proc;
	size_t at = 0;

	while ((proc = proc_table_next(c->procs, &at)))
		if (proc->jit_module)
			publish_ask_jit(c, proc);
}

void follow_scan(struct collector *c)
{
	uint64_t now_ns = clock_monotonic_ns();
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	struct proc *proc;
	size_t at = 0;

	if (!dir)
		return;
	while ((proc = proc_table_next(c->procs, &at)))
		proc->scanned = false;
	while ((entry = readdir(dir))) {
		uint64_t tgid;

		if (parse_u64(entry->d_name, 1, UINT32_MAX, &tgid) == 0)
			scan_one(c, (uint32_t)tgid);
	}
	(void)closedir(dir);
	at = 0;
	while ((proc = proc_table_next(c->procs, &at)))
		if (!proc->scanned && proc->begin_ns < now_ns)
			follow_end(c, proc, now_ns);
}

static void feed_cpu(struct collector *c, uint32_t proc, uint64_t time_ns, uint64_t cpu_ns)
{
	if (feed_write_proc_cpu(&c->feed, proc, time_ns, cpu_ns) < 0)
		c->own_outcomes[OUTCOME_feed_full]++;
}

void follow_cpu(struct collector *c, uint64_t begin_ns)
{
	struct proc *proc;
	size_t at = 0;

	while ((proc = proc_table_next(c->procs, &at)))
		if (!proc->engaged)
			follow_engage(c, proc);
	announce_rest(c);
	at = 0;
	while ((proc = proc_table_next(c->procs, &at))) {
		struct proc_facts facts;

		if (proc_facts_read_stat(proc->tgid, &facts) < 0 ||
		    !proc_facts_same_start(facts.start_boottime_ns, proc->start_boottime_ns))
			facts.cpu_ns = 0; /* gone: its exit follows */
		feed_cpu(c, proc->id, clock_monotonic_ns(), facts.cpu_ns);
	}
	feed_cpu(c, 0, begin_ns, c->all_ports_ns);
}

void follow_ports(struct collector *c)
{
	struct proc *proc;
	size_t at = 0;

	c->all_ports_ns = c->ports_ns = clock_monotonic_ns();
	proc_ports_reset(c->ports);
	while ((proc = proc_table_next(c->procs, &at)))
		if (!proc->ended_ns)
			read_ports(c, proc);
}

static int by_mappings(const void *a, const void *b)
{
	const struct module *left = *(struct module *const *)a, *right = *(struct module *const *)b;

	return left->mappings > right->mappings ? -1 : left->mappings < right->mappings;
}

void follow_ask_all(struct collector *c)
{
	uint32_t count = module_table_count(c->modules);
	cleanup_free struct module **modules = calloc(count + 1, sizeof(struct module *));
	size_t at = 0;

	if (!modules)
		return;
	for (uint32_t i = 0; i < count; i++)
		modules[i] = module_table_next(c->modules, &at);
	qsort(modules, count, sizeof(*modules), by_mappings);
	for (uint32_t i = 0; i < count; i++)
		if (modules[i]->mappings || modules[i]->kind != FEED_MODULE_ELF)
			module_index_ask(c->index, modules[i], false);
}

/* A file that was deleted cannot be opened once its processes are gone: its names do not wait for a
 * stack. */
static void name_deleted(struct collector *c, const struct proc *proc,
			 const struct mapping *mapping, struct module *module, uint64_t now_ns)
{
	struct stat st;

	if (!module->names_later || module->state != MODULE_READY || module->slow ||
	    module->checked_ns == now_ns)
		return;
	module->checked_ns = now_ns;
	if (stat_mapped(c, proc->tgid, mapping, &st) < 0 || st.st_nlink)
		return;
	module->origin = module_files_origin(proc, mapping);
	(void)module_index_name(c->index, module);
}

void follow_want_rows(struct collector *c)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct proc *proc;
	size_t at = 0;

	while ((proc = proc_table_next(c->procs, &at))) {
		for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
			const struct mapping *mapping = mapping_set_at(proc->mappings, i);
			struct module *module = module_table_get(c->modules, mapping->module);

			if (!module)
				continue;
			want_rows(proc, mapping, module);
			name_deleted(c, proc, mapping, module, now_ns);
		}
	}
	c->sweep_due = true;
	follow_ask_all(c);
}

/* A process may be moved to another group, and so to another service, at any age. */
static void look_at_group(struct collector *c, struct proc *proc, uint64_t now_ns)
{
	char group[PROC_FACTS_CGROUP_SIZE];
	uint64_t read_ns = proc->group_ns > proc->facts_ns ? proc->group_ns : proc->facts_ns;

	if (!proc->engaged || (proc->flags & FEED_PROC_KTHREAD) || now_ns - read_ns < GROUP_INTERVAL_NS)
		return;
	proc->group_ns = now_ns;
	if (proc_facts_read_group(proc->tgid, proc->start_boottime_ns, group) < 0 ||
	    strcmp(group, proc->text[PROC_CGROUP]) == 0)
		return;
	(void)read_facts(c, proc, now_ns);
	c->names_due = true;
}

void follow_look_again(struct collector *c, uint64_t now_ns)
{
	struct proc *proc;
	size_t at = 0;

	while ((proc = proc_table_next(c->procs, &at))) {
		if (proc->looks >= LOOKS_MAX ||
		    now_ns - proc->seen_ns < look_ages_ns[proc->looks]) {
			look_at_group(c, proc, now_ns);
			continue;
		}
		proc->looks++;
		if (proc->flags & FEED_PROC_KTHREAD)
			continue;
		if (now_ns - c->ports_ns >= PORTS_INTERVAL_NS) {
			c->ports_ns = now_ns;
			proc_ports_reset(c->ports);
		}
		if (!proc->engaged)
			follow_engage(c, proc);
		else
			(void)read_facts(c, proc, now_ns);
		read_ports(c, proc);
		c->names_due = true;
	}
}
