/* SPDX-License-Identifier: Apache-2.0 */
/* Describes CPython in an ELF file as struct script_runtime (bpf/script.h): its version, the
 * offsets of its structures, the places of its state, and the code of its loop. The file may be a
 * shared library, a program with the interpreter linked in, or stripped. Nothing here trusts the
 * file: what it says is a claim until agent/reader/cpython_check.c has compared it with live
 * threads. */
#ifndef PROFD_SYMBOLIZE_RUNTIME_CPYTHON_H
#define PROFD_SYMBOLIZE_RUNTIME_CPYTHON_H

#include "bpf/script.h"
#include "symbolize/elf_file.h"

/* Fills @ret, with addresses as bpf/script.h counts them. The chain is 0 if the offsets are not
 * known: another version, a debug build without its own description, 3.14 without the GIL, or
 * offsets out of range. The reader refuses that, so that stacks say what they lack. -ENOENT: the
 * file has no CPython. -ENOEXEC, -E2BIG, -ENOMEM: the file is damaged or over a bound. */
int runtime_cpython_load(const struct elf_file *file, struct script_runtime *ret) must_use;

/* Adds to @ranges (SCRIPT_RANGES_MAX) the parts that the compiler moved away from a function. The
 * first range is the function's main part, in file offsets. A moved part is code that the main part
 * jumps to and whose frame, by .eh_frame, is already set up where it begins. Symbols are not
 * needed. */
void runtime_cpython_parts(Elf *elf, struct script_range ranges[SCRIPT_RANGES_MAX]);

#endif
