/* SPDX-License-Identifier: Apache-2.0 */
/* An ELF file that somebody else wrote, opened from a descriptor: bounded reads of its headers and
 * sections, its segments (file offset <-> ELF virtual address), and its identity (build-id, debug link,
 * key). Nothing is mapped: a file that is truncated while we read it gives a short read, not a SIGBUS.
 * Little-endian ELF64 only; anything else is -ENOEXEC. Not thread-safe (libelf is not). */
#ifndef PROFD_SYMBOLIZE_ELF_FILE_H
#define PROFD_SYMBOLIZE_ELF_FILE_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/bytes.h"
#include "agent/base/cleanup.h"

#define ELF_SEGMENTS_MAX     64		      /* PT_LOAD of one file; linkers write 4 to 10 */
#define ELF_SECTIONS_MAX     65536u	      /* looked at; debug files with a section per function have 10^4 */
#define ELF_FILE_BYTES_MAX   (32ull << 30)
#define ELF_BUILD_ID_MAX     32
#define ELF_DEBUG_LINK_BYTES 256

struct elf_segment {
	uint64_t ev;	     /* p_vaddr */
	uint64_t fo;	     /* p_offset */
	uint64_t file_bytes; /* p_filesz: what the header says, perhaps beyond the end */
	uint32_t flags;	     /* PF_R, PF_W, PF_X */
};

struct elf_segments {
	struct elf_segment items[ELF_SEGMENTS_MAX]; /* in the file's order */
	unsigned count;
};

struct elf_section {
	uint64_t ev;
	uint64_t fo;
	uint64_t size_bytes; /* in the file, still compressed */
	uint32_t type;	     /* SHT_* */
	uint64_t flags;	     /* SHF_* */
	Elf_Scn *scn;	     /* borrowed from the Elf */
};

/* ---- any Elf handle ------------------------------------------------------------------------------ */

/* -ENOEXEC unless @elf is a little-endian ELF64 executable or shared object of @machine (EM_*). */
int elf_check(Elf *elf, uint16_t machine) must_use;
/* PT_LOAD segments with file contents. -ENOEXEC if there is none or the table is damaged. */
int elf_segments_load(Elf *elf, struct elf_segments *ret) must_use;
/* File offset of an ELF virtual address within a segment that has all of @flags (PF_X, 0 = any).
 * @ret_left: bytes from there to the segment's end in the file; may be NULL. -ERANGE if in none. */
int elf_segments_to_fo(const struct elf_segments *segments, uint64_t ev, uint32_t flags,
		       uint64_t *ret_fo, uint64_t *ret_left) must_use;
/* The other way round. -ERANGE. */
int elf_segments_to_ev(const struct elf_segments *segments, uint64_t fo, uint64_t *ret_ev) must_use;

/* First section called @name. -ENOENT. */
int elf_section_find(Elf *elf, const char *name, struct elf_section *ret) must_use;
/* The section's contents, decompressed if SHF_COMPRESSED or an old ".z" section; owned by @elf, valid
 * until it is closed. -ENODATA if it has none in this file (NOBITS), -E2BIG if it has, or claims to
 * decompress to, more than @max bytes, -ENOEXEC if damaged, -ENOMEM. */
int elf_section_bytes(Elf *elf, const struct elf_section *section, uint64_t max,
		      struct bytes *ret) must_use;
/* @len bytes at file offset @fo; owned by @elf like a section's. -ENODATA beyond the end, -ENOMEM. */
int elf_raw_bytes(Elf *elf, uint64_t fo, uint64_t len, struct bytes *ret) must_use;

/* ---- a file -------------------------------------------------------------------------------------- */

struct elf_file {
	Elf *elf;
	int fd; /* owned */
	uint64_t size_bytes;
	uint8_t build_id[ELF_BUILD_ID_MAX]; /* NT_GNU_BUILD_ID */
	uint8_t build_id_len;		    /* 0 = none */
	char debug_link[ELF_DEBUG_LINK_BYTES]; /* file name of .gnu_debuglink without '/', "" = none */
	uint32_t debug_crc;		    /* CRC-32 of the linked file */
};

/* Opens the file behind @fd_take (closed on success by elf_file_close(), untouched on failure).
 * -ENOEXEC not a regular ELF64 little-endian file, -E2BIG larger than ELF_FILE_BYTES_MAX, -ENOMEM. */
int elf_file_open_take(int fd_take, struct elf_file **ret) must_use;
void elf_file_close(struct elf_file *file);
CLEANUP_DEFINE(elf_file, struct elf_file *, elf_file_close);

/* The stable identity of a build: a hash of its build-id, equal on every host, never 0. */
uint64_t elf_key_of_build_id(const uint8_t *build_id, size_t len);
/* The same of a file: by build-id; else by Go's build id; else by its size, headers and executable
 * bytes (at most 64 MiB of them). -EIO and the like when it cannot be read. */
int elf_file_key(const struct elf_file *file, uint64_t *ret) must_use;
/* Is @debug the separate debug file of @file? By build-id if @file has one, else by the CRC of the debug
 * link (reads the whole file). */
bool elf_file_debug_matches(const struct elf_file *file, const struct elf_file *debug);
/* Has it any of: .symtab, .debug_info? (What a stripped file lacks.) */
bool elf_file_has_symtab(const struct elf_file *file);
bool elf_file_has_dwarf(const struct elf_file *file);
/* DT_SONAME into @ret (NUL-terminated, cut); "" if there is none. */
void elf_file_soname(const struct elf_file *file, char *ret, size_t size);

#endif
