/* SPDX-License-Identifier: Apache-2.0 */
/* V8 in an ELF file: the layout of its objects as struct script_v8 (bpf/script.h), from the v8dbg_
 * constants that node and libnode export (V8's tools/gen-postmortem-metadata.py), and the place of
 * its table of bytecode lengths (src/interpreter/bytecodes.cc). Nothing here trusts the file:
 * agent/reader/v8_names.c looks at the type of every object before it names it. */
#ifndef PROFD_SYMBOLIZE_RUNTIME_V8_H
#define PROFD_SYMBOLIZE_RUNTIME_V8_H

#include "bpf/script.h"
#include "symbolize/elf_file.h"

/* Fills @ret; ranges[0] is the file's largest executable segment. @ret->v8.refused says why the
 * frames of this V8 cannot be read; then there are no other facts, and the reader refuses the
 * process, so that its stacks say what they lack. -ENOEXEC, -E2BIG, -ENOMEM: the file is damaged or
 * over a bound. */
int runtime_v8_load(const struct elf_file *file, struct script_runtime *ret) must_use;

#endif
