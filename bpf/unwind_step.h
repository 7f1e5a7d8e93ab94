/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One step of unwinding, and the search for its rule: pure code, compiled for BPF and for the host
 * (unit tests, fuzzing, replay). The includer defines before including:
 *
 *   UNWIND_READ(dst, bytes, address)  copies bytes of the target's memory; 0, or non-zero if it
 * cannot UNWIND_ELEMENT(table, index)      const uint32_t *: the 4 words of a table's element, NULL
 * if outside
 *
 * A step turns the registers of one frame into those of its caller. sp and fp are followed through
 * every frame; other registers only where they are known: in the innermost frame (from the
 * interrupt) and below a signal frame (from the context that the kernel saved). A third one is
 * followed through frames whose rules say where it is saved; its word is read only if a CFA needs
 * it. */
#ifndef PROFD_BPF_UNWIND_STEP_H
#define PROFD_BPF_UNWIND_STEP_H

#include "bpf/arch.h"
#include "bpf/unwind_table.h"

#ifdef __bpf__
#define UNWIND_INLINE static __always_inline
#else
#define UNWIND_INLINE static inline __attribute__((unused))
#endif

enum unwind_result {
	UNWIND_STEPPED = 0,
	UNWIND_FINISHED,    /* that was the outermost frame */
	UNWIND_FAULT,	    /* a word of the stack could not be read */
	UNWIND_UNSUPPORTED, /* the rule needs what is not followed */
	UNWIND_NO_PROGRESS, /* the caller's frame would not be further up the stack */
	UNWIND_NO_RULE,
};

/* The longest frame that an unproven frame-pointer step believes: the default stack limit. */
#define UNWIND_GUESS_SPAN_BYTES (8ull << 20)

struct unwind_state {
	uint64_t ip;
	uint64_t sp;
	uint64_t fp;
	uint64_t context_at; /* user address of the saved registers of this frame, 0 = none */
	uint64_t regs[ARCH_REG_COUNT];
	uint32_t regs_known; /* regs[] are this frame's */
	uint32_t is_return;  /* 1: ip is a return address, and the call is before it; else 0 */
	uint64_t third;	     /* the third register's value, or where it is saved */
	uint32_t third_is;   /* enum unwind_third_is */
	uint32_t sp_is_bound; /* with a link register: sp is known to be at least so far up */
	uint64_t unread;     /* after UNWIND_FAULT: address of what could not be read */
};

enum unwind_third_is {
	UNWIND_THIRD_UNKNOWN,
	UNWIND_THIRD_VALUE,
	UNWIND_THIRD_SAVED,
};

UNWIND_INLINE int unwind_read(struct unwind_state *at, void *dst, uint32_t bytes, uint64_t address)
{
	if (!UNWIND_READ(dst, bytes, address))
		return UNWIND_STEPPED;
	at->unread = address;
	return UNWIND_FAULT;
}

UNWIND_INLINE int unwind_register(struct unwind_state *at, uint32_t reg, uint64_t *ret)
{
	if (reg == ARCH_REG_SP)
		*ret = at->sp;
	else if (reg == ARCH_REG_FP)
		*ret = at->fp;
	else if (reg < ARCH_REG_COUNT && at->regs_known)
		*ret = at->regs[reg & (ARCH_REG_COUNT - 1)];
	else if (reg == ARCH_REG_THIRD && at->third_is == UNWIND_THIRD_VALUE)
		*ret = at->third;
	else if (reg == ARCH_REG_THIRD && at->third_is == UNWIND_THIRD_SAVED)
		return unwind_read(at, ret, 8, at->third);
	else if (reg < ARCH_REG_COUNT && at->context_at)
		return unwind_read(at, ret, 8, at->context_at + arch_context_offset(reg));
	else
		return UNWIND_UNSUPPORTED;
	return UNWIND_STEPPED;
}

/* All registers come from the context that the kernel saved above the trampoline's frame. The
 * interrupted pc is exact. The interrupted stack may be another one (sigaltstack), so progress up
 * the stack cannot be asked for; the limit on frames ends a loop. */
UNWIND_INLINE int unwind_step_signal(struct unwind_state *at)
{
	uint64_t context = at->sp + ARCH_SIGNAL_CONTEXT;
	uint64_t pair[2]; /* sp, ip */
	uint64_t fp;

	if (ARCH_LINK_REGISTER && at->sp_is_bound)
		return UNWIND_UNSUPPORTED;
	_Static_assert(ARCH_CONTEXT_IP == ARCH_CONTEXT_SP + 8, "one read for both");
	if (unwind_read(at, pair, 16, context + ARCH_CONTEXT_SP) ||
	    unwind_read(at, &fp, 8, context + ARCH_CONTEXT_FP))
		return UNWIND_FAULT;
	if (!pair[1])
		return UNWIND_FINISHED;
	at->sp = pair[0];
	at->ip = pair[1];
	at->fp = fp;
	at->context_at = context;
	at->regs_known = 0;
	at->is_return = 0;
	at->third_is = UNWIND_THIRD_UNKNOWN;
	return UNWIND_STEPPED;
}

UNWIND_INLINE void unwind_to_caller(struct unwind_state *at, uint64_t cfa, uint64_t ip, uint64_t fp)
{
	at->sp = cfa;
	at->ip = arch_return_address(ip);
	at->fp = fp;
	at->context_at = 0;
	at->regs_known = 0;
	at->is_return = 1;
	if (ARCH_LINK_REGISTER)
		at->sp_is_bound = 0;
}

/* UNWIND_STEPPED: the frame pointer may be one. */
UNWIND_INLINE int unwind_check_fp(const struct unwind_state *at)
{
	uint64_t fp = at->fp;

	if (!fp)
		return UNWIND_FINISHED;
	if (fp + ARCH_BELOW_SP < at->sp || fp + ARCH_BELOW_SP - at->sp > UNWIND_GUESS_SPAN_BYTES ||
	    fp & 7 || fp >= ARCH_USER_END)
		return UNWIND_NO_PROGRESS;
	return UNWIND_STEPPED;
}

/* The same step where the caller's fp and the return address, in @pair, were read. */
UNWIND_INLINE int unwind_step_fp_pair(struct unwind_state *at, const uint64_t pair[2])
{
	if (!pair[1])
		return UNWIND_FINISHED;
	unwind_to_caller(at, at->fp + 16, pair[1], pair[0]);
	at->third_is = UNWIND_THIRD_UNKNOWN;
	if (ARCH_LINK_REGISTER)
		at->sp_is_bound = 1;
	return UNWIND_STEPPED;
}

/* The step of code that keeps frame pointers: caller's fp at fp, return address above it. */
UNWIND_INLINE int unwind_step_fp(struct unwind_state *at)
{
	uint64_t pair[2]; /* fp, return address */
	int rc = unwind_check_fp(at);

	if (rc)
		return rc;
	if (unwind_read(at, pair, 16, at->fp))
		return UNWIND_FAULT;
	return unwind_step_fp_pair(at, pair);
}

/* The step from a return address whose @code is known to do nothing more than return.
 * UNWIND_NO_RULE: it does more. */
UNWIND_INLINE int unwind_step_return(struct unwind_state *at, const uint8_t code[16])
{
	uint64_t pair[2]; /* fp, return address */
	uint32_t skip;
	bool pops_fp;

	if (!arch_is_return(code, &skip, &pops_fp))
		return UNWIND_NO_RULE;
	pair[0] = at->fp;
	if (ARCH_LINK_REGISTER && at->sp_is_bound)
		return UNWIND_NO_RULE;
	if (pops_fp ? unwind_read(at, pair, 16, at->sp + skip)
		    : unwind_read(at, &pair[1], 8, at->sp + skip))
		return UNWIND_FAULT;
	if (!pair[1])
		return UNWIND_FINISHED;
	unwind_to_caller(at, at->sp + skip + (pops_fp ? 16 : 8), pair[1], pair[0]);
	at->third_is = UNWIND_THIRD_UNKNOWN;
	return UNWIND_STEPPED;
}

/* The step from code without a frame of its own: @pushed words lie below the return address. */
UNWIND_INLINE int unwind_step_frameless(struct unwind_state *at, uint32_t pushed)
{
	uint64_t sp = at->sp + pushed * 8, ip;

	if (ARCH_LINK_REGISTER ? unwind_register(at, ARCH_REG_RA, &ip)
			       : unwind_read(at, &ip, sizeof(ip), sp))
		return UNWIND_FAULT;
	if (!ip)
		return UNWIND_FINISHED;
	unwind_to_caller(at, sp + ARCH_CALL_PUSHES, ip, at->fp);
	at->third_is = UNWIND_THIRD_UNKNOWN;
	return UNWIND_STEPPED;
}

UNWIND_INLINE bool unwind_needs_sp(const struct unwind_rule *rule)
{
	return rule->cfa == UNWIND_CFA_SP || rule->cfa == UNWIND_CFA_DEREF_SP ||
	       rule->cfa == UNWIND_CFA_PLT || rule->cfa == UNWIND_CFA_DEREF_INDEXED ||
	       rule->fp == UNWIND_FP_FROM_SP;
}

UNWIND_INLINE int unwind_cfa(struct unwind_state *at, const struct unwind_rule *rule,
			     uint64_t *ret)
{
	uint64_t base = at->sp;
	uint32_t reg = rule->flags & UNWIND_RULE_THIRD ? rule->cfa_reg & 15 : rule->cfa_reg;
	int rc;

	if (ARCH_LINK_REGISTER && at->sp_is_bound && unwind_needs_sp(rule)) {
		/* The frame pointer of a frame that was reached by a frame record points to its own. */
		if (rule->cfa != UNWIND_CFA_SP || rule->fp != UNWIND_FP_CFA)
			return UNWIND_UNSUPPORTED;
		*ret = at->fp - (uint64_t)(int64_t)rule->fp_offset;
		return UNWIND_STEPPED;
	}
	if (rule->cfa == UNWIND_CFA_PLT) {
		*ret = at->sp + 8 + ((int16_t)(at->ip & 15) >= rule->cfa_deref ? 8 : 0);
		return UNWIND_STEPPED;
	}
	if (rule->cfa == UNWIND_CFA_FP || rule->cfa == UNWIND_CFA_DEREF_FP) {
		base = at->fp;
	} else if (rule->cfa == UNWIND_CFA_REG || rule->cfa == UNWIND_CFA_DEREF_REG ||
		   rule->cfa == UNWIND_CFA_DEREF_INDEXED) {
		rc = unwind_register(at, reg, &base);
		if (rc)
			return rc;
		if (rule->cfa == UNWIND_CFA_DEREF_INDEXED)
			base = at->sp + 8 * base;
	} else if (rule->cfa != UNWIND_CFA_SP && rule->cfa != UNWIND_CFA_DEREF_SP) {
		return UNWIND_UNSUPPORTED;
	}
	if (rule->cfa >= UNWIND_CFA_DEREF_SP &&
	    unwind_read(at, &base, 8, base + (uint64_t)(int64_t)rule->cfa_deref))
		return UNWIND_FAULT;
	*ret = base + (uint64_t)(int64_t)rule->cfa_offset;
	return UNWIND_STEPPED;
}

UNWIND_INLINE int unwind_saved_fp(struct unwind_state *at, const struct unwind_rule *rule,
				  uint64_t cfa, uint64_t *ret)
{
	uint64_t base = cfa;

	switch (rule->fp) {
	case UNWIND_FP_SAME:
		*ret = at->fp;
		return UNWIND_STEPPED;
	case UNWIND_FP_UNDEFINED:
		*ret = 0;
		return UNWIND_STEPPED;
	case UNWIND_FP_REG:
		*ret = at->regs[rule->fp_offset & (ARCH_REG_COUNT - 1)];
		return at->regs_known ? UNWIND_STEPPED : UNWIND_UNSUPPORTED;
	case UNWIND_FP_CFA:
		break;
	case UNWIND_FP_FROM_SP:
		base = at->sp;
		break;
	case UNWIND_FP_FROM_FP:
		base = at->fp;
		break;
	default:
		return UNWIND_UNSUPPORTED;
	}
	return unwind_read(at, ret, 8, base + (uint64_t)(int64_t)rule->fp_offset);
}

UNWIND_INLINE int64_t unwind_ra_offset(const struct unwind_rule *rule)
{
	return (int64_t)rule->ra_offset * ARCH_RA_UNIT;
}

UNWIND_INLINE int unwind_return_address(struct unwind_state *at, const struct unwind_rule *rule,
					uint64_t cfa, uint64_t *ret)
{
	if (ARCH_LINK_REGISTER && rule->flags & UNWIND_RULE_RA_REG)
		return unwind_register(at, rule->ra_offset & (ARCH_REG_COUNT - 1), ret);
	if (rule->flags & UNWIND_RULE_RA_REG) {
		*ret = at->regs[rule->ra_offset & (ARCH_REG_COUNT - 1)];
		return at->regs_known ? UNWIND_STEPPED : UNWIND_UNSUPPORTED;
	}
	return unwind_read(at, ret, 8, cfa + (uint64_t)unwind_ra_offset(rule));
}

/* Finds the caller's third register; to be called before the other registers change. */
UNWIND_INLINE void unwind_follow_third(struct unwind_state *at, const struct unwind_rule *rule,
				       uint64_t cfa)
{
	uint32_t where = rule->cfa_reg >> 4;

	if (!(rule->flags & UNWIND_RULE_THIRD) || where == UNWIND_THIRD_LOST) {
		at->third_is = UNWIND_THIRD_UNKNOWN;
	} else if (where != UNWIND_THIRD_SAME) {
		at->third = cfa - 8 * where;
		at->third_is = UNWIND_THIRD_SAVED;
	} else if (at->regs_known) {
		at->third = at->regs[ARCH_REG_THIRD];
		at->third_is = UNWIND_THIRD_VALUE;
	} else if (at->context_at) {
		at->third = at->context_at + arch_context_offset(ARCH_REG_THIRD);
		at->third_is = UNWIND_THIRD_SAVED;
	}
}

/* The caller's registers by @rule. But for @at->unread @at is unchanged unless the result is
 * UNWIND_STEPPED. */
UNWIND_INLINE int unwind_step(struct unwind_state *at, const struct unwind_rule *rule)
{
	uint64_t pair[2] = { 0, 0 }; /* fp, return address */
	uint64_t cfa;
	int rc;

	if (rule->cfa == UNWIND_CFA_END)
		return UNWIND_FINISHED;
	if (rule->cfa == UNWIND_CFA_SIGNAL)
		return unwind_step_signal(at);
	if (rule->cfa == UNWIND_CFA_NONE)
		return UNWIND_NO_RULE;
	rc = unwind_cfa(at, rule, &cfa);
	if (rc)
		return rc;
	if ((cfa <= at->sp && !(rule->flags & UNWIND_RULE_SWITCH)) || cfa >= ARCH_USER_END)
		return UNWIND_NO_PROGRESS;
	if (rule->fp == UNWIND_FP_CFA && rule->fp_offset == unwind_ra_offset(rule) - 8) {
		/* a frame record: both words with one read */
		if (unwind_read(at, pair, 16, cfa + (uint64_t)(int64_t)rule->fp_offset))
			return UNWIND_FAULT;
	} else {
		rc = unwind_return_address(at, rule, cfa, &pair[1]);
		if (rc)
			return rc;
		rc = unwind_saved_fp(at, rule, cfa, &pair[0]);
		if (rc)
			return rc;
	}
	if (!pair[1])
		return UNWIND_FINISHED;
	unwind_follow_third(at, rule, cfa);
	if (rule->flags & UNWIND_RULE_SP_SAVED &&
	    unwind_read(at, &cfa, 8, cfa + (uint64_t)unwind_ra_offset(rule) - 8))
		return UNWIND_FAULT;
	unwind_to_caller(at, cfa, pair[1], pair[0]);
	if (rule->flags & UNWIND_RULE_SIGNAL)
		at->is_return = 0;
	return UNWIND_STEPPED;
}

/* Searches the rule in force at file offset @fo. @head is the table's own, already read.
 * UNWIND_STEPPED with a copy in @ret, else UNWIND_NO_RULE. */
UNWIND_INLINE int unwind_find_rule(const void *table, const struct unwind_table_head *head,
				   uint64_t fo, struct unwind_rule *ret)
{
	uint64_t page = (fo >> UNWIND_PAGE_SHIFT) - head->first_page;
	uint32_t offset = (uint32_t)fo & (UNWIND_PAGE_BYTES - 1);
	uint32_t at, count, word;
	const uint32_t *element;

	if (page >= head->page_count)
		return UNWIND_NO_RULE;
	element = UNWIND_ELEMENT(table, UNWIND_DIR_AT + (uint32_t)(page >> 1));
	if (!element)
		return UNWIND_NO_RULE;
	at = element[(page & 1) * 2];
	count = element[(page & 1) * 2 + 1];
	if (!count)
		return UNWIND_NO_RULE;
	/* Row at is in force at the offset or before it; the answer is among the count rows from
	 * it. */
	for (uint32_t step = 0; step < UNWIND_SEARCH_STEPS && count > 1; step++) {
		uint32_t half = count >> 1;
		uint32_t middle = at + half;

		element = UNWIND_ELEMENT(table, head->rows_at + (middle >> 2));
		if (!element)
			return UNWIND_NO_RULE;
		if ((element[middle & 3] & 0xffff) <= offset) {
			at = middle;
			count -= half;
		} else {
			count = half;
		}
	}
	element = UNWIND_ELEMENT(table, head->rows_at + (at >> 2));
	if (!element)
		return UNWIND_NO_RULE;
	word = element[at & 3] >> 16;
	if (!word || word >= head->rule_count)
		return UNWIND_NO_RULE;
	element = UNWIND_ELEMENT(table, head->rules_at + word);
	if (!element)
		return UNWIND_NO_RULE;
	*ret = *(const struct unwind_rule *)(const void *)element;
	return ret->cfa == UNWIND_CFA_NONE ? UNWIND_NO_RULE : UNWIND_STEPPED;
}

#endif
