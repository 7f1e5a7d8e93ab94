/* SPDX-License-Identifier: Apache-2.0 */
/* Names for the linker's entries for calls (.plt, .plt.sec, .plt.got), which have no symbols of
 * their own: "function@plt". An entry is known by the slot it jumps through, and the slot by its
 * relocation. */
#ifndef PROFD_SYMBOLIZE_ELF_PLT_H
#define PROFD_SYMBOLIZE_ELF_PLT_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbolize/elf_debug.h"
#include "symbolize/index_builder.h"

/* Adds the entries of @elf. Those that are not recognized stay unnamed. Returns the number of
 * names, -ENOMEM, -E2BIG. */
int elf_plt_load(Elf *elf, const struct elf_segments *segments,
		 struct index_builder *builder) must_use;

/* Address of the slot through which the entry at @entry (@len bytes, loaded at @ev) jumps. False if
 * it is no entry. One function per architecture. Pure. */
bool elf_plt_slot_amd64(const uint8_t *entry, size_t len, uint64_t ev, uint64_t *ret_ev);

#endif
