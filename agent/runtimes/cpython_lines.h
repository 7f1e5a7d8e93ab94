/* SPDX-License-Identifier: Apache-2.0 */
/* Line tables of CPython's code objects: which source line a bytecode position belongs to. Pure:
 * bytes in, a value out. The tables are read from other processes, so every byte is hostile.
 *
 * Positions are counted in code units (2 bytes), in every version. Sources: CPython's
 * Objects/lnotab_notes.txt (3.6 to 3.10), Objects/locations.md (3.11 and newer) and
 * Objects/codeobject.c of each version. */
#ifndef PROFD_RUNTIMES_CPYTHON_LINES_H
#define PROFD_RUNTIMES_CPYTHON_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "bpf/script.h"

enum cpython_lines_format {
	CPYTHON_LINES_LNOTAB,	 /* 3.6 to 3.9: pairs (bytes of code, signed lines) */
	CPYTHON_LINES_LINETABLE, /* 3.10: the same pairs; line -128 = no line; gaps are ranges */
	CPYTHON_LINES_LOCATIONS	 /* 3.11 and newer: entries of 1 to 27 bytes with columns */
};

enum cpython_lines_format cpython_lines_format_of(unsigned minor);

/* Finds the line of @position in a code object that begins at @first_line.
 * SCRIPT_POSITION_NONE is a frame that has not begun: its line is the first one. @ret gets 0 where
 * the compiler gives an instruction the line 0, as it does for a module's first one.
 * -ENODATA: the table says that the instruction has no line. -EINVAL: the position is not in the
 * table, or the table leads to no valid line. */
int cpython_lines_find(enum cpython_lines_format format, const void *table, size_t len,
		       uint32_t first_line, uint32_t position, uint32_t *ret) must_use;

#endif
