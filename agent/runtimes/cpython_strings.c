// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/cpython_strings.h"

#include <errno.h>

#define CHARS_MAX (1ull << 40)

/* Bits of the state: interned 2, kind 3, compact 1, ascii 1. */
#define STATE_SHIFT   2
#define STATE_KIND    7u
#define STATE_COMPACT 8u
#define STATE_ASCII   16u

int cpython_string_head(uint64_t length, uint32_t state, struct cpython_string *ret)
{
	uint32_t bits = state >> STATE_SHIFT;
	unsigned kind = bits & STATE_KIND;
	bool is_ascii = bits & STATE_ASCII;

	if (!(bits & STATE_COMPACT) || (kind != 1 && kind != 2 && kind != 4) ||
	    length > CHARS_MAX || (is_ascii && kind != 1))
		return -EINVAL;
	*ret = (struct cpython_string){ .chars = length,
					.width = (uint8_t)kind,
					.is_ascii = is_ascii };
	return 0;
}
