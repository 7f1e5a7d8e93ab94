/* SPDX-License-Identifier: Apache-2.0 */
/* Collects what the readers of symbols, DWARF and pclntab find about one module and writes the
 * image of symbol_image.h. Readers add in any order; the builder sorts, resolves overlaps and
 * bounds everything. Every add returns 0, -ENOMEM, or -E2BIG over a bound of this header. Not
 * thread-safe. */
#ifndef PROFD_SYMBOLIZE_INDEX_BUILDER_H
#define PROFD_SYMBOLIZE_INDEX_BUILDER_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "symbolize/string_table.h"
#include "symbolize/symbol_image.h"

#define INDEX_SYMBOLS_MAX 16000000u
#define INDEX_NODES_MAX	  32000000u
#define INDEX_RANGES_MAX  64000000u
#define INDEX_ROWS_MAX	  64000000u
#define INDEX_DEPTH_MAX	  64u /* frames of one inline chain; = SYMBOL_INLINE_MAX */

struct index_interval {
	uint64_t start;
	uint64_t end;
	uint32_t value;
	uint32_t rank; /* of two with one start the higher wins; equal: the later */
};

struct index_sequence {
	uint32_t start;
	uint32_t end;
	size_t first_row;
	size_t row_count;
};

struct index_row {
	uint32_t start;
	struct symbol_image_line line;
};

VEC_DEFINE(index_intervals, struct index_interval);
VEC_DEFINE(index_nodes, struct symbol_image_node);
VEC_DEFINE(index_depths, uint8_t);
VEC_DEFINE(index_functions, struct symbol_image_function);
VEC_DEFINE(index_sequences, struct index_sequence);
VEC_DEFINE(index_rows, struct index_row);
VEC_DEFINE(index_extents, struct symbol_image_extent);

/* Zero-initialized is a valid empty builder. Fields are private but for @strings. */
struct index_builder {
	struct string_table strings;
	unsigned origins; /* enum symbol_origin bits, set by the readers */
	/* File offsets whose names come from pclntab alone: ELF symbols inside are ignored. */
	uint64_t exclusive_start, exclusive_end;
	struct index_extents_vec extents;
	struct index_intervals_vec symbols;
	struct index_intervals_vec former; /* symbols that count in gaps */
	struct index_intervals_vec ranges;
	struct index_nodes_vec nodes;
	struct index_depths_vec depths; /* frames up to each node, itself included */
	struct index_functions_vec functions;
	struct u64map function_ids; /* hash -> id, only a cache */
	struct index_sequences_vec sequences;
	struct index_rows_vec rows;
	size_t sequence_first_row; /* of the sequence being written */
};

void index_builder_deinit(struct index_builder *builder);
static inline void cleanup_index_builder_fn(struct index_builder *builder)
{
	index_builder_deinit(builder);
}
#define cleanup_index_builder __attribute__((__cleanup__(cleanup_index_builder_fn)))

int index_builder_string(struct index_builder *builder, const char *text, size_t len,
			 uint32_t *ret) must_use;
/* Rank of a symbol called @name: the order of choose_best_symbol() in the kernel's
 * tools/perf/util/symbol.c as one number. Pure. */
#define INDEX_RANK_SIZED    (1u << 31)
#define INDEX_RANK_FUNCTION (1u << 30) /* not merely a label */
#define INDEX_RANK_STRONG   (1u << 29) /* not weak */
#define INDEX_RANK_GLOBAL   (1u << 28)
uint32_t index_builder_rank(uint32_t flags, const char *name, size_t len);
/* A symbol over file offsets [@start, @end), @name a string of the builder. Of overlapping ones the
 * innermost start wins, of those with one start the higher @rank. */
int index_builder_symbol(struct index_builder *builder, uint64_t start, uint64_t end, uint32_t name,
			 uint32_t rank) must_use;
/* A symbol of an earlier index of the same code, ascending and disjoint: its name holds where
 * nothing else has one. */
int index_builder_former(struct index_builder *builder, uint64_t start, uint64_t end, uint32_t name)
	must_use;
/* Adds functions from a source that knows no names, ascending and before the symbols. An overlap
 * with the last one is ignored. These functions also say where a symbol without a size ends. */
int index_builder_extent(struct index_builder *builder, uint64_t start, uint64_t end) must_use;
/* The first beginning or end of such a function in (@start, @end), @end if there is none. */
uint64_t index_builder_extent_edge(const struct index_builder *builder, uint64_t start,
				   uint64_t end);
/* Number of the function (@name, @file strings), reused if it was added before. */
int index_builder_function(struct index_builder *builder, uint32_t name, uint32_t file,
			   uint32_t start_line, uint32_t *ret) must_use;
/* A node below @parent (SYMBOL_IMAGE_NONE: a function in its own right). Below INDEX_DEPTH_MAX
 * levels no node is made and @ret is the parent: its addresses count as the parent's. */
int index_builder_node(struct index_builder *builder, const struct symbol_image_node *node,
		       uint32_t *ret) must_use;
/* Addresses of a node; a node's ranges are added after those of its parent. */
int index_builder_range(struct index_builder *builder, uint32_t node, uint64_t start,
			uint64_t end) must_use;
/* Line rows come in sequences of ascending file offsets: rows, then the end. A row that goes back
 * is dropped, one at the address of the last replaces it. */
int index_builder_row(struct index_builder *builder, uint64_t start, uint32_t file,
		      uint32_t line) must_use;
int index_builder_sequence_end(struct index_builder *builder, uint64_t end) must_use;
void index_builder_sequence_drop(struct index_builder *builder);

/* Writes the image; @ret is owned by the caller (free). The builder is empty afterwards. */
int index_builder_finish(struct index_builder *builder, void **ret, size_t *ret_bytes) must_use;

#endif
