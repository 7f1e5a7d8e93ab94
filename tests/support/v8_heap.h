/* SPDX-License-Identifier: Apache-2.0 */
/* A heap of V8 in a few pages, in the form of older versions (code holds its instructions, the
 * begin of a function is behind its variables) or of newer ones (streams, wrappers). It has a
 * function outer() in a.js that has inner() inlined, strings of every shape, and the code of
 * outer() in its first page. The offsets are any that the reader accepts. */
#ifndef PROFD_SUPPORT_V8_HEAP_H
#define PROFD_SUPPORT_V8_HEAP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "agent/runtimes/v8_translations.h"
#include "agent/wire/control.h"
#include "bpf/script.h"

#define V8_HEAP_BYTES	   8192u
#define V8_HEAP_CODE_AT	   0x400u /* of the first instruction of outer() */
#define V8_HEAP_CODE_BYTES 0x100u

/* Where the objects are. */
enum {
	V8_HEAP_MAPS = 0x000, /* 32 bytes each */
	V8_HEAP_CODE = 0x3c0, /* or the stream, which leads to the code behind it */
	V8_HEAP_CODE_OBJECT = 0x600,
	V8_HEAP_DEOPT = 0x680,
	V8_HEAP_LITERALS = 0x700,
	V8_HEAP_INLININGS = 0x740,
	V8_HEAP_CODE_TABLE = 0x780,
	V8_HEAP_OUTER = 0x800,
	V8_HEAP_INNER = 0x840,
	V8_HEAP_SCRIPT = 0x880,
	V8_HEAP_SCOPE = 0x900,
	V8_HEAP_BYTECODE = 0xa00,
	V8_HEAP_POSITIONS = 0xa80,
	V8_HEAP_DATA = 0xac0,	  /* InterpreterData or baseline code: leads to the bytecode */
	V8_HEAP_STRINGS = 0xb00,  /* 64 bytes each */
	V8_HEAP_EXTERNAL = 0xe00, /* characters of the external string */
	V8_HEAP_SIZES = 0x1000,	  /* lengths of bytecodes */
	V8_HEAP_BASELINE = 0x1080, /* table of baseline code */
	V8_HEAP_TRANSLATION = 0x10c0,
};

#define V8_HEAP_BYTECODES 8u

enum v8_heap_map {
	V8_MAP_STRING,
	V8_MAP_TWO_BYTES,
	V8_MAP_CONS,
	V8_MAP_SLICED,
	V8_MAP_THIN,
	V8_MAP_EXTERNAL,
	V8_MAP_SHARED,
	V8_MAP_BYTECODE,
	V8_MAP_DATA,
	V8_MAP_SCRIPT,
	V8_MAP_SCOPE,
	V8_MAP_CODE,
	V8_MAP_STREAM,
	V8_MAP_ARRAY,
	V8_MAPS,
};

static const uint16_t v8_heap_types[V8_MAPS] = {
	8, 0, 9, 11, 13, 10, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
};

static inline struct script_v8 v8_heap_facts(uint64_t base, bool is_new)
{
	return (struct script_v8){
		.map_type = 12,
		.function_shared = 24,
		.shared_name = 16,
		.shared_script = 24,
		.type_shared = 0x90,
		.type_bytecode = 0x91,
		.bytecode_data = 40,
		.type_interpreter_data = 0x92,
		.type_script = 0x93,
		.type_scope_info = 0x94,
		.type_code = 0x95,
		.type_stream = is_new ? 0x96 : 0,
		.code_start = is_new ? 40 : 64,
		.code_bytes = 48,
		.code_flags = 52,
		.code_kind_mask = 15,
		.code_kind_baseline = 11,
		.deopt_literals = 2,
		.deopt_inlined = 4,
		.first_nonstring = 0x80,
		.bytecode_wrapper = is_new ? 8 : 0,
		.bytecode_positions = 16,
		.script_source = 8,
		.script_name = 16,
		.scope_locals = 2,
		.scope_first = is_new ? 5 : 3,
		.string_length = 12,
		.string_chars = 16,
		.cons_first = 16,
		.cons_second = 24,
		.sliced_parent = 16,
		.sliced_offset = 24,
		.thin_actual = 16,
		.external_resource = 16,
		.array_length = 8,
		.array_data = 16,
		.bytecode_length = 8,
		.bytecodes = V8_HEAP_BYTECODES,
		.bytecode_sizes = base + V8_HEAP_SIZES,
		.operations = V8_OPERATIONS_13,
	};
}

static inline void v8_heap_word(uint8_t *heap, uint32_t at, uint64_t word)
{
	memcpy(heap + at, &word, sizeof(word));
}

static inline uint64_t v8_heap_small(uint64_t value)
{
	return value << 32;
}

/* A string number @index; @text has less than 48 characters of one byte. */
static inline uint64_t v8_heap_string(uint8_t *heap, uint64_t base, uint32_t index,
				      const char *text)
{
	uint32_t at = V8_HEAP_STRINGS + 64 * index, len = (uint32_t)strlen(text);

	v8_heap_word(heap, at, base + V8_HEAP_MAPS + 32 * V8_MAP_STRING + 1);
	memcpy(heap + at + 12, &len, sizeof(len));
	memcpy(heap + at + 16, text, len);
	return base + at + 1;
}

/* A string number @index that is made of others, or of characters elsewhere. */
static inline uint64_t v8_heap_made(uint8_t *heap, uint64_t base, uint32_t index,
				    enum v8_heap_map map, uint32_t len, uint64_t first,
				    uint64_t second)
{
	uint32_t at = V8_HEAP_STRINGS + 64 * index;

	v8_heap_word(heap, at, base + V8_HEAP_MAPS + 32 * map + 1);
	memcpy(heap + at + 12, &len, sizeof(len));
	v8_heap_word(heap, at + 16, first);
	v8_heap_word(heap, at + 24, second);
	return base + at + 1;
}

static inline uint64_t v8_heap_array(uint8_t *heap, uint64_t base, uint32_t at, uint64_t length)
{
	v8_heap_word(heap, at, base + V8_HEAP_MAPS + 32 * V8_MAP_ARRAY + 1);
	v8_heap_word(heap, at + 8, v8_heap_small(length));
	return base + at + 1;
}

static inline uint64_t v8_heap_source(uint8_t *heap, uint64_t base, bool is_external)
{
	static const char text[] = "function outer() {\r\n f();\n inner();\n}\n";
	uint64_t first, second;

	if (is_external) {
		memcpy(heap + V8_HEAP_EXTERNAL, text, sizeof(text) - 1);
		return v8_heap_made(heap, base, 5, V8_MAP_EXTERNAL, sizeof(text) - 1, 0,
				    base + V8_HEAP_EXTERNAL);
	}
	first = v8_heap_string(heap, base, 1, "function outer() {\r\n f();\n");
	second = v8_heap_string(heap, base, 2, " inner();\n}\n function inner() {}\n");
	first = v8_heap_made(heap, base, 3, V8_MAP_CONS, 26 + 33, first, second);
	return v8_heap_made(heap, base, 4, V8_MAP_THIN, 26 + 33, first, 0);
}

/* "a.js" of "xa.js", in two bytes a character */
static inline uint64_t v8_heap_file(uint8_t *heap, uint64_t base)
{
	uint64_t whole = v8_heap_made(heap, base, 6, V8_MAP_TWO_BYTES, 5, 0, 0);

	memcpy(heap + V8_HEAP_STRINGS + 64 * 6 + 16, "x\0a\0.\0j\0s", 10);
	return v8_heap_made(heap, base, 7, V8_MAP_SLICED, 4, whole, v8_heap_small(1));
}

/* Positions: the function itself at 9, a call at bytecode 4 of character 20. The bytecodes are at
 * 0, 2, 4, 7 (with a prefix) and 11. */
static inline void v8_heap_bytecode(uint8_t *heap, uint64_t base, bool is_baseline)
{
	static const uint8_t sizes[][V8_HEAP_BYTECODES] = { { 1, 1, 1, 1, 2, 3, 4, 1 },
							    { 1, 1, 1, 1, 3, 5, 7, 1 },
							    { 1, 1, 1, 1, 5, 9, 13, 1 } };
	static const uint8_t codes[] = { 4, 0, 4, 0, 5, 0, 0, 0, 4, 0, 0, 7 };
	static const uint8_t positions[] = { 0x01, 40, 10, 44 };
	uint64_t table = v8_heap_array(heap, base, V8_HEAP_POSITIONS, sizeof(positions));
	uint64_t bytecode = base + V8_HEAP_BYTECODE + 1;

	memcpy(heap + V8_HEAP_POSITIONS + 16, positions, sizeof(positions));
	v8_heap_word(heap, V8_HEAP_BYTECODE, base + V8_HEAP_MAPS + 32 * V8_MAP_BYTECODE + 1);
	v8_heap_word(heap, V8_HEAP_BYTECODE + 8, v8_heap_small(sizeof(codes)));
	memcpy(heap + V8_HEAP_BYTECODE + 40, codes, sizeof(codes));
	memcpy(heap + V8_HEAP_SIZES, sizes, sizeof(sizes));
	v8_heap_word(heap, V8_HEAP_BYTECODE + 16, table);
	v8_heap_word(heap, V8_HEAP_DATA,
		     base + V8_HEAP_MAPS + 32 * (is_baseline ? V8_MAP_CODE : V8_MAP_DATA) + 1);
	v8_heap_word(heap, V8_HEAP_DATA + (is_baseline ? 16 : 8), bytecode);
}

static inline void v8_heap_function(uint8_t *heap, uint64_t base, uint32_t at, uint64_t data,
				    uint64_t name)
{
	v8_heap_word(heap, at, base + V8_HEAP_MAPS + 32 * V8_MAP_SHARED + 1);
	v8_heap_word(heap, at + 8, data);
	v8_heap_word(heap, at + 16, name);
	v8_heap_word(heap, at + 24, base + V8_HEAP_SCRIPT + 1);
}

/* The code is of @kind: 11 baseline code, 12 Maglev, 13 Turbofan. */
static inline void v8_heap_set_kind(uint8_t *heap, bool is_new, uint32_t kind)
{
	memcpy(heap + (is_new ? V8_HEAP_CODE_OBJECT : V8_HEAP_CODE) + 52, &kind, sizeof(kind));
}

/* The code is baseline code: its first 6 bytes are the entry, then come those of the bytecodes. */
static inline void v8_heap_set_baseline(uint8_t *heap, uint64_t base, bool is_new)
{
	static const uint8_t bytes[] = { 6, 4, 4, 8, 8, 8 };
	uint32_t at = is_new ? V8_HEAP_CODE_OBJECT + 8 : V8_HEAP_CODE + 16;

	memcpy(heap + V8_HEAP_BASELINE + 16, bytes, sizeof(bytes));
	v8_heap_word(heap, at, base + V8_HEAP_BYTECODE + 1);
	v8_heap_word(heap, at + 8, v8_heap_array(heap, base, V8_HEAP_BASELINE, sizeof(bytes)));
	v8_heap_set_kind(heap, is_new, 11);
}

/* Calls that return to bytes 8 and 16: the first is of bytecode 0 of outer(), the second one of
 * bytecode 4 of inner(), which is inlined there. Their exits are at 80 and 84. */
static inline void v8_heap_calls(uint8_t *heap, uint64_t base)
{
	static const uint8_t translations[] = { 14, 0, 2, 2,  1, 0, 0, 0, 0,
						14, 9, 4, 4, 46, 1, 8, 2, 0, 0 };
	static const uint64_t words[] = { 0, 2, 0, 0, 80, 7, 9, 84 };
	static const uint8_t safepoints[] = { 8, 0, 0, 0, 2, 0, 0, 0, 0xa3, 0,  0, 0, 0, 0, 0,
					      0, 8, 0, 1, 81, 0, 0, 0, 16, 0, 2, 85, 0, 0, 0 };

	memcpy(heap + V8_HEAP_CODE_AT + V8_HEAP_CODE_BYTES, safepoints, sizeof(safepoints));
	memcpy(heap + V8_HEAP_TRANSLATION + 16, translations, sizeof(translations));
	v8_heap_word(heap, V8_HEAP_DEOPT + 16,
		     v8_heap_array(heap, base, V8_HEAP_TRANSLATION, sizeof(translations)));
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		v8_heap_word(heap, V8_HEAP_DEOPT + 16 + 8 * (6 + i), v8_heap_small(words[i]));
}

/* Code whose call at its byte 16 is in inner(), which is inlined at character 27 of outer(). */
static inline void v8_heap_code(uint8_t *heap, uint64_t base, bool is_new)
{
	static const uint8_t places[] = { 10, 84, 16, 0xe4, 0x80, 0x80, 0x80, 0x10 };
	uint32_t at = is_new ? V8_HEAP_CODE_OBJECT : V8_HEAP_CODE, deopt = is_new ? 8 : 16;
	uint32_t bytes = V8_HEAP_CODE_BYTES;
	uint64_t table = v8_heap_array(heap, base, V8_HEAP_CODE_TABLE, sizeof(places));
	uint64_t data = v8_heap_array(heap, base, V8_HEAP_DEOPT, 14);

	memcpy(heap + V8_HEAP_CODE_TABLE + 16, places, sizeof(places));
	v8_heap_word(heap, at, base + V8_HEAP_MAPS + 32 * V8_MAP_CODE + 1);
	v8_heap_word(heap, at + deopt, data);
	v8_heap_word(heap, at + deopt + 8, table);
	memcpy(heap + at + 48, &bytes, sizeof(bytes));
	v8_heap_set_kind(heap, is_new, 13);
	if (is_new) {
		v8_heap_word(heap, at + 40, base + V8_HEAP_CODE_AT);
		v8_heap_word(heap, V8_HEAP_CODE, base + V8_HEAP_MAPS + 32 * V8_MAP_STREAM + 1);
		v8_heap_word(heap, V8_HEAP_CODE + 8, base + at + 1);
	}
	v8_heap_calls(heap, base);
	v8_heap_word(heap, V8_HEAP_DEOPT + 16 + 8 * 2,
		     v8_heap_array(heap, base, V8_HEAP_LITERALS, 2));
	v8_heap_word(heap, V8_HEAP_LITERALS + 16, base + V8_HEAP_OUTER + 1);
	v8_heap_word(heap, V8_HEAP_LITERALS + 16 + 8, base + V8_HEAP_INNER + 1);
	v8_heap_word(heap, V8_HEAP_DEOPT + 16 + 8 * 4,
		     v8_heap_array(heap, base, V8_HEAP_INLININGS, 16));
	v8_heap_word(heap, V8_HEAP_INLININGS + 16, (27 + 1) << 1);
	v8_heap_word(heap, V8_HEAP_INLININGS + 24, 1);
}

/* Variables x, and "outer" with its begin and end. */
static inline uint64_t v8_heap_scope(uint8_t *heap, uint64_t base, bool is_new)
{
	uint32_t at = V8_HEAP_SCOPE, slot = is_new ? 6 : 4;

	v8_heap_word(heap, at, base + V8_HEAP_MAPS + 32 * V8_MAP_SCOPE + 1);
	v8_heap_word(heap, at + 24, v8_heap_small(1));
	if (is_new)
		v8_heap_word(heap, at + 32, v8_heap_small(9));
	v8_heap_word(heap, at + 8 * slot, v8_heap_string(heap, base, 8, "x"));
	v8_heap_word(heap, at + 8 * (slot + 2), v8_heap_string(heap, base, 9, "outer"));
	v8_heap_word(heap, at + 8 * (slot + 3), v8_heap_small(3));
	v8_heap_word(heap, at + 8 * (slot + 4), v8_heap_small(9));
	v8_heap_word(heap, at + 8 * (slot + 5), v8_heap_small(38));
	v8_heap_word(heap, at + 8 * (slot + 6), base + at + 1);
	return base + at + 1;
}

/* Fills @heap, V8_HEAP_BYTES for the address @base. @is_baseline: the bytecode is behind baseline
 * code, and the source is outside of the heap. */
static inline void v8_heap_build(uint8_t *heap, uint64_t base, bool is_new, bool is_baseline)
{
	memset(heap, 0, V8_HEAP_BYTES);
	for (uint32_t i = 0; i < V8_MAPS; i++)
		memcpy(heap + V8_HEAP_MAPS + 32 * i + 12, &v8_heap_types[i], 2);
	v8_heap_word(heap, V8_HEAP_SCRIPT, base + V8_HEAP_MAPS + 32 * V8_MAP_SCRIPT + 1);
	v8_heap_word(heap, V8_HEAP_SCRIPT + 8, v8_heap_source(heap, base, is_baseline));
	v8_heap_word(heap, V8_HEAP_SCRIPT + 16, v8_heap_file(heap, base));
	v8_heap_bytecode(heap, base, is_baseline);
	v8_heap_function(heap, base, V8_HEAP_OUTER, base + V8_HEAP_DATA + 1,
			 v8_heap_scope(heap, base, is_new));
	v8_heap_function(heap, base, V8_HEAP_INNER, base + V8_HEAP_BYTECODE + 1,
			 v8_heap_string(heap, base, 10, "inner"));
	v8_heap_code(heap, base, is_new);
}

/* The words of a frame of the function at @at: at its bytecode 4, or (@return_at) in code. */
static inline struct control_script_place v8_heap_place(const uint8_t *heap, uint64_t base,
							uint32_t at, uint32_t return_at)
{
	uint64_t name, script;
	uint32_t cookie;

	memcpy(&name, heap + at + 16, sizeof(name));
	memcpy(&script, heap + at + 24, sizeof(script));
	cookie = script_v8_cookie(name, script);
	if (return_at)
		return (struct control_script_place){
			.a = (uint64_t)SCRIPT_V8_COMPILED << SCRIPT_HOTSPOT_FRAME_SHIFT |
			     (base + return_at),
			.b = (base + at) >> 3 << SCRIPT_V8_SHARED_SHIFT |
			     (cookie & SCRIPT_V8_COOKIE_MASK),
		};
	return (struct control_script_place){
		.a = (uint64_t)SCRIPT_V8_INTERPRETED << SCRIPT_HOTSPOT_FRAME_SHIFT | (base + at),
		.b = 4ull << SCRIPT_POSITION_SHIFT | cookie,
	};
}

/* The words of a frame of the function at @at whose pc, no return address, is at @pc_at in code. */
static inline struct control_script_place v8_heap_innermost(const uint8_t *heap, uint64_t base,
							    uint32_t at, uint32_t pc_at)
{
	struct control_script_place ret = v8_heap_place(heap, base, at, pc_at);

	ret.a += (uint64_t)(SCRIPT_V8_INNERMOST - SCRIPT_V8_COMPILED) << SCRIPT_HOTSPOT_FRAME_SHIFT;
	return ret;
}

#endif
