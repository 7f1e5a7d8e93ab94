/* SPDX-License-Identifier: Apache-2.0 */
/* HotSpot's compressed numbers, and the line tables of methods made of them. Pure: bytes in, a
 * value out. The bytes are read from other processes, so every one is hostile. Sources:
 * src/hotspot/share/utilities/unsigned5.hpp and oops/method.cpp (CompressedLineNumberReadStream) of
 * openjdk/jdk. */
#ifndef PROFD_RUNTIMES_HOTSPOT_LINES_H
#define PROFD_RUNTIMES_HOTSPOT_LINES_H

#include <stdint.h>

#include "agent/base/bytes.h"
#include "agent/base/cleanup.h"

/* How numbers are packed: from 20 on no byte of a number is 0. */
enum hotspot_packing { HOTSPOT_PACKED_PLAIN, HOTSPOT_PACKED_WITHOUT_ZERO };

enum hotspot_packing hotspot_packing_of(unsigned version);

/* The next number of at most 5 bytes; sets in->failed at the end of the bytes, or where a byte may
 * not be. */
uint32_t hotspot_unsigned(struct bytes *in, enum hotspot_packing packing);

/* The line of bytecode @bci by the line table @table, and in @ret_first that of the first bytecode;
 * either is 0 where the table has none. -EINVAL: the table is damaged. */
int hotspot_line(const void *table, size_t len, enum hotspot_packing packing, uint32_t bci,
		 uint32_t *ret, uint32_t *ret_first) must_use;

#endif
