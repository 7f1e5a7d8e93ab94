/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of a symbol index image: one head, then arrays in the order of enum symbol_image_part,
 * each aligned to 8 bytes. Position-independent (offsets and ids only), little-endian, read-only
 * once built. Private to symbolize/: written by index_builder.c, read by symbol_index.c.
 *
 * Four independent tables answer one address:
 *   symbols   ELF or kernel symbols, flattened: entry i covers [start[i], start[i + 1])
 *   ranges    deepest node of the inline tree, flattened the same way
 *   lines     (file, line) rows, likewise
 *   extents   functions that no symbol covers whole: what is left of them has no name, but a
 *             beginning
 * A value of 0 (symbols), SYMBOL_IMAGE_NONE (ranges) or line 0 without file (lines) is a gap. */
#ifndef PROFD_SYMBOLIZE_SYMBOL_IMAGE_H
#define PROFD_SYMBOLIZE_SYMBOL_IMAGE_H

#include <stdint.h>

#define SYMBOL_IMAGE_MAGIC   "profdsym"
#define SYMBOL_IMAGE_VERSION 5u /* raise with every change of layout or of meaning */
#define SYMBOL_IMAGE_NONE    UINT32_MAX

enum symbol_image_part {
	SYMBOL_IMAGE_SYMBOL_START, /* u64 file offset (kernel: distance from _text), ascending */
	SYMBOL_IMAGE_SYMBOL_NAME,  /* u32 string */
	SYMBOL_IMAGE_RANGE_START,  /* u32 file offset, ascending */
	SYMBOL_IMAGE_RANGE_NODE,   /* u32 node */
	SYMBOL_IMAGE_NODES,	   /* struct symbol_image_node */
	SYMBOL_IMAGE_FUNCTIONS,	   /* struct symbol_image_function */
	SYMBOL_IMAGE_LINE_START,   /* u32 file offset, ascending */
	SYMBOL_IMAGE_LINES,	   /* struct symbol_image_line, parallel to the starts */
	SYMBOL_IMAGE_EXTENTS,	   /* struct symbol_image_extent, ascending and disjoint */
	SYMBOL_IMAGE_STRINGS,	   /* NUL-terminated; the string at 0 is "" */
	SYMBOL_IMAGE_PART_MAX
};

/* One instance of a function in the code: itself (no parent) or inlined into its parent. */
struct symbol_image_node {
	uint32_t parent; /* smaller than the node's own number, or SYMBOL_IMAGE_NONE */
	uint32_t function;
	uint32_t call_file; /* string; where in the parent it was inlined */
	uint32_t call_line;
};

struct symbol_image_function {
	uint32_t name; /* string, as mangled as the source has it */
	uint32_t file; /* string */
	uint32_t start_line; /* with SYMBOL_IMAGE_WRAPPER where it is one */
};
#define SYMBOL_IMAGE_WRAPPER                                                                       \
	(1u << 31) /* made by Go's compiler: left out of chains, as Go does it */

struct symbol_image_line {
	uint32_t file; /* string */
	uint32_t line;
};

struct symbol_image_extent {
	uint32_t start; /* file offsets */
	uint32_t end;
};

struct symbol_image_head {
	char magic[8];
	uint32_t version;
	uint32_t origins; /* enum symbol_origin bits */
	uint64_t bytes;	  /* of the whole image */
	struct {
		uint64_t offset; /* bytes from the head, multiple of 8 */
		uint64_t count;	 /* elements */
	} parts[SYMBOL_IMAGE_PART_MAX];
};

/* Size of one element of each part in bytes, in the order of enum symbol_image_part. */
static const uint8_t symbol_image_element_bytes[SYMBOL_IMAGE_PART_MAX] = {
	8,
	4,
	4,
	4,
	sizeof(struct symbol_image_node),
	sizeof(struct symbol_image_function),
	4,
	sizeof(struct symbol_image_line),
	sizeof(struct symbol_image_extent),
	1,
};

/* Sources of the names of an index, best first. */
enum symbol_origin {
	SYMBOL_ORIGIN_DWARF = 1,
	SYMBOL_ORIGIN_SYMTAB = 2,
	SYMBOL_ORIGIN_DYNSYM = 4,
	SYMBOL_ORIGIN_GOPCLNTAB = 8,
	SYMBOL_ORIGIN_MINIDEBUG = 16, /* .gnu_debugdata */
	SYMBOL_ORIGIN_KALLSYMS = 32,
	SYMBOL_ORIGIN_PARTIAL = 64, /* of DWARF: a file that it names (dwz, split DWARF) was not found */
};

#endif
