// SPDX-License-Identifier: Apache-2.0
#include "symbolize/runtime_hotspot.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "symbolize/elf_debug.h"

#define SYMBOLS_MAX    (1u << 20)
#define DATA_BYTES_MAX (64u << 20) /* of the section that is searched; 25 has 3 MiB */

struct found {
	uint64_t structs_ev, types_ev; /* 0 = not exported */
};

static int look_at_export(void *ctx, const char *name, const GElf_Sym *sym)
{
	struct found *found = ctx;

	if (sym->st_shndx == SHN_UNDEF)
		return 0;
	if (!strcmp(name, "gHotSpotVMStructs"))
		found->structs_ev = sym->st_value;
	else if (!strcmp(name, "gHotSpotVMTypes"))
		found->types_ev = sym->st_value;
	return 0;
}

/* Data counts as if the whole file were displaced as its code is. */
static uint64_t as_code(const struct elf_segment *code, uint64_t ev)
{
	return ev - code->start_ev + code->offset_fo;
}

/* "nmethod" stands alone, or a linker lets it be the end of "native nmethod". */
static int find_texts(Elf *elf, const struct elf_segment *code, uint64_t *ret)
{
	static const char native[] = "native nmethod", alone[] = "\0nmethod";
	cleanup_elf_section struct elf_section section = { 0 };
	int rc = elf_section_load_max(elf, ".rodata", DATA_BYTES_MAX, &section);
	const uint8_t *at;

	if (rc < 0)
		return rc;
	at = memmem(section.bytes, section.len, native, sizeof(native));
	if (at) {
		ret[0] = as_code(code, section.ev + (uint64_t)(at - section.bytes));
		ret[1] = ret[0] + strlen("native ");
	}
	at = memmem(section.bytes, section.len, alone, sizeof(alone));
	if (at)
		ret[2] = as_code(code, section.ev + (uint64_t)(at - section.bytes) + 1);
	return ret[0] ? 0 : -EOPNOTSUPP;
}

int runtime_hotspot_load(const struct elf_file *file, struct script_runtime *ret)
{
	struct script_runtime runtime = { .kind = SCRIPT_HOTSPOT };
	const struct elf_segment *code = NULL;
	struct elf_segments segments;
	struct found found = { 0 };
	int rc = elf_segments_load(file->elf, &segments);

	if (rc < 0)
		return rc;
	(void)!elf_each_symbol(file->elf, SHT_DYNSYM, SYMBOLS_MAX, look_at_export, &found);
	if (!found.structs_ev || !found.types_ev)
		return -ENOENT;
	for (size_t i = 0; !code && i < segments.count; i++)
		code = segments.items[i].executable ? &segments.items[i] : NULL;
	if (!code)
		return -ENOEXEC;
	rc = find_texts(file->elf, code, runtime.hotspot.nmethod_names);
	if (rc < 0)
		return rc;
	runtime.ranges[0].start = code->offset_fo;
	runtime.ranges[0].end = code->offset_fo + (code->end_ev - code->start_ev);
	runtime.hotspot.structs = as_code(code, found.structs_ev);
	runtime.hotspot.types = as_code(code, found.types_ev);
	*ret = runtime;
	return 0;
}
