// SPDX-License-Identifier: Apache-2.0
/* Input is a whole ELF file (first byte 0), or the contents of the sections below, each with its
 * length before it, wrapped into a file with 1 MiB of text that is not there. Property:
 * index_check.h. */
#include <elf.h>
#include <libelf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "tests/fuzz/index_check.h"
#include "tests/support/elf_head.h"

#define INPUT_MAX (256u << 10)
#define TEXT_EV	  0x1000u
#define TEXT_SIZE (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
	const char *name;
	uint32_t type;
} sections[] = {
	{ "", SHT_NULL },
	{ ".shstrtab", SHT_STRTAB },
	{ ".debug_info", SHT_PROGBITS },
	{ ".debug_abbrev", SHT_PROGBITS },
	{ ".debug_str", SHT_PROGBITS },
	{ ".debug_line", SHT_PROGBITS },
	{ ".debug_line_str", SHT_PROGBITS },
	{ ".debug_ranges", SHT_PROGBITS },
	{ ".debug_rnglists", SHT_PROGBITS },
	{ ".debug_addr", SHT_PROGBITS },
	{ ".debug_str_offsets", SHT_PROGBITS },
	{ ".symtab", SHT_SYMTAB },
	{ ".strtab", SHT_STRTAB },
	{ ".eh_frame", SHT_PROGBITS },
	{ ".text", SHT_NOBITS },
};
#define SECTIONS ARRAY_SIZE(sections)

struct skeleton {
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdr;
	Elf64_Shdr shdrs[SECTIONS];
	char names[256];
};

static void fill_head(struct skeleton *s)
{
	*s = (struct skeleton){
		.ehdr = elf_head(ET_DYN, (struct elf_tables){ offsetof(struct skeleton, phdr),
							      offsetof(struct skeleton, shdrs), 1,
							      SECTIONS, 1 }),
		.phdr = { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = TEXT_EV,
			  .p_vaddr = TEXT_EV, .p_filesz = TEXT_SIZE, .p_memsz = TEXT_SIZE },
	};
}

/* The contents follow the skeleton as they are; the headers point into them. */
static void fill_sections(struct skeleton *s, struct bytes contents, size_t contents_at)
{
	const uint8_t *start = contents.at;
	size_t name_at = 0;

	for (size_t i = 0; i < SECTIONS; i++) {
		Elf64_Shdr *shdr = &s->shdrs[i];

		shdr->sh_name = (uint32_t)name_at;
		shdr->sh_type = sections[i].type;
		shdr->sh_addralign = 1;
		memcpy(s->names + name_at, sections[i].name, strlen(sections[i].name) + 1);
		name_at += strlen(sections[i].name) + 1;
		if (i >= 2 && sections[i].type != SHT_NOBITS) {
			size_t len = bytes_u16(&contents);

			len = len < bytes_left(&contents) ? len : bytes_left(&contents);
			shdr->sh_offset = contents_at + (size_t)(contents.at - start);
			shdr->sh_size = len;
			(void)bytes_take(&contents, len);
		}
	}
	s->shdrs[1].sh_offset = offsetof(struct skeleton, names);
	s->shdrs[1].sh_size = sizeof(s->names);
	s->shdrs[SECTIONS - 4].sh_entsize = sizeof(Elf64_Sym);
	s->shdrs[SECTIONS - 4].sh_link = SECTIONS - 3;
	s->shdrs[SECTIONS - 1].sh_addr = TEXT_EV;
	s->shdrs[SECTIONS - 1].sh_size = TEXT_SIZE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_index *index = NULL;
	struct skeleton s;
	size_t head;
	uint8_t *file;
	Elf *elf;

	if (size < 2 || size > INPUT_MAX)
		return 0;
	(void)elf_version(EV_CURRENT);
	head = data[0] ? sizeof(s) : 0;
	file = malloc(head + size - 1);
	if (!file)
		return 0;
	if (head) {
		fill_head(&s);
		fill_sections(&s, bytes_of(data + 1, size - 1), head);
		memcpy(file, &s, sizeof(s));
	}
	memcpy(file + head, data + 1, size - 1);
	elf = elf_memory((char *)file, head + size - 1);
	if (elf && symbol_index_build(elf, NULL, &index) == 0) {
		index_check(index, TEXT_EV + 4096);
		symbol_index_destroy(index);
	}
	elf_end(elf);
	free(file);
	return 0;
}
