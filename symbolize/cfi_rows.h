/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles .eh_frame (and .debug_frame) of an ELF file into the unwind table image of
 * bpf/unwind_table.h. Input is hostile: every read is bounded, work and rows are capped. Pure but
 * for reading the file through libelf. */
#ifndef PROFD_SYMBOLIZE_CFI_ROWS_H
#define PROFD_SYMBOLIZE_CFI_ROWS_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "bpf/unwind_table.h"

struct cfi_table {
	void *image;		 /* owned; page-aligned size is not required; image_bytes is a multiple of 16 */
	size_t image_bytes;
	uint32_t row_count;
	uint64_t text_bytes;	 /* bytes of executable segments covered by rows */
	uint64_t fp_text_bytes;	 /* of them with CFA = fp + 16 and the caller's fp at its place */
	uint64_t entry_bytes; /* of them where no call returns to: before a frame is set up or after
			       * it is taken down, PLT, .init, where programs begin */
	bool breaks_fp;		 /* somewhere a caller is not found by fp: signal frames, switches of stacks */
	uint64_t unsupported_bytes;
};

/* Builds the table of @elf (opened read-only; borrowed). @fd: the file it was opened from
 * (borrowed), -1 = it is in memory. Errors: -ENODATA no unwind information, -ENOEXEC not a
 * supported ELF file, -E2BIG more rows than UNWIND_ROWS_MAX, -ENOMEM. @ret is untouched on failure;
 * release with cfi_table_deinit(). */
int cfi_table_build(Elf *elf, int fd, struct cfi_table *ret) must_use;
void cfi_table_deinit(struct cfi_table *table);

/* The rule in force at file offset @fo of a valid image, or NULL. For tests and tools; BPF has its
 * own copy of the search in bpf/unwind_step.h. */
const struct unwind_rule *cfi_table_find(const struct cfi_table *table, uint64_t fo);
/* Checks an image read from the cache or a memfd: all indices inside, rows ascending. -EPROTO. */
int cfi_image_validate(const void *image, size_t bytes) must_use;

#endif
