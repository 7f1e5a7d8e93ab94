/* SPDX-License-Identifier: Apache-2.0 */
/* Code that V8's compilers have generated: which piece an address lies in, and which functions are
 * inlined there. Every value of the target is hostile. Source: V8's src/objects/code.h,
 * src/objects/deoptimization-data.h. */
#ifndef PROFD_READER_V8_CODE_H
#define PROFD_READER_V8_CODE_H

#include "agent/reader/v8_text.h"
#include "agent/runtimes/v8_positions.h"
#include "agent/runtimes/v8_translations.h"
#include "agent/wire/control.h"
#include "agent/wire/feed.h"

/* A piece of code that a compiler of V8 has made. */
struct v8_code {
	uint64_t object; /* Code, tagged */
	uint64_t start;	 /* address of its first instruction */
	uint32_t bytes;
	uint32_t flags;
};

#define V8_PLACES_MAX SCRIPT_FUNCTIONS_MAX

/* A function in its code, and the character of its script's source that it executes. */
struct v8_place {
	uint64_t shared; /* its SharedFunctionInfo, tagged */
	uint32_t offset;
};

/* Finds the code that a call at the return address @pc is in. -ENODATA: it is not there any more;
 * -ESRCH, -EPERM: as target_read(). */
int v8_code_find(const struct v8_heap *heap, uint64_t pc, struct v8_code *ret) must_use;
/* The tier of code of a JavaScript function. */
enum feed_tier v8_code_tier(const struct v8_heap *heap, const struct v8_code *code);
/* Is @code that of the function @shared, whose BytecodeArray is @bytecode? False if that is not
 * known. @code_bytecode: what baseline code leads to. */
bool v8_code_is_of(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		   uint64_t bytecode, uint64_t code_bytecode);
/* The functions at @pc in optimized code of @shared, innermost first: what is inlined there, then
 * @shared itself. @format is that of the process's tables. Where a call returns to (@is_return),
 * they are exact. Elsewhere they are mostly not recorded: then *@ret_is_approximate is set, @ret
 * has the functions that the recorded places on both sides have in common, and the innermost one's
 * character is that of the nearer side. The number of functions; -ENODATA: the code's table does
 * not say. */
int v8_code_places(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		   uint64_t pc, bool is_return, enum v8_positions_format format,
		   struct v8_place ret[V8_PLACES_MAX], bool *ret_is_approximate) must_use;
/* Maglev's table of places is wrong behind a loop that it has peeled (seen in V8 13.6). Its data
 * for deoptimization says for every call what V8's own stack traces show. */
bool v8_code_is_maglev(const struct v8_heap *heap, const struct v8_code *code);
/* A function in Maglev's code. */
struct v8_call {
	uint64_t shared;  /* SharedFunctionInfo of the function that calls, tagged */
	int32_t bytecode; /* offset of the call in it; V8_ENTRY, or V8_BUILTIN */
};
/* The functions at @pc in Maglev's code of @shared, innermost first: what is inlined there, then
 * @shared itself. Where a call returns to (@is_return), they are exact. Elsewhere @ret has the
 * functions that the calls on both sides have in common, and the innermost one's bytecode is that
 * of the nearer side. Returns their number. -ENODATA: the code has no such call, its data does not
 * say, or this version of V8 is not known. After an error @ret has any contents. */
int v8_code_calls(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		  uint64_t pc, bool is_return, struct v8_call ret[V8_PLACES_MAX]) must_use;
/* The same for optimized code that V8 has given up while a call was under way: the return address
 * is then @pc, an exit of the code. -ENODATA: it is none, or as above. */
int v8_code_exit(const struct v8_heap *heap, const struct v8_code *code, uint64_t shared,
		 uint64_t pc, struct v8_call ret[V8_PLACES_MAX]) must_use;
/* The offset of the bytecode at @pc in baseline code, V8_ENTRY in front of the first one. @bytecode
 * is the function's BytecodeArray, tagged. -ENODATA: the code's table does not say, or the lengths
 * of this version's bytecodes are not known; -ENOMEM. */
int v8_code_bytecode(const struct v8_heap *heap, const struct v8_code *code, uint64_t bytecode,
		     uint64_t pc, bool is_return, int32_t *ret) must_use;
/* The table of bytes that the object's word at @offset leads to. Its length, at most @max;
 * -ENODATA: there is none. */
int v8_bytes(const struct v8_heap *heap, uint64_t object, uint32_t offset, uint8_t *ret,
	     uint32_t max) must_use;

#endif
