/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /proc/kallsyms into an index: functions of the kernel, and of modules and BPF
 * programs as `name [module]`. A symbol ends where the next begins; the last of a module at most
 * one page later. Source: kernel/kallsyms.c, s_show(): "%px %c %s\t[%s]". */
#ifndef PROFD_SYMBOLIZE_KALLSYMS_H
#define PROFD_SYMBOLIZE_KALLSYMS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "symbolize/index_builder.h"

#define KALLSYMS_BYTES_MAX (256u << 20)

/* Adds all functions as distances from _text (modulo 2^64: arm64 has modules below it). Lines that
 * are not as expected are skipped. -ENODATA no _text, -EPERM addresses are hidden (all zero),
 * -ENOMEM, -E2BIG. */
int kallsyms_parse(const char *text, size_t len, struct index_builder *builder,
		   uint64_t *ret_text_va) must_use;

#endif
