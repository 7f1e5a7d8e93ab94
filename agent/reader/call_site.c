// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/call_site.h"

#include <string.h>

#if defined(__x86_64__)

/* Bytes of an FF /2 instruction (call r/m64) that begins at @at, of which @left can be read; 0 if
 * it is none. Intel SDM volume 2, 2.1.3 (ModRM, SIB, displacement). */
static unsigned indirect_bytes(const uint8_t *at, unsigned left)
{
	uint8_t mod = at[1] >> 6, rm = at[1] & 7;
	unsigned bytes = 2;

	if (at[0] != 0xff || (at[1] >> 3 & 7) != 2)
		return 0;
	if (mod == 3)
		return bytes;
	if (rm == 4 && ++bytes > left) /* SIB */
		return 0;
	if (mod == 1)
		return bytes + 1;
	if (mod == 2 || rm == 5 || (rm == 4 && (at[2] & 7) == 5))
		return bytes + 4;
	return bytes;
}

enum call_site call_site_before(const uint8_t before[CALL_SITE_BYTES], uint64_t va,
				uint64_t *ret_target)
{
	const uint8_t *end = before + CALL_SITE_BYTES;
	int32_t displacement;

	if (end[-5] == 0xe8) {
		memcpy(&displacement, end - 4, sizeof(displacement));
		*ret_target = va + (uint64_t)(int64_t)displacement;
		return CALL_SITE_DIRECT;
	}
	for (unsigned bytes = 2; bytes <= 7; bytes++)
		if (indirect_bytes(end - bytes, bytes) == bytes)
			return CALL_SITE_INDIRECT;
	return CALL_SITE_NONE;
}

#elif defined(__aarch64__)

/* BL: bits 31..26 = 100101; BLR: 1101 0110 0011 1111 0000 00nn nnn0 0000 (Arm ARM C6.2). */
enum call_site call_site_before(const uint8_t before[CALL_SITE_BYTES], uint64_t va,
				uint64_t *ret_target)
{
	uint32_t word;

	memcpy(&word, before + CALL_SITE_BYTES - 4, sizeof(word));
	if (word >> 26 == 0x25) {
		int64_t words = (int64_t)((uint64_t)word << 38) >> 38;

		*ret_target = va - 4 + (uint64_t)(words * 4);
		return CALL_SITE_DIRECT;
	}
	return (word & 0xfffffc1f) == 0xd63f0000 ? CALL_SITE_INDIRECT : CALL_SITE_NONE;
}

#endif
