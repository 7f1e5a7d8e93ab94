// SPDX-License-Identifier: Apache-2.0
#include "symbolize/cfi_rows.h"

#include <errno.h>

#include "symbolize/cfi_internal.h"

const struct cfi_arch *cfi_arch_of(Elf *elf)
{
	static const struct cfi_arch *const archs[] = { &cfi_arch_amd64, &cfi_arch_arm64 };

	for (size_t i = 0; i < ARRAY_SIZE(archs); i++)
		if (elf_check(elf, archs[i]->machine) == 0)
			return archs[i];
	return NULL;
}

static int set_collect(struct cfi_set *set)
{
	int rc;

	if ((rc = cfi_parse_eh_frame(set)) < 0 || (rc = cfi_parse_debug_frame(set)) < 0 ||
	    (rc = cfi_go_functions(set)) < 0 ||
	    (rc = set->arch->synth_sections(set)) < 0 || (rc = cfi_set_order(set)) < 0 ||
	    (rc = cfi_gaps_sigreturn(set)) < 0 || (rc = cfi_set_order(set)) < 0 ||
	    (rc = cfi_gaps_contexts(set)) < 0)
		return rc;
	return cfi_set_order(set);
}

static int set_execute(struct cfi_set *set, struct cfi_builder *builder)
{
	static const struct unwind_rule none = { .cfa = UNWIND_CFA_NONE };
	const struct cfi_entry *last = &set->entries.data[set->entries.count - 1];

	for (const struct cfi_entry *e = set->entries.data; e <= last; e++) {
		int rc = cfi_execute(set, e, builder);

		if (rc < 0)
			return rc;
		/* Padding between adjacent functions never runs: the last rule goes on. */
		if (e < last && e[1].start_fo - e->end_fo < CFI_PADDING_BYTES)
			continue;
		rc = cfi_builder_row(builder, e->end_fo, &none);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int set_build(struct cfi_set *set, struct cfi_builder **ret)
{
	int rc = cfi_builder_create(set->entries.data[0].start_fo,
				    set->entries.data[set->entries.count - 1].end_fo, ret);

	return rc < 0 ? rc : set_execute(set, *ret);
}

int cfi_table_build(Elf *elf, int fd, struct cfi_table *ret)
{
	cleanup_cfi_set struct cfi_set set = { .arch = cfi_arch_of(elf), .elf = elf, .fd = fd };
	cleanup(cfi_builder) struct cfi_builder *builder = NULL;
	int rc;

	if (!set.arch)
		return -ENOEXEC;
	rc = elf_segments_load(elf, &set.segments);
	if (rc < 0)
		return rc;
	rc = set_collect(&set);
	if (rc < 0)
		return rc;
	if (!set.entries.count)
		return -ENODATA;
	rc = set_build(&set, &builder);
	if (rc < 0)
		return rc;
	if (set.third_is_needed) {
		/* Only now is it known that all the rules must say where that register is. */
		set.third_is_followed = true;
		cfi_builder_destroy(builder);
		builder = NULL;
		rc = set_build(&set, &builder);
		if (rc < 0)
			return rc;
	}
	rc = cfi_builder_finish(builder, ret);
	if (rc == 0)
		ret->entry_bytes += set.init_bytes;
	return rc;
}
