/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and strings of V8's heap in a process that runs. Tagged pointers have bit 0 set; a string
 * is one of five shapes (V8's src/objects/string.h). Every value is hostile and may be torn. */
#ifndef PROFD_READER_V8_TEXT_H
#define PROFD_READER_V8_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"
#include "bpf/arch.h"
#include "bpf/script.h"

struct v8_heap {
	struct target *target;
	const struct script_v8 *v8;
};

/* An object whose type is none of those that are known has this one. */
#define V8_TYPE_NONE UINT16_MAX

static inline bool v8_is_tagged(uint64_t word)
{
	return (word & 3) == 1 && word > 4096 && word < ARCH_USUAL_END;
}

/* A small integer: the upper half of a word whose lower half is 0. False: it is none. */
static inline bool v8_small(uint64_t word, uint32_t *ret)
{
	*ret = (uint32_t)(word >> 32);
	return !(uint32_t)word && *ret <= INT32_MAX;
}

/* @len bytes at @offset in @object. -EFAULT: it is no object, or cannot be read. -ESRCH, -EPERM as
 * target_read(). */
int v8_read(const struct v8_heap *heap, uint64_t object, uint32_t offset, void *ret, size_t len)
	must_use;
/* The instance type of @object, V8_TYPE_NONE if it cannot be read. */
uint16_t v8_type(const struct v8_heap *heap, uint64_t object);
bool v8_is_string(const struct v8_heap *heap, uint64_t object);
/* Characters of string @object, 0 if it is none. */
uint32_t v8_string_length(const struct v8_heap *heap, uint64_t object);
/* Copies @count UTF-16 units of string @object from @from on. -EFAULT: it has no such part, or
 * cannot be read; -E2BIG: it is made of too many pieces. -ESRCH, -EPERM. */
int v8_string_units(const struct v8_heap *heap, uint64_t object, uint32_t from, uint32_t count,
		    uint16_t *ret) must_use;

#endif
