/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about an ELF file that readers of names need beyond libelf: the places of its code in the
 * file, its sections by name in decompressed form, and the small ELF file in .gnu_debugdata.
 * Nothing here trusts the file. */
#ifndef PROFD_SYMBOLIZE_ELF_DEBUG_H
#define PROFD_SYMBOLIZE_ELF_DEBUG_H

#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/bytes.h"
#include "agent/base/cleanup.h"

#define ELF_DEBUG_SEGMENTS_MAX	64u
#define ELF_DEBUG_SECTION_MAX	(4ull << 30) /* bytes of one section, decompressed */
#define ELF_DEBUG_RATIO_MAX                                                                        \
	128u /* a section's size over that of its compressed form: real ones have */
#define ELF_DEBUG_RATIO_FREE                                                                       \
	(1u << 20) /* 2 to 20; and this much in any case. zlib can do 1032, zstd more */
#define ELF_DEBUG_MINIDEBUG_MAX (8u << 20)   /* bytes of .gnu_debugdata, compressed */

/* Loadable segments of the main file. Addresses are ELF virtual addresses (st_value, DWARF), "_ev";
 * results are file offsets, "_fo". Source: gABI, "Program Header". */
struct elf_segments {
	struct elf_segment {
		uint64_t start_ev;
		uint64_t end_ev; /* of the part that the file holds */
		uint64_t offset_fo;
		bool executable;
	} items[ELF_DEBUG_SEGMENTS_MAX];
	size_t count;
};

/* -ENOEXEC if it is no ELF file with program headers. Segments beyond the bound are
 * ignored, and those whose addresses or offsets do not fit in 64 bits. */
int elf_segments_load(Elf *elf, struct elf_segments *ret) must_use;
/* The executable segment that holds @ev, NULL if none. */
const struct elf_segment *elf_segments_code(const struct elf_segments *segments, uint64_t ev);
/* [@ev, @end_ev) of code as file offsets, cut at the end of its segment. False if it is not in
 * code. */
bool elf_segments_range(const struct elf_segments *segments, uint64_t ev, uint64_t end_ev,
			uint64_t *ret_fo, uint64_t *ret_end_fo);
/* File offset of @ev in any segment, and the bytes from there to the segment's end. False if in
 * none. */
bool elf_segments_to_fo(const struct elf_segments *segments, uint64_t ev, uint64_t *ret_fo,
			uint64_t *ret_left);

/* Copies @len bytes from @ev on. -ENODATA if the file does not hold them in one segment. */
int elf_segments_read(Elf *elf, const struct elf_segments *segments, uint64_t ev, void *ret,
		      size_t len) must_use;

/* One symbol of a table, with its name (never NULL). 0 = go on, anything else ends the walk. */
typedef int elf_symbol_fn(void *ctx, const char *name, const GElf_Sym *sym);
/* Calls @fn for each symbol that has a name, of the first section of @type (SHT_SYMTAB or
 * SHT_DYNSYM). Returns what ended the walk, else 0. Errors: -ENOENT no such section, -ENOEXEC
 * malformed, -E2BIG more than @max symbols; then @fn was not called. */
int elf_each_symbol(Elf *elf, unsigned type, size_t max, elf_symbol_fn *fn, void *ctx) must_use;

/* A section's bytes. @bytes lie in the file's image, in libelf or in @owned. */
struct elf_section {
	const uint8_t *bytes;
	size_t len;
	void *owned;
	uint64_t ev; /* where it is loaded, 0 = nowhere */
	uint64_t fo;
};
void elf_section_deinit(struct elf_section *section);
static inline void cleanup_elf_section_fn(struct elf_section *section)
{
	elf_section_deinit(section);
}
#define cleanup_elf_section __attribute__((__cleanup__(cleanup_elf_section_fn)))

/* The first section called @name that has contents, decompressed if it is compressed
 * (SHF_COMPRESSED with zlib or zstd, or the older .zdebug_ form). @ret is borrowed from @elf but
 * for what it owns. -ENOENT no such section, -ENOEXEC damaged, -E2BIG over the bound, -ENOMEM. */
int elf_section_load(Elf *elf, const char *name, struct elf_section *ret) must_use;
/* The same with a bound of its own: -E2BIG before more than @max bytes are read or inflated. */
int elf_section_load_max(Elf *elf, const char *name, uint64_t max, struct elf_section *ret)
	must_use;
/* The address and the place in the file of the section called @name. False if there is none with
 * contents. Reads no contents. */
bool elf_section_place(Elf *elf, const char *name, uint64_t *ret_ev, uint64_t *ret_fo,
		       uint64_t *ret_len);

/* Opens the ELF file inside .gnu_debugdata (XZ). @ret_fd is a memfd that must live as long as @ret;
 * the caller releases both. -ENOENT, -E2BIG, -ENOEXEC, or errno of memfd. */
int elf_debug_open_minidebug(Elf *elf, Elf **ret, int *ret_fd) must_use;

#endif
