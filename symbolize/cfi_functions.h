/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends of functions by the file's call frame information. Stripped files have it too,
 * and it covers functions without a symbol. Input is hostile: bounded as in cfi_rows.h. */
#ifndef PROFD_SYMBOLIZE_CFI_FUNCTIONS_H
#define PROFD_SYMBOLIZE_CFI_FUNCTIONS_H

#include <libelf.h>

#include "symbolize/index_builder.h"

/* Adds the functions of .eh_frame, and each section of code that linkers write, as extents.
 * -ENOEXEC: not a supported ELF file. -E2BIG: over a bound of the frames or of the builder.
 * -ENOMEM. */
int cfi_functions_load(Elf *elf, struct index_builder *builder) must_use;

#endif
