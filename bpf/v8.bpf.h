/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The frames of V8: pure, also compiled for the host. The includer defines UNWIND_READ as for
 * bpf/unwind_step.h.
 *
 * All code of V8 keeps frame pointers, and its frames lie on the native stack in their order. A
 * frame of JavaScript has its context below the saved frame pointer and its function below that;
 * other frames have a small number there. The interpreter's frames also hold the bytecode array
 * and the offset in it. Objects move, so a frame is named by its SharedFunctionInfo, which moves
 * rarely; its type is checked here, because a slot may hold what an earlier call left there.
 * Source: V8's src/execution/frame-constants.h. */
#ifndef PROFD_BPF_V8_BPF_H
#define PROFD_BPF_V8_BPF_H

#include "bpf/script.h"
#include "bpf/unwind_step.h"

/* The words of a frame from V8_FRAME_AT bytes below its frame pointer on, the last two being the
 * caller's frame pointer and the return address. */
#define V8_FRAME_AT    40u
#define V8_FRAME_WORDS 7u
#define V8_SLOT_OFFSET	 0u
#define V8_SLOT_BYTECODE 1u
#define V8_SLOT_FUNCTION 3u
#define V8_SLOT_CONTEXT	 4u
#define V8_SLOT_CALLER	 5u
#define V8_FRAME_TYPE_SHIFT 1 /* of the type, where there is no context */
#define V8_SHARED_DATA	 1u /* bytecode, code or, of a builtin, a number */
#define V8_SHARED_WORDS	 8u /* of a SharedFunctionInfo: its map, name and script are among them */

/* Scratch memory of one frame, the facts of the process, and what the walk remembers of the frames
 * before: the thread stands meanwhile, so the same words mean the same. Words are 0 when a walk
 * begins: nothing is remembered. */
struct v8_walk {
	struct script_v8 facts;
	uint64_t frame[V8_FRAME_WORDS];
	uint64_t shared[V8_SHARED_WORDS];
	uint64_t bytecode_map, shared_map; /* Maps of BytecodeArray and SharedFunctionInfo */
	uint64_t bytecode;		   /* the last BytecodeArray */
	uint64_t function, function_shared; /* the last JSFunction, its SharedFunctionInfo */
	uint64_t shared_data;		    /* of that: V8_SHARED_DATA */
	uint32_t cookie;		    /* of that */
	uint32_t frame_is_read;
};

UNWIND_INLINE void v8_forget(struct v8_walk *w)
{
	w->bytecode_map = w->shared_map = 0;
	w->bytecode = 0;
	w->function = 0;
}

UNWIND_INLINE int v8_is_object(uint64_t word)
{
	return (word & 3) == 1 && word > 4096 && word < ARCH_USER_END;
}

UNWIND_INLINE uint64_t v8_shared_word(const struct v8_walk *w, uint32_t offset)
{
	return w->shared[offset / 8 & (V8_SHARED_WORDS - 1)];
}

#define V8_NO_TYPE 0xffffu

/* The instance type in the map @map, V8_NO_TYPE if it cannot be read. */
UNWIND_INLINE uint32_t v8_map_type(const struct v8_walk *w, uint64_t map)
{
	uint16_t type;

	if (!v8_is_object(map) ||
	    UNWIND_READ(&type, sizeof(type), map - 1 + w->facts.map_type))
		return V8_NO_TYPE;
	return type;
}

/* The same of an object. */
static __attribute__((noinline, unused)) uint32_t v8_type(const struct v8_walk *w, uint64_t object)
{
	uint64_t map;

	if (!v8_is_object(object) || UNWIND_READ(&map, sizeof(map), object - 1))
		return V8_NO_TYPE;
	return v8_map_type(w, map);
}

/* Is @map, which leads to the type @type? *@known is the one that did last. */
UNWIND_INLINE bool v8_is_map_of(const struct v8_walk *w, uint64_t map, uint32_t type,
				uint64_t *known)
{
	if (map == *known && map)
		return true;
	if (v8_map_type(w, map) != type)
		return false;
	*known = map;
	return true;
}

UNWIND_INLINE bool v8_is_bytecode(struct v8_walk *w, uint64_t object)
{
	uint64_t map;

	if (object == w->bytecode && object)
		return true;
	if (!v8_is_object(object) || UNWIND_READ(&map, sizeof(map), object - 1) ||
	    !v8_is_map_of(w, map, w->facts.type_bytecode, &w->bytecode_map))
		return false;
	w->bytecode = object;
	return true;
}

/* Learns what the JSFunction @function is, unless it is that of the frame before. False: it is
 * none. */
UNWIND_INLINE bool v8_look(struct v8_walk *w, uint64_t function)
{
	uint64_t shared;

	if (function == w->function)
		return true;
	w->function = 0;
	if (UNWIND_READ(&shared, sizeof(shared), function - 1 + w->facts.function_shared) ||
	    !v8_is_object(shared) || UNWIND_READ(w->shared, sizeof(w->shared), shared - 1) ||
	    !v8_is_map_of(w, w->shared[0], w->facts.type_shared, &w->shared_map))
		return false;
	w->function_shared = shared;
	w->shared_data = w->shared[V8_SHARED_DATA];
	w->cookie = script_v8_cookie(v8_shared_word(w, w->facts.shared_name),
				     v8_shared_word(w, w->facts.shared_script));
	w->function = function;
	return true;
}

UNWIND_INLINE uint64_t v8_word(uint32_t kind, uint64_t rest)
{
	return (uint64_t)kind << SCRIPT_WORD_KIND_SHIFT | rest;
}

UNWIND_INLINE uint64_t v8_word_a(uint32_t frame, uint64_t pointer)
{
	return v8_word(PROF_FRAME_SCRIPT, (uint64_t)SCRIPT_V8 << SCRIPT_RUNTIME_SHIFT |
						  (uint64_t)frame << SCRIPT_HOTSPOT_FRAME_SHIFT |
						  (pointer & SCRIPT_HOTSPOT_POINTER_MASK));
}

/* The frames of code without a function have words by which they are told: a type, or (older
 * versions, regular expressions) the string that is searched, where others have a context. */
UNWIND_INLINE uint32_t v8_kind_of(const struct v8_walk *w)
{
	uint64_t word = w->frame[V8_SLOT_CONTEXT];

	if (word && word == (uint64_t)w->facts.frame_wasm << V8_FRAME_TYPE_SHIFT)
		return SCRIPT_V8_WASM;
	if (w->facts.frame_regexp ? word == (uint64_t)w->facts.frame_regexp << V8_FRAME_TYPE_SHIFT :
				    v8_type(w, word) < w->facts.first_nonstring)
		return SCRIPT_V8_REGEXP;
	return 0;
}

UNWIND_INLINE void v8_other(const struct v8_walk *w, const struct unwind_state *at,
			    uint64_t words[2])
{
	uint32_t kind = v8_kind_of(w);

	if (!kind)
		return;
	words[0] = v8_word_a(kind, at->ip);
	words[1] = v8_word(PROF_FRAME_SCRIPT_AT, at->is_return ? SCRIPT_V8_RETURN : 0);
}

/* The words of a frame of the interpreter. The offset in an innermost one is that of an earlier
 * call. */
UNWIND_INLINE void v8_interpreted(const struct v8_walk *w, uint64_t shared, uint32_t cookie,
				  bool is_return, uint64_t words[2])
{
	uint64_t offset = (w->frame[V8_SLOT_OFFSET] >> 32) - (w->facts.bytecode_data - 1u);

	if (!is_return || offset >= SCRIPT_POSITION_NONE)
		offset = SCRIPT_POSITION_NONE;
	words[0] = v8_word_a(SCRIPT_V8_INTERPRETED, shared);
	words[1] = v8_word(PROF_FRAME_SCRIPT_AT, offset << SCRIPT_POSITION_SHIFT | cookie);
}

UNWIND_INLINE void v8_compiled(uint32_t kind, uint64_t ip, uint64_t shared, uint32_t cookie,
			       uint64_t words[2])
{
	words[0] = v8_word_a(kind, ip);
	words[1] = v8_word(PROF_FRAME_SCRIPT_AT,
			   (shared >> 3 & SCRIPT_V8_SHARED_MASK) << SCRIPT_V8_SHARED_SHIFT |
				   (cookie & SCRIPT_V8_COOKIE_MASK));
}

/* A builtin without a frame has pushed nothing, so that its return address is on top of the stack.
 * The reader looks whether this is code of the function. */
UNWIND_INLINE uint64_t v8_top(const struct unwind_state *at)
{
	uint64_t word = 0;

	if (UNWIND_READ(&word, sizeof(word), at->sp) || word < 4096 || word >= ARCH_USER_END)
		return 0;
	return word;
}

/* The word that names the function of a frame: the other one has a position. */
UNWIND_INLINE uint64_t v8_word_function(const uint64_t words[2])
{
	bool is_interpreted = (words[0] >> SCRIPT_HOTSPOT_FRAME_SHIFT & 15) == SCRIPT_V8_INTERPRETED;

	return is_interpreted ? words[0] : words[1];
}

/* Is the frame of @at, which was read, one of JavaScript? Then its words are in @words. */
UNWIND_INLINE int v8_function(struct v8_walk *w, const struct unwind_state *at, bool in_file,
			   uint64_t words[2])
{
	uint64_t shared, function = w->frame[V8_SLOT_FUNCTION];
	bool interpreted;
	uint32_t cookie;

	if (!v8_is_object(w->frame[V8_SLOT_CONTEXT]) || !v8_is_object(function))
		return 0;
	interpreted = in_file && !(w->frame[V8_SLOT_OFFSET] & 0xffffffff) &&
		      v8_is_bytecode(w, w->frame[V8_SLOT_BYTECODE]);
	if (in_file && !interpreted && at->is_return)
		return 0; /* a builtin's own frame: its symbol names it */
	if (!v8_look(w, function))
		return 0;
	/* A builtin that has no frame yet runs in that of its caller. A builtin's own function has a
	 * number for code. */
	if (in_file && !interpreted && !(w->shared_data & 1))
		return 0;
	shared = w->function_shared;
	cookie = w->cookie;
	if (interpreted)
		v8_interpreted(w, shared - 1, cookie, at->is_return, words);
	else if (in_file)
		v8_compiled(SCRIPT_V8_BUILTIN, v8_top(at), shared - 1, cookie, words);
	else
		v8_compiled(at->is_return ? SCRIPT_V8_COMPILED : SCRIPT_V8_INNERMOST, at->ip,
			    shared - 1, cookie, words);
	return 1;
}

/* The words of the frame of @at in @words, if it is one of JavaScript, WebAssembly or a regular
 * expression. @in_file: its pc lies in a file, in the interpreter or a builtin, else in generated
 * code. */
UNWIND_INLINE void v8_frame(struct v8_walk *w, const struct unwind_state *at, bool in_file,
			    uint64_t words[2])
{
	w->frame_is_read = !(at->fp & 7) && at->fp >= 4096 && at->fp < ARCH_USER_END &&
			   !UNWIND_READ(w->frame, sizeof(w->frame), at->fp - V8_FRAME_AT);
	if (w->frame_is_read && !v8_function(w, at, in_file, words) && !in_file)
		v8_other(w, at, words);
}

/* Steps from code of V8, which keeps frame pointers. @words, which the caller has cleared: those of
 * the frame, if it is one of v8_frame(). */
UNWIND_INLINE int v8_step(struct v8_walk *w, struct unwind_state *at, bool in_file,
			  uint64_t words[2])
{
	uint8_t code[16];
	uint32_t pushed;
	int rc;

	if (!at->is_return) {
		if (unwind_read(at, code, sizeof(code), at->ip))
			return UNWIND_FAULT;
		if (arch_is_frameless(code, &pushed))
			return unwind_step_frameless(at, pushed);
	}
	v8_frame(w, at, in_file, words);
	if (!w->frame_is_read)
		return unwind_step_fp(at);
	rc = unwind_check_fp(at);
	return rc ? rc : unwind_step_fp_pair(at, &w->frame[V8_SLOT_CALLER]);
}

#endif
