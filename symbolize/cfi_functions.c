// SPDX-License-Identifier: Apache-2.0
#include "symbolize/cfi_functions.h"

#include <errno.h>

#include "symbolize/cfi_internal.h"

/* One extent each: their stubs are no functions, and most have names by their relocations
 * (elf_plt.h). */
static int add_sections(struct cfi_set *set)
{
	static const char *const names[] = { ".init",	 ".fini",    ".plt", ".plt.sec",
					     ".plt.got", ".plt.bnd", ".iplt" };
	uint64_t ev, fo, len;
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(names); i++)
		if (elf_section_place(set->elf, names[i], &ev, &fo, &len))
			rc = cfi_set_add(set, ev, len, (struct cfi_entry){ .source = CFI_SOURCE_SYNTH });
	return rc;
}

int cfi_functions_load(Elf *elf, struct index_builder *builder)
{
	cleanup_cfi_set struct cfi_set set = { .arch = cfi_arch_of(elf), .elf = elf };
	int rc = set.arch ? 0 : -ENOEXEC;

	if (rc < 0 || (rc = elf_segments_load(elf, &set.segments)) < 0 ||
	    (rc = cfi_parse_eh_frame(&set)) < 0 || (rc = add_sections(&set)) < 0 ||
	    (rc = cfi_set_order(&set)) < 0)
		return rc;
	for (size_t i = 0; rc >= 0 && i < set.entries.count; i++)
		rc = index_builder_extent(builder, set.entries.data[i].start_fo, set.entries.data[i].end_fo);
	return rc;
}
