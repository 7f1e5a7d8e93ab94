/* SPDX-License-Identifier: Apache-2.0 */
/* Places where the functions of a memory allocator can be probed cheaply. In an ELF file that
 * defines malloc and free, such a place is the first instruction of a function that the kernel
 * emulates instead of stepping (20 times cheaper), and at which the arguments still lie in known
 * registers.
 *
 * alloc_sites.c has x86-64, alloc_sites_arm64.c AArch64. The kernel's x86 uprobes emulate push r64,
 * one-byte nop, jmp, call rel32 and jcc (arch/x86/kernel/uprobes.c, branch_setup_xol_ops() and
 * push_setup_xol_ops()). The file is not trusted: an instruction that is not understood ends the
 * search, and the function is then probed at its first byte. Pure. */
#ifndef PROFD_SYMBOLIZE_ALLOC_SITES_H
#define PROFD_SYMBOLIZE_ALLOC_SITES_H

#include <libelf.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/wire/control.h"

/* The arguments that a probe of a function of @kind reads, as bits of their positions. */
unsigned alloc_kind_arguments(enum alloc_kind kind);
/* Finds the site in @len bytes of @code from the function's first on; at most ALLOC_SITE_SCAN_BYTES
 * are looked at. @machine is EM_X86_64 or EM_AARCH64. @ret->fo is the offset from the function's
 * begin; kind, registers and flags are filled, the bytes are not. -ENODATA: too little code for a
 * site. */
#define ALLOC_SITE_SCAN_BYTES 64u
int alloc_site_find(uint16_t machine, const uint8_t *code, size_t len, enum alloc_kind kind,
		    struct control_alloc_site *ret) must_use;
/* The same for EM_AARCH64 alone: for alloc_sites.c. */
int alloc_site_find_arm64(const uint8_t *code, size_t len, enum alloc_kind kind,
			  struct control_alloc_site *ret) must_use;

/* The allocator that @elf defines: number of sites (at most ALLOC_SITES_MAX), 0 = none. */
unsigned alloc_sites_load(Elf *elf, struct control_alloc_site ret[ALLOC_SITES_MAX],
			  enum alloc_family *ret_family);

#endif
