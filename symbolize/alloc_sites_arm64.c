// SPDX-License-Identifier: Apache-2.0
/* Where AArch64 code of an allocator can be probed: always at a function's first instruction. The
 * arguments lie in x0 to x2 there, the return address in x30, and every register that the caller
 * keeps is the caller's (AAPCS64, 6.1.1). A later instruction that the kernel emulates would be no
 * better: compilers set up the frame record first, and x29 is the callee's from then on. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "symbolize/alloc_sites.h"

#define INSN_BYTES 4u

/* Encodings: Arm Architecture Reference Manual, C4.1. @mask tells which bits are fixed. */
struct pattern {
	uint32_t mask, bits;
};

/* Linux emulates these since arm64 has uprobes: arch/arm64/kernel/probes/decode-insn.c. */
static const struct pattern emulated[] = {
	{ 0xff000010, 0x54000000 }, /* b.cond */
	{ 0x7e000000, 0x34000000 }, /* cbz, cbnz */
	{ 0x7e000000, 0x36000000 }, /* tbz, tbnz */
	{ 0x1f000000, 0x10000000 }, /* adr, adrp */
	{ 0x7c000000, 0x14000000 }, /* b, bl */
};

static bool is_emulated(uint32_t insn)
{
	for (size_t i = 0; i < ARRAY_SIZE(emulated); i++)
		if ((insn & emulated[i].mask) == emulated[i].bits)
			return true;
	return false;
}

int alloc_site_find_arm64(const uint8_t *code, size_t len, enum alloc_kind kind,
			  struct control_alloc_site *ret)
{
	uint32_t insn;

	if (len < INSN_BYTES || !alloc_kind_arguments(kind))
		return -ENODATA;
	memcpy(&insn, code, sizeof(insn));
	*ret = (struct control_alloc_site){ .kind = (uint8_t)kind,
					    .argument = { 0, 1, 2 },
					    .flags = is_emulated(insn) ? 0 : ALLOC_SITE_STEPPED };
	return 0;
}
