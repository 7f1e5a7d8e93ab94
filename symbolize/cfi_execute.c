// SPDX-License-Identifier: Apache-2.0
/* Call frame instructions (DWARF 5 section 6.4.2, GNU extensions of binutils). Only three registers
 * are followed: the caller's stack pointer, frame pointer and return address, and in few files the
 * architecture's third register; the rest is read over. */
#include <dwarf.h>
#include <errno.h>
#include <string.h>

#include "symbolize/cfi_internal.h"

#define OPERAND_MASK 0x3f
#define CFA_AARCH64_NEGATE_RA_STATE_WITH_PC 0x2c /* AADWARF64, 2024Q3 */

struct machine {
	const struct cfi_arch *arch;
	const struct cfi_cie *cie;
	struct cfi_builder *out; /* NULL while a CIE's own instructions run */
	struct bytes insns;
	struct cfi_state state;
	struct cfi_state remembered[CFI_REMEMBER_MAX];
	unsigned remembered_count;
	struct cfi_set *set; /* for addresses in instructions; NULL with out */
	uint32_t fo;	     /* where the state begins to be in force */
	uint32_t end_fo;
	bool changed;	     /* since the last row */
	bool failed;	     /* instructions are damaged: the rest of the range has no rule */
};

/* ---- state -> rule --------------------------------------------------------------------------- */

static void rule_unsupported(struct unwind_rule *rule)
{
	*rule = (struct unwind_rule){ .cfa = UNWIND_CFA_UNSUPPORTED };
}

static bool fits_i16(int64_t value)
{
	return value >= INT16_MIN && value <= INT16_MAX;
}

static bool fits_i32(int64_t value)
{
	return value >= INT32_MIN && value <= INT32_MAX;
}

/* glibc's and the kernel's signal return describe the saved registers word by word. */
static bool state_is_signal(const struct cfi_arch *arch, const struct cfi_state *s)
{
	return arch->signal_cfa_at && s->cfa == CFI_CFA_DEREF && s->cfa_reg == arch->sp &&
	       s->cfa_deref == arch->signal_cfa_at && !s->cfa_offset &&
	       s->ra.how == CFI_HOW_AT_SP && s->ra.offset == arch->signal_ra_at;
}

static bool cfa_to_rule(const struct cfi_arch *arch, const struct cfi_state *s,
			struct unwind_rule *rule)
{
	if (s->cfa == CFI_CFA_PLT) {
		rule->cfa = UNWIND_CFA_PLT;
		rule->cfa_deref = (int16_t)s->cfa_deref;
		return true;
	}
	if ((s->cfa != CFI_CFA_REG && s->cfa != CFI_CFA_DEREF && s->cfa != CFI_CFA_DEREF_INDEXED) ||
	    s->cfa_reg > UINT8_MAX || !fits_i32(s->cfa_offset) || !fits_i16(s->cfa_deref))
		return false;
	if (s->cfa == CFI_CFA_DEREF_INDEXED)
		rule->cfa = UNWIND_CFA_DEREF_INDEXED;
	else if (s->cfa_reg == arch->sp)
		rule->cfa = s->cfa == CFI_CFA_REG ? UNWIND_CFA_SP : UNWIND_CFA_DEREF_SP;
	else if (s->cfa_reg == arch->fp)
		rule->cfa = s->cfa == CFI_CFA_REG ? UNWIND_CFA_FP : UNWIND_CFA_DEREF_FP;
	else
		rule->cfa = s->cfa == CFI_CFA_REG ? UNWIND_CFA_REG : UNWIND_CFA_DEREF_REG;
	if (rule->cfa == UNWIND_CFA_REG || rule->cfa == UNWIND_CFA_DEREF_REG ||
	    rule->cfa == UNWIND_CFA_DEREF_INDEXED)
		rule->cfa_reg = (uint8_t)s->cfa_reg;
	rule->cfa_offset = (int32_t)s->cfa_offset;
	if (s->cfa != CFI_CFA_REG)
		rule->cfa_deref = (int16_t)s->cfa_deref;
	return true;
}

static void fp_to_rule(const struct cfi_register *fp, struct unwind_rule *rule)
{
	static const uint8_t by_how[] = {
		[CFI_HOW_UNSET] = UNWIND_FP_SAME,     [CFI_HOW_SAME] = UNWIND_FP_SAME,
		[CFI_HOW_UNDEFINED] = UNWIND_FP_UNDEFINED, [CFI_HOW_AT_CFA] = UNWIND_FP_CFA,
		[CFI_HOW_AT_SP] = UNWIND_FP_FROM_SP,  [CFI_HOW_AT_FP] = UNWIND_FP_FROM_FP,
		[CFI_HOW_CFA] = UNWIND_FP_UNDEFINED,  [CFI_HOW_OTHER] = UNWIND_FP_UNDEFINED,
		[CFI_HOW_IN_REG] = UNWIND_FP_REG,
	};

	rule->fp = by_how[fp->how];
	if (rule->fp == UNWIND_FP_SAME || rule->fp == UNWIND_FP_UNDEFINED)
		return;
	if (fits_i32(fp->offset))
		rule->fp_offset = (int32_t)fp->offset;
	else
		rule->fp = UNWIND_FP_UNDEFINED;
}

static void third_to_rule(const struct machine *m, struct unwind_rule *rule)
{
	const struct cfi_register *third = &m->state.third;
	uint8_t where = UNWIND_THIRD_LOST;
	bool by_register = rule->cfa == UNWIND_CFA_REG || rule->cfa == UNWIND_CFA_DEREF_REG;

	if (by_register && rule->cfa_reg == m->arch->third)
		m->set->third_is_needed = true;
	if (!m->set->third_is_followed || rule->cfa_reg > 15)
		return;
	if (third->how == CFI_HOW_UNSET || third->how == CFI_HOW_SAME)
		where = UNWIND_THIRD_SAME;
	else if (third->how == CFI_HOW_AT_CFA && third->offset <= -16 && third->offset >= -120 &&
		 third->offset % 8 == 0)
		where = (uint8_t)(-third->offset / 8);
	rule->cfa_reg |= (uint8_t)(where << 4);
	rule->flags |= UNWIND_RULE_THIRD;
}

/* The caller's sp is the CFA but where it is loaded: setcontext() has it saved below the return
 * address, longjmp() in a register, and the return address in another. False: some other stack
 * switch, which is beyond us. */
static bool sp_to_rule(const struct cfi_state *s, struct unwind_rule *rule)
{
	if (s->sp.how == CFI_HOW_UNSET || (s->sp.how == CFI_HOW_CFA && !s->sp.offset))
		return true;
	rule->flags |= UNWIND_RULE_SWITCH;
	if (s->sp.how == CFI_HOW_AT_CFA && s->ra.how == CFI_HOW_AT_CFA &&
	    s->sp.offset == s->ra.offset - 8) {
		rule->flags |= UNWIND_RULE_SP_SAVED;
		return true;
	}
	if (s->sp.how != CFI_HOW_IN_REG || s->ra.how != CFI_HOW_IN_REG || s->fp.how == CFI_HOW_AT_CFA)
		return false;
	rule->cfa = UNWIND_CFA_REG;
	rule->cfa_reg = (uint8_t)s->sp.offset;
	rule->cfa_offset = 0;
	rule->cfa_deref = 0;
	return true;
}

static bool ra_to_rule(const struct cfi_arch *arch, const struct cfi_register *ra,
		       struct unwind_rule *rule)
{
	int64_t offset = ra->offset;

	if (arch->has_link && (ra->how == CFI_HOW_UNSET || ra->how == CFI_HOW_SAME))
		offset = arch->ra;
	else if (ra->how == CFI_HOW_AT_CFA && offset % arch->ra_unit == 0)
		offset /= arch->ra_unit;
	else if (ra->how != CFI_HOW_IN_REG)
		return false;
	if (ra->how != CFI_HOW_AT_CFA)
		rule->flags |= UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH; /* nothing may be on the stack */
	rule->ra_offset = (int16_t)offset;
	return fits_i16(offset);
}

/* Unused fields stay 0: equal rules must be equal bytes. */
static void state_to_rule(const struct machine *m, struct unwind_rule *rule)
{
	const struct cfi_state *s = &m->state;

	*rule = (struct unwind_rule){ 0 };
	if (s->ra.how == CFI_HOW_UNDEFINED) {
		rule->cfa = UNWIND_CFA_END;
		return;
	}
	if (m->cie->signal)
		rule->flags = UNWIND_RULE_SIGNAL;
	if (m->cie->signal && state_is_signal(m->arch, s)) {
		rule->cfa = UNWIND_CFA_SIGNAL;
		return;
	}
	if (!ra_to_rule(m->arch, &s->ra, rule) || !cfa_to_rule(m->arch, s, rule) || !sp_to_rule(s, rule)) {
		rule_unsupported(rule);
		return;
	}
	fp_to_rule(&s->fp, rule);
	third_to_rule(m, rule);
}

static int emit(struct machine *m)
{
	struct unwind_rule rule;

	if (!m->out || !m->changed)
		return 0;
	m->changed = false;
	if (m->failed)
		rule_unsupported(&rule);
	else
		state_to_rule(m, &rule);
	return cfi_builder_row(m->out, m->fo, &rule);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static struct cfi_register *tracked(struct machine *m, uint64_t reg)
{
	if (reg == m->arch->fp)
		return &m->state.fp;
	if (reg == m->arch->ra)
		return &m->state.ra;
	if (reg == m->arch->sp)
		return &m->state.sp;
	/* a CIE's own instructions run once for both */
	if (reg == m->arch->third && (!m->set || m->set->third_is_followed))
		return &m->state.third;
	return NULL;
}

static void set_register(struct machine *m, uint64_t reg, enum cfi_how how, int64_t offset)
{
	struct cfi_register *r = tracked(m, reg);

	if (!r)
		return;
	*r = (struct cfi_register){ .offset = offset, .how = (uint8_t)how };
	m->changed = true;
}

static void set_in_register(struct machine *m, uint64_t reg, uint64_t in)
{
	bool known = in < m->arch->general_end && in != m->arch->sp && in != m->arch->fp;

	set_register(m, reg, known ? CFI_HOW_IN_REG : CFI_HOW_OTHER, known ? (int64_t)in : 0);
}

/* Factored offsets: overflow can only come from a hostile file. */
static int64_t factored(struct machine *m, int64_t value)
{
	int64_t product = 0;

	if (__builtin_mul_overflow(value, m->cie->data_align, &product))
		m->failed = true;
	return product;
}

static void restore_register(struct machine *m, uint64_t reg)
{
	const struct cfi_state *initial = &m->cie->initial;

	if (reg == m->arch->fp)
		m->state.fp = initial->fp;
	else if (reg == m->arch->ra)
		m->state.ra = initial->ra;
	else if (reg == m->arch->sp)
		m->state.sp = initial->sp;
	else if (reg == m->arch->third)
		m->state.third = initial->third;
	m->changed = true;
}

static void set_cfa(struct machine *m, uint64_t reg, int64_t offset)
{
	m->state.cfa = CFI_CFA_REG;
	m->state.cfa_reg = reg > UINT8_MAX ? UINT32_MAX : (uint32_t)reg;
	m->state.cfa_offset = offset;
	m->state.cfa_deref = 0;
	m->changed = true;
}

/* def_cfa_offset and def_cfa_register change half of a rule: only a register rule has halves. */
static void set_cfa_offset(struct machine *m, int64_t offset)
{
	if (m->state.cfa != CFI_CFA_REG)
		m->state.cfa = CFI_CFA_OTHER;
	m->state.cfa_offset = offset;
	m->changed = true;
}

static void set_cfa_register(struct machine *m, uint64_t reg)
{
	if (m->state.cfa != CFI_CFA_REG)
		m->state.cfa = CFI_CFA_OTHER;
	m->state.cfa_reg = reg > UINT8_MAX ? UINT32_MAX : (uint32_t)reg;
	m->changed = true;
}

static struct bytes take_block(struct machine *m)
{
	uint64_t len = bytes_varint(&m->insns);
	const void *at = bytes_take(&m->insns, len);

	return at ? bytes_of(at, len) : bytes_of(NULL, 0);
}

static void set_cfa_expression(struct machine *m)
{
	struct bytes expr = take_block(m);
	struct unwind_rule plt;
	struct cfi_expression e;

	m->changed = true;
	if (m->arch->plt_expression(expr, &plt)) {
		m->state.cfa = CFI_CFA_PLT;
		m->state.cfa_deref = plt.cfa_deref;
		m->state.cfa_offset = 0;
		return;
	}
	e = cfi_expression_read(expr, false);
	m->state.cfa_reg = e.value == CFI_VALUE_DEREF_INDEXED ? e.index : e.reg;
	m->state.cfa_offset = e.offset;
	m->state.cfa_deref = e.deref;
	m->state.cfa = e.value == CFI_VALUE_REG	  ? CFI_CFA_REG :
		       e.value == CFI_VALUE_DEREF ? CFI_CFA_DEREF :
		       e.value == CFI_VALUE_DEREF_INDEXED && e.reg == m->arch->sp ?
						    CFI_CFA_DEREF_INDEXED :
						    CFI_CFA_OTHER;
}

/* DW_CFA_expression: the register was saved at the address that the expression gives. */
static void set_register_expression(struct machine *m, bool is_value)
{
	uint64_t reg = bytes_varint(&m->insns);
	struct bytes expr = take_block(m);
	struct cfi_expression e;

	if (!tracked(m, reg))
		return;
	e = cfi_expression_read(expr, true);
	if (e.value == CFI_VALUE_CFA)
		set_register(m, reg, is_value ? CFI_HOW_CFA : CFI_HOW_AT_CFA, e.offset);
	else if (!is_value && e.value == CFI_VALUE_REG && e.reg == m->arch->sp)
		set_register(m, reg, CFI_HOW_AT_SP, e.offset);
	else if (!is_value && e.value == CFI_VALUE_REG && e.reg == m->arch->fp)
		set_register(m, reg, CFI_HOW_AT_FP, e.offset);
	else
		set_register(m, reg, CFI_HOW_OTHER, 0);
}

static void remember(struct machine *m)
{
	if (m->remembered_count == CFI_REMEMBER_MAX) {
		m->failed = true;
		return;
	}
	m->remembered[m->remembered_count++] = m->state;
}

/* Also brings the CFA back, as gcc and every unwinder do (DWARF 4 left it open). */
static void restore(struct machine *m)
{
	if (!m->remembered_count) {
		m->failed = true;
		return;
	}
	m->state = m->remembered[--m->remembered_count];
	m->changed = true;
}

/* Rows are given out when the location moves. Returns 1 at the end of the range. */
static int advance(struct machine *m, uint64_t delta)
{
	uint64_t step;
	int rc;

	if (!m->out)
		m->failed = true; /* a CIE has no location */
	if (__builtin_mul_overflow(delta, m->cie->code_align, &step))
		step = UINT64_MAX;
	if (!step || m->failed)
		return 0;
	rc = emit(m);
	if (rc < 0)
		return rc;
	if (step >= m->end_fo - m->fo)
		return 1;
	m->fo += (uint32_t)step;
	return 0;
}

static int set_location(struct machine *m)
{
	const struct elf_segment *segment;
	uint64_t ev;
	uint64_t fo;
	int rc;

	if (!m->out) {
		m->failed = true;
		return 0;
	}
	ev = cfi_read_pointer(m->set, &m->insns, m->cie->fde_encoding, m->cie->address_bytes);
	segment = m->insns.failed ? NULL : elf_segments_code(&m->set->segments, ev);
	fo = segment ? segment->offset_fo + (ev - segment->start_ev) : 0;
	if (!segment || fo < m->fo) {
		m->failed = true;
		return 0;
	}
	if (fo == m->fo)
		return 0;
	rc = emit(m);
	if (rc < 0)
		return rc;
	if (fo >= m->end_fo)
		return 1;
	m->fo = (uint32_t)fo;
	return 0;
}

/* Offsets of the CFA and of saved registers, and everything that does not move the location. */
static void execute_rule(struct machine *m, uint8_t op)
{
	struct bytes *b = &m->insns;
	uint64_t reg;

	switch (op) {
	case DW_CFA_nop:
	case DW_CFA_GNU_window_save: /* AArch64: negate_ra_state; signatures are masked always */
	case CFA_AARCH64_NEGATE_RA_STATE_WITH_PC:
		break;
	case DW_CFA_offset_extended:
		reg = bytes_varint(b);
		set_register(m, reg, CFI_HOW_AT_CFA, factored(m, (int64_t)bytes_varint(b)));
		break;
	case DW_CFA_offset_extended_sf:
		reg = bytes_varint(b);
		set_register(m, reg, CFI_HOW_AT_CFA, factored(m, bytes_sleb128(b)));
		break;
	case DW_CFA_GNU_negative_offset_extended:
		reg = bytes_varint(b);
		set_register(m, reg, CFI_HOW_AT_CFA, factored(m, -(int64_t)(bytes_varint(b) & INT64_MAX)));
		break;
	case DW_CFA_val_offset:
		reg = bytes_varint(b);
		set_register(m, reg, CFI_HOW_CFA, factored(m, (int64_t)bytes_varint(b)));
		break;
	case DW_CFA_val_offset_sf:
		reg = bytes_varint(b);
		set_register(m, reg, CFI_HOW_CFA, factored(m, bytes_sleb128(b)));
		break;
	case DW_CFA_restore_extended:
		restore_register(m, bytes_varint(b));
		break;
	case DW_CFA_undefined:
		set_register(m, bytes_varint(b), CFI_HOW_UNDEFINED, 0);
		break;
	case DW_CFA_same_value:
		set_register(m, bytes_varint(b), CFI_HOW_SAME, 0);
		break;
	case DW_CFA_register:
		reg = bytes_varint(b);
		set_in_register(m, reg, bytes_varint(b));
		break;
	case DW_CFA_remember_state:
		remember(m);
		break;
	case DW_CFA_restore_state:
		restore(m);
		break;
	case DW_CFA_def_cfa:
		reg = bytes_varint(b);
		set_cfa(m, reg, (int64_t)bytes_varint(b));
		break;
	case DW_CFA_def_cfa_sf:
		reg = bytes_varint(b);
		set_cfa(m, reg, factored(m, bytes_sleb128(b)));
		break;
	case DW_CFA_def_cfa_register:
		set_cfa_register(m, bytes_varint(b));
		break;
	case DW_CFA_def_cfa_offset:
		set_cfa_offset(m, (int64_t)bytes_varint(b));
		break;
	case DW_CFA_def_cfa_offset_sf:
		set_cfa_offset(m, factored(m, bytes_sleb128(b)));
		break;
	case DW_CFA_def_cfa_expression:
		set_cfa_expression(m);
		break;
	case DW_CFA_expression:
	case DW_CFA_val_expression:
		set_register_expression(m, op == DW_CFA_val_expression);
		break;
	case DW_CFA_GNU_args_size:
		(void)bytes_varint(b);
		break;
	default:
		m->failed = true;
	}
}

/* 1 = the range is done, 0 = go on. */
static int execute_one(struct machine *m)
{
	struct bytes *b = &m->insns;
	uint8_t op = bytes_u8(b);

	switch (op & ~OPERAND_MASK) {
	case DW_CFA_advance_loc:
		return advance(m, op & OPERAND_MASK);
	case DW_CFA_offset:
		set_register(m, op & OPERAND_MASK, CFI_HOW_AT_CFA, factored(m, (int64_t)bytes_varint(b)));
		return 0;
	case DW_CFA_restore:
		restore_register(m, op & OPERAND_MASK);
		return 0;
	default:
		break;
	}
	switch (op) {
	case DW_CFA_set_loc:
		return set_location(m);
	case DW_CFA_advance_loc1:
		return advance(m, bytes_u8(b));
	case DW_CFA_advance_loc2:
		return advance(m, bytes_u16(b));
	case DW_CFA_advance_loc4:
		return advance(m, bytes_u32(b));
	case DW_CFA_MIPS_advance_loc8:
		return advance(m, bytes_u64(b));
	default:
		execute_rule(m, op);
		return 0;
	}
}

static int execute_all(struct machine *m)
{
	while (bytes_left(&m->insns)) {
		int rc = execute_one(m);

		if (rc)
			return rc < 0 ? rc : 0;
		if (m->insns.failed)
			m->failed = true;
		if (m->failed) {
			m->changed = true;
			break;
		}
	}
	return emit(m);
}

bool cfi_execute_initial(const struct cfi_arch *arch, const struct cfi_cie *cie, struct bytes insns,
			 struct cfi_state *ret)
{
	struct machine m = { .arch = arch, .cie = cie, .insns = insns };

	if (execute_all(&m) < 0 || m.failed)
		return false;
	*ret = m.state;
	return true;
}

int cfi_execute(struct cfi_set *set, const struct cfi_entry *entry, struct cfi_builder *builder)
{
	struct machine m;

	if (entry->source == CFI_SOURCE_SYNTH || entry->source == CFI_SOURCE_GO) {
		for (uint32_t i = 0; i < entry->len; i++) {
			const struct cfi_step *step = &set->steps.data[entry->cie + i];
			int rc;

			if (step->fo >= entry->end_fo)
				break;
			rc = cfi_builder_row(builder, step->fo, &step->rule);
			if (rc < 0)
				return rc;
		}
		return 0;
	}
	/* Not an initializer: remembered[] is 2 KiB that most ranges never use. */
	m.arch = set->arch;
	m.cie = &set->cies.data[entry->cie];
	m.out = builder;
	m.insns = bytes_of(entry->insns, entry->len);
	m.state = m.cie->initial;
	m.remembered_count = 0;
	m.set = set;
	m.fo = entry->start_fo;
	m.end_fo = entry->end_fo;
	m.changed = true;
	m.failed = !m.cie->usable;
	return m.failed ? emit(&m) : execute_all(&m);
}
