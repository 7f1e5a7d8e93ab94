// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/hotspot_lines.h"

#include <errno.h>
#include <stdbool.h>

#define NUMBER_BYTES 5u	  /* of a packed number at most */
#define LAST	     192u /* a byte below it is a number's last */
#define ESCAPE	     0xffu
#define BCI_MAX	     65536
#define LINE_MAX     0xffff

enum hotspot_packing hotspot_packing_of(unsigned version)
{
	return version >= 20 ? HOTSPOT_PACKED_WITHOUT_ZERO : HOTSPOT_PACKED_PLAIN;
}

uint32_t hotspot_unsigned(struct bytes *in, enum hotspot_packing packing)
{
	uint32_t excluded = packing == HOTSPOT_PACKED_WITHOUT_ZERO, sum = 0;

	for (unsigned i = 0; i < NUMBER_BYTES; i++) {
		uint8_t byte = bytes_u8(in);

		if (byte < excluded)
			in->failed = true;
		if (in->failed)
			return 0;
		sum += (uint32_t)(byte - excluded) << (6 * i);
		if (byte < LAST)
			break;
	}
	return sum;
}

static int32_t take_signed(struct bytes *in, enum hotspot_packing packing)
{
	uint32_t value = hotspot_unsigned(in, packing);

	return (int32_t)(value >> 1 ^ -(value & 1));
}

int hotspot_line(const void *table, size_t len, enum hotspot_packing packing, uint32_t bci,
		 uint32_t *ret, uint32_t *ret_first)
{
	struct bytes in = bytes_of(table, len);
	int64_t at = 0, line = 0;
	uint32_t found = 0, first = 0;

	for (bool is_first = true;; is_first = false) {
		uint8_t byte = bytes_u8(&in);

		if (in.failed)
			return -EINVAL;
		if (!byte)
			break;
		if (byte == ESCAPE) {
			at += take_signed(&in, packing);
			line += take_signed(&in, packing);
		} else {
			at += byte >> 3;
			line += byte & 7;
		}
		if (in.failed || at < 0 || at >= BCI_MAX || line < 0 || line > LINE_MAX)
			return -EINVAL;
		if (is_first)
			first = (uint32_t)line;
		/* Entries are in the order of the class file, which javac sorts. */
		if ((uint64_t)at <= bci)
			found = (uint32_t)line;
		else
			break;
	}
	*ret = found;
	*ret_first = first;
	return 0;
}
