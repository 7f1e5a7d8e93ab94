// SPDX-License-Identifier: Apache-2.0
#include "symbolize/elf_plt.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "agent/base/u64map.h"

#define SLOTS_MAX  (1u << 20)
#define NAME_BYTES 4096u

/* `jmp *disp32(%rip)`, perhaps after endbr64 and what mold puts into r11, or with a bnd prefix: all
 * PLT layouts of GNU ld, gold, lld and mold contain it once per entry. Source: x86-64 psABI,
 * "Procedure Linkage Table". */
bool elf_plt_slot_amd64(const uint8_t *entry, size_t len, uint64_t ev, uint64_t *ret_ev)
{
	for (size_t i = 0; i + 6 <= len && i <= 10; i++) {
		int32_t disp;

		if (entry[i] != 0xff || entry[i + 1] != 0x25)
			continue;
		memcpy(&disp, entry + i + 2, 4);
		*ret_ev = ev + i + 6 + (uint64_t)(int64_t)disp;
		return true;
	}
	return false;
}

/* Slots by address: the value is the index of the dynamic symbol. */
static int read_slots(Elf_Scn *scn, const GElf_Shdr *shdr, struct u64map *slots)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	size_t count = data && shdr->sh_entsize ? data->d_size / shdr->sh_entsize : 0;

	for (size_t i = 0; i < count && slots->count < SLOTS_MAX; i++) {
		GElf_Rela rela;
		int rc;

		if (!gelf_getrela(data, (int)i, &rela) || !GELF_R_SYM(rela.r_info))
			continue;
		rc = u64map_put(slots, rela.r_offset, GELF_R_SYM(rela.r_info));
		if (rc < 0)
			return rc;
	}
	return 0;
}

struct plt {
	Elf *elf;
	const struct elf_segments *segments;
	struct index_builder *builder;
	Elf_Data *symbols; /* .dynsym */
	size_t strings;	   /* section index of its names */
	struct u64map slots;
};

static int add_entry(struct plt *plt, uint64_t ev, uint64_t size, uint64_t symbol)
{
	char name[NAME_BYTES];
	uint64_t start_fo, end_fo;
	const char *target;
	GElf_Sym sym;
	uint32_t string;
	size_t len;
	int rc;

	if (symbol > INT32_MAX || !gelf_getsym(plt->symbols, (int)symbol, &sym) ||
	    !elf_segments_range(plt->segments, ev, ev + size, &start_fo, &end_fo))
		return 0;
	target = elf_strptr(plt->elf, plt->strings, sym.st_name);
	if (!target || !target[0])
		return 0;
	len = strnlen(target, sizeof(name) - 4);
	memcpy(name, target, len);
	memcpy(name + len, "@plt", 4);
	rc = index_builder_string(plt->builder, name, len + 4, &string);
	if (rc >= 0)
		rc = index_builder_symbol(plt->builder, start_fo, end_fo, string, 0);
	return rc < 0 ? rc : 1;
}

static int add_section(struct plt *plt, Elf_Scn *scn, const GElf_Shdr *shdr)
{
	Elf_Data *data = elf_rawdata(scn, NULL);
	size_t step = shdr->sh_entsize == 8 ? 8 : 16;
	int added = 0;

	if (!data || !data->d_buf)
		return 0;
	for (size_t at = 0; at + step <= data->d_size; at += step) {
		uint64_t ev = shdr->sh_addr + at, slot, symbol;
		int rc;

		if (!elf_plt_slot_amd64((const uint8_t *)data->d_buf + at, step, ev, &slot) ||
		    !u64map_get(&plt->slots, slot, &symbol))
			continue;
		rc = add_entry(plt, ev, step, symbol);
		if (rc < 0)
			return rc;
		added += rc;
	}
	return added;
}

static bool is_plt(const char *name)
{
	return name && (!strcmp(name, ".plt") || !strcmp(name, ".plt.sec") ||
			!strcmp(name, ".plt.got") || !strcmp(name, ".plt.bnd"));
}

static int load(struct plt *plt)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	size_t names;
	int added = 0, rc = 0;

	if (elf_getshdrstrndx(plt->elf, &names) != 0)
		return 0;
	while (rc >= 0 && (scn = elf_nextscn(plt->elf, scn))) {
		if (!gelf_getshdr(scn, &shdr))
			continue;
		if (shdr.sh_type == SHT_RELA)
			rc = read_slots(scn, &shdr, &plt->slots);
		if (shdr.sh_type == SHT_DYNSYM && !plt->symbols) {
			plt->symbols = elf_getdata(scn, NULL);
			plt->strings = shdr.sh_link;
		}
	}
	while (rc >= 0 && plt->symbols && (scn = elf_nextscn(plt->elf, scn))) {
		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_PROGBITS ||
		    !is_plt(elf_strptr(plt->elf, names, shdr.sh_name)))
			continue;
		rc = add_section(plt, scn, &shdr);
		added += rc > 0 ? rc : 0;
	}
	return rc < 0 ? rc : added;
}

int elf_plt_load(Elf *elf, const struct elf_segments *segments, struct index_builder *builder)
{
	struct plt plt = { .elf = elf, .segments = segments, .builder = builder };
	GElf_Ehdr ehdr;
	int rc;

	if (!gelf_getehdr(elf, &ehdr) || ehdr.e_machine != EM_X86_64)
		return 0;
	rc = load(&plt);
	u64map_deinit(&plt.slots);
	return rc;
}
