/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of CPython's structures by version, for release builds on x86-64, as struct script_python
 * (bpf/script.h). Pure. Offsets from a file or a table are a claim: agent/reader/cpython_check.c
 * compares them with live threads before anything relies on them.
 *
 * 3.13 and newer describe themselves: _PyRuntime begins with struct _Py_DebugOffsets, whose bytes
 * are in the file (CPython's Include/internal/pycore_debug_offsets.h). 3.8 to 3.12 do not. Their
 * offsets were measured on release builds with gdb and do not change any more. */
#ifndef PROFD_RUNTIMES_CPYTHON_LAYOUT_H
#define PROFD_RUNTIMES_CPYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "bpf/script.h"

#define CPYTHON_DEBUG_OFFSETS_BYTES 720u /* of _PyRuntime that cpython_layout_of_runtime() reads */

/* Frames of this owner or a higher one have no Python code: they separate two entries into the
 * interpreter (3.12 and newer). */
#define CPYTHON_OWNER_ENTRY 3u

static inline unsigned cpython_minor(const struct script_python *python)
{
	return python->version & 0xffu;
}

/* Fills the offsets of 3.@minor from the table; addresses stay 0. -EOPNOTSUPP: not 3.8 to 3.12. */
int cpython_layout_of_version(unsigned minor, struct script_python *ret) must_use;
/* Fills the offsets that the first bytes of _PyRuntime describe (3.13, 3.14); addresses stay 0.
 * -ENODATA: the bytes are too few, or no debug offsets. -EOPNOTSUPP: another version, or 3.14
 * without the GIL. -EINVAL: an offset is out of range. */
int cpython_layout_of_runtime(const void *data, size_t len, struct script_python *ret) must_use;

#endif
