/* SPDX-License-Identifier: Apache-2.0 */
/* Debug information of HotSpot's compiled methods: which methods are inlined at a pc, and where in
 * each of them it is. Pure: bytes in, values out. The bytes are read from other processes, so every
 * one is hostile. Sources: src/hotspot/share/code/pcDesc.hpp, scopeDesc.cpp, nmethod.cpp
 * (match_desc) of openjdk/jdk. */
#ifndef PROFD_RUNTIMES_HOTSPOT_SCOPES_H
#define PROFD_RUNTIMES_HOTSPOT_SCOPES_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/runtimes/hotspot_lines.h"

#define HOTSPOT_PC_DESC_BYTES 16u
#define HOTSPOT_SCOPES_MAX    16u /* methods within each other; MaxInlineLevel is 15 */
#define HOTSPOT_BCI_NONE      UINT32_MAX

/* A method at a pc. */
struct hotspot_scope {
	uint32_t method; /* index into the nmethod's metadata, from 1 */
	uint32_t bci;	 /* HOTSPOT_BCI_NONE: before its first bytecode, or unknown */
};

/* Where the scopes of @pc begin, by the PcDescs in @table: those of the first one at or behind it,
 * which describes the call that returns there. @pc counts from the begin of the code; one that is
 * not a return address is asked for by the next one. -ENODATA: none, or no scope. */
int hotspot_scopes_begin(const void *table, size_t len, uint32_t pc, uint32_t *ret) must_use;

/* The scopes that begin at @begin in @data, innermost first. Returns their number; deeper ones than
 * HOTSPOT_SCOPES_MAX are left out. -EINVAL: the data are damaged. */
int hotspot_scopes_read(const void *data, size_t len, enum hotspot_packing packing, uint32_t begin,
			struct hotspot_scope ret[HOTSPOT_SCOPES_MAX]) must_use;

#endif
