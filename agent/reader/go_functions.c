// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_functions.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define CODE_BYTES_MAX 4096u
#define ADRP_REACH     8u /* instructions between ADRP and the use of its register */
#define NAME_OVERLAP   256u

/* ---- by name --------------------------------------------------------------------------------- */

struct name_search {
	const char *name;
	size_t len; /* with both NULs */
	uint64_t names_va;
	uint32_t ret;
};

/* Names are NUL-terminated, one after the other. */
static int find_name(void *ctx, uint64_t va, const uint8_t *data, size_t len)
{
	struct name_search *search = ctx;
	const uint8_t *at = data;

	while ((at = memmem(at, len - (size_t)(at - data), search->name, search->len))) {
		uint64_t name_va = va + (uint64_t)(at - data);

		if (name_va == search->names_va || (at > data && at[-1] == 0)) {
			search->ret = (uint32_t)(name_va - search->names_va);
			return 1;
		}
		at++;
	}
	return 0;
}

int go_function_by_name(struct go_layout *layout, const char *name, struct go_func *ret)
{
	struct name_search search = { .name = name,
				      .len = strlen(name) + 1,
				      .names_va = layout->table.names_va };
	int rc;

	/* The table of names ends before pctab; what lies between is harmless to search. */
	rc = image_scan(&layout->image, layout->table.names_va, layout->table.pctab_va,
			NAME_OVERLAP, find_name, &search);
	if (rc <= 0)
		return rc < 0 ? rc : -ENOENT;
	for (uint32_t i = 0; i < layout->table.func_count; i++) {
		struct go_func func;

		rc = go_table_at(&layout->table, i, &func);
		if (rc < 0 && rc != -EPROTO)
			return rc;
		if (rc == 0 && func.name == search.ret) {
			*ret = func;
			return 0;
		}
	}
	return -ENOENT;
}

/* ---- operands -------------------------------------------------------------------------------- */

static unsigned add_operand(uint64_t va, const struct go_range *range, uint64_t *ret,
			    unsigned count, unsigned max)
{
	if (va < range->start_va || va >= range->end_va || count >= max)
		return count;
	for (unsigned i = 0; i < count; i++)
		if (ret[i] == va)
			return count;
	ret[count] = va;
	return count + 1;
}

/* [REX] opcode ModRM(mod 00, rm 101) disp32: mov, lea, cmp with a pc-relative operand and no
 * immediate (Intel SDM volume 2, 2.2.1.6). 83 /7 carries one byte of immediate. */
static unsigned amd64_operands(const uint8_t *code, size_t len, uint64_t va,
			       const struct go_range *range, uint64_t *ret, unsigned max)
{
	unsigned count = 0;

	for (size_t at = 0; at + 6 <= len; at++) {
		uint8_t opcode = code[at];
		int32_t displacement;
		uint64_t end;

		if (opcode != 0x8b && opcode != 0x8d && opcode != 0x89 && opcode != 0x39 &&
		    opcode != 0x3b && opcode != 0x83)
			continue;
		if ((code[at + 1] & 0xc7) != 0x05)
			continue;
		memcpy(&displacement, code + at + 2, sizeof(displacement));
		end = va + at + 6 + (opcode == 0x83 ? 1 : 0);
		count = add_operand(end + (uint64_t)(int64_t)displacement, range, ret, count, max);
	}
	return count;
}

static uint32_t instruction_at(const uint8_t *code, size_t index)
{
	uint32_t word;

	memcpy(&word, code + index * 4, sizeof(word));
	return word;
}

/* ADRP Xd, page followed by ADD Xn, Xd, #imm12 or LDR/STR Xt, [Xd, #imm12 << size] (Arm ARM C6.2).
 */
static unsigned arm64_operands(const uint8_t *code, size_t len, uint64_t va,
			       const struct go_range *range, uint64_t *ret, unsigned max)
{
	size_t instructions = len / 4;
	unsigned count = 0;

	for (size_t i = 0; i < instructions; i++) {
		uint32_t adrp = instruction_at(code, i), reg = adrp & 31;
		uint64_t page;

		if ((adrp & 0x9f000000) != 0x90000000)
			continue;
		page = (uint64_t)(adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3);
		page = ((va + i * 4) & ~(uint64_t)4095) +
		       ((uint64_t)((int64_t)(page << 43) >> 43) << 12);
		for (size_t j = i + 1; j < instructions && j <= i + ADRP_REACH; j++) {
			uint32_t use = instruction_at(code, j), imm = use >> 10 & 0xfff;

			if ((use >> 5 & 31) != reg)
				continue;
			if ((use & 0xffc00000) == 0x91000000)
				count = add_operand(page + imm, range, ret, count, max);
			else if ((use & 0x3f000000) == 0x39000000)
				count = add_operand(page + ((uint64_t)imm << (use >> 30)), range,
						    ret, count, max);
		}
	}
	return count;
}

unsigned go_code_operands(uint16_t machine, const uint8_t *code, size_t len, uint64_t va,
			  const struct go_range *range, uint64_t *ret, unsigned max)
{
	return machine == EM_AARCH64 ? arm64_operands(code, len, va, range, ret, max)
				     : amd64_operands(code, len, va, range, ret, max);
}

int go_function_operands(struct go_layout *layout, const struct go_func *func,
			 const struct go_range *range, uint64_t *ret, unsigned max)
{
	uint8_t code[CODE_BYTES_MAX];
	size_t len = func->end_va - func->entry_va;

	if (func->end_va < func->entry_va || len > sizeof(code))
		len = sizeof(code);
	if (image_read(&layout->image, func->entry_va, code, len) < 0)
		return -EFAULT;
	return (int)go_code_operands(layout->image.machine, code, len, func->entry_va, range, ret,
				     max);
}
