// SPDX-License-Identifier: Apache-2.0
/* Rows for code that has no entry of its own, whatever the architecture. */
#include "symbolize/cfi_internal.h"

#define PLT_SECTION_BYTES_MAX (64u << 20)
#define ENTRY_BYTES_MAX	      128u /* of the code where a program begins */

struct unwind_rule cfi_call_rule(const struct cfi_arch *arch, int32_t pushed_bytes)
{
	struct unwind_rule rule = { .cfa = UNWIND_CFA_SP,
				    .cfa_offset = arch->call_cfa_offset + pushed_bytes,
				    .ra_offset = arch->call_ra_offset };

	if (arch->has_link) {
		rule.flags = UNWIND_RULE_RA_REG | UNWIND_RULE_SWITCH;
		rule.ra_offset = arch->ra;
	}
	return rule;
}

int cfi_add_step(struct cfi_set *set, uint64_t fo, struct unwind_rule rule)
{
	return cfi_step_vec_push(&set->steps,
				 (struct cfi_step){ .fo = (uint32_t)fo, .rule = rule });
}

int cfi_add_range(struct cfi_set *set, uint64_t ev, uint64_t size_bytes, size_t first)
{
	return cfi_set_add(set, ev, size_bytes,
			   (struct cfi_entry){ .source = CFI_SOURCE_SYNTH,
					       .cie = (uint32_t)first,
					       .len = (uint32_t)(set->steps.count - first) });
}

int cfi_synth_entry(struct cfi_set *set, uint64_t (*entry_len)(const struct bytes *b))
{
	size_t first = set->steps.count;
	GElf_Ehdr ehdr;
	uint64_t fo, left;
	struct bytes b;
	int rc;

	if (!gelf_getehdr(set->elf, &ehdr) || !ehdr.e_entry ||
	    !elf_segments_code(&set->segments, ehdr.e_entry) ||
	    !elf_segments_to_fo(&set->segments, ehdr.e_entry, &fo, &left) ||
	    fo >= CFI_FO_END - ENTRY_BYTES_MAX)
		return 0;
	if (elf_raw_bytes(set->elf, fo, left < ENTRY_BYTES_MAX ? left : ENTRY_BYTES_MAX, &b) < 0)
		return 0;
	rc = cfi_add_step(set, fo, (struct unwind_rule){ .cfa = UNWIND_CFA_END });
	return rc < 0 ? rc : cfi_add_range(set, ehdr.e_entry, entry_len(&b), first);
}

int cfi_synth_sections(struct cfi_set *set, const struct cfi_section_synth *sections, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct cfi_code_section section;
		int rc;

		if (!elf_section_place(set->elf, sections[i].name, &section.ev, &section.fo,
				       &section.len) ||
		    section.len > PLT_SECTION_BYTES_MAX ||
		    section.fo >= CFI_FO_END - PLT_SECTION_BYTES_MAX)
			continue;
		rc = sections[i].synth(set, &section);
		if (rc < 0)
			return rc;
	}
	return 0;
}
