// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_unwind.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/text.h"

#define PC_CACHE_ENTRIES                                                                           \
	16384u /* direct-mapped; a service of 10,000 goroutines shows some 500 pcs */

/* The ids of special functions are renumbered by every other version, but "wrapper" has always been
 * the last one (src/internal/abi/symtab.go), and no program is without wrappers. */
static int find_wrapper_id(const struct go_table *table, uint32_t *ret)
{
	uint32_t largest = 0;

	for (uint32_t i = 0; i < table->func_count; i++) {
		struct go_func func;
		int rc = go_table_at(table, i, &func);

		if (rc == -ESRCH || rc == -EPERM)
			return rc;
		if (rc == 0 && func.id > largest)
			largest = func.id;
	}
	*ret = largest;
	return 0;
}

int go_unwinder_init(struct go_unwinder *u, struct go_layout *layout)
{
	struct go_pc *cache = calloc(PC_CACHE_ENTRIES, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	*u = (struct go_unwinder){ .layout = layout, .cache = cache };
	return find_wrapper_id(&layout->table, &u->wrapper_id);
}

void go_unwinder_deinit(struct go_unwinder *u)
{
	free(u->cache);
	u->cache = NULL;
}

/* ---- facts about a pc ------------------------------------------------------------------------ */

static const struct {
	const char *name;
	uint32_t flags;
} named_functions[] = {
	{ "runtime.goexit", GO_PC_TOP | GO_PC_GOEXIT },
	{ "runtime.mstart", GO_PC_TOP },
	{ "runtime.rt0_go", GO_PC_TOP },
	{ "runtime.mcall", GO_PC_TOP },
	{ "runtime.morestack", GO_PC_TOP },
	{ "runtime.sigpanic", GO_PC_INTERRUPTS | GO_PC_PANIC },
	{ "runtime.asyncPreempt", GO_PC_INTERRUPTS },
	{ "runtime.debugCallV1", GO_PC_INTERRUPTS },
	{ "runtime.debugCallV2", GO_PC_INTERRUPTS },
	{ "runtime.gopanic", GO_PC_PANIC },
	{ "runtime.panicwrap", GO_PC_PANIC },
	{ "sync.(*Mutex).lockSlow", GO_PC_LOCK_SLOW | GO_PC_PARKING },
	{ "internal/sync.(*Mutex).lockSlow", GO_PC_LOCK_SLOW | GO_PC_PARKING },
	/* Until 1.19 the wait reason says "semacquire" of locks and of wait groups alike. */
	{ "sync.runtime_SemacquireMutex", GO_PC_LOCK_WAIT | GO_PC_PARKING },
	{ "internal/sync.runtime_SemacquireMutex", GO_PC_PARKING },
	{ "sync.runtime_SemacquireRWMutex", GO_PC_PARKING },
	{ "sync.runtime_SemacquireRWMutexR", GO_PC_PARKING },
	{ "sync.runtime_SemacquireWaitGroup", GO_PC_PARKING },
	{ "sync.runtime_Semacquire", GO_PC_PARKING },
	{ "runtime.semacquire1", GO_PC_PARKING },
	{ "runtime.gopark", GO_PC_PARKING },
	{ "runtime.goparkunlock", GO_PC_PARKING },
	{ "runtime.chanrecv", GO_PC_PARKING },
	{ "runtime.chansend", GO_PC_PARKING },
	{ "runtime.runfinq", GO_PC_FINALIZER },
	{ "runtime.runFinalizers", GO_PC_FINALIZER },
	{ "runtime.runCleanups", GO_PC_FINALIZER },
};

/* Goroutines that run the program's own code begin in these, too (src/runtime/traceback.go,
 * isSystemGoroutine()). */
static bool starts_program(const char *name)
{
	return !strcmp(name, "runtime.main") || !strcmp(name, "runtime.handleAsyncEvent") ||
	       !strcmp(name, "runtime.corostart");
}

static uint32_t function_flags(const struct go_unwinder *u, const struct go_func *func,
			       const char *name)
{
	uint32_t flags = 0;

	for (size_t i = 0; i < ARRAY_SIZE(named_functions); i++)
		if (!strcmp(name, named_functions[i].name))
			flags |= named_functions[i].flags;
	/* Until 1.20 the runtime's own listings took only sigpanic for an interruption. */
	if (strcmp(name, "runtime.sigpanic") != 0 && !go_layout_since(u->layout, 21))
		flags &= ~(uint32_t)GO_PC_INTERRUPTS;
	if (func->flags & GO_FUNC_TOP)
		flags |= GO_PC_TOP;
	/* A callback from C writes sp but keeps the Go part of the stack whole. */
	if (func->flags & GO_FUNC_SP_WRITE && !text_begins(name, "runtime.cgocallback"))
		flags |= GO_PC_SP_WRITE;
	if (u->wrapper_id && func->id == u->wrapper_id)
		flags |= GO_PC_WRAPPER;
	if (text_begins(name, "runtime.") && !starts_program(name))
		flags |= GO_PC_RUNTIME;
	return flags;
}

static int load_pc(const struct go_unwinder *u, uint64_t pc, struct go_pc *ret)
{
	const struct go_table *table = &u->layout->table;
	struct go_pc info = { .pc = pc };
	char name[GO_NAME_MAX + 1];
	struct go_func func;
	int rc = go_table_find(table, pc, &func);

	if (rc == 0)
		rc = go_table_name(table, func.name, name, sizeof(name));
	if (rc == 0) {
		info.flags = GO_PC_IN_TABLE | function_flags(u, &func, name);
		if (pc == func.entry_va)
			info.flags |= GO_PC_ENTRY;
		/* Assembly without frame information has no rows: nothing outside it can be found.
		 */
		rc = go_table_value(table, &func, func.pcsp, pc, &info.delta);
		if (rc == -ENOENT || info.delta < 0)
			info.flags |= GO_PC_SP_WRITE;
	}
	if (rc == -ESRCH || rc == -EPERM)
		return rc;
	*ret = info;
	return 0;
}

int go_unwinder_pc(struct go_unwinder *u, uint64_t pc, struct go_pc *ret)
{
	struct go_pc *slot = &u->cache[(pc ^ pc >> 14) % PC_CACHE_ENTRIES];
	int rc;

	if (slot->pc != pc || !slot->flags) {
		rc = load_pc(u, pc, slot);
		if (rc < 0)
			return rc;
	}
	*ret = *slot;
	return 0;
}

/* ---- walking --------------------------------------------------------------------------------- */

static bool stack_word(const struct go_stack_view *stack, uint64_t va, uint64_t *ret)
{
	if (va < stack->sp || va - stack->sp > stack->len || stack->len - (va - stack->sp) < 8)
		return false;
	memcpy(ret, stack->data + (va - stack->sp), 8);
	return true;
}

/* Why a word could not be had: beyond the copy, or beyond the stack itself. */
static enum go_walk_end missing_word(const struct go_stack_view *stack, uint64_t va)
{
	return va >= stack->sp && va + 8 <= stack->high_va && va + 8 > stack->sp + stack->len
		       ? GO_WALK_SHORT
		       : GO_WALK_BROKEN;
}

static void walk_add(struct go_walk *walk, const struct go_pc *info, bool exact,
		     uint32_t callee_flags)
{
	walk->pcs[walk->count] = info->pc;
	walk->exact[walk->count] = exact;
	walk->flags[walk->count] = info->flags & GO_PC_WRAPPER && !(callee_flags & GO_PC_PANIC)
					   ? READ_FRAME_WRAPPER
					   : 0;
	walk->count++;
}

int go_unwinder_walk(struct go_unwinder *u, uint64_t pc, const struct go_stack_view *stack,
		     struct go_walk *ret)
{
	bool link_register = u->layout->image.machine == EM_AARCH64, exact = false;
	uint64_t sp = stack->sp, return_va;
	uint32_t callee_flags = 0;

	ret->count = 0;
	ret->lock_va = 0;
	ret->lock_wait = false;
	for (;;) {
		struct go_pc info;
		uint64_t frame_end;
		int rc = go_unwinder_pc(u, pc, &info);

		if (rc < 0)
			return rc;
		ret->end = GO_WALK_BROKEN;
		if (!(info.flags & GO_PC_IN_TABLE))
			return 0;
		if (ret->count == READ_FRAMES_MAX) {
			ret->end = GO_WALK_TRUNCATED;
			return 0;
		}
		walk_add(ret, &info, exact || (!ret->count && info.flags & GO_PC_ENTRY),
			 callee_flags);
		ret->lock_wait |= (info.flags & GO_PC_LOCK_WAIT) != 0;
		if (info.flags & GO_PC_TOP)
			ret->end = GO_WALK_COMPLETE;
		if (info.flags & (GO_PC_TOP | GO_PC_SP_WRITE))
			return 0;
		frame_end = sp + (uint64_t)info.delta;
		return_va = link_register ? sp : frame_end;
		if (!link_register)
			frame_end += 8;
		if (!stack_word(stack, return_va, &pc)) {
			ret->end = missing_word(stack, return_va);
			return 0;
		}
		if (info.flags & GO_PC_LOCK_SLOW && !ret->lock_va)
			(void)stack_word(stack, frame_end + (link_register ? 8 : 0), &ret->lock_va);
		/* Only an innermost frame may have no size, and then only with a link register. */
		if (frame_end <= sp)
			return 0;
		sp = frame_end;
		exact = info.flags & GO_PC_INTERRUPTS;
		callee_flags = info.flags;
	}
}
