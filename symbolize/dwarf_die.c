// SPDX-License-Identifier: Apache-2.0
#include "symbolize/dwarf_die.h"

#include <dwarf.h>
#include <errno.h>

static void take_attribute(struct dwarf_die *die, uint16_t name, const struct dwarf_value *value)
{
	switch (name) {
	case DW_AT_name:
		die->name = *value;
		break;
	case DW_AT_linkage_name:
	case DW_AT_MIPS_linkage_name:
		die->linkage_name = *value;
		break;
	case DW_AT_low_pc:
		die->low_pc = *value;
		break;
	case DW_AT_high_pc:
		die->high_pc = *value;
		break;
	case DW_AT_ranges:
		die->ranges = *value;
		break;
	case DW_AT_abstract_origin:
		die->origin = *value;
		break;
	case DW_AT_specification:
		die->specification = *value;
		break;
	case DW_AT_decl_file:
		die->decl_file = *value;
		break;
	case DW_AT_decl_line:
		die->decl_line = *value;
		break;
	case DW_AT_call_file:
		die->call_file = *value;
		break;
	case DW_AT_call_line:
		die->call_line = *value;
		break;
	default:
		break;
	}
}

bool dwarf_tag_is_scope(uint16_t tag)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_interface_type:
		return true;
	default:
		return false;
	}
}

bool dwarf_tag_is_function(uint16_t tag)
{
	return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;
}

bool dwarf_tag_is_closed(uint16_t tag)
{
	switch (tag) {
	case DW_TAG_subroutine_type:
	case DW_TAG_enumeration_type:
	case DW_TAG_array_type:
	case DW_TAG_call_site:
	case DW_TAG_GNU_call_site:
		return true;
	default:
		return false;
	}
}

static bool read_attributes(const struct dwarf_unit *unit, const struct dwarf_table *table,
			    const struct dwarf_abbrev *abbrev, struct bytes *at, struct dwarf_die *die)
{
	const struct dwarf_attribute *attribute = &table->attributes[abbrev->first_attribute];
	bool wanted = dwarf_tag_is_function(abbrev->tag) || dwarf_tag_is_scope(abbrev->tag);

	for (size_t i = 0; i < abbrev->attribute_count; i++, attribute++) {
		struct dwarf_value value;

		if (!dwarf_value_read(unit, attribute->form, attribute->constant, at, &value))
			return false;
		if (wanted)
			take_attribute(die, attribute->name, &value);
		else if (attribute->name == DW_AT_sibling) {
			bool is_alt;
			uint64_t offset = dwarf_value_reference(unit, &value, &is_alt);

			die->sibling = offset == DWARF_NONE || is_alt ? 0 : offset;
		}
	}
	return true;
}

int dwarf_die_read(const struct dwarf_unit *unit, const struct dwarf_table *table,
		    const uint8_t *info, struct bytes *at, struct dwarf_die *die)
{
	const struct dwarf_abbrev *abbrev;
	uint64_t code;

	die->offset = (uint64_t)(at->at - info);
	die->sibling = 0;
	code = dwarf_uleb(at);
	if (at->failed)
		return -ENOEXEC;
	if (!code)
		return 0;
	abbrev = dwarf_table_find(table, code);
	if (!abbrev)
		return -ENOEXEC;
	die->tag = abbrev->tag;
	die->has_children = abbrev->has_children;
	if (dwarf_tag_is_function(abbrev->tag) || dwarf_tag_is_scope(abbrev->tag)) {
		*die = (struct dwarf_die){ .offset = die->offset,
				     .tag = abbrev->tag,
				     .has_children = abbrev->has_children };
	} else if (abbrev->fixed_bytes >= 0 &&
		   !(abbrev->has_children && abbrev->has_sibling && dwarf_tag_is_closed(abbrev->tag))) {
		return bytes_take(at, (uint64_t)abbrev->fixed_bytes) ? 1 : -ENOEXEC;
	}
	return read_attributes(unit, table, abbrev, at, die) ? 1 : -ENOEXEC;
}
