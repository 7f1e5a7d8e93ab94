// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/v8_translations.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* The first operations are frames of functions, the first two of them of bytecode. */
#define BYTECODE_FRAMES 2u
#define FUNCTION_FRAMES 4u
#define FRAME_OPERANDS	2u /* of a function's frame: its bytecode, its literal */
#define BEGIN_OPERANDS	3u /* how far the basis is, all frames, those of functions */
#define OPERANDS_MAX	6u

struct operations {
	uint8_t count;
	uint8_t begin;	/* a translation begins with this one or the next */
	uint8_t repeat; /* repeats operations of the basis; a byte of @count and more does, too */
	uint8_t operands[V8_OPERATIONS_MAX];
};

static const struct operations sets[V8_OPERATIONS_END] = {
	[V8_OPERATIONS_12] = { 40, 12, 39,
			       { 5, 3, 3, 3, 2, 1, 3, 4, 3, 2, 1, 0, 3, 3, 1, 1, 1, 1, 1, 1,
				 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 2, 1 } },
	[V8_OPERATIONS_13] = { 45, 14, 44,
			       { 6, 4, 3, 3, 2, 1, 3, 4, 3, 3, 3, 1, 0, 0, 3, 3, 1, 1, 1, 0, 1, 1, 1,
				 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 2, 1 } },
};

unsigned v8_operations_table(enum v8_operations set, int32_t ret[V8_OPERATIONS_MAX])
{
	if (set >= V8_OPERATIONS_END)
		return 0;
	for (unsigned i = 0; i < sets[set].count; i++)
		ret[i] = sets[set].operands[i];
	return sets[set].count;
}

struct walk {
	const struct operations *set;
	const uint8_t *table, *end;
	const uint8_t *at;    /* in the translation itself */
	const uint8_t *basis; /* in the earlier one that it repeats parts of; NULL = there is none */
	uint32_t repeated;    /* operations to take from the basis, with the one at hand */
	uint32_t own;	      /* operations that were taken since the basis was in step */
};

struct operation {
	uint8_t code;
	uint32_t operands[OPERANDS_MAX];
};

static int take_byte(const struct walk *walk, const uint8_t **at, uint8_t *ret)
{
	if (*at >= walk->end)
		return -EINVAL;
	*ret = *(*at)++;
	return 0;
}

/* Seven bits a byte, the lowest ones first. */
static int take_number(const struct walk *walk, const uint8_t **at, uint32_t *ret)
{
	uint32_t number = 0;
	uint8_t byte;

	for (unsigned shift = 0; shift < 32; shift += 7) {
		if (take_byte(walk, at, &byte) < 0)
			return -EINVAL;
		number |= (uint32_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = number;
			return 0;
		}
	}
	return -EINVAL;
}

static int take_operands(const struct walk *walk, const uint8_t **at, struct operation *ret)
{
	for (unsigned i = 0; i < walk->set->operands[ret->code]; i++)
		if (take_number(walk, at, &ret->operands[i]) < 0)
			return -EINVAL;
	return 0;
}

/* An operation of the basis, which repeats none itself. */
static int take_from_basis(struct walk *walk, struct operation *ret)
{
	if (!walk->basis || take_byte(walk, &walk->basis, &ret->code) < 0 ||
	    ret->code >= walk->set->count || ret->code == walk->set->repeat)
		return -EINVAL;
	return take_operands(walk, &walk->basis, ret);
}

static int begin_repeating(struct walk *walk, uint8_t byte, struct operation *ret)
{
	if (byte > walk->set->repeat)
		walk->repeated = byte - walk->set->count;
	else if (take_number(walk, &walk->at, &walk->repeated) < 0)
		return -EINVAL;
	if (!walk->repeated)
		return -EINVAL;
	for (; walk->own; walk->own--)
		if (take_from_basis(walk, ret) < 0)
			return -EINVAL;
	return take_from_basis(walk, ret);
}

static int take_operation(struct walk *walk, struct operation *ret)
{
	uint8_t byte;

	if (walk->repeated && --walk->repeated)
		return take_from_basis(walk, ret);
	if (take_byte(walk, &walk->at, &byte) < 0)
		return -EINVAL;
	if (byte >= walk->set->repeat)
		return begin_repeating(walk, byte, ret);
	walk->own++;
	ret->code = byte;
	return take_operands(walk, &walk->at, ret);
}

/* A sign is the lowest bit. */
static int32_t signed_of(uint32_t number)
{
	int32_t half = (int32_t)(number >> 1);

	return number & 1 ? -half : half;
}

/* Takes the first operation, at @index. @ret: how many frames of functions follow. */
static int begin(struct walk *walk, uint32_t index, int32_t *ret)
{
	const uint8_t *start = walk->table + index;
	struct operation operation;
	uint32_t back;

	walk->at = start;
	if (take_operation(walk, &operation) < 0 ||
	    (operation.code != walk->set->begin && operation.code != walk->set->begin + 1))
		return -EINVAL;
	back = operation.operands[0];
	if (back > index)
		return -EINVAL;
	walk->basis = back ? start - back : NULL;
	*ret = signed_of(operation.operands[BEGIN_OPERANDS - 1]);
	return 0;
}

static int take_frame(const struct operation *operation, struct v8_frame *ret)
{
	int32_t bytecode = signed_of(operation->operands[0]);
	int32_t literal = signed_of(operation->operands[FRAME_OPERANDS - 1]);

	if (bytecode < -1 || literal < 0)
		return -EINVAL;
	*ret = (struct v8_frame){ (uint32_t)literal,
				  operation->code < BYTECODE_FRAMES ? bytecode : V8_BUILTIN };
	return 0;
}

int v8_translation_frames(enum v8_operations set, const uint8_t *table, size_t len, uint32_t index,
			  struct v8_frame *ret, unsigned max)
{
	struct walk walk = { .set = &sets[set < V8_OPERATIONS_END ? set : 0],
			     .table = table,
			     .end = table + len };
	int32_t count, found = 0;
	int rc;

	if (!walk.set->count)
		return -ENODATA;
	if (index >= len || begin(&walk, index, &count) < 0)
		return -EINVAL;
	if (count <= 0 || (uint32_t)count > max)
		return -ENODATA;
	while (found < count) {
		struct operation operation;

		rc = take_operation(&walk, &operation);
		if (rc == 0 && operation.code < FUNCTION_FRAMES)
			rc = take_frame(&operation, &ret[found++]);
		/* The next translation begins: this one had fewer frames than it said. */
		if (rc < 0 || operation.code == walk.set->begin ||
		    operation.code == walk.set->begin + 1)
			return -EINVAL;
	}
	return count;
}
