// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/cpython_lines.h"

#include <errno.h>
#include <stdbool.h>

#define UNIT_BYTES 2u

/* First byte of an entry of 3.11's table: 1, kind of 4 bits, code units - 1 of 3 bits. */
#define ENTRY_START	0x80u
#define ENTRY_KIND(b)	((b) >> 3 & 15u)
#define ENTRY_UNITS(b)	(((b)&7u) + 1u)
#define KIND_ONE_LINE	10u /* 10, 11, 12: that many lines - 10 further on; below: the same line */
#define KIND_NO_COLUMNS 13u
#define KIND_LONG	14u
#define KIND_NONE	15u

#define LINETABLE_NO_LINE (-128)

enum cpython_lines_format cpython_lines_format_of(unsigned minor)
{
	if (minor < 10)
		return CPYTHON_LINES_LNOTAB;
	return minor == 10 ? CPYTHON_LINES_LINETABLE : CPYTHON_LINES_LOCATIONS;
}

static int give(int64_t line, uint32_t *ret)
{
	if (line < 0 || line > INT32_MAX)
		return -EINVAL;
	*ret = (uint32_t)line;
	return 0;
}

/* The last pair holds to the end of the code, whose length the table does not contain. */
static int find_lnotab(const uint8_t *table, size_t len, int64_t line, uint64_t offset,
		       uint32_t *ret)
{
	uint64_t at = 0;

	for (size_t i = 0; i + 1 < len; i += 2) {
		at += table[i];
		if (at > offset)
			break;
		line += (int8_t)table[i + 1];
	}
	return give(line, ret);
}

static int find_linetable(const uint8_t *table, size_t len, int64_t line, uint64_t offset,
			  uint32_t *ret)
{
	uint64_t end = 0;

	for (size_t i = 0; i + 1 < len; i += 2) {
		int8_t delta = (int8_t)table[i + 1];

		end += table[i];
		if (delta != LINETABLE_NO_LINE)
			line += delta;
		if (offset < end)
			return delta == LINETABLE_NO_LINE ? -ENODATA : give(line, ret);
	}
	return -EINVAL;
}

/* Signed number: 6 bits a byte, lowest first, bit 6 = more follow; the lowest bit is the sign. A
 * line fits into 6 bytes; a longer number is damaged. */
static bool take_svarint(const uint8_t *at, const uint8_t *end, int64_t *ret)
{
	uint64_t value = 0;

	for (unsigned shift = 0; at < end && shift < 36; shift += 6) {
		uint8_t byte = *at++;

		value |= (uint64_t)(byte & 63u) << shift;
		if (byte & 64u)
			continue;
		*ret = value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
		return true;
	}
	return false;
}

static int find_location(const uint8_t *table, size_t len, int64_t line, uint64_t position,
			 uint32_t *ret)
{
	const uint8_t *at = table, *end = table + len;
	uint64_t unit = 0;

	while (at < end) {
		uint8_t first = *at++;
		unsigned kind = ENTRY_KIND(first);
		int64_t delta = 0;

		if (!(first & ENTRY_START))
			return -EINVAL;
		if (kind == KIND_NO_COLUMNS || kind == KIND_LONG) {
			if (!take_svarint(at, end, &delta))
				return -EINVAL;
		} else if (kind >= KIND_ONE_LINE && kind != KIND_NONE) {
			delta = kind - KIND_ONE_LINE;
		}
		line += delta;
		unit += ENTRY_UNITS(first);
		if (position < unit)
			return kind == KIND_NONE ? -ENODATA : give(line, ret);
		while (at < end && !(*at & ENTRY_START))
			at++;
	}
	return -EINVAL;
}

int cpython_lines_find(enum cpython_lines_format format, const void *table, size_t len,
		       uint32_t first_line, uint32_t position, uint32_t *ret)
{
	if (position == SCRIPT_POSITION_NONE)
		return give(first_line, ret);
	switch (format) {
	case CPYTHON_LINES_LNOTAB:
		return find_lnotab(table, len, first_line, (uint64_t)position * UNIT_BYTES, ret);
	case CPYTHON_LINES_LINETABLE:
		return find_linetable(table, len, first_line, (uint64_t)position * UNIT_BYTES, ret);
	case CPYTHON_LINES_LOCATIONS:
		return find_location(table, len, first_line, position, ret);
	}
	return -EINVAL;
}
