// SPDX-License-Identifier: Apache-2.0
/* The unwinder's step and row search on hand-made tables and a fake stack, without a kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "bpf/unwind_table.h"

/* ---- fake memory and table ------------------------------------------------------------------ */

#define STACK_AT    0x7ffe00001000ull
#define STACK_WORDS 128u

static uint64_t stack_words[STACK_WORDS];

static int read_target(void *dst, size_t bytes, uint64_t address)
{
	uint64_t offset = address - STACK_AT;

	if (address < STACK_AT || offset + bytes > sizeof(stack_words))
		return -14;
	memcpy(dst, (const uint8_t *)stack_words + offset, bytes);
	return 0;
}

struct fake_table {
	uint32_t words[512][4];
	uint32_t elements;
};

static const uint32_t *element_of(const void *table, uint32_t index)
{
	const struct fake_table *fake = table;

	return index < fake->elements ? fake->words[index] : NULL;
}

#define UNWIND_READ(dst, bytes, address) read_target(dst, bytes, address)
#define UNWIND_ELEMENT(table, index)	 element_of(table, index)
#include "bpf/unwind_step.h"

static void stack_put(uint64_t address, uint64_t value)
{
	assert_true(address >= STACK_AT && address + 8 <= STACK_AT + sizeof(stack_words));
	stack_words[(address - STACK_AT) / 8] = value;
}

static int setup(void **state)
{
	memset(stack_words, 0, sizeof(stack_words));
	return 0;
}

/* ---- rules ---------------------------------------------------------------------------------- */

#define SP 0x7ffe00001040ull
#define FP 0x7ffe00001080ull

struct rule_case {
	const char *name;
	struct unwind_rule rule;
	struct {
		uint64_t at, value;
	} words[4];
	uint64_t ip; /* before; 0 = 0x401000 */
	int result;
	uint64_t sp, ra, fp; /* after; sp of UNWIND_FAULT: what could not be read */
	bool exact;
};

static const struct rule_case rule_cases[] = {
	{ "sp",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, 0, 24, 0, 0, -8 },
	  { { SP + 16, 0x402000 } },
	  0,
	  UNWIND_STEPPED,
	  SP + 24,
	  0x402000,
	  FP,
	  false },
	{ "sp, fp saved apart",
	  { UNWIND_CFA_SP, UNWIND_FP_CFA, 0, 0, 40, -32, 0, -8 },
	  { { SP + 32, 0x402000 }, { SP + 8, 0x1234 } },
	  0,
	  UNWIND_STEPPED,
	  SP + 40,
	  0x402000,
	  0x1234,
	  false },
	{ "fp, pushed first",
	  { UNWIND_CFA_FP, UNWIND_FP_CFA, 0, 0, 16, -16, 0, -8 },
	  { { FP, 0x5678 }, { FP + 8, 0x403000 } },
	  0,
	  UNWIND_STEPPED,
	  FP + 16,
	  0x403000,
	  0x5678,
	  false },
	{ "register",
	  { UNWIND_CFA_REG, UNWIND_FP_SAME, 10, 0, 8, 0, 0, -8 },
	  { { STACK_AT + 0x100, 0x404000 } },
	  0,
	  UNWIND_STEPPED,
	  STACK_AT + 0x108,
	  0x404000,
	  FP,
	  false },
	{ "register out of range",
	  { UNWIND_CFA_REG, UNWIND_FP_SAME, 77, 0, 8, 0, 0, -8 },
	  { { 0 } },
	  0,
	  UNWIND_UNSUPPORTED,
	  0,
	  0,
	  0,
	  false },
	{ "deref sp",
	  { UNWIND_CFA_DEREF_SP, UNWIND_FP_SAME, 0, 0, 8, 0, 16, -8 },
	  { { SP + 16, STACK_AT + 0x100 }, { STACK_AT + 0x100, 0x405000 } },
	  0,
	  UNWIND_STEPPED,
	  STACK_AT + 0x108,
	  0x405000,
	  FP,
	  false },
	{ "deref fp, fp by expression (gcc's DRAP)",
	  { UNWIND_CFA_DEREF_FP, UNWIND_FP_FROM_FP, 0, 0, 0, 0, -8, -8 },
	  { { FP - 8, STACK_AT + 0x110 }, { FP, 0x9abc }, { STACK_AT + 0x108, 0x406000 } },
	  0,
	  UNWIND_STEPPED,
	  STACK_AT + 0x110,
	  0x406000,
	  0x9abc,
	  false },
	{ "deref register",
	  { UNWIND_CFA_DEREF_REG, UNWIND_FP_FROM_SP, 10, 0, 16, 24, 8, -8 },
	  { { STACK_AT + 0x108, STACK_AT + 0x120 },
	    { STACK_AT + 0x128, 0x407000 },
	    { SP + 24, 0xdef0 } },
	  0,
	  UNWIND_STEPPED,
	  STACK_AT + 0x130,
	  0x407000,
	  0xdef0,
	  false },
	{ "plt before the push",
	  { UNWIND_CFA_PLT, UNWIND_FP_SAME, 0, 0, 0, 0, 11, -8 },
	  { { SP, 0x408000 } },
	  0x401025,
	  UNWIND_STEPPED,
	  SP + 8,
	  0x408000,
	  FP,
	  false },
	{ "plt after the push",
	  { UNWIND_CFA_PLT, UNWIND_FP_SAME, 0, 0, 0, 0, 11, -8 },
	  { { SP + 8, 0x408000 } },
	  0x40102b,
	  UNWIND_STEPPED,
	  SP + 16,
	  0x408000,
	  FP,
	  false },
	{ "fp undefined",
	  { UNWIND_CFA_SP, UNWIND_FP_UNDEFINED, 0, 0, 8, 0, 0, -8 },
	  { { SP, 0x409000 } },
	  0,
	  UNWIND_STEPPED,
	  SP + 8,
	  0x409000,
	  0,
	  false },
	{ "return address elsewhere",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, 0, 32, 0, 0, -24 },
	  { { SP + 8, 0x40a000 } },
	  0,
	  UNWIND_STEPPED,
	  SP + 32,
	  0x40a000,
	  FP,
	  false },
	{ "a signal's rule with an ordinary CFA",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, UNWIND_RULE_SIGNAL, 8, 0, 0, -8 },
	  { { SP, 0x40b000 } },
	  0,
	  UNWIND_STEPPED,
	  SP + 8,
	  0x40b000,
	  FP,
	  true },
	{ "words on the stack counted by a register (bn_mul_mont)",
	  { UNWIND_CFA_DEREF_INDEXED, UNWIND_FP_SAME, 9, 0, 8, 0, 8, -8 },
	  { { SP + 32, STACK_AT + 0x100 }, { STACK_AT + 0x100, 0x40e000 } },
	  0,
	  UNWIND_STEPPED,
	  STACK_AT + 0x108,
	  0x40e000,
	  FP,
	  false },
	{ "return address in a register (vfork)",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH, 0, 0, 0, 5 },
	  { { 0 } },
	  0,
	  UNWIND_STEPPED,
	  SP,
	  0x40f000,
	  FP,
	  false },
	{ "all in registers (longjmp)",
	  { UNWIND_CFA_REG, UNWIND_FP_REG, 8, UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH, 0, 11, 0,
	    5 },
	  { { 0 } },
	  0,
	  UNWIND_STEPPED,
	  STACK_AT + 0x20,
	  0x40f000,
	  0x7777,
	  false },
	{ "another stack (setcontext)",
	  { UNWIND_CFA_REG, UNWIND_FP_CFA, 10, UNWIND_RULE_SP_SAVED | UNWIND_RULE_SWITCH, 0, 0x20,
	    0, 0x48 },
	  { { STACK_AT + 0x120, 0x1111 },
	    { STACK_AT + 0x140, STACK_AT + 8 },
	    { STACK_AT + 0x148, 0x410000 } },
	  0,
	  UNWIND_STEPPED,
	  STACK_AT + 8,
	  0x410000,
	  0x1111,
	  false },
	{ "end",
	  { UNWIND_CFA_END, 0, 0, 0, 0, 0, 0, 0 },
	  { { 0 } },
	  0,
	  UNWIND_FINISHED,
	  0,
	  0,
	  0,
	  false },
	{ "return address zero",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, 0, 8, 0, 0, -8 },
	  { { 0 } },
	  0,
	  UNWIND_FINISHED,
	  0,
	  0,
	  0,
	  false },
	{ "gap",
	  { UNWIND_CFA_NONE, 0, 0, 0, 0, 0, 0, 0 },
	  { { 0 } },
	  0,
	  UNWIND_NO_RULE,
	  0,
	  0,
	  0,
	  false },
	{ "expression",
	  { UNWIND_CFA_UNSUPPORTED, 0, 0, 0, 0, 0, 0, 0 },
	  { { 0 } },
	  0,
	  UNWIND_UNSUPPORTED,
	  0,
	  0,
	  0,
	  false },
	{ "rule from the future",
	  { 200, 0, 0, 0, 8, 0, 0, -8 },
	  { { 0 } },
	  0,
	  UNWIND_UNSUPPORTED,
	  0,
	  0,
	  0,
	  false },
	{ "fp rule from the future",
	  { UNWIND_CFA_SP, 77, 0, 0, 8, 0, 0, -8 },
	  { { SP, 0x40c000 } },
	  0,
	  UNWIND_UNSUPPORTED,
	  0,
	  0,
	  0,
	  false },
	{ "stands still",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, 0, 0, 0, 0, -8 },
	  { { SP - 8, 0x40d000 } },
	  0,
	  UNWIND_NO_PROGRESS,
	  0,
	  0,
	  0,
	  false },
	{ "goes down",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, 0, -16, 0, 0, -8 },
	  { { SP - 24, 0x40d000 } },
	  0,
	  UNWIND_NO_PROGRESS,
	  0,
	  0,
	  0,
	  false },
	{ "outside the stack",
	  { UNWIND_CFA_SP, UNWIND_FP_SAME, 0, 0, 0x10000, 0, 0, -8 },
	  { { 0 } },
	  0,
	  UNWIND_FAULT,
	  SP + 0xfff8,
	  0,
	  0,
	  false },
	{ "deref outside",
	  { UNWIND_CFA_DEREF_SP, UNWIND_FP_SAME, 0, 0, 8, 0, 0x4000, -8 },
	  { { 0 } },
	  0,
	  UNWIND_FAULT,
	  SP + 0x4000,
	  0,
	  0,
	  false },
};

static struct unwind_state start(uint64_t ip)
{
	struct unwind_state at = { .ip = ip, .sp = SP, .fp = FP, .regs_known = 1 };

	at.regs[5] = 0x40f000;
	at.regs[8] = STACK_AT + 0x20;
	at.regs[9] = 3;
	at.regs[10] = STACK_AT + 0x100;
	at.regs[11] = 0x7777;
	return at;
}

static void test_rules(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rule_cases); i++) {
		const struct rule_case *c = &rule_cases[i];
		struct unwind_state at = start(c->ip ? c->ip : 0x401000), before = at;
		struct unwind_rule rule = c->rule;
		int result;

		(void)setup(NULL);
		for (size_t w = 0; w < ARRAY_SIZE(c->words); w++)
			if (c->words[w].at)
				stack_put(c->words[w].at, c->words[w].value);
		if (!(rule.flags & UNWIND_RULE_RA_REG))
			rule.ra_offset /= ARCH_RA_UNIT; /* the cases have bytes */
		result = unwind_step(&at, &rule);
		if (result != c->result)
			fail_msg("%s: result %d, expected %d", c->name, result, c->result);
		if (result != UNWIND_STEPPED) {
			before.unread = result == UNWIND_FAULT ? c->sp : 0;
			assert_memory_equal(&at, &before, sizeof(at));
			continue;
		}
		if (at.sp != c->sp || at.ip != c->ra || at.fp != c->fp || at.is_return == c->exact)
			fail_msg("%s: sp %#lx ip %#lx fp %#lx return %u", c->name, at.sp, at.ip,
				 at.fp, at.is_return);
		assert_int_equal(at.regs_known, 0);
	}
}

/* ---- signal frames -------------------------------------------------------------------------- */

#if ARCH_LINK_REGISTER
/* arch/arm64/kernel/signal.c: siginfo (128), ucontext {flags, link, stack_t (24), the mask in 128
 * bytes}, to 16 aligned, then sigcontext: the fault's address, and this. */
#define CONTEXT_AT 312
static const char *const context_order[] = {
	"x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",	 "x7",	"x8",  "x9",  "x10",
	"x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",
	"x22", "x23", "x24", "x25", "x26", "x27", "x28", "bp",	"x30", "sp",  "ip",
};
#define dwarf_order context_order
#define DWARF_COUNT 32u
#else
/* struct rt_sigframe of the kernel (arch/x86/include/asm/sigframe.h) as sp sees it in the
 * trampoline: ucontext {flags, link, stack_t (24 bytes)}, then sigcontext_64 in this order. */
#define CONTEXT_AT  40
#define DWARF_COUNT ARRAY_SIZE(dwarf_order)
static const char *const context_order[] = { "r8",  "r9",  "r10", "r11", "r12", "r13",
					     "r14", "r15", "di",  "si",	 "bp",	"bx",
					     "dx",  "ax",  "cx",  "sp",	 "ip" };
/* DWARF numbers of the psABI. */
static const char *const dwarf_order[] = { "ax", "dx",	"cx",  "bx",  "si",  "di",  "bp",  "sp",
					   "r8", "r9",	"r10", "r11", "r12", "r13", "r14", "r15" };
#endif

static size_t context_word(const char *name)
{
	size_t word = 0;

	while (strcmp(context_order[word], name) != 0)
		word++;
	return word;
}

static void test_signal_frame(void **state)
{
	const struct unwind_rule signal = { .cfa = UNWIND_CFA_SIGNAL,
					    .flags = UNWIND_RULE_SIGNAL };
	struct unwind_rule by_register = { .cfa = UNWIND_CFA_REG,
					   .ra_offset = -8 / ARCH_RA_UNIT };
	struct unwind_state at = start(0x7f0000001000);

	for (size_t i = 0; i < ARRAY_SIZE(context_order); i++)
		stack_put(SP + CONTEXT_AT + i * 8, 0x1000 + i);
	assert_int_equal(unwind_step(&at, &signal), UNWIND_STEPPED);
	assert_int_equal(at.fp, 0x1000 + context_word("bp"));
	assert_int_equal(at.sp, 0x1000 + context_word("sp"));
	assert_int_equal(at.ip, 0x1000 + context_word("ip"));
	assert_int_equal(at.is_return, 0);
	/* every register of the interrupted frame is known from the context */
	for (uint32_t reg = 0; reg < DWARF_COUNT; reg++) {
		uint64_t value = 0;
		size_t word = context_word(dwarf_order[reg]);

		assert_int_equal(unwind_register(&at, reg, &value), UNWIND_STEPPED);
		assert_int_equal(value, 0x1000 + word);
	}
	/* and used by the next step, but not by the one after it */
	at.sp = SP;
	stack_put(SP + CONTEXT_AT + arch_context_offset(8), STACK_AT + 0x180);
	stack_put(STACK_AT + 0x180, 0x402000);
	by_register.cfa_reg = 8;
	by_register.cfa_offset = 8;
	assert_int_equal(unwind_step(&at, &by_register), UNWIND_STEPPED);
	assert_int_equal(at.ip, 0x402000);
	assert_int_equal(unwind_step(&at, &by_register), UNWIND_UNSUPPORTED);
}

#if ARCH_LINK_REGISTER
/* The return address is in x30: in a leaf function, and in one that a signal interrupted. Its
 * signature is not a part of it. */
static void test_link_register(void **state)
{
	const struct unwind_rule leaf = { .cfa = UNWIND_CFA_SP,
					  .flags = UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH,
					  .ra_offset = 30 };
	const struct unwind_rule signal = { .cfa = UNWIND_CFA_SIGNAL,
					    .flags = UNWIND_RULE_SIGNAL };
	struct unwind_state at = start(0x401000);

	at.regs[30] = 0x2a000000402000;
	assert_int_equal(unwind_step(&at, &leaf), UNWIND_STEPPED);
	assert_int_equal(at.ip, 0x402000);
	assert_int_equal(at.sp, SP);
	assert_int_equal(at.fp, FP);
	assert_int_equal(unwind_step(&at, &leaf), UNWIND_UNSUPPORTED);
	at = start(0x7f0000001000);
	stack_put(SP + CONTEXT_AT + 30 * 8, 0x55000000403000);
	stack_put(SP + CONTEXT_AT + 31 * 8, SP + 0x180);
	stack_put(SP + CONTEXT_AT + 32 * 8, 0x401000);
	assert_int_equal(unwind_step(&at, &signal), UNWIND_STEPPED);
	assert_int_equal(unwind_step(&at, &leaf), UNWIND_STEPPED);
	assert_int_equal(at.ip, 0x403000);
	assert_int_equal(at.sp, SP + 0x180);
}

/* A frame record says where the caller's record is, not its stack pointer: a rule by sp is right
 * only with the frame pointer's help, and what cannot be helped is not followed. */
static void test_frame_record(void **state)
{
	const struct unwind_rule saved = { .cfa = UNWIND_CFA_SP, .fp = UNWIND_FP_CFA,
					   .cfa_offset = 0x60, .fp_offset = -0x60,
					   .ra_offset = -0x58 / 8 };
	const struct unwind_rule unsaved = { .cfa = UNWIND_CFA_SP, .cfa_offset = 0x20,
					     .ra_offset = -1 };
	struct unwind_state at = start(0x401000);

	stack_put(FP, FP + 0x40);
	stack_put(FP + 8, 0x11000000402000);
	stack_put(FP + 0x40, FP + 0x140);
	stack_put(FP + 0x48, 0x403000);
	assert_int_equal(unwind_step_fp(&at), UNWIND_STEPPED);
	assert_int_equal(at.ip, 0x402000);
	assert_int_equal(unwind_step(&at, &unsaved), UNWIND_UNSUPPORTED);
	assert_int_equal(unwind_step_signal(&at), UNWIND_UNSUPPORTED);
	assert_int_equal(unwind_step(&at, &saved), UNWIND_STEPPED);
	assert_int_equal(at.sp, FP + 0x40 + 0x60);
	assert_int_equal(at.ip, 0x403000);
	assert_int_equal(at.fp, FP + 0x140);
	/* from then on sp is known */
	stack_put(at.sp + 0x18, 0x404000);
	assert_int_equal(unwind_step(&at, &unsaved), UNWIND_STEPPED);
	assert_int_equal(at.ip, 0x404000);
}
#else
/* The third register: its value from the innermost frame, then from where a frame saved it, then
 * not known. */
static void test_third_register(void **state)
{
	const struct unwind_rule same = { .cfa = UNWIND_CFA_SP, .flags = UNWIND_RULE_THIRD,
					  .cfa_offset = 16, .ra_offset = -8 };
	const struct unwind_rule saved = { .cfa = UNWIND_CFA_SP, .flags = UNWIND_RULE_THIRD,
					   .cfa_reg = 3 << 4, .cfa_offset = 32, .ra_offset = -8 };
	const struct unwind_rule base = { .cfa = UNWIND_CFA_REG, .flags = UNWIND_RULE_THIRD,
					  .cfa_reg = 2 << 4 | ARCH_REG_THIRD, .cfa_offset = 16,
					  .ra_offset = -8 };
	const struct unwind_rule other = { .cfa = UNWIND_CFA_SP, .cfa_offset = 16, .ra_offset = -8 };
	struct unwind_state at = start(0x401000), again;

	at.regs[ARCH_REG_THIRD] = SP + 0x40;
	for (unsigned i = 0; i < 8; i++)
		stack_put(SP + 8 + i * 16, 0x402000 + i);
	assert_int_equal(unwind_step(&at, &same), UNWIND_STEPPED);
	again = at;
	assert_int_equal(unwind_step(&at, &base), UNWIND_STEPPED);
	assert_int_equal(at.sp, SP + 0x50);
	/* saved by the frame in between, 24 below its CFA */
	stack_put(SP + 0x18, SP + 0x60);
	stack_put(SP + 0x28, 0x403000);
	assert_int_equal(unwind_step(&again, &saved), UNWIND_STEPPED);
	assert_int_equal(unwind_step(&again, &base), UNWIND_STEPPED);
	assert_int_equal(again.sp, SP + 0x70);
	/* a rule that says nothing of it */
	at = start(0x401000);
	assert_int_equal(unwind_step(&at, &other), UNWIND_STEPPED);
	assert_int_equal(unwind_step(&at, &base), UNWIND_UNSUPPORTED);
}
#endif

static void test_signal_frame_unreadable(void **state)
{
	struct unwind_state at = start(0x7f0000001000);

	at.sp = STACK_AT + sizeof(stack_words) - 64;
	assert_int_equal(unwind_step_signal(&at), UNWIND_FAULT);
	assert_int_equal(at.ip, 0x7f0000001000);
	assert_int_equal(at.unread, at.sp + ARCH_SIGNAL_CONTEXT + ARCH_CONTEXT_SP);
}

static void test_sigreturn_code(void **state)
{
	static const struct {
		uint8_t code[16];
		bool is;
	} cases[] = {
#if ARCH_LINK_REGISTER
		{ { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 }, true },
		{ { 0x48, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 }, false },
		{ { 0x68, 0x11, 0x80, 0xd2, 0xc0, 0x03, 0x5f, 0xd6 }, false },
#else
		{ { 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05 }, true },
		{ { 0xb8, 15, 0, 0, 0, 0x0f, 0x05 }, true },
		{ { 0x48, 0xc7, 0xc0, 60, 0, 0, 0, 0x0f, 0x05 }, false },
		{ { 0xb8, 15, 0, 0, 0, 0xcd, 0x80 }, false },
#endif
		{ { 0 }, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(arch_is_sigreturn(cases[i].code), cases[i].is);
}

/* ---- frame pointers ------------------------------------------------------------------------- */

/* A return address whose code returns says where its caller is. */
static void test_code_that_returns(void **state)
{
	static const struct {
		uint8_t code[16];
		int result;
		uint64_t sp, fp;
	} cases[] = {
#if ARCH_LINK_REGISTER
		{ { 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6 }, UNWIND_STEPPED, SP + 16, 0x77 },
		{ { 0xfd, 0x7b, 0xc2, 0xa8, 0xc0, 0x03, 0x5f, 0xd6 }, UNWIND_NO_RULE, SP, FP },
		{ { 0xc0, 0x03, 0x5f, 0xd6 }, UNWIND_NO_RULE, SP, FP },
#else
		{ { 0x48, 0x83, 0xc4, 8, 0xc3 }, UNWIND_STEPPED, SP + 16, FP },
		{ { 0x48, 0x83, 0xc4, 0, 0x5d, 0xc3 }, UNWIND_STEPPED, SP + 16, 0x77 },
		{ { 0x5d, 0xc3 }, UNWIND_STEPPED, SP + 16, 0x77 },
		{ { 0xc3 }, UNWIND_STEPPED, SP + 8, FP },
		{ { 0x48, 0x83, 0xc4, 0x88, 0xc3 }, UNWIND_NO_RULE, SP, FP },
		{ { 0x48, 0x83, 0xc4, 8, 0x5b, 0xc3 }, UNWIND_NO_RULE, SP, FP },
		{ { 0x5d, 0x5b, 0xc3 }, UNWIND_NO_RULE, SP, FP },
		{ { 0x48, 0x83, 0xc4, 0x78, 0xc3 }, UNWIND_FINISHED, SP, FP },
#endif
	};

	stack_put(SP, 0x77);
	stack_put(SP + 8, 0x402000);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct unwind_state at = { .ip = 0x401000, .sp = SP, .fp = FP, .is_return = 1 };

		assert_int_equal(unwind_step_return(&at, cases[i].code), cases[i].result);
		assert_true(at.sp == cases[i].sp && at.fp == cases[i].fp);
		assert_true(cases[i].result == UNWIND_STEPPED ? at.ip != 0x401000 : at.ip == 0x401000);
	}
}

static void test_frame_pointer(void **state)
{
	static const struct {
		const char *name;
		uint64_t fp, saved, ra;
		int result;
	} cases[] = {
		{ "ordinary", FP, FP + 0x40, 0x402000, UNWIND_STEPPED },
		{ "just pushed", SP, FP, 0x402000, UNWIND_STEPPED },
		{ "outermost by fp", 0, 0, 0, UNWIND_FINISHED },
		{ "outermost by return address", FP, FP + 0x40, 0, UNWIND_FINISHED },
		{ "below sp", SP - 16, FP, 0x402000, UNWIND_NO_PROGRESS },
		{ "not aligned", FP + 4, FP, 0x402000, UNWIND_NO_PROGRESS },
		{ "far away", FP + (1ull << 30), 0, 0, UNWIND_NO_PROGRESS },
		{ "kernel address", 0xffff888000000000ull, 0, 0, UNWIND_NO_PROGRESS },
		{ "unmapped", STACK_AT + sizeof(stack_words) + 8, 0, 0, UNWIND_FAULT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct unwind_state at = start(0x401000);
		int result;

		(void)setup(NULL);
		at.fp = cases[i].fp;
		if (cases[i].ra || cases[i].saved) {
			stack_put(at.fp >= STACK_AT ? at.fp & ~7ull : SP, cases[i].saved);
			stack_put((at.fp & ~7ull) + 8, cases[i].ra);
		}
		result = unwind_step_fp(&at);
		if (result != cases[i].result)
			fail_msg("%s: result %d", cases[i].name, result);
		if (result == UNWIND_STEPPED) {
			assert_int_equal(at.sp, cases[i].fp + 16);
			assert_int_equal(at.fp, cases[i].saved);
			assert_int_equal(at.ip, cases[i].ra);
			assert_int_equal(at.is_return, 1);
		}
	}
}

/* ---- row search ----------------------------------------------------------------------------- */

#define RULES_AT 8u
#define ROWS_AT	 32u
#define PAGE(number) ((uint64_t)(number) << UNWIND_PAGE_SHIFT)
#define LAST	 (UNWIND_PAGE_BYTES - 1)

struct row {
	uint32_t page, offset, rule;
};

/* A table of pages from @first_page; @rows ascending. Rule n has cfa_offset n. */
static void table_make(struct fake_table *table, struct unwind_table_head *head,
		       uint32_t first_page, const struct row *rows, uint32_t count)
{
	memset(table, 0, sizeof(*table));
	*head = (struct unwind_table_head){ .first_page = first_page, .page_count = 6,
					    .rules_at = RULES_AT, .rule_count = 16,
					    .rows_at = ROWS_AT, .row_count = count };
	table->elements = ROWS_AT + (count + 3) / 4;
	for (uint32_t n = 1; n < 16; n++) {
		struct unwind_rule rule = { .cfa = UNWIND_CFA_SP, .cfa_offset = (int32_t)n };

		memcpy(table->words[RULES_AT + n], &rule, sizeof(rule));
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t page = rows[i].page - first_page;
		uint32_t *entry = &table->words[UNWIND_DIR_AT + page / 2][page % 2 * 2];

		if (!entry[1]++)
			entry[0] = i;
		table->words[ROWS_AT + i / 4][i % 4] = rows[i].offset | rows[i].rule << 16;
	}
}

static int32_t rule_at(const struct fake_table *table, const struct unwind_table_head *head,
		       uint64_t fo)
{
	struct unwind_rule rule;

	return unwind_find_rule(table, head, fo, &rule) == UNWIND_STEPPED ? rule.cfa_offset : -1;
}

static void test_search(void **state)
{
	static const struct row rows[] = {
		{ 5, 0, 1 },	{ 5, 0x10, 2 },	 { 5, 0x11, 3 },  { 5, LAST, 4 },
		{ 6, 0, 4 },	{ 6, 0x100, 0 }, { 6, 0x200, 5 }, { 8, 0, 6 },
	};
	static const struct {
		uint64_t fo;
		int32_t rule;
	} cases[] = {
		{ PAGE(5), 1 },		{ PAGE(5) + 0xf, 1 },	 { PAGE(5) + 0x10, 2 },
		{ PAGE(5) + 0x11, 3 },	{ PAGE(6) - 2, 3 },	 { PAGE(6) - 1, 4 },
		{ PAGE(6), 4 },		{ PAGE(6) + 0xff, 4 },	 { PAGE(6) + 0x100, -1 },
		{ PAGE(6) + 0x1ff, -1 }, { PAGE(6) + 0x200, 5 }, { PAGE(7) - 1, 5 },
		{ PAGE(7), -1 },	{ PAGE(8), 6 },		 { PAGE(9) - 1, 6 },
		{ PAGE(9), -1 },	{ PAGE(5) - 1, -1 },	 { 0, -1 },
		{ PAGE(11), -1 },	{ PAGE(1ull << 32) + PAGE(5), -1 }, { ~0ull, -1 },
	};
	struct unwind_table_head head;
	struct fake_table table;

	table_make(&table, &head, 5, rows, ARRAY_SIZE(rows));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (rule_at(&table, &head, cases[i].fo) != cases[i].rule)
			fail_msg("%#lx: rule %d, expected %d", cases[i].fo,
				 rule_at(&table, &head, cases[i].fo), cases[i].rule);
}

/* Every count of rows in a page, every offset: the same as a scan from the front. */
static void test_search_exhaustive(void **state)
{
	struct unwind_table_head head;
	struct fake_table table;
	struct row rows[70];

	for (uint32_t count = 1; count <= ARRAY_SIZE(rows); count++) {
		for (uint32_t i = 0; i < count; i++)
			rows[i] = (struct row){ 1, i * 3, 1 + i % 15 };
		table_make(&table, &head, 1, rows, count);
		for (uint32_t offset = 0; offset < 3 * count + 3; offset++) {
			uint32_t want = offset / 3 < count ? offset / 3 : count - 1;

			assert_int_equal(rule_at(&table, &head, PAGE(1) + offset),
					 1 + want % 15);
		}
	}
}

/* A row for each byte: the longest search there is. */
static void test_search_full_page(void **state)
{
	struct row rows[UNWIND_PAGE_BYTES];
	struct unwind_table_head head;
	struct fake_table table;

	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++)
		rows[i] = (struct row){ 1, i, 1 + i % 15 };
	table_make(&table, &head, 1, rows, ARRAY_SIZE(rows));
	for (uint32_t offset = 0; offset < ARRAY_SIZE(rows); offset++)
		assert_int_equal(rule_at(&table, &head, PAGE(1) + offset), 1 + offset % 15);
}

/* A table that lies about itself costs a lookup, nothing more. */
static void test_search_hostile(void **state)
{
	static const struct row rows[] = { { 5, 0, 1 }, { 5, 0x10, 2 }, { 5, 0x20, 15 } };
	struct unwind_table_head head;
	struct fake_table table;

	table_make(&table, &head, 5, rows, ARRAY_SIZE(rows));
	table.words[UNWIND_DIR_AT][1] = UINT32_MAX; /* rows beyond the end */
	assert_int_equal(rule_at(&table, &head, PAGE(5)), -1);
	table_make(&table, &head, 5, rows, ARRAY_SIZE(rows));
	table.words[UNWIND_DIR_AT][0] = UINT32_MAX - 1;
	assert_int_equal(rule_at(&table, &head, PAGE(5)), -1);
	table_make(&table, &head, 5, rows, ARRAY_SIZE(rows));
	head.rule_count = 15; /* row 2 names a rule outside */
	assert_int_equal(rule_at(&table, &head, PAGE(5) + 0x10), 2);
	assert_int_equal(rule_at(&table, &head, PAGE(5) + 0x20), -1);
	head.rules_at = UINT32_MAX;
	assert_int_equal(rule_at(&table, &head, PAGE(5) + 0x10), -1);
	head.rows_at = 0xfffffff0;
	assert_int_equal(rule_at(&table, &head, PAGE(5) + 0x10), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_rules, setup),
		cmocka_unit_test_setup(test_signal_frame, setup),
#if ARCH_LINK_REGISTER
		cmocka_unit_test_setup(test_link_register, setup),
		cmocka_unit_test_setup(test_frame_record, setup),
#else
		cmocka_unit_test_setup(test_third_register, setup),
#endif
		cmocka_unit_test_setup(test_signal_frame_unreadable, setup),
		cmocka_unit_test(test_sigreturn_code),
		cmocka_unit_test(test_code_that_returns),
		cmocka_unit_test_setup(test_frame_pointer, setup),
		cmocka_unit_test(test_search),
		cmocka_unit_test(test_search_exhaustive),
		cmocka_unit_test(test_search_full_page),
		cmocka_unit_test(test_search_hostile),
	};

	return cmocka_run_group_tests_name("unwind_step", tests, NULL, NULL);
}
