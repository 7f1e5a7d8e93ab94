// SPDX-License-Identifier: Apache-2.0
/* Unwind rows from call frame information written by hand: every instruction, encoding and layout,
 * and files that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "agent/base/cleanup.h"
#include "agent/base/io.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_debug.h"
#include "tests/support/elf_writer.h"

#define TEXT_EV	 0x401000u
#define TEXT_FO	 0x3000u /* not congruent on purpose: rows are in file offsets */
#define EH_EV	 0x600000u
#define FUNC_EV	 (TEXT_EV + 0x100)
#define FUNC_LEN 0x100u

/* Builds the table of a file with one text segment and the given frame section. */
static int build(const struct cfi_writer *w, size_t text_bytes, const void *text,
		 struct cfi_table *ret)
{
	struct elf_writer writer = { .text_ev = TEXT_EV,
				     .text_fo = TEXT_FO,
				     .text = text,
				     .text_bytes = text_bytes };
	cleanup_free uint8_t *file = NULL;
	size_t len;
	Elf *elf;
	int rc;

	elf_writer_section(&writer, w->debug_frame ? ".debug_frame" : ".eh_frame",
			   w->debug_frame ? 0 : EH_EV, w->out.data, w->out.len);
	file = elf_writer_finish(&writer, &len);
	elf = elf_writer_open(file, len);
	rc = cfi_table_build(elf, -1, ret);
	elf_end(elf);
	if (!rc)
		assert_int_equal(cfi_image_validate(ret->image, ret->image_bytes), 0);
	return rc;
}

static const struct unwind_rule *at(const struct cfi_table *table, uint64_t ev)
{
	return cfi_table_find(table, TEXT_FO + (ev - TEXT_EV));
}

#define SP(off)		   { .cfa = UNWIND_CFA_SP, .cfa_offset = (off), .ra_offset = -8 }
#define SP_SAVED(off, fpo) { .cfa = UNWIND_CFA_SP, .fp = UNWIND_FP_CFA, .cfa_offset = (off),     \
			     .fp_offset = (fpo), .ra_offset = -8 }
#define UNSUPPORTED	   { .cfa = UNWIND_CFA_UNSUPPORTED }

struct program {
	const char *name;
	const char *insns;
	struct {
		uint32_t at; /* offset in the function */
		struct unwind_rule rule;
	} expect[4]; /* ends with at = 0 && cfa = 0 */
};

static const struct program programs[] = {
	{ "empty", "", { { 0, SP(8) }, { 255, SP(8) } } },
	{ "frame pointer prologue",
	  "41 0e 10 86 02 43 0d 06 02 80 0c 07 08",
	  { { 0, SP(8) },
	    { 1, SP_SAVED(16, -16) },
	    { 4,
	      { .cfa = UNWIND_CFA_FP,
		.fp = UNWIND_FP_CFA,
		.cfa_offset = 16,
		.fp_offset = -16,
		.ra_offset = -8 } },
	    { 132, SP_SAVED(8, -16) } } },
	{ "advance_loc1, 2, 4",
	  "02 10 0e 10 03 20 00 0e 18 04 30 00 00 00 0e 20",
	  { { 15, SP(8) }, { 16, SP(16) }, { 48, SP(24) }, { 96, SP(32) } } },
	{ "advance_loc8", "1d 10 00 00 00 00 00 00 00 0e 10", { { 15, SP(8) }, { 16, SP(16) } } },
	{ "set_loc", "01 40 11 40 00 00 00 00 00 0e 10", { { 63, SP(8) }, { 64, SP(16) } } },
	{ "set_loc backwards breaks it",
	  "50 0e 10 01 00 11 40 00 00 00 00 00 0e 20",
	  { { 15, SP(8) }, { 16, UNSUPPORTED }, { 255, UNSUPPORTED } } },
	{ "remember and restore",
	  "41 0e 10 0a 41 0e 20 41 0b 41 0e 18",
	  { { 1, SP(16) }, { 2, SP(32) }, { 3, SP(16) }, { 4, SP(24) } } },
	{ "restore without remember", "41 0b", { { 0, SP(8) }, { 1, UNSUPPORTED } } },
	{ "restore of a register", "41 86 02 41 c6", { { 1, SP_SAVED(8, -16) }, { 2, SP(8) } } },
	{ "restore_extended", "41 86 02 41 06 06", { { 1, SP_SAVED(8, -16) }, { 2, SP(8) } } },
	{ "offset_extended and _sf",
	  "05 06 03 41 11 06 7e",
	  { { 0, SP_SAVED(8, -24) }, { 1, SP_SAVED(8, 16) } } },
	{ "GNU_negative_offset_extended", "2f 06 03", { { 0, SP_SAVED(8, 24) } } },
	{ "same_value, undefined",
	  "86 02 41 08 06 41 07 06",
	  { { 0, SP_SAVED(8, -16) },
	    { 1, SP(8) },
	    { 2,
	      { .cfa = UNWIND_CFA_SP,
		.fp = UNWIND_FP_UNDEFINED,
		.cfa_offset = 8,
		.ra_offset = -8 } } } },
	{ "other registers do not matter",
	  "8c 03 41 07 0c 41 09 0c 0d",
	  { { 0, SP(8) }, { 9, SP(8) } } },
	{ "def_cfa_sf, def_cfa_offset_sf", "12 07 7e 41 13 7d", { { 0, SP(16) }, { 1, SP(24) } } },
	{ "other base register",
	  "0c 0a 00",
	  { { 0, { .cfa = UNWIND_CFA_REG, .cfa_reg = 10, .ra_offset = -8 } } } },
	/* lazy binding: push %rbx; mov %rsp, %rbx; then all rules say where rbx is */
	{ "rbx as base",
	  "41 0e 10 83 02 41 0d 03 41 83 03 41 c3",
	  { { 0,
	      { .cfa = UNWIND_CFA_SP,
		.cfa_offset = 8,
		.ra_offset = -8,
		.flags = UNWIND_RULE_THIRD } },
	    { 1,
	      { .cfa = UNWIND_CFA_SP,
		.cfa_reg = 2 << 4,
		.cfa_offset = 16,
		.ra_offset = -8,
		.flags = UNWIND_RULE_THIRD } },
	    { 2,
	      { .cfa = UNWIND_CFA_REG,
		.cfa_reg = 2 << 4 | 3,
		.cfa_offset = 16,
		.ra_offset = -8,
		.flags = UNWIND_RULE_THIRD } },
	    { 4,
	      { .cfa = UNWIND_CFA_REG,
		.cfa_reg = 3,
		.cfa_offset = 16,
		.ra_offset = -8,
		.flags = UNWIND_RULE_THIRD } } } },
	{ "args_size and window_save are read over",
	  "2e 20 2d 41 0e 10",
	  { { 0, SP(8) }, { 1, SP(16) } } },
	{ "return address undefined",
	  "07 10 41 0e 10",
	  { { 0, { .cfa = UNWIND_CFA_END } }, { 9, { .cfa = UNWIND_CFA_END } } } },
	{ "return address in a register (vfork)",
	  "41 0e 00 09 10 05 41 0e 08 d0",
	  { { 0, SP(8) },
	    { 1,
	      { .cfa = UNWIND_CFA_SP,
		.ra_offset = 5,
		.flags = UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH } },
	    { 2, SP(8) } } },
	{ "all in registers (longjmp)",
	  "0c 05 00 09 07 08 09 06 09 09 10 01",
	  { { 0,
	      { .cfa = UNWIND_CFA_REG,
		.fp = UNWIND_FP_REG,
		.cfa_reg = 8,
		.fp_offset = 9,
		.ra_offset = 1,
		.flags = UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH } } } },
	{ "sp in a register, the return address not", "09 07 08", { { 0, UNSUPPORTED } } },
	{ "sp saved below the return address (setcontext)",
	  "0c 01 00 11 07 6c 11 10 6b 11 06 71",
	  { { 0,
	      { .cfa = UNWIND_CFA_REG,
		.fp = UNWIND_FP_CFA,
		.cfa_reg = 1,
		.fp_offset = 120,
		.ra_offset = 168,
		.flags = UNWIND_RULE_SP_SAVED | UNWIND_RULE_SWITCH } } } },
	{ "sp saved elsewhere", "0c 01 00 11 07 6d 11 10 6b", { { 0, UNSUPPORTED } } },
	{ "OpenSSL: *(rsp + 8 + 8 * r9) + 8",
	  "0f 0a 77 08 79 00 38 1e 22 06 23 08",
	  { { 0,
	      { .cfa = UNWIND_CFA_DEREF_INDEXED,
		.cfa_reg = 9,
		.cfa_deref = 8,
		.cfa_offset = 8,
		.ra_offset = -8 } } } },
	{ "*(rsp + 8 + 4 * r9)", "0f 08 77 08 79 00 34 1e 22 06", { { 0, UNSUPPORTED } } },
	{ "rsp + 8 * r9", "0f 07 77 08 79 00 38 1e 22", { { 0, UNSUPPORTED } } },
	{ "return address elsewhere",
	  "90 03",
	  { { 0, { .cfa = UNWIND_CFA_SP, .cfa_offset = 8, .ra_offset = -24 } } } },
	{ "DRAP: *(rbp - 8), rbp at rbp",
	  "0f 03 76 78 06 10 06 02 76 00",
	  { { 0,
	      { .cfa = UNWIND_CFA_DEREF_FP,
		.fp = UNWIND_FP_FROM_FP,
		.cfa_deref = -8,
		.ra_offset = -8 } } } },
	{ "OpenSSL: *(rsp + 152) + 8",
	  "0f 06 77 98 01 06 23 08",
	  { { 0,
	      { .cfa = UNWIND_CFA_DEREF_SP,
		.cfa_deref = 152,
		.cfa_offset = 8,
		.ra_offset = -8 } } } },
	{ "*(r13 + 16)",
	  "0f 03 7d 10 06",
	  { { 0,
	      { .cfa = UNWIND_CFA_DEREF_REG,
		.cfa_reg = 13,
		.cfa_deref = 16,
		.ra_offset = -8 } } } },
	{ "rsp + 8 - constant", "0f 06 77 20 38 1c 96 22", { { 0, UNSUPPORTED } } },
	{ "rsp + 32 - 8 as expression", "0f 04 77 20 38 1c", { { 0, SP(24) } } },
	{ "constant + register", "0f 06 0a 00 01 77 08 22", { { 0, SP(264) } } },
	{ "bregx", "0f 03 92 07 10", { { 0, SP(16) } } },
	{ "two loads are beyond a rule", "0f 04 77 00 06 06", { { 0, UNSUPPORTED } } },
	{ "plt",
	  "0f 0b 77 08 80 00 3f 1a 3b 2a 33 24 22",
	  { { 0, { .cfa = UNWIND_CFA_PLT, .cfa_deref = 11, .ra_offset = -8 } } } },
	{ "plt with IBT",
	  "0f 0b 77 08 80 00 3f 1a 39 2a 33 24 22",
	  { { 0, { .cfa = UNWIND_CFA_PLT, .cfa_deref = 9, .ra_offset = -8 } } } },
	{ "def_cfa_offset after an expression", "0f 03 76 78 06 0e 10", { { 0, UNSUPPORTED } } },
	{ "rbp at CFA - 24 by expression", "10 06 02 38 1c", { { 0, SP_SAVED(8, -8) } } },
	{ "rbp at rsp + 40",
	  "10 06 02 77 28",
	  { { 0,
	      { .cfa = UNWIND_CFA_SP,
		.fp = UNWIND_FP_FROM_SP,
		.cfa_offset = 8,
		.fp_offset = 40,
		.ra_offset = -8 } } } },
	{ "rbp is a value",
	  "14 06 02 41 16 06 02 77 08",
	  { { 0,
	      { .cfa = UNWIND_CFA_SP,
		.fp = UNWIND_FP_UNDEFINED,
		.cfa_offset = 8,
		.ra_offset = -8 } },
	    { 1,
	      { .cfa = UNWIND_CFA_SP,
		.fp = UNWIND_FP_UNDEFINED,
		.cfa_offset = 8,
		.ra_offset = -8 } } } },
	{ "rsp = CFA said aloud", "14 07 00", { { 0, SP(8) } } },
	{ "another stack", "87 05", { { 0, UNSUPPORTED } } },
	{ "unknown instruction",
	  "41 0e 10 41 3e 41 0e 20",
	  { { 0, SP(8) }, { 1, SP(16) }, { 2, UNSUPPORTED }, { 99, UNSUPPORTED } } },
	{ "instructions break off", "41 0e 10 42 0e", { { 1, SP(16) }, { 3, UNSUPPORTED } } },
	{ "expression longer than the entry", "41 0f 7f 77", { { 0, SP(8) }, { 1, UNSUPPORTED } } },
	{ "offset beyond 32 bits", "0e 80 80 80 80 80 01", { { 0, UNSUPPORTED } } },
	{ "location beyond the range",
	  "41 0e 10 03 ff ff 0e 20",
	  { { 1, SP(16) }, { 255, SP(16) } } },
};

static void assert_rule_at(const struct cfi_table *table, uint64_t ev,
			   const struct unwind_rule *want, const char *name)
{
	const struct unwind_rule *found = at(table, ev);

	if (!want && !found)
		return;
	if (want && found && !memcmp(found, want, sizeof(*want)))
		return;
	fail_msg("%s: at +%#lx: found %s cfa %d reg %d %+d deref %d fp %d %+d ra %d flags %d", name,
		 (unsigned long)(ev - FUNC_EV), found ? "rule" : "no rule", found ? found->cfa : 0,
		 found ? found->cfa_reg : 0, found ? found->cfa_offset : 0, found ? found->cfa_deref : 0,
		 found ? found->fp : 0, found ? found->fp_offset : 0, found ? found->ra_offset : 0,
		 found ? found->flags : 0);
}

/* Entries are padded with nops, which would complete a cut instruction: here they are not padded.
 */
static void check_program(const struct program *p, struct cfi_writer *w, uint8_t encoding,
			  size_t cie)
{
	struct cfi_table table;

	cfi_writer_fde(w, cie, encoding, FUNC_EV, FUNC_LEN, p->insns);
	assert_int_equal(build(w, 0x1000, NULL, &table), 0);
	assert_rule_at(&table, FUNC_EV - 1, NULL, p->name);
	assert_rule_at(&table, FUNC_EV + FUNC_LEN, NULL, p->name);
	for (size_t i = 0; i < ARRAY_SIZE(p->expect) && p->expect[i].rule.cfa; i++)
		assert_rule_at(&table, FUNC_EV + p->expect[i].at, &p->expect[i].rule, p->name);
	cfi_table_deinit(&table);
}

static void test_instructions(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		struct cfi_writer w = { .ev = EH_EV, .no_padding = true };
		size_t cie = cfi_writer_cie(&w, &(struct cfi_writer_cie){ .encoding = DW_EH_PE_absptr });

		check_program(&programs[i], &w, DW_EH_PE_absptr, cie);
		buf_deinit(&w.out);
	}
}

static void test_layouts(void **state)
{
	static const struct {
		const char *name;
		struct cfi_writer_cie cie;
		bool debug_frame, wide;
	} layouts[] = {
		{ "pcrel sdata4", { .encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata4 }, false, false },
		{ "pcrel sdata8", { .encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata8 }, false, false },
		{ "udata4", { .encoding = DW_EH_PE_udata4 }, false, false },
		{ "udata8", { .encoding = DW_EH_PE_udata8 }, false, false },
		{ "uleb128", { .encoding = DW_EH_PE_uleb128 }, false, false },
		{ "aligned", { .encoding = DW_EH_PE_aligned }, false, false },
		{ "64-bit .eh_frame", { .encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata4 }, false, true },
		{ "personality, LSDA", { .augmentation = "zPLR", .encoding = DW_EH_PE_udata4 }, false, false },
		{ "AArch64's B", { .augmentation = "zRB", .encoding = DW_EH_PE_udata4 }, false, false },
		{ ".debug_frame", { .augmentation = "", .version = 3 }, true, false },
		{ ".debug_frame version 4", { .augmentation = "", .version = 4 }, true, false },
		{ "64-bit .debug_frame", { .augmentation = "", .version = 4 }, true, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		const struct cfi_writer_cie *c = &layouts[i].cie;
		struct program p = programs[1];
		struct cfi_writer w = { .ev = EH_EV,
					.debug_frame = layouts[i].debug_frame,
					.wide = layouts[i].wide };
		size_t cie = cfi_writer_cie(&w, c);

		p.name = layouts[i].name;
		check_program(&p, &w, c->encoding, cie);
		buf_deinit(&w.out);
	}
}

/* CIEs that cannot be used: the function is known, its rule is not. */
static void test_bad_cies(void **state)
{
	static const struct {
		const char *name;
		struct cfi_writer_cie cie;
	} bad[] = {
		{ "other return address column", { .ra = 14 } },
		{ "version 2", { .version = 2 } },
		{ "instructions move", { .insns = "41 0c 07 08" } },
		{ "instructions break off", { .insns = "0c 07" } },
	};
	const struct program unsupported = { "",
					     "41 0e 10",
					     { { 0, UNSUPPORTED }, { 200, UNSUPPORTED } } };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct program p = unsupported;
		struct cfi_writer_cie c = bad[i].cie;
		struct cfi_writer w = { .ev = EH_EV, .no_padding = true };
		size_t cie;

		c.encoding = DW_EH_PE_absptr;
		cie = cfi_writer_cie(&w, &c);
		p.name = bad[i].name;
		if (c.version == 2) { /* not even the addresses can be read: no entry at all */
			struct cfi_table table;

			cfi_writer_fde(&w, cie, DW_EH_PE_absptr, FUNC_EV, FUNC_LEN, p.insns);
			assert_int_equal(build(&w, 0x1000, NULL, &table), -ENODATA);
		} else {
			check_program(&p, &w, DW_EH_PE_absptr, cie);
		}
		buf_deinit(&w.out);
	}
}

static void test_signal_frame(void **state)
{
	/* glibc's __restore_rt: CFA = *(rsp + 160), rip at rsp + 168. */
	static const char saved[] = "0f 04 77 a0 01 06 10 10 03 77 a8 01 10 07 03 77 a0 01";
	static const struct unwind_rule signal = { .cfa = UNWIND_CFA_SIGNAL, .flags = UNWIND_RULE_SIGNAL };
	static const struct unwind_rule plain = { .cfa = UNWIND_CFA_SP,
						  .flags = UNWIND_RULE_SIGNAL,
						  .cfa_offset = 8,
						  .ra_offset = -8 };
	struct cfi_writer w = { .ev = EH_EV };
	struct cfi_table table;
	size_t with_s = cfi_writer_cie(&w, &(struct cfi_writer_cie){ .augmentation = "zRS" });
	size_t without = cfi_writer_cie(&w, &(struct cfi_writer_cie){ .encoding = 0 });

	cfi_writer_fde(&w, with_s, 0, FUNC_EV, 16, saved);
	cfi_writer_fde(&w, with_s, 0, FUNC_EV + 16, 16, "");
	cfi_writer_fde(&w, without, 0, FUNC_EV + 32, 16, saved);
	assert_int_equal(build(&w, 0x1000, NULL, &table), 0);
	assert_rule_at(&table, FUNC_EV, &signal, "saved words");
	assert_rule_at(&table, FUNC_EV + 16, &plain, "ordinary rule, exact pc");
	assert_rule_at(&table, FUNC_EV + 32, &(struct unwind_rule)UNSUPPORTED, "no S");
	cfi_table_deinit(&table);
	buf_deinit(&w.out);
}

/* musl's __restore_rt has no entry: found by its bytes between two functions. */
static void test_sigreturn_in_gap(void **state)
{
	static const uint8_t code[] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };
	static const struct unwind_rule signal = { .cfa = UNWIND_CFA_SIGNAL, .flags = UNWIND_RULE_SIGNAL };
	cleanup_free uint8_t *text = calloc(1, 0x1000);
	struct cfi_writer w = { .ev = EH_EV };
	struct cfi_table table;
	size_t cie = cfi_writer_cie(&w, &(struct cfi_writer_cie){ .encoding = 0 });

	assert_non_null(text);
	memcpy(text + 0x140, code, sizeof(code));
	memcpy(text + 0x200, code, sizeof(code)); /* covered by an entry: believed */
	cfi_writer_fde(&w, cie, 0, TEXT_EV + 0x100, 0x20, "");
	cfi_writer_fde(&w, cie, 0, TEXT_EV + 0x1f0, 0x20, "");
	assert_int_equal(build(&w, 0x1000, text, &table), 0);
	assert_rule_at(&table, TEXT_EV + 0x13e, NULL, "before");
	assert_rule_at(&table, TEXT_EV + 0x13f, &signal, "the return address less one");
	assert_rule_at(&table, TEXT_EV + 0x148, &signal, "last byte");
	assert_rule_at(&table, TEXT_EV + 0x149, NULL, "behind");
	assert_rule_at(&table, TEXT_EV + 0x200, &(struct unwind_rule)SP(8), "covered");
	cfi_table_deinit(&table);
	buf_deinit(&w.out);
}

static void test_overlaps(void **state)
{
	struct cfi_writer w = { .ev = EH_EV };
	struct cfi_table table;
	size_t cie = cfi_writer_cie(&w, &(struct cfi_writer_cie){ .encoding = 0 });

	cfi_writer_fde(&w, cie, 0, FUNC_EV + 0x80, 0x20, "0e 20"); /* not ascending */
	cfi_writer_fde(&w, cie, 0, FUNC_EV, 0x100, "0e 10");
	cfi_writer_fde(&w, cie, 0, FUNC_EV, 0x40, "0e 18"); /* same start: the first stays */
	cfi_writer_fde(&w, cie, 0, FUNC_EV + 0x200, 0x40, "0e 28");
	cfi_writer_fde(&w, cie, 0, 0, 0x40, "0e 30");		      /* discarded by the linker */
	cfi_writer_fde(&w, cie, 0, TEXT_EV + 0x5000, 0x40, "0e 30");  /* not in the segment */
	cfi_writer_fde(&w, cie, 0, TEXT_EV + 0xff0, UINT64_MAX, ""); /* leaves the segment */
	assert_int_equal(build(&w, 0x1000, NULL, &table), 0);
	assert_rule_at(&table, FUNC_EV, &(struct unwind_rule)SP(16), "first");
	assert_rule_at(&table, FUNC_EV + 0x7f, &(struct unwind_rule)SP(16), "until the next start");
	assert_rule_at(&table, FUNC_EV + 0x80, &(struct unwind_rule)SP(32), "the later start");
	assert_rule_at(&table, FUNC_EV + 0xa0, NULL, "and nothing behind it");
	assert_rule_at(&table, FUNC_EV + 0x23f, &(struct unwind_rule)SP(40), "last");
	assert_rule_at(&table, TEXT_EV + 0xfff, &(struct unwind_rule)SP(8), "cut at the segment's end");
	assert_null(cfi_table_find(&table, TEXT_FO + 0x100000));
	assert_null(cfi_table_find(&table, UINT64_MAX));
	cfi_table_deinit(&table);
	buf_deinit(&w.out);
}

/* A function over many pages: each page starts with the rule in force, and sums are exact. */
static void test_pages(void **state)
{
	static const size_t text_bytes = 5 * UNWIND_PAGE_BYTES;
	struct cfi_writer w = { .ev = EH_EV };
	struct cfi_table table;
	size_t cie = cfi_writer_cie(&w, &(struct cfi_writer_cie){ .encoding = 0 });

	/* def_cfa rbp + 16 exactly at a page's start, TEXT_FO + two pages. */
	cfi_writer_fde(&w, cie, 0, TEXT_EV + 0x100, 4 * UNWIND_PAGE_BYTES, "03 00 07 0c 06 10 86 02");
	assert_int_equal(build(&w, text_bytes, NULL, &table), 0);
	assert_null(at(&table, TEXT_EV + 0xff));
	assert_int_equal(at(&table, TEXT_EV + 0x7ff)->cfa, UNWIND_CFA_SP);
	assert_int_equal(at(&table, TEXT_EV + 0x800)->cfa, UNWIND_CFA_FP);
	assert_int_equal(at(&table, TEXT_EV + 0x10ff)->cfa, UNWIND_CFA_FP);
	assert_null(at(&table, TEXT_EV + 0x1100));
	assert_int_equal(table.text_bytes, 4 * UNWIND_PAGE_BYTES);
	assert_int_equal(table.fp_text_bytes, 4 * UNWIND_PAGE_BYTES - 0x700);
	assert_int_equal(table.entry_bytes, 0x700);
	assert_false(table.breaks_fp);
	assert_int_equal(table.unsupported_bytes, 0);
	/* Rows: gap and start in the first page, one at each start of the next four, end. */
	assert_int_equal(table.row_count, 7);
	cfi_table_deinit(&table);
	buf_deinit(&w.out);
}

struct section {
	const char *name;
	const void *code;
	size_t bytes;
};

/* The table of a file without CFI whose @sections lie behind its text, at file offset 0x3000;
 * @entry: the first is where the program begins. */
static void table_of_sections(const struct section *sections, size_t count, bool entry,
			      struct cfi_table *ret)
{
	struct elf_writer writer = { .text_ev = TEXT_EV, .text_fo = 0x1000, .text_bytes = 0x2000 };
	cleanup_free uint8_t *file = NULL;
	size_t len, bytes = 0;
	Elf *elf;

	for (size_t i = 0; i < count; i++) {
		elf_writer_section(&writer, sections[i].name, TEXT_EV + 0x2000 + bytes,
				   sections[i].code, sections[i].bytes);
		bytes += sections[i].bytes;
	}
	file = elf_writer_finish(&writer, &len);
	if (entry)
		((Elf64_Ehdr *)file)->e_entry = TEXT_EV + 0x2000;
	/* the segment reaches over them */
	((Elf64_Phdr *)(file + sizeof(Elf64_Ehdr)))->p_filesz += bytes;
	elf = elf_writer_open(file, len);
	assert_int_equal(cfi_table_build(elf, -1, ret), 0);
	elf_end(elf);
	assert_int_equal(cfi_image_validate(ret->image, ret->image_bytes), 0);
	assert_null(cfi_table_find(ret, 0x2fff));
}

static void test_synthetic_sections(void **state)
{
	static const uint8_t plt[48] = { 0xff, 0x35, 0,	   0,	 0,    0,    0xff, 0x25, 0, 0, 0,
					 0,    0x90, 0x90, 0x90, 0x90, 0xff, 0x25, 0,	 0, 0, 0,
					 0x68, 0,    0,	   0,	 0,    0xe9, 0,	   0,	 0, 0 };
	static const uint8_t init[16] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08,
					  0x90, 0x90, 0x90, 0x48, 0x83, 0xc4, 0x08, 0xc3 };
	static const struct unwind_rule lazy = { .cfa = UNWIND_CFA_PLT, .cfa_deref = 11, .ra_offset = -8 };
	const struct section sections[] = { { ".plt", plt, sizeof(plt) },
					    { ".init", init, sizeof(init) } };
	struct cfi_table table;

	table_of_sections(sections, ARRAY_SIZE(sections), false, &table);
	assert_int_equal(cfi_table_find(&table, 0x3000)->cfa_offset, 16);
	assert_int_equal(cfi_table_find(&table, 0x3006)->cfa_offset, 24);
	assert_memory_equal(cfi_table_find(&table, 0x3010), &lazy, sizeof(lazy));
	assert_memory_equal(cfi_table_find(&table, 0x302f), &lazy, sizeof(lazy));
	assert_int_equal(cfi_table_find(&table, 0x3030)->cfa_offset, 8);
	assert_int_equal(cfi_table_find(&table, 0x3037)->cfa_offset, 8);
	assert_int_equal(cfi_table_find(&table, 0x3038)->cfa_offset, 16);
	assert_int_equal(cfi_table_find(&table, 0x303e)->cfa_offset, 16);
	assert_int_equal(cfi_table_find(&table, 0x303f)->cfa_offset, 8);
	cfi_table_deinit(&table);
}

/* mold's: the head pushes twice, entries never. */
static void test_mold_plt(void **state)
{
	static const uint8_t plt[64] = { 0xf3, 0x0f, 0x1e,	  0xfa, 0x41, 0x53, 0xff, 0x35,
					 0,    0,    0,		  0,	0xff, 0x25, 0,	  0,
					 0,    0,    [32] = 0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb,
					 0,    0,    0,		  0,	0xff, 0x25 };
	static const struct {
		uint64_t fo;
		int32_t cfa_offset;
	} due[] = { { 0x3000, 8 },  { 0x3005, 8 },  { 0x3006, 16 }, { 0x300b, 16 },
		    { 0x300c, 24 }, { 0x301f, 24 }, { 0x3020, 8 },  { 0x303f, 8 } };
	struct cfi_table table;

	table_of_sections(&(struct section){ ".plt", plt, sizeof(plt) }, 1, false, &table);
	for (size_t i = 0; i < ARRAY_SIZE(due); i++) {
		const struct unwind_rule *rule = cfi_table_find(&table, due[i].fo);

		assert_int_equal(rule->cfa, UNWIND_CFA_SP);
		assert_int_equal(rule->cfa_offset, due[i].cfa_offset);
	}
	cfi_table_deinit(&table);
}

/* The code at the entry point is the outermost frame up to where it never goes on. */
static void test_entry_point(void **state)
{
	/* call; mov; jmp *%r12; the function behind it */
	static const uint8_t start[] = { 0xe8, 0,    0,	   0,	 0,    0x90, 0x90,
					 0x90, 0x41, 0xff, 0xe4, 0x53, 0x90, 0x90 };
	struct cfi_table table;

	table_of_sections(&(struct section){ ".text2", start, sizeof(start) }, 1, true, &table);
	assert_int_equal(cfi_table_find(&table, 0x3000)->cfa, UNWIND_CFA_END);
	assert_int_equal(cfi_table_find(&table, 0x300a)->cfa, UNWIND_CFA_END);
	assert_null(cfi_table_find(&table, 0x300b));
	cfi_table_deinit(&table);
}

/* CPU ns to build the table of a file of @count functions that never change their stack, least of
 * three. */
static uint64_t cost_of(unsigned count)
{
	struct cfi_writer w = { .ev = EH_EV };
	struct elf_writer writer = { .text_ev = TEXT_EV,
				     .text_fo = TEXT_FO,
				     .text_bytes = (count + 1) * 64 };
	cleanup_close int fd = memfd_create("functions", MFD_CLOEXEC);
	size_t cie = cfi_writer_cie(&w, &(struct cfi_writer_cie){ 0 }), len;
	cleanup_free uint8_t *file = NULL;
	uint64_t least_ns = UINT64_MAX;

	for (unsigned i = 0; i < count; i++)
		cfi_writer_fde(&w, cie, DW_EH_PE_absptr, TEXT_EV + i * 64, 48, "");
	elf_writer_section(&writer, ".eh_frame", EH_EV, w.out.data, w.out.len);
	file = elf_writer_finish(&writer, &len);
	assert_int_equal(io_write_all(fd, file, len), 0);
	buf_deinit(&w.out);
	for (unsigned i = 0; i < 3; i++) {
		struct timespec begin, end;
		struct cfi_table table;
		Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
		uint64_t ns;

		(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
		assert_int_equal(cfi_table_build(elf, fd, &table), 0);
		(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
		ns = (uint64_t)(end.tv_sec - begin.tv_sec) * 1000000000u + (uint64_t)end.tv_nsec -
		     (uint64_t)begin.tv_nsec;
		least_ns = ns < least_ns ? ns : least_ns;
		cfi_table_deinit(&table);
		elf_end(elf);
	}
	return least_ns;
}

/* Four times as many functions take about four times as long (sixteen times where each is looked
 * for among all before it). */
static void test_many_functions(void **state)
{
	uint64_t some = cost_of(20000), many = cost_of(80000);

	print_message("20,000 functions: %lu us, 80,000: %lu us\n", some / 1000, many / 1000);
	assert_true(many < 9 * some);
}

static void test_refused(void **state)
{
	struct cfi_table table = { .row_count = 77 };
	struct elf_writer writer = { .text_ev = TEXT_EV, .text_fo = TEXT_FO, .text_bytes = 0x1000 };
	struct elf_writer other = writer;
	cleanup_free uint8_t *file = NULL;
	cleanup_free uint8_t *other_file = NULL;
	size_t len;
	Elf *elf;

	file = elf_writer_finish(&writer, &len);
	elf = elf_writer_open(file, len);
	assert_int_equal(cfi_table_build(elf, -1, &table), -ENODATA);
	elf_end(elf);
	other.machine = EM_RISCV;
	other_file = elf_writer_finish(&other, &len);
	elf = elf_writer_open(other_file, len);
	assert_int_equal(cfi_table_build(elf, -1, &table), -ENOEXEC);
	elf_end(elf);
	assert_int_equal(table.row_count, 77); /* untouched */
}

/* Every single byte of an image may be wrong: never a read outside, and the head's fields are
 * checked. */
static void test_validate(void **state)
{
	struct cfi_writer w = { .ev = EH_EV };
	struct cfi_table table;
	size_t cie = cfi_writer_cie(&w, &(struct cfi_writer_cie){ .encoding = 0 });
	unsigned refused = 0;

	cfi_writer_fde(&w, cie, 0, FUNC_EV, 0x20, programs[1].insns);
	assert_int_equal(build(&w, 0x1000, NULL, &table), 0);
	for (size_t len = 0; len < table.image_bytes; len++)
		assert_int_equal(cfi_image_validate(table.image, len), -EPROTO);
	for (size_t i = 0; i < table.image_bytes; i++) {
		uint8_t *byte = (uint8_t *)table.image + i;

		*byte ^= 0x41;
		if (cfi_image_validate(table.image, table.image_bytes) < 0)
			refused++;
		else
			for (uint64_t fo = 0; fo < 0x20000; fo += 7)
				(void)cfi_table_find(&table, fo);
		*byte ^= 0x41;
	}
	assert_true(refused > sizeof(struct unwind_table_head));
	cfi_table_deinit(&table);
	buf_deinit(&w.out);
}

/* A segment whose end does not fit in 64 bits, in memory or in the file, is none. */
static void test_segments_that_wrap(void **state)
{
	struct elf_writer writer = { .text_ev = TEXT_EV, .text_fo = TEXT_FO, .text_bytes = 64 };

	for (int i = 0; i < 3; i++) {
		cleanup_free uint8_t *file = NULL;
		struct elf_segments segments;
		Elf64_Phdr *phdr;
		size_t len;
		Elf *elf;

		file = elf_writer_finish(&writer, &len);
		phdr = (Elf64_Phdr *)(file + ((const Elf64_Ehdr *)file)->e_phoff);
		assert_int_equal(phdr->p_type, PT_LOAD);
		if (i == 1)
			phdr->p_vaddr = UINT64_MAX - 63;
		if (i == 2)
			phdr->p_offset = UINT64_MAX - 63;
		elf = elf_writer_open(file, len);
		assert_int_equal(elf_segments_load(elf, &segments), 0);
		assert_int_equal(segments.count, i ? 1 : 2); /* the second one is of data */
		elf_end(elf);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_instructions),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_bad_cies),
		cmocka_unit_test(test_signal_frame),
		cmocka_unit_test(test_sigreturn_in_gap),
		cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_segments_that_wrap),
		cmocka_unit_test(test_mold_plt),
		cmocka_unit_test(test_entry_point),
		cmocka_unit_test(test_synthetic_sections),
		cmocka_unit_test(test_many_functions),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_validate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
