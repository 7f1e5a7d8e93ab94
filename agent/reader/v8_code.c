// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/v8_code.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES	4096u
#define CODE_BYTES_MAX	(256u << 10) /* of code that is searched for its begin */
#define TABLE_BYTES_MAX (64u << 10)
#define STREAM_CODE	8u  /* in an InstructionStream: its Code */
#define BYTECODES_MAX	(256u << 10)
#define INLINED_BYTES	16u /* of an inlining position: a position word and a function's index */
/* In deoptimization data the first exit is so far behind the word of the inlining positions. */
#define DEOPT_FIRST    4u
#define DEOPT_WORDS    3u /* of an exit */
#define EXITS_MAX      (1u << 20)
#define EXITS_READ     128u /* at once */
#define WRAPPER_SHARED	8u  /* in a SharedFunctionInfoWrapper: what it wraps */
#define WEAK_BIT	2u  /* of a tagged pointer */

/* The code object is at @object, or (no streams) begins there: does @pc lie in it? */
static bool holds(const struct v8_heap *heap, uint64_t object, uint64_t pc, struct v8_code *ret)
{
	const struct script_v8 *v8 = heap->v8;

	ret->object = object;
	ret->start = object - 1 + v8->code_start;
	if (v8->type_stream && v8_read(heap, object, v8->code_start, &ret->start, 8) < 0)
		return false;
	return v8_type(heap, object) == v8->type_code &&
	       v8_read(heap, object, v8->code_bytes, &ret->bytes, sizeof(ret->bytes)) == 0 &&
	       v8_read(heap, object, v8->code_flags, &ret->flags, sizeof(ret->flags)) == 0 &&
	       pc > ret->start && pc - ret->start <= ret->bytes;
}

/* @word is the first one of what may be an object at @address. */
static bool is_code(const struct v8_heap *heap, uint64_t address, uint64_t word, uint64_t pc,
		    uint64_t *map, struct v8_code *ret)
{
	const struct script_v8 *v8 = heap->v8;
	uint64_t object = address + 1;
	uint16_t type;

	if (!v8_is_tagged(word) || (*map && word != *map))
		return false;
	if (v8_read(heap, word, v8->map_type, &type, sizeof(type)) < 0 ||
	    type != (v8->type_stream ? v8->type_stream : v8->type_code))
		return false;
	*map = word;
	if (v8->type_stream && v8_read(heap, object, STREAM_CODE, &object, sizeof(object)) < 0)
		return false;
	return holds(heap, object, pc, ret);
}

/* Looks back from @pc, page by page. Below the first page of its mapping there may be nothing. */
int v8_code_find(const struct v8_heap *heap, uint64_t pc, struct v8_code *ret)
{
	uint64_t words[PAGE_BYTES / 8], map = 0, end = pc & ~7ull;
	uint64_t least = end > CODE_BYTES_MAX ? end - CODE_BYTES_MAX : PAGE_BYTES;

	while (end > least) {
		uint64_t begin = (end - 1) & ~(uint64_t)(PAGE_BYTES - 1);
		int rc = target_read(heap->target, begin, words, end - begin);

		if (rc < 0)
			return rc == -EFAULT ? -ENODATA : rc;
		for (size_t i = (end - begin) / 8; i-- > 0;)
			if (is_code(heap, begin + 8 * i, words[i], pc, &map, ret))
				return 0;
		end = begin;
	}
	return -ENODATA;
}

int v8_bytes(const struct v8_heap *heap, uint64_t object, uint32_t offset, uint8_t *ret,
	     uint32_t max)
{
	const struct script_v8 *v8 = heap->v8;
	uint64_t table, word;
	uint32_t len;

	if (v8_read(heap, object, offset, &table, sizeof(table)) < 0 ||
	    v8_read(heap, table, v8->array_length, &word, sizeof(word)) < 0 ||
	    !v8_small(word, &len) || len > max ||
	    v8_read(heap, table, v8->array_data, ret, len) < 0)
		return -ENODATA;
	return (int)len;
}

/* Code's words: deoptimization data, and the table of source positions behind them. Before there
 * were wrappers a word of relocation precedes them. */
static uint32_t deopt_at(const struct script_v8 *v8)
{
	return v8->bytecode_wrapper ? 8 : 16;
}

static int element(const struct v8_heap *heap, uint64_t array, uint32_t index, uint64_t *ret)
{
	uint64_t word;
	uint32_t count;

	if (v8_read(heap, array, heap->v8->array_length, &word, sizeof(word)) < 0 ||
	    !v8_small(word, &count) || index >= count ||
	    v8_read(heap, array, heap->v8->array_data + 8 * index, ret, sizeof(*ret)) < 0)
		return -ENODATA;
	return 0;
}

/* Inlined function number @inlined of @code: itself, and where it was inlined. */
static int inlined_function(const struct v8_heap *heap, const struct v8_code *code,
			    uint32_t inlined, uint64_t *shared, struct v8_position *where)
{
	const struct script_v8 *v8 = heap->v8;
	uint64_t data, table, literals, entry[INLINED_BYTES / 8];
	int rc;

	if (!v8->deopt_inlined ||
	    v8_read(heap, code->object, deopt_at(v8), &data, sizeof(data)) < 0)
		return -ENODATA;
	rc = element(heap, data, v8->deopt_inlined, &table);
	if (rc == 0)
		rc = element(heap, data, v8->deopt_literals, &literals);
	if (rc == 0 && v8_read(heap, table, v8->array_data + INLINED_BYTES * inlined, entry,
			       sizeof(entry)) < 0)
		rc = -ENODATA;
	if (rc == 0)
		rc = element(heap, literals, (uint32_t)entry[1], shared);
	if (rc < 0)
		return rc;
	*shared &= ~(uint64_t)WEAK_BIT;
	return v8_type(heap, *shared) == v8->type_shared ? v8_position_of(entry[0], where)
							 : -ENODATA;
}

/* V8's src/objects/code-kind.h: the kinds of optimized code follow that of baseline code. */
enum feed_tier v8_code_tier(const struct v8_heap *heap, const struct v8_code *code)
{
	uint32_t kind = code->flags & heap->v8->code_kind_mask;

	if (kind < heap->v8->code_kind_baseline)
		return FEED_TIER_UNKNOWN;
	return kind == heap->v8->code_kind_baseline ? FEED_TIER_BASELINE : FEED_TIER_OPTIMIZED;
}

bool v8_code_is_of(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		   uint64_t bytecode, uint64_t code_bytecode)
{
	const struct script_v8 *v8 = heap->v8;
	uint32_t index = v8->deopt_shared ? v8->deopt_shared : v8->deopt_shared_wrapper;
	enum feed_tier tier = v8_code_tier(heap, code);
	uint64_t data, found;

	if (tier == FEED_TIER_BASELINE)
		return bytecode && bytecode == code_bytecode;
	if (tier != FEED_TIER_OPTIMIZED || !index ||
	    v8_read(heap, code->object, deopt_at(v8), &data, sizeof(data)) < 0 ||
	    element(heap, data, index, &found) < 0)
		return false;
	if (!v8->deopt_shared && v8_read(heap, found, WRAPPER_SHARED, &found, sizeof(found)) < 0)
		return false;
	return found == shared;
}

/* A function inlined in code, and the number of its inlining; of the outermost one that is
 * V8_NOT_INLINED. */
struct chain {
	struct v8_place places[V8_PLACES_MAX]; /* innermost first */
	uint32_t numbers[V8_PLACES_MAX];
	unsigned count;
};

static int follow_inlined(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
			  struct v8_position position, struct chain *ret)
{
	ret->count = 0;
	while (ret->count < V8_PLACES_MAX) {
		struct v8_place *place = &ret->places[ret->count];

		ret->numbers[ret->count++] = position.inlined;
		*place = (struct v8_place){ shared, position.offset };
		if (position.inlined == V8_NOT_INLINED)
			return 0;
		if (inlined_function(heap, code, position.inlined, &place->shared, &position) < 0)
			break;
	}
	return -ENODATA;
}

/* The number of outer functions that both chains have. */
static unsigned common_count(const struct chain *a, const struct chain *b)
{
	unsigned count = 0;

	while (count < a->count && count < b->count &&
	       a->numbers[a->count - 1 - count] == b->numbers[b->count - 1 - count])
		count++;
	return count;
}

/* A pc between the places that are recorded. With a place on one side alone, that side's functions
 * might be inlined elsewhere. */
static int places_between(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
			  uint32_t offset, const struct v8_positions_sides *sides,
			  struct chain *ret)
{
	struct chain before = { .count = 0 }, after = { .count = 0 };
	bool has_before = sides->before_at >= 0 &&
			  follow_inlined(heap, code, shared, sides->before, &before) == 0;
	bool has_after = sides->after_at >= 0 &&
			 follow_inlined(heap, code, shared, sides->after, &after) == 0;
	unsigned common = has_before && has_after ? common_count(&before, &after) : 1;

	if (!has_before && !has_after)
		return -ENODATA;
	*ret = has_before && (!has_after || offset - sides->before_at < sides->after_at - offset) ?
		       before :
		       after;
	ret->count -= common;
	memmove(ret->places, ret->places + ret->count, common * sizeof(*ret->places));
	ret->count = common;
	return 0;
}

static int find_innermost(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
			  uint32_t offset, const struct v8_positions_sides *sides,
			  struct chain *ret, bool *ret_is_approximate)
{
	bool is_exact = sides->before_at >= 0 &&
			(sides->is_whole || sides->before_at == (int64_t)offset);

	*ret_is_approximate = !is_exact;
	return is_exact ? follow_inlined(heap, code, shared, sides->before, ret)
			: places_between(heap, code, shared, offset, sides, ret);
}

int v8_code_places(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		   uint64_t pc, bool is_return, enum v8_positions_format format,
		   struct v8_place ret[V8_PLACES_MAX], bool *ret_is_approximate)
{
	uint32_t offset = (uint32_t)(pc - code->start);
	struct v8_positions_sides sides;
	uint8_t table[TABLE_BYTES_MAX];
	struct v8_position position;
	struct chain chain;
	int rc = v8_bytes(heap, code->object, deopt_at(heap->v8) + 8, table, sizeof(table));

	if (rc < 0)
		return -ENODATA;
	*ret_is_approximate = false;
	if (is_return) { /* the call is before the return address */
		rc = v8_positions_find(format, table, (size_t)rc, (int64_t)offset - 1, &position);
		if (rc == 0)
			rc = follow_inlined(heap, code, shared, position, &chain);
	} else {
		rc = v8_positions_around(format, table, (size_t)rc, offset, &sides);
		if (rc == 0)
			rc = find_innermost(heap, code, shared, offset, &sides, &chain,
					    ret_is_approximate);
	}
	if (rc < 0)
		return -ENODATA;
	memcpy(ret, chain.places, chain.count * sizeof(*ret));
	return (int)chain.count;
}

/* ---- calls in Maglev's code ------------------------------------------------------------------ */

bool v8_code_is_maglev(const struct v8_heap *heap, const struct v8_code *code)
{
	return (code->flags & heap->v8->code_kind_mask) == heap->v8->code_kind_baseline + 1u;
}

/* The calls on both sides of @offset. Their table follows the code. */
static int find_safepoints(const struct v8_heap *heap, const struct v8_code *code, uint32_t offset,
			   struct v8_safepoint_sides *ret)
{
	cleanup_free uint8_t *table = malloc(TABLE_BYTES_MAX);
	uint64_t va = code->start + code->bytes;
	uint8_t head[V8_SAFEPOINTS_HEAD];
	size_t len;

	if (!table)
		return -ENOMEM;
	if (target_read(heap->target, va, head, sizeof(head)) < 0)
		return -ENODATA;
	len = v8_safepoints_len(head);
	if (!len || len > TABLE_BYTES_MAX || target_read(heap->target, va, table, len) < 0 ||
	    v8_safepoints_around(table, len, offset, ret) < 0)
		return -ENODATA;
	return 0;
}

/* The frames of the translation at @index of the data's table. */
static int load_frames(const struct v8_heap *heap, uint64_t data, uint32_t index,
		       struct v8_frame ret[V8_PLACES_MAX])
{
	cleanup_free uint8_t *table = malloc(TABLE_BYTES_MAX);
	int rc;

	if (!table)
		return -ENOMEM;
	rc = v8_bytes(heap, data, heap->v8->array_data, table, TABLE_BYTES_MAX);
	return rc < 0 ? rc
		      : v8_translation_frames(heap->v8->operations, table, (size_t)rc, index, ret,
					      V8_PLACES_MAX);
}

/* The words of an exit in the deoptimization data. */
struct exit {
	uint64_t bytecode, translation, offset;
};

static int read_exits(const struct v8_heap *heap, uint64_t data, uint32_t first, struct exit *ret,
		      uint32_t count)
{
	const struct script_v8 *v8 = heap->v8;
	uint32_t at = v8->deopt_inlined + DEOPT_FIRST + DEOPT_WORDS * first;

	return v8_read(heap, data, v8->array_data + 8 * at, ret, count * sizeof(*ret));
}

static uint32_t count_exits(const struct v8_heap *heap, uint64_t data)
{
	uint32_t head = heap->v8->deopt_inlined + DEOPT_FIRST, count;
	uint64_t word;

	if (v8_read(heap, data, heap->v8->array_length, &word, sizeof(word)) < 0 ||
	    !v8_small(word, &count) || count < head)
		return 0;
	count = (count - head) / DEOPT_WORDS;
	return count < EXITS_MAX ? count : EXITS_MAX;
}

/* Where the translation of the exit at @offset of the code begins. V8 replaces the return addresses
 * of code that it gives up by such exits. */
static int find_exit(const struct v8_heap *heap, uint64_t data, uint32_t offset, uint32_t *ret)
{
	uint32_t count = count_exits(heap, data), found;
	struct exit exits[EXITS_READ];

	for (uint32_t at = 0; at < count; at += EXITS_READ) {
		uint32_t n = count - at < EXITS_READ ? count - at : EXITS_READ;

		if (read_exits(heap, data, at, exits, n) < 0)
			return -ENODATA;
		for (uint32_t i = 0; i < n; i++)
			if (v8_small(exits[i].offset, &found) && found == offset)
				return v8_small(exits[i].translation, ret) ? 0 : -ENODATA;
	}
	return -ENODATA;
}

/* Where the translation of a call begins. */
static int find_translation(const struct v8_heap *heap, uint64_t data,
			    const struct v8_safepoint *safepoint, uint32_t *ret)
{
	struct exit exit;
	uint32_t offset;

	if (safepoint->exit >= count_exits(heap, data) ||
	    read_exits(heap, data, safepoint->exit, &exit, 1) < 0 ||
	    !v8_small(exit.offset, &offset) || offset != safepoint->exit_offset ||
	    !v8_small(exit.translation, ret))
		return -ENODATA;
	return 0;
}

static int load_data(const struct v8_heap *heap, const struct v8_code *code, uint64_t *ret)
{
	if (!heap->v8->deopt_inlined || !heap->v8->operations)
		return -ENODATA;
	return v8_read(heap, code->object, deopt_at(heap->v8), ret, sizeof(*ret)) < 0 ? -ENODATA : 0;
}

/* The functions of the translation at @index, innermost first. Returns their number. */
static int load_calls(const struct v8_heap *heap, uint64_t data, uint32_t index, uint64_t shared,
		      struct v8_call ret[V8_PLACES_MAX])
{
	const struct script_v8 *v8 = heap->v8;
	struct v8_frame frames[V8_PLACES_MAX];
	uint64_t literals;
	int count;

	if (element(heap, data, v8->deopt_literals, &literals) < 0)
		return -ENODATA;
	count = load_frames(heap, data, index, frames);
	for (int i = 0; i < count; i++) {
		struct v8_call *call = &ret[count - 1 - i];

		call->bytecode = frames[i].bytecode;
		if (element(heap, literals, frames[i].literal, &call->shared) < 0)
			return -ENODATA;
		call->shared &= ~(uint64_t)WEAK_BIT;
		if (v8_type(heap, call->shared) != v8->type_shared)
			return -ENODATA;
	}
	return count > 0 && ret[count - 1].shared == shared ? count : -ENODATA;
}

static int load_safepoint(const struct v8_heap *heap, uint64_t data, uint64_t shared,
			  const struct v8_safepoint *safepoint, struct v8_call ret[V8_PLACES_MAX])
{
	uint32_t index;

	return find_translation(heap, data, safepoint, &index) < 0 ?
		       -ENODATA :
		       load_calls(heap, data, index, shared, ret);
}

int v8_code_exit(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		 uint64_t pc, struct v8_call ret[V8_PLACES_MAX])
{
	uint64_t data;
	uint32_t index;

	if (load_data(heap, code, &data) < 0 ||
	    find_exit(heap, data, (uint32_t)(pc - code->start), &index) < 0)
		return -ENODATA;
	return load_calls(heap, data, index, shared, ret);
}

/* The number of outer functions that both calls have: the callers among them at the same place. */
static int common_calls(const struct v8_call *a, int a_count, const struct v8_call *b, int b_count)
{
	int count = 0;

	while (count < a_count && count < b_count &&
	       a[a_count - 1 - count].shared == b[b_count - 1 - count].shared) {
		count++;
		if (a[a_count - count].bytecode != b[b_count - count].bytecode)
			break;
	}
	return count;
}

/* A pc between calls, as places_between(). */
static int calls_between(const struct v8_heap *heap, uint64_t data, uint64_t shared,
			 uint32_t offset, const struct v8_safepoint_sides *sides,
			 struct v8_call ret[V8_PLACES_MAX])
{
	struct v8_call before[V8_PLACES_MAX], after[V8_PLACES_MAX];
	int befores = 0, afters = 0, common = 1;

	if (sides->has_before)
		befores = load_safepoint(heap, data, shared, &sides->before, before);
	if (sides->has_after)
		afters = load_safepoint(heap, data, shared, &sides->after, after);
	if (befores <= 0 && afters <= 0)
		return -ENODATA;
	if (befores > 0 && afters > 0)
		common = common_calls(before, befores, after, afters);
	if (befores > 0 &&
	    (afters <= 0 || offset - sides->before.offset < sides->after.offset - offset))
		memcpy(ret, before + befores - common, (size_t)common * sizeof(*ret));
	else
		memcpy(ret, after + afters - common, (size_t)common * sizeof(*ret));
	return common;
}

int v8_code_calls(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		  uint64_t pc, bool is_return, struct v8_call ret[V8_PLACES_MAX])
{
	uint32_t offset = (uint32_t)(pc - code->start);
	struct v8_safepoint_sides sides;
	uint64_t data;

	if (load_data(heap, code, &data) < 0 || find_safepoints(heap, code, offset, &sides) < 0)
		return -ENODATA;
	if (!is_return)
		return calls_between(heap, data, shared, offset, &sides, ret);
	return sides.has_before && sides.before.offset == offset ?
		       load_safepoint(heap, data, shared, &sides.before, ret) :
		       -ENODATA;
}

/* ---- baseline code --------------------------------------------------------------------------- */

struct baseline_memory {
	uint8_t table[TABLE_BYTES_MAX];
	uint8_t code[BYTECODES_MAX];
	uint8_t sizes[V8_BYTECODE_ROWS * (UINT8_MAX + 1)];
};

static int read_bytecodes(const struct v8_heap *heap, uint64_t bytecode, uint8_t ret[BYTECODES_MAX],
			  size_t *ret_len)
{
	const struct script_v8 *v8 = heap->v8;
	uint64_t word;
	uint32_t len;

	if (v8_read(heap, bytecode, v8->bytecode_length, &word, sizeof(word)) < 0 ||
	    !v8_small(word, &len) || len > BYTECODES_MAX ||
	    v8_read(heap, bytecode, v8->bytecode_data, ret, len) < 0)
		return -ENODATA;
	*ret_len = len;
	return 0;
}

int v8_code_bytecode(const struct v8_heap *heap, const struct v8_code *code, uint64_t bytecode,
		     uint64_t pc, bool is_return, int32_t *ret)
{
	cleanup_free struct baseline_memory *memory = calloc(1, sizeof(*memory));
	const struct script_v8 *v8 = heap->v8;
	uint32_t offset = (uint32_t)(pc - code->start);
	struct v8_baseline baseline;
	int rc;

	if (!memory)
		return -ENOMEM;
	baseline = (struct v8_baseline){ .table = memory->table,
					 .code = memory->code,
					 .sizes = { memory->sizes, v8->bytecodes } };
	if (!v8->bytecodes || v8->bytecodes > UINT8_MAX + 1 ||
	    target_read(heap->target, v8->bytecode_sizes, memory->sizes,
			V8_BYTECODE_ROWS * v8->bytecodes) < 0 ||
	    read_bytecodes(heap, bytecode, memory->code, &baseline.code_len) < 0)
		return -ENODATA;
	rc = v8_bytes(heap, code->object, deopt_at(v8) + 8, memory->table, sizeof(memory->table));
	if (rc < 0)
		return -ENODATA;
	baseline.table_len = (size_t)rc;
	/* A pc is before the call that a return address is behind. */
	return v8_baseline_find(&baseline, offset + !is_return, ret) < 0 ? -ENODATA : 0;
}
