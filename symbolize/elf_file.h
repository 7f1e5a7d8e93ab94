/* SPDX-License-Identifier: Apache-2.0 */
/* An ELF file that somebody else wrote, opened from a descriptor: its identity (build-id, debug
 * link, key) and what it is. Sections and segments: elf_debug.h. Nothing is mapped: a file that is
 * truncated while we read it gives a short read, not a SIGBUS. Little-endian ELF64 only; anything
 * else is -ENOEXEC. Not thread-safe. */
#ifndef PROFD_SYMBOLIZE_ELF_FILE_H
#define PROFD_SYMBOLIZE_ELF_FILE_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/bytes.h"
#include "agent/base/cleanup.h"

#define ELF_FILE_BYTES_MAX   (32ull << 30)
#define ELF_BUILD_ID_MAX     32
#define ELF_DEBUG_LINK_BYTES 256
#define ELF_ALT_NAME_BYTES   1024

/* ---- any Elf handle -------------------------------------------------------------------------- */

/* -ENOEXEC unless @elf is a little-endian ELF64 executable or shared object of @machine (EM_*). */
int elf_check(Elf *elf, uint16_t machine) must_use;
/* @len bytes at file offset @fo; owned by @elf, valid until it is closed. -ENODATA beyond the end,
 * -ENOMEM. */
int elf_raw_bytes(Elf *elf, uint64_t fo, uint64_t len, struct bytes *ret) must_use;

/* .gnu_debugaltlink: the supplementary file that dwz moved shared debug information to. */
struct elf_alt_link {
	char name[ELF_ALT_NAME_BYTES]; /* path as written: absolute, or from the folder of the file */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	uint8_t build_id_len;
};
/* -ENOENT there is none, or it is damaged. Source: dwz(1), GDB manual "Separate Debug Files". */
int elf_alt_link_load(Elf *elf, struct elf_alt_link *ret) must_use;

/* ---- a file ---------------------------------------------------------------------------------- */

/* Facts that tell which separate debug file belongs to a file. */
struct elf_identity {
	uint8_t build_id[ELF_BUILD_ID_MAX]; /* NT_GNU_BUILD_ID */
	uint8_t build_id_len;		    /* 0 = none */
	char debug_link[ELF_DEBUG_LINK_BYTES]; /* file name of .gnu_debuglink without '/', "" = none */
	uint32_t debug_crc;		    /* CRC-32 of the linked file */
};

struct elf_file {
	Elf *elf;
	int fd; /* owned */
	uint64_t size_bytes;
	struct elf_identity identity;
};

/* Opens the file behind @fd_take (closed on success by elf_file_close(), untouched on failure).
 * -ENOEXEC not a regular ELF64 little-endian file, -E2BIG larger than ELF_FILE_BYTES_MAX, -ENOMEM.
 */
int elf_file_open_take(int fd_take, struct elf_file **ret) must_use;
/* The same, mapped: less memory and time for large debug files. Only where dying from SIGBUS does
 * no harm. */
int elf_file_map_take(int fd_take, struct elf_file **ret) must_use;
void elf_file_close(struct elf_file *file);
CLEANUP_DEFINE(elf_file, struct elf_file *, elf_file_close);

/* The stable identity of the file (agent/wire/module_key.h): its build-id, else Go's build id, else
 * its size, headers and executable bytes (at most 64 MiB of them); with where its segments lie and
 * with @voucher. For MODULE_VOUCHER_CONTENT all its bytes are read (at most 128 MiB). -EIO and the
 * like when it cannot be read. */
int elf_file_key(const struct elf_file *file, uint64_t voucher, uint64_t *ret) must_use;
/* Is @debug the separate debug file of @identity? By build-id if both have one, else by the CRC of
 * the debug link (reads the whole file). */
bool elf_file_debug_matches(const struct elf_identity *identity, const struct elf_file *debug);
/* Has it any of: .symtab, .debug_info? (What a stripped file lacks.) */
bool elf_file_has_symtab(const struct elf_file *file);
bool elf_file_has_dwarf(const struct elf_file *file);
/* Its head and PT_LOAD headers alone, as a file of their own. The names in a debug file need no
 * more of it, also long after it was closed. Free @ret. */
int elf_file_skeleton(const struct elf_file *file, void **ret, size_t *ret_len) must_use;
/* DT_SONAME into @ret (NUL-terminated, cut); "" if there is none. */
void elf_file_soname(const struct elf_file *file, char *ret, size_t size);

#endif
