// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/v8_text.h"

#include <errno.h>
#include <string.h>

/* Bits of a string's type (V8's src/objects/instance-type.h). */
#define SHAPE_MASK     7u
#define ONE_BYTE       8u
#define UNCACHED       16u /* an external string without the address of its characters */
#define SHAPE_SEQUENCE 0u
#define SHAPE_CONS     1u
#define SHAPE_EXTERNAL 2u
#define SHAPE_SLICED   3u
#define SHAPE_THIN     5u

#define PIECES_MAX   64u /* of one text */
#define WHOLE_BYTES  8192u
#define LENGTH_MAX   (1u << 30) /* V8's own limit is below */

int v8_read(const struct v8_heap *heap, uint64_t object, uint32_t offset, void *ret, size_t len)
{
	if (!v8_is_tagged(object))
		return -EFAULT;
	return target_read(heap->target, object - 1 + offset, ret, len);
}

uint16_t v8_type(const struct v8_heap *heap, uint64_t object)
{
	uint64_t map;
	uint16_t type;

	if (v8_read(heap, object, 0, &map, sizeof(map)) < 0 ||
	    v8_read(heap, map, heap->v8->map_type, &type, sizeof(type)) < 0)
		return V8_TYPE_NONE;
	return type;
}

bool v8_is_string(const struct v8_heap *heap, uint64_t object)
{
	return v8_type(heap, object) < heap->v8->first_nonstring;
}

uint32_t v8_string_length(const struct v8_heap *heap, uint64_t object)
{
	uint32_t length;

	if (!v8_is_string(heap, object) ||
	    v8_read(heap, object, heap->v8->string_length, &length, sizeof(length)) < 0 ||
	    length > LENGTH_MAX)
		return 0;
	return length;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* A part of a text that is still to be copied to @to. */
struct part {
	uint64_t object;
	uint32_t from, count, to;
};

struct copy {
	const struct v8_heap *heap;
	uint16_t *ret;
	struct part parts[PIECES_MAX];
	unsigned count;
};

static int push(struct copy *copy, struct part part)
{
	if (!part.count)
		return 0;
	if (copy->count == PIECES_MAX)
		return -E2BIG;
	copy->parts[copy->count++] = part;
	return 0;
}

static int copy_units(struct copy *copy, const struct part *part, uint64_t va, bool is_one_byte)
{
	uint16_t *ret = copy->ret + part->to;
	uint8_t bytes[WHOLE_BYTES];
	int rc = 0;

	if (!is_one_byte)
		return target_read(copy->heap->target, va + part->from * 2ull, ret, part->count * 2ull);
	for (uint32_t at = 0; rc == 0 && at < part->count;) {
		uint32_t n = part->count - at < sizeof(bytes) ? part->count - at : sizeof(bytes);

		rc = target_read(copy->heap->target, va + part->from + at, bytes, n);
		for (uint32_t i = 0; rc == 0 && i < n; i++)
			ret[at + i] = bytes[i];
		at += n;
	}
	return rc;
}

static int copy_external(struct copy *copy, const struct part *part, uint16_t type)
{
	uint64_t at;
	int rc;

	if (type & UNCACHED)
		return -EFAULT;
	/* The address of the characters follows that of the resource. */
	rc = v8_read(copy->heap, part->object, copy->heap->v8->external_resource + 8u, &at, sizeof(at));
	return rc < 0 ? rc : copy_units(copy, part, at, type & ONE_BYTE);
}

static int split_cons(struct copy *copy, const struct part *part)
{
	const struct script_v8 *v8 = copy->heap->v8;
	struct part first = *part, second = *part;
	uint32_t length;
	int rc = v8_read(copy->heap, part->object, v8->cons_first, &first.object, 8);

	if (rc == 0)
		rc = v8_read(copy->heap, part->object, v8->cons_second, &second.object, 8);
	if (rc < 0)
		return rc;
	length = v8_string_length(copy->heap, first.object);
	if (part->from >= length) {
		second.from = part->from - length;
		return push(copy, second);
	}
	if (first.count > length - part->from)
		first.count = length - part->from;
	second.from = 0;
	second.count = part->count - first.count;
	second.to = part->to + first.count;
	rc = push(copy, second);
	return rc < 0 ? rc : push(copy, first);
}

static int enter_sliced(struct copy *copy, struct part part)
{
	const struct script_v8 *v8 = copy->heap->v8;
	uint64_t word;
	uint32_t offset = 0;
	int rc = v8_read(copy->heap, part.object, v8->sliced_offset, &word, sizeof(word));

	if (rc == 0 && (!v8_small(word, &offset) || offset > LENGTH_MAX))
		rc = -EFAULT;
	if (rc == 0)
		rc = v8_read(copy->heap, part.object, v8->sliced_parent, &part.object, 8);
	if (rc < 0)
		return rc;
	part.from += offset;
	return push(copy, part);
}

static int copy_part(struct copy *copy, struct part part)
{
	const struct script_v8 *v8 = copy->heap->v8;
	uint32_t length = v8_string_length(copy->heap, part.object);
	uint16_t type = v8_type(copy->heap, part.object);
	int rc;

	if (part.from > length || part.count > length - part.from)
		return -EFAULT;
	switch (type & SHAPE_MASK) {
	case SHAPE_SEQUENCE:
		return copy_units(copy, &part, part.object - 1 + v8->string_chars, type & ONE_BYTE);
	case SHAPE_CONS:
		return split_cons(copy, &part);
	case SHAPE_EXTERNAL:
		return copy_external(copy, &part, type);
	case SHAPE_SLICED:
		return enter_sliced(copy, part);
	case SHAPE_THIN:
		rc = v8_read(copy->heap, part.object, v8->thin_actual, &part.object, 8);
		return rc < 0 ? rc : push(copy, part);
	default:
		return -EFAULT;
	}
}

int v8_string_units(const struct v8_heap *heap, uint64_t object, uint32_t from, uint32_t count,
		    uint16_t *ret)
{
	struct copy copy = { .heap = heap, .ret = ret };
	int rc = push(&copy, (struct part){ object, from, count, 0 });

	for (unsigned i = 0; rc == 0 && copy.count; i++)
		rc = i < 2 * PIECES_MAX ? copy_part(&copy, copy.parts[--copy.count]) : -E2BIG;
	return rc;
}
