/* SPDX-License-Identifier: Apache-2.0 */
/* Line number programs of DWARF 2 to 5: file tables and rows, each program run once, straight into
 * the index. Source: DWARF 5 section 6.2, DWARF 4 section 6.2. VLIW operation indices are not kept.
 */
#ifndef PROFD_SYMBOLIZE_DWARF_LINES_H
#define PROFD_SYMBOLIZE_DWARF_LINES_H

#include <stdint.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "symbolize/dwarf_reader.h"
#include "symbolize/index_builder.h"

#define DWARF_LINES_NONE UINT32_MAX

VEC_DEFINE(dwarf_files, uint32_t);

struct dwarf_line_table {
	uint32_t first_file; /* in dwarf_lines.files */
	uint32_t file_count;
	uint8_t version;
};
VEC_DEFINE(dwarf_line_tables, struct dwarf_line_table);

/* All line tables of one DWARF file. Zero-initialized is empty. */
struct dwarf_lines {
	struct dwarf_files_vec files; /* builder strings, all tables in one array */
	struct dwarf_line_tables_vec tables;
	struct u64map by_offset; /* offset in .debug_line -> table */
};

void dwarf_lines_deinit(struct dwarf_lines *lines);

/* Reads the line table of @unit (root loaded) unless it was read before, adds its rows to @builder
 * and sets unit->line_table. A damaged table leaves what was read until then. -ENOMEM, -E2BIG. */
int dwarf_lines_load(struct dwarf_lines *lines, struct dwarf *dwarf, struct dwarf_unit *unit,
		     const struct elf_segments *segments, struct index_builder *builder) must_use;
/* String of the file that @unit's DIEs call @number (DW_AT_decl_file, DW_AT_call_file), 0 if
 * unknown. */
uint32_t dwarf_lines_file(const struct dwarf_lines *lines, const struct dwarf_unit *unit,
			  uint64_t number);

#endif
