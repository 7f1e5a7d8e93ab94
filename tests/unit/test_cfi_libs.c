// SPDX-License-Identifier: Apache-2.0
/* Our rows against libdw's, over the libraries of this machine: at every row boundary and between,
 * every rule that we claim to support must be what libdw finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_debug.h"
#include "symbolize/elf_file.h"

/* Registers of the file's architecture, and what its rules count the return address in. */
static struct arch {
	uint16_t machine;
	int third, fp, sp, ra, general_end;
	int64_t ra_unit;
	int64_t signal_ra_at; /* from sp; 0 = entries do not say */
} arch;

#define PROBES_MAX 60000 /* per file */

struct expectation {
	bool covered;
	bool end;
	uint8_t third; /* enum unwind_third, of ordinary rules */
	struct unwind_rule rule; /* cfa, fp and offsets; UNSUPPORTED = do not compare */
};

/* A location description -> base register, offset and loads; false if it is another form. */
static bool read_ops(const Dwarf_Op *ops, size_t count, bool *from_cfa, int *reg, int64_t *offset,
		     bool *loaded, int64_t *loaded_at)
{
	size_t i = 0;

	*from_cfa = false;
	*loaded = false;
	*reg = -1;
	*offset = 0;
	/* Expressions start with the CFA on the stack: one that pushes a register does not use it. */
	if (count > 1 && ops[0].atom == DW_OP_call_frame_cfa && ops[1].atom >= DW_OP_breg0 &&
	    ops[1].atom <= DW_OP_breg31)
		i++;
	if (i < count && ops[i].atom == DW_OP_call_frame_cfa) {
		*from_cfa = true;
		i++;
	} else if (i < count && ops[i].atom == DW_OP_bregx) {
		*reg = (int)ops[i].number;
		*offset = (int64_t)ops[i].number2;
		i++;
	} else if (i < count && ops[i].atom >= DW_OP_breg0 && ops[i].atom <= DW_OP_breg31) {
		*reg = ops[i].atom - DW_OP_breg0;
		*offset = (int64_t)ops[i].number;
		i++;
	} else {
		return false;
	}
	for (; i < count; i++) {
		if (ops[i].atom == DW_OP_plus_uconst) {
			*offset += (int64_t)ops[i].number;
		} else if (ops[i].atom == DW_OP_deref && !*loaded) {
			*loaded = true;
			*loaded_at = *offset;
			*offset = 0;
		} else if (ops[i].atom == DW_OP_stack_value && i + 1 == count) {
			return true;
		} else {
			return false;
		}
	}
	return true;
}

static bool is_plt(const Dwarf_Op *ops, size_t count, int16_t *nibble)
{
	if (arch.machine != EM_X86_64 || count != 9 || ops[0].atom != DW_OP_breg7 ||
	    ops[1].atom != DW_OP_breg16 || ops[5].atom != DW_OP_ge)
		return false;
	*nibble = (int16_t)(ops[4].atom - DW_OP_lit0);
	return true;
}

/* *(rsp + a + 8 * reg) + b */
static bool is_indexed(const Dwarf_Op *ops, size_t count, struct unwind_rule *rule)
{
	if (arch.machine != EM_X86_64 || count != 7 || ops[0].atom != DW_OP_breg7 ||
	    ops[1].atom < DW_OP_breg0 || ops[1].atom > DW_OP_breg15 || ops[1].number ||
	    ops[2].atom != DW_OP_lit8 || ops[3].atom != DW_OP_mul || ops[4].atom != DW_OP_plus ||
	    ops[5].atom != DW_OP_deref || ops[6].atom != DW_OP_plus_uconst)
		return false;
	rule->cfa = UNWIND_CFA_DEREF_INDEXED;
	rule->cfa_reg = (uint8_t)(ops[1].atom - DW_OP_breg0);
	rule->cfa_deref = (int16_t)ops[0].number;
	rule->cfa_offset = (int32_t)ops[6].number;
	return true;
}

static void expect_cfa(Dwarf_Frame *frame, struct unwind_rule *rule)
{
	Dwarf_Op *ops;
	size_t count;
	bool from_cfa, loaded;
	int reg;
	int64_t offset, at = 0;

	rule->cfa = UNWIND_CFA_UNSUPPORTED;
	if (dwarf_frame_cfa(frame, &ops, &count) || !count)
		return;
	if (is_plt(ops, count, &rule->cfa_deref)) {
		rule->cfa = UNWIND_CFA_PLT;
		return;
	}
	if (is_indexed(ops, count, rule))
		return;
	if (!read_ops(ops, count, &from_cfa, &reg, &offset, &loaded, &at) || from_cfa)
		return;
	rule->cfa_offset = (int32_t)offset;
	rule->cfa_deref = (int16_t)at;
	if (reg == arch.sp)
		rule->cfa = loaded ? UNWIND_CFA_DEREF_SP : UNWIND_CFA_SP;
	else if (reg == arch.fp)
		rule->cfa = loaded ? UNWIND_CFA_DEREF_FP : UNWIND_CFA_FP;
	else {
		rule->cfa = loaded ? UNWIND_CFA_DEREF_REG : UNWIND_CFA_REG;
		rule->cfa_reg = (uint8_t)reg;
	}
}

static bool is_register(const Dwarf_Op *ops, size_t count, int *reg)
{
	*reg = !count ? -1 : ops[0].atom == DW_OP_regx ? (int)ops[0].number : ops[0].atom - DW_OP_reg0;
	return count == 1 && *reg >= 0 && *reg < arch.general_end;
}

static void expect_fp(Dwarf_Frame *frame, struct unwind_rule *rule)
{
	Dwarf_Op mem[3];
	Dwarf_Op *ops;
	size_t count;
	bool from_cfa, loaded;
	int reg;
	int64_t offset, at;

	assert_int_equal(dwarf_frame_register(frame, arch.fp, mem, &ops, &count), 0);
	if (!count) {
		rule->fp = ops ? UNWIND_FP_UNDEFINED : UNWIND_FP_SAME;
		return;
	}
	rule->fp = UNWIND_FP_UNDEFINED;
	if (is_register(ops, count, &reg)) {
		rule->fp = UNWIND_FP_REG;
		rule->fp_offset = reg;
		return;
	}
	if (!read_ops(ops, count, &from_cfa, &reg, &offset, &loaded, &at) || loaded)
		return;
	if (ops[count - 1].atom == DW_OP_stack_value)
		return;
	rule->fp_offset = (int32_t)offset;
	if (from_cfa)
		rule->fp = UNWIND_FP_CFA;
	else if (reg == arch.sp)
		rule->fp = UNWIND_FP_FROM_SP;
	else if (reg == arch.fp)
		rule->fp = UNWIND_FP_FROM_FP;
	else
		rule->fp_offset = 0;
}

/* The place of rbx, as a rule can express it. */
static uint8_t expect_third(Dwarf_Frame *frame)
{
	Dwarf_Op mem[3];
	Dwarf_Op *ops;
	size_t count;
	bool from_cfa, loaded;
	int reg;
	int64_t offset, at;

	if (arch.third < 0)
		return UNWIND_THIRD_SAME;
	assert_int_equal(dwarf_frame_register(frame, arch.third, mem, &ops, &count), 0);
	/* elfutils 0.188 takes rbx for call-clobbered: it has rax in its place (x86_64_cfi.c). */
	if (!count)
		return UNWIND_THIRD_SAME;
	if (!read_ops(ops, count, &from_cfa, &reg, &offset, &loaded, &at) || loaded || !from_cfa ||
	    ops[count - 1].atom == DW_OP_stack_value || offset > -16 || offset < -120 || offset % 8)
		return UNWIND_THIRD_LOST;
	return (uint8_t)(-offset / 8);
}

/* The caller's sp where it is not the CFA, after the rest of the rule: what a rule can say, else
 * UNSUPPORTED. */
static void expect_sp(Dwarf_Frame *frame, struct unwind_rule *rule)
{
	Dwarf_Op mem[3];
	Dwarf_Op *ops;
	size_t count;
	bool from_cfa, loaded;
	int reg;
	int64_t offset = 0, at;

	assert_int_equal(dwarf_frame_register(frame, arch.sp, mem, &ops, &count), 0);
	if ((count == 2 && ops[0].atom == DW_OP_call_frame_cfa && ops[1].atom == DW_OP_stack_value) ||
	    (!count && !ops))
		return;
	rule->flags |= UNWIND_RULE_SWITCH;
	if (is_register(ops, count, &reg) && rule->flags & UNWIND_RULE_RA_REG &&
	    rule->fp != UNWIND_FP_CFA) {
		rule->cfa = UNWIND_CFA_REG;
		rule->cfa_reg = (uint8_t)reg;
		rule->cfa_offset = 0;
	} else if (count && read_ops(ops, count, &from_cfa, &reg, &offset, &loaded, &at) &&
		   from_cfa && !loaded && ops[count - 1].atom != DW_OP_stack_value &&
		   !(rule->flags & UNWIND_RULE_RA_REG) && offset == rule->ra_offset * arch.ra_unit - 8) {
		rule->flags |= UNWIND_RULE_SP_SAVED;
	} else {
		rule->cfa = UNWIND_CFA_UNSUPPORTED;
	}
}

static void expect_rest(Dwarf_Frame *frame, int64_t ra_offset, struct expectation *e)
{
	expect_cfa(frame, &e->rule);
	expect_fp(frame, &e->rule);
	e->rule.ra_offset = (int16_t)ra_offset;
	expect_sp(frame, &e->rule);
	e->third = expect_third(frame);
}

static struct expectation expect_at(Dwarf_CFI *cfi, uint64_t ev)
{
	struct expectation e = { .covered = false };
	Dwarf_Frame *frame = NULL;
	Dwarf_Op mem[3];
	Dwarf_Op *ops;
	size_t count;
	bool from_cfa, loaded, signal = false;
	int reg;
	int64_t offset = 0, at;

	if (!cfi || dwarf_cfi_addrframe(cfi, ev, &frame))
		return e;
	e.covered = true;
	(void)dwarf_frame_info(frame, NULL, NULL, &signal);
	e.rule.flags = signal ? UNWIND_RULE_SIGNAL : 0;
	if (arch.ra < arch.general_end && !dwarf_frame_register(frame, arch.ra, mem, &ops, &count) &&
	    !count && !ops) {
		/* it is where the call has put it */
		e.rule.flags |= UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH;
		expect_rest(frame, arch.ra, &e);
	} else if (!dwarf_frame_register(frame, arch.ra, mem, &ops, &count) && !count && ops) {
		e.end = true;
	} else if (is_register(ops, count, &reg)) {
		e.rule.flags |= UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH;
		expect_rest(frame, reg, &e);
	} else if (!count || !read_ops(ops, count, &from_cfa, &reg, &offset, &loaded, &at)) {
		e.rule.cfa = UNWIND_CFA_UNSUPPORTED;
	} else if (!from_cfa) {
		e.rule.cfa = signal && reg == arch.sp && offset == arch.signal_ra_at ? UNWIND_CFA_SIGNAL :
								     UNWIND_CFA_UNSUPPORTED;
	} else if (offset / arch.ra_unit < INT16_MIN) {
		e.rule.cfa = UNWIND_CFA_UNSUPPORTED;
	} else {
		expect_rest(frame, offset / arch.ra_unit, &e);
	}
	free(frame);
	return e;
}

static bool is_rule(struct unwind_rule found, const struct unwind_rule *want, uint8_t third)
{
	if (found.flags & UNWIND_RULE_THIRD) {
		if (found.cfa_reg >> 4 != third)
			return false;
		found.cfa_reg &= 15;
		found.flags &= (uint8_t)~UNWIND_RULE_THIRD;
	}
	return !memcmp(&found, want, sizeof(*want));
}

static void assert_rule(const struct unwind_rule *found, const struct expectation *e,
			const char *path, uint64_t ev)
{
	const struct unwind_rule *want = &e->rule;
	bool same;

	if (!found)
		same = !e->covered;
	else if (!e->covered)
		same = true; /* PLT, .init: libdw knows less */
	else if (e->end)
		same = found->cfa == UNWIND_CFA_END;
	else if (want->cfa == UNWIND_CFA_UNSUPPORTED || want->cfa == UNWIND_CFA_SIGNAL)
		same = found->cfa == want->cfa;
	else
		same = is_rule(*found, want, e->third);
	if (same)
		return;
	fail_msg(
		"%s: at %#lx: found cfa %d reg %d %d deref %d fp %d %d ra %d flags %d; libdw cfa %d reg %d "
		"%d deref %d fp %d %d ra %d flags %d third %d covered %d end %d",
		path, (unsigned long)ev, found ? found->cfa : -1, found ? found->cfa_reg : -1,
		found ? found->cfa_offset : 0, found ? found->cfa_deref : 0, found ? found->fp : -1,
		found ? found->fp_offset : 0, found ? found->ra_offset : 0,
		found ? found->flags : 0, want->cfa, want->cfa_reg, want->cfa_offset,
		want->cfa_deref, want->fp, want->fp_offset, want->ra_offset, want->flags, e->third,
		e->covered, e->end);
}

/* Probes one executable segment: each place where our rule changes and its neighbours, as far as
 * the number of probes allows, spread over the segment. */
static unsigned probe_segment(const struct cfi_table *table, const struct elf_segment *s,
			      Dwarf_CFI *cfi, const char *path)
{
	const struct unwind_rule *last = NULL;
	uint64_t left = 0;
	unsigned probes = 0;
	uint64_t step = (s->end_ev - s->start_ev) / (PROBES_MAX / 4) + 1;

	for (uint64_t at = 0; at < s->end_ev - s->start_ev; at++) {
		const struct unwind_rule *rule = cfi_table_find(table, s->offset_fo + at);
		bool due = at % step == 0;

		if (due)
			left = step < 8 ? step : 8; /* and the next few changes from here */
		if (due || (rule != last && left)) {
			struct expectation e = expect_at(cfi, s->start_ev + at);

			assert_rule(rule, &e, path, s->start_ev + at);
			probes++;
			if (!due)
				left--;
		}
		last = rule;
	}
	return probes;
}

static void set_arch(Elf *elf)
{
	static const struct arch archs[] = {
		{ EM_X86_64, 3, 6, 7, 16, 16, 1, 168 },
		{ EM_AARCH64, -1, 29, 31, 30, 31, 8, 0 },
	};
	GElf_Ehdr ehdr;

	assert_non_null(gelf_getehdr(elf, &ehdr));
	arch = archs[ehdr.e_machine == EM_AARCH64];
}

static void check_file(const char *path)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	struct cfi_table table;
	struct elf_segments segments;
	uint64_t start_ns;
	unsigned probes = 0;
	Dwarf_CFI *cfi;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		print_message("skipped: no %s on this machine\n", path);
		return;
	}
	assert_int_equal(elf_file_open_take(fd, &file), 0);
	set_arch(file->elf);
	start_ns = clock_monotonic_ns();
	assert_int_equal(cfi_table_build(file->elf, file->fd, &table), 0);
	print_message(
		"%s: %u rows, %zu bytes, text %lu, fp %lu, entries %lu, unsupported %lu, %.1f ms\n",
		path, table.row_count, table.image_bytes, (unsigned long)table.text_bytes,
		(unsigned long)table.fp_text_bytes, (unsigned long)table.entry_bytes,
		(unsigned long)table.unsupported_bytes,
		(double)(clock_monotonic_ns() - start_ns) / 1e6);
	assert_int_equal(cfi_image_validate(table.image, table.image_bytes), 0);
	assert_int_equal(elf_segments_load(file->elf, &segments), 0);
	cfi = dwarf_getcfi_elf(file->elf);
	for (unsigned i = 0; i < segments.count; i++)
		if (segments.items[i].executable)
			probes += probe_segment(&table, &segments.items[i], cfi, path);
	assert_true(probes > 50);
	if (cfi)
		dwarf_cfi_end(cfi);
	cfi_table_deinit(&table);
}

static void test_against_libdw(void **state)
{
	static const char *const paths[] = {
		"/lib/x86_64-linux-gnu/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
		"/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
		"/lib/aarch64-linux-gnu/libc.so.6",
		"/lib/ld-linux-aarch64.so.1",
		"/usr/lib/aarch64-linux-gnu/libcrypto.so.3",
		"/usr/lib/aarch64-linux-gnu/libstdc++.so.6",
		"build/sysroot-arm64/lib/aarch64-linux-gnu/libc.so.6",
		"build/sysroot-arm64/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1",
		"build/sysroot-arm64/usr/lib/aarch64-linux-gnu/libgnutls.so.30",
		"build/sysroot-arm64/usr/lib/aarch64-linux-gnu/libstdc++.so.6",
		"build/arm64/profd",
		"/bin/busybox",
		"/bin/bash",
		"/proc/self/exe",
	};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		check_file(paths[i]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(test_against_libdw) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
