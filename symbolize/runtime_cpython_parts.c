// SPDX-License-Identifier: Apache-2.0
/* Parts of a function that lie elsewhere (".cold"), found without symbols. */
#include <string.h>

#include "symbolize/cfi_internal.h"
#include "symbolize/runtime_cpython.h"

#define MAIN_BYTES_MAX (1u << 20) /* the loop is 35 to 70 KiB */

/* DWARF 5, 6.4.2: instructions that set the frame without moving on. */
#define CFA_DEF_CFA	   0x0c
#define CFA_DEF_CFA_OFFSET 0x0e
#define CFA_DEF_CFA_EXPR   0x0f

static const struct cfi_entry *entry_at(const struct cfi_set *set, uint64_t fo)
{
	size_t low = 0, high = set->entries.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->entries.data[middle].end_fo <= fo)
			low = middle + 1;
		else
			high = middle;
	}
	return low < set->entries.count && set->entries.data[low].start_fo <= fo
		       ? &set->entries.data[low]
		       : NULL;
}

/* A function begins with the frame that its caller left, which its CIE says already. */
static bool has_frame_at_start(const struct cfi_entry *entry)
{
	return entry->source == CFI_SOURCE_EH_FRAME && entry->len &&
	       (entry->insns[0] == CFA_DEF_CFA || entry->insns[0] == CFA_DEF_CFA_OFFSET ||
		entry->insns[0] == CFA_DEF_CFA_EXPR);
}

static void add_range(struct script_range ranges[SCRIPT_RANGES_MAX], const struct cfi_entry *entry)
{
	for (size_t i = 0; i < SCRIPT_RANGES_MAX; i++) {
		if (ranges[i].end && entry->start_fo >= ranges[i].start &&
		    entry->end_fo <= ranges[i].end)
			return;
		if (ranges[i].end)
			continue;
		ranges[i] = (struct script_range){ entry->start_fo, entry->end_fo };
		return;
	}
}

/* AArch64: b, b.cond, cbz, cbnz. */
static uint64_t branch_target(const uint8_t *code, size_t len, size_t at, uint64_t fo)
{
	uint32_t word;
	int64_t words;

	if (at % sizeof(word) || at + sizeof(word) > len)
		return 0;
	memcpy(&word, code + at, sizeof(word));
	if (word >> 26 == 0x05)
		words = (int64_t)((uint64_t)word << 38) >> 38;
	else if (word >> 24 == 0x54 || (word >> 25 & 0x3f) == 0x1a)
		words = (int64_t)((uint64_t)(word >> 5) << 45) >> 45;
	else
		return 0;
	return fo + at + (uint64_t)(words * (int64_t)sizeof(word));
}

/* The target of the jmp or jcc with 32 bits that may begin at @at; 0 = none. Bytes inside of other
 * instructions look like jumps, too: their targets are places of no moved part, but by accident. */
static uint64_t jump_target(const uint8_t *code, size_t len, size_t at, uint64_t fo)
{
	int32_t relative;
	size_t opcode_bytes;

	if (code[at] == 0xe9)
		opcode_bytes = 1;
	else if (code[at] == 0x0f && at + 1 < len && code[at + 1] >> 4 == 8)
		opcode_bytes = 2;
	else
		return 0;
	if (at + opcode_bytes + sizeof(relative) > len)
		return 0;
	memcpy(&relative, code + at + opcode_bytes, sizeof(relative));
	return fo + at + opcode_bytes + sizeof(relative) + (uint64_t)(int64_t)relative;
}

void runtime_cpython_parts(Elf *elf, struct script_range ranges[SCRIPT_RANGES_MAX])
{
	cleanup_cfi_set struct cfi_set set = { .arch = cfi_arch_of(elf), .elf = elf, .fd = -1 };
	uint64_t start = ranges[0].start, len = ranges[0].end - start;
	struct bytes code;

	if (!set.arch || len > MAIN_BYTES_MAX || elf_segments_load(elf, &set.segments) < 0 ||
	    cfi_parse_eh_frame(&set) < 0 || cfi_set_order(&set) < 0 ||
	    elf_raw_bytes(elf, start, len, &code) < 0)
		return;
	for (size_t i = 0; i < len; i++) {
		uint64_t target = set.arch->has_link ? branch_target(code.at, len, i, start)
						     : jump_target(code.at, len, i, start);
		const struct cfi_entry *entry;

		if (!target || (target >= start && target < start + len))
			continue;
		entry = entry_at(&set, target);
		if (entry && has_frame_at_start(entry))
			add_range(ranges, entry);
	}
}
