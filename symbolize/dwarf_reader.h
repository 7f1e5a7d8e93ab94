/* SPDX-License-Identifier: Apache-2.0 */
/* Reads DWARF 2 to 5 straight through: units, abbreviations, attribute values, address ranges. What
 * libdw does per question this does once per file: every DIE is decoded in file order, none is
 * searched for.
 *
 * The input is hostile. Every read is bounded by its section (bytes.h), and nothing recurses. All
 * work is paid from one budget proportional to the size of the sections. So no arrangement of
 * overlapping or cyclic offsets costs more than a constant times the file. Little-endian only.
 * Sources: DWARF 5 sections 7.5 (units, abbreviations, forms), 2.17.3 and 7.25 (ranges), 7.26,
 * 7.27; DWARF 4 2.17.3 (.debug_ranges); dwz's GNU forms. */
#ifndef PROFD_SYMBOLIZE_DWARF_READER_H
#define PROFD_SYMBOLIZE_DWARF_READER_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/bytes.h"
#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "symbolize/elf_debug.h"

#define DWARF_UNITS_MAX	     1000000u
#define DWARF_ATTRIBUTES_MAX 128u   /* of one abbreviation */
#define DWARF_TABLES_MAX     64u    /* abbreviation tables kept */
#define DWARF_NONE	     UINT64_MAX

enum dwarf_section {
	DWARF_INFO,
	DWARF_ABBREV,
	DWARF_STR,
	DWARF_LINE,
	DWARF_LINE_STR,
	DWARF_STR_OFFSETS,
	DWARF_ADDR,
	DWARF_RANGES,
	DWARF_RNGLISTS,
	DWARF_SECTION_MAX
};

struct dwarf_attribute {
	uint16_t name; /* DW_AT_… */
	uint16_t form; /* DW_FORM_… */
	int64_t constant; /* of DW_FORM_implicit_const */
};

struct dwarf_abbrev {
	uint64_t code;
	uint16_t tag;
	uint16_t attribute_count;
	uint32_t first_attribute;
	int32_t fixed_bytes; /* size of such a DIE after its code, -1 if it varies */
	bool has_children;
	bool has_sibling;
};

struct dwarf_table {
	uint64_t offset; /* in .debug_abbrev */
	uint8_t address_bytes, offset_bytes, version; /* what fixed_bytes was computed for */
	struct dwarf_abbrev *abbrevs; /* owned; codes 1…count where @dense */
	size_t count;
	struct dwarf_attribute *attributes; /* owned */
	bool dense;
	struct u64map by_code;
	uint64_t used; /* stamp of the last use */
};

struct dwarf_unit {
	uint64_t offset;     /* of the header, in .debug_info */
	uint64_t end;	     /* of the unit */
	uint64_t die_offset; /* of the root DIE */
	uint64_t abbrev_offset;
	uint64_t str_offsets_base, addr_base, rnglists_base; /* DWARF_NONE = not given */
	uint64_t base_ev;  /* DW_AT_low_pc, for relative ranges */
	uint64_t stmt_list; /* DWARF_NONE = no line table */
	uint64_t ranges_base; /* added to offsets into .debug_ranges: 0 but in split units */
	uint64_t split_ranges_base; /* a skeleton's, for its split unit (DW_AT_GNU_ranges_base) */
	uint64_t dwo_id;	    /* what skeleton and split unit agree on, 0 = neither */
	const char *dwo_name; /* of a skeleton: the file with the rest of the unit; NULL = it is whole */
	const char *comp_dir;
	uint16_t language; /* DW_LANG_… */
	uint16_t tag;	   /* of the root DIE */
	uint8_t version, address_bytes, offset_bytes, type;
	bool root_loaded;
	bool taken; /* a split unit that a skeleton has found */
	uint32_t line_table; /* for dwarf_lines.c */
};

struct dwarf {
	struct elf_section sections[DWARF_SECTION_MAX];
	struct dwarf_unit *units; /* owned, by offset */
	size_t unit_count;
	struct dwarf_table tables[DWARF_TABLES_MAX];
	uint64_t table_clock;
	uint64_t work_left; /* about one per byte that is looked at */
	struct dwarf *alt;  /* supplementary file of dwz, borrowed; may be NULL */
};

/* A raw attribute value; what it means needs its unit, see below. */
struct dwarf_value {
	uint16_t form;	 /* 0 = the DIE has no such attribute */
	uint64_t number; /* constant, index, offset or address as written */
	const char *text; /* DW_FORM_string */
};

/* Loads the sections and the unit headers. @ret is valid while @elf is. -ENOENT no .debug_info,
 * -ENOEXEC damaged beyond use, -E2BIG, -ENOMEM. */
int dwarf_open(Elf *elf, struct dwarf *ret) must_use;
/* The same for split DWARF (.dwo, .dwp: sections with that suffix, DWARF 5 section 7.3.2).
 * Addresses and the ranges of DWARF 4 are those of @main, which must outlive it. */
int dwarf_open_split(Elf *elf, const struct dwarf *main, struct dwarf *ret) must_use;
void dwarf_close(struct dwarf *dwarf);
static inline void cleanup_dwarf_fn(struct dwarf *dwarf)
{
	dwarf_close(dwarf);
}
#define cleanup_dwarf __attribute__((__cleanup__(cleanup_dwarf_fn)))

/* Pays for work; false once the budget is gone. */
static inline bool dwarf_pay(struct dwarf *dwarf, uint64_t work)
{
	if (work > dwarf->work_left) {
		dwarf->work_left = 0;
		return false;
	}
	dwarf->work_left -= work;
	return true;
}

/* The unit that holds @offset of .debug_info, NULL if none. */
struct dwarf_unit *dwarf_unit_at(struct dwarf *dwarf, uint64_t offset);
/* The unit whose header is at @offset, NULL if there is none. */
struct dwarf_unit *dwarf_unit_from(struct dwarf *dwarf, uint64_t offset);
/* Reads the root DIE's attributes into @unit, once. -ENOEXEC if damaged. */
int dwarf_unit_load(struct dwarf *dwarf, struct dwarf_unit *unit) must_use;
/* The unit's abbreviations, borrowed until DWARF_TABLES_MAX other tables were asked for.
 * -ENOEXEC, -E2BIG (budget), -ENOMEM. */
int dwarf_unit_table(struct dwarf *dwarf, const struct dwarf_unit *unit,
		     const struct dwarf_table **ret) must_use;
/* The abbreviation with @code, NULL if there is none. */
const struct dwarf_abbrev *dwarf_table_find(const struct dwarf_table *table, uint64_t code);

/* Reads one value at @at. False (and the cursor failed) on an unknown form or the end of input. */
bool dwarf_value_read(const struct dwarf_unit *unit, uint16_t form, int64_t constant,
		      struct bytes *at, struct dwarf_value *ret);

/* Meaning of values. Unusable ones give NULL, false or DWARF_NONE. */
const char *dwarf_value_string(const struct dwarf *dwarf, const struct dwarf_unit *unit,
			       const struct dwarf_value *value);
bool dwarf_value_address(const struct dwarf *dwarf, const struct dwarf_unit *unit,
			 const struct dwarf_value *value, uint64_t *ret_ev);
/* Offset of the DIE referred to, in .debug_info of @dwarf, or of its supplementary file (*ret_alt).
 */
uint64_t dwarf_value_reference(const struct dwarf_unit *unit, const struct dwarf_value *value,
			       bool *ret_alt);
static inline bool dwarf_value_is_address(const struct dwarf_value *value)
{
	/* DW_FORM_addr, addrx, addrx1…4, GNU_addr_index */
	return value->form == 0x01 || value->form == 0x1b ||
	       (value->form >= 0x29 && value->form <= 0x2c) || value->form == 0x1f01;
}

/* Calls @visit for each non-empty range of the DW_AT_ranges @value; a negative result stops. */
typedef int (*dwarf_range_fn)(void *context, uint64_t start_ev, uint64_t end_ev);
int dwarf_ranges(struct dwarf *dwarf, const struct dwarf_unit *unit,
		 const struct dwarf_value *value, dwarf_range_fn visit, void *context) must_use;

/* Unsigned LEB128, the common one-byte form inline. */
static inline uint64_t dwarf_uleb(struct bytes *at)
{
	if (at->at < at->end && *at->at < 0x80)
		return *at->at++;
	return bytes_varint(at);
}

/* The bytes of a section from @offset on; an empty, failed cursor if it is beyond. */
struct bytes dwarf_section_at(const struct dwarf *dwarf, enum dwarf_section section,
			      uint64_t offset);

#endif
