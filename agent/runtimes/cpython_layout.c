// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/cpython_layout.h"

#include <errno.h>
#include <string.h>

#define COOKIE		 "xdebugpy"
#define OBJECT_BYTES_MAX 1024u /* of a thread, frame, code object, string */

/* ---- 3.8 to 3.12 ----------------------------------------------------------------------------- */

/* The cookie's words are those of a code object that nothing writes once it exists. They leave out
 * what CPython counts in it: the warm-up (3.11), the executors and weak references (all). */
static const struct script_python layouts[] = {
	{ .version = 0x0308,
	  .chain = SCRIPT_PYTHON_OBJECTS,
	  .flags = SCRIPT_PYTHON_LASTI_BYTES,
	  .runtime_interpreters = 32,
	  .interp_threads = 8,
	  .thread_frame = 24,
	  .thread_id = 176,
	  .frame_previous = 24,
	  .frame_code = 32,
	  .frame_instr = 104 },
	{ .version = 0x0309,
	  .chain = SCRIPT_PYTHON_OBJECTS,
	  .flags = SCRIPT_PYTHON_LASTI_BYTES,
	  .runtime_interpreters = 32,
	  .interp_threads = 8,
	  .thread_frame = 24,
	  .thread_id = 176,
	  .frame_previous = 24,
	  .frame_code = 32,
	  .frame_instr = 104 },
	{ .version = 0x030a,
	  .chain = SCRIPT_PYTHON_OBJECTS_CFRAME,
	  .flags = SCRIPT_PYTHON_LASTI_UNITS,
	  .runtime_interpreters = 32,
	  .interp_threads = 8,
	  .thread_frame = 24,
	  .thread_cframe = 48,
	  .thread_id = 176,
	  .cframe_previous = 8,
	  .frame_previous = 24,
	  .frame_code = 32,
	  .frame_instr = 96,
	  .frame_entry = 108 },
	{ .version = 0x030b,
	  .chain = SCRIPT_PYTHON_IS_ENTRY,
	  .runtime_interpreters = 40,
	  .interp_threads = 16,
	  .thread_frame = 56,
	  .thread_id = 152,
	  .thread_native_id = 160,
	  .cframe_frame = 8,
	  .cframe_previous = 16,
	  .frame_previous = 48,
	  .frame_code = 32,
	  .frame_instr = 56,
	  .frame_entry = 68,
	  .code_bytecode = 184,
	  .code_firstlineno = 72,
	  .code_qualname = 128,
	  .cookie_at = 56,
	  .cookie_words = 11 },
	{ .version = 0x030c,
	  .chain = SCRIPT_PYTHON_SHIM_CFRAME,
	  .runtime_interpreters = 40,
	  .interp_threads = 72,
	  .thread_frame = 56,
	  .thread_id = 136,
	  .thread_native_id = 144,
	  .cframe_frame = 0,
	  .cframe_previous = 8,
	  .frame_previous = 8,
	  .frame_code = 0,
	  .frame_instr = 56,
	  .frame_entry = 70,
	  .code_bytecode = 192,
	  .code_firstlineno = 68,
	  .code_qualname = 128,
	  .cookie_at = 24,
	  .cookie_words = 15 },
};

/* Fields that are the same in 3.8 to 3.10, or in all of 3.8 to 3.12. */
static void fill_common(unsigned minor, struct script_python *ret)
{
	bool has_objects = minor <= 10;

	if (has_objects) {
		ret->code_firstlineno = 40;
		ret->cookie_at = 16;
		ret->cookie_words = 14;
	}
	ret->code_filename = has_objects ? 104 : 112;
	ret->code_name = has_objects ? 112 : 120;
	ret->code_linetable = has_objects ? 120 : 136;
	ret->thread_next = 8;
	ret->thread_interp = 16;
	ret->object_type = 8;
	ret->bytes_size = 16;
	ret->bytes_data = 32;
	ret->str_length = 16;
	ret->str_state = 32;
	ret->str_ascii_data = minor < 12 ? 48 : 40;
	ret->str_compact_data = minor < 12 ? 72 : 56;
}

int cpython_layout_of_version(unsigned minor, struct script_python *ret)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		if (cpython_minor(&layouts[i]) != minor)
			continue;
		*ret = layouts[i];
		fill_common(minor, ret);
		return 0;
	}
	return -EOPNOTSUPP;
}

/* ---- 3.13 and 3.14 --------------------------------------------------------------------------- */

/* Words of struct _Py_DebugOffsets that both have, counted from the cookie's. */
enum {
	WORD_VERSION = 1,
	WORD_FREE_THREADED = 2,
	WORD_RUNTIME_BYTES = 3,
	WORD_INTERPRETERS = 5,
	WORD_INTERPRETER_BYTES = 6,
	WORD_INTERPRETER_NEXT = 8,
	WORD_THREADS = 9,
};

/* The first word of each group, which is the size of the structure. */
struct groups {
	uint8_t thread, frame, code, object, bytes, string;
};
static const struct groups groups_313 = { 19, 28, 34, 44, 64, 67 };
static const struct groups groups_314 = { 22, 31, 39, 50, 74, 77 };

/* Offsets that the words do not tell, measured. In free-threaded builds the head of an object is
 * longer, which moves all fields of the code object alike. */
#define FIRST_LINE	68u
#define COOKIE_AT	24u
#define COOKIE_WORDS	15u

struct words {
	const uint8_t *data; /* CPYTHON_DEBUG_OFFSETS_BYTES */
	bool failed;
};

static uint64_t word(const struct words *w, unsigned index)
{
	uint64_t value;

	memcpy(&value, w->data + index * sizeof(value), sizeof(value));
	return value;
}

/* An offset below @max. Anything else fails the whole layout. */
static uint32_t offset(struct words *w, unsigned index, uint64_t max)
{
	uint64_t value = word(w, index);

	if (value >= max || value > INT32_MAX)
		w->failed = true;
	return (uint32_t)value;
}

static uint16_t field(struct words *w, unsigned index)
{
	return (uint16_t)offset(w, index, OBJECT_BYTES_MAX);
}

static void take_threads(struct words *w, const struct groups *g, struct script_python *ret)
{
	uint64_t runtime_bytes = word(w, WORD_RUNTIME_BYTES);
	uint64_t interpreter_bytes = word(w, WORD_INTERPRETER_BYTES);

	ret->runtime_interpreters = offset(w, WORD_INTERPRETERS, runtime_bytes);
	ret->interp_next = offset(w, WORD_INTERPRETER_NEXT, interpreter_bytes);
	ret->interp_threads = offset(w, WORD_THREADS, interpreter_bytes);
	ret->thread_next = field(w, g->thread + 2u);
	ret->thread_interp = field(w, g->thread + 3u);
	ret->thread_frame = field(w, g->thread + 4u);
	ret->thread_id = field(w, g->thread + 5u);
	ret->thread_native_id = field(w, g->thread + 6u);
}

static void take_frame(struct words *w, const struct groups *g, struct script_python *ret)
{
	ret->frame_previous = field(w, g->frame + 1u);
	ret->frame_code = field(w, g->frame + 2u);
	ret->frame_instr = field(w, g->frame + 3u);
	ret->frame_entry = field(w, g->frame + 5u);
	if (ret->frame_previous > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    ret->frame_code > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    ret->frame_instr > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    ret->frame_entry > SCRIPT_PYTHON_FRAME_BYTES - 8)
		w->failed = true;
}

static void take_code(struct words *w, const struct groups *g, struct script_python *ret)
{
	uint16_t shift;

	ret->code_filename = field(w, g->code + 1u);
	ret->code_name = field(w, g->code + 2u);
	ret->code_qualname = field(w, g->code + 3u);
	ret->code_linetable = field(w, g->code + 4u);
	ret->code_firstlineno = field(w, g->code + 5u);
	ret->code_bytecode = field(w, g->code + 9u);
	if (ret->code_firstlineno < FIRST_LINE || ret->code_bytecode < ret->code_linetable)
		w->failed = true;
	shift = (uint16_t)(ret->code_firstlineno - FIRST_LINE);
	ret->cookie_at = (uint16_t)(COOKIE_AT + shift);
	ret->cookie_words = COOKIE_WORDS;
}

static void take_objects(struct words *w, const struct groups *g, struct script_python *ret)
{
	uint16_t string_bytes = field(w, g->string);

	ret->object_type = field(w, g->object + 1u);
	ret->bytes_size = field(w, g->bytes + 1u);
	ret->bytes_data = field(w, g->bytes + 2u);
	ret->str_state = field(w, g->string + 1u);
	ret->str_length = field(w, g->string + 2u);
	ret->str_ascii_data = field(w, g->string + 3u);
	/* PyUnicodeObject is PyCompactUnicodeObject and a pointer. */
	if (string_bytes < ret->str_ascii_data + 8u)
		w->failed = true;
	ret->str_compact_data = (uint16_t)(string_bytes - 8u);
}

int cpython_layout_of_runtime(const void *data, size_t len, struct script_python *ret)
{
	struct words w = { .data = data };
	struct script_python layout = { .chain = SCRIPT_PYTHON_SHIM };
	const struct groups *g;
	uint64_t version;

	if (len < CPYTHON_DEBUG_OFFSETS_BYTES || memcmp(data, COOKIE, 8))
		return -ENODATA;
	version =
		word(&w, WORD_VERSION) >> 16; /* PY_VERSION_HEX: major, minor, then 16 bits more */
	if (version != 0x030d && version != 0x030e)
		return -EOPNOTSUPP;
	layout.version = (uint16_t)version;
	layout.flags = word(&w, WORD_FREE_THREADED) ? SCRIPT_PYTHON_FREE_THREADED : 0;
	/* Threads of 3.14 run copies of the bytecode of their own, which no build at hand shows. */
	if (layout.flags && version != 0x030d)
		return -EOPNOTSUPP;
	g = cpython_minor(&layout) == 13 ? &groups_313 : &groups_314;
	take_threads(&w, g, &layout);
	take_frame(&w, g, &layout);
	take_code(&w, g, &layout);
	take_objects(&w, g, &layout);
	if (w.failed)
		return -EINVAL;
	*ret = layout;
	return 0;
}
