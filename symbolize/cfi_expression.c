// SPDX-License-Identifier: Apache-2.0
/* DWARF expressions in call frame information, evaluated symbolically: what compilers, linkers and
 * hand-written assembly use comes down to a register plus a constant, at most one load, and another
 * constant (gcc's realigned frames, OpenSSL's assembly, glibc's signal return), or a register of
 * words above another one (OpenSSL's bn_mul_mont). Anything else is OTHER. */
#include <dwarf.h>

#include "symbolize/cfi_internal.h"

#define EXPRESSION_STACK_MAX 8

struct expression_stack {
	struct cfi_expression items[EXPRESSION_STACK_MAX];
	unsigned count;
	bool failed;
};

static void stack_push(struct expression_stack *s, struct cfi_expression value)
{
	if (s->count == EXPRESSION_STACK_MAX) {
		s->failed = true;
		return;
	}
	s->items[s->count++] = value;
}

static struct cfi_expression stack_pop(struct expression_stack *s)
{
	if (!s->count) {
		s->failed = true;
		return (struct cfi_expression){ .value = CFI_VALUE_OTHER };
	}
	return s->items[--s->count];
}

static void push_const(struct expression_stack *s, int64_t value)
{
	stack_push(s, (struct cfi_expression){ .value = CFI_VALUE_CONST, .offset = value });
}

static void push_register(struct expression_stack *s, uint64_t reg, int64_t offset)
{
	if (reg > UINT8_MAX)
		s->failed = true;
	stack_push(s, (struct cfi_expression){ .value = CFI_VALUE_REG,
					       .reg = (uint8_t)reg,
					       .offset = offset });
}

static void add_const(struct expression_stack *s, int64_t value)
{
	struct cfi_expression e = stack_pop(s);

	if (__builtin_add_overflow(e.offset, value, &e.offset))
		s->failed = true;
	stack_push(s, e);
}

static void add(struct expression_stack *s, bool minus)
{
	struct cfi_expression right = stack_pop(s);
	struct cfi_expression left = stack_pop(s);

	if (!minus && left.value == CFI_VALUE_CONST) {
		struct cfi_expression swap = left;

		left = right;
		right = swap;
	}
	if (!minus && left.value == CFI_VALUE_REG && right.value == CFI_VALUE_SCALED &&
	    !right.offset) {
		left.value = CFI_VALUE_INDEXED;
		left.index = right.index;
		stack_push(s, left);
		return;
	}
	if (right.value != CFI_VALUE_CONST || right.offset == INT64_MIN) {
		s->failed = true;
		return;
	}
	stack_push(s, left);
	add_const(s, minus ? -right.offset : right.offset);
}

/* A register times the size of a word. */
static void multiply(struct expression_stack *s)
{
	struct cfi_expression right = stack_pop(s);
	struct cfi_expression left = stack_pop(s);

	if (left.value != CFI_VALUE_REG || left.offset || right.value != CFI_VALUE_CONST ||
	    right.offset != 8)
		s->failed = true;
	stack_push(s, (struct cfi_expression){ .value = CFI_VALUE_SCALED, .index = left.reg });
}

static void deref(struct expression_stack *s)
{
	struct cfi_expression e = stack_pop(s);

	if (e.value != CFI_VALUE_REG && e.value != CFI_VALUE_INDEXED)
		s->failed = true;
	e.value = e.value == CFI_VALUE_REG ? CFI_VALUE_DEREF : CFI_VALUE_DEREF_INDEXED;
	e.deref = e.offset;
	e.offset = 0;
	stack_push(s, e);
}

/* Constants; false if @op is none. */
static bool read_const(struct expression_stack *s, uint8_t op, struct bytes *b)
{
	switch (op) {
	case DW_OP_const1u:
		push_const(s, bytes_u8(b));
		return true;
	case DW_OP_const1s:
		push_const(s, (int8_t)bytes_u8(b));
		return true;
	case DW_OP_const2u:
		push_const(s, bytes_u16(b));
		return true;
	case DW_OP_const2s:
		push_const(s, (int16_t)bytes_u16(b));
		return true;
	case DW_OP_const4u:
		push_const(s, bytes_u32(b));
		return true;
	case DW_OP_const4s:
		push_const(s, (int32_t)bytes_u32(b));
		return true;
	case DW_OP_const8u:
	case DW_OP_const8s:
		push_const(s, (int64_t)bytes_u64(b));
		return true;
	case DW_OP_constu:
		push_const(s, (int64_t)bytes_varint(b));
		return true;
	case DW_OP_consts:
		push_const(s, bytes_sleb128(b));
		return true;
	default:
		if (op < DW_OP_lit0 || op > DW_OP_lit31)
			return false;
		push_const(s, op - DW_OP_lit0);
		return true;
	}
}

static void read_operation(struct expression_stack *s, struct bytes *b)
{
	uint8_t op = bytes_u8(b);
	uint64_t reg;

	if (op >= DW_OP_breg0 && op <= DW_OP_breg31) {
		push_register(s, op - DW_OP_breg0, bytes_sleb128(b));
	} else if (op == DW_OP_bregx) {
		reg = bytes_varint(b);
		push_register(s, reg, bytes_sleb128(b));
	} else if (op == DW_OP_deref) {
		deref(s);
	} else if (op == DW_OP_plus_uconst) {
		add_const(s, (int64_t)bytes_varint(b));
	} else if (op == DW_OP_plus || op == DW_OP_minus) {
		add(s, op == DW_OP_minus);
	} else if (op == DW_OP_mul) {
		multiply(s);
	} else if (op != DW_OP_nop && !read_const(s, op, b)) {
		s->failed = true;
	}
}

struct cfi_expression cfi_expression_read(struct bytes expr, bool with_cfa)
{
	struct expression_stack s = { .count = 0 };
	struct cfi_expression result;

	if (with_cfa)
		stack_push(&s, (struct cfi_expression){ .value = CFI_VALUE_CFA });
	while (bytes_left(&expr) && !expr.failed && !s.failed)
		read_operation(&s, &expr);
	result = stack_pop(&s);
	if (expr.failed || s.failed)
		return (struct cfi_expression){ .value = CFI_VALUE_OTHER };
	return result;
}
