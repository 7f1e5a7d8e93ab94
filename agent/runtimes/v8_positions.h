/* SPDX-License-Identifier: Apache-2.0 */
/* V8's source position tables: which character of a script's source an offset in code belongs to,
 * and through which inlined functions. The tables of baseline code: which bytecode an offset in it
 * belongs to. Pure; every value is hostile. Source: V8's src/codegen/source-position-table.cc,
 * src/codegen/source-position.h, src/baseline/bytecode-offset-iterator.h. */
#ifndef PROFD_RUNTIMES_V8_POSITIONS_H
#define PROFD_RUNTIMES_V8_POSITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

/* How the entries of a table are written. */
enum v8_positions_format {
	V8_POSITIONS_ZIGZAG = 1,  /* to V8 14.1 */
	V8_POSITIONS_SHIFTED = 2, /* V8 14.6 */
};

#define V8_NOT_INLINED UINT32_MAX
#define V8_ENTRY       (-1) /* the offset of a function's entry, in front of its first bytecode */

struct v8_position {
	uint32_t offset;  /* characters from the begin of the source */
	uint32_t inlined; /* index of the inlining position, V8_NOT_INLINED = none */
};

/* The format of a BytecodeArray's table, which begins with the entry of the function itself. 0: it
 * has none that is known. */
enum v8_positions_format v8_positions_format_of(const uint8_t *table, size_t len);
/* The position of the last entry at or before @offset in the table of @len bytes. -ENODATA: no
 * entry is there, or it has no position. -EINVAL: the table is damaged before that. */
int v8_positions_find(enum v8_positions_format format, const uint8_t *table, size_t len,
		      int64_t offset, struct v8_position *ret) must_use;
/* Takes a position word apart. -ENODATA: it says none. */
int v8_position_of(uint64_t word, struct v8_position *ret) must_use;

/* The entries on both sides of an offset; those without a position are left out. */
struct v8_positions_sides {
	int64_t before_at, after_at; /* their offsets; -1 = there is none on that side */
	struct v8_position before, after;
	bool is_whole; /* the table has every instruction, not calls alone */
};

/* Finds the last entry at or before @offset and the first one behind it. -EINVAL: the table is
 * damaged before that. */
int v8_positions_around(enum v8_positions_format format, const uint8_t *table, size_t len,
			uint32_t offset, struct v8_positions_sides *ret) must_use;

/* A call in Maglev's code, from the table of safepoints behind the code. */
struct v8_safepoint {
	uint32_t offset;      /* where it returns to, in the code */
	uint32_t exit;	      /* index of its exit in the deoptimization data */
	uint32_t exit_offset; /* of the exit in the code */
};
#define V8_SAFEPOINTS_HEAD 16u /* bytes; v8_safepoints_len() says how many follow */

/* The calls on both sides of an offset; those without an exit are left out. */
struct v8_safepoint_sides {
	bool has_before, has_after;
	struct v8_safepoint before, after;
};

/* The bytes of the whole table, 0 if its head is damaged. */
size_t v8_safepoints_len(const uint8_t head[V8_SAFEPOINTS_HEAD]);
/* Finds the last call that returns to @offset or before it, and the first one behind. -EINVAL: the
 * table is damaged. Source: V8's src/codegen/maglev-safepoint-table.h, as of V8 12.4, 13.6 and
 * 14.6. */
int v8_safepoints_around(const uint8_t *table, size_t len, uint32_t offset,
			 struct v8_safepoint_sides *ret) must_use;

/* How long each bytecode is: rows of @count, for operands of one, two and four bytes. */
#define V8_BYTECODE_ROWS 3u
struct v8_bytecode_sizes {
	const uint8_t *bytes;
	uint32_t count;
};

/* A function's bytecodes, and the table of its baseline code. */
struct v8_baseline {
	const uint8_t *table, *code;
	size_t table_len, code_len;
	struct v8_bytecode_sizes sizes;
};

/* The offset of the bytecode whose baseline code a call before the return address at @offset is in;
 * V8_ENTRY in front of the first one. -ENODATA: @offset is behind the last. -EINVAL: the table and
 * the bytecodes do not fit together. */
int v8_baseline_find(const struct v8_baseline *baseline, uint32_t offset, int32_t *ret) must_use;

#endif
