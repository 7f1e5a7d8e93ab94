/* SPDX-License-Identifier: Apache-2.0 */
/* Head of an ELF64 little-endian file for x86-64, for tests that put such a file together
 * themselves. */
#ifndef PROFD_TESTS_SUPPORT_ELF_HEAD_H
#define PROFD_TESTS_SUPPORT_ELF_HEAD_H

#include <elf.h>
#include <stdint.h>

/* Places of the two tables of headers in the file (bytes) and their numbers of entries. The names
 * of the sections are in section @names. */
struct elf_tables {
	uint64_t phdrs_fo, shdrs_fo;
	uint16_t phdrs, shdrs, names;
};

/* @type is ET_DYN, ET_EXEC or ET_REL. */
static inline Elf64_Ehdr elf_head(uint16_t type, struct elf_tables tables)
{
	return (Elf64_Ehdr){
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = type,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = tables.phdrs_fo,
		.e_shoff = tables.shdrs_fo,
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = tables.phdrs,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = tables.shdrs,
		.e_shstrndx = tables.names,
	};
}

#endif
