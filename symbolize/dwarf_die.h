/* SPDX-License-Identifier: Apache-2.0 */
/* One entry (DIE) of .debug_info, of which only what names functions is kept. Private to dwarf_*.c.
 */
#ifndef PROFD_SYMBOLIZE_DWARF_DIE_H
#define PROFD_SYMBOLIZE_DWARF_DIE_H

#include <stdbool.h>
#include <stdint.h>

#include "symbolize/dwarf_reader.h"

/* The attributes of a DIE that names and lines need. */
struct dwarf_die {
	uint64_t offset;
	uint64_t sibling; /* 0 = not said */
	uint16_t tag;
	bool has_children;
	struct dwarf_value name, linkage_name, low_pc, high_pc, ranges, origin, specification;
	struct dwarf_value decl_file, decl_line, call_file, call_line;
};

/* Tags whose attributes or children matter here. Of the rest only the size does. */
bool dwarf_tag_is_scope(uint16_t tag);
bool dwarf_tag_is_function(uint16_t tag);
/* true: the children of such a DIE hold no functions, so that DW_AT_sibling may jump over them. */
bool dwarf_tag_is_closed(uint16_t tag);

/* Reads the DIE at @at, a cursor into .debug_info that begins at @info. 1 = read, 0 = a null entry,
 * -ENOEXEC. */
int dwarf_die_read(const struct dwarf_unit *unit, const struct dwarf_table *table,
		   const uint8_t *info, struct bytes *at, struct dwarf_die *die) must_use;

#endif
