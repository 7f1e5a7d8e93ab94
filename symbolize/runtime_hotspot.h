/* SPDX-License-Identifier: Apache-2.0 */
/* HotSpot in an ELF file: where it exports the description of its structures, as struct
 * script_runtime (bpf/script.h). The description itself is made when the program starts, so the
 * reader reads it (agent/reader/hotspot_layout.h). Nothing here trusts the file. */
#ifndef PROFD_SYMBOLIZE_RUNTIME_HOTSPOT_H
#define PROFD_SYMBOLIZE_RUNTIME_HOTSPOT_H

#include "bpf/script.h"
#include "symbolize/elf_file.h"

/* Fills @ret, with addresses as bpf/script.h counts them; ranges[0] is the code of the library.
 * -ENOENT: the file has no HotSpot, or one that does not describe itself. -EOPNOTSUPP: the texts by
 * which compiled methods are told are missing. -ENOEXEC, -E2BIG, -ENOMEM: the file is damaged or
 * over a bound. */
int runtime_hotspot_load(const struct elf_file *file, struct script_runtime *ret) must_use;

#endif
