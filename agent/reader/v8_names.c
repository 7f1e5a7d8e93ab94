// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/v8_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/vec.h"
#include "agent/reader/v8_code.h"
#include "agent/reader/v8_text.h"
#include "agent/runtimes/unicode.h"

#define NAME_UNITS_MAX	       SCRIPT_NAME_MAX
#define FILE_UNITS_MAX	       4096u
#define TABLE_BYTES_MAX	       (256u << 10)
#define SOURCE_MAX	       (16u << 20) /* characters; a line in a longer source is not known */
#define CHUNK_UNITS	       16384u
#define SCRIPTS_KEPT	       8u  /* whose ends of lines are kept while an answer is made */
#define LOCALS_MAX	       75u /* more names of a scope are in a table of their own */
#define SCOPE_LOCALS_MAX       (1u << 20)
#define SCOPE_FIRST_WITH_BEGIN 5u /* the first variable, where two words precede it */
#define SLOTS_MAX	       8u /* of a ScopeInfo, behind its variables */
#define INTERPRETER_BYTECODE   8u /* in InterpreterData: its BytecodeArray */
#define CODE_BYTECODE_FIRST    8u /* in baseline Code: the same, or in the word that follows */
#define WAITS_MAX	       8u /* of a request, as long as WAIT_NS */
#define WAIT_NS		       NS_PER_MS
#define SCRIPT_LINE_OFFSET     8u /* behind a Script's name: lines before its source */

VEC_DEFINE(u32, uint32_t);

struct line_ends {
	uint64_t source; /* the string, 0 = none */
	uint32_t length;
	struct u32_vec ends;
};

struct function {
	uint64_t shared, name_or_scope, script; /* tagged */
	int64_t offset;	 /* of the bytecode, SCRIPT_POSITION_NONE = unknown */
	uint64_t pc;	 /* in generated code, 0 = there is none */
	bool is_return;	 /* where a call returns to */
	bool is_claim;	 /* the pc may be that of other code */
	uint32_t cookie, cookie_mask;
	char name[SCRIPT_NAME_MAX + 1];
	char file[SCRIPT_NAME_MAX + 1];
	uint32_t line, first_line;
};

struct names_reader {
	struct v8_heap heap;
	unsigned waits; /* for objects that were being moved */
	struct line_ends lines[SCRIPTS_KEPT];
	uint32_t next_lines; /* index of those that are given up next */
	uint16_t units[CHUNK_UNITS];
	uint8_t table[TABLE_BYTES_MAX];
};

/* The garbage collector may be moving what cannot be read: waits for it. False: that was done often
 * enough. */
static bool wait_for_move(struct names_reader *r)
{
	if (r->waits++ >= WAITS_MAX)
		return false;
	clock_sleep_ns(WAIT_NS);
	return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The string as UTF-8; a text over @units_max units, or over @size bytes, keeps its end. */
static void take_text(struct names_reader *r, uint64_t string, uint32_t units_max, char *ret,
		      size_t size)
{
	uint32_t length = v8_string_length(&r->heap, string), count = length;
	char text[3 * FILE_UNITS_MAX + 1];
	size_t len, skip;

	ret[0] = '\0';
	if (count > units_max)
		count = units_max;
	if (!count || v8_string_units(&r->heap, string, length - count, count, r->units) < 0)
		return;
	len = unicode_utf8(r->units, count, 2, text, sizeof(text));
	skip = len < size ? 0 : len - (size - 1);
	while (skip < len && (text[skip] & 0xc0) == 0x80)
		skip++;
	memcpy(ret, text + skip, len - skip + 1);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int add_ends(struct line_ends *lines, uint32_t from, const uint16_t *units, uint32_t count,
		    bool *was_return)
{
	for (uint32_t i = 0; i < count; i++) {
		bool is_feed = units[i] == '\n';

		/* CR LF is one end, which begins with the CR. */
		if (is_feed && *was_return)
			lines->ends.data[lines->ends.count - 1] = from + i;
		else if (is_feed || units[i] == '\r' || units[i] == 0x2028 || units[i] == 0x2029)
			if (u32_vec_push(&lines->ends, from + i) < 0)
				return -ENOMEM;
		*was_return = units[i] == '\r';
	}
	return 0;
}

/* The ends of the lines of @source, which are kept for later calls; NULL = they are not known. */
static const struct line_ends *load_lines(struct names_reader *r, uint64_t source)
{
	uint32_t length = v8_string_length(&r->heap, source);
	struct line_ends *lines;
	bool was_return = false;
	int rc = 0;

	if (!length || length > SOURCE_MAX)
		return NULL;
	for (lines = r->lines; lines < r->lines + SCRIPTS_KEPT; lines++)
		if (lines->source == source && lines->length == length)
			return lines;
	lines = &r->lines[r->next_lines];
	lines->source = 0;
	lines->ends.count = 0;
	for (uint32_t at = 0; rc == 0 && at < length; at += CHUNK_UNITS) {
		uint32_t n = length - at < CHUNK_UNITS ? length - at : CHUNK_UNITS;

		rc = v8_string_units(&r->heap, source, at, n, r->units);
		if (rc == 0)
			rc = add_ends(lines, at, r->units, n, &was_return);
	}
	if (rc < 0)
		return NULL;
	lines->source = source;
	lines->length = length;
	r->next_lines = (r->next_lines + 1) % SCRIPTS_KEPT;
	return lines;
}

static const struct line_ends *load_script(struct names_reader *r, uint64_t script)
{
	uint64_t source;

	return v8_read(&r->heap, script, r->heap.v8->script_source, &source, sizeof(source)) < 0 ?
		       NULL :
		       load_lines(r, source);
}

/* The line of character @position of a script, from 1 on; 0 = it is not known. */
static uint32_t line_of(struct names_reader *r, uint64_t script, uint32_t position)
{
	const struct line_ends *lines = load_script(r, script);
	uint64_t word;
	uint32_t before;
	size_t low = 0, high;

	while (!lines && wait_for_move(r))
		lines = load_script(r, script);
	if (!lines || position > lines->length ||
	    v8_read(&r->heap, script, r->heap.v8->script_name + SCRIPT_LINE_OFFSET, &word,
		    sizeof(word)) < 0 ||
	    !v8_small(word, &before))
		return 0;
	high = lines->ends.count;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (lines->ends.data[middle] < position)
			low = middle + 1;
		else
			high = middle;
	}
	return before + (uint32_t)low + 1;
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Takes the two words of a place apart. */
static void take_place(const struct control_script_place *place, struct function *ret)
{
	uint64_t pointer = script_word_pointer(place->a);
	uint64_t kind = pointer >> SCRIPT_HOTSPOT_FRAME_SHIFT;

	*ret = (struct function){ .offset = SCRIPT_POSITION_NONE };
	if (kind == SCRIPT_V8_INTERPRETED) {
		ret->shared = (pointer & SCRIPT_HOTSPOT_POINTER_MASK) + 1;
		ret->offset = script_word_position(place->b);
		ret->cookie = script_word_cookie(place->b);
		ret->cookie_mask = UINT32_MAX;
	} else {
		ret->shared =
			((place->b >> SCRIPT_V8_SHARED_SHIFT & SCRIPT_V8_SHARED_MASK) << 3) + 1;
		ret->pc = pointer & SCRIPT_HOTSPOT_POINTER_MASK;
		ret->is_return = kind != SCRIPT_V8_INNERMOST;
		ret->is_claim = kind == SCRIPT_V8_BUILTIN;
		ret->cookie = (uint32_t)place->b & SCRIPT_V8_COOKIE_MASK;
		ret->cookie_mask = SCRIPT_V8_COOKIE_MASK;
	}
}

/* Reads the function's words. False: it is no function. */
static bool read_words(struct names_reader *r, struct function *f)
{
	const struct script_v8 *v8 = r->heap.v8;

	return v8_type(&r->heap, f->shared) == v8->type_shared &&
	       v8_read(&r->heap, f->shared, v8->shared_name, &f->name_or_scope, 8) == 0 &&
	       v8_read(&r->heap, f->shared, v8->shared_script, &f->script, 8) == 0;
}

/* Is it the frame's function still? */
static bool is_same(struct names_reader *r, struct function *f)
{
	return read_words(r, f) &&
	       (script_v8_cookie(f->name_or_scope, f->script) & f->cookie_mask) == f->cookie;
}

static bool is_small(uint64_t word)
{
	return !(uint32_t)word;
}

/* The last two of the first small integers that follow each other are the function's begin and end:
 * the slot of the function's own name may precede them, something else follows. */
static bool find_begin(const uint64_t words[SLOTS_MAX], uint32_t *ret)
{
	uint32_t end;
	unsigned i = 0, run;

	for (; i < SLOTS_MAX; i += run + 1) {
		for (run = 0; i + run < SLOTS_MAX && is_small(words[i + run]);)
			run++;
		if (run >= 2)
			return run <= 3 && i + run < SLOTS_MAX &&
			       v8_small(words[i + run - 2], ret) &&
			       v8_small(words[i + run - 1], &end) && *ret < end;
	}
	return false;
}

/* A function's name and begin from its ScopeInfo: behind the variables the function's own name and
 * its slot, the name that the parser inferred, and the function's begin and end, each of them only
 * where it applies. From V8 12.9 on the begin is in front of the variables. */
static void take_scope(struct names_reader *r, struct function *f)
{
	const struct script_v8 *v8 = r->heap.v8;
	uint64_t words[SLOTS_MAX], word = 0;
	uint32_t locals, slot, begin;
	bool has_begin;

	if (v8_read(&r->heap, f->name_or_scope, 8 * (v8->scope_locals + 1u), &word, 8) < 0 ||
	    !v8_small(word, &locals) || locals > SCOPE_LOCALS_MAX)
		return;
	slot = v8->scope_first + 1u + locals + (locals < LOCALS_MAX ? locals : 1);
	if (v8_read(&r->heap, f->name_or_scope, 8 * slot, words, sizeof(words)) < 0)
		return;
	for (unsigned i = 0; i < SLOTS_MAX && !f->name[0]; i++)
		if (v8_is_tagged(words[i]))
			take_text(r, words[i], NAME_UNITS_MAX, f->name, sizeof(f->name));
	if (v8->scope_first < SCOPE_FIRST_WITH_BEGIN)
		has_begin = find_begin(words, &begin);
	else
		has_begin = v8_read(&r->heap, f->name_or_scope, 8 * (v8->scope_first - 1u), &word,
				    8) == 0 &&
			    v8_small(word, &begin);
	if (has_begin)
		f->first_line = line_of(r, f->script, begin);
}

/* The BytecodeArray that @data is or leads to: a function's InterpreterData or baseline code. 0: it
 * is something else. */
static uint64_t bytecode_at(struct names_reader *r, uint64_t data)
{
	const struct script_v8 *v8 = r->heap.v8;
	uint16_t type = v8_type(&r->heap, data);
	uint64_t at = 0;

	if (type == v8->type_bytecode)
		return data;
	for (uint32_t word = 0; word < 2; word++) {
		if (type == v8->type_interpreter_data)
			(void)!v8_read(&r->heap, data, INTERPRETER_BYTECODE, &at, sizeof(at));
		else if (type == v8->type_code)
			(void)!v8_read(&r->heap, data, CODE_BYTECODE_FIRST + 8 * word, &at,
				       sizeof(at));
		if (v8_type(&r->heap, at) == v8->type_bytecode)
			return at;
	}
	return 0;
}

/* The function's BytecodeArray; 0 = it has none. */
static uint64_t bytecode_of(struct names_reader *r, uint64_t shared)
{
	uint64_t data;

	return v8_read(&r->heap, shared, 8, &data, sizeof(data)) < 0 ? 0 : bytecode_at(r, data);
}

/* The table of source positions of the function's bytecode, in r->table. Its length or -ENODATA. */
static int load_table(struct names_reader *r, const struct function *f)
{
	uint64_t bytecode = bytecode_of(r, f->shared);

	return bytecode ? v8_bytes(&r->heap, bytecode, r->heap.v8->bytecode_positions, r->table,
				   sizeof(r->table))
			: -ENODATA;
}

static uint32_t line_of_bytecode(struct names_reader *r, const struct function *f)
{
	struct v8_position position;
	int len = load_table(r, f);

	if (len < 0 || v8_positions_find(v8_positions_format_of(r->table, (size_t)len), r->table,
					 (size_t)len, f->offset, &position) < 0)
		return 0;
	return line_of(r, f->script, position.offset);
}

/* Name, file and first line of the function. */
static void describe(struct names_reader *r, struct function *f)
{
	const struct script_v8 *v8 = r->heap.v8;
	uint64_t name;

	if (v8_is_string(&r->heap, f->name_or_scope))
		take_text(r, f->name_or_scope, NAME_UNITS_MAX, f->name, sizeof(f->name));
	if (v8_type(&r->heap, f->script) == v8->type_script) {
		if (v8_read(&r->heap, f->script, v8->script_name, &name, sizeof(name)) == 0)
			take_text(r, name, FILE_UNITS_MAX, f->file, sizeof(f->file));
		if (v8_type(&r->heap, f->name_or_scope) == v8->type_scope_info)
			take_scope(r, f);
	}
	if (!f->name[0])
		memcpy(f->name, "(anonymous)", sizeof("(anonymous)"));
}

/* Adds the functions at a pc in Turbofan's code. False: they are not known. */
static bool add_turbofan(struct names_reader *r, const struct v8_code *code,
			  const struct function *outer, struct script_names *names)
{
	struct v8_place places[V8_PLACES_MAX];
	int len = load_table(r, outer), count;
	bool is_approximate = false;

	if (len < 0)
		return false;
	count = v8_code_places(&r->heap, code, outer->shared, outer->pc, outer->is_return,
			       v8_positions_format_of(r->table, (size_t)len), places,
			       &is_approximate);
	names->is_approximate = is_approximate;
	for (int i = 0; i < count; i++) {
		struct function f = { .shared = places[i].shared };

		if (!read_words(r, &f)) {
			script_names_drop(names);
			return false;
		}
		describe(r, &f);
		script_names_add(names, f.name, f.file, line_of(r, f.script, places[i].offset),
				 f.first_line);
	}
	return count > 0;
}

static bool add_calls(struct names_reader *r, const struct v8_call *calls, int count,
		      struct script_names *names)
{
	for (int i = 0; i < count; i++) {
		struct function f = { .shared = calls[i].shared, .offset = calls[i].bytecode };

		if (!read_words(r, &f)) {
			script_names_drop(names);
			return false;
		}
		describe(r, &f);
		if (f.offset != V8_BUILTIN)
			f.line = line_of_bytecode(r, &f);
		script_names_add(names, f.name, f.file, f.line, f.first_line);
	}
	return count > 0;
}

/* Adds the functions at a pc in any compiler's optimized code. */
static bool add_inlined(struct names_reader *r, const struct v8_code *code,
			const struct function *outer, struct script_names *names)
{
	struct v8_call calls[V8_PLACES_MAX];
	int count = -ENODATA;

	if (outer->is_return)
		count = v8_code_exit(&r->heap, code, outer->shared, outer->pc, calls);
	if (count < 0 && !v8_code_is_maglev(&r->heap, code))
		return add_turbofan(r, code, outer, names);
	if (count < 0)
		count = v8_code_calls(&r->heap, code, outer->shared, outer->pc, outer->is_return,
				      calls);
	names->is_approximate = !outer->is_return || count < 0;
	/* A call that cannot leave the code, as for memory, is not recorded. */
	if (count < 0 && outer->is_return)
		count = v8_code_calls(&r->heap, code, outer->shared, outer->pc, false, calls);
	return add_calls(r, calls, count, names);
}

/* Adds the functions at a pc in generated code. False: what is inlined there is not known; the
 * offset of the bytecode is set if that is. */
static bool add_compiled(struct names_reader *r, struct function *outer, struct script_names *names)
{
	uint64_t bytecode;
	struct v8_code code;
	int32_t offset;

	/* A return address may be that of the code's end, another pc that of its begin. */
	if (v8_code_find(&r->heap, outer->pc + !outer->is_return, &code) < 0)
		return false;
	bytecode = bytecode_at(r, code.object);
	if (outer->is_claim && !v8_code_is_of(&r->heap, &code, outer->shared,
					      bytecode_of(r, outer->shared), bytecode))
		return false;
	names->tier = v8_code_tier(&r->heap, &code);
	if (names->tier == FEED_TIER_OPTIMIZED && add_inlined(r, &code, outer, names))
		return true;
	names->is_approximate = false; /* the function without a line */
	if (names->tier == FEED_TIER_BASELINE &&
	    v8_code_bytecode(&r->heap, &code, bytecode, outer->pc, outer->is_return, &offset) == 0)
		outer->offset = offset;
	return false;
}

/* Adds what code without a function is, if the place is in such code. */
static bool add_other(const struct control_script_place *place, struct script_names *names)
{
	uint64_t kind = script_word_pointer(place->a) >> SCRIPT_HOTSPOT_FRAME_SHIFT;

	if (kind == SCRIPT_V8_WASM)
		script_names_add(names, "[wasm]", "", 0, 0);
	if (kind == SCRIPT_V8_REGEXP)
		script_names_add(names, "[regexp]", "", 0, 0);
	return kind == SCRIPT_V8_WASM || kind == SCRIPT_V8_REGEXP;
}

static void add_place(struct names_reader *r, const struct control_script_place *place,
		      struct script_names *names)
{
	struct function f, again;

	script_names_begin(names);
	if (add_other(place, names))
		return;
	take_place(place, &f);
	while (!is_same(r, &f))
		if (!wait_for_move(r))
			return;
	if (f.cookie_mask == UINT32_MAX)
		names->tier = FEED_TIER_INTERPRETED;
	if (!f.pc || !add_compiled(r, &f, names)) {
		describe(r, &f);
		if (f.offset != SCRIPT_POSITION_NONE)
			f.line = line_of_bytecode(r, &f);
		script_names_add(names, f.name, f.file, f.line, f.first_line);
	}
	take_place(place, &again);
	if (!is_same(r, &again))
		script_names_drop(names);
}

int v8_names_read(struct target *target, const struct script_v8 *v8,
		  const struct control_script_place *places, size_t count,
		  struct script_names *names, uint64_t deadline_ns)
{
	cleanup_free struct names_reader *r = calloc(1, sizeof(*r));
	int rc = 0;

	if (!r)
		return -ENOMEM;
	r->heap = (struct v8_heap){ target, v8 };
	for (size_t i = 0; rc == 0 && i < count; i++) {
		add_place(r, &places[i], names);
		if (clock_monotonic_ns() > deadline_ns)
			rc = -ETIMEDOUT;
		else
			rc = names->payload.error;
	}
	for (unsigned i = 0; i < SCRIPTS_KEPT; i++)
		u32_vec_deinit(&r->lines[i].ends);
	return rc;
}
