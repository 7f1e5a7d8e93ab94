/* SPDX-License-Identifier: Apache-2.0 */
/* Names of (module, file offset) pairs, as a borrowed interface: the server fills it with answers
 * of the symbolizer process, tests with a table. */
#ifndef PROFD_PROFILE_NAMES_H
#define PROFD_PROFILE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define NAMES_INLINE_MAX 64

struct name_frame {
	const char *function; /* demangled; "" = a function that has no name, which is the only
				 frame then */
	const char *package;  /* "" unless the language has one */
	const char *file;     /* "" if unknown */
	union {
		uint32_t line;	     /* of the address, 0 if unknown */
		uint32_t from_start; /* of a function without a name: bytes from there to the offset asked for */
	};
	uint32_t start_line;  /* of the function, 0 if unknown */
	uint8_t kind;	      /* enum profile_frame_kind */
	uint8_t tier;	      /* enum profile_tier */
	bool is_approximate;  /* as PROFILE_FRAME_APPROXIMATE */
	const char *symbol;   /* that @function was demangled from; NULL or "" = the same */
	bool is_wrapper;      /* made by Go's compiler; only where it is the only frame */
};

struct name_source {
	void *ctx;
	/* Innermost first; the outermost entry is the function itself (or, where Go's compiler made
	 * that, what it calls), the others are inlined into it. Returns the number of frames (at
	 * most NAMES_INLINE_MAX), 0 = unknown, -EAGAIN = not known yet. Texts are valid until the
	 * next call. @offset has already been moved back by one for return addresses. */
	int (*find)(void *ctx, uint64_t module_key, uint64_t offset, struct name_frame *ret);
	/* Hint: these pairs will be asked for; the source may fetch them together. May be NULL. */
	void (*prefetch)(void *ctx, uint64_t module_key, const uint64_t *offsets, size_t count);
};

#endif
