// SPDX-License-Identifier: Apache-2.0
/* x86-64: register numbers of the System V ABI, AMD64 supplement, figure 3.36, and rows for code
 * that has no entry of its own though every linker and libc writes it the same way: PLT sections
 * (lld and mold describe none of them), .init and .fini (crti.o and crtn.o have no CFI), where a
 * program begins. Each is recognised by its bytes; what is not recognised stays a gap. */
#include <dwarf.h>
#include <elf.h>
#include <string.h>

#include "symbolize/cfi_internal.h"

#define DWARF_RBX 3
#define DWARF_RBP 6
#define DWARF_RSP 7
#define DWARF_RIP 16

#define INIT_SECTION_BYTES_MAX 4096u

/* rsp + 8 + (((rip & 15) >= N) << 3): the lazy entry pushes 8 bytes in its instruction before
 * offset N. bfd/elfxx-x86.c writes exactly these bytes, with N by the layout of the entries. */
static bool plt_expression(struct bytes expr, struct unwind_rule *rule)
{
	static const uint8_t before[] = { DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit15, DW_OP_and };
	static const uint8_t after[] = { DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus };
	uint8_t nibble;

	if (bytes_left(&expr) != sizeof(before) + 1 + sizeof(after) ||
	    memcmp(expr.at, before, sizeof(before)) ||
	    memcmp(expr.at + sizeof(before) + 1, after, sizeof(after)))
		return false;
	nibble = expr.at[sizeof(before)] - DW_OP_lit0;
	if (nibble > 15)
		return false;
	*rule = (struct unwind_rule){ .cfa = UNWIND_CFA_PLT, .cfa_deref = nibble, .ra_offset = -8 };
	return true;
}

/* mov $15, %rax; syscall: glibc's and musl's __restore_rt; debuggers know it by these bytes too. */
static const uint8_t sigreturn[] = { 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05 };

/* mov %rbx, %rsp: glibc's __start_context. */
static const uint8_t new_stack[] = { 0x48, 0x89, 0xdc };

/* ---- code without an entry ------------------------------------------------------------------- */

static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };

/* Offset in a 16-byte lazy PLT entry from which its push is done; 0 if it is none (jump only). */
static int16_t plt_push_done_at(const uint8_t entry[16])
{
	if (entry[0] == 0xff && entry[1] == 0x25 && entry[6] == 0x68)
		return 11; /* jmp *slot(%rip); push $n; jmp plt0 */
	if (!memcmp(entry, endbr64, 4) && entry[4] == 0x68)
		return 9; /* endbr64; push $n; jmp plt0 */
	if (entry[0] == 0x68)
		return 5; /* push $n; bnd jmp plt0 */
	return 0;
}

/* endbr64; push %r11; push map(%rip): how mold's begins. Its entries push nothing: the resolver's
 * argument comes in r11. */
static const uint8_t mold_plt[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35 };

#define MOLD_PLT_HEAD_BYTES 32u

static int synth_mold_plt(struct cfi_set *set, const struct cfi_code_section *section)
{
	size_t first = set->steps.count;
	int rc;

	if ((rc = cfi_add_step(set, section->fo, cfi_call_rule(set->arch, 0))) < 0 ||
	    (rc = cfi_add_step(set, section->fo + 6, cfi_call_rule(set->arch, 8))) < 0 ||
	    (rc = cfi_add_step(set, section->fo + 12, cfi_call_rule(set->arch, 16))) < 0 ||
	    (rc = cfi_add_step(set, section->fo + MOLD_PLT_HEAD_BYTES, cfi_call_rule(set->arch, 0))) < 0)
		return rc;
	return cfi_add_range(set, section->ev, section->len, first);
}

/* .plt: entry 0 pushes the link map for the resolver, on top of what a lazy entry pushed. */
static int synth_plt(struct cfi_set *set, const struct cfi_code_section *section)
{
	size_t first = set->steps.count;
	struct unwind_rule plt = { .cfa = UNWIND_CFA_PLT, .ra_offset = set->arch->call_ra_offset };
	struct bytes b;
	int rc;

	if (section->len < 32 || elf_raw_bytes(set->elf, section->fo, 32, &b) < 0)
		return 0;
	if (section->len > MOLD_PLT_HEAD_BYTES && !memcmp(b.at, mold_plt, sizeof(mold_plt)))
		return synth_mold_plt(set, section);
	plt.cfa_deref = plt_push_done_at(b.at + 16);
	if (!plt.cfa_deref || b.at[0] != 0xff || b.at[1] != 0x35) /* push map(%rip), 6 bytes */
		return 0;
	if ((rc = cfi_add_step(set, section->fo, cfi_call_rule(set->arch, 8))) < 0 ||
	    (rc = cfi_add_step(set, section->fo + 6, cfi_call_rule(set->arch, 16))) < 0 ||
	    (rc = cfi_add_step(set, section->fo + 16, plt)) < 0)
		return rc;
	return cfi_add_range(set, section->ev, section->len, first);
}

/* Jumps only: nothing is ever pushed. */
static int synth_jumps(struct cfi_set *set, const struct cfi_code_section *section)
{
	size_t first = set->steps.count;
	struct bytes b;
	int rc;
	unsigned at;

	if (section->len < 8 || elf_raw_bytes(set->elf, section->fo, 8, &b) < 0)
		return 0;
	at = !memcmp(b.at, endbr64, 4) ? 4 : 0;
	at += b.at[at] == 0xf2; /* bnd */
	if (b.at[at] != 0xff || b.at[at + 1] != 0x25)
		return 0;
	rc = cfi_add_step(set, section->fo, cfi_call_rule(set->arch, 0));
	return rc < 0 ? rc : cfi_add_range(set, section->ev, section->len, first);
}

struct frame_code {
	uint8_t set_up[4], take_down[5];
	uint8_t set_up_len, take_down_len, down_at; /* down_at: bytes of take_down until sp is back */
};

/* .init and .fini: one function put together from pieces of many files, between the two that the C
 * library brings. */
static int synth_init(struct cfi_set *set, const struct cfi_code_section *section)
{
	static const struct frame_code codes[] = {
		/* sub $8, %rsp … add $8, %rsp; ret (glibc) */
		{ { 0x48, 0x83, 0xec, 0x08 }, { 0x48, 0x83, 0xc4, 0x08, 0xc3 }, 4, 5, 4 },
		/* push %rax … pop %rax; ret (musl) */
		{ { 0x50 }, { 0x58, 0xc3 }, 1, 2, 1 },
	};
	size_t first = set->steps.count;
	uint64_t size = section->len;
	struct bytes b;
	int rc;

	if (size < 8 || size > INIT_SECTION_BYTES_MAX ||
	    elf_raw_bytes(set->elf, section->fo, size, &b) < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		const struct frame_code *c = &codes[i];
		uint64_t up = (memcmp(b.at, endbr64, 4) ? 0 : 4);
		uint64_t down = size - c->take_down_len;

		if (up + c->set_up_len > down || memcmp(b.at + up, c->set_up, c->set_up_len) ||
		    memcmp(b.at + down, c->take_down, c->take_down_len))
			continue;
		if ((rc = cfi_add_step(set, section->fo, cfi_call_rule(set->arch, 0))) < 0 ||
		    (rc = cfi_add_step(set, section->fo + up + c->set_up_len, cfi_call_rule(set->arch, 8))) < 0 ||
		    (rc = cfi_add_step(set, section->fo + down + c->down_at, cfi_call_rule(set->arch, 0))) < 0)
			return rc;
		set->init_bytes += down + c->down_at - up - c->set_up_len;
		return cfi_add_range(set, section->ev, size, first);
	}
	return 0;
}

/* Bytes of the code at @b up to and with what it never goes on behind: a jump through a register,
 * hlt, ud2. A byte of an operand may look like one, which only makes it shorter. */
static uint64_t entry_len(const struct bytes *b)
{
	const uint8_t *at = b->at;
	uint64_t len = (uint64_t)(b->end - b->at);

	for (uint64_t i = 0; i + 1 < len; i++) {
		if (at[i] == 0xff && (at[i + 1] & 0xf8) == 0xe0)
			return i + 2;
		if (at[i] == 0xf4 || (at[i] == 0x0f && at[i + 1] == 0x0b))
			return i + 1;
	}
	return len;
}

/* A static program's .plt holds jumps for ifuncs only. */
static int synth_plt_or_jumps(struct cfi_set *set, const struct cfi_code_section *section)
{
	int rc = synth_plt(set, section);

	return rc ? rc : synth_jumps(set, section);
}

static int synth_sections(struct cfi_set *set)
{
	static const struct cfi_section_synth sections[] = {
		{ ".plt", synth_plt_or_jumps }, { ".plt.sec", synth_jumps }, { ".plt.got", synth_jumps },
		{ ".plt.bnd", synth_jumps },	{ ".iplt", synth_jumps },    { ".init", synth_init },
		{ ".fini", synth_init },
	};
	int rc = cfi_synth_sections(set, sections, ARRAY_SIZE(sections));

	return rc < 0 ? rc : cfi_synth_entry(set, entry_len);
}

/* ---- Go -------------------------------------------------------------------------------------- */

static bool code_is(const uint8_t *code, uint32_t size, uint64_t at, const void *bytes, size_t len)
{
	return at + len <= size && !memcmp(code + at, bytes, len);
}

/* Is it an instruction of the form {@op, displacement} with @displacement from rsp? Its length, 0
 * if not. */
static uint32_t op_at_sp(const uint8_t *code, uint32_t size, uint64_t at, uint8_t op,
			 int32_t displacement)
{
	const uint8_t short_form[] = { 0x48, op, 0x6c, 0x24, (uint8_t)displacement };
	uint8_t long_form[] = { 0x48, op, 0xac, 0x24, 0, 0, 0, 0 };

	memcpy(long_form + 4, &displacement, 4);
	if (displacement < 128 && code_is(code, size, at, short_form, sizeof(short_form)))
		return sizeof(short_form);
	return code_is(code, size, at, long_form, sizeof(long_form)) ? sizeof(long_form) : 0;
}

/* Go 1.21 and later: push %rbp; mov %rsp, %rbp; sub. Before: sub; mov %rbp, n(%rsp); lea n(%rsp),
 * %rbp. Source: cmd/internal/obj/x86/obj6.go. */
static void go_frame(const uint8_t *code, uint32_t size, uint32_t at, int32_t delta,
		     uint32_t *ret_saved_at, uint32_t *ret_fp_at)
{
	uint32_t len;

	if (delta == 8 && at && code_is(code, size, at - 1, "\x55", 1)) {
		*ret_saved_at = at;
		if (code_is(code, size, at, "\x48\x89\xe5", 3))
			*ret_fp_at = at + 3;
		return;
	}
	len = op_at_sp(code, size, at, 0x89, delta - 8);
	if (!len)
		return;
	*ret_saved_at = at + len;
	len = op_at_sp(code, size, *ret_saved_at, 0x8d, delta - 8);
	if (len)
		*ret_fp_at = *ret_saved_at + len;
}

const struct cfi_arch cfi_arch_amd64 = {
	.machine = EM_X86_64,
	.sp = DWARF_RSP,
	.fp = DWARF_RBP,
	.ra = DWARF_RIP,
	.third = DWARF_RBX,
	.general_end = DWARF_RIP,
	.ra_unit = 1,
	.call_ra_offset = -8,
	.call_cfa_offset = 8,
	/* struct rt_sigframe after its pretcode is popped: ucontext at sp, uc_mcontext at 40, rsp and rip
	 * are its words 15 and 16 (arch/x86/include/uapi/asm/sigcontext.h). */
	.signal_cfa_at = 160,
	.signal_ra_at = 168,
	.plt_expression = plt_expression,
	.sigreturn = sigreturn,
	.sigreturn_len = sizeof(sigreturn),
	.landing = endbr64,
	.landing_len = sizeof(endbr64),
	.new_stack = new_stack,
	.new_stack_len = sizeof(new_stack),
	.synth_sections = synth_sections,
	.go_frame = go_frame,
};
