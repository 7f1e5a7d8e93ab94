/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a HotSpot that describes itself, in a few pages: its tables, a code heap with the
 * call stub, the interpreter and one compiled method, app.Main.outer(), which has inner() inlined.
 * In the form of JDK 17, or of 25. The offsets are any that the reader accepts. */
#ifndef PROFD_SUPPORT_HOTSPOT_IMAGE_H
#define PROFD_SUPPORT_HOTSPOT_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/cleanup.h"
#include "agent/wire/control.h"
#include "bpf/script.h"

#define HOTSPOT_IMAGE_BYTES 0x9000u

/* Where things are. */
enum {
	HOTSPOT_IMAGE_STRUCTS = 0x000, /* gHotSpotVMStructs, gHotSpotVMTypes */
	HOTSPOT_IMAGE_TYPES = 0x008,
	HOTSPOT_IMAGE_HEAPS = 0x020, /* static fields */
	HOTSPOT_IMAGE_QUEUE_AT = 0x028,
	HOTSPOT_IMAGE_CALL_RETURN = 0x030,
	HOTSPOT_IMAGE_VERSION = 0x038,
	HOTSPOT_IMAGE_ARRAY = 0x040,
	HOTSPOT_IMAGE_ARRAY_DATA = 0x060,
	HOTSPOT_IMAGE_HEAP = 0x100,
	HOTSPOT_IMAGE_QUEUE = 0x200,
	HOTSPOT_IMAGE_OUTER = 0x400, /* Method, and its ConstMethod 0x80 behind */
	HOTSPOT_IMAGE_INNER = 0x500,
	HOTSPOT_IMAGE_POOL = 0x600,
	HOTSPOT_IMAGE_CLASS = 0x700,
	HOTSPOT_IMAGE_SYMBOLS = 0x800, /* 64 bytes each */
	HOTSPOT_IMAGE_FIELD_TABLE = 0x1000,
	HOTSPOT_IMAGE_TYPE_TABLE = 0x2000,
	HOTSPOT_IMAGE_TEXTS = 0x3000, /* 64 bytes each */
	HOTSPOT_IMAGE_PARTS = 0x5000, /* 25: of the compiled method */
	HOTSPOT_IMAGE_SEGMAP = 0x5e00,
	HOTSPOT_IMAGE_CODE =
		0x6000, /* the code heap: stubs, the compiled method, the interpreter */
	HOTSPOT_IMAGE_METHOD = 0x6200,
	HOTSPOT_IMAGE_INTERPRETER = 0x6a00,
	HOTSPOT_IMAGE_CODE_END = 0x8000,
};

#define HOTSPOT_IMAGE_COMPILE_ID 77u
#define HOTSPOT_IMAGE_LEVEL_AT	 56u /* in the method's blob: its compilation level, 4 */
#define HOTSPOT_IMAGE_CODE_AT	 0x100u /* of the method's blob: its first instruction */

struct hotspot_image {
	uint8_t *bytes;
	uint64_t base;
	bool is_new; /* 25, else 17 */
	uint32_t texts, fields, types, symbols;
};

static inline void hotspot_put(const struct hotspot_image *image, uint32_t at, uint64_t value,
			       uint32_t bytes)
{
	memcpy(image->bytes + at, &value, bytes);
}

/* The address of @text, which has less than 64 characters. */
static inline uint64_t hotspot_put_text(struct hotspot_image *image, const char *text)
{
	uint32_t at = HOTSPOT_IMAGE_TEXTS + 64 * image->texts++;

	memcpy(image->bytes + at, text, strlen(text) + 1);
	return image->base + at;
}

static inline uint64_t hotspot_put_symbol(struct hotspot_image *image, const char *text)
{
	uint32_t at = HOTSPOT_IMAGE_SYMBOLS + 64 * image->symbols++;

	hotspot_put(image, at + 4, strlen(text), 2);
	memcpy(image->bytes + at + 6, text, strlen(text));
	return image->base + at;
}

/* @is_static: @place is where the field is in the image, not in its structure. */
static inline void hotspot_put_field(struct hotspot_image *image, const char *type,
				     const char *field, bool is_static, uint32_t place)
{
	uint32_t at = HOTSPOT_IMAGE_FIELD_TABLE + 48 * image->fields++;

	hotspot_put(image, at, hotspot_put_text(image, type), 8);
	hotspot_put(image, at + 8, hotspot_put_text(image, field), 8);
	hotspot_put(image, at + 24, is_static, 4);
	hotspot_put(image, at + 32, is_static ? 0 : place, 8);
	hotspot_put(image, at + 40, is_static ? image->base + place : 0, 8);
}

static inline void hotspot_put_fields(struct hotspot_image *image)
{
	static const struct {
		const char *type, *field;
		uint32_t place;
		uint8_t is_static, since_25, until_17;
	} fields[] = {
		{ "CodeCache", "_heaps", HOTSPOT_IMAGE_HEAPS, 1, 0, 0 },
		{ "AbstractInterpreter", "_code", HOTSPOT_IMAGE_QUEUE_AT, 1, 0, 0 },
		{ "StubRoutines", "_call_stub_return_address", HOTSPOT_IMAGE_CALL_RETURN, 1, 0, 0 },
		{ "JDK_Version", "_current", HOTSPOT_IMAGE_VERSION, 1, 0, 1 },
		{ "Abstract_VM_Version", "_vm_major_version", HOTSPOT_IMAGE_VERSION, 1, 1, 0 },
		{ "GrowableArrayBase", "_len", 4, 0, 0, 0 },
		{ "GrowableArray<int>", "_data", 8, 0, 0, 0 },
		{ "CodeHeap", "_memory", 8, 0, 0, 0 },
		{ "CodeHeap", "_segmap", 0x48, 0, 0, 0 },
		{ "CodeHeap", "_log2_segment_size", 0x88, 0, 0, 0 },
		{ "VirtualSpace", "_low", 0x10, 0, 0, 0 },
		{ "VirtualSpace", "_high_boundary", 8, 0, 0, 0 },
		{ "StubQueue", "_stub_buffer", 8, 0, 0, 0 },
		{ "StubQueue", "_buffer_limit", 16, 0, 0, 0 },
		{ "InterpreterCodelet", "_size", 8, 0, 0, 0 },
		{ "InterpreterCodelet", "_description", 16, 0, 0, 0 },
		{ "CodeBlob", "_name", 8, 0, 0, 0 },
		{ "CodeBlob", "_code_begin", 16, 0, 0, 1 },
		{ "CodeBlob", "_code_offset", 44, 0, 1, 0 },
		{ "CodeBlob", "_frame_size", 24, 0, 0, 0 },
		{ "CodeBlob", "_frame_complete_offset", 28, 0, 0, 0 },
		{ "CodeBlob", "_mutable_data", 32, 0, 1, 0 },
		{ "CodeBlob", "_relocation_size", 40, 0, 1, 0 },
		{ "nmethod", "_compile_id", 48, 0, 0, 0 },
		{ "nmethod", "_orig_pc_offset", 52, 0, 0, 0 },
		{ "nmethod", "_comp_level", HOTSPOT_IMAGE_LEVEL_AT, 0, 0, 0 },
		{ "CompiledMethod", "_method", 64, 0, 0, 1 },
		{ "nmethod", "_method", 64, 0, 1, 0 },
		{ "CompiledMethod", "_deopt_handler_begin", 72, 0, 0, 1 },
		{ "CompiledMethod", "_scopes_data_begin", 80, 0, 0, 1 },
		{ "nmethod", "_scopes_pcs_offset", 88, 0, 0, 0 },
		{ "nmethod", "_dependencies_offset", 92, 0, 0, 1 },
		{ "nmethod", "_metadata_offset", 96, 0, 0, 1 },
		{ "nmethod", "_immutable_data", 104, 0, 1, 0 },
		{ "nmethod", "_immutable_data_size", 112, 0, 1, 0 },
		{ "nmethod", "_deopt_handler_offset", 116, 0, 1, 0 },
		{ "nmethod", "_scopes_data_offset", 120, 0, 1, 0 },
		{ "Method", "_constMethod", 8, 0, 0, 0 },
		{ "ConstMethod", "_constants", 8, 0, 0, 0 },
		{ "ConstMethod", "_constMethod_size", 16, 0, 0, 0 },
		{ "ConstMethod", "_flags", 20, 0, 0, 1 },
		{ "ConstMethod", "_flags._flags", 20, 0, 1, 0 },
		{ "ConstMethod", "_code_size", 24, 0, 0, 0 },
		{ "ConstMethod", "_name_index", 26, 0, 0, 0 },
		{ "ConstMethod", "_signature_index", 28, 0, 0, 0 },
		{ "ConstantPool", "_pool_holder", 8, 0, 0, 0 },
		{ "ConstantPool", "_source_file_name_index", 16, 0, 1, 0 },
		{ "InstanceKlass", "_source_file_name_index", 16, 0, 0, 1 },
		{ "Klass", "_name", 24, 0, 0, 0 },
		{ "Symbol", "_length", 4, 0, 0, 0 },
		{ "Symbol", "_body", 6, 0, 0, 0 },
		{ "Symbol", "_refcount", 2, 0, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (image->is_new ? !fields[i].until_17 : !fields[i].since_25)
			hotspot_put_field(image, fields[i].type, fields[i].field,
					  fields[i].is_static, fields[i].place);
}

static inline void hotspot_put_types(struct hotspot_image *image)
{
	static const struct {
		const char *type;
		uint32_t bytes;
	} types[] = { { "HeapBlock", 16 },
		      { "ConstMethod", 40 },
		      { "ConstantPool", 32 },
		      { "nmethod", 128 },
		      { "InterpreterCodelet", 32 } };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		uint32_t at = HOTSPOT_IMAGE_TYPE_TABLE + 40 * image->types++;
		bool is_block = image->is_new && i == 0;

		hotspot_put(image, at, hotspot_put_text(image, types[i].type), 8);
		hotspot_put(image, at + 32, is_block ? 8 : types[i].bytes, 8);
	}
}

/* Bytecodes 0 to 7; lines 10 from 0 on, 12 from 4 on. Its name is entry @name of the pool. */
static inline void hotspot_put_method(const struct hotspot_image *image, uint32_t at, uint32_t name)
{
	/* 0xff: two numbers follow, packed as signed; a byte for (4, 2) would do */
	static const uint8_t old_lines[] = { 0xff, 0, 20, 0xff, 8, 4, 0 };
	static const uint8_t new_lines[] = { 0xff, 1, 21, 0xff, 9, 5, 0 };
	uint32_t made = at + 0x80;

	hotspot_put(image, at + 8, image->base + made, 8);
	hotspot_put(image, made + 8, image->base + HOTSPOT_IMAGE_POOL, 8);
	hotspot_put(image, made + 16, 8, 4);
	hotspot_put(image, made + 20, 1, 2);
	hotspot_put(image, made + 24, 8, 2);
	hotspot_put(image, made + 26, name, 2);
	hotspot_put(image, made + 28, 5, 2);
	memcpy(image->bytes + made + 48, image->is_new ? new_lines : old_lines, sizeof(old_lines));
}

static inline void hotspot_put_class(struct hotspot_image *image)
{
	static const char *const texts[] = { "", "outer", "inner", "Main.java", "app/Main", "()V" };

	hotspot_put(image, HOTSPOT_IMAGE_POOL + 8, image->base + HOTSPOT_IMAGE_CLASS, 8);
	hotspot_put(image, HOTSPOT_IMAGE_POOL + 16, 3, 2);
	hotspot_put(image, HOTSPOT_IMAGE_CLASS + 16, 3, 2);
	for (uint32_t i = 1; i < ARRAY_SIZE(texts); i++) {
		uint64_t symbol = hotspot_put_symbol(image, texts[i]);

		hotspot_put(image, HOTSPOT_IMAGE_POOL + 32 + 8 * i, symbol, 8);
		if (i == 4)
			hotspot_put(image, HOTSPOT_IMAGE_CLASS + 24, symbol, 8);
	}
	hotspot_put_method(image, HOTSPOT_IMAGE_OUTER, 1);
	hotspot_put_method(image, HOTSPOT_IMAGE_INNER, 2);
}

static inline uint32_t hotspot_image_blob(const struct hotspot_image *image, uint32_t block)
{
	return block + (image->is_new ? 8 : 16);
}

/* A block of the code heap with a blob that is named @name. */
static inline void hotspot_put_block(struct hotspot_image *image, uint32_t at, uint32_t segments,
				     const char *name)
{
	uint32_t first = (at - HOTSPOT_IMAGE_CODE) >> 7;

	hotspot_put(image, at, segments, image->is_new ? 4 : 8);
	hotspot_put(image, at + (image->is_new ? 4 : 8), 1, 1);
	hotspot_put(image, hotspot_image_blob(image, at) + 8, hotspot_put_text(image, name), 8);
	for (uint32_t i = 0; i < segments; i++)
		image->bytes[HOTSPOT_IMAGE_SEGMAP + first + i] = (uint8_t)i;
}

/* At pc 8 of the code outer() is at its bytecode 4; at 16 it is in inner(), at 5. */
static inline void hotspot_put_parts(const struct hotspot_image *image, uint32_t pcs,
				     uint32_t scopes, uint32_t metadata)
{
	static const uint32_t descs[4][4] = { { -1u }, { 8, 1 }, { 16, 5 }, { 1000 } };
	/* sender, method, bytecode + 1 */
	static const uint8_t old_data[] = { 0xff, 0, 1, 5, 0, 1, 2, 6 };
	static const uint8_t new_data[] = { 0xff, 1, 2, 6, 0, 2, 3, 7 };

	memcpy(image->bytes + pcs, descs, sizeof(descs));
	memcpy(image->bytes + scopes, image->is_new ? new_data : old_data, sizeof(old_data));
	hotspot_put(image, metadata, image->base + HOTSPOT_IMAGE_OUTER, 8);
	hotspot_put(image, metadata + 8, image->base + HOTSPOT_IMAGE_INNER, 8);
}

static inline void hotspot_put_compiled(struct hotspot_image *image)
{
	uint32_t blob = hotspot_image_blob(image, HOTSPOT_IMAGE_METHOD);

	hotspot_put(image, blob + 24, 4, 4);
	hotspot_put(image, blob + 48, HOTSPOT_IMAGE_COMPILE_ID, 4);
	hotspot_put(image, blob + HOTSPOT_IMAGE_LEVEL_AT, 4, 1);
	hotspot_put(image, blob + 64, image->base + HOTSPOT_IMAGE_OUTER, 8);
	if (image->is_new) {
		hotspot_put(image, blob + 32, image->base + HOTSPOT_IMAGE_PARTS + 0x200, 8);
		hotspot_put(image, blob + 40, 16, 4);
		hotspot_put(image, blob + 44, HOTSPOT_IMAGE_CODE_AT, 4);
		hotspot_put(image, blob + 104, image->base + HOTSPOT_IMAGE_PARTS, 8);
		hotspot_put(image, blob + 112, 0x80, 4);
		hotspot_put(image, blob + 120, 0x40, 4);
		hotspot_put_parts(image, HOTSPOT_IMAGE_PARTS, HOTSPOT_IMAGE_PARTS + 0x40,
				  HOTSPOT_IMAGE_PARTS + 0x210);
		return;
	}
	hotspot_put(image, blob + 16, image->base + blob + HOTSPOT_IMAGE_CODE_AT, 8);
	hotspot_put(image, blob + 80, image->base + blob + 0x1c0, 8);
	hotspot_put(image, blob + 88, 0x200, 4);
	hotspot_put(image, blob + 92, 0x240, 4);
	hotspot_put(image, blob + 96, 0x180, 4);
	hotspot_put_parts(image, blob + 0x200, blob + 0x1c0, blob + 0x180);
}

static inline void hotspot_put_interpreter(struct hotspot_image *image)
{
	const char *const codelets[] = { "slow signature handler",
					 "method entry point (kind = zerolocals)",
					 image->is_new ? "native method entry point (kind = native)"
						       : "method entry point (kind = native)",
					 "bytecode" };
	uint32_t at = hotspot_image_blob(image, HOTSPOT_IMAGE_INTERPRETER) + 0x40;

	hotspot_put(image, HOTSPOT_IMAGE_QUEUE_AT, image->base + HOTSPOT_IMAGE_QUEUE, 8);
	hotspot_put(image, HOTSPOT_IMAGE_QUEUE + 8, image->base + at, 8);
	hotspot_put(image, HOTSPOT_IMAGE_QUEUE + 16, 64 * ARRAY_SIZE(codelets), 4);
	for (size_t i = 0; i < ARRAY_SIZE(codelets); i++, at += 64) {
		hotspot_put(image, at + 8, 64, 4);
		hotspot_put(image, at + 16, hotspot_put_text(image, codelets[i]), 8);
	}
}

/* Fills @bytes, HOTSPOT_IMAGE_BYTES for the address @base, and what the file says of it. */
static inline struct script_hotspot hotspot_image_build(uint8_t *bytes, uint64_t base, bool is_new)
{
	struct hotspot_image image = { .bytes = bytes, .base = base, .is_new = is_new };
	struct script_hotspot ret = { .structs = base + HOTSPOT_IMAGE_STRUCTS,
				      .types = base + HOTSPOT_IMAGE_TYPES };

	memset(bytes, 0, HOTSPOT_IMAGE_BYTES);
	hotspot_put(&image, HOTSPOT_IMAGE_STRUCTS, base + HOTSPOT_IMAGE_FIELD_TABLE, 8);
	hotspot_put(&image, HOTSPOT_IMAGE_TYPES, base + HOTSPOT_IMAGE_TYPE_TABLE, 8);
	hotspot_put_fields(&image);
	hotspot_put_types(&image);
	hotspot_put(&image, HOTSPOT_IMAGE_VERSION, is_new ? 25 : 17, 4);
	hotspot_put(&image, HOTSPOT_IMAGE_HEAPS, base + HOTSPOT_IMAGE_ARRAY, 8);
	hotspot_put(&image, HOTSPOT_IMAGE_ARRAY + 4, 1, 4);
	hotspot_put(&image, HOTSPOT_IMAGE_ARRAY + 8, base + HOTSPOT_IMAGE_ARRAY_DATA, 8);
	hotspot_put(&image, HOTSPOT_IMAGE_ARRAY_DATA, base + HOTSPOT_IMAGE_HEAP, 8);
	hotspot_put(&image, HOTSPOT_IMAGE_HEAP + 8 + 0x10, base + HOTSPOT_IMAGE_CODE, 8);
	hotspot_put(&image, HOTSPOT_IMAGE_HEAP + 8 + 8, base + HOTSPOT_IMAGE_CODE_END, 8);
	hotspot_put(&image, HOTSPOT_IMAGE_HEAP + 0x48 + 0x10, base + HOTSPOT_IMAGE_SEGMAP, 8);
	hotspot_put(&image, HOTSPOT_IMAGE_HEAP + 0x88, 7, 4);
	memset(bytes + HOTSPOT_IMAGE_SEGMAP, 0xff, 64);
	hotspot_put_block(&image, HOTSPOT_IMAGE_CODE, 4, "StubRoutines (1)");
	ret.nmethod_names[0] = base + HOTSPOT_IMAGE_TEXTS + 64 * image.texts;
	hotspot_put_block(&image, HOTSPOT_IMAGE_METHOD, 16, "nmethod");
	hotspot_put_block(&image, HOTSPOT_IMAGE_INTERPRETER, 8, "Interpreter");
	hotspot_put(&image, HOTSPOT_IMAGE_CALL_RETURN, base + HOTSPOT_IMAGE_CODE + 0x100, 8);
	hotspot_put_class(&image);
	hotspot_put_compiled(&image);
	hotspot_put_interpreter(&image);
	return ret;
}

/* The block of the compiled method is free, or used again. */
static inline void hotspot_image_free(uint8_t *bytes, bool is_new, bool is_free)
{
	bytes[HOTSPOT_IMAGE_METHOD + (is_new ? 4 : 8)] = !is_free;
}

/* The words of a frame in the compiled method, at byte @pc of its code. */
static inline struct control_script_place
hotspot_image_compiled(uint64_t base, bool is_new, enum script_hotspot_frame frame, uint32_t pc)
{
	uint64_t blob = base + HOTSPOT_IMAGE_METHOD + (is_new ? 8 : 16);

	return (struct control_script_place){
		.a = (uint64_t)frame << SCRIPT_HOTSPOT_FRAME_SHIFT | blob,
		.b = (uint64_t)(HOTSPOT_IMAGE_CODE_AT + pc) << SCRIPT_POSITION_SHIFT |
		     HOTSPOT_IMAGE_COMPILE_ID,
	};
}

/* A frame of the interpreter in inner(), at @bytecode. */
static inline struct control_script_place
hotspot_image_interpreted(const uint8_t *bytes, uint64_t base, uint32_t bytecode)
{
	const struct script_hotspot h = { .symbol_refcount = 2 };
	uint64_t facts, name, class_name;

	memcpy(&facts, bytes + HOTSPOT_IMAGE_INNER + 0x80 + 24, sizeof(facts));
	memcpy(&name, bytes + HOTSPOT_IMAGE_SYMBOLS + 64 * 1, sizeof(name));
	memcpy(&class_name, bytes + HOTSPOT_IMAGE_SYMBOLS + 64 * 3, sizeof(class_name));
	return (struct control_script_place){
		.a = (uint64_t)SCRIPT_HOTSPOT_INTERPRETED << SCRIPT_HOTSPOT_FRAME_SHIFT |
		     (base + HOTSPOT_IMAGE_INNER),
		.b = (uint64_t)bytecode << SCRIPT_POSITION_SHIFT |
		     script_hotspot_cookie(base + HOTSPOT_IMAGE_INNER + 0x80, facts,
					   script_hotspot_symbol(&h, name),
					   script_hotspot_symbol(&h, class_name)),
	};
}

static inline struct control_script_place hotspot_image_stub(uint64_t pc)
{
	return (struct control_script_place){
		.a = (uint64_t)SCRIPT_HOTSPOT_STUB << SCRIPT_HOTSPOT_FRAME_SHIFT | pc,
	};
}

#endif
