// SPDX-License-Identifier: Apache-2.0
#include "symbolize/dwarf_reader.h"

#include <dwarf.h>
#include <errno.h>
#include <string.h>

#include "agent/base/vec.h"

#define WORK_PER_BYTE 16u
#define WORK_FREE     (16u << 20)
#define STRING_MAX    65536u /* bytes of one string */

VEC_DEFINE(dwarf_abbrevs, struct dwarf_abbrev);
VEC_DEFINE(dwarf_attributes, struct dwarf_attribute);
VEC_DEFINE(dwarf_units, struct dwarf_unit);

struct bytes dwarf_section_at(const struct dwarf *dwarf, enum dwarf_section section,
			      uint64_t offset)
{
	const struct elf_section *at = &dwarf->sections[section];

	if (offset > at->len || !at->bytes)
		return (struct bytes){ at->bytes, at->bytes, true };
	return bytes_of(at->bytes + offset, at->len - offset);
}

static uint64_t read_sized(struct bytes *at, unsigned size)
{
	switch (size) {
	case 1:
		return bytes_u8(at);
	case 2:
		return bytes_u16(at);
	case 4:
		return bytes_u32(at);
	case 8:
		return bytes_u64(at);
	default: {
		const uint8_t *data = bytes_take(at, size);
		uint64_t value = 0;

		for (unsigned i = 0; data && i < size && i < 8; i++)
			value |= (uint64_t)data[i] << (8 * i);
		return value;
	}
	}
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Size of a form in bytes, -1 if it varies or is unknown. */
static int form_bytes(const struct dwarf_unit *unit, uint16_t form)
{
	switch (form) {
	case DW_FORM_flag_present:
	case DW_FORM_implicit_const:
		return 0;
	case DW_FORM_data1:
	case DW_FORM_ref1:
	case DW_FORM_flag:
	case DW_FORM_strx1:
	case DW_FORM_addrx1:
		return 1;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2:
		return 2;
	case DW_FORM_strx3:
	case DW_FORM_addrx3:
		return 3;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4:
	case DW_FORM_ref_sup4:
		return 4;
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sig8:
	case DW_FORM_ref_sup8:
		return 8;
	case DW_FORM_data16:
		return 16;
	case DW_FORM_addr:
		return unit->address_bytes;
	case DW_FORM_ref_addr:
		return unit->version <= 2 ? unit->address_bytes : unit->offset_bytes;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_sec_offset:
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_GNU_strp_alt:
		return unit->offset_bytes;
	default:
		return -1;
	}
}

static bool read_block(struct bytes *at, uint64_t len, struct dwarf_value *ret)
{
	ret->number = len;
	return bytes_take(at, len) != NULL && !at->failed;
}

bool dwarf_value_read(const struct dwarf_unit *unit, uint16_t form, int64_t constant,
		      struct bytes *at, struct dwarf_value *ret)
{
	int size;

	if (form == DW_FORM_indirect)
		form = (uint16_t)dwarf_uleb(at);
	*ret = (struct dwarf_value){ .form = form };
	size = form_bytes(unit, form);
	if (size > 0) {
		ret->number = read_sized(at, (unsigned)size);
		return !at->failed;
	}
	switch (form) {
	case DW_FORM_flag_present:
		ret->number = 1;
		break;
	case DW_FORM_implicit_const:
		ret->number = (uint64_t)constant;
		break;
	case DW_FORM_sdata:
		ret->number = (uint64_t)bytes_sleb128(at);
		break;
	case DW_FORM_udata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index:
		ret->number = dwarf_uleb(at);
		break;
	case DW_FORM_string:
		ret->text = bytes_cstr(at);
		break;
	case DW_FORM_block1:
		return read_block(at, bytes_u8(at), ret);
	case DW_FORM_block2:
		return read_block(at, bytes_u16(at), ret);
	case DW_FORM_block4:
		return read_block(at, bytes_u32(at), ret);
	case DW_FORM_block:
	case DW_FORM_exprloc:
		return read_block(at, dwarf_uleb(at), ret);
	default:
		at->failed = true;
	}
	return !at->failed;
}

static const char *string_at(const struct dwarf *dwarf, enum dwarf_section section,
			     uint64_t offset)
{
	struct bytes at = dwarf_section_at(dwarf, section, offset);

	if (at.failed)
		return NULL;
	/* Without this a section without any NUL would be searched again for every name. */
	if (bytes_left(&at) > STRING_MAX)
		at.end = at.at + STRING_MAX;
	return bytes_cstr(&at);
}

static const char *indexed_string(const struct dwarf *dwarf, const struct dwarf_unit *unit,
				  uint64_t index)
{
	uint64_t base = unit->str_offsets_base == DWARF_NONE ? 0 : unit->str_offsets_base, offset;
	struct bytes at;

	if (index > dwarf->sections[DWARF_STR_OFFSETS].len)
		return NULL;
	at = dwarf_section_at(dwarf, DWARF_STR_OFFSETS, base + index * unit->offset_bytes);
	offset = read_sized(&at, unit->offset_bytes);
	return at.failed ? NULL : string_at(dwarf, DWARF_STR, offset);
}

const char *dwarf_value_string(const struct dwarf *dwarf, const struct dwarf_unit *unit,
			       const struct dwarf_value *value)
{
	switch (value->form) {
	case DW_FORM_string:
		return value->text;
	case DW_FORM_strp:
		return string_at(dwarf, DWARF_STR, value->number);
	case DW_FORM_line_strp:
		return string_at(dwarf, DWARF_LINE_STR, value->number);
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
		return dwarf->alt ? string_at(dwarf->alt, DWARF_STR, value->number) : NULL;
	case DW_FORM_strx:
	case DW_FORM_strx1:
	case DW_FORM_strx2:
	case DW_FORM_strx3:
	case DW_FORM_strx4:
	case DW_FORM_GNU_str_index:
		return indexed_string(dwarf, unit, value->number);
	default:
		return NULL;
	}
}

static bool indexed_address(const struct dwarf *dwarf, const struct dwarf_unit *unit,
			    uint64_t index, uint64_t *ret_ev)
{
	uint64_t base = unit->addr_base == DWARF_NONE ? 0 : unit->addr_base, ev;
	struct bytes at;

	if (index > dwarf->sections[DWARF_ADDR].len)
		return false;
	at = dwarf_section_at(dwarf, DWARF_ADDR, base + index * unit->address_bytes);
	ev = read_sized(&at, unit->address_bytes);
	if (at.failed)
		return false;
	*ret_ev = ev;
	return true;
}

bool dwarf_value_address(const struct dwarf *dwarf, const struct dwarf_unit *unit,
			 const struct dwarf_value *value, uint64_t *ret_ev)
{
	if (!dwarf_value_is_address(value))
		return false;
	if (value->form != DW_FORM_addr)
		return indexed_address(dwarf, unit, value->number, ret_ev);
	*ret_ev = value->number;
	return true;
}

uint64_t dwarf_value_reference(const struct dwarf_unit *unit, const struct dwarf_value *value,
			       bool *ret_alt)
{
	uint64_t offset;

	*ret_alt = false;
	switch (value->form) {
	case DW_FORM_ref1:
	case DW_FORM_ref2:
	case DW_FORM_ref4:
	case DW_FORM_ref8:
	case DW_FORM_ref_udata:
		if (__builtin_add_overflow(unit->offset, value->number, &offset) ||
		    offset >= unit->end)
			return DWARF_NONE;
		return offset;
	case DW_FORM_ref_addr:
		return value->number;
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_ref_sup4:
	case DW_FORM_ref_sup8:
		*ret_alt = true;
		return value->number;
	default:
		return DWARF_NONE;
	}
}

/* ---- abbreviations --------------------------------------------------------------------------- */

static int parse_attributes(const struct dwarf_unit *unit, struct bytes *at,
			    struct dwarf_abbrev *abbrev, struct dwarf_attributes_vec *ret)
{
	uint32_t fixed = 0;
	bool is_fixed = true;

	abbrev->first_attribute = (uint32_t)ret->count;
	for (;;) {
		struct dwarf_attribute attribute = { 0 };
		uint64_t name = dwarf_uleb(at), form = dwarf_uleb(at);
		int size, rc;

		if (form == DW_FORM_implicit_const)
			attribute.constant = bytes_sleb128(at);
		if (at->failed || abbrev->attribute_count >= DWARF_ATTRIBUTES_MAX)
			return -ENOEXEC;
		if (!name && !form)
			break;
		attribute.name = name > UINT16_MAX ? 0 : (uint16_t)name;
		attribute.form = form > UINT16_MAX ? 0 : (uint16_t)form;
		size = form_bytes(unit, attribute.form);
		is_fixed = is_fixed && size >= 0;
		fixed += size > 0 ? (uint32_t)size : 0;
		abbrev->has_sibling = abbrev->has_sibling || attribute.name == DW_AT_sibling;
		abbrev->attribute_count++;
		rc = dwarf_attributes_vec_push(ret, attribute);
		if (rc < 0)
			return rc;
	}
	abbrev->fixed_bytes = is_fixed ? (int32_t)fixed : -1;
	return 0;
}

struct table_draft {
	struct dwarf_abbrevs_vec abbrevs;
	struct dwarf_attributes_vec attributes;
};

static void cleanup_table_draft_fn(struct table_draft *draft)
{
	dwarf_abbrevs_vec_deinit(&draft->abbrevs);
	dwarf_attributes_vec_deinit(&draft->attributes);
}

static int parse_table(struct dwarf *dwarf, const struct dwarf_unit *unit,
		       struct dwarf_table *ret)
{
	__attribute__((__cleanup__(cleanup_table_draft_fn))) struct table_draft draft = { 0 };
	struct bytes at = dwarf_section_at(dwarf, DWARF_ABBREV, unit->abbrev_offset);
	struct dwarf_table table = { .offset = unit->abbrev_offset,
				     .address_bytes = unit->address_bytes,
				     .offset_bytes = unit->offset_bytes,
				     .version = unit->version,
				     .dense = true };

	for (;;) {
		struct dwarf_abbrev abbrev = { .code = dwarf_uleb(&at) };
		const uint8_t *start = at.at;
		int rc;

		if (at.failed)
			return -ENOEXEC;
		if (!abbrev.code)
			break;
		abbrev.tag = (uint16_t)dwarf_uleb(&at);
		abbrev.has_children = bytes_u8(&at);
		rc = parse_attributes(unit, &at, &abbrev, &draft.attributes);
		if (rc >= 0)
			rc = dwarf_abbrevs_vec_push(&draft.abbrevs, abbrev);
		if (rc < 0)
			return rc;
		if (!dwarf_pay(dwarf, (uint64_t)(at.at - start)))
			return -E2BIG;
		table.dense = table.dense && abbrev.code == draft.abbrevs.count;
	}
	for (size_t i = 0; !table.dense && i < draft.abbrevs.count; i++)
		if (u64map_put(&table.by_code, draft.abbrevs.data[i].code, i) < 0) {
			u64map_deinit(&table.by_code);
			return -ENOMEM;
		}
	table.count = draft.abbrevs.count;
	table.abbrevs = take_ptr(draft.abbrevs.data);
	table.attributes = take_ptr(draft.attributes.data);
	*ret = table;
	return 0;
}

static void table_deinit(struct dwarf_table *table)
{
	free(table->abbrevs);
	free(table->attributes);
	u64map_deinit(&table->by_code);
	*table = (struct dwarf_table){ 0 };
}

int dwarf_unit_table(struct dwarf *dwarf, const struct dwarf_unit *unit,
		     const struct dwarf_table **ret)
{
	struct dwarf_table *oldest = &dwarf->tables[0], table;
	int rc;

	for (size_t i = 0; i < DWARF_TABLES_MAX; i++) {
		struct dwarf_table *at = &dwarf->tables[i];

		if (at->used && at->offset == unit->abbrev_offset &&
		    at->address_bytes == unit->address_bytes &&
		    at->offset_bytes == unit->offset_bytes && at->version == unit->version) {
			at->used = ++dwarf->table_clock;
			*ret = at;
			return 0;
		}
		if (at->used < oldest->used)
			oldest = at;
	}
	rc = parse_table(dwarf, unit, &table);
	if (rc < 0)
		return rc;
	table_deinit(oldest);
	*oldest = table;
	oldest->used = ++dwarf->table_clock;
	*ret = oldest;
	return 0;
}

const struct dwarf_abbrev *dwarf_table_find(const struct dwarf_table *table, uint64_t code)
{
	uint64_t index;

	if (table->dense)
		return code && code <= table->count ? &table->abbrevs[code - 1] : NULL;
	return u64map_get(&table->by_code, code, &index) ? &table->abbrevs[index] : NULL;
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Reads a unit header at @at. False if it is damaged or of an unknown version; @ret->end is still
 * right where the length was readable, else 0. */
static bool parse_header(struct bytes *at, uint64_t offset, struct dwarf_unit *ret)
{
	const uint8_t *start = at->at;
	uint64_t len = bytes_u32(at);

	ret->offset = offset;
	ret->offset_bytes = 4;
	if (len == 0xffffffff) {
		len = bytes_u64(at);
		ret->offset_bytes = 8;
	}
	if (at->failed || len > bytes_left(at))
		return false;
	ret->end = offset + (uint64_t)(at->at - start) + len;
	ret->version = (uint8_t)bytes_u16(at);
	if (ret->version < 2 || ret->version > 5)
		return false;
	ret->type = DW_UT_compile;
	if (ret->version == 5) {
		ret->type = bytes_u8(at);
		ret->address_bytes = bytes_u8(at);
		ret->abbrev_offset = read_sized(at, ret->offset_bytes);
		if (ret->type == DW_UT_skeleton || ret->type == DW_UT_split_compile)
			ret->dwo_id = bytes_u64(at);
		if (ret->type == DW_UT_type || ret->type == DW_UT_split_type) {
			(void)bytes_u64(at);
			(void)read_sized(at, ret->offset_bytes);
		}
	} else {
		ret->abbrev_offset = read_sized(at, ret->offset_bytes);
		ret->address_bytes = bytes_u8(at);
	}
	ret->die_offset = offset + (uint64_t)(at->at - start);
	return !at->failed && (ret->address_bytes == 4 || ret->address_bytes == 8) &&
	       ret->die_offset <= ret->end;
}

static int load_units(struct dwarf *dwarf)
{
	struct dwarf_units_vec units = { 0 };
	uint64_t offset = 0;
	int rc = 0;

	while (rc >= 0 && offset < dwarf->sections[DWARF_INFO].len) {
		struct bytes at = dwarf_section_at(dwarf, DWARF_INFO, offset);
		struct dwarf_unit unit = { .str_offsets_base = DWARF_NONE,
					   .addr_base = DWARF_NONE,
					   .rnglists_base = DWARF_NONE,
					   .stmt_list = DWARF_NONE,
					   .line_table = UINT32_MAX };

		if (parse_header(&at, offset, &unit))
			rc = units.count < DWARF_UNITS_MAX ? dwarf_units_vec_push(&units, unit)
							   : -E2BIG;
		if (unit.end <= offset)
			break;
		offset = unit.end;
	}
	if (rc < 0) {
		dwarf_units_vec_deinit(&units);
		return rc;
	}
	dwarf->units = units.data;
	dwarf->unit_count = units.count;
	return 0;
}

struct dwarf_unit *dwarf_unit_at(struct dwarf *dwarf, uint64_t offset)
{
	size_t low = 0, high = dwarf->unit_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		struct dwarf_unit *unit = &dwarf->units[middle];

		if (offset >= unit->die_offset && offset < unit->end)
			return unit;
		if (offset < unit->offset)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

struct dwarf_unit *dwarf_unit_from(struct dwarf *dwarf, uint64_t offset)
{
	size_t low = 0, high = dwarf->unit_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (dwarf->units[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < dwarf->unit_count && dwarf->units[low].offset == offset ? &dwarf->units[low] : NULL;
}

struct root_values {
	struct dwarf_value comp_dir, low_pc, dwo_name;
};

static void take_root(struct dwarf_unit *unit, uint16_t name, const struct dwarf_value *value,
		      struct root_values *ret)
{
	switch (name) {
	case DW_AT_language:
		unit->language = (uint16_t)value->number;
		break;
	case DW_AT_stmt_list:
		unit->stmt_list = value->number;
		break;
	case DW_AT_str_offsets_base:
		unit->str_offsets_base = value->number;
		break;
	case DW_AT_addr_base:
	case DW_AT_GNU_addr_base:
		unit->addr_base = value->number;
		break;
	case DW_AT_rnglists_base:
		unit->rnglists_base = value->number;
		break;
	case DW_AT_GNU_ranges_base:
		unit->split_ranges_base = value->number;
		break;
	case DW_AT_GNU_dwo_id:
		unit->dwo_id = value->number;
		break;
	case DW_AT_dwo_name:
	case DW_AT_GNU_dwo_name:
		ret->dwo_name = *value;
		break;
	case DW_AT_comp_dir:
		ret->comp_dir = *value;
		break;
	case DW_AT_low_pc:
		ret->low_pc = *value;
		break;
	default:
		break;
	}
}

int dwarf_unit_load(struct dwarf *dwarf, struct dwarf_unit *unit)
{
	struct bytes at = dwarf_section_at(dwarf, DWARF_INFO, unit->die_offset);
	struct root_values values = { 0 };
	const struct dwarf_abbrev *abbrev;
	const struct dwarf_table *table;
	int rc;

	if (unit->root_loaded)
		return 0;
	rc = dwarf_unit_table(dwarf, unit, &table);
	if (rc < 0)
		return rc;
	abbrev = dwarf_table_find(table, dwarf_uleb(&at));
	if (!abbrev)
		return -ENOEXEC;
	unit->tag = abbrev->tag;
	for (size_t i = 0; i < abbrev->attribute_count; i++) {
		const struct dwarf_attribute *attribute =
			&table->attributes[abbrev->first_attribute + i];
		struct dwarf_value value;

		if (!dwarf_value_read(unit, attribute->form, attribute->constant, &at, &value))
			return -ENOEXEC;
		take_root(unit, attribute->name, &value, &values);
	}
	/* Strings and addresses may be indices that need a base from further along the same DIE. */
	unit->comp_dir = dwarf_value_string(dwarf, unit, &values.comp_dir);
	unit->dwo_name = dwarf_value_string(dwarf, unit, &values.dwo_name);
	(void)dwarf_value_address(dwarf, unit, &values.low_pc, &unit->base_ev);
	unit->root_loaded = true;
	return 0;
}

/* Sections without a name are left as they are. */
static int open_sections(Elf *elf, const char *const names[DWARF_SECTION_MAX], struct dwarf *dwarf)
{
	for (int i = 0; i < DWARF_SECTION_MAX; i++) {
		int rc = names[i] ? elf_section_load(elf, names[i], &dwarf->sections[i]) : 0;

		if (rc < 0 && (i <= DWARF_ABBREV || (rc != -ENOENT && rc != -ENOEXEC)))
			return rc;
		dwarf->work_left += WORK_PER_BYTE * (uint64_t)dwarf->sections[i].len;
	}
	return load_units(dwarf);
}

int dwarf_open_split(Elf *elf, const struct dwarf *main, struct dwarf *ret)
{
	static const char *const names[DWARF_SECTION_MAX] = {
		[DWARF_INFO] = ".debug_info.dwo",
		[DWARF_ABBREV] = ".debug_abbrev.dwo",
		[DWARF_STR] = ".debug_str.dwo",
		[DWARF_STR_OFFSETS] = ".debug_str_offsets.dwo",
		[DWARF_RNGLISTS] = ".debug_rnglists.dwo",
	};
	cleanup_dwarf struct dwarf dwarf = { .work_left = WORK_FREE };
	int rc;

	dwarf.sections[DWARF_ADDR] = main->sections[DWARF_ADDR];
	dwarf.sections[DWARF_RANGES] = main->sections[DWARF_RANGES];
	dwarf.sections[DWARF_ADDR].owned = dwarf.sections[DWARF_RANGES].owned = NULL;
	rc = open_sections(elf, names, &dwarf);
	if (rc < 0)
		return rc;
	*ret = dwarf;
	dwarf = (struct dwarf){ 0 };
	return 0;
}

int dwarf_open(Elf *elf, struct dwarf *ret)
{
	static const char *const names[DWARF_SECTION_MAX] = {
		".debug_info",	   ".debug_abbrev",	 ".debug_str",
		".debug_line",	   ".debug_line_str",	 ".debug_str_offsets",
		".debug_addr",	   ".debug_ranges",	 ".debug_rnglists",
	};
	cleanup_dwarf struct dwarf dwarf = { .work_left = WORK_FREE };
	int rc = open_sections(elf, names, &dwarf);

	if (rc < 0)
		return rc;
	*ret = dwarf;
	dwarf = (struct dwarf){ 0 };
	return 0;
}

void dwarf_close(struct dwarf *dwarf)
{
	for (int i = 0; i < DWARF_SECTION_MAX; i++)
		elf_section_deinit(&dwarf->sections[i]);
	for (size_t i = 0; i < DWARF_TABLES_MAX; i++)
		table_deinit(&dwarf->tables[i]);
	free(dwarf->units);
	*dwarf = (struct dwarf){ 0 };
}
