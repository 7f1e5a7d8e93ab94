/* SPDX-License-Identifier: Apache-2.0 */
/* Tells which language runtime an ELF file is, by its sections and symbols; never by its path. */
#ifndef PROFD_SYMBOLIZE_ELF_RUNTIME_H
#define PROFD_SYMBOLIZE_ELF_RUNTIME_H

#include <stdint.h>

#include "symbolize/elf_file.h"

/* A bit of enum feed_proc_flag (FEED_PROC_GO, _JVM, _PYTHON, _NODE, _PHP, _RUBY, _PERL), 0 = none
 * of them. */
uint32_t elf_runtime_of(const struct elf_file *file);

#endif
