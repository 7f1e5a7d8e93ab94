// SPDX-License-Identifier: Apache-2.0
/* From what is known about modules and processes to what the BPF programs look up: files, mappings,
 * unwind tables, targets. A process's mappings are published together, once all of their modules
 * are settled (or SETTLE_NS later), and then PROF_WANT_MAPPED says that they are complete. Before
 * that the programs read the process's own list of mappings and find modules by file. */
#include "agent/collect/publish.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/base/text.h"
#include "agent/collect/announce.h"
#include "agent/collect/modules/module_files.h"
#include "agent/collect/proc/proc_facts.h"
#include "agent/collect/script.h"

#define SETTLE_NS      (2 * NS_PER_S)
#define PUBLISH_AGE_NS NS_PER_S
#define FILES_SWEEP_NS (10 * NS_PER_S) /* between two looks at which files are mapped */
#define PUBLISH_EARLY  32u /* mappings: the programs read up to 64 of a young process, each time */

/* ---- modules -----------------------------------------------------------------------------------
 */

void publish_init(struct collector *c)
{
	struct module *module;
	uint64_t text_va;
	int rc;

	module = module_table_add(c->modules, FEED_MODULE_KERNEL, "[kernel]");
	if (module) {
		rc = module_files_read_kernel(&text_va, module->build_id, &module->build_id_len);
		if (rc < 0) {
			log_warn("kernel addresses cannot be read: %s; kernel frames stay without "
				 "names; CAP_SYSLOG or kernel.kptr_restrict=0 shows them",
				 strerror(-rc));
		} else {
			c->kernel_module = module->id;
			c->kernel_text = text_va & PROF_FRAME_ADDRESS_MASK;
			module_index_ask(c->index, module, false);
		}
	}
	module = module_table_add(c->modules, FEED_MODULE_VDSO, "[vdso]");
	if (module) {
		c->vdso_module = module->id;
		module_index_ask(c->index, module, false);
	}
}

static void forget_file(struct collector *c, const struct module_file *file)
{
	struct prof_file_key key = { .inode = file->inode,
				     .dev_major = file->dev_major,
				     .dev_minor = file->dev_minor };

	if (c->bpf)
		bpf_agent_file_remove(c->bpf, &key);
}

void publish_forget_file(struct collector *c, struct module *module)
{
	module_table_forget_file(c->modules, module);
	forget_file(c, &module->file);
	module->in_files = false;
}

void publish_withdraw_file(struct collector *c, struct module *module)
{
	if (module_table_is_current(c->modules, module)) /* else it is another's entry by now */
		forget_file(c, &module->file);
	module->in_files = false;
}

static uint32_t mapping_flags(const struct module *module)
{
	uint32_t flags = 0;

	if (!module || module_is_jit(module))
		return PROF_MAPPING_JIT;
	if (module->flags & INDEXED_FP)
		flags |= PROF_MAPPING_FP;
	if (module->script && module->script->kind != SCRIPT_HOTSPOT)
		flags |= PROF_MAPPING_RUNTIME;
	if (module->table_bytes)
		flags |= PROF_MAPPING_ROWS;
	else if (module_is_awaited(module))
		flags |= PROF_MAPPING_AWAITED;
	return flags;
}

static void mark_mapped(struct collector *c)
{
	const struct proc *proc;
	size_t at = 0;

	struct module *module;
	size_t next = 0;

	while ((module = module_table_next(c->modules, &next)))
		module->is_mapped = false;
	while ((proc = proc_table_next(c->procs, &at))) {
		for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
			module = module_table_get(c->modules, mapping_set_at(proc->mappings, i)->module);
			if (module)
				module->is_mapped = true;
		}
	}
}

/* Files that no process maps any more leave BPF's map; one that is mapped again comes back. False:
 * none has left. */
static bool make_room_for_files(struct collector *c)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct module *module;
	bool any = false;
	size_t at = 0;

	if (c->files_swept_ns && now_ns - c->files_swept_ns < FILES_SWEEP_NS)
		return false;
	c->files_swept_ns = now_ns;
	mark_mapped(c);
	while ((module = module_table_next(c->modules, &at))) {
		if (!module->in_files || module->is_mapped || module->kind != FEED_MODULE_ELF)
			continue;
		publish_withdraw_file(c, module);
		any = true;
	}
	return any;
}

/* For young processes: the file leads to the canonical module. */
static void publish_file(struct collector *c, struct module *module)
{
	struct module *canonical = module_table_canonical(c->modules, module->id);
	struct prof_file file = { .module = canonical->id, .flags = mapping_flags(canonical) };
	struct prof_file_key key = { .inode = module->file.inode,
				     .dev_major = module->file.dev_major,
				     .dev_minor = module->file.dev_minor };
	int rc;

	if (!c->bpf || (module->kind != FEED_MODULE_ELF && module->kind != FEED_MODULE_VDSO))
		return;
	if (module->kind == FEED_MODULE_ELF && !module_table_is_current(c->modules, module))
		return; /* its inode is another file's now */
	rc = bpf_agent_file_add(c->bpf, &key, &file);
	if (rc == -E2BIG && make_room_for_files(c))
		rc = bpf_agent_file_add(c->bpf, &key, &file);
	module->in_files = rc == 0;
	/* When the map is full, young processes of this file are resolved here, without its rows. */
	if (rc < 0)
		log_debug("no room for file %s in the BPF map", module->path);
}

static void say_full(void)
{
	static struct log_limit limit = { .burst = 1 };

	if (log_allowed(&limit))
		log_warn("more than %u files are mapped at a time: the rest has neither names nor unwind tables",
			 PROF_MODULES_MAX);
}

bool publish_module_of(struct collector *c, const struct module_file *file, const char *path,
		       uint32_t *ret_module)
{
	struct module *module;

	if (file->inode != 0) {
		uint32_t known = module_table_count(c->modules);

		module = module_table_file(c->modules, file, path);
		if (module && !module->file.inode)
			say_full();
		if (module_table_count(c->modules) != known)
			forget_file(c, file); /* of another that had this inode before */
		else if (module && module->state == MODULE_READY && !module->in_files)
			publish_file(c, module);
		*ret_module = module ? module->id : 0;
		return module != NULL;
	}
	if (strcmp(path, "[vdso]") == 0) {
		*ret_module = c->vdso_module;
		return c->vdso_module != 0;
	}
	/* The kernel's own pages of code: no stack of interest leads through them. */
	if (strcmp(path, "[vsyscall]") == 0 || strcmp(path, "[uprobes]") == 0)
		return false;
	*ret_module = 0;
	return true;
}

/* A runtime that writes a jitdump maps a page of it executable, so that its name is seen
 * (tools/perf/Documentation/jitdump-specification.txt). */
static bool is_jitdump(const char *path)
{
	const char *name = strrchr(path, '/');
	size_t len = name ? strlen(name) : 0;

	return len > 9 && text_begins(name, "/jit-") && strcmp(name + len - 5, ".dump") == 0;
}

void publish_ask_jit(struct collector *c, struct proc *proc)
{
	struct module *module = module_table_get(c->modules, proc->jit_module);

	if (!module || module->state != MODULE_READY ||
	    ((module->flags & INDEXED_SYMBOLS) && !module->slow))
		return; /* a copy does not grow */
	module->origin = (struct module_origin){ .tgid = proc->tgid };
	module->file = (struct module_file){ 0 };
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);
		const struct module *file = module_table_get(c->modules, mapping->module);

		if (file && is_jitdump(file->path)) {
			module->origin.start_va = mapping->start_va;
			module->origin.end_va = mapping->end_va;
			module->file = file->file;
		}
	}
	module->state = MODULE_SEEN;
	/* Not behind all files of the host: other code may lie there tomorrow, and what this
	 * session saw is told by the names it is stored with. */
	module_index_ask(c->index, module, true);
}

uint32_t publish_jit_module(struct collector *c, struct proc *proc)
{
	struct module *module;
	uint64_t key;

	if (proc->jit_module)
		return proc->jit_module;
	module = module_table_add(c->modules, FEED_MODULE_JIT, "[jit]");
	if (!module)
		return 0;
	key = hash_combine(hash_combine(c->epoch, proc->tgid), proc->start_boottime_ns);
	module_table_set_key(c->modules, module, hash_combine(key, proc->exec_generation));
	module->state = MODULE_READY;
	module->changed = false;
	proc->jit_module = module->id;
	(void)!announce_module(c, module);
	publish_ask_jit(c, proc);
	return module->id;
}

/* ---- unwind tables -----------------------------------------------------------------------------
 */

static void drop_table(struct collector *c, struct module *module)
{
	bpf_agent_table_drop(c->bpf, module->id);
	module_table_charge(c->modules, module, 0);
	module->table_evicted = true;
	module->changed = true;
	c->sweep_due = true;
}

static void mark_used(void *ctx, const struct stack *stack)
{
	struct collector *c = ctx;
	uint64_t now_ns = clock_monotonic_ns();

	/* Not what the clock's hand found unused. */
	for (uint16_t i = 0; stack->uses && i < stack->frame_count; i++) {
		struct module *module;

		if (prof_frame_kind(stack->frames[i]) != PROF_FRAME_MODULE)
			continue;
		module = module_table_get(c->modules, prof_frame_module_id(stack->frames[i]));
		if (module)
			module->used_ns = now_ns;
	}
}

/* Makes @bytes fit into the budget by taking away the tables that stacks went through least
 * recently. False: it would not fit even alone. */
static bool make_room(struct collector *c, uint64_t bytes)
{
	uint64_t budget = c->options->memory_budget_bytes;
	bool refreshed = false;

	if (budget == 0)
		return true;
	while (module_table_bytes(c->modules) + bytes > budget) {
		struct module *victim;

		if (!refreshed)
			stack_table_each(c->stacks, mark_used, c);
		refreshed = true;
		victim = module_table_least_used(c->modules);
		if (!victim)
			return false;
		drop_table(c, victim);
	}
	return true;
}

static void publish_table(struct collector *c, struct module *module, int table_fd, uint64_t bytes)
{
	uint64_t charged = 0;
	int rc;

	if (module->table_bytes || !c->bpf)
		return;
	if (!make_room(c, bytes)) {
		log_warn("the unwind table of %s (%llu bytes) is larger than memory_budget: its stacks "
			 "are cut",
			 module->path, (unsigned long long)bytes);
		return;
	}
	rc = bpf_agent_table_publish(c->bpf, module->id, table_fd, bytes, &charged);
	if (rc < 0) {
		log_warn("the unwind table of %s cannot be published: %s; its stacks are cut",
			 module->path, strerror(-rc));
		return;
	}
	module_table_charge(c->modules, module, charged);
	module->table_evicted = false;
	module->used_ns = clock_monotonic_ns();
	module->changed = true;
}

void publish_indexed(void *ctx, struct module *module, int table_fd, uint64_t table_bytes)
{
	struct collector *c = ctx;
	struct module *canonical = module_table_canonical(c->modules, module->id);

	if (table_fd >= 0 && table_bytes > 0)
		publish_table(c, canonical, table_fd, table_bytes);
	publish_file(c, module);
	if (canonical != module && canonical->changed)
		publish_file(c, canonical);
	module->changed = true; /* at least that it is not awaited any more */
	c->knowledge++;
	c->sweep_due = true;
	if (!module->fed)
		(void)!announce_module(c, module);
}

/* ---- mappings ----------------------------------------------------------------------------------
 */

static int add_mapping(struct collector *c, struct proc *proc, const struct mapping *mapping)
{
	struct module *module = mapping->module ? module_table_canonical(c->modules, mapping->module) :
						  NULL;
	struct prof_mapping value = { .bias = mapping->bias,
				      .module = module ? module->id : 0,
				      .flags = mapping_flags(module) };

	return bpf_agent_map_add(c->bpf, proc->tgid, mapping->start_va, mapping->end_va, &value);
}

/* The mapping table is full: this process goes back to being young for ever. */
static void unpublish(struct collector *c, struct proc *proc)
{
	static struct log_limit limit = { .burst = 1 };

	if (log_allowed(&limit))
		log_warn("the table of mappings is full: processes are unwound by their kernel's own "
			 "list, which costs more per sample");
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);

		bpf_agent_map_remove(c->bpf, proc->tgid, mapping->start_va, mapping->end_va);
	}
	proc->published = false;
	proc->unpublishable = true;
	publish_target(c, proc);
}

static void publish_mappings(struct collector *c, struct proc *proc)
{
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		if (add_mapping(c, proc, mapping_set_at(proc->mappings, i)) < 0) {
			unpublish(c, proc);
			return;
		}
	}
	proc->published = true;
	publish_target(c, proc);
}

static void on_removed(void *ctx, const struct mapping *mapping)
{
	struct publish_context *context = ctx;
	struct proc *proc = context->proc;

	if (proc->published)
		bpf_agent_map_remove(context->c->bpf, proc->tgid, mapping->start_va,
				     mapping->end_va);
}

static void on_added(void *ctx, const struct mapping *mapping)
{
	struct publish_context *context = ctx;
	struct proc *proc = context->proc;

	if (proc->published && add_mapping(context->c, proc, mapping) < 0)
		unpublish(context->c, proc);
	if (collector_active(context->c)) /* a program may be short: its names are wanted soon */
		script_mapped(context->c, proc, mapping);
	context->c->knowledge++;
}

struct mapping_changes publish_changes(struct publish_context *context)
{
	return (struct mapping_changes){ .ctx = context, .removed = on_removed, .added = on_added };
}

/* Takes back a decision that came after the process had executed or ended, and before that was
 * known here. It would stay for good, and apply to another process with the same number. */
static void withdraw_target(struct collector *c, const struct proc *proc)
{
	struct prof_target target;

	if (proc->wanted && bpf_agent_get_target(c->bpf, proc->tgid, &target) &&
	    proc_facts_same_start(target.start_boottime_ns, proc->start_boottime_ns))
		bpf_agent_drop_target(c->bpf, proc->tgid);
}

void publish_withdraw(struct collector *c, struct proc *proc)
{
	if (c->bpf)
		withdraw_target(c, proc);
	if (!proc->published)
		return;
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);

		bpf_agent_map_remove(c->bpf, proc->tgid, mapping->start_va, mapping->end_va);
	}
	proc->published = false;
}

/* ---- sweep -------------------------------------------------------------------------------------
 */

static bool settled(const struct collector *c, const struct proc *proc)
{
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		uint32_t id = mapping_set_at(proc->mappings, i)->module;
		const struct module *module = id ? module_table_get(c->modules, id) : NULL;

		if (module && ((!module->key && module->state != MODULE_FAILED) || module_is_awaited(module)))
			return false;
	}
	return true;
}

bool publish_is_settled(struct collector *c)
{
	struct proc *proc;
	size_t at = 0;

	while ((proc = proc_table_next(c->procs, &at))) {
		bool is_target =
			proc->wanted && !(proc->wanted & (PROF_WANT_NONE | PROF_WANT_EXCLUDED));
		bool is_undecided = !proc->wanted && proc->begin_ns < c->demanded_ns;

		if ((is_target || is_undecided) && !settled(c, proc))
			return false;
		if (!is_target && !(is_undecided && proc->begin_ns))
			continue;
		script_find(c, proc);
		if (script_is_awaited(c, proc))
			return false;
	}
	return true;
}

/* Most processes are never sampled, and most that begin end within a second: putting their mappings
 * into the table, some ten entries each, costs more than finding them by the kernel's list at the
 * samples they have. */
static uint64_t publish_due_ns(const struct collector *c, const struct proc *proc)
{
	if (!features_has(&c->options->features, FEATURE_VMA_WALK) ||
	    mapping_set_count(proc->mappings) > PUBLISH_EARLY)
		return 0;
	if (!proc->sampled)
		return UINT64_MAX;
	return proc->begin_ns ? proc->begin_ns + PUBLISH_AGE_NS : 0;
}

/* Flags of the runtime that the library or executable @module brings to the process that maps it.
 */
static uint32_t runtime_flags(const struct proc *proc, const struct module *module)
{
	uint32_t flags = module->runtime;

	/* A Go library in another program does not make it a Go program. */
	if ((flags & FEED_PROC_GO) && strcmp(module->path, proc->text[PROC_EXE]) != 0)
		flags &= ~(uint32_t)FEED_PROC_GO;
	return flags & (FEED_PROC_GO | FEED_PROC_JVM | FEED_PROC_PYTHON | FEED_PROC_NODE |
			FEED_PROC_V8_COMPRESSED | FEED_PROC_V8_UNDESCRIBED | FEED_PROC_PHP |
			FEED_PROC_RUBY | FEED_PROC_PERL);
}

static void sweep_proc(struct collector *c, struct proc *proc)
{
	script_find(c, proc);
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);
		struct module *module =
			mapping->module ? module_table_get(c->modules, mapping->module) : NULL;
		uint32_t flags;

		if (!module)
			continue;
		flags = proc->flags | runtime_flags(proc, module);
		if (flags != proc->flags) {
			proc->flags = flags;
			proc->fed = false;
			c->names_due = true;
		}
		if (!proc->published)
			continue;
		if (!module->changed && !module_table_canonical(c->modules, module->id)->changed)
			continue;
		if (add_mapping(c, proc, mapping) < 0) {
			unpublish(c, proc);
			return;
		}
	}
}

static void note_lost_tables(struct collector *c)
{
	uint32_t id;

	while (bpf_agent_table_lost(c->bpf, &id)) {
		struct module *module = module_table_get(c->modules, id);

		if (!module)
			continue;
		module_table_charge(c->modules, module, 0);
		module->changed = true;
		c->sweep_due = true;
	}
}

void publish_sweep(struct collector *c, uint64_t now_ns)
{
	struct module *module;
	struct proc *proc;
	uint64_t due_ns;
	size_t at = 0, next = 0;

	if (!c->bpf)
		return;
	note_lost_tables(c);
	if (!c->sweep_due && now_ns < c->publish_at_ns)
		return;
	c->sweep_due = false;
	c->publish_at_ns = UINT64_MAX;
	while ((proc = proc_table_next(c->procs, &at))) {
		if (!proc->engaged)
			continue;
		sweep_proc(c, proc);
		if (proc->published || proc->unpublishable || !proc->mappings)
			continue;
		due_ns = publish_due_ns(c, proc);
		if (due_ns > now_ns)
			c->publish_at_ns = c->publish_at_ns < due_ns ? c->publish_at_ns : due_ns;
		else if (settled(c, proc) || now_ns - proc->engaged_ns > SETTLE_NS)
			publish_mappings(c, proc);
		else
			c->sweep_due = true;
	}
	while ((module = module_table_next(c->modules, &next))) {
		if (!module->changed)
			continue;
		module->changed = false;
		publish_file(c, module);
	}
}

/* ---- targets -----------------------------------------------------------------------------------
 */

void publish_target(struct collector *c, struct proc *proc)
{
	struct prof_target target = { .start_boottime_ns = proc->start_boottime_ns,
				      .wanted = proc->wanted,
				      .exec_generation = proc->exec_generation };

	if (!c->bpf || proc->ended_ns || !proc->wanted)
		return;
	if (proc->published)
		target.wanted |= PROF_WANT_MAPPED;
	if (!proc->fast)
		target.wanted &= ~(uint32_t)PROF_WANT_FAST;
	if (bpf_agent_set_target(c->bpf, proc->tgid, &target) < 0)
		log_debug("no room for process %u in the BPF map of targets", proc->tgid);
}
