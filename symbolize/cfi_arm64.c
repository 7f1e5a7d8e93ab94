// SPDX-License-Identifier: Apache-2.0
/* AArch64: register numbers of DWARF for the Arm 64-bit Architecture (AADWARF64), and rows for code
 * without an entry, as in cfi_amd64.c: PLT sections, .init and .fini, where a program begins, and
 * the kernel's vdso, which has no entries at all. */
#include <elf.h>
#include <string.h>

#include "symbolize/cfi_internal.h"

#define DWARF_X29	29
#define DWARF_X30	30
#define DWARF_SP	31
#define DWARF_GENERAL_END 31

#define INIT_SECTION_BYTES_MAX 4096u
#define PLT_HEAD_BYTES	       32u

/* Instructions of Arm ARM, C6.2. */
#define INSN_BYTES	 4u
#define BTI_C		 0xd503245fu
#define PACIASP		 0xd503233fu
#define AUTIASP		 0xd50323bfu
#define NOP		 0xd503201fu
#define RET		 0xd65f03c0u
#define PUSH_RECORD	 0xa9bf7bfdu /* stp x29, x30, [sp, #-16]! */
#define POP_RECORD	 0xa8c17bfdu /* ldp x29, x30, [sp], #16 */
#define PUSH_X16_X30	 0xa9bf7bf0u /* stp x16, x30, [sp, #-16]!: a PLT begins with it */
#define GO_SAVES_FP	 0xf81f83fdu /* stur x29, [sp, #-8] */
#define GO_SAVES_BOTH	 0xa93ffa9du /* stp x29, x30, [x20, #-8] */
#define GO_SETS_FP	 0xd10023fdu /* sub x29, sp, #8 */

static uint32_t insn(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool no_plt_expression(struct bytes expr, struct unwind_rule *rule)
{
	return false;
}

/* mov x8, #139; svc #0 */
static const uint8_t sigreturn[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 };

static const uint8_t landing[] = { 0x5f, 0x24, 0x03, 0xd5 };

/* mov x0, x19; br x20: of no function's beginning; glibc's __start_context says itself that it is
 * an end. */
static const uint8_t new_stack[] = { 0xe0, 0x03, 0x13, 0xaa, 0x80, 0x02, 0x1f, 0xd6 };

/* The rule where a frame record is all that was pushed. */
static struct unwind_rule record_rule(void)
{
	return (struct unwind_rule){ .cfa = UNWIND_CFA_SP,
				     .cfa_offset = 16,
				     .fp = UNWIND_FP_CFA,
				     .fp_offset = -16,
				     .ra_offset = -1 };
}

/* ---- PLT, .init, where a program begins ------------------------------------------------------ */

/* Entries change no register that matters. The head, for lazy binding, pushes x16 and x30. */
static int synth_plt(struct cfi_set *set, const struct cfi_code_section *section)
{
	const struct unwind_rule call = cfi_call_rule(set->arch, 0);
	struct unwind_rule pushed = { .cfa = UNWIND_CFA_SP, .cfa_offset = 16, .ra_offset = -1 };
	size_t first = set->steps.count;
	struct bytes b;
	uint64_t at;
	int rc = cfi_add_step(set, section->fo, call);

	if (rc < 0)
		return rc;
	if (section->len > PLT_HEAD_BYTES &&
	    elf_raw_bytes(set->elf, section->fo, PLT_HEAD_BYTES, &b) == 0) {
		at = insn(b.at) == BTI_C ? INSN_BYTES : 0;
		if (insn(b.at + at) == PUSH_X16_X30 &&
		    ((rc = cfi_add_step(set, section->fo + at + INSN_BYTES, pushed)) < 0 ||
		     (rc = cfi_add_step(set, section->fo + PLT_HEAD_BYTES, call)) < 0))
			return rc;
	}
	return cfi_add_range(set, section->ev, section->len, first);
}

/* One function put together from pieces of many files: stp x29, x30, [sp, #-16]! …
 * ldp x29, x30, [sp], #16; ret, perhaps with a signature or a landing before and a check after. */
static int synth_init(struct cfi_set *set, const struct cfi_code_section *section)
{
	size_t first = set->steps.count;
	uint64_t size = section->len & ~(uint64_t)(INSN_BYTES - 1), up = 0, down;
	struct bytes b;
	int rc;

	if (size < 4 * INSN_BYTES || size > INIT_SECTION_BYTES_MAX ||
	    elf_raw_bytes(set->elf, section->fo, size, &b) < 0)
		return 0;
	while (up < 2 * INSN_BYTES && (insn(b.at + up) == BTI_C || insn(b.at + up) == PACIASP ||
				       insn(b.at + up) == NOP))
		up += INSN_BYTES;
	down = size - INSN_BYTES;
	if (insn(b.at + down) != RET || insn(b.at + up) != PUSH_RECORD)
		return 0;
	down -= INSN_BYTES;
	if (insn(b.at + down) == AUTIASP || insn(b.at + down) == NOP)
		down -= INSN_BYTES;
	if (down <= up || insn(b.at + down) != POP_RECORD)
		return 0;
	if ((rc = cfi_add_step(set, section->fo, cfi_call_rule(set->arch, 0))) < 0 ||
	    (rc = cfi_add_step(set, section->fo + up + INSN_BYTES, record_rule())) < 0 ||
	    (rc = cfi_add_step(set, section->fo + down + INSN_BYTES, cfi_call_rule(set->arch, 0))) < 0)
		return rc;
	return cfi_add_range(set, section->ev, size, first);
}

/* A branch through a register, or none that comes back. */
static uint64_t entry_len(const struct bytes *b)
{
	uint64_t len = (uint64_t)(b->end - b->at);

	for (uint64_t i = 0; i + INSN_BYTES <= len; i += INSN_BYTES) {
		uint32_t word = insn(b->at + i);

		if ((word & 0xfffffc1f) == 0xd61f0000 || (word & 0xfc000000) == 0x14000000 ||
		    (word & 0xffff0000) == 0)
			return i + INSN_BYTES; /* br, b, udf */
	}
	return len;
}

/* ---- files without entries ------------------------------------------------------------------- */

#define SYMBOLS_MAX	   256u
#define FUNCTION_BYTES_MAX 65536u

static bool writes_link(uint32_t word)
{
	return (word & 0xfc000000) == 0x94000000 || (word & 0xfffffc1f) == 0xd63f0000; /* bl, blr */
}

/* add, sub; ldp, stp, ldr, str that move their base. */
static bool writes_sp(uint32_t word)
{
	return (word & 0xbf80001f) == 0x9100001f || (word & 0xbfe0001f) == 0x8b20001f ||
	       (word & 0x3a8003e0) == 0x288003e0 || (word & 0x3b2007e0) == 0x380007e0;
}

/* Code goes on elsewhere: ret, b, br. */
static bool leaves(uint32_t word)
{
	return word == RET || (word & 0xfc000000) == 0x14000000 || (word & 0xfffffc1f) == 0xd61f0000;
}

/* Adds the steps of a function that has no frame, or one that is pushed first and popped before
 * each return: stp x29, x30, [sp, #-N]! … ldp x29, x30, [sp], #N; ret. False: neither. */
static bool scan_function(struct cfi_set *set, const struct bytes *code, uint64_t fo, int *ret_rc)
{
	const struct unwind_rule call = cfi_call_rule(set->arch, 0);
	struct unwind_rule body = call;
	bool popped = false, framed = false;

	*ret_rc = cfi_add_step(set, fo, call);
	for (uint64_t at = 0; code->at + at + INSN_BYTES <= code->end && *ret_rc >= 0; at += INSN_BYTES) {
		uint32_t word = insn(code->at + at);
		int32_t bytes = (int32_t)(word << 10) >> 25; /* words, signed */

		if (popped && leaves(word)) {
			popped = false;
			*ret_rc = cfi_add_step(set, fo + at + INSN_BYTES, body);
		} else if ((word & 0xffc07fff) == 0xa9807bfd && !framed && bytes < 0) {
			framed = true;
			body = record_rule();
			body.cfa_offset = -8 * bytes;
			body.fp_offset = 8 * bytes;
			body.ra_offset = (int16_t)(bytes + 1);
			*ret_rc = cfi_add_step(set, fo + at + INSN_BYTES, body);
		} else if ((word & 0xffc07fff) == 0xa8c07bfd && framed && !popped &&
			   8 * bytes == body.cfa_offset) {
			popped = true;
			*ret_rc = cfi_add_step(set, fo + at + INSN_BYTES, call);
		} else if (writes_sp(word) || (writes_link(word) && (!framed || popped))) {
			return false;
		}
	}
	return true;
}

static int scan_symbol(struct cfi_set *set, const GElf_Sym *sym)
{
	size_t first = set->steps.count;
	uint64_t fo, left;
	struct bytes code;
	int rc;

	if (GELF_ST_TYPE(sym->st_info) != STT_FUNC || sym->st_size < INSN_BYTES ||
	    sym->st_size > FUNCTION_BYTES_MAX || sym->st_value % INSN_BYTES ||
	    !elf_segments_code(&set->segments, sym->st_value) ||
	    !elf_segments_to_fo(&set->segments, sym->st_value, &fo, &left) || left < sym->st_size ||
	    fo >= CFI_FO_END - FUNCTION_BYTES_MAX || elf_raw_bytes(set->elf, fo, sym->st_size, &code) < 0)
		return 0;
	if (!scan_function(set, &code, fo, &rc)) {
		set->steps.count = first;
		return rc < 0 ? rc : 0;
	}
	return rc < 0 ? rc : cfi_add_range(set, sym->st_value, sym->st_size, first);
}

/* The kernel's vdso discards its entries (arch/arm64/kernel/vdso/vdso.lds.S). Its few functions are
 * known by their code. */
static int synth_functions(struct cfi_set *set)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	GElf_Sym sym;
	int rc = 0;

	while (rc >= 0 && (scn = elf_nextscn(set->elf, scn))) {
		Elf_Data *data;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_DYNSYM)
			continue;
		data = elf_getdata(scn, NULL);
		for (int i = 0; data && rc >= 0 && i < (int)SYMBOLS_MAX && gelf_getsym(data, i, &sym); i++)
			rc = scan_symbol(set, &sym);
	}
	return rc;
}

/* ---- Go -------------------------------------------------------------------------------------- */

/* str x30, [sp, #-N]!; stur x29, [sp, #-8]; sub x29, sp, #8. Large frames: sub x20, sp, N;
 * stp x29, x30, [x20, #-8]; mov sp, x20; sub x29, sp, #8. Source: cmd/internal/obj/arm64/obj7.go.
 */
static void go_frame(const uint8_t *code, uint32_t size, uint32_t at, int32_t delta,
		     uint32_t *ret_saved_at, uint32_t *ret_fp_at)
{
	if (at % INSN_BYTES || at > size || size - at < 2 * INSN_BYTES)
		return;
	if (at >= 2 * INSN_BYTES && insn(code + at - 2 * INSN_BYTES) == GO_SAVES_BOTH) {
		*ret_saved_at = at;
		if (insn(code + at) == GO_SETS_FP)
			*ret_fp_at = at + INSN_BYTES;
	} else if (insn(code + at) == GO_SAVES_FP) {
		*ret_saved_at = at + INSN_BYTES;
		if (insn(code + at + INSN_BYTES) == GO_SETS_FP)
			*ret_fp_at = at + 2 * INSN_BYTES;
	}
}

static int synth_sections(struct cfi_set *set)
{
	static const struct cfi_section_synth sections[] = {
		{ ".plt", synth_plt },
		{ ".iplt", synth_plt },
		{ ".init", synth_init },
		{ ".fini", synth_init },
	};
	int rc = set->entries.count ? 0 : synth_functions(set);

	if (rc >= 0)
		rc = cfi_synth_sections(set, sections, ARRAY_SIZE(sections));
	return rc < 0 ? rc : cfi_synth_entry(set, entry_len);
}

const struct cfi_arch cfi_arch_arm64 = {
	.machine = EM_AARCH64,
	.sp = DWARF_SP,
	.fp = DWARF_X29,
	.ra = DWARF_X30,
	.third = 0xff,
	.general_end = DWARF_GENERAL_END,
	.has_link = true,
	.ra_unit = 8,
	.plt_expression = no_plt_expression,
	.sigreturn = sigreturn,
	.sigreturn_len = sizeof(sigreturn),
	.landing = landing,
	.landing_len = sizeof(landing),
	.new_stack = new_stack,
	.new_stack_len = sizeof(new_stack),
	.synth_sections = synth_sections,
	.go_frame = go_frame,
};
