// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/v8_positions.h"

#include <errno.h>
#include <string.h>

/* A position word: bit 0 is set for places outside of JavaScript, then 30 bits of offset + 1, then
 * 16 of inlining index + 1. */
#define POSITION_SHIFT 1
#define POSITION_MASK  ((1ull << 30) - 1)
#define INLINED_SHIFT  31
#define INLINED_MASK   0xffffu
#define OFFSET_MAX     (1 << 30)

#define FIRST_BYTE_ZIGZAG  1u /* the step, or -step - 1 where no statement begins */
#define FIRST_BYTE_SHIFTED 2u /* the step above two flags */
#define STEP_SHIFT	   2

/* Prefixes of bytecodes with wider operands: Wide and ExtraWide, and both with a breakpoint. */
#define PREFIXES_MAX 4u

#define SAFEPOINTS_MAX 65536u

/* A number of at most 64 bits: seven bits a byte, the lowest ones first. */
static int take_number(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
	uint64_t bits = 0;

	for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
		uint8_t byte = *(*at)++;

		bits |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = bits;
			return 0;
		}
	}
	return -EINVAL;
}

static int64_t signed_of(uint64_t zigzag)
{
	return (int64_t)(zigzag >> 1 ^ (0 - (zigzag & 1)));
}

static int64_t step_of(uint64_t number, enum v8_positions_format format)
{
	int64_t step = format == V8_POSITIONS_ZIGZAG ? signed_of(number) : (int64_t)(number >> STEP_SHIFT);

	return step < 0 ? -(step + 1) : step;
}

enum v8_positions_format v8_positions_format_of(const uint8_t *table, size_t len)
{
	if (len && table[0] == FIRST_BYTE_ZIGZAG)
		return V8_POSITIONS_ZIGZAG;
	return len && table[0] == FIRST_BYTE_SHIFTED ? V8_POSITIONS_SHIFTED : 0;
}

int v8_position_of(uint64_t word, struct v8_position *ret)
{
	uint64_t offset = word & 1 ? 0 : word >> POSITION_SHIFT & POSITION_MASK;
	uint32_t inlined = (uint32_t)(word >> INLINED_SHIFT) & INLINED_MASK;

	if (!offset)
		return -ENODATA;
	ret->offset = (uint32_t)offset - 1;
	ret->inlined = inlined ? inlined - 1 : V8_NOT_INLINED;
	return 0;
}

struct walk {
	const uint8_t *at, *end;
	enum v8_positions_format format;
	int64_t code;	   /* of the entry at hand */
	uint64_t position; /* likewise */
};

static struct walk walk_of(enum v8_positions_format format, const uint8_t *table, size_t len)
{
	return (struct walk){ table, table + len, format, V8_ENTRY, 0 };
}

/* Takes the next entry. 1: there is none. -EINVAL: the table is damaged. */
static int take_entry(struct walk *walk)
{
	uint64_t number, move;
	int64_t step;

	if (walk->format != V8_POSITIONS_ZIGZAG && walk->format != V8_POSITIONS_SHIFTED)
		return -EINVAL;
	if (walk->at >= walk->end)
		return 1;
	if (take_number(&walk->at, walk->end, &number) < 0 ||
	    take_number(&walk->at, walk->end, &move) < 0)
		return -EINVAL;
	step = step_of(number, walk->format);
	if (step > OFFSET_MAX - walk->code)
		return -EINVAL;
	walk->code += step;
	walk->position += (uint64_t)signed_of(move);
	return 0;
}

int v8_positions_find(enum v8_positions_format format, const uint8_t *table, size_t len,
		      int64_t offset, struct v8_position *ret)
{
	struct walk walk = walk_of(format, table, len);
	uint64_t found = 0; /* 0 is no position */
	int rc;

	while ((rc = take_entry(&walk)) == 0 && walk.code <= offset)
		found = walk.position;
	return rc < 0 ? rc : v8_position_of(found, ret);
}

int v8_positions_around(enum v8_positions_format format, const uint8_t *table, size_t len,
			uint32_t offset, struct v8_positions_sides *ret)
{
	struct v8_positions_sides sides = { .before_at = -1, .after_at = -1 };
	struct walk walk = walk_of(format, table, len);
	int rc;

	while ((rc = take_entry(&walk)) == 0 && sides.after_at < 0) {
		bool is_behind = walk.code > (int64_t)offset;

		/* A compiler that records calls alone has no entry for its first instruction. */
		sides.is_whole |= walk.code == 0;
		if (v8_position_of(walk.position, is_behind ? &sides.after : &sides.before) == 0)
			*(is_behind ? &sides.after_at : &sides.before_at) = walk.code;
	}
	if (rc < 0)
		return rc;
	*ret = sides;
	return 0;
}

/* The head of a table of safepoints: slots of the frame, number of entries, sizes of their parts,
 * slots. An entry has its offset, the index of its exit and the exit's offset, each one more than
 * it is but the first, registers, and a byte for slots. */
struct safepoints {
	uint32_t count, offset_len, index_len, entry_len;
};

static bool take_head(const uint8_t *head, struct safepoints *ret)
{
	uint32_t words[V8_SAFEPOINTS_HEAD / 4];

	memcpy(words, head, sizeof(words));
	ret->count = words[1];
	ret->offset_len = words[2] >> 4 & 7;
	ret->index_len = words[2] >> 7 & 7;
	ret->entry_len = 2 * ret->offset_len + ret->index_len + (words[2] >> 1 & 7) + 1;
	/* Bit 0: there are exits. */
	return words[2] & 1 && ret->count <= SAFEPOINTS_MAX && ret->offset_len >= 1 &&
	       ret->offset_len <= 4 && ret->index_len >= 1 && ret->index_len <= 4;
}

static uint32_t number_of(const uint8_t *at, uint32_t len)
{
	uint32_t number = 0;

	memcpy(&number, at, len);
	return number;
}

size_t v8_safepoints_len(const uint8_t head[V8_SAFEPOINTS_HEAD])
{
	struct safepoints safepoints;

	return take_head(head, &safepoints) ?
		       V8_SAFEPOINTS_HEAD + (size_t)safepoints.count * safepoints.entry_len :
		       0;
}

static struct v8_safepoint safepoint_at(const uint8_t *at, const struct safepoints *safepoints)
{
	uint32_t offset_len = safepoints->offset_len, index_len = safepoints->index_len;

	return (struct v8_safepoint){
		.offset = number_of(at, offset_len),
		.exit = number_of(at + offset_len, index_len) - 1,
		.exit_offset = number_of(at + offset_len + index_len, offset_len) - 1,
	};
}

int v8_safepoints_around(const uint8_t *table, size_t len, uint32_t offset,
			 struct v8_safepoint_sides *ret)
{
	struct v8_safepoint_sides sides = { .has_before = false };
	struct safepoints safepoints;
	const uint8_t *at = table + V8_SAFEPOINTS_HEAD;

	if (len < V8_SAFEPOINTS_HEAD || !take_head(table, &safepoints) ||
	    len - V8_SAFEPOINTS_HEAD < (size_t)safepoints.count * safepoints.entry_len)
		return -EINVAL;
	for (uint32_t i = 0; i < safepoints.count; i++, at += safepoints.entry_len) {
		struct v8_safepoint found = safepoint_at(at, &safepoints);

		if (found.exit == UINT32_MAX || found.exit_offset == UINT32_MAX)
			continue;
		if (found.offset <= offset) {
			if (!sides.has_before || found.offset >= sides.before.offset)
				sides.before = found;
			sides.has_before = true;
		} else {
			if (!sides.has_after || found.offset < sides.after.offset)
				sides.after = found;
			sides.has_after = true;
		}
	}
	*ret = sides;
	return 0;
}

/* The length of the bytecode at @at with its prefix, 0 if it is none. */
static size_t bytecode_len(const struct v8_baseline *baseline, size_t at)
{
	const struct v8_bytecode_sizes *sizes = &baseline->sizes;
	size_t prefix = baseline->code[at] < PREFIXES_MAX, row = 0, len;

	if (prefix) {
		row = 1 + (baseline->code[at] & 1);
		at++;
	}
	if (at >= baseline->code_len || baseline->code[at] >= sizes->count)
		return 0;
	len = sizes->bytes[row * sizes->count + baseline->code[at]];
	return len ? prefix + len : 0;
}

int v8_baseline_find(const struct v8_baseline *baseline, uint32_t offset, int32_t *ret)
{
	const uint8_t *at = baseline->table, *end = at + baseline->table_len;
	uint64_t number, code_end = 0;
	int64_t bytecode = V8_ENTRY;
	size_t next = 0, len;

	if (at == end)
		return -ENODATA;
	for (;;) {
		if (take_number(&at, end, &number) < 0 || number > OFFSET_MAX)
			return -EINVAL;
		code_end += number;
		if (offset <= code_end)
			break;
		if (at == end)
			return -ENODATA;
		if (next >= baseline->code_len)
			return -EINVAL;
		len = bytecode_len(baseline, next);
		if (!len)
			return -EINVAL;
		bytecode = (int64_t)next;
		next += len;
	}
	*ret = (int32_t)bytecode;
	return 0;
}
