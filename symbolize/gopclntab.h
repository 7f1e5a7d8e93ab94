/* SPDX-License-Identifier: Apache-2.0 */
/* Functions, inline trees and lines of Go code from the table that every Go program carries for its
 * own tracebacks (pclntab), stripped or not: Go 1.16 and later. Names are as the runtime prints
 * them, with type arguments as [...].
 *
 * Finding it takes two steps. The table itself is found by section name, else by its header
 * anywhere in the loaded data. moduledata, the runtime's record of the places of code and inline
 * trees, is recognized by its pointers into the table. In position-independent files those pointers
 * are in the relocations. Sources: runtime/symtab.go, runtime/symtabinl.go,
 * cmd/link/internal/ld/pcln.go of Go 1.16 to 1.26. */
#ifndef PROFD_SYMBOLIZE_GOPCLNTAB_H
#define PROFD_SYMBOLIZE_GOPCLNTAB_H

#include <libelf.h>
#include <stdint.h>

#include "symbolize/elf_debug.h"
#include "symbolize/index_builder.h"
#include "symbolize/index_sort.h"

#define GOPCLNTAB_FUNCTIONS_MAX 5000000u
#define GOPCLNTAB_BYTES_MAX	(512u << 20)
#define GO_IMAGE_BYTES_MAX	(2ull << 30) /* loadable segments of a Go program */

enum gopclntab_layout {
	GOPCLNTAB_1_16, /* magic 0xfffffffa */
	GOPCLNTAB_1_18, /* magic 0xfffffff0 */
	GOPCLNTAB_1_20, /* magic 0xfffffff1 */
};

/* A file's contents by virtual address, with what the dynamic linker would write there. */
struct go_image {
	const struct elf_segments *segments;
	const uint8_t *contents[ELF_DEBUG_SEGMENTS_MAX]; /* of each segment, NULL = not in the file */
	struct index_sort_item *relocations; /* owned; by address, index into @rela */
	size_t relocation_count;
	const uint8_t *rela; /* Elf64_Rela, unaligned */
};

/* Places of the parts of a table; offsets are inside @bytes, from the header. */
struct go_table {
	const uint8_t *bytes;
	size_t len;
	uint64_t ev; /* address of the header */
	enum gopclntab_layout layout;
	uint8_t quantum; /* bytes of the smallest instruction */
	uint64_t function_count;
	uint64_t names, units, files, pctab, functions;
	uint64_t text_ev;   /* start of Go's code, 0 = unknown */
	uint64_t gofunc_ev; /* base of function data (inline trees), 0 = unknown */
};

/* Is it worth looking? By section names, or where there are none, anything may be. Cheap. */
bool go_image_is_possible(Elf *elf);
/* Contents belong to @elf and live as long; release @ret even after a failure. -ENOEXEC, -E2BIG,
 * -ENOMEM. */
int go_image_load(Elf *elf, const struct elf_segments *segments, struct go_image *ret) must_use;
void go_image_deinit(struct go_image *image);
/* @len bytes of the file at @ev, NULL if they are not all in one segment. */
const uint8_t *go_image_at(const struct go_image *image, uint64_t ev, uint64_t len);
/* The 8-byte word at @ev as the program sees it, 0 if there is none. */
uint64_t go_image_word(const struct go_image *image, uint64_t ev);
/* Finds the table and moduledata. -ENOENT no Go program (or older than 1.16). */
int go_image_find_table(Elf *elf, const struct go_image *image, struct go_table *ret) must_use;

/* The bytes from @offset on in the part of the table that begins at @base; failed if @offset is
 * outside. */
struct bytes go_table_bytes(const struct go_table *table, uint64_t base, uint64_t offset);
/* Entry of the function with number @index and the offset of its _func from table->functions.
 * Number function_count gives the end of the last one. */
bool go_table_entry(const struct go_table *table, const struct go_image *image, uint64_t index,
		    uint64_t *ret_ev, uint64_t *ret_func);

/* Adds everything to @builder and reserves the code's file offsets for it (exclusive_start, _end).
 * -ENOENT no Go program, -ENOEXEC damaged (nothing was added), -E2BIG, -ENOMEM. */
int gopclntab_load(Elf *elf, const struct elf_segments *segments,
		   struct index_builder *builder) must_use;

#endif
