// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/unicode.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT 0xfffdu

static uint32_t character(const uint8_t *data, unsigned width)
{
	uint32_t value = data[0];

	if (width == 2)
		value |= (uint32_t)data[1] << 8;
	else if (width == 4)
		memcpy(&value, data, 4);
	if (value < 0x20 || (value >= 0x7f && value < 0xa0) ||
	    (value >= 0xd800 && value < 0xe000) || value > 0x10ffff)
		return REPLACEMENT;
	return value;
}

static size_t encode(uint32_t value, char ret[4])
{
	if (value < 0x80) {
		ret[0] = (char)value;
		return 1;
	}
	if (value < 0x800) {
		ret[0] = (char)(0xc0 | value >> 6);
		ret[1] = (char)(0x80 | (value & 63));
		return 2;
	}
	if (value < 0x10000) {
		ret[0] = (char)(0xe0 | value >> 12);
		ret[1] = (char)(0x80 | (value >> 6 & 63));
		ret[2] = (char)(0x80 | (value & 63));
		return 3;
	}
	ret[0] = (char)(0xf0 | value >> 18);
	ret[1] = (char)(0x80 | (value >> 12 & 63));
	ret[2] = (char)(0x80 | (value >> 6 & 63));
	ret[3] = (char)(0x80 | (value & 63));
	return 4;
}

size_t unicode_utf8(const void *data, size_t chars, unsigned width, char *ret, size_t size)
{
	const uint8_t *at = data;
	size_t used = 0;

	for (size_t i = 0; i < chars; i++, at += width) {
		char bytes[4];
		size_t len = encode(character(at, width), bytes);

		if (len >= size - used)
			break;
		memcpy(ret + used, bytes, len);
		used += len;
	}
	ret[used] = '\0';
	return used;
}
