/* SPDX-License-Identifier: Apache-2.0 */
/* V8's translations: for each place in optimized code where it may be left, which functions it
 * stands for, and which bytecode each of them executes. Pure; every value is hostile. Source: V8's
 * src/deoptimizer/translation-opcode.h and src/objects/deoptimization-data.cc, as of V8 12.4, 13.6
 * and 14.6. */
#ifndef PROFD_RUNTIMES_V8_TRANSLATIONS_H
#define PROFD_RUNTIMES_V8_TRANSLATIONS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

/* The operations that translations are written in. They differ between versions. */
enum v8_operations {
	V8_OPERATIONS_UNKNOWN = 0,
	V8_OPERATIONS_12 = 1, /* V8 12.4 */
	V8_OPERATIONS_13 = 2, /* V8 13.6 and 14.6 */
	V8_OPERATIONS_END = 3,
};

#define V8_OPERATIONS_MAX 48u

/* V8's own table of @set: how many operands each operation has. Returns the number of operations,
 * at most V8_OPERATIONS_MAX; 0 if the set is not known. */
unsigned v8_operations_table(enum v8_operations set, int32_t ret[V8_OPERATIONS_MAX]);

#define V8_BUILTIN INT32_MIN /* the bytecode of a builtin's frame, which has none */

/* A function's frame in a translation. */
struct v8_frame {
	uint32_t literal; /* index of its SharedFunctionInfo in the code's literals */
	int32_t bytecode; /* offset of the one that is executed; V8_ENTRY, or V8_BUILTIN */
};

/* The frames of the translation at @index of a table of @len bytes, outermost first. Returns their
 * number. -ENODATA: the set is not known, or there are no frames or more than @max; -EINVAL: the
 * translation is damaged. After an error @ret has any contents. */
int v8_translation_frames(enum v8_operations set, const uint8_t *table, size_t len, uint32_t index,
			  struct v8_frame *ret, unsigned max) must_use;

#endif
