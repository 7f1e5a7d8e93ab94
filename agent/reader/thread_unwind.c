// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/thread_unwind.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "agent/reader/call_site.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"

struct unwind_state;
static int walk_read(const struct unwind_state *at, void *dst, uint64_t len, uint64_t va);
static const uint32_t *table_element(const void *table, uint32_t index);

#define UNWIND_READ(dst, bytes, address) walk_read(at, dst, bytes, address)
#define UNWIND_ELEMENT(table, index)	 table_element(table, index)
#include "bpf/unwind_step.h"

#define GUESS_SPAN_BYTES     (64u << 10) /* how far up a saved frame pointer is looked for */
#define GUESS_TRIES	     64u
#define GUESS_FUNCTION_BYTES (256u << 10) /* from a function's entry to the pc in it */
#define GUESS_DEPTH	     3u		  /* frames that must make sense behind a guess */

struct walk {
	struct unwind_state state; /* first: walk_read() gets only this */
	struct answer *answer;
	struct row_tables *tables;
	const struct thread_stack *stack;
	const struct row_table *rows; /* of the frame that was left last; NULL = it has none */
	uint64_t bias;		      /* where its file is mapped: address - file offset */
	bool fp_known;
	bool guessed;
};

static int walk_read(const struct unwind_state *at, void *dst, uint64_t len, uint64_t va)
{
	const struct walk *walk = (const struct walk *)(const void *)at;
	const struct thread_stack *stack = walk->stack;

	if (va >= stack->sp && va - stack->sp <= stack->len &&
	    stack->len - (va - stack->sp) >= len) {
		memcpy(dst, stack->data + (va - stack->sp), len);
		return 0;
	}
	return stack->regs ? -EFAULT : target_read(walk->answer->target, va, dst, len);
}

static const uint32_t *table_element(const void *table, uint32_t index)
{
	const struct row_table *rows = table;

	if (index >= rows->bytes / UNWIND_ELEMENT_BYTES)
		return NULL;
	return (const uint32_t *)(const void *)((const char *)rows->image +
						(size_t)index * UNWIND_ELEMENT_BYTES);
}

/* The rule at the current pc. Complete = found, else why not. */
static enum prof_outcome walk_rule(struct walk *walk, struct unwind_rule *ret)
{
	const struct answer *answer = walk->answer;
	uint64_t va = walk->state.ip - (walk->state.is_return ? 1 : 0);
	const struct target_map *map = target_maps_find(answer->maps, va);
	const struct row_table *rows;
	struct unwind_table_head head;

	walk->rows = NULL;
	if (!map || !(map->prot & TARGET_MAP_EXEC))
		return OUTCOME_no_mapping;
	rows = row_tables_get(walk->tables, answer->target, answer->maps, map->module,
			      answer->deadline_ns);
	if (!rows)
		return OUTCOME_no_rows;
	walk->rows = rows;
	walk->bias = map->start_va - map->start_fo;
	memcpy(&head, rows->image, sizeof(head));
	if (unwind_find_rule(rows, &head, va - map->start_va + map->start_fo, ret) !=
	    UNWIND_STEPPED)
		return OUTCOME_no_row_for_pc;
	return OUTCOME_complete;
}

static bool rule_needs_fp(const struct unwind_rule *rule)
{
	return rule->cfa == UNWIND_CFA_FP || rule->cfa == UNWIND_CFA_DEREF_FP ||
	       rule->fp == UNWIND_FP_FROM_FP ||
	       ((rule->cfa == UNWIND_CFA_REG || rule->cfa == UNWIND_CFA_DEREF_REG) &&
		rule->cfa_reg == ARCH_REG_FP);
}

static int walk_step(struct walk *walk, const struct unwind_rule *rule)
{
	int rc = unwind_step(&walk->state, rule);

	if (rc != UNWIND_STEPPED)
		return rc;
	if (rule->cfa == UNWIND_CFA_SIGNAL)
		walk->fp_known = true;
	else if (rule->fp == UNWIND_FP_UNDEFINED)
		walk->fp_known = false;
	else if (rule->fp != UNWIND_FP_SAME)
		walk->fp_known = true;
	return rc;
}

/* ---- an unknown frame pointer ---------------------------------------------------------------- */

/* Does the walk from here on make sense for a few frames? @walk is a copy. */
static bool guess_holds(struct walk walk, const struct unwind_rule *first)
{
	struct unwind_rule rule = *first;

	walk.fp_known = true;
	for (unsigned depth = 0; depth < GUESS_DEPTH; depth++) {
		int rc = walk_step(&walk, &rule);

		if (rc == UNWIND_FINISHED)
			return true;
		if (rc != UNWIND_STEPPED || walk_rule(&walk, &rule) != OUTCOME_complete)
			return false;
		/* Its caller used the register for something else: nothing more can be said. */
		if (rule_needs_fp(&rule) && walk.state.fp < walk.state.sp)
			return false;
	}
	return true;
}

/* How well @return_va fits as the return address of the function around the current pc: 2 = its
 * call goes to just before the pc in the same file, 1 = a call that may have come here by a
 * register or a linkage table, 0 = no call, or one to somewhere else. */
static unsigned caller_fit(const struct walk *walk, uint64_t return_va)
{
	const struct target_maps *maps = walk->answer->maps;
	const struct target_map *from = target_maps_find(maps, return_va - 1);
	const struct target_map *here = target_maps_find(maps, walk->state.ip - 1);
	uint8_t before[CALL_SITE_BYTES];
	uint64_t target = 0;

	if (!from || !here || !(from->prot & TARGET_MAP_EXEC) ||
	    target_read(walk->answer->target, return_va - CALL_SITE_BYTES, before, sizeof(before)) <
		    0)
		return 0;
	switch (call_site_before(before, return_va, &target)) {
	case CALL_SITE_DIRECT:
		if (target_maps_find(maps, target) == here)
			return target <= walk->state.ip &&
					       walk->state.ip - target < GUESS_FUNCTION_BYTES
				       ? 2
				       : 0;
		return from->module != here->module;
	case CALL_SITE_INDIRECT:
		return 1;
	default:
		return 0;
	}
}

/* Finds the frame pointer of a function whose rule needs it: the first stack address above sp from
 * which the rules lead on through return addresses, at best one whose call leads here. Leftovers of
 * earlier calls may look like that: a guess. */
static bool guess_fp(struct walk *walk, const struct unwind_rule *rule)
{
	uint64_t start = (walk->state.sp + 7) & ~(uint64_t)7;
	uint64_t to_return = (uint64_t)(int64_t)(rule->cfa_offset + rule->ra_offset);

	if (rule->cfa != UNWIND_CFA_FP)
		return false;
	for (unsigned fit = 2; fit > 0; fit--) {
		unsigned tries = 0;

		for (uint64_t fp = start; fp < start + GUESS_SPAN_BYTES && tries < GUESS_TRIES;
		     fp += 8) {
			struct walk tried = *walk;
			uint64_t return_va;

			if (walk_read(&walk->state, &return_va, 8, fp + to_return))
				break;
			if (caller_fit(walk, return_va) < fit)
				continue;
			tries++;
			tried.state.fp = fp;
			if (guess_holds(tried, rule)) {
				walk->state.fp = fp;
				walk->fp_known = walk->guessed = true;
				return true;
			}
		}
	}
	return false;
}

/* ---- walking --------------------------------------------------------------------------------- */

static enum prof_outcome step_outcome(int result)
{
	switch (result) {
	case UNWIND_FINISHED:
		return OUTCOME_complete;
	case UNWIND_FAULT:
		return OUTCOME_user_read_fault;
	case UNWIND_UNSUPPORTED:
		return OUTCOME_unsupported_rule;
	case UNWIND_NO_PROGRESS:
		return OUTCOME_no_progress;
	default:
		return OUTCOME_no_row_for_pc;
	}
}

static enum prof_outcome walk_on(struct walk *walk, bool *ret_ended)
{
	struct unwind_rule rule;
	enum prof_outcome outcome = walk_rule(walk, &rule);
	int rc;

	*ret_ended = true;
	if (outcome != OUTCOME_complete)
		return outcome;
	if (rule_needs_fp(&rule) && !walk->fp_known && !guess_fp(walk, &rule))
		return OUTCOME_no_user_regs;
	rc = walk_step(walk, &rule);
	*ret_ended = rc != UNWIND_STEPPED;
	return step_outcome(rc);
}

/* The outcome of a whole walk: what is missing of Python counts where nothing else does. */
static uint8_t outcome_of(const struct walk *walk, uint8_t native, uint8_t python)
{
	if (native != OUTCOME_complete)
		return native;
	return python != OUTCOME_complete ? python
	       : walk->guessed		  ? OUTCOME_guessed
					  : OUTCOME_complete;
}

void thread_unwind(struct answer *answer, struct row_tables *tables, struct thread_python *python,
		   uint32_t tid, uint64_t pc, const struct thread_stack *stack,
		   struct thread_frames *ret)
{
	struct walk walk = { .state = { .ip = pc, .sp = stack->sp },
			     .answer = answer,
			     .tables = tables,
			     .stack = stack };
	uint8_t script = OUTCOME_complete, lacking = OUTCOME_complete;
	bool ended = false;

	thread_python_begin(python, tid, !stack->regs);
	if (stack->regs) {
		memcpy(walk.state.regs, stack->regs, sizeof(walk.state.regs));
		walk.state.regs_known = 1;
		walk.state.fp = stack->regs[ARCH_REG_FP];
		walk.fp_known = true;
	}
	ret->count = 0;
	ret->outcome = OUTCOME_complete;
	while (!ended) {
		uint64_t flags = (walk.state.is_return ? PROF_FRAME_RETURN : 0) |
				 (walk.guessed ? PROF_FRAME_GUESSED : 0);

		uint64_t va = walk.state.ip - !!walk.state.is_return, low = walk.state.sp;

		if (ret->count == READ_FRAMES_MAX || script == OUTCOME_truncated) {
			ret->count = thread_python_name(python, ret->words, ret->count);
			ret->words[ret->count++] = (uint64_t)PROF_FRAME_TRUNCATED
						   << PROF_FRAME_KIND_SHIFT;
			ret->outcome = OUTCOME_truncated;
			return;
		}
		ret->words[ret->count++] = answer_frame(answer, walk.state.ip, flags);
		ret->outcome = (uint8_t)walk_on(&walk, &ended);
		if (!ended)
			ret->outcome = OUTCOME_complete;
		if (!ended && walk.rows && script != OUTCOME_truncated)
			script = thread_python_add(python, walk.rows, walk.bias, va,
						   flags & PROF_FRAME_RETURN, walk.state.regs, low, walk.state.sp,
						   ret->words, READ_FRAMES_MAX, &ret->count);
		if (script != OUTCOME_complete)
			lacking = script;
	}
	ret->count = thread_python_name(python, ret->words, ret->count);
	ret->outcome = outcome_of(&walk, ret->outcome, lacking);
}
