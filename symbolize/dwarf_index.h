/* SPDX-License-Identifier: Apache-2.0 */
/* Functions, inline trees and lines of an ELF file's DWARF into an index, in one pass over its
 * DIEs.
 *
 * A function is called by its linkage name (demangled when shown), else by DW_AT_name qualified by
 * the namespaces and types around it. Names are resolved after the pass, so that abstract origins
 * and specifications may lie anywhere: later, in another unit, in a supplementary file. */
#ifndef PROFD_SYMBOLIZE_DWARF_INDEX_H
#define PROFD_SYMBOLIZE_DWARF_INDEX_H

#include <libelf.h>
#include <stdbool.h>

#include "symbolize/debug_finder.h"
#include "symbolize/elf_debug.h"
#include "symbolize/index_builder.h"

#define DWARF_INDEX_DEPTH_MAX 1024u /* nesting of DIEs; a unit that is deeper is cut there */
#define DWARF_INDEX_CHAIN_MAX 16u /* steps from a DIE over origins and specifications to its name  \
				   */

struct dwarf_index_files { /* all borrowed */
	Elf *elf; /* with .debug_info: the main file or its debug file */
	Elf *alt; /* its supplementary file (.gnu_debugaltlink), or NULL */
	const struct debug_finder *finder; /* of split DWARF, or NULL */
};

/* @segments of the main file; @skip_go: pclntab has named the Go code already. Damaged units are
 * left out; of a unit whose other half is in a file that is not found there are lines, and what its
 * skeleton says. -ENOENT no DWARF, -E2BIG over a bound, -ENOMEM. */
int dwarf_index_load(const struct dwarf_index_files *files, const struct elf_segments *segments,
		     bool skip_go, struct index_builder *builder) must_use;

#endif
