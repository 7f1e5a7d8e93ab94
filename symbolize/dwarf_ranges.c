// SPDX-License-Identifier: Apache-2.0
/* Address ranges: .debug_ranges of DWARF 2 to 4 and .debug_rnglists of DWARF 5. */
#include <dwarf.h>
#include <errno.h>

#include "symbolize/dwarf_reader.h"

static uint64_t read_address(const struct dwarf_unit *unit, struct bytes *at)
{
	return unit->address_bytes == 8 ? bytes_u64(at) : bytes_u32(at);
}

static int visit_range(dwarf_range_fn visit, void *context, uint64_t start_ev, uint64_t end_ev)
{
	return end_ev > start_ev ? visit(context, start_ev, end_ev) : 0;
}

/* Pairs relative to a base; (0, 0) ends, (all ones, x) sets the base. */
static int old_ranges(struct dwarf *dwarf, const struct dwarf_unit *unit, uint64_t offset,
		      dwarf_range_fn visit, void *context)
{
	struct bytes at = dwarf_section_at(dwarf, DWARF_RANGES, offset);
	uint64_t base = unit->base_ev;
	uint64_t all_ones = unit->address_bytes == 8 ? UINT64_MAX : UINT32_MAX;

	for (;;) {
		uint64_t start = read_address(unit, &at), end = read_address(unit, &at);
		int rc = 0;

		if (at.failed)
			return -ENOEXEC;
		if (!dwarf_pay(dwarf, 8))
			return -E2BIG;
		if (!start && !end)
			return 0;
		if (start == all_ones)
			base = end;
		else
			rc = visit_range(visit, context, base + start, base + end);
		if (rc < 0)
			return rc;
	}
}

static bool indexed(const struct dwarf *dwarf, const struct dwarf_unit *unit, uint64_t index,
		    uint64_t *ret_ev)
{
	struct dwarf_value value = { .form = DW_FORM_addrx, .number = index };

	return dwarf_value_address(dwarf, unit, &value, ret_ev);
}

/* One entry of .debug_rnglists. 0 = end of list, 1 = a range or nothing (*ret_start == *ret_end).
 */
static int read_entry(const struct dwarf *dwarf, const struct dwarf_unit *unit, struct bytes *at,
		      uint64_t *base, uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t start = 0, end = 0;
	bool usable = true;

	switch (bytes_u8(at)) {
	case DW_RLE_end_of_list:
		return at->failed ? -ENOEXEC : 0;
	case DW_RLE_base_addressx:
		usable = indexed(dwarf, unit, dwarf_uleb(at), base);
		break;
	case DW_RLE_startx_endx:
		usable = indexed(dwarf, unit, dwarf_uleb(at), &start);
		usable = indexed(dwarf, unit, dwarf_uleb(at), &end) && usable;
		break;
	case DW_RLE_startx_length:
		usable = indexed(dwarf, unit, dwarf_uleb(at), &start);
		end = start + dwarf_uleb(at);
		break;
	case DW_RLE_offset_pair:
		start = *base + dwarf_uleb(at);
		end = *base + dwarf_uleb(at);
		break;
	case DW_RLE_base_address:
		*base = read_address(unit, at);
		break;
	case DW_RLE_start_end:
		start = read_address(unit, at);
		end = read_address(unit, at);
		break;
	case DW_RLE_start_length:
		start = read_address(unit, at);
		end = start + dwarf_uleb(at);
		break;
	default:
		return -ENOEXEC;
	}
	if (at->failed)
		return -ENOEXEC;
	*ret_start = usable ? start : 0;
	*ret_end = usable ? end : 0;
	return 1;
}

static int new_ranges(struct dwarf *dwarf, const struct dwarf_unit *unit, uint64_t offset,
		      dwarf_range_fn visit, void *context)
{
	struct bytes at = dwarf_section_at(dwarf, DWARF_RNGLISTS, offset);
	uint64_t base = unit->base_ev;

	for (;;) {
		uint64_t start, end;
		int rc = at.failed ? -ENOEXEC
				   : read_entry(dwarf, unit, &at, &base, &start, &end);

		if (rc <= 0)
			return rc;
		if (!dwarf_pay(dwarf, 8))
			return -E2BIG;
		rc = visit_range(visit, context, start, end);
		if (rc < 0)
			return rc;
	}
}

int dwarf_ranges(struct dwarf *dwarf, const struct dwarf_unit *unit,
		 const struct dwarf_value *value, dwarf_range_fn visit, void *context)
{
	uint64_t offset = value->number;

	if (value->form == DW_FORM_rnglistx) {
		uint64_t base = unit->rnglists_base;
		struct bytes at;

		if (base == DWARF_NONE || offset > dwarf->sections[DWARF_RNGLISTS].len)
			return -ENOEXEC;
		at = dwarf_section_at(dwarf, DWARF_RNGLISTS, base + offset * unit->offset_bytes);
		offset = base + (unit->offset_bytes == 8 ? bytes_u64(&at) : bytes_u32(&at));
		if (at.failed)
			return -ENOEXEC;
	}
	if (unit->version >= 5)
		return new_ranges(dwarf, unit, offset, visit, context);
	return old_ranges(dwarf, unit, offset + unit->ranges_base, visit, context);
}
