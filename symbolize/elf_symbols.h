/* SPDX-License-Identifier: Apache-2.0 */
/* Function symbols of ELF files into an index. Sized symbols cover exactly their size; symbols
 * without a size (assembler) reach to the next symbol of their section, never beyond it, and only
 * where no sized symbol is. Of several names for one address the one wins that perf would print: a
 * function before a label, not weak, global, few leading underscores, long. Symbol versions
 * ("@@GLIBC_2.2.5") are cut. */
#ifndef PROFD_SYMBOLIZE_ELF_SYMBOLS_H
#define PROFD_SYMBOLIZE_ELF_SYMBOLS_H

#include <libelf.h>

#include "symbolize/elf_debug.h"
#include "symbolize/index_builder.h"

/* Adds the symbols of @elf's section of type @section_type (SHT_SYMTAB, SHT_DYNSYM). @segments are
 * the main file's: a debug file's own have no contents. Returns the number of symbols added,
 * -ENOENT if there is no such table, -ENOEXEC damaged, -ENOMEM, -E2BIG. */
int elf_symbols_load(Elf *elf, unsigned section_type, const struct elf_segments *segments,
		     struct index_builder *builder) must_use;

#endif
